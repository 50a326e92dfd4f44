"""Read many entries of the file: each chunk of its text is read and parsed once for all its entries."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import numpy as np

from torchprof_tui.trace.core.arrays import I32, I64
from torchprof_tui.trace.json_text.salvage import parse_chosen_entries, parse_chunk
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
        indices = (ordinal[order[begin:end]] - index.first[number]).tolist()
        # The number of entries of the last chunk is not stored.
        count = int(index.first[number + 1] - index.first[number]) if number + 1 < len(index.first) else 0
        entries = parse_chosen_entries(text, count, indices)
        if entries is None:
            parsed = parse_chunk(text)
            if max(indices) >= len(parsed):
                raise LookupError("the trace file has changed since it was opened")
            entries = [parsed[index] for index in indices]
        yield from zip(order[begin:end].tolist(), entries, strict=True)
        if report is not None:
            report(done + 1, len(bounds) - 1)
