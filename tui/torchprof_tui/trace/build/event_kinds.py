"""Select the entries that become events and decide the kind of each from its category, name, phase and process."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial

import numpy as np

from torchprof_tui.trace.build.event_phases import ClassifiedEntries
from torchprof_tui.trace.build.track_metadata import TrackMetadata
from torchprof_tui.trace.core.arrays import I32, U8, Bool
from torchprof_tui.trace.core.records import record
from torchprof_tui.trace.core.thread_tasks import find_indexes, run_blocks, take_parallel
from torchprof_tui.trace.model.event_kind import GPU_WORK, Kind, kind_of_category, refine_kind
from torchprof_tui.trace.model.raw_events import RawEvents

PROFILER_PIDS = ("Spans", "Traces", "")
_PROFILER_MARKS = ("Iteration Start", "Record Window End")


@record
class DrawnEvents:
    """The entries that are drawn as events on lanes, in file order. d rows."""

    ordinals: I32
    kind: U8

    def __len__(self) -> int:
        return len(self.ordinals)


_REFINED = (Kind.ANNOTATION, Kind.OP, Kind.KERNEL, Kind.PYTHON)  # that the name refines, into none of them


def select_drawn_events(events: RawEvents, classified: ClassifiedEntries, track_metadata: TrackMetadata) -> DrawnEvents:
    ordinals = find_indexes(lambda block: classified.drawn[block], len(events))
    kind_of = np.array([int(kind_of_category(category)) for category in events.categories] or [0], np.uint8)
    accelerator = np.array([track_metadata.is_accelerator(pid) for pid, _ in events.tracks], np.bool_)
    accelerator |= _is_all_gpu_work(events, ordinals)
    runtime = np.array([track_metadata.is_runtime(pid) for pid, _ in events.tracks], np.bool_)
    profiler = np.array([pid in PROFILER_PIDS for pid, _ in events.tracks], np.bool_)
    kind = np.empty(len(ordinals), np.uint8)
    used = np.zeros((len(_REFINED) + 1, len(events.names)), np.bool_)  # names of refined kinds, of profiler's marks

    def classify(block: slice) -> None:
        entries = ordinals[block]
        found = kind_of[events.category[entries]]
        track = events.track[entries]
        found[(found == Kind.OTHER) & accelerator[track]] = Kind.KERNEL
        found[(found == Kind.OTHER) & runtime[track]] = Kind.RUNTIME
        found[(found == Kind.PROFILER) & ~profiler[track]] = Kind.OTHER
        found[classified.is_instant[entries]] = Kind.INSTANT
        found[classified.is_async[entries]] = Kind.ASYNC
        name = events.name[entries]
        for number, base in enumerate(_REFINED):
            used[number, name[found == base]] = True
        used[-1, name[(found == Kind.INSTANT) & profiler[track]]] = True
        kind[block] = found

    run_blocks(classify, len(ordinals))
    tables = [
        (base, _decide_kinds(events.names, names, base, partial(refine_kind, base)))
        for base, names in zip(_REFINED, used, strict=False)
    ]
    marks = _decide_kinds(
        events.names,
        used[-1],
        Kind.INSTANT,
        lambda name: Kind.PROFILER if name.startswith(_PROFILER_MARKS) else Kind.INSTANT,
    )

    def refine(block: slice) -> None:
        entries = ordinals[block]
        for base, refined in tables:
            if refined is not None:
                selected = np.flatnonzero(kind[block] == base)
                kind[block][selected] = refined[events.name[entries[selected]]]
        if marks is not None:
            selected = np.flatnonzero(kind[block] == Kind.INSTANT)
            selected = selected[profiler[events.track[entries[selected]]]]
            kind[block][selected] = marks[events.name[entries[selected]]]

    run_blocks(refine, len(ordinals))
    return DrawnEvents(ordinals, kind)


_GPU_WORK_NAME = re.compile(
    r"\[?(CUDA )?mem(cpy|set)\b|void .*[(<]|_Z\w"
    r"|(\w+_)?(ampere|volta|turing|sm[0-9]{2,3}|cutlass|cudnn|nvjet|triton)_\w+$",
    re.IGNORECASE,
)
_MAX_NAMES = 4096  # distinct names of a file without categories that are looked at: a GPU runs some hundred kernels


def _is_all_gpu_work(events: RawEvents, ordinals: I32) -> bool:
    """Return whether a file without any category holds nothing but copies, fills and kernels, by their names."""
    if any(events.categories):
        return False
    names = np.unique(events.name[ordinals])
    return 0 < len(names) <= _MAX_NAMES and all(_GPU_WORK_NAME.match(events.names[k]) for k in names.tolist())


def _decide_kinds(names: list[str], used: Bool, base: Kind, decide: Callable[[str], Kind]) -> U8 | None:
    """Decide the kind for each of the `used` names, uint8[names]; None if all have kind `base`."""
    indexes = np.flatnonzero(used)
    kinds = np.full(len(names), base, np.uint8)
    kinds[indexes] = [decide(names[k]) for k in indexes.tolist()]
    return None if bool((kinds == base).all()) else kinds


_IS_GPU_WORK = np.isin(np.arange(256), list(GPU_WORK))


def is_gpu_work(kind: U8) -> Bool:
    """Tell which events are work of a GPU, bool[n]."""
    return take_parallel(_IS_GPU_WORK, kind)
