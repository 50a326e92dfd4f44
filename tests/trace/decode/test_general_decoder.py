"""Decode a whole trace: any layout, chunk size and compression yields the columns of a slow reference."""

from __future__ import annotations

import gzip
import io
import lzma
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.helpers.decoder_input import FRAMES, LAYOUTS, count_problems, decode_text, entry_text, trace_text
from tests.helpers.decoder_reference import (
    decoded_args,
    decoded_rows,
    expected_args,
    expected_rows,
    parse_entries,
)
from tests.helpers.decoder_strategies import entry_lists
from tests.helpers.long_run import keep_some, scale_examples
from torchprof_tui.trace.core import problems
from torchprof_tui.trace.core.errors import TraceChangedError, TraceError
from torchprof_tui.trace.decode.general_decoder import decode_trace
from torchprof_tui.trace.json_text.salvage import parse_chunk
from torchprof_tui.trace.sources.source import Source, open_source
from torchprof_tui.trace.sources.zstd_codec import zstd
from torchprof_tui.trace.text.block_text import BlockText, PlainText


@settings(max_examples=scale_examples(3))
@given(
    entries=entry_lists,
    layout=st.sampled_from(sorted(LAYOUTS)),
    frame=st.sampled_from(sorted(FRAMES)),
    size=st.integers(64, 3000),
)
def test_columns_do_not_depend_on_layout_and_chunk_size(entries: list[Any], layout: str, frame: str, size: int) -> None:
    text = (FRAMES[frame] % LAYOUTS[layout](entries)).encode()
    objects = [entry for entry in entries if isinstance(entry, dict)]
    if (
        frame == "bare"
        and entries
        and not any(isinstance(entry.get("ph"), str) and len(entry["ph"]) == 1 for entry in objects)
    ):
        with pytest.raises(TraceError):
            decode_text(text)
        return
    with tempfile.TemporaryDirectory() as folder:
        decoded = decode_trace(Source("stdin", io.BytesIO(text)), Path(folder), chunk_size=size)
        parsed = orjson.loads(text)
        parsed = parsed if isinstance(parsed, list) else parsed["traceEvents"]
        for ordinal, entry in enumerate(entry for entry in parsed if isinstance(entry, dict)):
            assert decoded.text.read_entry(ordinal, parse_chunk) == entry
    exact = parse_entries(text)
    assert decoded_rows(decoded) == expected_rows(exact)
    assert decoded_args(decoded) == expected_args(exact)
    assert decoded.not_objects == len(entries) - len(objects)
    assert set(count_problems(decoded)) <= {problems.NOT_AN_OBJECT}
    if frame == "after":
        assert decoded.header == {"traceName": 'a"]}', "baseTimeNanoseconds": 5, "x": [{"ph": "X"}, {"ph": "X"}]}
        assert decoded.format == "kineto"


COMPRESSORS: dict[str, Callable[[bytes], bytes]] = {
    "plain": lambda text: text,
    "gzip": gzip.compress,
    "two gzip members": lambda text: gzip.compress(text[:5000]) + gzip.compress(text[5000:]),
    "xz": lzma.compress,
    "zstd": zstd.compress,
}


@pytest.mark.parametrize("compression", keep_some(COMPRESSORS, 2))
def test_columns_do_not_depend_on_compression(compression: str, tmp_path: Path) -> None:
    text = trace_text(*(entry_text(k, args={"External id": k}) for k in range(3000)), before='"schemaVersion": 1, ')
    path = tmp_path / "trace"
    path.write_bytes(COMPRESSORS[compression](text))
    reports: list[tuple[int, int | None, int]] = []
    decoded = decode_trace(open_source(str(path)), tmp_path, lambda *report: reports.append(report), chunk_size=20_000)
    exact = parse_entries(text)
    assert decoded_rows(decoded) == expected_rows(exact)
    assert decoded_args(decoded) == expected_args(exact)
    assert decoded.text.path == (path if compression == "plain" else tmp_path / "text.blocks")
    assert type(decoded.text) is (PlainText if compression == "plain" else BlockText)
    assert len(decoded.text.first) > 5
    for ordinal in (0, 1, 1499, 2999):
        assert decoded.text.read_entry(ordinal, parse_chunk)["name"] == f"op {ordinal}"
    assert reports[-1] == (path.stat().st_size, path.stat().st_size, 3000)
    assert [report[2] for report in reports] == sorted({report[2] for report in reports})


def test_a_changed_file_is_detected(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_bytes(trace_text(*(entry_text(k) for k in range(100))))
    decoded = decode_trace(open_source(str(path)), tmp_path)
    path.write_bytes(b" " * path.stat().st_size)
    with pytest.raises(LookupError, match="changed"):
        decoded.text.read_entry(5, parse_chunk)


def test_a_chunk_is_parsed_once_until_the_file_changes(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_bytes(b'[{"name": "one", "ts": 1, "ph": "i"}, {"name": "two", "ts": 2, "ph": "i"}]')
    decoded = decode_trace(open_source(str(path)), tmp_path)
    parsed = []

    def parse(text: bytes) -> list[dict[str, Any]]:
        parsed.append(text)
        return parse_chunk(text)

    assert [decoded.text.read_entry(k, parse)["name"] for k in (0, 1, 0)] == ["one", "two", "one"]
    assert len(parsed) == 1
    path.write_bytes(path.read_bytes().replace(b"one", b"six"))
    with pytest.raises(TraceChangedError, match="changed"):  # never the args of another file
        decoded.text.read_entry(0, parse)


def test_text_that_cannot_be_stored_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(OSError):  # noqa: PT011  (the subclass depends on the system)
        decode_trace(Source("stdin", io.BytesIO(trace_text(entry_text()))), tmp_path / "none")
