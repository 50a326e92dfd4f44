"""Read the text of entries from the files of several ranks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any

import numpy as np

from torchprof_tui.trace.core.arrays import I64
from torchprof_tui.trace.text.text_index import ParseChunk, TextIndex


class RankTexts:
    """The texts of several ranks as one: ordinals and chunks count on from rank to rank.

    `ordinal_offsets`: int64[ranks] ascending, the ordinal of each rank's first entry.
    """

    def __init__(self, texts: Sequence[TextIndex], ordinal_offsets: I64) -> None:
        self._texts = texts
        self._ordinal_offsets = ordinal_offsets
        self._chunk_offsets = np.cumsum([0, *(len(text.first) for text in texts)], dtype=np.int64)
        self._first: I64 | None = None

    @property
    def first(self) -> I64:
        """int64[c]: ordinal of each chunk's first entry; see `TextIndex.first`."""
        if self._first is None:
            shifted = [text.first + offset for text, offset in zip(self._texts, self._ordinal_offsets, strict=True)]
            self._first = np.concatenate(shifted)
        return self._first

    def read_entry(self, ordinal: int, parse: ParseChunk) -> dict[str, Any]:
        """Read one entry; see `TextIndex.read_entry`."""
        rank = int(np.searchsorted(self._ordinal_offsets, ordinal, side="right")) - 1
        return self._texts[rank].read_entry(ordinal - int(self._ordinal_offsets[rank]), parse)

    def read_texts(self, chunks: Iterable[int]) -> Iterator[tuple[int, bytes]]:
        """Yield (chunk, text), one rank's file after the other; see `TextIndex.read_texts`."""
        for rank, rank_chunks in groupby(chunks, key=self._rank_of_chunk):
            offset = int(self._chunk_offsets[rank])
            for chunk, text in self._texts[rank].read_texts(chunk - offset for chunk in rank_chunks):
                yield chunk + offset, text

    def _rank_of_chunk(self, chunk: int) -> int:
        return int(np.searchsorted(self._chunk_offsets, chunk, side="right")) - 1
