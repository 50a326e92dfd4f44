"""Tests of the texts of several ranks: entries and chunks are those of each rank's own file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.helpers.rank_traces import late_rank
from torchprof_tui.trace.decode.general_decoder import decode_trace
from torchprof_tui.trace.json_text.salvage import parse_chunk
from torchprof_tui.trace.sources.source import open_source
from torchprof_tui.trace.text.block_text import RankTexts, TextIndex


def index_ranks(paths: list[Path], folder: Path) -> tuple[list[TextIndex], list[int]]:
    """Decode each file into small chunks: the text indexes, and the number of entries of each."""
    texts: list[TextIndex] = []
    counts = []
    for rank, path in enumerate(paths):
        text_dir = folder / str(rank)
        text_dir.mkdir()
        decoded = decode_trace(open_source(str(path)), text_dir, chunk_size=700)
        texts.append(decoded.text)
        counts.append(len(decoded.events))
    return texts, counts


@pytest.mark.parametrize("packed", [False, True])
def test_entries_and_chunks_are_those_of_the_ranks(tmp_path: Path, packed: bool) -> None:
    texts, counts = index_ranks(late_rank(3).write(tmp_path, packed=packed), tmp_path)
    offsets = np.cumsum([0, *counts[:-1]])
    merged = RankTexts(texts, offsets)
    assert all(len(text.first) > 2 for text in texts)
    assert len(merged.first) == sum(len(text.first) for text in texts)
    expected_chunks = []
    for rank, text in enumerate(texts):
        for ordinal in range(counts[rank]):
            entry = text.read_entry(ordinal, parse_chunk)
            assert merged.read_entry(ordinal + int(offsets[rank]), parse_chunk) == entry
        first = text.first + offsets[rank]
        chunk_texts = text.read_texts(range(len(text.first)))
        expected_chunks += [(int(first[chunk]), chunk_text) for chunk, chunk_text in chunk_texts]
    chunks = [(int(merged.first[chunk]), text) for chunk, text in merged.read_texts(range(len(merged.first)))]
    assert chunks == expected_chunks
    some = list(range(1, len(merged.first), 3))
    assert list(merged.read_texts(some)) == [(chunk, expected_chunks[chunk][1]) for chunk in some]
    assert list(merged.read_texts([])) == []
