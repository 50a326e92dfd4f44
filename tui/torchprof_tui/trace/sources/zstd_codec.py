"""Decompress zstd with Python's own `compression.zstd` (3.14), before that with its backport of the same interface.

The rest of the program imports this module when the first zstd stream is opened, and neither library by its name.
"""

from __future__ import annotations

import sys

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

__all__ = ["ZstdDecompressor", "ZstdError", "zstd"]

ZstdDecompressor = zstd.ZstdDecompressor  # decodes one frame, with the interface of `lzma.LZMADecompressor`

ZstdError = zstd.ZstdError
