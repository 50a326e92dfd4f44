"""The template decoder yields the same columns as the general decoder, and refuses text that is not plain."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.helpers.column_equality import assert_alike
from tests.helpers.decoder_input import (
    KINETO_SEPARATOR,
    decode_text,
    format_as_kineto,
    kineto_entry,
    kineto_text,
)
from tests.helpers.decoder_spies import DecodedBytes, count_decoded_bytes
from tests.helpers.decoder_strategies import entries, kineto_entries
from tests.helpers.long_run import scale_examples
from torchprof_tui.trace.core import problems
from torchprof_tui.trace.core.errors import TraceError
from torchprof_tui.trace.core.problems import ProblemTally
from torchprof_tui.trace.decode.column_builder import ColumnBuilder
from torchprof_tui.trace.decode.general_decoder import decode_trace
from torchprof_tui.trace.decode.interning import GROUP_OP, arg_group_of
from torchprof_tui.trace.decode.template import template_decoder
from torchprof_tui.trace.decode.template.template_decoder import TemplateDecoder
from torchprof_tui.trace.json_text.salvage import parse_chunk
from torchprof_tui.trace.model.raw_events import DecodedTrace
from torchprof_tui.trace.sources.source import Source


def decode_or_refuse(text: bytes, **options: Any) -> DecodedTrace | str:
    """Decode text; the text of the error if it is refused."""
    try:
        return decode_text(text, **options)
    except TraceError as error:
        return str(error)


def assert_same(text: bytes, size: int) -> DecodedTrace | str:
    """Assert that both decoders agree on columns, the order of interned values, problems, and offsets of chunks."""
    fast = decode_or_refuse(text, chunk_size=size, use_templates=True)
    general = decode_or_refuse(text, chunk_size=size, use_templates=False)
    if isinstance(fast, str) or isinstance(general, str):
        assert fast == general
        return fast
    assert_alike(fast, general, chunks=True)
    return fast


@pytest.fixture
def decoded_bytes(monkeypatch: pytest.MonkeyPatch) -> DecodedBytes:
    return count_decoded_bytes(monkeypatch)


# --- generated text -------------------------------------------------------------------------------------------------


@settings(max_examples=scale_examples(1))
@given(
    st.lists(kineto_entries(), min_size=1, max_size=12),
    st.lists(st.integers(0, 11), min_size=20, max_size=60),
    st.integers(400, 4000),
)
def test_entries_that_repeat(kinds: list[str], order: list[int], size: int) -> None:
    text = ",\n".join(kinds[k % len(kinds)] for k in order)
    assert_same(f'{{\n  "schemaVersion": 1,\n  "traceEvents": [\n{text}\n  ]\n}}'.encode(), size)


@settings(max_examples=scale_examples(1))
@given(st.lists(entries, min_size=5, max_size=25), st.integers(300, 2000))
def test_entries_of_all_types(generated: list[Any], size: int) -> None:
    assert_same(format_as_kineto(generated).encode(), size)


@settings(max_examples=scale_examples(1))
@given(st.data())
def test_damage(data: st.DataObject) -> None:
    """Replace, remove or insert a few bytes, or cut off the end: the reported problems are the same."""
    text = bytearray(kineto_text(60))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(40, len(text) - 1))
        text[at : at + data.draw(st.integers(0, 2))] = data.draw(
            st.sampled_from([b"", b'"', b"\\", b"\x01", b"\xff", b"0", b"}"])
        )
    assert_same(bytes(text[: data.draw(st.sampled_from([len(text), len(text) * 2 // 3]))]), 1500)


# --- literal text -----------------------------------------------------------------------------------------------------


def test_a_plain_file_is_accepted(decoded_bytes: DecodedBytes) -> None:
    text = kineto_text(400)
    decoded = assert_same(text, 2000)
    assert isinstance(decoded, DecodedTrace)
    assert decoded_bytes.accepted > 0.9 * len(text)
    assert decoded.events.time.tolist() == [1000 * k + 125 for k in range(400)]
    assert decoded.events.args["external_id"].values.tolist() == list(range(400))


def test_it_continues_after_a_refused_chunk(decoded_bytes: DecodedBytes) -> None:
    metadata = (
        '  {\n    "name": "thread_name", "ph": "M", "pid": 1, "tid": 2,\n    "args": {\n      "name": "t"\n    }\n  }'
    )
    text = kineto_text(400, {200: metadata, 300: kineto_entry(300, name='"bare " quote"')})
    decoded = assert_same(text, 2000)
    assert isinstance(decoded, DecodedTrace)
    assert len(decoded.events) == 400
    assert decoded.events.metadata == [("thread_name", "1", "2", "t")]
    assert {problem.kind for problem in decoded.problems} == {problems.REPAIRED_QUOTE}
    assert decoded_bytes.refused > 0
    assert decoded_bytes.accepted > 0.6 * len(text)


def test_it_is_tried_less_often_where_nothing_is_plain(decoded_bytes: DecodedBytes) -> None:
    text = kineto_text(3000, {k: kineto_entry(k, ts=f"{k}e3") for k in range(3000)})
    assert_same(text, 2000)
    assert decoded_bytes.accepted == 0
    assert decoded_bytes.refused < 0.6 * len(text)


@pytest.mark.parametrize(
    "odd",
    [
        kineto_entry(7, ts="007.125"),
        kineto_entry(7, args='"External id": 007'),
        kineto_entry(7, args='"other": -01'),
        kineto_entry(7, args='"other": 1234567890123456789012'),
        kineto_entry(7, args='"External id": 12345678901234567'),
        kineto_entry(7, dur="8000000000001"),
        kineto_entry(7, dur="-8000000000001"),
        kineto_entry(7, dur="9000000000000.001"),
        kineto_entry(7, ts="4000000000000001"),
        kineto_entry(7, ts="-4000000000000001"),
        kineto_entry(7, ts="8796093022208.0000"),
        kineto_entry(7, ts="8800000000000.0005"),
        kineto_entry(7, ts="7." + "1" * 21),
        kineto_entry(7, name='"run 12345678901234567"'),
        kineto_entry(7, args='"other": "\\u00e9"'),
        kineto_entry(7, args='"other": "\x01"'),
        kineto_entry(7, args='"other": 1e5'),
        kineto_entry(7, cat="x2_runtime", ph='"M"'),
    ],
)
def test_an_entry_that_is_not_plain_is_refused_and_changes_nothing(odd: str) -> None:
    columns = ColumnBuilder(ProblemTally())
    decoder = TemplateDecoder(columns)
    usual = ",\n".join(kineto_entry(k, ts=f"{k}.0625") for k in range(9)).encode()
    before = memoryview(b"\n" + usual)
    assert decoder.try_decode(before, KINETO_SEPARATOR) is not None
    assert decoder.try_decode(memoryview(b"\n" + usual + b",\n" + odd.encode()), KINETO_SEPARATOR) is None
    assert len(columns) == 9
    events = columns.finish()
    assert (events.names, events.categories, events.tracks) == (["aten::mm"], ["", "cpu_op"], [("1", "2")])


@pytest.mark.parametrize(
    "usual",
    [
        kineto_entry(7, ts="-7.001"),
        kineto_entry(7, args='"other": 0, "x": 0.07'),
        kineto_entry(7, args='"External id": 1234567890123456'),
        kineto_entry(7, dur="8000000000000"),
        kineto_entry(7, dur="-8000000000000"),
        kineto_entry(7, ts="4000000000000000"),
        kineto_entry(7, ts="-4000000000000000"),
        kineto_entry(7, ts="8796093022207.9991"),
        kineto_entry(7, ts="8796093022208.125"),
        kineto_entry(7, cat="kernel", args='"grid": [70, 80, 90], "block": [1, 2, 3], "device": 0, "stream": 7'),
        kineto_entry(7, ts="7." + "1" * 20),
        kineto_entry(7, name='"run 1234567890123456"'),
    ],
)
def test_numbers_up_to_the_limits_are_decoded_as_by_the_general_decoder(usual: str) -> None:
    columns = ColumnBuilder(ProblemTally())
    text = ",\n".join([kineto_entry(6, ts="5"), usual, kineto_entry(8)])
    assert TemplateDecoder(columns).try_decode(memoryview(f"\n{text}".encode()), KINETO_SEPARATOR) is not None
    expected = decode_text(f"[{text}]".encode(), use_templates=False).events
    found = columns.finish()
    for name in ("time", "duration"):
        assert getattr(found, name).tolist() == getattr(expected, name).tolist()
    assert {name: (arg.entries.tolist(), arg.values.tolist()) for name, arg in found.args.items()} == {
        name: (arg.entries.tolist(), arg.values.tolist()) for name, arg in expected.args.items()
    }


def test_entries_without_a_comma_between_them_are_refused() -> None:
    decoder = TemplateDecoder(ColumnBuilder(ProblemTally()))
    text = ",\n".join(kineto_entry(k) for k in range(9))
    assert decoder.try_decode(memoryview(f"\n{text}\n{kineto_entry(9)}".encode()), KINETO_SEPARATOR) is None
    assert decoder.try_decode(memoryview(f"\n{text},\n{kineto_entry(9)}".encode()), KINETO_SEPARATOR) is not None


def test_leading_zeros_are_accepted_outside_of_numbers() -> None:
    decoder = TemplateDecoder(ColumnBuilder(ProblemTally()))
    text = ",\n".join(
        [kineto_entry(7, name='"a_007"', ts="7.001"), kineto_entry(8, name='"a_7"', args='"x": "0x00ff", "y": 0.007')]
    )
    assert decoder.try_decode(memoryview(f"\n{text}".encode()), KINETO_SEPARATOR) is not None


def test_names_that_differ_only_in_digits_are_distinct() -> None:
    names = ["a1b12", "a11b2", "a2b11", "a01b12", "a1b12", "a123456789012b1", "a123456789013b1"]
    names += [f"a{k}12345678b1" for k in range(1, 13)]
    columns = ColumnBuilder(ProblemTally())
    decoder = TemplateDecoder(columns)
    text = ",\n".join(kineto_entry(k, name=f'"{name}"') for k, name in enumerate(names))
    begins = decoder.try_decode(memoryview(f"\n{text}".encode()), KINETO_SEPARATOR)
    assert decoder.try_decode(memoryview(f"\n{text}".encode()), KINETO_SEPARATOR) is not None
    assert list(decoder._head_codes.values()) == list(range(len(names) - 1))  # each is parsed once
    assert begins is not None
    assert [f"\n{text}"[begin:].startswith("\n  {") for begin in begins.tolist()] == [True] * len(names)
    events = columns.finish()
    assert [events.names[k] for k in events.name] == names * 2
    assert len(events.names) == len(names) - 1


def test_categories_that_differ_only_in_digits_are_distinct(monkeypatch: pytest.MonkeyPatch) -> None:
    """`7_op` and `8_op` have the same arg group; if they had not, the chunk would be refused."""
    columns = ColumnBuilder(ProblemTally())
    text = ",\n".join(kineto_entry(k, cat=f"{k}_op") for k in (7, 8))
    assert TemplateDecoder(columns).try_decode(memoryview(f"\n{text}".encode()), KINETO_SEPARATOR) is not None
    assert columns.finish().categories == ["", "7_op", "8_op"]

    def tell_group(phase: str, category: str) -> int:
        return GROUP_OP if category == "8_op" else arg_group_of(phase, category)

    monkeypatch.setattr(template_decoder, "arg_group_of", tell_group)
    columns = ColumnBuilder(ProblemTally())
    assert TemplateDecoder(columns).try_decode(memoryview(f"\n{text}".encode()), KINETO_SEPARATOR) is None
    assert len(columns) == 0


def test_entries_can_be_read_from_the_stored_text(tmp_path: Path) -> None:
    text = kineto_text(300)
    decoded = decode_trace(Source("stdin", io.BytesIO(text)), tmp_path, chunk_size=3000, use_templates=True)
    expected = json.loads(text)["traceEvents"]
    assert [decoded.text.read_entry(k, parse_chunk) for k in (0, 150, 299)] == [expected[k] for k in (0, 150, 299)]
