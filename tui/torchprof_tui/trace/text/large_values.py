"""Index the text of top-level values too large for memory, such as stack tables and samples of other profilers.

Values of a plain file are read again in place. Values of compressed files, pipes and remote files are stored in a file
beside the columns, each as a run of gzip members.
"""

from __future__ import annotations

import gzip
from dataclasses import field
from pathlib import Path
from typing import IO

from torchprof_tui.trace.core.column_file import ChecksumReader, crc32, open_unbuffered
from torchprof_tui.trace.core.errors import TraceChangedError
from torchprof_tui.trace.core.records import record

MAX_VALUE_BYTES = 64 << 20
"""Bytes of text beyond which only the size of a value is recorded: it can be validated as JSON only as a whole, in
memory, and no profiler writes so much beside its events."""

VALUES_FILE = "keys.gz"

_LEVEL = 1


@record
class LargeValues:
    """Positions of the large values of a trace.

    `spans`: key → (offset, size, CRC-32) of its bytes in `path`; gzip members if `compressed`. `oversized`: key → bytes
    of text, for values beyond MAX_VALUE_BYTES.
    """

    path: Path = field(repr=False, compare=False)
    compressed: bool
    spans: dict[str, tuple[int, int, int]] = field(default_factory=dict)
    oversized: dict[str, int] = field(default_factory=dict)

    def read_text(self, key: str) -> bytes:
        """Read the text of a value. Raises OSError if the file is gone, TraceChangedError if it has changed."""
        offset, length, checksum = self.spans[key]
        with self.path.open("rb") as file:
            file.seek(offset)
            stored = file.read(length)
        if len(stored) != length or crc32(stored) != checksum:
            raise TraceChangedError("the trace file has changed since it was opened")
        return gzip.decompress(stored) if self.compressed else stored

    def is_intact(self) -> bool:
        """Return whether copied values are those that were written: reads all of them."""
        if not self.compressed:
            return True  # in the trace file itself, which is checked when it is read
        try:
            with open_unbuffered(self.path) as file:
                for offset, length, checksum in self.spans.values():
                    file.seek(offset)
                    if ChecksumReader(file).read_checksum(length) != checksum:
                        return False
                return True
        except OSError:
            return not self.spans


class LargeValueWriter:
    """Records the positions of large values; copies their text to `folder` if the source is no plain file.

    `plain_path`: the plain file, None for any other source.
    """

    def __init__(self, plain_path: Path | None, folder: Path) -> None:
        self.values = LargeValues(plain_path or folder / VALUES_FILE, compressed=plain_path is None)
        self._file: IO[bytes] | None = None
        self._begin_offset = 0
        self._size = self._checksum = 0

    def begin_value(self) -> None:
        """Begin a value: call `write` with all of its text, then `commit_value` or `discard_value`."""
        self._size = self._checksum = 0
        if self.values.compressed and self._file is None:
            self._file = self.values.path.open("wb")
        self._begin_offset = self._file.tell() if self._file is not None else 0

    def write(self, text: bytes) -> None:
        """Add text of the value. Raises OSError if it cannot be written."""
        self._size += len(text)
        if self._size > MAX_VALUE_BYTES:
            return
        stored = text if self._file is None else gzip.compress(text, _LEVEL, mtime=0)
        self._checksum = crc32(stored, self._checksum)
        if self._file is not None:
            self._file.write(stored)

    def commit_value(self, key: str, offset: int) -> None:
        """Record the value under `key`, replacing an earlier one. `offset`: of its text in the whole text."""
        self.remove_key(key)
        if self._size > MAX_VALUE_BYTES:
            self.values.oversized[key] = self._size
            self.discard_value()
        elif self._file is not None:
            self.values.spans[key] = self._begin_offset, self._file.tell() - self._begin_offset, self._checksum
        else:
            self.values.spans[key] = offset, self._size, self._checksum

    def discard_value(self) -> None:
        """Drop the text written since `begin_value`."""
        if self._file is not None:
            self._file.seek(self._begin_offset)
            self._file.truncate()

    def remove_key(self, key: str) -> None:
        """Forget the value of a key, because a later value of that key replaces it."""
        self.values.spans.pop(key, None)
        self.values.oversized.pop(key, None)

    def close(self) -> None:
        """Close the file of values. May be called again."""
        if self._file is not None:
            self._file.close()
