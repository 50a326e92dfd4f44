"""Decompress gzip, xz and zstd in blocks of bounded size, through one interface.

Each library is imported when the first stream of its format is opened: none of them before the first frame.
"""

from __future__ import annotations

import lzma
from collections.abc import Callable, Iterator
from typing import Any, Protocol

from torchprof_tui.trace.sources import gzip_codec
from torchprof_tui.trace.sources.damaged_stream import ReplayBuffer

BLOCK_BYTES = 1 << 20
"""Largest block of text that one call returns. The thread takes the GIL once per block, so blocks
are large; malloc returns larger ones to the kernel each time, which costs more than it saves."""


class DamagedStreamError(Exception):
    """The compressed bytes are damaged; `str()` is the library's message."""


class Decompressor(Protocol):
    """One gzip member, xz stream or zstd frame."""

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Decompress the next bytes; yields blocks of text. Raises DamagedStreamError."""
        ...

    @property
    def eof(self) -> bool:
        """Whether the end mark was reached."""
        ...

    @property
    def unused_data(self) -> bytes:
        """The bytes after the end mark, of those fed last."""
        ...


class _BaseDecompressor:
    """Base of the decompressors, around a library's object that is fed until its end mark.

    A call that reaches damage returns no text of its block. All bytes are then replayed to a new object, a few at a
    time, to recover the text before the damage.
    """

    def __init__(self, replay: ReplayBuffer, decompressor: Any, *errors: type[Exception]) -> None:
        self._replay = replay
        self._decompressor = decompressor
        self._error_types = errors
        self._output_bytes = 0

    def feed(self, data: bytes) -> Iterator[bytes]:
        self._replay.append(data)
        try:
            for text in self._decompress(data):
                self._output_bytes += len(text)
                yield text
        except self._error_types as error:
            yield from self._replay_until_damage()
            raise DamagedStreamError(str(error)) from error
        if self.eof:
            self._replay.discard()

    def _replay_until_damage(self) -> Iterator[bytes]:
        """Yield the text of the damaged block before the damage."""
        decompressor, skip = self._create_byte_exact(), self._output_bytes
        try:
            for piece in self._replay.read_pieces():
                text: bytes = decompressor.decompress(piece)
                if len(text) > skip:
                    yield text[skip:]
                skip = max(skip - len(text), 0)
        except self._error_types:
            return
        finally:
            self._replay.discard()

    def _decompress(self, data: bytes) -> Iterator[bytes]:
        raise NotImplementedError

    def _create_byte_exact(self) -> Any:
        """Create an object that returns all text up to each byte."""
        raise NotImplementedError

    @property
    def eof(self) -> bool:
        return bool(self._decompressor.eof)

    @property
    def unused_data(self) -> bytes:
        return bytes(self._decompressor.unused_data)


class _GzipDecompressor(_BaseDecompressor):
    def __init__(self, replay: ReplayBuffer) -> None:
        super().__init__(replay, gzip_codec.create_decompressor(), *gzip_codec.decompression_errors())

    def _decompress(self, data: bytes) -> Iterator[bytes]:
        while data and not self.eof:
            yield self._decompressor.decompress(data, BLOCK_BYTES)
            data = self._decompressor.unconsumed_tail

    def _create_byte_exact(self) -> Any:
        return gzip_codec.create_byte_exact_decompressor()


class _BoundedDecompressor(_BaseDecompressor):
    """Base of the formats whose library takes a limit on the text of one call and keeps the rest of its input."""

    def _decompress(self, data: bytes) -> Iterator[bytes]:
        yield self._decompressor.decompress(data, BLOCK_BYTES)
        while not self.eof and not self._decompressor.needs_input:
            yield self._decompressor.decompress(b"", BLOCK_BYTES)


class _XzDecompressor(_BoundedDecompressor):
    def __init__(self, replay: ReplayBuffer) -> None:
        super().__init__(replay, lzma.LZMADecompressor(), lzma.LZMAError)

    def _create_byte_exact(self) -> Any:
        return lzma.LZMADecompressor()


class _ZstdDecompressor(_BoundedDecompressor):
    def __init__(self, replay: ReplayBuffer) -> None:
        from torchprof_tui.trace.sources import zstd_codec  # deferred: few traces are packed with it

        self._codec = zstd_codec
        super().__init__(replay, zstd_codec.ZstdDecompressor(), zstd_codec.ZstdError)

    def _create_byte_exact(self) -> Any:
        return self._codec.ZstdDecompressor()


DECOMPRESSORS: dict[str, Callable[[ReplayBuffer], Decompressor]] = {
    "gzip": _GzipDecompressor,
    "xz": _XzDecompressor,
    "zstd": _ZstdDecompressor,
}

_COMPRESSION_MAGIC = {b"\x1f\x8b": "gzip", b"\xfd7zXZ\0": "xz", b"\x28\xb5\x2f\xfd": "zstd"}

MAGIC_BYTES = 6
"""Bytes that `detect_compression` needs."""


def detect_compression(head: bytes) -> str:
    """Detect "gzip", "xz" or "zstd" by the first bytes of a stream; "" for anything else."""
    return next((name for magic, name in _COMPRESSION_MAGIC.items() if head.startswith(magic)), "")
