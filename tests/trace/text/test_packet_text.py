"""Args of a Perfetto trace: read from the text that it was converted to, also after a restart, never wrong ones."""

from __future__ import annotations

import gzip
import json
import shutil
from pathlib import Path

import pytest

from tests.helpers.paths import FIXTURES
from torchprof_tui.trace.build.build_trace import add_row_index, build_trace
from torchprof_tui.trace.core.errors import TraceChangedError
from torchprof_tui.trace.core.problems import CUT_SHORT
from torchprof_tui.trace.decode.general_decoder import TEXT_FILE, decode_trace
from torchprof_tui.trace.json_text.salvage import parse_chunk
from torchprof_tui.trace.model.trace import Trace
from torchprof_tui.trace.sources.source import open_source
from torchprof_tui.trace.storage.trace_store import StoreError, TraceWriter, open_trace
from torchprof_tui.trace.text.block_text import BlockText

_FILE = FIXTURES / "pftrace" / "multi_stream_overlap.pftrace.gz"


def _store(path: Path, folder: Path) -> Trace:
    """Decode and store a trace in the folder, and map it from there."""
    folder.mkdir()
    decoded = decode_trace(open_source(str(path)), folder)
    with TraceWriter(folder) as writer:
        writer.finish(add_row_index(build_trace(decoded, path.name, writer.allocate), writer.allocate))
    return open_trace(folder, verify=True)


def _read_all(trace: Trace) -> list[str]:
    return [json.dumps(trace.read_entry(ordinal)) for ordinal in range(trace.counts.events)]


def _unpack(folder: Path) -> Path:
    path = folder / "plain.pftrace"
    path.write_bytes(gzip.decompress(_FILE.read_bytes()))
    return path


def test_plain_and_compressed_files_have_the_same_entries(tmp_path: Path) -> None:
    packed, plain = _store(_FILE, tmp_path / "packed"), _store(_unpack(tmp_path), tmp_path / "plain")
    assert isinstance(packed.text, BlockText)
    assert _read_all(packed) == _read_all(plain)


def test_entries_are_read_alone_as_in_the_text_of_their_chunk(tmp_path: Path) -> None:
    trace = _store(_FILE, tmp_path / "packed")
    text = [entry for _, chunk in trace.text.read_texts(range(len(trace.text.first))) for entry in parse_chunk(chunk)]
    assert text == [trace.read_entry(ordinal) for ordinal in range(trace.counts.events)]
    with pytest.raises(LookupError):
        trace.read_entry(trace.counts.events)


def test_a_stored_trace_may_be_moved(tmp_path: Path) -> None:
    entries = _read_all(_store(_FILE, tmp_path / "before"))
    shutil.move(tmp_path / "before", tmp_path / "after")
    assert _read_all(open_trace(tmp_path / "after", verify=True)) == entries


def test_damage_in_the_cache_is_noticed(tmp_path: Path) -> None:
    trace = _store(_FILE, tmp_path / "packed")
    path = tmp_path / "packed" / TEXT_FILE
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(StoreError):
        open_trace(tmp_path / "packed", verify=True)
    with pytest.raises(TraceChangedError):
        trace.read_entry(0)


def test_a_file_that_changed_or_is_gone_yields_the_args_that_were_read(tmp_path: Path) -> None:
    path = _unpack(tmp_path)
    trace = _store(path, tmp_path / "plain")
    entries = _read_all(trace)
    data = bytearray(path.read_bytes())
    data[-100] ^= 1
    path.write_bytes(data)
    assert _read_all(trace) == entries
    path.unlink()
    assert _read_all(trace) == entries
    assert sorted(file.name for file in (tmp_path / "plain").iterdir()) == ["columns", "meta.json", TEXT_FILE]


def test_a_compressed_file_cut_short_has_the_events_before(tmp_path: Path) -> None:
    path = tmp_path / "cut.gz"
    path.write_bytes(_FILE.read_bytes()[:4000])
    trace = _store(path, tmp_path / "packed")
    assert [problem.kind for problem in trace.problems] == [CUT_SHORT]
    assert len(_read_all(trace)) == trace.counts.events > 20
