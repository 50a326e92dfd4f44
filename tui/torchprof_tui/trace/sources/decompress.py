"""gzip, xz and zstd behind one small interface, with bounded blocks; each library is imported when it is needed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Protocol

from torchprof_tui.trace.sources.replay import ReplayBuffer

BLOCK_BYTES = 1 << 20
"""Most bytes that one call inflates (zstd: about). The thread asks for the interpreter once a block, so it is large;
but of larger ones malloc gives the memory back to the kernel each time, which costs more than it saves."""


_ZSTD_INPUT_BYTES = 2 << 10


class DamagedStreamError(Exception):
    """The compressed bytes are wrong; `str()` is the library's own word for it."""


class Decompressor(Protocol):
    """One gzip member, xz stream or zstd frame."""

    def feed(self, data: bytes) -> Iterator[bytes]:
        """The text that these further bytes yield, in blocks. Raises DamagedError."""
        ...

    @property
    def eof(self) -> bool:
        """Whether its end mark has been met."""
        ...

    @property
    def unused_data(self) -> bytes:
        """What followed the end mark in the bytes fed last."""
        ...


class _BaseDecompressor:
    """What the three libraries share: an object that is fed until it has met its end.

    A call that meets damage yields nothing of its block. What was fed is then fed once more to a fresh object, a few
    bytes at a time, so that all before the damage comes out.
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
        """What the block held before it."""
        fine, known = self._byte_exact(), self._output_bytes
        try:
            for piece in self._replay.read_pieces():
                text: bytes = fine.decompress(piece)
                if len(text) > known:
                    yield text[known:]
                known = max(known - len(text), 0)
        except self._error_types:
            return
        finally:
            self._replay.discard()

    def _decompress(self, packed: bytes) -> Iterator[bytes]:
        raise NotImplementedError

    def _byte_exact(self) -> Any:
        """A fresh object that gives what it has after each byte."""
        raise NotImplementedError

    @property
    def eof(self) -> bool:
        return bool(self._decompressor.eof)

    @property
    def unused_data(self) -> bytes:
        return bytes(self._decompressor.unused_data)


class _GzipDecompressor(_BaseDecompressor):
    def __init__(self, packed: ReplayBuffer) -> None:
        from torchprof_tui.trace.sources import gzip_codec

        super().__init__(packed, gzip_codec.create_decompressor(), *gzip_codec.decompression_errors())

    def _decompress(self, packed: bytes) -> Iterator[bytes]:
        while packed and not self.eof:
            yield self._decompressor.decompress(packed, BLOCK_BYTES)
            packed = self._decompressor.unconsumed_tail

    def _byte_exact(self) -> Any:
        from torchprof_tui.trace.sources import gzip_codec

        return gzip_codec.create_byte_exact_decompressor()


class _XzDecompressor(_BaseDecompressor):
    def __init__(self, packed: ReplayBuffer) -> None:
        import lzma

        super().__init__(packed, lzma.LZMADecompressor(), lzma.LZMAError)

    def _decompress(self, packed: bytes) -> Iterator[bytes]:
        yield self._decompressor.decompress(packed, BLOCK_BYTES)
        while not self.eof and not self._decompressor.needs_input:
            yield self._decompressor.decompress(b"", BLOCK_BYTES)

    def _byte_exact(self) -> Any:
        import lzma

        return lzma.LZMADecompressor()


class _ZstdDecompressor(_BaseDecompressor):
    def __init__(self, packed: ReplayBuffer) -> None:
        import zstandard

        super().__init__(packed, zstandard.ZstdDecompressor().decompressobj(), zstandard.ZstdError)
        self._unfed_data = b""  # what was not fed any more, because the frame had ended

    def _decompress(self, packed: bytes) -> Iterator[bytes]:
        """It has no bound of its own, and four bytes may stand for 128 KB: little goes in at a time."""
        parts: list[bytes] = []
        size = 0
        for at in range(0, len(packed), _ZSTD_INPUT_BYTES):
            if self.eof:
                break
            text = self._decompressor.decompress(packed[at : at + _ZSTD_INPUT_BYTES])
            parts.append(text)
            size += len(text)
            if size >= BLOCK_BYTES:
                yield b"".join(parts)
                parts, size = [], 0
            if self.eof:
                self._unfed_data = packed[at + _ZSTD_INPUT_BYTES :]
        if parts:
            yield b"".join(parts)

    @property
    def unused_data(self) -> bytes:
        return bytes(self._decompressor.unused_data) + self._unfed_data

    def _byte_exact(self) -> Any:
        import zstandard

        return zstandard.ZstdDecompressor().decompressobj()


DECOMPRESSORS: dict[str, Callable[[ReplayBuffer], Decompressor]] = {
    "gzip": _GzipDecompressor,
    "xz": _XzDecompressor,
    "zstd": _ZstdDecompressor,
}

_COMPRESSION_MAGIC = {b"\x1f\x8b": "gzip", b"\xfd7zXZ\0": "xz", b"\x28\xb5\x2f\xfd": "zstd"}

MAGIC_BYTES = 6
"""How many bytes `compression` needs to see."""


def detect_compression(head: bytes) -> str:
    """ "gzip", "xz" or "zstd", told by a stream's first bytes; "" for everything else."""
    return next((name for magic, name in _COMPRESSION_MAGIC.items() if head.startswith(magic)), "")
