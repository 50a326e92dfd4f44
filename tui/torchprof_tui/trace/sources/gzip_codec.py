"""gzip by the fastest library that is installed: isal where there is a wheel of it, else Python's own zlib.

Both read what the other wrote, so a cache outlives a change of library.
"""

from __future__ import annotations

import zlib
from typing import Any

try:
    from isal import igzip, isal_zlib

    HAS_ISAL = True
except ImportError:  # no wheel for this machine: slower, and nothing else differs
    HAS_ISAL = False

GZIP_WBITS = 31
"""zlib's `wbits` for a gzip member with its header."""

_ISAL_LEVEL, _ZLIB_LEVEL = 0, 1
"""The fastest that each has: with isal 338 MB of trace become 30 MB in about half a second of a second core."""


def create_decompressor() -> Any:
    """An object with zlib's interface: `decompress`, `eof`, `unused_data`, `unconsumed_tail`."""
    return isal_zlib.decompressobj(wbits=GZIP_WBITS) if HAS_ISAL else zlib.decompressobj(wbits=GZIP_WBITS)


def create_byte_exact_decompressor() -> Any:
    """The same by zlib, which gives all that it has after each byte; isal decodes ahead, and loses that at damage."""
    return zlib.decompressobj(wbits=GZIP_WBITS)


def decompression_errors() -> tuple[type[Exception], ...]:
    """What a decompressor raises for damaged bytes."""
    fast: Any = isal_zlib.error if HAS_ISAL else zlib.error  # isal's stub calls it an instance
    return (fast, zlib.error)


def compress(text: bytes | memoryview) -> bytes:
    """One gzip member."""
    if HAS_ISAL:
        return bytes(igzip.compress(text, _ISAL_LEVEL))
    packer = zlib.compressobj(_ZLIB_LEVEL, wbits=GZIP_WBITS)  # `zlib.compress` takes no wbits before Python 3.11
    return packer.compress(text) + packer.flush()


def decompress(block: bytes) -> bytes:
    """The text of one member. Raises what `errors` says."""
    if HAS_ISAL:
        text: bytes = igzip.decompress(block)  # type: ignore[no-untyped-call]
        return text
    return zlib.decompress(block, wbits=GZIP_WBITS)
