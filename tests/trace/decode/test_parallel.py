"""Several processes give what one gives, whatever stands at the places where the file is cut."""

from __future__ import annotations

import gzip
import itertools
import lzma
import os
import shutil
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
from tests.trace.decode.template.test_template_decoder import BETWEEN, kineto_entries, one, plain
from tests.trace.decode.test_decoder import ALL, TRACES
from torchprof_tui.trace.core.arrays import Array
from torchprof_tui.trace.core.errors import TraceError
from torchprof_tui.trace.decode import parallel
from torchprof_tui.trace.decode.column_builder import ColumnBuilder
from torchprof_tui.trace.decode.decoder import decode_trace
from torchprof_tui.trace.decode.parallel import SplitNotVerifiedError, SplitPoint, choose_process_count
from torchprof_tui.trace.json_text.salvage import parse_chunk
from torchprof_tui.trace.model.raw_events import DecodedTrace
from torchprof_tui.trace.sources.open import open_source

BIG = TRACES / "big_llama_train_stack.pt.trace.json.xz"

SAME_PATH = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


class Joined:
    """How many times the parts fitted together, and how many times all was read again."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.well = self.again = 0
        join = parallel.ParallelDecoder.append_parts

        def watched(*arguments: Any) -> Any:
            try:
                end = join(*arguments)
            except SplitNotVerifiedError:
                self.again += 1
                raise
            self.well += 1
            return end

        monkeypatch.setattr(parallel.ParallelDecoder, "append_parts", watched)


@pytest.fixture
def joined(monkeypatch: pytest.MonkeyPatch) -> Joined:
    return Joined(monkeypatch)


def decode(path: Path, count: int, **options: Any) -> DecodedTrace | str:
    folder = path.parent / f"{path.name}.{count}"
    folder.mkdir(exist_ok=True)
    try:
        return decode_trace(open_source(str(path)), folder, use_templates=True, process_count=count, **options)
    except TraceError as error:
        return str(error)


def assert_same(path: Path, size: int, counts: tuple[int, ...] = (2, 3)) -> DecodedTrace | str:
    """All ways of dividing the work agree on everything but where the chunks of the text lie."""
    alone = decode(path, 1, chunk_size=size)
    for count in counts:
        divided = decode(path, count, chunk_size=size)
        assert [left.name for left in path.parent.rglob("part-*")] == []
        if isinstance(alone, str) or isinstance(divided, str):
            assert alone == divided
            continue
        assert_alike(alone, divided, chunks=False)
        for ordinal in range(0, len(alone.events), max(len(alone.events) // 7, 1)):
            assert divided.text.read_entry(ordinal, parse_chunk) == alone.text.read_entry(ordinal, parse_chunk)
    return alone


def put(folder: Path, text: bytes, packed: bool = False) -> Path:
    path = folder / "trace.json"
    path.write_bytes(gzip.compress(text, 1) if packed else text)
    return path


@pytest.mark.skipif(not ALL, reason="no traces here")
@pytest.mark.parametrize("path", ALL, ids=lambda path: path.name)
def test_real_traces(path: Path, tmp_path: Path, joined: Joined) -> None:
    text = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    own = BETWEEN in text[: 1 << 15]
    if not own and len(text) > 1 << 20:
        pytest.skip("not Kineto's layout, and large")
    (tmp_path / path.name).symlink_to(path)
    assert_same(tmp_path / path.name, 1 << 16, counts=(2,) if len(text) > 4 << 20 else (3,))
    if own and len(text) > 1 << 19:
        assert (joined.well, joined.again) == (1, 0)


def test_the_big_one(tmp_path: Path, joined: Joined) -> None:
    """The one that openings are measured on: the general reader alone, and the byte scan in two processes."""
    if not BIG.exists():
        pytest.skip("the big trace is not here")
    path = tmp_path / "big.json"
    with lzma.open(BIG) as packed, path.open("wb") as text:
        shutil.copyfileobj(packed, text, 1 << 20)
    general = decode_trace(open_source(str(path)), tmp_path, use_templates=False, process_count=1)
    fast = decode(path, 2)
    assert isinstance(fast, DecodedTrace)
    assert_alike(general, fast, chunks=False)
    assert (joined.well, joined.again) == (1, 0)


@settings(SAME_PATH, max_examples=25)
@given(
    st.lists(kineto_entries(), min_size=1, max_size=12),
    st.lists(st.integers(0, 11), min_size=10, max_size=60),
    st.booleans(),
)
def test_made_ones(tmp_path_factory: pytest.TempPathFactory, kinds: list[str], order: list[int], packed: bool) -> None:
    text = ",\n".join(kinds[k % len(kinds)] for k in order)
    path = put(tmp_path_factory.mktemp("made"), f'{{\n  "traceEvents": [\n{text}\n  ]\n}}'.encode(), packed)
    assert_same(path, 1500)


@settings(SAME_PATH, max_examples=25)
@given(st.data())
def test_damage(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    """Bytes replaced, taken out or put in, near the middle more often than not; or the end cut off."""
    text = bytearray(plain(60))
    middle = len(text) // 2
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.one_of(st.integers(40, len(text) - 1), st.integers(middle - 100, middle + 200)))
        text[at : at + data.draw(st.integers(0, 30))] = data.draw(
            st.sampled_from([b"", b'"', b"\\", b"]", b"]}", b"}", b",", b'"x": ' + BETWEEN, b',\n  {\n    "a": 1\n  }'])
        )
    whole = bytes(text[: data.draw(st.sampled_from([len(text), len(text) * 2 // 3]))])
    assert_same(put(tmp_path_factory.mktemp("damaged"), whole, data.draw(st.booleans())), 1500, counts=(2,))


def test_what_stands_behind_the_list_is_read_as_well(tmp_path: Path, joined: Joined) -> None:
    text = (
        plain(400).rstrip()[:-1] + b',\n  "displayTimeUnit": "ns",\n  "traceEvents": [\n' + one(7).encode() + b"]\n} x"
    )
    decoded = assert_same(put(tmp_path, text), 2000)
    assert isinstance(decoded, DecodedTrace)
    assert (len(decoded.events), decoded.header["displayTimeUnit"], joined.well) == (401, "ns", 2)


ENTRIES = b",\n".join([one(k).encode() for k in range(300)])


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(
    "text",
    [
        b'{"a": [' + b",".join([b'{"b": 1}'] * 300) + b"]}",  # no list of events
        b'{"a": [\n' + ENTRIES + b'],\n"traceEvents": []}',  # cut before it
        plain(200)[:-6]
        + b'],\n"a": [\n'
        + b",\n".join([one(k).encode() for k in range(300)])
        + b"]\n}",  # cut behind it
        b"nothing of the sort" * 1000,
    ],
)
def test_files_that_are_cut_elsewhere(tmp_path: Path, text: bytes, packed: bool) -> None:
    assert_same(put(tmp_path, text, packed), 2000)


def test_a_process_that_dies_costs_time_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = put(tmp_path, plain(400))
    monkeypatch.setattr(parallel, "_decode_part", lambda *_: os.kill(os.getpid(), signal.SIGKILL))
    decoded = assert_same(path, 2000)
    assert isinstance(decoded, DecodedTrace)
    assert len(decoded.events) == 400


def test_without_a_further_process_one_reads_it_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[int] = []
    fork = os.fork

    def one_at_most() -> int:
        if started:
            raise BlockingIOError("no more processes")
        started.append(fork())
        return started[0]

    path = put(tmp_path, plain(400))
    open_files = len(os.listdir("/proc/self/fd"))
    monkeypatch.setattr(os, "fork", one_at_most)
    decoded = assert_same(path, 2000, counts=(3,))
    assert isinstance(decoded, DecodedTrace)
    assert len(decoded.events) == 400
    assert len(os.listdir("/proc/self/fd")) == open_files
    with pytest.raises(ChildProcessError):
        os.waitpid(started[0], 0)


@pytest.mark.parametrize("taken", [0, 1, 5])
def test_a_process_that_dies_while_it_hands_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, joined: Joined, taken: int
) -> None:
    arrays = ColumnBuilder.drain_arrays

    def some(columns: ColumnBuilder) -> Iterator[Array]:
        yield from itertools.islice(arrays(columns), taken)
        os._exit(1)

    monkeypatch.setattr(ColumnBuilder, "drain_arrays", some)
    assert_same(put(tmp_path, plain(400)), 2000)
    assert (joined.well, joined.again) == (0, 2)


def test_a_system_that_has_small_pipes_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, joined: Joined) -> None:
    def refuse(*_: object) -> int:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(parallel.fcntl, "fcntl", refuse)
    assert_same(put(tmp_path, plain(400)), 2000)
    assert (joined.well, joined.again) == (2, 0)


def test_a_file_that_was_replaced_is_not_the_same(tmp_path: Path) -> None:
    path = put(tmp_path, plain(400))
    source = open_source(str(path))
    path.unlink()
    put(tmp_path, plain(300))
    with pytest.raises(TraceError, match="replaced"):
        source.reopen()
    source.close()


def test_processes_end_with_the_one_that_started_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parallel, "_decode_part", lambda *_: time.sleep(60))
    source = open_source(str(put(tmp_path, plain(400), packed=True)))
    readers = parallel.ParallelDecoder(source, tmp_path, 3, 2000)
    processes = [hand._pid for hand in readers._workers]
    assert len(processes) == 2
    os.close(readers._alive_pipe)  # as the kernel does when we are killed
    readers._alive_pipe = os.open(os.devnull, os.O_RDONLY)
    assert [os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) for process in processes] == [1, 1]
    for hand in readers._workers:
        hand._pid = 0
    readers.close()
    source.close()


def test_progress_counts_what_all_have_read(tmp_path: Path) -> None:
    path = put(tmp_path, plain(4000))
    told: list[tuple[int, int | None, int]] = []
    decode_trace(
        open_source(str(path)),
        tmp_path,
        lambda *state: told.append(state),
        chunk_size=4000,
        use_templates=True,
        process_count=3,
    )
    size = path.stat().st_size
    assert told[-1][1] == size
    assert told[-1][2] == 4000
    assert size <= told[-1][0] <= size + 3 * (1 << 20)  # each reads a block beyond its part's end
    assert [entries for _, _, entries in told] == sorted(entries for _, _, entries in told)


@given(st.binary(max_size=40), st.lists(st.integers(1, 30), max_size=8), st.integers(0, 120))
def test_a_cut_is_where_the_text_says(noise: bytes, sizes: list[int], target: int) -> None:
    text = noise + BETWEEN + b"1" + BETWEEN + b"22" + BETWEEN + noise
    bounds = [0, *np.cumsum(sizes).tolist(), len(text)]
    blocks = [block for block in (text[a:b] for a, b in pairwise(bounds)) if block]
    place = text.find(BETWEEN, target)
    at = place + 1 if place >= 0 else -1
    before, behind = SplitPoint(target), SplitPoint(target)
    assert b"".join(before.blocks_before(iter(blocks))) == (text[:at] if at >= 0 else text)
    assert b"".join(behind.blocks_after(iter(blocks))) == (text[at:] if at >= 0 else b"")
    assert (before.offset, behind.offset) == (at, at)


def test_small_files_are_read_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))
    monkeypatch.setattr("threading.active_count", lambda: 1)
    path = put(tmp_path, b"[]")
    assert choose_process_count(open_source(str(path))) == 1
    for megabytes, packed, expected in ((100, False, 2), (1000, False, 4), (1000, True, 2)):
        source = open_source(str(path))
        source.total, source.compression = megabytes << 20, "gzip" if packed else ""
        if packed:
            monkeypatch.setattr("torchprof_tui.trace.sources.source.Source.text_size", property(lambda _: 1000 << 20))
        assert choose_process_count(source) == expected
