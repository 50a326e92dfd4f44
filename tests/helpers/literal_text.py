"""Literal traces whose args can be read: their entries are the text."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from tests.helpers.trace_builder import Entry, trace
from torchprof_tui.trace.core.arrays import I64
from torchprof_tui.trace.model.trace import Trace
from torchprof_tui.trace.text.block_text import ParseChunk


class LiteralText:
    """The text of these entries, in one chunk."""

    def __init__(self, entries: tuple[Entry, ...]) -> None:
        self._entries = entries

    @property
    def first(self) -> I64:
        """The ordinal of the first entry of the only chunk."""
        return np.zeros(1, np.int64)

    def read_entry(self, ordinal: int, parse: ParseChunk) -> dict[str, Any]:
        """Return one entry."""
        return self._entries[ordinal]

    def read_texts(self, chunks: Iterable[int]) -> Iterator[tuple[int, bytes]]:
        """Yield (chunk, text)."""
        text = ",\n".join(json.dumps(entry) for entry in self._entries).encode()
        yield from ((chunk, text) for chunk in chunks)


def readable_trace(*entries: Entry) -> Trace:
    """Build the trace of these entries; their args can be read from it."""
    return replace(trace(*entries), text=LiteralText(entries))
