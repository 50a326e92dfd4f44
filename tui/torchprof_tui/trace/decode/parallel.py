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
from torchprof_tui.trace.core.problems import Problem, Tally
from torchprof_tui.trace.decode.chunker import Window
from torchprof_tui.trace.decode.entry_decoder import End, EntryReader, ReadPart
from torchprof_tui.trace.decode.template.template_decoder import BETWEEN
from torchprof_tui.trace.sources.source import Source
from torchprof_tui.trace.text.block_writer import BlockWriter

LEAST_BYTES = 48 << 20
"""Text for which another process pays: it takes some 30 ms to start one, and to join what it has read."""

MOST_PARTS = 4
"""Beyond, what cannot be divided takes longer than what can."""

_SHARE = 1.1
"""How much more this process reads than each of the others: they have to hand over what they read, and of compressed
text to inflate all that lies before."""

_LARGEST_REST = 16 << 20
"""Text behind the list that is handed on; Kineto writes a hundred bytes there."""

_PIPE = 1 << 20
"""Bytes that a pipe holds: the more, the less often both have to wait."""

_TOLD = struct.Struct("<qq")
_TELL_SECONDS = 0.05


class UnprovenError(Exception):
    """A part did not end where the next one begins, or could not be read: read all of it in one go."""


class Cut:
    """The place behind the comma of the first entry that ends at byte `target` or later.

    `at` is that place in the whole text, known once it has been met; -1 before.
    """

    def __init__(self, target: int) -> None:
        self.target = target
        self.at = -1

    def before(self, blocks: Iterator[bytes], begin: int = 0) -> Iterator[bytes]:
        """These blocks, the first of which begins at `begin`, up to the cut."""
        for block, behind in self._marked(blocks, begin):
            if behind:
                return
            yield block

    def behind(self, blocks: Iterator[bytes], begin: int = 0) -> Iterator[bytes]:
        """These blocks from the cut on."""
        return (block for block, behind in self._marked(blocks, begin) if behind and block)

    def _marked(self, blocks: Iterator[bytes], at: int) -> Iterator[tuple[bytes, bool]]:
        kept = b""  # the end of what came, where it may be the beginning of the text between two entries
        for block in blocks:
            if not kept and at + len(block) <= self.target:
                at += len(block)
                yield block, False
                continue
            text = kept + block
            place = text.find(BETWEEN, max(self.target - at, 0))
            if place >= 0:
                self.at = at + place + 1
                yield text[: place + 1], False
                yield text[place + 1 :], True
                yield from ((rest, True) for rest in blocks)
                return
            kept = text[max(len(text) - len(BETWEEN) + 1, 0) :]
            at += len(text) - len(kept)
            yield text[: len(text) - len(kept)], False
        if kept:
            yield kept, False


@dataclass(frozen=True, slots=True)
class Result:
    """What a process has read: from `begin` to `offset`, where the list ended, or its part of it.

    `rest`: all text behind the list, from the last part.
    """

    read: ReadPart
    begin: int
    offset: int
    end: End
    rest: bytes
    problems: list[Problem]
    source_problems: list[Problem]


def parts_for(source: Source) -> int:
    """How many processes should read a source."""
    size = source.text_size
    # A fork takes only its own thread along, and whatever another one had locked would stay so.
    if size is None or size < 2 * LEAST_BYTES or sys.platform != "linux" or threading.active_count() > 1:
        return 1
    most = 2 if source.compression else MOST_PARTS  # each has to inflate all that lies before its part
    return max(1, min(len(os.sched_getaffinity(0)), most, size // LEAST_BYTES))


class Readers:
    """The processes that read all parts but the first, started at once. `cut`: where the first part ends. `keep`: the
    text of a compressed file is kept.

    Raises OSError where no further process can be had.
    """

    def __init__(self, source: Source, folder: Path, parts: int, chunk_size: int, keep: bool = True) -> None:
        size = source.text_size or 0
        handed = size / (parts + _SHARE - 1)  # to each of them
        self.cut, *others = [Cut(size - int(handed * k)) for k in range(parts - 1, 0, -1)]
        self.problems: list[Problem] = []
        self._hands: list[_Hand] = []
        theirs, self._alive = os.pipe()  # ends when we do, and then they end as well
        try:
            for number, cut in enumerate([self.cut, *others]):
                until = others[number] if number < len(others) else None
                blocks = folder / f"part-{number}.blocks" if source.compression and keep else None
                self._hands.append(_Hand(source, cut, until, blocks, chunk_size, theirs, self._alive))
        except BaseException:
            self.close()
            raise
        finally:
            os.close(theirs)

    def told(self) -> tuple[int, int]:
        """Bytes of the file that they have read so far, and entries, those left out that have been joined."""
        told = [hand.told() for hand in self._hands]
        return sum(consumed for consumed, _ in told), sum(entries for _, entries in told)

    def join(self, reader: EntryReader, window: Window, end: End, tally: Tally, told: Callable[[int], None]) -> End:
        """Append what they have read to what `reader` has, when the first part is done and ended so; the window then
        stands behind the list. Raises UnprovenError."""
        for hand in self._hands:
            if not end.clean or reader.mended or window.at < len(window.text):
                raise UnprovenError
            while not hand.wait(_TELL_SECONDS):
                told(reader.entries)
            result = hand.result()
            if result is None or result.begin != window.offset:
                raise UnprovenError
            reader.join(result.read, hand.fill, hand.blocks)
            hand.end()
            for problem in result.problems:
                tally.add(problem.kind, problem.example, problem.count)
            self.problems += result.source_problems
            window.jump(result.offset, result.rest)
            end = result.end
            told(reader.entries)
        return end

    def close(self) -> None:
        """End those that still read; nothing is left behind."""
        os.close(self._alive)
        for hand in self._hands:
            hand.close()


class _Hand:
    """One process, and its part. `alive`, `ours`: the ends of a pipe, theirs and ours; it ends when we do."""

    def __init__(
        self, source: Source, cut: Cut, until: Cut | None, blocks: Path | None, chunk_size: int, alive: int, ours: int
    ) -> None:
        self.blocks = blocks
        self._consumed = self._entries = 0
        self._ended = False
        self._heard, out = os.pipe()
        result, into = os.pipe()
        try:
            self._process = os.fork()
        except OSError:
            for end in (self._heard, out, result, into):
                os.close(end)
            raise
        if not self._process:
            try:
                os.close(ours)
                os.close(self._heard)
                os.close(result)
                signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for who forked us
                signal.signal(signal.SIGTERM, signal.SIG_DFL)
                threading.Thread(target=_end_with, args=(alive,), daemon=True).start()
                found, columns = _read(source, cut, until, self.blocks, chunk_size, out)
                os.close(out)  # so that they know that it is all
                _write(into, found, columns)
            except BaseException:  # whatever it is, the other way of reading meets it again, and tells it
                os._exit(1)
            os._exit(0)
        os.close(out)
        os.close(into)
        os.set_blocking(self._heard, False)
        self._result = os.fdopen(result, "rb")

    def told(self) -> tuple[int, int]:
        self.wait(0)
        return self._consumed, self._entries if self._process else 0

    def wait(self, seconds: float) -> bool:
        """Take in what it tells, for so long at most. Whether it has told all."""
        while not self._ended and select.select([self._heard], [], [], seconds)[0]:
            said = os.read(self._heard, 64 * _TOLD.size)
            self._ended = not said
            if said:
                self._consumed, self._entries = _TOLD.unpack(said[-_TOLD.size :])
            seconds = 0
        return self._ended

    def result(self) -> Result | None:
        """What it has read, but for the columns; None where it failed. It ends when these have been taken."""
        with contextlib.suppress(EOFError, pickle.UnpicklingError):
            result: Result = pickle.load(self._result)  # of one of us
            return result
        return None

    def fill(self, column: Array) -> None:
        """Fill in the next of the columns. Raises UnprovenError where there is not as much of it."""
        if self._result.readinto(column.view(np.uint8).data) != column.nbytes:
            raise UnprovenError

    def end(self) -> None:
        """It has nothing left to hand over."""
        os.waitpid(self._process, 0)
        self._process = 0

    def close(self) -> None:
        if self._process:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._process, signal.SIGKILL)
            self.end()
        os.close(self._heard)
        self._result.close()
        if self.blocks is not None:
            self.blocks.unlink(missing_ok=True)


def _end_with(alive: int) -> None:
    os.read(alive, 1)
    os._exit(1)


def _read(
    source: Source, cut: Cut, until: Cut | None, kept: Path | None, chunk_size: int, out: int
) -> tuple[Result, Iterator[Array]]:
    """One part, in a process of its own; and its columns."""
    begin = 0 if source.compression else cut.target
    source = source.again(begin)
    blocks = cut.behind(source.blocks(), begin)
    first = next(blocks)
    skipped = source.consumed if source.compression else 0
    every = _again(first, blocks)
    last = 0.0

    def told(entries: int) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last > _TELL_SECONDS:
            last = now
            os.write(out, _TOLD.pack(source.consumed - skipped, entries))

    tally = Tally()
    window = Window(every if until is None else until.before(every, cut.at), cut.at)
    reader = EntryReader(window, tally, chunk_size, True, None if kept is None else BlockWriter(kept), told)
    end = reader.read()
    offset = window.offset
    if until is None:
        window.fill(_LARGEST_REST)
    rest = window.text[window.at :]
    # How much is lost to damage depends on where chunks begin and end: then it must not depend on us.
    if not window.ended or reader.mended or (until is not None and until.at < 0):
        raise UnprovenError
    last = 0.0
    told(reader.entries)
    result = Result(reader.part(), cut.at, offset, end, rest, tally.problems(), source.problems)
    return result, reader.columns.arrays()


def _again(first: bytes, others: Iterator[bytes]) -> Iterator[bytes]:
    yield first
    yield from others


def _write(out: int, result: Result, columns: Iterator[Array]) -> None:
    """Columns as they lie in memory: the other side reads each into the place where it is to stay."""
    with contextlib.suppress(OSError, AttributeError):  # not everybody may have so much, nor knows how to ask
        fcntl.fcntl(out, fcntl.F_SETPIPE_SZ, _PIPE)
    with os.fdopen(out, "wb") as file:
        pickle.dump(result, file, protocol=5)
        for column in columns:
            file.write(column.view(np.uint8).data)
