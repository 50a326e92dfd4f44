"""Select the entries that become events and decide the kind of each from its category, name, phase and process."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from torchprof_tui.trace.build.event_phases import ClassifiedEntries
from torchprof_tui.trace.build.track_metadata import TrackMetadata
from torchprof_tui.trace.core.arrays import I32, U8, Bool, flatnonzero_int32, take_chunked
from torchprof_tui.trace.core.factorize import bincount_chunked
from torchprof_tui.trace.model.event_kind import GPU_WORK, Kind, kind_of_category, refine_kind
from torchprof_tui.trace.model.raw_events import RawEvents

PROFILER_PIDS = ("Spans", "Traces", "")
_PROFILER_MARKS = ("Iteration Start", "Record Window End")


@dataclass(frozen=True, slots=True)
class DrawnEvents:
    """The entries that are drawn as events on lanes, in file order. d rows."""

    ordinals: I32
    kind: U8

    def __len__(self) -> int:
        return len(self.ordinals)


def select_drawn_events(events: RawEvents, classified: ClassifiedEntries, track_metadata: TrackMetadata) -> DrawnEvents:
    """Select the entries that are drawn and decide their kinds."""
    ordinals = flatnonzero_int32(classified.drawn)
    return DrawnEvents(ordinals, _classify_kinds(events, ordinals, classified, track_metadata))


def _classify_kinds(
    events: RawEvents, ordinals: I32, classified: ClassifiedEntries, track_metadata: TrackMetadata
) -> U8:
    """Decide the kind of each drawn event, uint8[d]."""
    kind_by_category = [int(kind_of_category(category)) for category in events.categories] or [0]
    kind = take_chunked(np.array(kind_by_category, np.uint8), take_chunked(events.category, ordinals))

    def indexes_on_tracks(tracks: Bool, mask: Bool) -> I32:
        """Find the indexes of the events in `mask` that are on one of `tracks` bool[tracks]."""
        indexes = flatnonzero_int32(mask)
        on_tracks: I32 = indexes[tracks[events.track[ordinals[indexes]]]]
        return on_tracks

    accelerator = np.array([track_metadata.is_accelerator(pid) for pid, _ in events.tracks], np.bool_)
    if accelerator.any():
        kind[indexes_on_tracks(accelerator, kind == Kind.OTHER)] = Kind.KERNEL
    runtime = np.array([track_metadata.is_runtime(pid) for pid, _ in events.tracks], np.bool_)
    if runtime.any():
        kind[indexes_on_tracks(runtime, kind == Kind.OTHER)] = Kind.RUNTIME
    for base in (Kind.ANNOTATION, Kind.OP, Kind.KERNEL):
        indexes = flatnonzero_int32(kind == base)
        kind[indexes] = _map_names_to_kinds(events.names, events.name[ordinals[indexes]], partial(refine_kind, base))
    profiler = np.array([pid in PROFILER_PIDS for pid, _ in events.tracks], np.bool_)
    kind[indexes_on_tracks(~profiler, kind == Kind.PROFILER)] = Kind.OTHER
    is_async = take_chunked(classified.is_async, ordinals)
    is_mark = take_chunked(classified.is_instant, ordinals) & ~is_async
    kind[is_mark] = Kind.INSTANT
    profiler_marks = indexes_on_tracks(profiler, is_mark)
    kind[profiler_marks] = _map_names_to_kinds(
        events.names,
        events.name[ordinals[profiler_marks]],
        lambda text: Kind.PROFILER if text.startswith(_PROFILER_MARKS) else Kind.INSTANT,
    )
    kind[is_async] = Kind.ASYNC
    return kind


def _map_names_to_kinds(names: list[str], name: I32, decide: Callable[[str], Kind]) -> U8:
    """Decide a kind for each name, uint8[k]; `decide` is called once for every name that occurs."""
    used = np.flatnonzero(bincount_chunked(name, len(names)))
    kinds = np.zeros(len(names), np.uint8)
    kinds[used] = [decide(names[k]) for k in used.tolist()]
    return take_chunked(kinds, name)


def is_gpu_work(kind: U8) -> Bool:
    """Tell which events are work of a GPU, bool[n]."""
    return np.isin(kind, list(GPU_WORK))
