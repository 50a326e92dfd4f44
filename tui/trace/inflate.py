"""gzip, xz and zstd behind one small interface, with bounded blocks; each library is imported when it is needed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Protocol

BLOCK = 4 << 20
"""Most bytes that one call inflates (zstd: about). The thread asks for the interpreter once a block, so it is large."""

SMALL_BLOCK = 1 << 10
"""Most bytes lost before damaged ones near a stream's beginning."""

KEPT = 1 << 20
"""Most packed bytes from a stream's beginning that are kept, for when they turn out to be damaged."""


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
    """What the three libraries share: an object that is fed until it has met its end."""

    def __init__(self, inflater: Any, *errors: type[Exception]) -> None:
        self._inflater = inflater
        self._errors = errors

    def feed(self, packed: bytes) -> Iterator[bytes]:
        try:
            yield from self._feed(packed)
        except self._errors as error:
            raise DamagedError(str(error)) from error

    def _feed(self, packed: bytes) -> Iterator[bytes]:
        raise NotImplementedError

    @property
    def ended(self) -> bool:
        return bool(self._inflater.eof)

    @property
    def rest(self) -> bytes:
        return bytes(self._inflater.unused_data)


class _Gzip(_Library):
    """A call that meets damage yields nothing of its block, and a small trace is one block: what was packed is kept
    while it is little, and then inflated again in small steps, as far as it goes."""

    def __init__(self) -> None:
        from tui.trace import fast_gzip

        super().__init__(fast_gzip.decompressor(), *fast_gzip.errors())
        self._again: Any = fast_gzip.decompressor()
        self._kept: bytearray | None = bytearray()
        self._given = 0

    def _feed(self, packed: bytes) -> Iterator[bytes]:
        if self._kept is not None:
            self._kept += packed
            if len(self._kept) > KEPT:
                self._kept = None
        try:
            while packed and not self.ended:
                text = self._inflater.decompress(packed, BLOCK)
                self._given += len(text)
                yield text
                packed = self._inflater.unconsumed_tail
        except self._errors:
            yield from self._up_to_the_damage()
            raise

    def _up_to_the_damage(self) -> Iterator[bytes]:
        """What the block held before it; raises where that ends."""
        packed, known = bytes(self._kept or b""), self._given
        while packed and not self._again.eof:
            text = self._again.decompress(packed, SMALL_BLOCK)
            packed = self._again.unconsumed_tail
            yield text[known:]
            known = max(known - len(text), 0)


class _Xz(_Library):
    def __init__(self) -> None:
        import lzma

        super().__init__(lzma.LZMADecompressor(), lzma.LZMAError)

    def _feed(self, packed: bytes) -> Iterator[bytes]:
        yield self._inflater.decompress(packed, BLOCK)
        while not self.ended and not self._inflater.needs_input:
            yield self._inflater.decompress(b"", BLOCK)


class _Zstd(_Library):
    def __init__(self) -> None:
        import zstandard

        super().__init__(zstandard.ZstdDecompressor().decompressobj(), zstandard.ZstdError)

    def _feed(self, packed: bytes) -> Iterator[bytes]:
        yield self._inflater.decompress(packed)


INFLATERS: dict[str, Callable[[], Inflater]] = {"gzip": _Gzip, "xz": _Xz, "zstd": _Zstd}

_MAGIC = {b"\x1f\x8b": "gzip", b"\xfd7zXZ\0": "xz", b"\x28\xb5\x2f\xfd": "zstd"}

MAGIC_BYTES = 6
"""How many bytes `compression` needs to see."""


def compression(head: bytes) -> str:
    """ "gzip", "xz" or "zstd", told by a stream's first bytes; "" for everything else."""
    return next((name for magic, name in _MAGIC.items() if head.startswith(magic)), "")
