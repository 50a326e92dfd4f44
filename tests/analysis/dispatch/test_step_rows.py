"""The rows of an event over the steps, recomputed from the file's entries by comparing every entry with every other."""

from __future__ import annotations

import gzip
import json
import re
import statistics
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.helpers.paths import SHARED_TRACES
from tests.helpers.trace_builder import annotation, cpu, kernel, runtime, step, trace
from torchprof_samples import find as sample
from torchprof_tui import open as open_trace
from torchprof_tui.analysis.dispatch.step_rows import StepRows, compare_steps, mark_outliers
from torchprof_tui.trace.core.errors import TraceError
from torchprof_tui.trace.model.trace import Trace

US = 1_000
CALLS = ("cuda_runtime", "cuda_driver")
WORK = ("kernel", "gpu_memcpy", "gpu_memset")

Entry = dict[str, Any]


def ns(micros: Decimal | int) -> int:
    return round(Decimal(micros) * 1000)


def read_spans(path: Path) -> list[Entry]:
    """Read all complete events, with integer times in ns."""
    entries = json.loads(gzip.decompress(path.read_bytes()), parse_float=Decimal)["traceEvents"]
    spans = [entry for entry in entries if entry.get("ph") == "X" and "dur" in entry]
    return [{**entry, "start": ns(entry["ts"]), "length": ns(entry["dur"])} for entry in spans]


def contains(outer: Entry, inner: Entry) -> bool:
    same = (outer["pid"], outer["tid"]) == (inner["pid"], inner["tid"])
    inside = outer["start"] <= inner["start"] and inner["start"] + inner["length"] <= outer["start"] + outer["length"]
    return same and inside and outer is not inner


def expect_row(spans: list[Entry], within: Entry, event: Entry) -> dict[str, Any]:
    """Compute the row of an op in one step, from all entries."""
    calls = [each for each in spans if each.get("cat") in CALLS and contains(event, each)]
    numbers = {each["args"]["correlation"]: each for each in calls}
    work = [each for each in spans if each.get("cat") in WORK and each["args"].get("correlation") in numbers]
    around = [each for each in spans if contains(each, event)]
    ops = sorted((each for each in around if each["cat"] == "cpu_op"), key=lambda each: -each["length"])
    own = ops[0] if ops else event
    annotations = [
        each for each in spans if each["cat"] == "user_annotation" and contains(each, own) and each is not within
    ]
    inner = min(annotations, key=lambda each: each["length"]) if annotations else within
    first = min((each for each in spans if each["cat"] == "cpu_op" and contains(inner, each)), key=lambda e: e["start"])
    row = {
        "annotation": inner["name"],
        "first_op": first["name"],
        "first_op_gap_ns": first["start"] - inner["start"],
        "op_gap_ns": own["start"] - inner["start"],
        "duration_ns": event["length"],
        **dict.fromkeys(("dispatch_ns", "launch_latency_ns", "queue_delay_ns", "kernel_time_ns"), None),
        "kernel": "",
    }
    if work:
        longest = max(work, key=lambda each: (each["length"], -each["start"]))
        call = numbers[longest["args"]["correlation"]]
        row |= {
            "dispatch_ns": call["start"] - own["start"],
            "launch_latency_ns": longest["start"] - call["start"],
            "queue_delay_ns": longest["start"] - call["start"] - call["length"],
            "kernel_time_ns": longest["length"],
            "kernel": longest["name"],
        }
    return row


ASKED = [
    (sample("article_64_cold").path, "aten::mm", 0),
    (sample("article_64_cold").path, "aten::add", 1),
    (sample("article_4096_active20").path, "aten::matmul", 7),
    (sample("matmul_add_64_sched0_active3").path, "aten::mm", 2),
    (sample("matmul_add_64_bmm8").path, "aten::bmm", 0),
    (sample("geglu_mlp_eager").path, "aten::gelu", 0),
    (SHARED_TRACES / "matmul_add_4096_active20.pt.trace.json.gz", "aten::mm", 3),
    (SHARED_TRACES / "matmul_add_64_sched0_active20.pt.trace.json.gz", "aten::add", 19),
    (SHARED_TRACES / "attention_naive.pt.trace.json.gz", "aten::bmm", 1),
    (SHARED_TRACES / "article" / "a4096_compile.pt.trace.json.gz", "aten::addmm", 0),
]


@pytest.mark.parametrize(("path", "name", "nth"), ASKED, ids=[f"{path.name[:24]}-{name}" for path, name, _ in ASKED])
def test_every_number_is_that_of_the_file(path: Path, name: str, nth: int) -> None:
    if not path.exists():
        pytest.skip("this trace is not here")
    spans = read_spans(path)
    steps = [each for each in spans if re.fullmatch(r"ProfilerStep#\d+", each["name"]) and "gpu" not in each["cat"]]
    steps.sort(key=lambda each: each["start"])
    events = sorted((each for each in spans if each["name"] == name), key=lambda each: each["start"])
    asked = events[nth]
    position = next(
        inside.index(asked) for step in steps if asked in (inside := [e for e in events if contains(step, e)])
    )
    expected = {}
    for each in steps:
        inside = [event for event in events if contains(each, event)]
        if position < len(inside):
            expected[int(each["name"].partition("#")[2])] = (expect_row(spans, each, inside[position]), len(inside))
    found = open_trace(path).chain(name, nth=nth, all_steps=True).steps
    assert found is not None
    assert [row.step for row in found.rows] == list(expected)
    assert len(found.rows) >= 2
    for row in found.rows:
        wanted, calls = expected[row.step]
        assert {key: getattr(row, key) for key in wanted} == wanted
        assert row.calls == calls
    assert sorted(found.missing) == sorted({int(each["name"].partition("#")[2]) for each in steps} - set(expected))
    for spread in found.spread:
        key = spread.of
        values = [wanted[key] for wanted, _ in expected.values() if wanted[key] is not None]
        assert spread.count == len(values)
        assert spread.mean_ns == pytest.approx(statistics.fmean(values))
        assert spread.median_ns == pytest.approx(statistics.median(values))
        assert (spread.p5_ns, spread.p95_ns) == pytest.approx((np.percentile(values, 5), np.percentile(values, 95)))
        for row in found.rows:
            value, middle = getattr(row, key), statistics.median(values)
            far = 3 * 1.4826 * statistics.median([abs(each - middle) for each in values])
            is_far = value is not None and abs(value - middle) > max(far, 0.5 * abs(middle), 500)
            assert (key in row.outliers) == (is_far and len(values) >= 3), (key, row.step)


def list_entries(times: list[int], names: list[str] | None = None, shapes: list[Any] | None = None) -> list[Entry]:
    """List one step per kernel time (µs), each with one op, its launch and its kernel."""
    entries: list[Entry] = []
    for index, time in enumerate(times):
        at = index * 10_000
        dims = {} if shapes is None else {"Input Dims": shapes[index]}
        entries += [
            step(index, at, 5_000),
            annotation("block" if names is None else names[index], at + 10, 200),
            cpu("aten::mm", at + 20, 100, **dims),
            runtime("cudaLaunchKernel", at + 30, 10, corr=index + 1),
            kernel("gemm", at + 50, time, corr=index + 1),
        ]
    return entries


def steps_with(times: list[int], names: list[str] | None = None) -> Trace:
    return trace(*list_entries(times, names))


def compare(shown: Trace) -> StepRows:
    found = compare_steps(shown, int(np.flatnonzero(shown.name == shown.names.index("aten::mm"))[0]))
    assert found is not None
    return found


def test_a_mean_that_is_not_typical_is_told_from_the_median() -> None:
    found = compare(steps_with([580, 580, 580, 580, 3_100]))
    assert found.describe_spread("kernel_time") == "mean 1.08 ms, typical 580.0 µs"
    assert {index for index, name in found.outliers if name == "kernel_time"} == {4}


def test_an_even_kernel_has_a_mean_alone_and_no_explanation() -> None:
    found = compare(steps_with([580, 581, 579, 580]))
    assert found.describe_spread("kernel_time") == "mean 580.0 µs"
    assert found.explanation == ""


def test_kinds_of_steps_explain_a_kernel_first() -> None:
    found = compare(steps_with([100, 20, 20, 20], ["prefill", "decode", "decode", "decode"]))
    assert found.explanation == "the inputs of the steps differ, and the time with them: 20.0 µs to 100.0 µs"


LARGE, SMALL = [[4096, 64]], [[64, 64]]


@pytest.mark.parametrize(
    ("times", "shapes", "explanation"),
    [
        ([100, 100, 20, 20], [LARGE, LARGE, SMALL, SMALL], "the inputs of the steps differ, and the time with them"),
        ([100, 40, 20, 60], [SMALL] * 4, "the inputs are the same in all steps: clocks, heat"),
        ([100, 40, 20, 60], None, "no input shapes were recorded (record_shapes=True)"),
        (
            [100, 40, 70, 20, 60, 30],
            [LARGE, LARGE, LARGE, SMALL, SMALL, SMALL],
            "the inputs of the steps differ (30.0 µs to 70.0 µs), but the time varies where they are the same, too",
        ),
    ],
)
def test_shapes_explain_a_kernel_first(
    times: list[int], shapes: list[Any] | None, explanation: str, tmp_path: Path
) -> None:
    path = tmp_path / "steps.pt.trace.json"
    path.write_text(json.dumps({"traceEvents": list_entries(times, shapes=shapes)}))
    found = open_trace(path).chain("aten::mm", all_steps=True).steps
    assert found is not None
    assert found.explanation.startswith(explanation)
    assert [row.inputs for row in found.rows] == [str(each) for each in shapes or [""] * len(times)]


def test_a_step_is_compared_with_the_others() -> None:
    found = open_trace(sample("article_64_cold").path).chain("ProfilerStep#3", all_steps=True).steps
    assert found is not None
    spans = read_spans(sample("article_64_cold").path)
    steps = [each for each in spans if each["name"].startswith("ProfilerStep#") and each["cat"] == "user_annotation"]
    assert [(row.step_name, row.duration_ns) for row in found.rows] == [
        (each["name"], each["length"]) for each in sorted(steps, key=lambda each: each["start"])
    ]
    assert found.missing == []


def test_two_steps_have_no_outlier() -> None:
    assert compare(steps_with([100, 20])).outliers == frozenset()


def test_an_outlier_does_not_hide_another() -> None:
    assert mark_outliers(np.array([5_000, 5_200, 228_000, 90_000, 4_900])).tolist() == [False, False, True, True, False]
    assert not mark_outliers(np.array([100, 100, 100, 500])).any()  # within what the clocks resolve


def test_an_event_outside_of_all_steps_has_no_rows() -> None:
    shown = trace(cpu("aten::mm", 0, 10), step(0, 100, 10))
    assert compare_steps(shown, int(np.flatnonzero(shown.name == shown.names.index("aten::mm"))[0])) is None
    with pytest.raises(TraceError, match="in no step"):
        open_trace(sample("article_64_cold").path).chain("cudaDeviceSynchronize", all_steps=True)
