"""The JSON document of `slice --json`."""

from __future__ import annotations

from typing import Annotated

from torchprof_tui.analysis.slicing.slice_writer import SliceResult
from torchprof_tui.commands.common.json_document import Document, about
from torchprof_tui.commands.common.partial_input import ProblemRecord, build_partial
from torchprof_tui.trace.model.trace import Trace


class SliceDocument(Document, frozen=True, kw_only=True, tag="torchprof-tui/slice/1"):
    """The trace that `slice` wrote."""

    trace: Annotated[str, about("path of the new trace, as given with -o")]
    entries: Annotated[int, about("entries of traceEvents in it")]
    entries_of: Annotated[int, about("entries of the whole trace")]
    events: Annotated[int, about("its events on lanes")]
    bytes: Annotated[int, about("its size")]
    starts_ns: Annotated[int, about("start of its first event in the whole trace")]
    left_out: Annotated[list[str], about("keys that are not in it: too large, unreadable, or private")]
    partial: Annotated[list[ProblemRecord], about("what was lost of the whole trace; [] for nothing")]


def build_document(trace: Trace, output: str, sliced: SliceResult) -> SliceDocument:
    """Build the document of a slice of `trace` that was written to `output`."""
    return SliceDocument(
        trace=output,
        entries=sliced.entries,
        entries_of=sliced.total_entries,
        events=sliced.events,
        bytes=sliced.size,
        starts_ns=sliced.first_start,
        left_out=sliced.left_out,
        partial=build_partial(trace),
    )
