"""Compress and decompress gzip with isal if it is installed, else with Python's zlib.

Each reads the output of the other, so cache entries stay valid when isal is installed or removed.
"""

from __future__ import annotations

import zlib
from typing import Any

try:
    from isal import igzip, isal_zlib

    HAS_ISAL = True
except ImportError:  # no wheel for this platform: slower, with the same result
    HAS_ISAL = False

GZIP_WBITS = 31  # zlib's `wbits` for a gzip member with its header

_ISAL_LEVEL, _ZLIB_LEVEL = 0, 1
"""The fastest level of each: isal compresses 338 MB of trace to 30 MB in about 0.5 s of a second core."""


def create_decompressor() -> Any:
    """Create an object with zlib's interface: `decompress`, `eof`, `unused_data`, `unconsumed_tail`."""
    return isal_zlib.decompressobj(wbits=GZIP_WBITS) if HAS_ISAL else zlib.decompressobj(wbits=GZIP_WBITS)


def create_byte_exact_decompressor() -> Any:
    """Create one by zlib, which returns all text up to each byte; isal decodes ahead and loses that at damage."""
    return zlib.decompressobj(wbits=GZIP_WBITS)


def decompression_errors() -> tuple[type[Exception], ...]:
    """Return the exceptions that a decompressor raises for damaged bytes."""
    fast: Any = isal_zlib.error if HAS_ISAL else zlib.error  # isal's type stub declares an instance
    return (fast, zlib.error)


def compress(text: bytes | memoryview) -> bytes:
    """Compress text to one gzip member, the same bytes at any time."""
    if HAS_ISAL:
        return bytes(igzip.compress(text, _ISAL_LEVEL, mtime=0))
    compressor = zlib.compressobj(_ZLIB_LEVEL, wbits=GZIP_WBITS)  # zlib.compress takes no wbits before Python 3.11
    return compressor.compress(text) + compressor.flush()


def decompress(block: bytes) -> bytes:
    """Decompress one gzip member. Raises one of `decompression_errors()`."""
    if HAS_ISAL:
        text: bytes = igzip.decompress(block)  # type: ignore[no-untyped-call]
        return text
    return zlib.decompress(block, wbits=GZIP_WBITS)
