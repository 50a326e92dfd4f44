"""Find a position between two entries at which a file may be divided among processes."""

from __future__ import annotations

import re
from collections.abc import Iterator

_SEPARATOR = re.compile(rb',(?:\n  \{\n    "|\s?\{"ph")')
"""Where a file may be split: between two entries as Kineto writes them, and as all compact writers of torch do. Only
the first byte is a comma, so a shorter separator never begins within a longer one that a block cuts off."""

_MAX_SEPARATOR_BYTES = 11


class SplitPoint:
    """The position after the comma of the first entry that ends at byte `target` or later.

    `offset`: that position in the whole text, -1 until the blocks up to it have been read.
    """

    def __init__(self, target: int) -> None:
        self.target = target
        self.offset = -1

    def blocks_before(self, blocks: Iterator[bytes], begin: int = 0) -> Iterator[bytes]:
        """Yield these blocks, the first of which begins at `begin`, up to the split point."""
        for block, is_after in self._mark_blocks(blocks, begin):
            if is_after:
                return
            yield block

    def blocks_after(self, blocks: Iterator[bytes], begin: int = 0) -> Iterator[bytes]:
        """Yield these blocks from the split point on."""
        return (block for block, is_after in self._mark_blocks(blocks, begin) if is_after and block)

    def _mark_blocks(self, blocks: Iterator[bytes], offset: int) -> Iterator[tuple[bytes, bool]]:
        """Yield the text in pieces, and whether each is after the split point; `offset` is where the blocks begin."""
        kept = b""  # the end of the previous block, which may be the beginning of a separator
        for block in blocks:
            if not kept and offset + len(block) <= self.target:
                offset += len(block)
                yield block, False
                continue
            text = kept + block
            separator = _SEPARATOR.search(text, max(self.target - offset, 0))
            if separator is not None:
                cut = separator.start() + 1
                self.offset = offset + cut
                yield text[:cut], False
                yield text[cut:], True
                yield from ((rest, True) for rest in blocks)
                return
            kept = text[max(len(text) - _MAX_SEPARATOR_BYTES + 1, 0) :]
            offset += len(text) - len(kept)
            yield text[: len(text) - len(kept)], False
        if kept:
            yield kept, False
