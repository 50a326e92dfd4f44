"""Read many entries of the file: each chunk of its text is read and parsed once for all its entries."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import numpy as np

from torchprof_tui.trace.core.arrays import I32, I64
from torchprof_tui.trace.json_text.salvage import parse_chunk
from torchprof_tui.trace.model.trace import Trace

ReportChunks = Callable[[int, int], None]
"""Called with the number of chunks that are done and the number of all chunks; may raise to cancel."""


def read_entries(
    trace: Trace, events: I32 | I64, report: ReportChunks | None = None
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Read the entry of each event: (index into `events`, the entry as it is in the file), in the file's order.

    Costs about as much as parsing all chunks that hold one of them. Raises OSError where the file is gone, LookupError
    where it has changed.
    """
    index = trace.text
    ordinal = trace.ordinal[events]
    order = np.argsort(ordinal, kind="stable")
    chunk = np.searchsorted(index.first, ordinal[order], side="right") - 1
    if len(chunk) and chunk[0] < 0:
        raise LookupError(f"no entry {ordinal[order[0]]}")
    if not len(chunk):
        return
    bounds = np.append(np.flatnonzero(np.diff(chunk, prepend=-1)), len(chunk)).tolist()
    texts = index.read_texts(chunk[bounds[:-1]].tolist())
    for done, ((begin, end), (number, text)) in enumerate(zip(pairwise(bounds), texts, strict=True)):
        parsed = parse_chunk(text)
        first = int(index.first[number])
        for position in order[begin:end].tolist():
            index_in_chunk = int(ordinal[position]) - first
            if index_in_chunk >= len(parsed):
                raise LookupError("the trace file has changed since it was opened")
            yield position, parsed[index_in_chunk]
        if report is not None:
            report(done + 1, len(bounds) - 1)
