"""Top-level keys too large to be held: where their text lies. Stack tables and samples of other profilers are such.

The text of a plain file is found again in place; what was compressed or came through a pipe is kept in a file of our
own beside the columns, one run of gzip members a value.
"""

from __future__ import annotations

import gzip
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

MAX_VALUE_BYTES = 64 << 20
"""Bytes of text of a value beyond which only its size is known: it can be proven to be JSON only as a whole, in memory,
and no profiler writes as much beside its events."""

VALUES_FILE = "keys.gz"

_LEVEL = 1


@dataclass(frozen=True, slots=True)
class LargeValues:
    """`spans`: key → where its text lies in `path` and how many bytes it takes there, gzip members where `compressed`.

    `left_out`: bytes of text of values beyond LARGEST_KEY.
    """

    path: Path = field(repr=False, compare=False)
    compressed: bool
    spans: dict[str, tuple[int, int]] = field(default_factory=dict)
    oversized: dict[str, int] = field(default_factory=dict)

    def read_text(self, key: str) -> bytes:
        """The value as it stands in the file; of a plain file that has changed, whatever stands there now.

        Raises OSError.
        """
        offset, length = self.spans[key]
        with self.path.open("rb") as file:
            file.seek(offset)
            stored = file.read(length)
        return gzip.decompress(stored) if self.compressed else stored


class LargeValueWriter:
    """Notes where large values lie; of a text that cannot be read again (`plain` None) it keeps a copy in `folder`."""

    def __init__(self, plain_path: Path | None, folder: Path) -> None:
        self.values = LargeValues(plain_path or folder / VALUES_FILE, compressed=plain_path is None)
        self._file: IO[bytes] | None = None
        self._begin_offset = 0
        self._size = 0

    def begin_value(self) -> None:
        """A large value begins: all of its text is `put`, then it is either kept or was none."""
        self._size = 0
        if self.values.compressed and self._file is None:
            self._file = self.values.path.open("wb")
        self._begin_offset = self._file.tell() if self._file is not None else 0

    def write(self, text: bytes) -> None:
        """Raises OSError where it cannot be written."""
        self._size += len(text)
        if self._file is not None and self._size <= MAX_VALUE_BYTES:
            self._file.write(gzip.compress(text, _LEVEL, mtime=0))

    def commit_value(self, key: str, offset: int) -> None:
        """It was whole; its text began there in the whole text. Of keys of one name the last counts."""
        self.remove_key(key)
        if self._size > MAX_VALUE_BYTES:
            self.values.oversized[key] = self._size
            self.discard_value()
        elif self._file is not None:
            self.values.spans[key] = self._begin_offset, self._file.tell() - self._begin_offset
        else:
            self.values.spans[key] = offset, self._size

    def discard_value(self) -> None:
        """It was no value after all, or is not kept."""
        if self._file is not None:
            self._file.seek(self._begin_offset)
            self._file.truncate()

    def remove_key(self, key: str) -> None:
        """Another value of that key came, which is the one that counts."""
        self.values.spans.pop(key, None)
        self.values.oversized.pop(key, None)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
