"""What a torch.profiler trace could hold and does not, and the option that would have recorded it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from torchprof_tui.analysis.data_loss import losses
from torchprof_tui.analysis.doctor.remark import Remark, Section
from torchprof_tui.analysis.slicing.slice_metadata import slice_of
from torchprof_tui.trace.core.arrays import I64
from torchprof_tui.trace.model.event_kind import Kind
from torchprof_tui.trace.model.trace import Trace
from torchprof_tui.trace.query.read_entries import entries

LOOKED_AT = 48
"""Operators whose args are read: options are for all of them, but single ones may have no inputs."""

_SHAPES = ("Input Dims", "Input dims", "Input Shapes")
_STACKS = ("Call stack", "Call Stack")

_IN_THE_HEADER = ("shapes", "device")
"""Told by the header, or by ops that are there. All else is missing because no event shows it."""


def not_recorded(trace: Trace) -> Iterator[Remark]:
    """Nothing for what is no torch.profiler trace. Of a slice, or a file that lost entries, what shows in events
    cannot be told."""
    lost = losses(trace)
    why = lost.reason if lost else "this is a slice of a longer trace" if slice_of(trace) is not None else ""
    none = "none in what could be read" if lost else "none in this slice"
    for remark in _missing_from(trace):
        if why and remark.kind not in _IN_THE_HEADER:
            yield _missing(remark.kind, none, f"cannot be told: {why}")
        else:
            yield remark


def _missing_from(trace: Trace) -> Iterator[Remark]:
    """Reads the args of a few ops, where the header says nothing."""
    if trace.format != "kineto" or not len(trace):
        return
    ops = np.flatnonzero(trace.kind == Kind.OP)
    yield from _gpu(trace, ops)
    if not trace.steps:
        yield _missing(
            "steps",
            "no ProfilerStep: everything is one stretch of time",
            "profile(schedule=torch.profiler.schedule(wait=1, warmup=1, active=3)), and prof.step() after each step",
        )
    if len(ops):
        args = _some_args(trace, ops)
        if not _flag(trace, "record_shapes") and not _any(args, _SHAPES):
            yield _missing("shapes", "ops do not say how large their inputs are", "profile(record_shapes=True)")
        has_frames = bool((trace.kind == Kind.PYTHON).any())
        if not has_frames and not _flag(trace, "with_stack") and not _any(args, _STACKS):
            yield _missing("stack", "no Python frames: no op says which line called it", "profile(with_stack=True)")
        if trace.memory is None and not _flag(trace, "profile_memory"):
            yield _missing("memory", "no allocations: memory has no lane", "profile(profile_memory=True)")
    if bool(np.isin(trace.kind, [Kind.KERNEL, Kind.COLLECTIVE]).any()) and not trace.devices:
        yield _missing("device", "no deviceProperties: occupancy cannot be worked out", "record with a newer torch")


def _gpu(trace: Trace, ops: I64) -> Iterator[Remark]:
    calls = bool((trace.kind == Kind.RUNTIME).any())
    if not len(ops) and trace.links.gpu_events:
        yield _missing(
            "CPU ops",
            "GPU work without the ops that asked for it",
            "profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA])",
        )
    if trace.links.gpu_events:
        if not calls:
            yield _missing("runtime calls", "no launches: GPU work cannot be joined to its ops", "ProfilerActivity.CPU")
        return
    if calls:
        yield _missing(
            "GPU work",
            "runtime calls are here, and nothing that the GPU did",
            "CUPTI gave no activity: another profiler may hold the GPU, or the permission is missing "
            "(NVreg_RestrictProfilingToAdminUsers=0); the window may also be shorter than the queue",
        )
    else:
        yield _missing(
            "GPU work",
            "only the CPU was recorded",
            "on a machine with a GPU: profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA])",
        )


def _missing(kind: str, meaning: str, action: str) -> Remark:
    return Remark(Section.MISSING, kind, 1, meaning, "", action)


def _flag(trace: Trace, name: str) -> bool:
    return trace.header.get(name) in (1, True)


def _some_args(trace: Trace, ops: I64) -> list[dict[str, Any]]:
    """Of neighbouring ops in the middle, which cost a chunk or two; none where the text is gone."""
    middle = max(len(ops) // 2 - LOOKED_AT // 2, 0)
    try:
        found = [entry.get("args") for _, entry in entries(trace, ops[middle : middle + LOOKED_AT])]
    except (OSError, LookupError):
        return []
    return [args for args in found if isinstance(args, dict)]


def _any(args: list[dict[str, Any]], keys: tuple[str, ...]) -> bool:
    return any(key in each for each in args for key in keys)
