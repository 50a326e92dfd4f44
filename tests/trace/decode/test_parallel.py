"""Decoding in several processes yields the same as in one, for any text at the split points."""

from __future__ import annotations

import errno
import gzip
import itertools
import os
import signal
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.helpers.column_equality import assert_alike
from tests.helpers.decoder_input import KINETO_SEPARATOR, kineto_entry, kineto_text
from tests.helpers.decoder_spies import AppendedParts, count_appended_parts
from tests.helpers.decoder_strategies import kineto_entries
from tests.helpers.long_run import keep_some, scale_examples
from torchprof_tui.trace.core.arrays import Array
from torchprof_tui.trace.core.errors import TraceError
from torchprof_tui.trace.core.readable import wait_until_readable
from torchprof_tui.trace.decode import parallel
from torchprof_tui.trace.decode.column_builder import ColumnBuilder
from torchprof_tui.trace.decode.general_decoder import decode_trace
from torchprof_tui.trace.decode.parallel import SplitPoint, choose_process_count
from torchprof_tui.trace.json_text.salvage import parse_chunk
from torchprof_tui.trace.model.raw_events import DecodedTrace
from torchprof_tui.trace.sources.source import open_source

SAME_PATH = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture
def parts(monkeypatch: pytest.MonkeyPatch) -> AppendedParts:
    return count_appended_parts(monkeypatch)


def decode_file(path: Path, count: int, **options: Any) -> DecodedTrace | str:
    """Decode in `count` processes; the text of the error if the file is refused."""
    folder = path.parent / f"{path.name}.{count}"
    folder.mkdir(exist_ok=True)
    try:
        return decode_trace(open_source(str(path)), folder, use_templates=True, process_count=count, **options)
    except TraceError as error:
        return str(error)


def assert_same(path: Path, size: int, counts: tuple[int, ...] = (2, 3)) -> DecodedTrace | str:
    """Assert that all numbers of processes yield the same, except for the offsets of the chunks of the text."""
    single = decode_file(path, 1, chunk_size=size)
    for count in counts:
        divided = decode_file(path, count, chunk_size=size)
        assert list(path.parent.rglob("part-*")) == []
        if isinstance(single, str) or isinstance(divided, str):
            assert single == divided
            continue
        assert_alike(single, divided, chunks=False)
        for ordinal in range(0, len(single.events), max(len(single.events) // 7, 1)):
            assert divided.text.read_entry(ordinal, parse_chunk) == single.text.read_entry(ordinal, parse_chunk)
    return single


def write_trace(folder: Path, text: bytes, compressed: bool = False) -> Path:
    path = folder / "trace.json"
    path.write_bytes(gzip.compress(text, 1) if compressed else text)
    return path


@settings(SAME_PATH, max_examples=scale_examples(0.3))
@given(
    st.lists(kineto_entries(), min_size=1, max_size=12),
    st.lists(st.integers(0, 11), min_size=10, max_size=60),
    st.booleans(),
)
def test_generated_traces(
    tmp_path_factory: pytest.TempPathFactory, kinds: list[str], order: list[int], compressed: bool
) -> None:
    text = ",\n".join(kinds[k % len(kinds)] for k in order)
    path = write_trace(
        tmp_path_factory.mktemp("generated"), f'{{\n  "traceEvents": [\n{text}\n  ]\n}}'.encode(), compressed
    )
    assert_same(path, 1500)


@settings(SAME_PATH, max_examples=scale_examples(0.5))
@given(st.data())
def test_damage(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    """Replace, remove or insert bytes, most often near the middle, or cut off the end."""
    text = bytearray(kineto_text(60))
    middle = len(text) // 2
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.one_of(st.integers(40, len(text) - 1), st.integers(middle - 100, middle + 200)))
        text[at : at + data.draw(st.integers(0, 30))] = data.draw(
            st.sampled_from(
                [b"", b'"', b"\\", b"]", b"]}", b"}", b",", b'"x": ' + KINETO_SEPARATOR, b',\n  {\n    "a": 1\n  }']
            )
        )
    whole = bytes(text[: data.draw(st.sampled_from([len(text), len(text) * 2 // 3]))])
    assert_same(write_trace(tmp_path_factory.mktemp("damaged"), whole, data.draw(st.booleans())), 1500, counts=(2,))


def test_text_after_the_list_is_read(tmp_path: Path, parts: AppendedParts) -> None:
    text = (
        kineto_text(400).rstrip()[:-1]
        + b',\n  "displayTimeUnit": "ns",\n  "traceEvents": [\n'
        + kineto_entry(7).encode()
        + b"]\n} x"
    )
    decoded = assert_same(write_trace(tmp_path, text), 2000)
    assert isinstance(decoded, DecodedTrace)
    assert (len(decoded.events), decoded.header["displayTimeUnit"], parts.joined) == (401, "ns", 2)


ENTRIES = b",\n".join([kineto_entry(k).encode() for k in range(300)])


@pytest.mark.parametrize("compressed", keep_some([False, True], 3))
@pytest.mark.parametrize(
    "text",
    [
        b'{"a": [' + b",".join([b'{"b": 1}'] * 300) + b"]}",  # not a list of events
        b'{"a": [\n' + ENTRIES + b'],\n"traceEvents": []}',  # split before the list
        kineto_text(200)[:-6]
        + b'],\n"a": [\n'
        + b",\n".join([kineto_entry(k).encode() for k in range(300)])
        + b"]\n}",  # split after the list
        b"nothing of the sort" * 1000,
    ],
)
def test_split_points_outside_the_list(tmp_path: Path, text: bytes, compressed: bool) -> None:
    assert_same(write_trace(tmp_path, text, compressed), 2000)


def test_a_killed_process_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_trace(tmp_path, kineto_text(400))
    monkeypatch.setattr(parallel._Worker, "_decode_part", lambda *_: os.kill(os.getpid(), signal.SIGKILL))
    decoded = assert_same(path, 2000)
    assert isinstance(decoded, DecodedTrace)
    assert len(decoded.events) == 400


def test_one_process_decodes_everything_if_another_cannot_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[int] = []
    fork = os.fork

    def fork_once() -> int:
        if started:
            raise BlockingIOError("no more processes")
        started.append(fork())
        return started[0]

    path = write_trace(tmp_path, kineto_text(400))
    open_files = len(os.listdir("/proc/self/fd"))
    monkeypatch.setattr(os, "fork", fork_once)
    decoded = assert_same(path, 2000, counts=(3,))
    assert isinstance(decoded, DecodedTrace)
    assert len(decoded.events) == 400
    assert len(os.listdir("/proc/self/fd")) == open_files
    with pytest.raises(ChildProcessError):
        os.waitpid(started[0], 0)


@pytest.mark.parametrize("sent", keep_some([0, 1, 5], 1))
def test_a_process_that_dies_while_it_sends_columns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, parts: AppendedParts, sent: int
) -> None:
    drain_arrays = ColumnBuilder.drain_arrays

    def drain_and_exit(columns: ColumnBuilder) -> Iterator[Array]:
        yield from itertools.islice(drain_arrays(columns), sent)
        os._exit(1)

    monkeypatch.setattr(ColumnBuilder, "drain_arrays", drain_and_exit)
    assert_same(write_trace(tmp_path, kineto_text(400)), 2000)
    assert (parts.joined, parts.not_verified) == (0, 2)


def test_a_system_without_files_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, parts: AppendedParts
) -> None:
    def refuse(*_: object) -> int:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "memfd_create", refuse)
    assert_same(write_trace(tmp_path, kineto_text(400)), 2000)
    assert (parts.joined, parts.not_verified) == (2, 0)


def test_one_process_decodes_everything_if_there_is_no_room_for_columns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, parts: AppendedParts
) -> None:
    def refuse(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "pwrite", refuse)
    assert_same(write_trace(tmp_path, kineto_text(400)), 2000)
    assert (parts.joined, parts.not_verified) == (0, 2)


def test_a_replaced_file_is_not_reopened(tmp_path: Path) -> None:
    path = write_trace(tmp_path, kineto_text(400))
    source = open_source(str(path))
    path.unlink()
    write_trace(tmp_path, kineto_text(300))
    with pytest.raises(TraceError, match="replaced"):
        source.reopen()
    source.close()


def test_processes_end_with_their_parent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parallel._Worker, "_decode_part", lambda *_: time.sleep(60))
    source = open_source(str(write_trace(tmp_path, kineto_text(400))))
    decoder = parallel.ParallelDecoder(source, tmp_path, 3, 2000)
    processes = [worker._pid for worker in decoder._workers]
    assert len(processes) == 2
    os.close(decoder._alive_pipe)  # as the kernel does when the parent is killed
    decoder._alive_pipe = os.open(os.devnull, os.O_RDONLY)
    assert [os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) for process in processes] == [1, 1]
    for worker in decoder._workers:
        worker._pid = 0
    decoder.close()
    source.close()


@pytest.mark.parametrize("stop", ["parent", "inflater", "decoder"])
def test_processes_of_a_compressed_file_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stop: str) -> None:
    """Close the pipe as the kernel does when the parent is killed, or kill a process: no process or file is left."""

    def write_and_sleep(worker: Any, *_: object) -> None:
        worker.blocks_path.write_bytes(b"text")
        os.write(worker._progress_out, os.getpid().to_bytes(16, "little"))
        time.sleep(60)

    monkeypatch.setattr(parallel._Worker, "_decode_part", write_and_sleep)
    source = open_source(str(write_trace(tmp_path, kineto_text(400), compressed=True)))
    open_files = len(os.listdir("/proc/self/fd"))
    decoder = parallel.ParallelDecoder(source, tmp_path, 4, 2000)
    processes = []
    for worker in decoder._workers:
        assert wait_until_readable([worker._progress_pipe], 30)
        processes.append(int.from_bytes(os.read(worker._progress_pipe, 16), "little"))
    assert len(set(processes)) == 3
    assert decoder._inflater == processes[-1]
    if stop != "parent":
        os.kill(processes[-1 if stop == "inflater" else 0], signal.SIGKILL)
    decoder.close()
    deadline = time.monotonic() + 30  # the files of a process are closed a moment before it has ended
    while any(is_running(process) for process in processes):
        assert time.monotonic() < deadline
        time.sleep(0.001)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["trace.json"]
    assert len(os.listdir("/proc/self/fd")) == open_files
    source.close()


def is_running(process: int) -> bool:
    """Tell whether a process runs; one that has ended may wait to be reaped by a process that we do not control."""
    try:
        stat = Path(f"/proc/{process}/stat").read_text()
    except OSError:
        return False
    return stat[stat.rindex(")") + 2] not in "ZX"


@pytest.mark.parametrize(("entries", "compressed"), keep_some([(40, False), (40, True), (900, False), (900, True)], 1))
def test_any_number_of_processes_yields_the_same(
    tmp_path: Path, parts: AppendedParts, entries: int, compressed: bool
) -> None:
    assert_same(write_trace(tmp_path, kineto_text(entries), compressed), 1500, counts=(3, 16))
    assert parts.joined == 2 or entries == 40  # two parts of 40 entries may begin at the same one


def test_a_compressed_file_of_several_members(tmp_path: Path, parts: AppendedParts) -> None:
    text = kineto_text(900)
    pieces = [gzip.compress(text[begin : begin + 20_000], 1) for begin in range(0, len(text), 20_000)]
    path = tmp_path / "trace.json"
    path.write_bytes(b"".join(pieces))
    source = open_source(str(path))
    source.close()
    assert_same(path, 1500, counts=(3,))


@pytest.mark.long
def test_a_killed_process_of_a_compressed_file_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_trace(tmp_path, kineto_text(400), compressed=True)
    monkeypatch.setattr(parallel._Worker, "_decode_part", lambda *_: os.kill(os.getpid(), signal.SIGKILL))
    decoded = assert_same(path, 2000, counts=(2, 3, 8))
    assert isinstance(decoded, DecodedTrace)
    assert len(decoded.events) == 400


def test_progress_adds_up_all_processes(tmp_path: Path) -> None:
    path = write_trace(tmp_path, kineto_text(4000))
    reports: list[tuple[int, int | None, int]] = []
    decode_trace(
        open_source(str(path)),
        tmp_path,
        lambda *report: reports.append(report),
        chunk_size=4000,
        use_templates=True,
        process_count=3,
    )
    size = path.stat().st_size
    assert reports[-1][1] == size
    assert reports[-1][2] == 4000
    assert size <= reports[-1][0] <= size + 3 * (1 << 20)  # each process reads a block beyond the end of its part
    assert [entries for _, _, entries in reports] == sorted(entries for _, _, entries in reports)


@given(
    st.sampled_from([KINETO_SEPARATOR, b',\n{"ph"', b',{"ph"', b', {"ph"']),
    st.binary(max_size=40),
    st.lists(st.integers(1, 30), max_size=8),
    st.integers(0, 120),
)
def test_a_split_point_is_after_the_first_separator_from_its_target(
    between: bytes, noise: bytes, sizes: list[int], target: int
) -> None:
    text = noise + between + b"1" + between + b"22" + between + noise
    bounds = [0, *np.cumsum(sizes).tolist(), len(text)]
    blocks = [block for block in (text[a:b] for a, b in pairwise(bounds)) if block]
    separator = text.find(between, target)
    offset = separator + 1 if separator >= 0 else -1
    before, after = SplitPoint(target), SplitPoint(target)
    assert b"".join(before.blocks_before(iter(blocks))) == (text[:offset] if offset >= 0 else text)
    assert b"".join(after.blocks_after(iter(blocks))) == (text[offset:] if offset >= 0 else b"")
    assert (before.offset, after.offset) == (offset, offset)


def test_the_number_of_processes_depends_on_size_and_compression(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))
    monkeypatch.setattr("threading.active_count", lambda: 1)
    path = write_trace(tmp_path, b"[]")
    assert choose_process_count(open_source(str(path))) == 1
    for megabytes, compressed, expected in ((100, False, 2), (1000, False, 8), (1000, True, 8)):
        source = open_source(str(path))
        source.total, source.compression = megabytes << 20, "gzip" if compressed else ""
        if compressed:
            monkeypatch.setattr("torchprof_tui.trace.sources.source.Source.text_size", property(lambda _: 1000 << 20))
        assert choose_process_count(source) == expected
