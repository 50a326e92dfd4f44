"""The text of a gzip file that nobody has taken apart into blocks yet: what is asked of it is read from its beginning.

That is for the first second of a trace on screen. To take the text apart costs a sixth of the time until then, so it
is done behind the lanes (`TextIndex.take_apart`, in a process of its own).
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from torchprof_tui.trace.core.arrays import I64
from torchprof_tui.trace.core.errors import TraceError
from torchprof_tui.trace.sources.open import open_source
from torchprof_tui.trace.sources.source import Source

CHANGED_MESSAGE = "the trace file has changed since it was opened"


@dataclass(frozen=True, slots=True)
class GzipText:
    """A local gzip file as it was when it was read; `known` is what tells whether it is still that one."""

    path: Path
    fingerprint: tuple[int, ...]

    @classmethod
    def from_open_file(cls, path: Path, descriptor: int) -> GzipText:
        """That file, which is open. By its own name: where a link leads may change, and its columns are still found."""
        return cls(Path(os.path.realpath(path)), _stat_fingerprint(os.fstat(descriptor)))

    def check_unchanged(self) -> None:
        """Raises LookupError where it is another one by now, OSError where it is gone."""
        if _stat_fingerprint(self.path.stat()) != self.fingerprint:
            raise LookupError(CHANGED_MESSAGE)

    def read_pieces(self, offset: I64, length: I64, indices: Iterable[int]) -> Iterator[tuple[int, bytes]]:
        """(number, text) of these pieces, ascending: those at `offset[number]`, of `length[number]` bytes.

        Raises LookupError where the file has changed, OSError where it is gone.
        """
        self.check_unchanged()
        try:
            source = open_source(str(self.path))
            source.unpack_all = True  # as it was when it was read
            yield from _read_pieces(source, offset, length, indices)
        except TraceError as error:
            raise LookupError(str(error)) from error


def _read_pieces(source: Source, offset: I64, length: I64, numbers: Iterable[int]) -> Iterator[tuple[int, bytes]]:
    blocks = source.blocks()
    held, at = b"", 0  # text, and where it begins
    try:
        for number in numbers:
            begin, end = int(offset[number]), int(offset[number] + length[number])
            while at + len(held) < end:
                block = next(blocks, None)
                if block is None:
                    raise LookupError(CHANGED_MESSAGE)
                drop = min(max(begin - at, 0), len(held))
                held, at = held[drop:] + block, at + drop
            yield number, held[begin - at : end - at]
    finally:
        close = getattr(blocks, "close", None)
        if close is not None:
            close()
        source.close()


def _stat_fingerprint(found: os.stat_result) -> tuple[int, ...]:
    """The time of its change too: a copy may be as long and as old as what it replaces."""
    return found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino
