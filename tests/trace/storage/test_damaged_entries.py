"""Test that no damaged cache entry is used: any changed byte is found, and the trace is read again from its file."""

from __future__ import annotations

import gzip
import json
import lzma
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.helpers.command_line import call_main
from tests.helpers.long_run import keep_some
from tests.helpers.remote_traces import same
from tests.helpers.trace_builder import cpu, kernel, runtime
from torchprof_tui.trace.core.errors import DAMAGED_CACHE_MESSAGE
from torchprof_tui.trace.core.problems import Problem
from torchprof_tui.trace.loading.load_in_process import load_opened_trace, load_trace
from torchprof_tui.trace.model.trace import Trace
from torchprof_tui.trace.storage.disk_cache import CacheEntry, cache_usage, find_or_create_entry
from torchprof_tui.trace.storage.trace_store import StoreError, open_trace
from torchprof_tui.trace.text import large_values
from torchprof_tui.trace.text.gzip_text import GzipText

SAMPLED_FLIPS = 8
"""Changed bytes after which the whole command is run; all others are only looked for."""

CACHE_FILES = {"columns", "meta.json", "seal", "text.blocks", "text.ends", "keys.gz"}


@pytest.fixture(autouse=True)
def cache_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "cache"
    monkeypatch.setenv("TORCHPROF_TUI_CACHE", str(folder))
    return folder


def write_trace(path: Path, name: str = "aten::mm") -> Path:
    """Write a trace with links, args and a header value that is too large for memory, compressed as the suffix says."""
    entries = [cpu(name, 0, 10), runtime("cudaLaunchKernel", 2, 3, corr=1), kernel("gemm", 12, 5, corr=1)]
    document = {"schemaVersion": 1, "stackFrames": {"1": {"name": "x" * 70_000}}, "traceEvents": entries}
    text = json.dumps(document).encode()
    packed = {".json": text, ".gz": gzip.compress(text), ".xz": lzma.compress(text)}
    path.write_bytes(packed[path.suffix])
    return path


def store(path: Path) -> Path:
    """Open a trace twice, so that its entry has all of its files; return the entry's folder."""
    for _ in range(2):
        opened = load_opened_trace(str(path))
        assert opened.cache_entry is not None
        folder = opened.cache_entry.folder
        opened.cache_entry.close()
    return folder


def is_refused(entry: CacheEntry) -> bool:
    """Return whether an opening would discard this entry."""
    try:
        open_trace(entry.folder, verify=True)
    except (StoreError, OSError):
        return True
    return not entry.is_sealed


@pytest.mark.parametrize("suffix", keep_some([".json", ".json.gz", ".json.xz"], 1))
def test_every_changed_byte_is_found(tmp_path: Path, suffix: str) -> None:
    folder = store(write_trace(tmp_path / f"t{suffix}"))
    entry = CacheEntry("t", folder, folder.name, ready=True)
    assert not is_refused(entry)
    files = [file for file in folder.iterdir() if file.name != "lock"]
    assert {file.name for file in files} <= CACHE_FILES
    for file in files:
        content = file.read_bytes()
        with file.open("r+b", buffering=0) as opened:
            for position, byte in enumerate(content):
                opened.seek(position)
                opened.write(bytes([byte ^ 1 << position % 8]))
                assert is_refused(entry), (file.name, position)
                opened.seek(position)
                opened.write(bytes([byte]))
    assert not is_refused(entry)


@pytest.mark.parametrize("suffix", keep_some([".json", ".json.gz", ".json.xz"], 1))
def test_after_a_changed_byte_the_answer_is_that_of_a_clean_cache(
    tmp_path: Path, suffix: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_trace(tmp_path / f"t{suffix}")
    folder = store(path)
    clean = call_main(capsys, "check", path, "--json")
    assert clean[0] == 0
    positions = [(file.name, k) for file in sorted(folder.iterdir()) for k in range(file.stat().st_size)]
    for name, position in positions[:: max(len(positions) // SAMPLED_FLIPS, 1)]:
        content = bytearray((folder / name).read_bytes())
        content[position] ^= 0x40
        (folder / name).write_bytes(content)
        status, out, err = call_main(capsys, "check", path, "--json")
        assert (status, out) == clean[:2], (name, position)
        damaged = f"torchprof-tui: {DAMAGED_CACHE_MESSAGE}\n"
        assert err == ("" if name == "lock" else damaged), (name, position)  # which only marks the entry as ours
        assert call_main(capsys, "check", path, "--json") == clean
    assert cache_usage()[0] == 1


def empty_file(folder: Path) -> None:
    (folder / "columns").write_bytes(b"")


def truncate_header(folder: Path) -> None:
    os.truncate(folder / "meta.json", 100)


def append_bytes(folder: Path) -> None:
    with (folder / "columns").open("ab") as file:
        file.write(b"more")


def remove_columns(folder: Path) -> None:
    (folder / "columns").unlink()


def remove_all_but_the_lock(folder: Path) -> None:
    for file in folder.iterdir():
        if file.name != "lock":
            file.unlink()


def replace_by_a_pipe(folder: Path) -> None:
    (folder / "meta.json").unlink()
    os.mkfifo(folder / "meta.json")


def replace_by_a_folder(folder: Path) -> None:
    (folder / "columns").unlink()
    (folder / "columns").mkdir()


def point_to_nothing(folder: Path) -> None:
    shutil.rmtree(folder)
    folder.symlink_to("nowhere")


def point_to_a_strange_folder(folder: Path) -> None:
    shutil.rmtree(folder)
    strange = folder.parent.parent / "strange"
    strange.mkdir()
    (strange / "lock").write_text("")
    (strange / "thesis.tex").write_text("years of work")
    folder.symlink_to(strange)


@pytest.mark.parametrize(
    "damage",
    keep_some(
        [
            empty_file,
            truncate_header,
            append_bytes,
            remove_columns,
            remove_all_but_the_lock,
            replace_by_a_pipe,
            replace_by_a_folder,
            point_to_nothing,
            point_to_a_strange_folder,
        ],
        4,
    ),
)
def test_a_damaged_folder_is_built_again_once(tmp_path: Path, damage: Callable[[Path], None]) -> None:
    path = write_trace(tmp_path / "t.json.xz")
    folder = store(path)
    expected = load_trace(str(path), cache=False)
    damage(folder)
    opened = load_opened_trace(str(path))
    same(opened.trace, expected)
    assert not opened.cached
    assert opened.was_damaged is (damage not in (point_to_nothing, point_to_a_strange_folder))
    assert opened.cache_entry is not None
    opened.cache_entry.close()
    again = load_opened_trace(str(path))
    assert (again.cached, again.was_damaged) == (True, False)
    strange = tmp_path / "strange" / "thesis.tex"
    assert damage is not point_to_a_strange_folder or strange.read_text() == "years of work"


def test_the_entry_of_another_trace_is_not_taken_for_it(tmp_path: Path) -> None:
    paths = [write_trace(tmp_path / f"{name}.json.xz", name) for name in ("one", "two")]
    folders = [store(path) for path in paths]
    spare = tmp_path / "spare"
    folders[0].rename(spare)
    folders[1].rename(folders[0])
    spare.rename(folders[1])
    for path in paths:
        opened = load_opened_trace(str(path))
        assert opened.was_damaged
        assert path.name.removesuffix(".json.xz") in opened.trace.names


@pytest.mark.parametrize("name", ["columns", "meta.json", "text.blocks"])
def test_one_file_of_another_trace_is_not_taken_for_it(tmp_path: Path, name: str) -> None:
    one, two = (store(write_trace(tmp_path / f"{name}.json.xz", name)) for name in ("one", "two"))
    shutil.copy(two / name, one / name)
    opened = load_opened_trace(str(tmp_path / "one.json.xz"))
    assert opened.was_damaged
    assert "one" in opened.trace.names


def test_an_entry_that_another_process_has_replaced_is_kept(tmp_path: Path) -> None:
    path = write_trace(tmp_path / "t.json")
    folder = store(path)
    damaged = find_or_create_entry(str(path))
    shutil.rmtree(folder)  # another process discarded it, and built it again
    store(path)
    damaged.discard()
    assert load_opened_trace(str(path)).cached


def test_damaged_blocks_of_an_open_trace_are_not_shown(tmp_path: Path) -> None:
    path = write_trace(tmp_path / "t.json.xz")
    opened = load_opened_trace(str(path))
    assert opened.cache_entry is not None
    blocks = opened.cache_entry.folder / "text.blocks"
    content = bytearray(blocks.read_bytes())
    content[len(content) // 2] ^= 4
    blocks.write_bytes(content)
    with pytest.raises(LookupError, match="open the trace again"):
        opened.trace.read_entry(0)


@pytest.mark.parametrize("damage", ["changed", "removed"])
def test_damaged_blocks_of_a_gzip_file_are_read_from_the_file(tmp_path: Path, damage: str) -> None:
    path = write_trace(tmp_path / "t.json.gz")
    folder = store(path)
    expected = load_trace(str(path), cache=False).read_entry(1)
    trace = load_trace(str(path))
    if isinstance(trace.text, GzipText):
        trace.text.split_into_blocks()
    blocks = folder / "text.blocks"
    if damage == "removed":
        shutil.rmtree(folder)
    else:
        blocks.write_bytes(bytes(blocks.stat().st_size))
    if isinstance(trace.text, GzipText):
        assert trace.read_entry(1) == expected
        assert [json.loads(text)[0]["name"] for _, text in read_all(trace)] == ["aten::mm"]


def read_all(trace: Trace) -> list[tuple[int, bytes]]:
    return [(chunk, b"[" + text + b"]") for chunk, text in trace.text.read_texts(range(len(trace.text.first)))]


def test_a_plain_file_that_is_replaced_yields_no_args_of_another(tmp_path: Path) -> None:
    path = write_trace(tmp_path / "t.json", "one")
    trace = load_trace(str(path))
    write_trace(tmp_path / "other.json", "two").replace(path)
    with pytest.raises(LookupError, match="the trace file has changed"):
        trace.read_entry(0)
    assert trace.large_keys is not None
    path.write_bytes(path.read_bytes().replace(b"xxx", b"yyy"))
    with pytest.raises(LookupError, match="the trace file has changed"):
        trace.large_keys.read_text("stackFrames")


def test_values_that_were_copied_are_verified(tmp_path: Path) -> None:
    folder = store(write_trace(tmp_path / "t.json.xz"))
    values = folder / large_values.VALUES_FILE
    assert open_trace(folder).large_keys is not None
    os.truncate(values, values.stat().st_size - 1)
    with pytest.raises(StoreError, match=r"keys\.gz"):
        open_trace(folder, verify=True)


def test_problems_survive_the_seal(tmp_path: Path) -> None:
    path = tmp_path / "cut.json"
    path.write_bytes(write_trace(tmp_path / "t.json").read_bytes()[:-20])
    problems: list[Problem] = load_trace(str(path)).problems
    assert problems
    assert load_trace(str(path)).problems == problems
