"""Read the text of entries in place from a plain local file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from torchprof_tui.trace.text.text_index import FileText, read_spans


@dataclass
class PlainText(FileText):
    """The text of a plain local file."""

    def _read_stored(self, chunks: Iterable[int]) -> Iterator[tuple[int, bytes]]:
        return read_spans(self.path, self.offset, self.length, chunks)
