"""The byte scan gives what the general reader gives, column by column, and leaves to it what is not plain."""

from __future__ import annotations

import gzip
import io
import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.helpers.column_equality import assert_alike
from tests.trace.decode.test_decoder import ALL, entries, kineto_layout
from torchprof_tui.trace.core import problems
from torchprof_tui.trace.core.errors import TraceError
from torchprof_tui.trace.core.problems import ProblemTally
from torchprof_tui.trace.decode.column_builder import ColumnBuilder
from torchprof_tui.trace.decode.decoder import decode_trace
from torchprof_tui.trace.decode.template.template_decoder import TemplateDecoder
from torchprof_tui.trace.json_text.salvage import parse_chunk
from torchprof_tui.trace.model.raw_events import DecodedTrace
from torchprof_tui.trace.sources.source import Source

BETWEEN = b',\n  {\n    "'


def decode(text: bytes, **options: Any) -> DecodedTrace | str:
    """What was read; the words of the error where it was refused."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            return decode_trace(Source("stdin", io.BytesIO(text)), Path(folder), **options)
        except TraceError as error:
            return str(error)


def assert_same(text: bytes, size: int) -> DecodedTrace | str:
    """Both ways of reading agree on everything: columns, order of interned values, problems, where chunks lie."""
    scanned, general = (decode(text, chunk_size=size, scan=scan) for scan in (True, False))
    if isinstance(scanned, str) or isinstance(general, str):
        assert scanned == general
        return scanned
    assert_alike(scanned, general, chunks=True)
    return scanned


class Watched:
    """How many bytes the scan was offered, and how many it took."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.taken = self.refused = 0
        take = TemplateDecoder.try_decode

        def watched(scan: TemplateDecoder, text: memoryview, between: bytes) -> Any:
            begins = take(scan, text, between)
            if begins is None:
                self.refused += len(text)
            else:
                self.taken += len(text)
            return begins

        monkeypatch.setattr(TemplateDecoder, "try_decode", watched)


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> Watched:
    return Watched(monkeypatch)


# --- real traces ----------------------------------------------------------------------------------------------------


@pytest.mark.skipif(not ALL, reason="no traces here")
@pytest.mark.parametrize("path", ALL, ids=lambda path: path.name)
def test_real_traces(path: Path, watched: Watched) -> None:
    text = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    own = BETWEEN in text[: 1 << 15]
    if not own and len(text) > 40 << 20:
        pytest.skip("not Kineto's layout, and large")
    size = 1 << 18 if len(text) > 4 << 20 else 1 << 14
    assert_same(text, size)
    if own and len(text) > 1 << 19:
        assert watched.taken > 0.85 * len(text)


# --- made ones ------------------------------------------------------------------------------------------------------

micros = st.one_of(
    st.integers(-3 * 10**15, 3 * 10**15),
    st.builds("{}.{:03d}".format, st.integers(-3 * 10**15, 3 * 10**15), st.integers(0, 999)),
    st.sampled_from(["0", "-0.5", "0.25", "4399999999999999", "5000000000000000", "12.0005", "1e3", "007", "8.5e0"]),
)
durations = st.one_of(st.none(), micros)
numbers = st.one_of(
    st.integers(0, 10), st.integers(-(10**17), 10**20), st.sampled_from(["null", "01", "-3", '"5"', "1.5"])
)
names = st.sampled_from(
    ["aten::mm", "gemm_128x64", "gemm_128x064", "f.py(12): g", "f.py(1): g", "é 7", "\\u00e9", "a\\n1"]
)
tracks = st.sampled_from(["1", "2", "12", '"1"', '"stream 7"', "-1", "null", '""'])
LAYOUT = '  {{\n    "ph": "{}", {}"cat": "{}", "name": "{}", "pid": {}, "tid": {},\n    "ts": {}{},\n    {}\n  }}'


@st.composite
def kineto_entries(draw: st.DrawFn) -> str:
    """An entry as Kineto writes it: few different ones, with all that numbers can be."""
    ph = draw(st.sampled_from("XXXXXXXXisfbM"))
    cat = draw(st.sampled_from(["cpu_op", "kernel", "python_function", "ac2g", "ac3g", "cuda_runtime", "x1_runtime"]))
    identity = f'"id": {draw(numbers)}, ' if ph in "sfb" else ""
    duration = draw(durations) if ph == "X" else None
    wanted = ["External id", "correlation", "Python id", "stream", "Bytes", "bytes", "Sequence number", "other"]
    keys = draw(st.lists(st.sampled_from(wanted), max_size=3, unique=True))
    parts = [f'"{key}": {draw(numbers)}' for key in keys]
    if cat == "kernel":
        parts.append(f'"grid": [{draw(numbers)}, 1, 1]')
    args = '"args": {\n      ' + ", ".join(parts) + "\n    }" if ph != "s" else '"bp": "e"'
    dur = "" if duration is None else f', "dur": {duration}'
    return LAYOUT.format(ph, identity, cat, draw(names), draw(tracks), draw(tracks), draw(micros), dur, args)


@settings(max_examples=80)
@given(
    st.lists(kineto_entries(), min_size=1, max_size=12),
    st.lists(st.integers(0, 11), min_size=20, max_size=60),
    st.integers(400, 4000),
)
def test_entries_that_repeat(kinds: list[str], order: list[int], size: int) -> None:
    text = ",\n".join(kinds[k % len(kinds)] for k in order)
    assert_same(f'{{\n  "schemaVersion": 1,\n  "traceEvents": [\n{text}\n  ]\n}}'.encode(), size)


@settings(max_examples=40)
@given(st.lists(entries, min_size=5, max_size=25), st.integers(300, 2000))
def test_entries_of_all_sorts(some: list[Any], size: int) -> None:
    assert_same(kineto_layout(some).encode(), size)


@settings(max_examples=40)
@given(st.data())
def test_damage(data: st.DataObject) -> None:
    """A few bytes replaced, taken out or put in, or the end cut off: one of the readers tells it, in the same words."""
    text = bytearray(plain(60))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(40, len(text) - 1))
        text[at : at + data.draw(st.integers(0, 2))] = data.draw(
            st.sampled_from([b"", b'"', b"\\", b"\x01", b"\xff", b"0", b"}"])
        )
    assert_same(bytes(text[: data.draw(st.sampled_from([len(text), len(text) * 2 // 3]))]), 1500)


# --- by hand --------------------------------------------------------------------------------------------------------


def one(k: int, cat: str = "cpu_op", args: str | None = None, **keys: str) -> str:
    at = {"ph": '"X"', "cat": f'"{cat}"', "name": '"aten::mm"', "pid": "1", "tid": "2", "ts": f"{k}.125", "dur": "0.5"}
    head = ", ".join(f'"{key}": {value}' for key, value in {**at, **keys}.items())
    return f'  {{\n    {head},\n    "args": {{\n      {args or f"{chr(34)}External id{chr(34)}: {k}"}\n    }}\n  }}'


def plain(count: int, odd: dict[int, str] | None = None) -> bytes:
    every = [(odd or {}).get(k, one(k)) for k in range(count)]
    return ('{\n  "schemaVersion": 1,\n  "traceEvents": [\n' + ",\n".join(every) + "\n  ]\n}\n").encode()


def test_a_plain_file_is_taken(watched: Watched) -> None:
    text = plain(400)
    decoded = assert_same(text, 2000)
    assert isinstance(decoded, DecodedTrace)
    assert watched.taken > 0.9 * len(text)
    assert decoded.events.time.tolist() == [1000 * k + 125 for k in range(400)]
    assert decoded.events.args["external_id"].values.tolist() == list(range(400))


def test_it_goes_on_behind_what_it_refused(watched: Watched) -> None:
    metadata = (
        '  {\n    "name": "thread_name", "ph": "M", "pid": 1, "tid": 2,\n    "args": {\n      "name": "t"\n    }\n  }'
    )
    text = plain(400, {200: metadata, 300: one(300, name='"bare " quote"')})
    decoded = assert_same(text, 2000)
    assert isinstance(decoded, DecodedTrace)
    assert len(decoded.events) == 400
    assert decoded.events.metadata == [("thread_name", "1", "2", "t")]
    assert {problem.kind for problem in decoded.problems} == {problems.REPAIRED_QUOTE}
    assert watched.refused > 0
    assert watched.taken > 0.6 * len(text)


def test_it_is_asked_less_and_less_where_nothing_is_plain(watched: Watched) -> None:
    text = plain(3000, {k: one(k, ts=f"{k}.12345") for k in range(3000)})
    assert_same(text, 2000)
    assert watched.taken == 0
    assert watched.refused < 0.6 * len(text)


@pytest.mark.parametrize(
    "odd",
    [
        one(7, ts="007.125"),
        one(7, args='"External id": 007'),
        one(7, args='"other": -01'),
        one(7, args='"other": 1234567890123456789012'),
        one(7, args='"External id": 12345678901234567'),
        one(7, dur="9000000000000.001"),
        one(7, ts="9000000000000000"),
        one(7, ts="7.0005"),
        one(7, name='"run 12345678901234567"'),
        one(7, args='"other": "\\u00e9"'),
        one(7, args='"other": "\x01"'),
        one(7, args='"other": 1e5'),
        one(7, cat="x2_runtime", ph='"M"'),
    ],
)
def test_what_is_not_plain_is_refused_and_changes_nothing(odd: str) -> None:
    columns = ColumnBuilder(ProblemTally())
    scan = TemplateDecoder(columns)
    usual = ",\n".join(one(k) for k in range(9)).encode()
    before = memoryview(b"\n" + usual)
    assert scan.try_decode(before, BETWEEN) is not None
    assert scan.try_decode(memoryview(b"\n" + usual + b",\n" + odd.encode()), BETWEEN) is None
    assert len(columns) == 9
    events = columns.finish()
    assert (events.names, events.categories, events.tracks) == (["aten::mm"], ["", "cpu_op"], [("1", "2")])


def test_entries_without_a_comma_between_them_are_refused() -> None:
    scan = TemplateDecoder(ColumnBuilder(ProblemTally()))
    text = ",\n".join(one(k) for k in range(9))
    assert scan.try_decode(memoryview(f"\n{text}\n{one(9)}".encode()), BETWEEN) is None
    assert scan.try_decode(memoryview(f"\n{text},\n{one(9)}".encode()), BETWEEN) is not None


def test_zeros_in_front_are_well_where_they_are_no_number() -> None:
    scan = TemplateDecoder(ColumnBuilder(ProblemTally()))
    text = ",\n".join([one(7, name='"a_007"', ts="7.001"), one(8, name='"a_7"', args='"x": "0x00ff", "y": 0.007')])
    assert scan.try_decode(memoryview(f"\n{text}".encode()), BETWEEN) is not None


def test_names_that_differ_in_digits_alone_are_told_apart() -> None:
    names = ["a1b12", "a11b2", "a2b11", "a01b12", "a1b12", "a123456789012b1", "a123456789013b1"]
    columns = ColumnBuilder(ProblemTally())
    text = ",\n".join(one(k, name=f'"{name}"') for k, name in enumerate(names))
    begins = TemplateDecoder(columns).try_decode(memoryview(f"\n{text}".encode()), BETWEEN)
    assert begins is not None
    assert [f"\n{text}"[begin:].startswith("\n  {") for begin in begins.tolist()] == [True] * len(names)
    events = columns.finish()
    assert [events.names[k] for k in events.name] == names
    assert len(events.names) == len(names) - 1


def test_categories_that_differ_in_digits_alone_may_be_of_another_kind() -> None:
    """`7_op` and `8_op` are alike; were one of them a kind of its own, its chunk would be the general reader's."""
    columns = ColumnBuilder(ProblemTally())
    text = ",\n".join(one(k, cat=f"{k}_op") for k in (7, 8))
    assert TemplateDecoder(columns).try_decode(memoryview(f"\n{text}".encode()), BETWEEN) is not None
    assert columns.finish().categories == ["", "7_op", "8_op"]


def test_entries_are_found_again(tmp_path: Path) -> None:
    text = plain(300)
    decoded = decode_trace(Source("stdin", io.BytesIO(text)), tmp_path, chunk_size=3000, use_templates=True)
    every = json.loads(text)["traceEvents"]
    assert [decoded.text.read_entry(k, parse_chunk) for k in (0, 150, 299)] == [every[k] for k in (0, 150, 299)]
