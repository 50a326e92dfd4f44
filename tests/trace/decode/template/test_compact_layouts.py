"""Compact text, an entry per line or all on one line, yields the columns of the same entries in Kineto's layout."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.helpers.counter_points import list_points
from tests.helpers.decoder_input import decode_text, format_as_kineto
from tests.helpers.decoder_spies import DecodedBytes, count_decoded_bytes
from tests.helpers.decoder_strategies import entries
from tests.helpers.long_run import scale_examples
from tests.trace.decode.template.test_template_decoder import assert_same
from torchprof_tui.trace.core.problems import ProblemTally
from torchprof_tui.trace.decode.column_builder import ColumnBuilder
from torchprof_tui.trace.decode.template.template_decoder import TemplateDecoder
from torchprof_tui.trace.model.raw_events import DecodedTrace, RawEvents

HEAD = '"schemaVersion":1,"baseTimeNanoseconds":1700000000000000000,'


def format_lines(items: list[Any]) -> str:
    """As torch's Python export writes: an entry per line, compact but for its args."""
    lines = []
    for item in items:
        args = json.dumps(item.get("args")) if isinstance(item, dict) and "args" in item else None
        rest = {key: value for key, value in item.items() if key != "args"} if args else item
        text = json.dumps(rest, separators=(",", ":"))
        lines.append(text if args is None else f'{text[:-1]}{"," if len(rest) else ""}"args":{args}}}')
    return "[\n" + ",\n".join(lines) + "\n]"


def format_one_line(items: list[Any]) -> str:
    """As torch's cuspy backend writes."""
    return json.dumps(items, separators=(",", ":"), ensure_ascii=False)


LAYOUTS: dict[str, Callable[[list[Any]], str]] = {
    "lines": format_lines,
    "one line": format_one_line,
    "json.dump": json.dumps,
}


def document(items: str) -> bytes:
    return f'{{{HEAD}"traceEvents":{items},"traceName":"x"}}'.encode()


def operator(k: int, **keys: Any) -> dict[str, Any]:
    """An op on a thread, and what differs from it."""
    usual = {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 2, "ts": k + 0.125, "dur": 0.5}
    return {**usual, "args": {"External id": k, "Input Dims": [[k, 2], []]}, **keys}


def counter(k: int, value: Any, name: str = "Power (W)", series: str = "") -> dict[str, Any]:
    """A sample of a counter, as cuspy writes it."""
    return {"ph": "C", "name": name, "pid": "GPU 0 Counters", "ts": k + 0.5, "args": {series: value}}


@pytest.fixture
def decoded_bytes(monkeypatch: pytest.MonkeyPatch) -> DecodedBytes:
    return count_decoded_bytes(monkeypatch)


def decode_both_ways(items: str, size: int) -> DecodedTrace:
    decoded = assert_same(document(items), size)
    assert isinstance(decoded, DecodedTrace)
    return decoded


numbers = st.one_of(
    st.integers(-(10**15), 10**15),
    st.floats(allow_nan=False, allow_infinity=False, width=64).filter(lambda x: 1e-4 < abs(x) < 1e15),
    st.sampled_from([0, 0.0, 93.83921043211234, 0.10000000000000009, 1e-5, 1e29, "7", None, True, 9007199254740993]),
)
samples = st.builds(
    counter,
    st.integers(0, 10**6),
    numbers,
    st.sampled_from(["Power (W)", "SM Active (%)", "x7"]),
    st.sampled_from(["", "value", "x7"]),
)
microseconds = st.one_of(
    st.integers(0, 10**9).map(lambda ns: ns / 1000),
    st.floats(0, 1e7).filter(lambda x: x == 0 or x > 1e-3),
    st.sampled_from([12345.677999999998, 12.346999999999998, 4526360110838.238, 8796093022208.25]),
)
operators = st.builds(
    lambda k, ts, dur, cat, name: operator(k, ts=ts, dur=dur, cat=cat, name=name),
    st.integers(0, 10**6),
    microseconds,
    microseconds,
    st.sampled_from(["cpu_op", "kernel", "user_annotation"]),
    st.sampled_from(["aten::mm", 'a{"ph":"X"}', "a,{b", "gemm_128", "é 1"]),
)


@settings(max_examples=scale_examples(1), suppress_health_check=[HealthCheck.filter_too_much])
@given(st.lists(st.one_of(operators, operators, samples), min_size=8, max_size=40), st.integers(300, 3000))
@example([counter(k, 31.9681636282665 / (k + 1)) for k in range(40)], 900)
@example([operator(k, ts=8796093022208.25 + k * 0.01) for k in range(30)], 900)
def test_both_decoders_and_all_layouts_agree(items: list[Any], size: int) -> None:
    expected = decode_text(document(format_as_kineto(items)), use_templates=False)
    for write in LAYOUTS.values():
        decoded = decode_both_ways(write(items), size)
        assert_columns_equal(decoded.events, expected.events)
        assert decoded.problems == expected.problems


@pytest.mark.long
@settings(max_examples=scale_examples(1))
@given(st.lists(entries, min_size=5, max_size=25), st.integers(300, 2000), st.sampled_from(sorted(LAYOUTS)))
def test_entries_of_all_types(items: list[Any], size: int, layout: str) -> None:
    assert_same(document(LAYOUTS[layout](items)), size)


@settings(max_examples=scale_examples(1))
@given(st.data(), st.sampled_from(sorted(LAYOUTS)))
def test_damaged_and_cut_text_opens_as_far_as_it_can_be_read(data: st.DataObject, layout: str) -> None:
    items = [operator(k) if k % 5 else counter(k, k / 3) for k in range(60)]
    text = bytearray(document(LAYOUTS[layout](items)))
    for _ in range(data.draw(st.integers(0, 2))):
        at = data.draw(st.integers(90, len(text) - 1))
        text[at : at + data.draw(st.integers(0, 2))] = data.draw(
            st.sampled_from([b"", b'"', b"\\", b"\x01", b"\xff", b"0", b"}", b"\n"])
        )
    cut = data.draw(st.sampled_from([len(text), len(text) * 2 // 3, len(text) // 2 + 7]))
    decoded = assert_same(bytes(text[:cut]), 1500)
    assert isinstance(decoded, DecodedTrace)
    before = sum(text[:cut].count(lead) for lead in (b'{"ph"', b'{ "ph"'))
    assert len(decoded.events) >= before - 6  # a damaged entry may take its neighbours with it


def assert_columns_equal(one: RawEvents, other: RawEvents) -> None:
    for name in ("phase", "time", "duration", "name", "category", "track", "correlation", "id"):
        assert np.array_equal(getattr(one, name), getattr(other, name)), name
    assert (one.names, one.categories, one.tracks) == (other.names, other.categories, other.tracks)
    assert list_points(one.counters) == list_points(other.counters)
    assert set(one.args) == set(other.args)
    for name, arg in one.args.items():
        assert np.array_equal(arg.entries, other.args[name].entries)
        assert np.array_equal(arg.values, other.args[name].values)


# --- literal text -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("layout", sorted(LAYOUTS))
def test_compact_text_is_decoded_without_dicts(layout: str, decoded_bytes: DecodedBytes) -> None:
    items = [operator(k) for k in range(400)]
    text = document(LAYOUTS[layout](items))
    decoded = decode_text(text, chunk_size=2000, use_templates=True)
    assert decoded_bytes.accepted > 0.9 * len(text)
    assert decoded.events.time.tolist() == [1000 * k + 125 for k in range(400)]


def test_counters_are_decoded_without_dicts(decoded_bytes: DecodedBytes) -> None:
    items = [counter(k, 300 + k / 7, "Power (W)" if k % 2 else "SM Clock (MHz)") for k in range(400)]
    text = document(format_one_line(items))
    decoded = decode_text(text, chunk_size=2000, use_templates=True)
    assert decoded_bytes.accepted > 0.9 * len(text)
    assert list_points(decoded.events.counters) == [(k, "", 300 + k / 7) for k in range(400)]


def test_values_of_counters_are_the_nearest_doubles(decoded_bytes: DecodedBytes) -> None:
    rng = random.Random(2)
    numbers = []
    for k in range(300):
        whole, decimals = rng.randrange(10 ** rng.choice([1, 5, 9, 15])), rng.choice([1, 6, 10, 16])
        numbers.append(f"{'-' * (k % 2)}{whole}.{rng.randrange(10**decimals):0{decimals}}")
    entries = (f'{{"ph":"C","name":"P","pid":1,"ts":{k},"args":{{"":{number}}}}}' for k, number in enumerate(numbers))
    decoded = decode_text(document(f"[{','.join(entries)}]"), chunk_size=2000, use_templates=True)
    assert decoded_bytes.accepted > decoded_bytes.refused
    assert [value for *_, value in list_points(decoded.events.counters)] == list(map(float, numbers))


def test_times_with_many_decimals_are_rounded_as_doubles(decoded_bytes: DecodedBytes) -> None:
    ts = [k * 10 + 0.677999999998 for k in range(400)]
    text = document(format_one_line([operator(k, ts=at, dur=1.0024999999999) for k, at in enumerate(ts)]))
    decoded = decode_both_ways(
        format_one_line([operator(k, ts=at, dur=1.0024999999999) for k, at in enumerate(ts)]), 2000
    )
    assert decoded_bytes.accepted > 0.8 * len(text)
    assert decoded.events.time.tolist() == [10_000 * k + 678 for k in range(400)]
    assert set(decoded.events.duration.tolist()) == {1002}


def test_an_object_in_args_that_begins_like_an_entry_is_no_entry() -> None:
    nested = [operator(k, args={"list": [{"ph": "X", "ts": 1}, {"ph": "X", "ts": 2}]}) for k in range(60)]
    decoded = decode_both_ways(format_one_line(nested), 900)
    assert len(decoded.events) == 60


def test_text_that_begins_otherwise_is_refused() -> None:
    decoder = TemplateDecoder(ColumnBuilder(ProblemTally()))
    text = format_one_line([operator(k) for k in range(9)])[1:-1].encode()
    assert decoder.try_decode(memoryview(text), b',{"name"') is None
    assert decoder.try_decode(memoryview(text), b',   {"ph"') is None
    assert decoder.try_decode(memoryview(text), b',{"ph"') is not None
    lines = format_lines([operator(k) for k in range(9)])[1:-2].encode()
    assert decoder.try_decode(memoryview(lines), b',\n{"ph"') is None  # a file has one layout
