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
from torchprof_tui.trace.core.problems import CUT_SHORT, REPAIRED_COMMA, STREAM_ENDS, Tally
from torchprof_tui.trace.decode.chunker import CHUNK, Window
from torchprof_tui.trace.decode.entry_decoder import EntryReader
from torchprof_tui.trace.decode.json_document import Document
from torchprof_tui.trace.decode.parallel import Readers, UnprovenError, parts_for
from torchprof_tui.trace.model.raw_events import Decoded, RawEvents
from torchprof_tui.trace.sources.source import Source
from torchprof_tui.trace.text.block_writer import BlockWriter
from torchprof_tui.trace.text.gzip_text import WholeText
from torchprof_tui.trace.text.large_values import LargeKeyWriter

Progress = Callable[[int, int | None, int], None]
"""Told after every chunk: bytes of the file read so far as it is stored, of how many (None: unknown), entries."""

TEXT_FILE = "text.blocks"

_SCAN_BYTES = 16 << 20
"""Text from which on the byte scan pays: it has some hundred skeletons to learn first, which takes about 50 ms."""

_USUAL_RATIO = 12
"""How much shorter compressed traces are, about."""

_SWITCH_SECONDS = 0.0005
"""While others inflate and compress beside the decoder: how long they may wait for the interpreter."""

_KINETO_KEYS = frozenset(("schemaVersion", "deviceProperties", "baseTimeNanoseconds"))
_KINETO_CATEGORIES = frozenset(("cpu_op", "Operator"))
_KINETO_TOGETHER = frozenset(("kernel", "cuda_runtime"))


def read(
    source: Source,
    text_dir: Path,
    progress: Progress | None = None,
    *,
    chunk_size: int = CHUNK,
    scan: bool | None = None,
    parts: int | None = None,
    late: bool = False,
) -> Decoded:
    """Decode all of a source. The text of what is no plain file is kept in `text_dir`.

    Raises TraceError where this is no trace, OSError where the text cannot be kept. Damage is never an error: it is
    mended, or counted, and told in `problems`. `scan`: whether plain chunks in Kineto's own layout
    go to the byte scan, which gives the same columns, faster; None: where the file is large enough for it to pay.
    `parts`: how many processes read it, of which one is this; None: as many as pay. `late`: the text of a local gzip
    file is not taken apart yet (`TextIndex.take_apart`).
    """
    scan = _pays(source) if scan is None else scan
    parts = (parts_for(source) if scan else 1) if parts is None else parts
    whole = WholeText.of(*source.local_gzip) if late and source.local_gzip is not None else None
    with _decoding(threads=source.plain_path is None):
        readers = None
        with contextlib.suppress(OSError):  # no further process: then this one alone
            readers = Readers(source, text_dir, parts, chunk_size, whole is None) if parts > 1 else None
        reader = _Reader(source, text_dir, progress, chunk_size, scan, whole, readers)
        try:
            return reader.run()
        except UnprovenError:
            source = source.again()
        finally:
            reader.close()
        reader = _Reader(source, text_dir, progress, chunk_size, scan, whole)
        try:
            return reader.run()
        finally:
            reader.close()


class _Reader:
    """One reading of one source, of which others read all parts but the first, where `readers` are given."""

    def __init__(
        self,
        source: Source,
        text_dir: Path,
        progress: Progress | None,
        chunk_size: int,
        scan: bool,
        whole: WholeText | None,
        readers: Readers | None = None,
    ) -> None:
        self._source = source
        self._progress = progress
        self._readers = readers
        self._joined = False
        self._tally = Tally()
        self._blocks = source.blocks()
        self._window = Window(self._blocks if readers is None else readers.cut.before(self._blocks))
        self._path = source.plain_path or text_dir / TEXT_FILE
        self._large = LargeKeyWriter(source.plain_path, text_dir)
        self._whole = whole
        self._writer = None if source.plain_path or whole else BlockWriter(self._path)
        self._document = Document(self._window, source.name, self._tally, self._large)
        self._entries = EntryReader(self._window, self._tally, chunk_size, scan, self._writer, self._told)

    def close(self) -> None:
        """Let go of processes, threads and files, however it went."""
        with contextlib.ExitStack() as last_first:
            if self._readers is not None:
                last_first.callback(self._readers.close)
            last_first.callback(self._source.close)
            close = getattr(self._blocks, "close", None)
            if close is not None:
                last_first.callback(close)
            last_first.callback(self._large.close)
            if self._writer is not None:
                last_first.callback(self._writer.close)  # it may still take over a file of theirs

    def run(self) -> Decoded:
        """Raises TraceError, and UnprovenError where the other readers were of no use."""
        try:
            return self._run()
        except TraceError:
            if self._cut_off:
                raise UnprovenError from None
            cut = self._cut_before_events()
            if cut is not None:
                raise cut from None
            raise

    def _cut_before_events(self) -> TraceError | None:
        """What to say of a stream that ended before it could be told what it is."""
        ended = next((problem for problem in self._source.problems if problem.kind in STREAM_ENDS), None)
        if ended is None or not self._document.json_like:
            return None
        return TraceError(f"{self._source.name}: cut short before its first event: {ended.example}")

    @property
    def _cut_off(self) -> bool:
        """Whether the text ends for us where the next part begins."""
        return self._readers is not None and self._readers.cut.at >= 0 and not self._joined

    def _run(self) -> Decoded:
        document = self._document
        for _ in document.lists():
            self._read_list(document)
        if self._cut_off:
            raise UnprovenError
        columns = self._entries.columns
        events = columns.finish()
        if document.bare and not events.phase.any() and (len(events) or columns.not_objects):
            raise document.refused("a JSON list of something else than events")
        problems = Tally()
        others = self._readers.problems if self._readers is not None else []
        for problem in [*self._source.problems, *others, *self._tally.problems()]:
            if problem.kind == CUT_SHORT and any(problems.count(kind) for kind in STREAM_ENDS):
                continue  # a file ends once: this is the same end, seen from within its text
            problems.add(problem.kind, problem.example, problem.count)
        return Decoded(
            events=events,
            header=document.header,
            text=self._entries.text_index(self._path, self._whole),
            format=_format(document.header, events),
            size=self._window.offset,
            unreadable=self._entries.unreadable,
            not_objects=columns.not_objects,
            problems=problems.problems(),
            large=self._large.found,
        )

    def _read_list(self, document: Document) -> None:
        end = self._entries.read()
        if self._cut_off and self._readers is not None:
            end = self._readers.join(self._entries, self._window, end, self._tally, self._told)
            self._joined = True
        if end.comma:
            self._tally.add(REPAIRED_COMMA, "before the bracket that closes traceEvents")
        if not end.closed and self._entries.nothing:
            raise document.refused("the beginning of a list, cut off before its first event")
        if end.partial >= 0:
            self._tally.add(CUT_SHORT, f"the file ends inside the entry that begins at byte {end.partial}")
        elif not end.closed and not document.bare:
            self._tally.add(CUT_SHORT, f"the file ends at byte {self._window.offset}, before traceEvents does")

    def _told(self, entries: int) -> None:
        if self._progress is not None:
            consumed, others = (0, 0) if self._readers is None else self._readers.told()
            self._progress(self._source.consumed + consumed, self._source.total, entries + others)


def _pays(source: Source) -> bool:
    """Whether the byte scan is worth its beginning; of a pipe nobody knows, and the large ones matter."""
    return source.total is None or source.total * (_USUAL_RATIO if source.compression else 1) >= _SCAN_BYTES


def _format(header: dict[str, Any], events: RawEvents) -> str:
    seen = set(events.categories)
    kineto = _KINETO_KEYS & header.keys() or _KINETO_CATEGORIES & seen or seen >= _KINETO_TOGETHER
    return "kineto" if kineto else "chrome"


@contextmanager
def _decoding(threads: bool) -> Iterator[None]:
    """The collector off: decoding makes millions of short-lived dicts and no cycles. With `threads` beside it, the
    interpreter changes hands sooner."""
    collects, interval = gc.isenabled(), sys.getswitchinterval()
    gc.disable()
    if threads:
        sys.setswitchinterval(_SWITCH_SECONDS)
    try:
        yield
    finally:
        sys.setswitchinterval(interval)
        if collects:
            gc.enable()
