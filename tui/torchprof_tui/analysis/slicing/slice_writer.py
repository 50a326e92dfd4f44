"""Write a slice of a trace as a trace file: the unchanged text of the kept entries, and the file's other keys.

The steps, in order:
1. Every event that overlaps the range, uncut.
2. The other ends of its links, at any time: a kernel's launch and all work of that launch, the backward node of a
   forward op and the reverse (by flow, or by sequence number), the events at the other ends of its flow arrows.
3. All ancestors of those, so that a kernel's chain leads to the same step.
4. The forward op or backward node of events added in step 3, and its ancestors.

Events in the range therefore keep their chain. Events that extend beyond the range are complete, but lose descendants
outside of it.
"""

from __future__ import annotations

from pathlib import Path
from typing import cast

import numpy as np

from torchprof_tui.analysis.completeness.data_loss import SLICE_KEY, build_slice_metadata, list_losses
from torchprof_tui.analysis.dispatch.ancestry import include_ancestors
from torchprof_tui.analysis.privacy.private_metadata import PrivateValue
from torchprof_tui.analysis.slicing.document_writer import (
    FlowEntries,
    ProgressCallback,
    get_text_index,
    open_trace_file,
    survey_entries,
    write_document,
)
from torchprof_tui.trace.core.arrays import I64, Bool, is_in
from torchprof_tui.trace.core.atomic_file import OutputError, check_target
from torchprof_tui.trace.core.process_state import pause_garbage_collection
from torchprof_tui.trace.core.records import record
from torchprof_tui.trace.model.event_kind import Kind
from torchprof_tui.trace.model.trace import Trace
from torchprof_tui.trace.text.block_text import FileText


def check_not_source(trace: Trace, out: Path) -> None:
    """Raise OutputError if `out` is a file of the trace: the one that was named, or that holds its text."""
    for rank in trace.all_ranks:
        sources = [Path(rank.trace.label), Path(rank.file)]
        if isinstance(rank.trace.text, FileText):
            sources.append(rank.trace.text.path)
        if any(_is_same_file(out, source) for source in sources):
            raise OutputError(f"{out}: this is the trace itself, and was not overwritten; choose another name")


def _is_same_file(path: Path, other: Path) -> bool:
    try:
        return path.samefile(other)
    except (OSError, ValueError):  # one of them does not exist, or is no valid file name
        return False


def select_events(trace: Trace, t0: int, t1: int, flows: FlowEntries) -> Bool:
    """Select the events of a slice from t0 to t1: bool[n]. An event without a duration counts as 1 ns."""
    overlapping: Bool = (trace.start < t1) & (trace.start + np.maximum(trace.duration, 1) > t0)
    linked: Bool = overlapping.copy()
    launch_of = trace.links.launch_of
    launches = launch_of[np.flatnonzero(linked & (launch_of >= 0))]
    linked[launches] = True
    work = np.flatnonzero(launch_of >= 0)
    linked[work[linked[launch_of[work]]]] = True
    _add_autograd_partners(trace, overlapping, linked)
    flows.add_other_ends(overlapping, linked)
    linked |= include_ancestors(trace.parent, linked)
    both_passes: Bool = linked.copy()
    _add_autograd_partners(trace, linked, both_passes)
    both_passes |= include_ancestors(trace.parent, both_passes)
    return both_passes


def _add_autograd_partners(trace: Trace, selected: Bool, kept: Bool) -> None:
    """Keep the forward ops and backward nodes of `selected` events: by flow, and by sequence number."""
    links = trace.links
    kept[links.backward[selected[links.forward]]] = True
    kept[links.forward[selected[links.backward]]] = True
    numbers = trace.args.get("sequence")
    if numbers is not None and "forward_thread" in trace.args:
        values = cast("I64", numbers.values)
        has_number = selected[numbers.events] & (values >= 0) & (trace.kind[numbers.events] == Kind.OP)
        kept[numbers.events[is_in(values, values[has_number])]] = True


OUTPUT_SUFFIXES = (".json", ".json.gz")


class SliceError(ValueError):
    """The slice was not written; `str()` is one line for the user."""


@record
class SliceResult:
    """The written slice: `entries` of `total_entries`, `events` of them on lanes; `size` in bytes.

    `first_start`: start of the slice's first event in the whole trace, ns. `skipped_keys`: keys of the file that are
    not in the slice, because they exceed the size kept in memory (`text/large_values.py`) or could not be read.
    `private_values`: environment variables and secrets of the file that are not in the slice. `kept_keys`: as in
    `LeftOut`.
    """

    path: Path
    entries: int
    total_entries: int
    events: int
    size: int
    first_start: int
    skipped_keys: tuple[str, ...] = ()
    private_values: tuple[PrivateValue, ...] = ()
    kept_keys: tuple[str, ...] = ()

    @property
    def left_out(self) -> list[str]:
        """What of the file's metadata is not in the slice: keys, with dots where only a part of a key is missing."""
        return [*self.skipped_keys, *(value.path for value in self.private_values)]


def write_slice(
    trace: Trace, t0: int, t1: int, out: Path, report: ProgressCallback | None = None, keep_private: bool = False
) -> SliceResult:
    """Write the range from t0 to t1 (ns) of a trace to `out`; `select_events` defines those to keep.

    Works chunk by chunk on a temporary file, which is renamed when it is complete. Metadata entries and the header are
    kept, and the counters and `[memory]` instants in the range; of the header not environment variables and secrets,
    unless `keep_private`. Raises SliceError, OutputError, and OSError or LookupError if the trace's text cannot be read
    any more.
    """
    # Raise SliceError or OutputError for requests that are invalid without reading the trace.
    if t1 <= t0:
        raise SliceError("the range ends before it begins")
    if not out.name.endswith(OUTPUT_SUFFIXES):
        raise OutputError(f"{out}: the name must end in .json or .json.gz")
    get_text_index(trace)
    check_not_source(trace, out)
    check_target(out)
    with pause_garbage_collection():
        survey = survey_entries(trace, report)
    events = select_events(trace, t0, t1, survey.flows)
    kept = np.zeros(len(survey.event_of), np.bool_)
    drawn = survey.event_of >= 0
    kept[drawn] = events[survey.event_of[drawn]]
    kept[survey.point_ordinals[(survey.point_times >= t0) & (survey.point_times < t1)]] = True
    if not kept.any():
        low, high = trace.span
        raise SliceError(f"no event in this range: the trace goes from {low / 1000:g} to {high / 1000:g} µs")
    kept[survey.metadata_ordinals] = True
    kept[survey.flows.select_ordinals(events, t0, t1)] = True
    metadata = {SLICE_KEY: build_slice_metadata(trace, t0, t1, list_losses(trace))}
    with open_trace_file(out) as file:
        left_out = write_document(trace, kept, metadata, file, keep_private)
    starts = trace.start[events]
    return SliceResult(
        path=out,
        entries=int(np.count_nonzero(kept)),
        total_entries=trace.counts.events,
        events=int(np.count_nonzero(events)),
        size=out.stat().st_size,
        first_start=int(starts.min()) if len(starts) else t0,
        skipped_keys=left_out.skipped_keys,
        private_values=left_out.private_values,
        kept_keys=left_out.kept_keys,
    )
