"""The general reader: the text of any trace-event file, in any layout, decoded into columns.

Text comes in blocks (`source.py`), is cut into chunks of whole entries (`chunks.py`), decoded by orjson, and each
chunk's dicts become columns (`columns.py`) before the next are made: no object an event outlives its chunk. In large
files, chunks of plain entries in Kineto's own layout become columns without dicts (`byte_scan.py`).
"""

from __future__ import annotations

import contextlib
import gc
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from torchprof_tui.trace.core.errors import TraceError
from torchprof_tui.trace.core.problems import CUT_SHORT, INCOMPLETE_STREAM_KINDS, REPAIRED_COMMA, ProblemTally
from torchprof_tui.trace.decode.chunker import CHUNK_BYTES, TextWindow
from torchprof_tui.trace.decode.entry_decoder import EntryDecoder
from torchprof_tui.trace.decode.json_document import JsonDocument
from torchprof_tui.trace.decode.parallel import ParallelDecoder, SplitNotVerifiedError, choose_process_count
from torchprof_tui.trace.model.raw_events import DecodedTrace, RawEvents
from torchprof_tui.trace.sources.source import Source
from torchprof_tui.trace.text.block_writer import BlockWriter
from torchprof_tui.trace.text.gzip_text import GzipFileVersion
from torchprof_tui.trace.text.large_values import LargeValueWriter

ProgressCallback = Callable[[int, int | None, int], None]
"""Told after every chunk: bytes of the file read so far as it is stored, of how many (None: unknown), entries."""

TEXT_FILE = "text.blocks"

_MIN_TEMPLATE_BYTES = 16 << 20
"""Text from which on the byte scan pays: it has some hundred skeletons to learn first, which takes about 50 ms."""

_TYPICAL_COMPRESSION_RATIO = 12
"""How much shorter compressed traces are, about."""

_SWITCH_INTERVAL_SECONDS = 0.0005
"""While others inflate and compress beside the decoder: how long they may wait for the interpreter."""

_KINETO_KEYS = frozenset(("schemaVersion", "deviceProperties", "baseTimeNanoseconds"))
_KINETO_CATEGORIES = frozenset(("cpu_op", "Operator"))
_KINETO_CATEGORY_PAIR = frozenset(("kernel", "cuda_runtime"))


def decode_trace(
    source: Source,
    text_dir: Path,
    progress: ProgressCallback | None = None,
    *,
    chunk_size: int = CHUNK_BYTES,
    use_templates: bool | None = None,
    process_count: int | None = None,
    defer_blocks: bool = False,
) -> DecodedTrace:
    """Decode all of a source. The text of what is no plain file is kept in `text_dir`.

    Raises TraceError where this is no trace, OSError where the text cannot be kept. Damage is never an error: it is
    mended, or counted, and told in `problems`. `scan`: whether plain chunks in Kineto's own layout
    go to the byte scan, which gives the same columns, faster; None: where the file is large enough for it to pay.
    `parts`: how many processes read it, of which one is this; None: as many as pay. `late`: the text of a local gzip
    file is not taken apart yet (`TextIndex.take_apart`).
    """
    use_templates = _should_use_templates(source) if use_templates is None else use_templates
    process_count = (choose_process_count(source) if use_templates else 1) if process_count is None else process_count
    whole = GzipFileVersion.from_open_file(*source.local_gzip) if defer_blocks and source.local_gzip else None
    with _tune_interpreter(threads=source.plain_path is None):
        readers = None
        with contextlib.suppress(OSError):  # no further process: then this one alone
            readers = (
                ParallelDecoder(source, text_dir, process_count, chunk_size, whole is None)
                if process_count > 1
                else None
            )
        reader = _TraceDecoder(source, text_dir, progress, chunk_size, use_templates, whole, readers)
        try:
            return reader.run()
        except SplitNotVerifiedError:
            source = source.reopen()
        finally:
            reader.close()
        reader = _TraceDecoder(source, text_dir, progress, chunk_size, use_templates, whole)
        try:
            return reader.run()
        finally:
            reader.close()


class _TraceDecoder:
    """One reading of one source, of which others read all parts but the first, where `readers` are given."""

    def __init__(
        self,
        source: Source,
        text_dir: Path,
        progress: ProgressCallback | None,
        chunk_size: int,
        scan: bool,
        whole: GzipFileVersion | None,
        readers: ParallelDecoder | None = None,
    ) -> None:
        self._source = source
        self._progress = progress
        self._parallel = readers
        self._parts_appended = False
        self._tally = ProblemTally()
        self._blocks = source.blocks()
        self._window = TextWindow(self._blocks if readers is None else readers.split_point.blocks_before(self._blocks))
        self._path = source.plain_path or text_dir / TEXT_FILE
        self._large_keys = LargeValueWriter(source.plain_path, text_dir)
        self._gzip_text = whole
        self._block_writer = None if source.plain_path or whole else BlockWriter(self._path)
        self._document = JsonDocument(self._window, source.name, self._tally, self._large_keys)
        self._entry_decoder = EntryDecoder(
            self._window, self._tally, chunk_size, scan, self._block_writer, self._report_progress
        )

    def close(self) -> None:
        """Let go of processes, threads and files, however it went."""
        with contextlib.ExitStack() as last_first:
            if self._parallel is not None:
                last_first.callback(self._parallel.close)
            last_first.callback(self._source.close)
            close = getattr(self._blocks, "close", None)
            if close is not None:
                last_first.callback(close)
            last_first.callback(self._large_keys.close)
            if self._block_writer is not None:
                last_first.callback(self._block_writer.close)  # it may still take over a file of theirs

    def run(self) -> DecodedTrace:
        """Raises TraceError, and UnprovenError where the other readers were of no use."""
        try:
            return self._run()
        except TraceError:
            if self._ends_at_split:
                raise SplitNotVerifiedError from None
            cut = self._truncation_error()
            if cut is not None:
                raise cut from None
            raise

    def _truncation_error(self) -> TraceError | None:
        """What to say of a stream that ended before it could be told what it is."""
        ended = next((problem for problem in self._source.problems if problem.kind in INCOMPLETE_STREAM_KINDS), None)
        if ended is None or not self._document.json_like:
            return None
        return TraceError(f"{self._source.name}: cut short before its first event: {ended.example}")

    @property
    def _ends_at_split(self) -> bool:
        """Whether the text ends for us where the next part begins."""
        return self._parallel is not None and self._parallel.split_point.offset >= 0 and not self._parts_appended

    def _run(self) -> DecodedTrace:
        document = self._document
        for _ in document.seek_lists():
            self._decode_list(document)
        if self._ends_at_split:
            raise SplitNotVerifiedError
        columns = self._entry_decoder.columns
        events = columns.finish()
        if document.is_bare_list and not events.phase.any() and (len(events) or columns.not_objects):
            raise document.not_a_trace_error("a JSON list of something else than events")
        problems = ProblemTally()
        others = self._parallel.problems if self._parallel is not None else []
        for problem in [*self._source.problems, *others, *self._tally.problems()]:
            if problem.kind == CUT_SHORT and any(problems.count(kind) for kind in INCOMPLETE_STREAM_KINDS):
                continue  # a file ends once: this is the same end, seen from within its text
            problems.add(problem.kind, problem.example, problem.count)
        return DecodedTrace(
            events=events,
            header=document.header,
            text=self._entry_decoder.text_index(self._path, self._gzip_text),
            format=_detect_format(document.header, events),
            size=self._window.offset,
            unreadable=self._entry_decoder.unreadable,
            not_objects=columns.not_objects,
            problems=problems.problems(),
            large_keys=self._large_keys.values,
        )

    def _decode_list(self, document: JsonDocument) -> None:
        end = self._entry_decoder.decode_list()
        if self._ends_at_split and self._parallel is not None:
            end = self._parallel.append_parts(
                self._entry_decoder, self._window, end, self._tally, self._report_progress
            )
            self._parts_appended = True
        if end.trailing_comma:
            self._tally.add(REPAIRED_COMMA, "before the bracket that closes traceEvents")
        if not end.closed and self._entry_decoder.is_empty:
            raise document.not_a_trace_error("the beginning of a list, cut off before its first event")
        if end.partial_offset >= 0:
            self._tally.add(CUT_SHORT, f"the file ends inside the entry that begins at byte {end.partial_offset}")
        elif not end.closed and not document.is_bare_list:
            self._tally.add(CUT_SHORT, f"the file ends at byte {self._window.offset}, before traceEvents does")

    def _report_progress(self, entries: int) -> None:
        if self._progress is not None:
            consumed, others = (0, 0) if self._parallel is None else self._parallel.progress()
            self._progress(self._source.consumed + consumed, self._source.total, entries + others)


def _should_use_templates(source: Source) -> bool:
    """Whether the byte scan is worth its beginning; of a pipe nobody knows, and the large ones matter."""
    return (
        source.total is None
        or source.total * (_TYPICAL_COMPRESSION_RATIO if source.compression else 1) >= _MIN_TEMPLATE_BYTES
    )


def _detect_format(header: dict[str, Any], events: RawEvents) -> str:
    seen = set(events.categories)
    kineto = _KINETO_KEYS & header.keys() or _KINETO_CATEGORIES & seen or seen >= _KINETO_CATEGORY_PAIR
    return "kineto" if kineto else "chrome"


@contextmanager
def _tune_interpreter(threads: bool) -> Iterator[None]:
    """The collector off: decoding makes millions of short-lived dicts and no cycles. With `threads` beside it, the
    interpreter changes hands sooner."""
    collects, interval = gc.isenabled(), sys.getswitchinterval()
    gc.disable()
    if threads:
        sys.setswitchinterval(_SWITCH_INTERVAL_SECONDS)
    try:
        yield
    finally:
        sys.setswitchinterval(interval)
        if collects:
            gc.enable()
