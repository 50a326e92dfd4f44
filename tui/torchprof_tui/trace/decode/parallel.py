"""The list of a large file, read by several processes: each takes a part, and what they read is joined in order.

A process cannot know that the place in the middle where it begins is one between two entries; but the one that reads
up to there finds out. Its own text begins where the list does, so if that parses as whole entries up to the comma at
the cut, then the cut is where the document's own parser would have stood between two entries as well. Where it does
not, or where anything is damaged, everything is read again, by one process.

Each of them has an `EntryReader` as this process has; what it comes to, a `Result` around a `ReadPart` and the columns,
is handed over through a pipe, each column to the place where it is to stay, behind what this process has read.

Threads would not do: about half of the work needs the interpreter. The processes are forked, which costs two
milliseconds where starting Python anew and importing numpy costs two hundred.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import pickle
import select
import signal
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from torchprof_tui.trace.core.arrays import Array
from torchprof_tui.trace.core.problems import Problem, ProblemTally
from torchprof_tui.trace.decode.chunker import TextWindow
from torchprof_tui.trace.decode.entry_decoder import DecodedPart, EntryDecoder, ListEnd
from torchprof_tui.trace.decode.template.template_decoder import ENTRY_SEPARATOR
from torchprof_tui.trace.sources.source import Source
from torchprof_tui.trace.text.block_writer import BlockWriter

MIN_PART_BYTES = 48 << 20
"""Text for which another process pays: it takes some 30 ms to start one, and to join what it has read."""

MAX_PROCESSES = 4
"""Beyond, what cannot be divided takes longer than what can."""

_FIRST_PART_SHARE = 1.1
"""How much more this process reads than each of the others: they have to hand over what they read, and of compressed
text to inflate all that lies before."""

_MAX_TRAILING_BYTES = 16 << 20
"""Text behind the list that is handed on; Kineto writes a hundred bytes there."""

_PIPE_BYTES = 1 << 20
"""Bytes that a pipe holds: the more, the less often both have to wait."""

_PROGRESS_STRUCT = struct.Struct("<qq")
_REPORT_SECONDS = 0.05


class SplitNotVerifiedError(Exception):
    """A part did not end where the next one begins, or could not be read: read all of it in one go."""


class SplitPoint:
    """The place behind the comma of the first entry that ends at byte `target` or later.

    `at` is that place in the whole text, known once it has been met; -1 before.
    """

    def __init__(self, target: int) -> None:
        self.target = target
        self.offset = -1

    def blocks_before(self, blocks: Iterator[bytes], begin: int = 0) -> Iterator[bytes]:
        """These blocks, the first of which begins at `begin`, up to the cut."""
        for block, behind in self._mark_blocks(blocks, begin):
            if behind:
                return
            yield block

    def blocks_after(self, blocks: Iterator[bytes], begin: int = 0) -> Iterator[bytes]:
        """These blocks from the cut on."""
        return (block for block, behind in self._mark_blocks(blocks, begin) if behind and block)

    def _mark_blocks(self, blocks: Iterator[bytes], at: int) -> Iterator[tuple[bytes, bool]]:
        kept = b""  # the end of what came, where it may be the beginning of the text between two entries
        for block in blocks:
            if not kept and at + len(block) <= self.target:
                at += len(block)
                yield block, False
                continue
            text = kept + block
            place = text.find(ENTRY_SEPARATOR, max(self.target - at, 0))
            if place >= 0:
                self.offset = at + place + 1
                yield text[: place + 1], False
                yield text[place + 1 :], True
                yield from ((rest, True) for rest in blocks)
                return
            kept = text[max(len(text) - len(ENTRY_SEPARATOR) + 1, 0) :]
            at += len(text) - len(kept)
            yield text[: len(text) - len(kept)], False
        if kept:
            yield kept, False


@dataclass(frozen=True, slots=True)
class PartResult:
    """What a process has read: from `begin` to `offset`, where the list ended, or its part of it.

    `rest`: all text behind the list, from the last part.
    """

    decoded_part: DecodedPart
    begin: int
    end_offset: int
    list_end: ListEnd
    trailing_text: bytes
    problems: list[Problem]
    source_problems: list[Problem]


def choose_process_count(source: Source) -> int:
    """How many processes should read a source."""
    size = source.text_size
    # A fork takes only its own thread along, and whatever another one had locked would stay so.
    if size is None or size < 2 * MIN_PART_BYTES or sys.platform != "linux" or threading.active_count() > 1:
        return 1
    most = 2 if source.compression else MAX_PROCESSES  # each has to inflate all that lies before its part
    return max(1, min(len(os.sched_getaffinity(0)), most, size // MIN_PART_BYTES))


class ParallelDecoder:
    """The processes that read all parts but the first, started at once. `cut`: where the first part ends. `keep`: the
    text of a compressed file is kept.

    Raises OSError where no further process can be had.
    """

    def __init__(
        self, source: Source, folder: Path, process_count: int, chunk_size: int, keep_text: bool = True
    ) -> None:
        size = source.text_size or 0
        handed = size / (process_count + _FIRST_PART_SHARE - 1)  # to each of them
        self.split_point, *others = [SplitPoint(size - int(handed * k)) for k in range(process_count - 1, 0, -1)]
        self.problems: list[Problem] = []
        self._workers: list[_Worker] = []
        theirs, self._alive_pipe = os.pipe()  # ends when we do, and then they end as well
        try:
            for number, cut in enumerate([self.split_point, *others]):
                until = others[number] if number < len(others) else None
                blocks = folder / f"part-{number}.blocks" if source.compression and keep_text else None
                self._workers.append(_Worker(source, cut, until, blocks, chunk_size, theirs, self._alive_pipe))
        except BaseException:
            self.close()
            raise
        finally:
            os.close(theirs)

    def progress(self) -> tuple[int, int]:
        """Bytes of the file that they have read so far, and entries, those left out that have been joined."""
        told = [hand.progress() for hand in self._workers]
        return sum(consumed for consumed, _ in told), sum(entries for _, entries in told)

    def append_parts(
        self,
        entry_decoder: EntryDecoder,
        window: TextWindow,
        end: ListEnd,
        tally: ProblemTally,
        report: Callable[[int], None],
    ) -> ListEnd:
        """Append what they have read to what `reader` has, when the first part is done and ended so; the window then
        stands behind the list. Raises UnprovenError."""
        for hand in self._workers:
            if not end.ends_between_entries or entry_decoder.damaged or window.position < len(window.text):
                raise SplitNotVerifiedError
            while not hand.poll_progress(_REPORT_SECONDS):
                report(entry_decoder.entry_count)
            result = hand.read_result()
            if result is None or result.begin != window.offset:
                raise SplitNotVerifiedError
            entry_decoder.append_part(result.decoded_part, hand.read_column, hand.blocks_path)
            hand.reap()
            for problem in result.problems:
                tally.add(problem.kind, problem.example, problem.count)
            self.problems += result.source_problems
            window.jump(result.end_offset, result.trailing_text)
            end = result.list_end
            report(entry_decoder.entry_count)
        return end

    def close(self) -> None:
        """End those that still read; nothing is left behind."""
        os.close(self._alive_pipe)
        for hand in self._workers:
            hand.close()


class _Worker:
    """One process, and its part. `alive`, `ours`: the ends of a pipe, theirs and ours; it ends when we do."""

    def __init__(
        self,
        source: Source,
        cut: SplitPoint,
        until: SplitPoint | None,
        blocks: Path | None,
        chunk_size: int,
        alive: int,
        ours: int,
    ) -> None:
        self.blocks_path = blocks
        self._consumed = self._entry_count = 0
        self._finished = False
        self._progress_pipe, out = os.pipe()
        result, into = os.pipe()
        try:
            self._pid = os.fork()
        except OSError:
            for end in (self._progress_pipe, out, result, into):
                os.close(end)
            raise
        if not self._pid:
            try:
                os.close(ours)
                os.close(self._progress_pipe)
                os.close(result)
                signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for who forked us
                signal.signal(signal.SIGTERM, signal.SIG_DFL)
                threading.Thread(target=_exit_with_parent, args=(alive,), daemon=True).start()
                found, columns = _decode_part(source, cut, until, self.blocks_path, chunk_size, out)
                os.close(out)  # so that they know that it is all
                _send_result(into, found, columns)
            except BaseException:  # whatever it is, the other way of reading meets it again, and tells it
                os._exit(1)
            os._exit(0)
        os.close(out)
        os.close(into)
        os.set_blocking(self._progress_pipe, False)
        self._result_file = os.fdopen(result, "rb")

    def progress(self) -> tuple[int, int]:
        self.poll_progress(0)
        return self._consumed, self._entry_count if self._pid else 0

    def poll_progress(self, seconds: float) -> bool:
        """Take in what it tells, for so long at most. Whether it has told all."""
        while not self._finished and select.select([self._progress_pipe], [], [], seconds)[0]:
            said = os.read(self._progress_pipe, 64 * _PROGRESS_STRUCT.size)
            self._finished = not said
            if said:
                self._consumed, self._entry_count = _PROGRESS_STRUCT.unpack(said[-_PROGRESS_STRUCT.size :])
            seconds = 0
        return self._finished

    def read_result(self) -> PartResult | None:
        """What it has read, but for the columns; None where it failed. It ends when these have been taken."""
        with contextlib.suppress(EOFError, pickle.UnpicklingError):
            result: PartResult = pickle.load(self._result_file)  # of one of us
            return result
        return None

    def read_column(self, column: Array) -> None:
        """Fill in the next of the columns. Raises UnprovenError where there is not as much of it."""
        if self._result_file.readinto(column.view(np.uint8).data) != column.nbytes:
            raise SplitNotVerifiedError

    def reap(self) -> None:
        """It has nothing left to hand over."""
        os.waitpid(self._pid, 0)
        self._pid = 0

    def close(self) -> None:
        if self._pid:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._pid, signal.SIGKILL)
            self.reap()
        os.close(self._progress_pipe)
        self._result_file.close()
        if self.blocks_path is not None:
            self.blocks_path.unlink(missing_ok=True)


def _exit_with_parent(alive: int) -> None:
    os.read(alive, 1)
    os._exit(1)


def _decode_part(
    source: Source, cut: SplitPoint, until: SplitPoint | None, kept: Path | None, chunk_size: int, out: int
) -> tuple[PartResult, Iterator[Array]]:
    """One part, in a process of its own; and its columns."""
    begin = 0 if source.compression else cut.target
    source = source.reopen(begin)
    blocks = cut.blocks_after(source.blocks(), begin)
    first = next(blocks)
    skipped = source.consumed if source.compression else 0
    every = _prepend_block(first, blocks)
    last = 0.0

    def told(entries: int) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last > _REPORT_SECONDS:
            last = now
            os.write(out, _PROGRESS_STRUCT.pack(source.consumed - skipped, entries))

    tally = ProblemTally()
    window = TextWindow(every if until is None else until.blocks_before(every, cut.offset), cut.offset)
    reader = EntryDecoder(window, tally, chunk_size, True, None if kept is None else BlockWriter(kept), told)
    end = reader.decode_list()
    offset = window.offset
    if until is None:
        window.fill(_MAX_TRAILING_BYTES)
    rest = window.text[window.position :]
    # How much is lost to damage depends on where chunks begin and end: then it must not depend on us.
    if not window.ended or reader.damaged or (until is not None and until.offset < 0):
        raise SplitNotVerifiedError
    last = 0.0
    told(reader.entry_count)
    result = PartResult(reader.finish_part(), cut.offset, offset, end, rest, tally.problems(), source.problems)
    return result, reader.columns.drain_arrays()


def _prepend_block(first: bytes, others: Iterator[bytes]) -> Iterator[bytes]:
    yield first
    yield from others


def _send_result(out: int, result: PartResult, columns: Iterator[Array]) -> None:
    """Columns as they lie in memory: the other side reads each into the place where it is to stay."""
    with contextlib.suppress(OSError, AttributeError):  # not everybody may have so much, nor knows how to ask
        fcntl.fcntl(out, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
    with os.fdopen(out, "wb") as file:
        pickle.dump(result, file, protocol=5)
        for column in columns:
            file.write(column.view(np.uint8).data)
