"""General decoder: parse the text of any trace-event file, in any layout, into columns.

Text arrives in blocks (`sources/source.py`), is cut into chunks of whole entries (`entry_decoder.py`) and parsed by
orjson. The dicts of a chunk become columns (`column_builder.py`) before the next chunk is parsed, so no per-event
object outlives its chunk. In large files, chunks of plain entries in Kineto's own layout become columns without dicts
(`template/template_decoder.py`).
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

from torchprof_tui.trace.core.array_files import keep_arrays_in_files, read_available_memory
from torchprof_tui.trace.core.errors import TraceError
from torchprof_tui.trace.core.problems import (
    CUT_SHORT,
    ENDLESS_TEXT,
    INCOMPLETE_STREAM_KINDS,
    REPAIRED_COMMA,
    Problem,
    ProblemTally,
)
from torchprof_tui.trace.core.process_state import pause_garbage_collection, use_switch_interval
from torchprof_tui.trace.decode.entry_decoder import CHUNK_BYTES, EntryDecoder, TextWindow, choose_text_limits
from torchprof_tui.trace.decode.json_document import JsonDocument
from torchprof_tui.trace.decode.parallel import ParallelDecoder, SplitNotVerifiedError, choose_process_count
from torchprof_tui.trace.model.raw_events import DecodedTrace
from torchprof_tui.trace.sources.source import Source
from torchprof_tui.trace.text.block_text import BlockWriter
from torchprof_tui.trace.text.gzip_text import GzipFileVersion
from torchprof_tui.trace.text.large_values import LargeValueWriter

ProgressCallback = Callable[[int, int | None, int], None]
"""Called after every chunk with the bytes read so far (as stored), the size of the file (None: unknown), entries."""

TEXT_FILE = "text.blocks"

_PACKET_DECODER = "torchprof_tui.trace.decode.packet_decoder"

_PACKET_TAG = b"\n"  # the first byte of a Perfetto trace, as a number 10; JSON may begin with it, too

_MIN_TEMPLATE_BYTES = 16 << 20
"""Text size from which the template decoder pays: parsing some hundred templates first takes about 50 ms."""

_TYPICAL_COMPRESSION_RATIO = 12  # approximate ratio of the size of a trace's text to its compressed size
_COLUMNS_SHARE = 0.45  # memory for the columns of a trace while it is built, by the size of its text

_MAX_MEMORY_SHARE = 0.125
"""Share of the available memory beyond which the columns are kept in files, which takes longer."""

_SWITCH_INTERVAL_SECONDS = 0.0005
"""Longest wait for the GIL of the threads that decompress and compress while this one decodes."""

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
    """Decode all of a source. The text of anything but a plain file is stored in `text_dir`.

    Raises TraceError where the source is not a trace, OSError where the text cannot be stored. Damage is never an
    error: it is repaired or counted, and reported in `problems`.

    `use_templates`: decode plain chunks in Kineto's own layout with the template decoder, which yields the same columns
    faster; None: if the file is large enough for it to pay. `process_count`: how many processes decode the file,
    including this one; None: as many as pay. `defer_blocks`: leave the text of a local gzip file compressed as it is,
    for `TextIndex.split_into_blocks` to split later.
    """
    head = source.peek()
    # Imported by name, as the decoder below: JSON does not need it.
    if head[:1] == _PACKET_TAG and importlib.import_module(_PACKET_DECODER).looks_like_packets(head):
        return _decode_packets(source, text_dir, progress)
    if use_templates is None:  # a pipe, whose size is unknown, is assumed to be large
        ratio = _TYPICAL_COMPRESSION_RATIO if source.compression else 1
        use_templates = source.total is None or source.total * ratio >= _MIN_TEMPLATE_BYTES
    process_count = (choose_process_count(source) if use_templates else 1) if process_count is None else process_count
    gzip_file = None
    if defer_blocks and source.local_gzip is not None:
        gzip_file = GzipFileVersion.from_open_file(*source.local_gzip)
    available = read_available_memory()
    is_large = available is not None and (source.text_size or 0) * _COLUMNS_SHARE > available * _MAX_MEMORY_SHARE
    files = keep_arrays_in_files(text_dir if is_large else None)
    has_threads = source.plain_path is None  # they decompress and compress beside this one
    interval = use_switch_interval(_SWITCH_INTERVAL_SECONDS) if has_threads else contextlib.nullcontext()
    with pause_garbage_collection(), interval, files:
        parallel = None
        if process_count > 1:
            with contextlib.suppress(OSError):  # no process could be started: decode in this one alone
                parallel = ParallelDecoder(source, text_dir, process_count, chunk_size, gzip_file is None)
        create_decoder = partial(_TraceDecoder, text_dir, progress, chunk_size, use_templates, gzip_file)
        with contextlib.closing(create_decoder(source, parallel)) as decoder:
            try:
                return decoder.run()
            except SplitNotVerifiedError:
                source = source.reopen()
        with contextlib.closing(create_decoder(source)) as decoder:
            return decoder.run()


def _decode_packets(source: Source, text_dir: Path, progress: ProgressCallback | None) -> DecodedTrace:
    def report(_consumed: int, _total: int | None, entries: int) -> None:
        if progress is not None:
            progress(source.consumed, source.total, max(entries, converter.entry_count))

    converter = importlib.import_module(_PACKET_DECODER).PacketConverter(source, text_dir)
    with contextlib.closing(converter), pause_garbage_collection():
        converter.read_packets(progress)
        use_templates = converter.text_size >= _MIN_TEMPLATE_BYTES
        decoded = decode_trace(converter.open_text(), text_dir, report, use_templates=use_templates, process_count=1)
        problems = ProblemTally()
        for problem in [*converter.problems, *decoded.problems]:
            problems.add(problem.kind, problem.example, problem.count)
        return replace(
            decoded,
            size=converter.size,
            unreadable=decoded.unreadable + converter.unreadable,
            problems=problems.problems(),
        )


class _TraceDecoder:
    """Decodes one source once. With `parallel`, only its first part; other processes decode the rest."""

    def __init__(
        self,
        text_dir: Path,
        progress: ProgressCallback | None,
        chunk_size: int,
        use_templates: bool,
        gzip_file: GzipFileVersion | None,
        source: Source,
        parallel: ParallelDecoder | None = None,
    ) -> None:
        self._source = source
        self._progress = progress
        self._parallel = parallel
        self._parts_appended = False
        self._tally = ProblemTally()
        self._blocks = source.blocks()
        self._window = TextWindow(
            self._blocks if parallel is None else parallel.split_point.blocks_before(self._blocks),
            limits=choose_text_limits(source),
        )
        self._path = source.plain_path or text_dir / TEXT_FILE
        self._large_keys = LargeValueWriter(source.plain_path, text_dir)
        self._gzip_file = gzip_file
        self._block_writer = None if source.plain_path or gzip_file else BlockWriter(self._path)
        self._document = JsonDocument(self._window, source.name, self._tally, self._large_keys)
        self._entry_decoder = EntryDecoder(
            self._window, self._tally, chunk_size, use_templates, self._block_writer, self._report_progress
        )

    def close(self) -> None:
        """End the processes and threads and close the files, whether decoding succeeded or not."""
        with contextlib.ExitStack() as closing:  # in reverse order
            if self._parallel is not None:
                closing.callback(self._parallel.close)
            closing.callback(self._source.close)
            closing.callback(getattr(self._blocks, "close", lambda: None))
            closing.callback(self._large_keys.close)
            if self._block_writer is not None:
                closing.callback(self._block_writer.close)  # first: it may still append a file of the other processes

    def run(self) -> DecodedTrace:
        """Decode. Raises TraceError; SplitNotVerifiedError if the parts of other processes cannot be used."""
        try:
            return self._run()
        except TraceError:
            if self._ends_at_split:
                raise SplitNotVerifiedError from None
            name = self._source.name
            if self._window.stop_reason:
                raise TraceError(f"{name}: {self._window.stop_reason}") from None
            ended = [problem for problem in self._source.problems if problem.kind in INCOMPLETE_STREAM_KINDS]
            if ended and self._document.json_like:
                raise TraceError(f"{name}: cut short before its first event: {ended[0].example}") from None
            raise

    @property
    def _ends_at_split(self) -> bool:
        """Whether the text of this process ends where the next part begins."""
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
            raise document.not_a_trace_error(
                "a JSON list whose items are not events, as export_memory_timeline() writes"
            )
        problems = ProblemTally()
        stream_problems = self._source.problems
        if self._parallel is not None:
            stream_problems += self._parallel.problems
        if self._window.stop_reason:
            stream_problems.append(Problem(ENDLESS_TEXT, 1, self._window.stop_reason))
        for problem in [*stream_problems, *self._tally.problems()]:
            if problem.kind == CUT_SHORT and any(problems.count(kind) for kind in INCOMPLETE_STREAM_KINDS):
                continue  # the same end of the file, noticed in its text as well
            problems.add(problem.kind, problem.example, problem.count)
        seen = set(events.categories)
        is_kineto = _KINETO_KEYS & document.header.keys() or _KINETO_CATEGORIES & seen or seen >= _KINETO_CATEGORY_PAIR
        return DecodedTrace(
            events=events,
            header=document.header,
            text=self._entry_decoder.text_index(self._path, self._gzip_file),
            format=self._source.format or ("kineto" if is_kineto else "chrome"),
            size=self._window.offset,
            unreadable=self._entry_decoder.unreadable,
            not_objects=columns.not_objects,
            problems=sorted(problems.problems(), key=lambda problem: problem.kind),  # on any number of processes
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
        if not end.closed and not (len(self._entry_decoder.columns) or self._entry_decoder.unreadable):
            raise document.not_a_trace_error("the beginning of a list, cut off before its first event")
        if end.partial_offset >= 0:
            self._tally.add(CUT_SHORT, f"the file ends inside the entry that begins at byte {end.partial_offset}")
        elif not end.closed and not document.is_bare_list:
            self._tally.add(CUT_SHORT, f"the file ends at byte {self._window.offset}, before traceEvents does")

    def _report_progress(self, entries: int) -> None:
        if self._progress is not None:
            part_bytes, part_entries = (0, 0) if self._parallel is None else self._parallel.progress()
            self._progress(self._source.consumed + part_bytes, self._source.total, entries + part_entries)
