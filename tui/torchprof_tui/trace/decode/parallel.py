"""Decode the list of a large file in several processes, each one part, and join the parts in order.

Of a compressed file, one process inflates all text and forks another at each split point, which goes on from there with
a copy of the decompressor; so the text is inflated twice, whatever the number of processes.

A process cannot know whether the position in the middle of the file at which it begins is between two entries, but the
process that decodes the text before it can verify that: its own text begins where the list does, so if that text parses
as whole entries up to the comma at the split point, a parser of the whole document would be between two entries there
too. If it does not, or if anything is damaged, one process decodes everything again.

Each process has an `EntryDecoder` as this process has. It writes its columns to a file in memory and then sends a
`PartResult` through a pipe. Threads of this process read each column into its final position after the entries of this
process, and free its memory in the file. (A pipe would hold a part of a column at a time, and each read ends with a
wait for the GIL.)

Threads would not do: about half of the work holds the GIL. The processes are forked, which takes two milliseconds;
starting Python and importing numpy takes two hundred.

The inflater skips the text up to where a part begins and forks a process there, which has a copy of the decompressor
and so goes on inflating by itself; the inflater goes on to the next part. The last part is decoded in the inflater.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import pickle
import re
import signal
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

from torchprof_tui.trace.core.array_files import create_shared_file, read_array, write_array
from torchprof_tui.trace.core.arrays import Array, ArrayFinisher
from torchprof_tui.trace.core.problems import Problem, ProblemTally
from torchprof_tui.trace.core.process_state import count_cores, lower_priority
from torchprof_tui.trace.core.readable import wait_until_readable
from torchprof_tui.trace.core.records import record
from torchprof_tui.trace.core.thread_tasks import run_tasks
from torchprof_tui.trace.decode.entry_decoder import DecodedPart, EntryDecoder, ListEnd, TextWindow, choose_text_limits
from torchprof_tui.trace.sources.source import Prefetcher, Source
from torchprof_tui.trace.text.block_text import BlockWriter

_SEPARATOR = re.compile(rb',(?:\n  \{\n    "|\s?\{"ph")')
"""Where a file may be split: between two entries as Kineto writes them, and as all compact writers of torch do. Only
the first byte is a comma, so a shorter separator never begins within a longer one that a block cuts off."""

_MAX_SEPARATOR_BYTES = 11


class SplitPoint:
    """The position after the comma of the first entry that ends at byte `target` or later.

    `offset`: that position in the whole text, -1 until the blocks up to it have been read.
    """

    def __init__(self, target: int) -> None:
        self.target = target
        self.offset = -1

    def blocks_before(self, blocks: Iterator[bytes], begin: int = 0) -> Iterator[bytes]:
        """Yield these blocks, the first of which begins at `begin`, up to the split point."""
        for block, is_after in self._mark_blocks(blocks, begin):
            if is_after:
                return
            yield block

    def blocks_after(self, blocks: Iterator[bytes], begin: int = 0) -> Iterator[bytes]:
        """Yield these blocks from the split point on."""
        return (block for block, is_after in self._mark_blocks(blocks, begin) if is_after and block)

    def _mark_blocks(self, blocks: Iterator[bytes], offset: int) -> Iterator[tuple[bytes, bool]]:
        """Yield the text in pieces, and whether each is after the split point; `offset` is where the blocks begin."""
        kept = b""  # the end of the previous block, which may be the beginning of a separator
        for block in blocks:
            if not kept and offset + len(block) <= self.target:
                offset += len(block)
                yield block, False
                continue
            text = kept + block
            separator = _SEPARATOR.search(text, max(self.target - offset, 0))
            if separator is not None:
                cut = separator.start() + 1
                self.offset = offset + cut
                yield text[:cut], False
                yield text[cut:], True
                yield from ((rest, True) for rest in blocks)
                return
            kept = text[max(len(text) - _MAX_SEPARATOR_BYTES + 1, 0) :]
            offset += len(text) - len(kept)
            yield text[: len(text) - len(kept)], False
        if kept:
            yield kept, False


def inflate_for_workers(source: Source, workers: Sequence[_Worker], parent_alive: int) -> None:
    """Inflate a source, and decode each part in a process of its own, the last one in this process.

    Waits for all of them. Must run in a process without other threads. Raises OSError, TraceError.
    """
    source = source.reopen()
    waiting = list(workers)
    children: list[int] = []
    blocks = source.blocks_in_this_thread()
    offset = 0
    try:
        for block in blocks:
            if wait_until_readable([parent_alive], 0):
                return  # the parent has ended
            while waiting and waiting[0].start.target < offset + len(block):
                worker = waiting.pop(0)
                rest = itertools.chain([block], blocks)
                if not waiting:
                    worker.run(source, iter(Prefetcher(rest)), offset, parent_alive)
                    return
                run = partial(_run_inflated, worker, waiting, source, rest, offset, parent_alive)
                children.append(fork_process(run))
                worker.close_outputs()
            offset += len(block)
    finally:
        for worker in waiting:
            worker.close_outputs()
        for child in children:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(child, 0)


def fork_process(run: Callable[[], object]) -> int:
    """Fork a process that calls `run` and ends. Returns its id. Raises OSError where it cannot be started.

    It has only this thread, so that no other may hold a lock. Whatever fails in it ends it with another status.
    """
    child = os.fork()
    if not child:
        status = 1
        try:
            run()
            status = 0
        finally:
            os._exit(status)
    return child


def _run_inflated(
    worker: _Worker, waiting: list[_Worker], source: Source, blocks: Iterator[bytes], begin: int, parent_alive: int
) -> None:
    """Decode a part in a process of its own, with the decompressor as it was at the fork."""
    for other in waiting:
        other.close_outputs()
    source.reopen_in_place()
    worker.run(source, iter(Prefetcher(blocks)), begin, parent_alive)


MIN_PART_BYTES = 48 << 20  # text for which another process pays: to start one and to join its part takes some 30 ms
MAX_PROCESSES = 32  # with more processes, joining the parts takes longer than decoding them
MAX_COMPRESSED_PROCESSES = 12  # for a compressed file, inflating takes longer than decoding from here on

_FIRST_PART_SHARE = 1.1
"""Size of this process's part in parts of the other processes, which also have to send what they decode."""

_COMPRESSED_PART_SHARE = 0.85
"""Size of a part of a compressed file in parts of the process before, which begins earlier: from 3 processes on."""

_MAX_TRAILING_BYTES = 16 << 20  # text after the list that a process sends; Kineto writes a hundred bytes there
_READ_BYTES = 1 << 20

_PROGRESS_STRUCT = struct.Struct("<qq")
_REPORT_SECONDS = 0.05


class SplitNotVerifiedError(Exception):
    """A part does not end where the next one begins, or could not be decoded: decode everything in one process."""


@record
class PartResult:
    """The part that a process decoded, from `begin` to `end_offset`, where the list or the part ends.

    `trailing_text`: from the last part, all text after the list.
    """

    decoded_part: DecodedPart
    begin: int
    end_offset: int
    list_end: ListEnd
    trailing_text: bytes
    problems: list[Problem]
    source_problems: list[Problem]


def choose_process_count(source: Source) -> int:
    """Choose how many processes decode a source."""
    size = source.text_size
    # A forked process has only the thread that forked it; a lock held by another thread would never be released in it.
    if size is None or size < 2 * MIN_PART_BYTES or sys.platform != "linux" or threading.active_count() > 1:
        return 1
    most = MAX_COMPRESSED_PROCESSES if source.compression else MAX_PROCESSES
    return max(1, min(count_cores(), most, size // MIN_PART_BYTES))


def choose_split_points(size: int, count: int, compressed: bool) -> list[SplitPoint]:
    """Choose where the parts of all processes but the first begin, so that all of them end at about the same time."""
    if compressed and count > 2:
        shares = [_COMPRESSED_PART_SHARE**k for k in range(count)]
    else:
        shares = [_FIRST_PART_SHARE, *[1.0] * (count - 1)]
    ends = list(itertools.accumulate(shares))
    return [SplitPoint(int(size * end / ends[-1])) for end in ends[:-1]]


class ParallelDecoder:
    """The processes that decode all parts but the first; they start immediately.

    `split_point`: where the first part ends. `keep_text`: store the text of a compressed file. Raises OSError if a
    process cannot be started.
    """

    def __init__(
        self, source: Source, folder: Path, process_count: int, chunk_size: int, keep_text: bool = True
    ) -> None:
        split_points = choose_split_points(source.text_size or 0, process_count, bool(source.compression))
        self.split_point = split_points[0]
        self.problems: list[Problem] = []
        self._workers: list[_Worker] = []
        self._inflater = 0  # the process that forks those that decode a compressed file
        self._alive_pipe = -1
        parent_alive, self._alive_pipe = os.pipe()  # closes when this process ends, and then the workers end as well
        try:
            for number, start in enumerate(split_points):
                end = split_points[number + 1] if number + 1 < len(split_points) else None
                blocks_path = folder / f"part-{number}.blocks" if source.compression and keep_text else None
                self._workers.append(_Worker(start, end, blocks_path, chunk_size))
                if not source.compression:
                    self._workers[-1].fork(source, parent_alive, self._alive_pipe)
            if source.compression:
                # Where it fails, the parent notices that a part is missing, and decodes everything again.
                def inflate() -> None:
                    os.close(self._alive_pipe)
                    _set_up_process()
                    inflate_for_workers(source, self._workers, parent_alive)

                self._inflater = fork_process(inflate)
                for worker in self._workers:
                    worker.close_outputs()
        except BaseException:
            self.close()
            raise
        finally:
            os.close(parent_alive)

    def progress(self) -> tuple[int, int]:
        """Return the bytes of the file that the workers have read so far, and entries that are not appended yet."""
        progress = [worker.progress() for worker in self._workers]
        return sum(consumed for consumed, _ in progress), sum(entries for _, entries in progress)

    def append_parts(
        self,
        entry_decoder: EntryDecoder,
        window: TextWindow,
        end: ListEnd,
        tally: ProblemTally,
        report: Callable[[int], None],
    ) -> ListEnd:
        """Append the parts of the workers to `entry_decoder`, once it has decoded the first part, which ended at `end`.

        Leaves the window after the list and returns how the list ended. Raises SplitNotVerifiedError.
        """
        results: list[PartResult] = []
        for worker in self._workers:
            if not end.ends_between_entries or entry_decoder.damaged or window.position < len(window.text):
                raise SplitNotVerifiedError
            while not worker.poll_progress(_REPORT_SECONDS):
                report(entry_decoder.entry_count)
            result = worker.read_result()
            if result is None or result.begin != window.offset:
                raise SplitNotVerifiedError
            results.append(result)
            for problem in result.problems:
                tally.add(problem.kind, problem.example, problem.count)
            self.problems += result.source_problems
            window.jump(result.end_offset, result.trailing_text)
            end = result.list_end
        entry_decoder.columns.make_room([result.decoded_part.columns for result in results])
        for worker, result in zip(self._workers, results, strict=True):
            entry_decoder.append_part(result.decoded_part, worker.note_column, worker.blocks_path)
        run_tasks([worker.read_columns for worker in self._workers], count_cores())
        for worker in self._workers:
            worker.reap()
        report(entry_decoder.entry_count)
        return end

    def close(self) -> None:
        """End the workers that still run, and remove their files."""
        os.close(self._alive_pipe)  # ends what the inflater has started
        for worker in self._workers:
            worker.close()
        if self._inflater:
            os.waitpid(self._inflater, 0)
            self._inflater = 0


class _Worker:
    """One process, which decodes a part, seen from its parent.

    The part is from `start` to `end`, None for the end of the list. `blocks_path`: where it stores the text, or None.
    """

    def __init__(self, start: SplitPoint, end: SplitPoint | None, blocks_path: Path | None, chunk_size: int) -> None:
        self.start, self.end = start, end
        self.blocks_path = blocks_path
        self._chunk_size = chunk_size
        self._consumed = self._entry_count = 0
        self._finished = self._appended = False
        self._columns: list[tuple[Array, ArrayFinisher | None]] = []
        self._pid = 0
        self._columns_file = create_shared_file()
        self._progress_pipe, self._progress_out = os.pipe()
        result_pipe, self._result_out = os.pipe()
        os.set_blocking(self._progress_pipe, False)
        self._result_file = os.fdopen(result_pipe, "rb")

    def fork(self, source: Source, parent_alive: int, alive_pipe: int) -> None:
        """Start the process. `parent_alive`, `alive_pipe`: the ends of a pipe that closes when this process ends; the
        worker reads the first. Raises OSError."""

        def decode() -> None:
            os.close(alive_pipe)
            _set_up_process()
            begin = self.start.target
            reopened = source.reopen(begin)
            self.run(reopened, reopened.blocks(), begin, parent_alive)

        self._pid = fork_process(decode)
        self.close_outputs()

    def run(self, source: Source, blocks: Iterator[bytes], begin: int, parent_alive: int) -> None:
        """Decode the part, in a process of its own. `begin`: where the blocks begin. Raises any error: the parent then
        decodes everything again, meets it there and reports it."""
        os.close(self._progress_pipe)
        self._result_file.close()
        threading.Thread(target=exit_with_parent, args=(parent_alive,), daemon=True).start()
        result, columns = self._decode_part(source, blocks, begin)
        os.close(self._progress_out)  # tells the parent that decoding is complete
        offset = 0
        for column in columns:
            write_array(self._columns_file, column, offset)
            offset += column.nbytes
        with os.fdopen(self._result_out, "wb") as file:
            pickle.dump(result, file, protocol=5)

    def _decode_part(self, source: Source, blocks: Iterator[bytes], begin: int) -> tuple[PartResult, Iterator[Array]]:
        start, end = self.start, self.end
        skipped = source.consumed
        blocks = start.blocks_after(blocks, begin)
        blocks = itertools.chain([next(blocks)], blocks)  # the first one sets the offset of `start`
        last_report = 0.0

        def report(entries: int) -> None:
            nonlocal last_report
            now = time.monotonic()
            if now - last_report > _REPORT_SECONDS:
                last_report = now
                os.write(self._progress_out, _PROGRESS_STRUCT.pack(source.consumed - skipped, entries))

        tally = ProblemTally()
        blocks = blocks if end is None else end.blocks_before(blocks, start.offset)
        window = TextWindow(blocks, start.offset, choose_text_limits(source))
        block_writer = None if self.blocks_path is None else BlockWriter(self.blocks_path)
        decoder = EntryDecoder(window, tally, self._chunk_size, True, block_writer, report)
        list_end = decoder.decode_list()
        end_offset = window.offset
        if end is None:
            window.fill(_MAX_TRAILING_BYTES)
        trailing_text = window.text[window.position :]
        # What is lost to damage depends on where chunks begin and end, and so would depend on the number of processes.
        if not window.ended or window.stop_reason or decoder.damaged or (end is not None and end.offset < 0):
            raise SplitNotVerifiedError
        last_report = 0.0
        report(decoder.entry_count)
        result = PartResult(
            decoder.finish_part(), start.offset, end_offset, list_end, trailing_text, tally.problems(), source.problems
        )
        return result, decoder.columns.drain_arrays()

    def close_outputs(self) -> None:
        """Close the ends of the pipes that only the worker writes to."""
        for descriptor in (self._progress_out, self._result_out):
            if descriptor >= 0:
                os.close(descriptor)
        self._progress_out = self._result_out = -1

    def progress(self) -> tuple[int, int]:
        """Return the bytes of the file read so far, and entries that are not appended yet."""
        self.poll_progress(0)
        return self._consumed, 0 if self._appended else self._entry_count

    def poll_progress(self, seconds: float) -> bool:
        """Read its progress, for at most so long. Returns whether it has finished decoding."""
        while not self._finished and wait_until_readable([self._progress_pipe], seconds):
            data = os.read(self._progress_pipe, 64 * _PROGRESS_STRUCT.size)
            self._finished = not data
            if data:
                self._consumed, self._entry_count = _PROGRESS_STRUCT.unpack(data[-_PROGRESS_STRUCT.size :])
            seconds = 0
        return self._finished

    def read_result(self) -> PartResult | None:
        """Read its result without the columns, None if it failed. The process ends then."""
        with contextlib.suppress(EOFError, pickle.UnpicklingError):
            result: PartResult = pickle.load(self._result_file)  # from our own forked process
            return result
        return None

    def note_column(self, column: Array, then: ArrayFinisher | None) -> None:
        """Note the next column that `read_columns` is to fill, and what to do with it then: an `ArrayFiller`."""
        self._columns.append((column, then))

    def read_columns(self) -> None:
        """Read the columns, on any thread. Raises SplitNotVerifiedError if the process wrote less, OSError."""
        offset = sum(column.nbytes for column, _ in self._columns)
        for column, then in reversed(self._columns):
            offset -= column.nbytes
            if not read_array(self._columns_file, column, offset):
                raise SplitNotVerifiedError
            os.ftruncate(self._columns_file.fileno(), offset)  # frees the memory
            if then is not None:
                then(column)
        self._columns.clear()

    def reap(self) -> None:
        """Wait for the process to end; everything it sends has been read."""
        self._appended = True
        if self._pid:
            os.waitpid(self._pid, 0)
            self._pid = 0

    def close(self) -> None:
        """Kill the process if it still runs, and remove its file."""
        if self._pid:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._pid, signal.SIGKILL)
        self.close_outputs()
        with contextlib.suppress(OSError):
            while self._result_file.read(_READ_BYTES):  # until a process that is not our child has ended
                pass
        self.reap()
        os.close(self._progress_pipe)
        self._result_file.close()
        self._columns_file.close()
        if self.blocks_path is not None:
            self.blocks_path.unlink(missing_ok=True)


def exit_with_parent(parent_alive: int) -> None:
    """End this process when the other end of a pipe is closed; called in a thread."""
    os.read(parent_alive, 1)
    os._exit(1)


def _set_up_process() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    lower_priority()
