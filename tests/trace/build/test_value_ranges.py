"""Numbers out of their range are removed at ingest, counted, and shown as unknown; both decoders agree on them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.helpers.decoder_input import decode_text, entry_text, trace_text
from tests.helpers.trace_builder import cpu, event, kernel, trace
from torchprof_tui.analysis.doctor.examination import diagnose_trace
from torchprof_tui.trace.build.build_trace import build_trace
from torchprof_tui.trace.build.sparse_columns import MAX_SUM, RANGES, find_beyond_sum
from torchprof_tui.trace.core.problems import NUMBER_KINDS
from torchprof_tui.trace.model.raw_events import ARGS
from torchprof_tui.trace.model.trace import Trace

ODD_NUMBERS = [2**31, 2**63 - 1, 2**63, 2**63 + 1, -(2**63), -(2**63) - 1, 1e308, "text", [1], {"a": 1}]
"""No device, size or grid is any of these."""


def read(*args: dict[str, Any], **more: Any) -> Trace:
    """Decode kernels with these args from text, and build their trace."""
    return build_trace(
        decode_text(trace_text(*(entry_text(k, cat="kernel", args=arg, **more) for k, arg in enumerate(args)))), "read"
    )


def kinds(made: Trace) -> dict[str, int]:
    return {problem.kind: problem.count for problem in made.problems}


def test_every_arg_has_a_range_and_every_range_a_meaning() -> None:
    assert RANGES.keys() == ARGS.keys()
    reported = {f"{value_range.label} out of range" for value_range in RANGES.values()}
    assert reported | {"correlation out of range"} == set(NUMBER_KINDS)


@pytest.mark.parametrize("value", ODD_NUMBERS, ids=str)
def test_a_device_out_of_range_is_unknown(value: Any) -> None:
    made = read({"device": value, "stream": 7}, {"device": 0, "stream": 7}, pid=99_999)
    assert kinds(made) == {"device number out of range": 1}
    assert [made.event(k).lane.device for k in range(2)] in ([0, None], [None, 0])


@pytest.mark.parametrize("value", ODD_NUMBERS[3:], ids=str)
def test_ids_keep_all_but_the_last_bits(value: Any) -> None:
    made = read({"correlation": value, "stream": value, "External id": value})
    names = ("correlation", "stream number", "External id")
    assert kinds(made) == dict.fromkeys((f"{name} out of range" for name in names), 1)
    assert (made.correlation[0], made.args) == (-1, {})
    assert kinds(read({"correlation": 2**62, "stream": 2**40, "External id": 2**62})) == {}


@pytest.mark.parametrize(
    "grid", [[2**32, 1, 1], [2**31, 2**16, 2**16], [1, 2], "x", [1, 2, -1], [2**63, 1, 1]], ids=str
)
def test_a_grid_whose_product_would_overflow_is_unknown(grid: Any) -> None:
    made = read({"grid": grid, "block": [2**31, 1, 1]}, {"grid": [2**31 - 1, 1, 1], "block": [1024, 1, 1]})
    assert kinds(made) == {"grid out of range": 1}
    assert made.args["grid"].events.tolist() == [1]


def test_the_doctor_says_how_many_and_shows_the_first() -> None:
    made = trace(*(kernel(f"k{n}", 10 * n, 5, grid=[1, 1, 1], stream=2**62 + n) for n in range(1, 13)))
    remarks = {remark.kind: remark for remark in diagnose_trace(made).remarks}
    remark = remarks["stream number out of range"]
    assert (remark.count, remark.meaning) == (12, "events with a stream number out of range: shown as unknown")
    assert remark.example == f"entry 0, k1: {2**62 + 1}, read as unknown"


def test_unsigned_numbers_are_not_quoted_as_negative_ones() -> None:
    made = read(*({"stream": 2**63 + k} for k in range(12)))
    (problem,) = made.problems
    assert (problem.count, problem.example.partition(": ")[2]) == (12, "not a 64-bit integer, read as unknown")


def test_ordinary_numbers_are_no_problem() -> None:
    made = read(
        {"device": -1, "stream": -1, "bytes": -4096, "grid": [0, 0, 0], "block": [1, 1, 1], "registers per thread": 0},
        {"device": 7, "stream": None, "bytes": "12", "Addr": 2**64 - 1, "grid": None, "External id": ""},
    )
    assert kinds(made) == {}


def test_the_sum_of_all_durations_fits() -> None:
    longest = 2**61 // 1000
    made = trace(*(cpu(f"op{k}", k, longest) for k in range(4)), cpu("short", 9, 5))
    assert kinds(made) == {"duration out of range": 4}
    assert int(made.duration.sum()) == 5000
    assert kinds(trace(cpu("op", 0, longest), cpu("short", 9, 5))) == {}


def test_the_sum_of_all_sizes_fits() -> None:
    made = trace(
        *(event("m", k, 1, "gpu_memcpy", args={"device": 0, "stream": 7, "bytes": 2**50}) for k in range(5000))
    )
    assert kinds(made) == {"size in bytes out of range": 5000}
    assert "bytes" not in made.args


def test_only_values_above_the_mean_are_beyond_a_sum() -> None:
    beyond = find_beyond_sum(np.array([MAX_SUM - 1, 5, 6]))
    assert beyond is not None
    assert beyond.tolist() == [True, False, False]
    assert find_beyond_sum(np.array([MAX_SUM // 4, 5, 6])) is None
    assert find_beyond_sum(np.zeros(0, np.int64)) is None
