"""The general reader: the text of any trace-event file, in any layout, decoded into columns.

Text comes in blocks (`source.py`), is cut into chunks of whole entries (`chunks.py`), decoded by orjson, and each
chunk's dicts become columns (`columns.py`) before the next are made: no object an event outlives its chunk. In large
files, chunks of plain entries in Kineto's own layout become columns without dicts (`byte_scan.py`).
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from tui.trace.byte_scan import ByteScan
from tui.trace.chunks import CHUNK, Chunk, Entries, Taken, Window
from tui.trace.columns import Columns
from tui.trace.document import Document
from tui.trace.problems import CUT_SHORT, REPAIRED_COMMA, UNREADABLE_ENTRY, Tally, excerpt
from tui.trace.raw import Decoded, RawEvents
from tui.trace.repair import readable
from tui.trace.salvage import salvage
from tui.trace.source import Source
from tui.trace.text import BlockWriter, TextIndex

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
) -> Decoded:
    """Decode all of a source. The text of what is no plain file is kept in `text_dir`.

    Raises TraceError where this is no trace, OSError where the text cannot be kept. Damage is never an error: it is
    mended, or counted, and told in `problems`. `scan`: whether plain chunks in Kineto's own layout
    go to the byte scan, which gives the same columns, faster; None: where the file is large enough for it to pay.
    """
    with _decoding(threads=source.plain_path is None):
        reader = _Reader(source, text_dir, progress, chunk_size, scan)
        try:
            return reader.run()
        finally:
            reader.close()


def parse_chunk(text: bytes) -> list[dict[str, Any]]:
    """The entries of a stored chunk, in the order of their ordinals: what `read` made columns of."""
    values = readable(text)
    if values is None:
        values = salvage(text).values
    return [value for value in values if type(value) is dict]


class _Reader:
    """One reading of one source."""

    def __init__(
        self, source: Source, text_dir: Path, progress: Progress | None, chunk_size: int, scan: bool | None
    ) -> None:
        self._source = source
        self._progress = progress
        self._chunk_size = chunk_size
        self._tally = Tally()
        self._blocks = source.blocks()
        self._window = Window(self._blocks)
        self._columns = Columns(self._tally)
        self._scan = ByteScan(self._columns) if (_pays(source) if scan is None else scan) else None
        self._entries = 0
        self._unreadable = 0
        self._first: list[int] = []
        self._offset: list[int] = []
        self._length: list[int] = []
        self._path = source.plain_path or text_dir / TEXT_FILE
        self._writer = None if source.plain_path else BlockWriter(self._path)

    def close(self) -> None:
        """Let go of threads and files, however it went."""
        close = getattr(self._blocks, "close", None)
        if close is not None:
            close()
        self._source.close()
        if self._writer is not None:
            self._writer.close()

    def run(self) -> Decoded:
        document = Document(self._window, self._source.name, self._tally)
        for _ in document.lists():
            self._read_list(document)
        events = self._columns.finish()
        if document.bare and not events.phase.any() and (len(events) or self._columns.not_objects):
            raise document.refused("a JSON list of something else than events")
        problems = Tally()
        for problem in [*self._source.problems, *self._tally.problems()]:
            problems.add(problem.kind, problem.example, problem.count)
        return Decoded(
            events=events,
            header=document.header,
            text=self._text_index(),
            format=_format(document.header, events),
            size=self._window.offset,
            unreadable=self._unreadable,
            not_objects=self._columns.not_objects,
            problems=problems.problems(),
            left_out=document.left_out,
        )

    def _read_list(self, document: Document) -> None:
        entries = Entries(self._window, self._chunk_size, self._scan)
        for chunk in entries:
            self._add(chunk)
        if entries.comma:
            self._tally.add(REPAIRED_COMMA, "before the bracket that closes traceEvents")
        if not (entries.closed or len(self._columns) or self._unreadable):
            raise document.refused("the beginning of a list, cut off before its first event")
        if entries.partial >= 0:
            self._tally.add(CUT_SHORT, f"the file ends inside the entry that begins at byte {entries.partial}")
        elif not entries.closed and not document.bare:
            self._tally.add(CUT_SHORT, f"the file ends at byte {self._window.offset}, before traceEvents does")

    def _add(self, chunk: Chunk | Taken) -> None:
        if isinstance(chunk, Chunk) and chunk.salvage is not None:
            self._tell(chunk)
        self._first.append(self._entries)
        self._offset.append(chunk.offset)
        self._length.append(len(chunk.text))
        if self._writer is not None:
            self._writer.put(bytes(chunk.text))
        if isinstance(chunk, Taken):
            self._entries += chunk.entries
        else:
            self._columns.add(chunk.entries, chunk.text)
            self._entries = len(self._columns)
        if self._progress is not None:
            self._progress(self._source.consumed, self._source.total, self._entries)

    def _tell(self, chunk: Chunk) -> None:
        assert chunk.salvage is not None
        for kind, start in chunk.salvage.repairs:
            self._tally.add(kind, _place(chunk, start))
        for start, _ in chunk.salvage.unreadable:
            self._tally.add(UNREADABLE_ENTRY, _place(chunk, start))
        self._unreadable += len(chunk.salvage.unreadable)

    def _text_index(self) -> TextIndex:
        length = self._length
        offset = self._offset
        if self._writer is not None:
            self._writer.close()
            length = self._writer.lengths
            offset = [0, *np.cumsum(length, dtype=np.int64).tolist()][:-1]
        return TextIndex(
            path=self._path,
            compressed=self._writer is not None,
            first=np.array(self._first, np.int64),
            offset=np.array(offset, np.int64),
            length=np.array(length, np.int64),
        )


def _pays(source: Source) -> bool:
    """Whether the byte scan is worth its beginning; of a pipe nobody knows, and the large ones matter."""
    return source.total is None or source.total * (_USUAL_RATIO if source.compression else 1) >= _SCAN_BYTES


def _place(chunk: Chunk, start: int) -> str:
    return f"at byte {chunk.offset + start}: {excerpt(chunk.text[start : start + 1000])}"


def _format(header: dict[str, Any], events: RawEvents) -> str:
    seen = set(events.categories)
    kineto = _KINETO_KEYS & header.keys() or _KINETO_CATEGORIES & seen or seen >= _KINETO_TOGETHER
    return "kineto" if kineto else "chrome"


@contextmanager
def _decoding(threads: bool) -> Iterator[None]:
    """The collector off: decoding makes millions of short-lived dicts and no cycles."""
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
