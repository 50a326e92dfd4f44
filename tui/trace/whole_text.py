"""The text of a gzip file that nobody has taken apart into blocks yet: what is asked of it is read from its beginning.

That is for the first second of a trace on screen. To take the text apart costs a sixth of the time until then, so it
is done behind the lanes (`TextIndex.take_apart`, in a process of its own).
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tui.trace.arrays import I64


@dataclass(frozen=True, slots=True)
class WholeText:
    """A local gzip file as it was when it was read: `size` in bytes, `changed` in ns since 1970."""

    path: Path
    size: int
    changed: int

    @classmethod
    def of(cls, path: Path, file: int) -> WholeText:
        """That file, which is open."""
        found = os.fstat(file)
        return cls(path.absolute(), found.st_size, found.st_mtime_ns)

    def check(self) -> None:
        """Raises LookupError where it is another one by now, OSError where it is gone."""
        found = self.path.stat()
        if (found.st_size, found.st_mtime_ns) != (self.size, self.changed):
            raise LookupError("the trace file has changed since it was opened")

    def pieces(self, offset: I64, length: I64, numbers: Iterable[int]) -> Iterator[tuple[int, bytes]]:
        """(number, text) of these pieces, ascending: those at `offset[number]`, of `length[number]` bytes.

        Raises LookupError where the file has changed, OSError where it is gone.
        """
        from tui.trace.source import open_source  # which knows traces, and they know us

        self.check()
        source = open_source(str(self.path))
        blocks = source.blocks()
        try:
            held, at = b"", 0  # text, and where it begins
            for number in numbers:
                begin, end = int(offset[number]), int(offset[number] + length[number])
                while at + len(held) < end:
                    block = next(blocks, None)
                    if block is None:
                        raise LookupError("the trace file has changed since it was opened")
                    drop = min(max(begin - at, 0), len(held))
                    held, at = held[drop:] + block, at + drop
                yield number, held[begin - at : end - at]
        finally:
            close = getattr(blocks, "close", None)
            if close is not None:
                close()
            source.close()
