"""Read the text of entries from a local gzip file whose split into blocks is deferred.

To write the blocks takes a sixth of the time to the first lanes, so a separate process does it once the lanes are on
screen (`GzipText.split_into_blocks`). Until then each read decompresses the file from its beginning.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from torchprof_tui.trace.core.arrays import I64, U32
from torchprof_tui.trace.core.column_file import checksum_array
from torchprof_tui.trace.core.errors import TraceChangedError, TraceError
from torchprof_tui.trace.text.block_text import CHANGED_MESSAGE, BlockText, BlockWriter, FileText, ParseChunk

if TYPE_CHECKING:
    from torchprof_tui.trace.sources.source import Source


@dataclass(frozen=True, slots=True)
class GzipFileVersion:
    """A local gzip file at the time it was decoded: its real path and its stat fingerprint."""

    path: Path
    fingerprint: tuple[int, ...]

    @classmethod
    def from_open_file(cls, path: Path, descriptor: int) -> GzipFileVersion:
        """Identify an open file. Symbolic links are resolved now, because their targets may change."""
        return cls(Path(os.path.realpath(path)), _stat_fingerprint(os.fstat(descriptor)))


@dataclass
class GzipText(FileText):
    """The text of a local gzip file; `offset` and `length` count bytes of its decompressed text.

    `fingerprint`: identifies the version of the file that was decoded. `blocks_path`: where `split_into_blocks` writes
    the blocks. `wait_for_blocks`: set while another process writes them, returns when it has ended.
    """

    fingerprint: tuple[int, ...]
    blocks_path: Path
    wait_for_blocks: Callable[[], None] | None = field(default=None, init=False, repr=False, compare=False)
    _block_text: BlockText | None = field(default=None, init=False, repr=False, compare=False)
    _blocks_failed: bool = field(default=False, init=False, repr=False, compare=False)

    @property
    def block_text(self) -> BlockText | None:
        """The same text by blocks, None until they have been written."""
        if self._block_text is None and not self._blocks_failed and self._ends_path.is_file():
            ends = _read_block_ends(self._ends_path, len(self.first))
            if ends is not None:
                length = np.diff(ends[0], prepend=0)
                self._block_text = BlockText.from_lengths(self.blocks_path, self.first, length, ends[1])
        return self._block_text

    def is_intact(self) -> bool:
        """Return whether the blocks, where there are any, are those that were written: reads all of them."""
        return not self._ends_path.is_file() or (self.block_text is not None and self.block_text.is_intact())

    def read_entry(self, ordinal: int, parse: ParseChunk) -> dict[str, Any]:
        """Read one entry, from its block if there is one; see `TextIndex.read_entry`."""
        blocks = self._wait_for_block_text()
        if blocks is not None:
            try:
                return blocks.read_entry(ordinal, parse)
            except (OSError, TraceChangedError):
                self._drop_blocks()
        return super().read_entry(ordinal, parse)

    def read_texts(self, chunks: Iterable[int]) -> Iterator[tuple[int, bytes]]:
        """Yield (chunk, text), from blocks if there are any; see `TextIndex.read_texts`."""
        remaining = list(chunks)
        blocks = self._wait_for_block_text()
        if blocks is not None:
            done = 0
            try:
                for chunk, text in blocks.read_texts(remaining):
                    done += 1
                    yield chunk, text
            except (OSError, TraceChangedError):
                self._drop_blocks()
            remaining = remaining[done:]
        if remaining:
            yield from super().read_texts(remaining)

    def split_into_blocks(self) -> None:
        """Write the text as blocks; every process that has this text open finds them. Raises OSError, LookupError."""
        if self.block_text is not None:
            return
        # Other processes may write the same blocks: each writes to files of its own and renames them.
        blocks_draft, ends_draft = (
            path.with_name(f"{path.name}-{os.getpid()}") for path in (self.blocks_path, self._ends_path)
        )
        try:
            writer = BlockWriter(blocks_draft)
            try:
                for _, text in self._read_stored(range(len(self.first))):
                    writer.put(text)
            finally:
                writer.close()
            values = np.array([*np.cumsum(writer.lengths, dtype=np.int64).tolist(), *writer.checksums], np.int64)
            np.append(values, checksum_array(values)).tofile(ends_draft)
            self._check_unchanged()
            blocks_draft.replace(self.blocks_path)
            ends_draft.replace(self._ends_path)  # last, because blocks count only once this file exists
        finally:
            blocks_draft.unlink(missing_ok=True)
            ends_draft.unlink(missing_ok=True)

    def _drop_blocks(self) -> None:
        """Read the file itself from now on, because its blocks are damaged or gone."""
        self._blocks_failed, self._block_text = True, None

    def _wait_for_block_text(self) -> BlockText | None:
        """Return the blocks, after waiting for a process that is writing them: many reads may follow."""
        if self.block_text is None and (wait := self.wait_for_blocks) is not None:
            wait()
        return self.block_text

    @property
    def _ends_path(self) -> Path:
        """File of int64[2c + 1]: the end offset of each block, its checksum, and the checksum of these."""
        return self.blocks_path.with_suffix(".ends")

    def _read_stored(self, chunks: Iterable[int]) -> Iterator[tuple[int, bytes]]:
        """Yield (chunk, text), decompressing the file from its beginning.

        Raises TraceChangedError if the file has changed, OSError if it is gone.
        """
        self._check_unchanged()
        try:
            # Imported by name: blocks, which most texts have, need no source.
            source: Source = importlib.import_module("torchprof_tui.trace.sources.source").open_source(str(self.path))
            source.unpack_all = True  # the size limit was passed, or lifted, when the file was decoded
            blocks = source.blocks()
            buffer, buffer_offset = b"", 0
            try:
                for chunk in chunks:
                    begin, end = int(self.offset[chunk]), int(self.offset[chunk] + self.length[chunk])
                    while buffer_offset + len(buffer) < end:
                        block = next(blocks, None)
                        if block is None:
                            raise TraceChangedError(CHANGED_MESSAGE)
                        drop = min(max(begin - buffer_offset, 0), len(buffer))
                        buffer, buffer_offset = buffer[drop:] + block, buffer_offset + drop
                    yield chunk, buffer[begin - buffer_offset : end - buffer_offset]
            finally:
                getattr(blocks, "close", lambda: None)()
                source.close()
        except TraceError as error:
            raise TraceChangedError(str(error)) from error

    def _check_unchanged(self) -> None:
        """Raise TraceChangedError if the file is another version by now, OSError if it is gone."""
        if _stat_fingerprint(self.path.stat()) != self.fingerprint:
            raise TraceChangedError(CHANGED_MESSAGE)


def _read_block_ends(path: Path, count: int) -> tuple[I64, U32] | None:
    """Read the end offset, int64[count], and the checksum of each block; None where the file is damaged."""
    values = np.fromfile(path, np.int64)
    is_whole = len(values) == 2 * count + 1 and path.stat().st_size == values.nbytes
    if not is_whole or checksum_array(values[:-1]) != int(values[-1]):
        return None
    return values[:count], values[count:-1].astype(np.uint32)


def _stat_fingerprint(status: os.stat_result) -> tuple[int, ...]:
    """Return size, times and inode. Includes ctime, because a replacement may have the same size and mtime."""
    return status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino
