"""Compression of stored blocks."""

from __future__ import annotations

from unittest.mock import patch

from torchprof_tui.trace.sources import gzip_codec


def test_blocks_are_the_same_at_any_time() -> None:
    """A time in the header would make two decodings of one trace differ."""
    blocks = set()
    for now in (0.0, 1_000_000.0, 2_000_000_000.0):
        with patch("time.time", return_value=now):
            blocks.add(gzip_codec.compress(b"an entry"))
    (block,) = blocks
    assert gzip_codec.decompress(block) == b"an entry"
