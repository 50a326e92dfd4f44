"""gzip, xz and zstd behind one small interface, with bounded blocks; each library is imported when it is needed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Protocol

from torchprof_tui.trace.sources.replay import Packed

BLOCK = 1 << 20
"""Most bytes that one call inflates (zstd: about). The thread asks for the interpreter once a block, so it is large;
but of larger ones malloc gives the memory back to the kernel each time, which costs more than it saves."""


_ZSTD_PIECE = 2 << 10


class DamagedError(Exception):
    """The compressed bytes are wrong; `str()` is the library's own word for it."""


class Inflater(Protocol):
    """One gzip member, xz stream or zstd frame."""

    def feed(self, packed: bytes) -> Iterator[bytes]:
        """The text that these further bytes yield, in blocks. Raises DamagedError."""
        ...

    @property
    def ended(self) -> bool:
        """Whether its end mark has been met."""
        ...

    @property
    def rest(self) -> bytes:
        """What followed the end mark in the bytes fed last."""
        ...


class _Library:
    """What the three libraries share: an object that is fed until it has met its end.

    A call that meets damage yields nothing of its block. What was fed is then fed once more to a fresh object, a few
    bytes at a time, so that all before the damage comes out.
    """

    def __init__(self, packed: Packed, inflater: Any, *errors: type[Exception]) -> None:
        self._packed = packed
        self._inflater = inflater
        self._errors = errors
        self._given = 0

    def feed(self, packed: bytes) -> Iterator[bytes]:
        self._packed.keep(packed)
        try:
            for text in self._feed(packed):
                self._given += len(text)
                yield text
        except self._errors as error:
            yield from self._up_to_the_damage()
            raise DamagedError(str(error)) from error
        if self.ended:
            self._packed.forget()

    def _up_to_the_damage(self) -> Iterator[bytes]:
        """What the block held before it."""
        fine, known = self._fine(), self._given
        try:
            for piece in self._packed.pieces():
                text: bytes = fine.decompress(piece)
                if len(text) > known:
                    yield text[known:]
                known = max(known - len(text), 0)
        except self._errors:
            return
        finally:
            self._packed.forget()

    def _feed(self, packed: bytes) -> Iterator[bytes]:
        raise NotImplementedError

    def _fine(self) -> Any:
        """A fresh object that gives what it has after each byte."""
        raise NotImplementedError

    @property
    def ended(self) -> bool:
        return bool(self._inflater.eof)

    @property
    def rest(self) -> bytes:
        return bytes(self._inflater.unused_data)


class _Gzip(_Library):
    def __init__(self, packed: Packed) -> None:
        from torchprof_tui.trace.sources import gzip_codec

        super().__init__(packed, gzip_codec.decompressor(), *gzip_codec.errors())

    def _feed(self, packed: bytes) -> Iterator[bytes]:
        while packed and not self.ended:
            yield self._inflater.decompress(packed, BLOCK)
            packed = self._inflater.unconsumed_tail

    def _fine(self) -> Any:
        from torchprof_tui.trace.sources import gzip_codec

        return gzip_codec.exact_decompressor()


class _Xz(_Library):
    def __init__(self, packed: Packed) -> None:
        import lzma

        super().__init__(packed, lzma.LZMADecompressor(), lzma.LZMAError)

    def _feed(self, packed: bytes) -> Iterator[bytes]:
        yield self._inflater.decompress(packed, BLOCK)
        while not self.ended and not self._inflater.needs_input:
            yield self._inflater.decompress(b"", BLOCK)

    def _fine(self) -> Any:
        import lzma

        return lzma.LZMADecompressor()


class _Zstd(_Library):
    def __init__(self, packed: Packed) -> None:
        import zstandard

        super().__init__(packed, zstandard.ZstdDecompressor().decompressobj(), zstandard.ZstdError)
        self._behind = b""  # what was not fed any more, because the frame had ended

    def _feed(self, packed: bytes) -> Iterator[bytes]:
        """It has no bound of its own, and four bytes may stand for 128 KB: little goes in at a time."""
        parts: list[bytes] = []
        size = 0
        for at in range(0, len(packed), _ZSTD_PIECE):
            if self.ended:
                break
            text = self._inflater.decompress(packed[at : at + _ZSTD_PIECE])
            parts.append(text)
            size += len(text)
            if size >= BLOCK:
                yield b"".join(parts)
                parts, size = [], 0
            if self.ended:
                self._behind = packed[at + _ZSTD_PIECE :]
        if parts:
            yield b"".join(parts)

    @property
    def rest(self) -> bytes:
        return bytes(self._inflater.unused_data) + self._behind

    def _fine(self) -> Any:
        import zstandard

        return zstandard.ZstdDecompressor().decompressobj()


INFLATERS: dict[str, Callable[[Packed], Inflater]] = {"gzip": _Gzip, "xz": _Xz, "zstd": _Zstd}

_MAGIC = {b"\x1f\x8b": "gzip", b"\xfd7zXZ\0": "xz", b"\x28\xb5\x2f\xfd": "zstd"}

MAGIC_BYTES = 6
"""How many bytes `compression` needs to see."""


def compression(head: bytes) -> str:
    """ "gzip", "xz" or "zstd", told by a stream's first bytes; "" for everything else."""
    return next((name for magic, name in _MAGIC.items() if head.startswith(magic)), "")
