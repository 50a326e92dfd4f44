"""Many entries of the file at once: each chunk of its text is read and parsed once, for whichever entries it holds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import numpy as np

from torchprof_tui.trace.core.arrays import I32, I64
from torchprof_tui.trace.model.trace import Trace

ReportChunks = Callable[[int, int], None]
"""Is told how many of how many chunks are done; may raise to stop."""


def read_entries(
    trace: Trace, events: I32 | I64, report: ReportChunks | None = None
) -> Iterator[tuple[int, dict[str, Any]]]:
    """(place in `events`, the entry as it stands in the file) of each event, in the file's order.

    About as slow as parsing all chunks that hold one of them. Raises OSError where the file is gone, LookupError where
    it has changed.
    """
    from torchprof_tui.trace.json_text.salvage import parse_chunk

    index = trace.text
    ordinal = trace.ordinal[events]
    order = np.argsort(ordinal, kind="stable")
    chunk = np.searchsorted(index.first, ordinal[order], side="right") - 1
    if len(chunk) and chunk[0] < 0:
        raise LookupError(f"no entry {ordinal[order[0]]}")
    bounds = np.append(np.flatnonzero(np.diff(chunk, prepend=-1)), len(chunk)).tolist()
    if not len(chunk):
        return
    texts = index.read_texts(chunk[bounds[:-1]].tolist())
    for done, ((begin, end), (number, text)) in enumerate(zip(pairwise(bounds), texts, strict=True)):
        parsed = parse_chunk(text)
        first = int(index.first[number])
        for place in order[begin:end].tolist():
            within = int(ordinal[place]) - first
            if within >= len(parsed):
                raise LookupError("the trace file has changed since it was opened")
            yield place, parsed[within]
        if report is not None:
            report(done + 1, len(bounds) - 1)
