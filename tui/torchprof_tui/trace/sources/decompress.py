"""Decompress gzip, xz and zstd in blocks of bounded size, through one interface.

Each library is imported when the first stream of its format is opened: none of them before the first frame.
"""

from __future__ import annotations

import lzma
from collections.abc import Callable, Iterator
from typing import Any

from torchprof_tui.trace.sources import gzip_codec
from torchprof_tui.trace.sources.damaged_stream import ReplayBuffer

BLOCK_BYTES = 1 << 20
"""Largest block of text that one call returns. The thread takes the GIL once per block, so blocks
are large; malloc returns larger ones to the kernel each time, which costs more than it saves."""


class DamagedStreamError(Exception):
    """The compressed bytes are damaged; `str()` is the library's message."""


class Decompressor:
    """One gzip member, xz stream or zstd frame, fed until its end mark. `compression`: "gzip", "xz" or "zstd".

    A call that reaches damage returns no text of its block. All bytes are then replayed to a new object, a few at a
    time, to recover the text before the damage.
    """

    def __init__(self, compression: str, replay: ReplayBuffer) -> None:
        self._replay = replay
        self._create_byte_exact: Callable[[], Any]
        self._error_types: tuple[type[Exception], ...]
        if compression == "gzip":
            self._decompressor = gzip_codec.create_decompressor()
            self._create_byte_exact = gzip_codec.create_byte_exact_decompressor
            self._error_types = gzip_codec.decompression_errors()
        elif compression == "xz":
            self._create_byte_exact, self._error_types = lzma.LZMADecompressor, (lzma.LZMAError,)
            self._decompressor = lzma.LZMADecompressor()
        else:
            from torchprof_tui.trace.sources import zstd_codec  # deferred: few traces are packed with it

            self._create_byte_exact, self._error_types = zstd_codec.ZstdDecompressor, (zstd_codec.ZstdError,)
            self._decompressor = zstd_codec.ZstdDecompressor()
        self._output_bytes = 0

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Decompress the next bytes; yields blocks of text. Raises DamagedStreamError."""
        self._replay.append(data)
        try:
            for text in self._decompress(data):
                self._output_bytes += len(text)
                yield text
        except self._error_types as error:
            yield from self._replay.rescue_text(self._create_byte_exact(), self._output_bytes, self._error_types)
            raise DamagedStreamError(str(error)) from error
        if self.eof:
            self._replay.discard()

    def _decompress(self, data: bytes) -> Iterator[bytes]:
        """Yield blocks of limited size. What is left of its input zlib returns, and the other libraries keep."""
        decompressor = self._decompressor
        yield decompressor.decompress(data, BLOCK_BYTES)
        while not decompressor.eof:
            data = getattr(decompressor, "unconsumed_tail", b"")
            if not data and getattr(decompressor, "needs_input", True):
                return
            yield decompressor.decompress(data, BLOCK_BYTES)

    @property
    def eof(self) -> bool:
        """Whether the end mark was reached."""
        return bool(self._decompressor.eof)

    @property
    def unused_data(self) -> bytes:
        """The bytes after the end mark, of those fed last."""
        return bytes(self._decompressor.unused_data)


_COMPRESSION_MAGIC = {b"\x1f\x8b": "gzip", b"\xfd7zXZ\0": "xz", b"\x28\xb5\x2f\xfd": "zstd"}

MAGIC_BYTES = 6
"""Bytes that `detect_compression` needs."""


def detect_compression(head: bytes) -> str:
    """Detect "gzip", "xz" or "zstd" by the first bytes of a stream; "" for anything else."""
    return next((name for magic, name in _COMPRESSION_MAGIC.items() if head.startswith(magic)), "")
