"""Find data that a torch.profiler trace could contain but does not, and the option that records it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from torchprof_tui.analysis.completeness.data_loss import find_data_loss
from torchprof_tui.analysis.completeness.slice_metadata import read_slice_metadata
from torchprof_tui.analysis.doctor.remark import Remark, Section
from torchprof_tui.trace.core.arrays import I64
from torchprof_tui.trace.model.event_kind import Kind
from torchprof_tui.trace.model.trace import Trace
from torchprof_tui.trace.query.read_entries import read_entries

SAMPLED_OPS = 48
"""Number of operators whose args are read. Options apply to all operators, but some operators have no inputs."""

_SIGNIFICANT_SHARE = 0.01
"""Share of GPU work from which it matters that the ops of the threads that launched it were not recorded."""

_SHAPE_KEYS = ("Input Dims", "Input dims", "Input Shapes")
_STACK_KEYS = ("Call stack", "Call Stack")

_KNOWN_WITHOUT_EVENTS = ("shapes", "device")
"""Kinds decided by the header or by existing ops. All others are inferred from the absence of events."""


def find_missing_recordings(trace: Trace) -> Iterator[Remark]:
    """Find what was not recorded; nothing for other formats than torch.profiler's.

    In a slice, or a file that lost entries, the absence of events is undecidable, and reported as such.
    """
    loss = find_data_loss(trace)
    cause = (
        loss.reason if loss else "this is a slice of a longer trace" if read_slice_metadata(trace) is not None else ""
    )
    meaning = "none in the readable part of the file" if loss else "none in this slice"
    for remark in _find_missing(trace):
        if cause and remark.kind not in _KNOWN_WITHOUT_EVENTS:
            yield _build_remark(remark.kind, meaning, f"undetermined: {cause}")
        else:
            yield remark


def _find_missing(trace: Trace) -> Iterator[Remark]:
    """Find what is missing from a whole trace. Reads the args of a few ops where the header does not decide."""
    if trace.format != "kineto" or not len(trace):
        return
    ops = np.flatnonzero(trace.kind == Kind.OP)
    yield from _find_missing_gpu(trace, ops)
    if not trace.steps:
        yield _build_remark(
            "steps",
            "no ProfilerStep: the trace is not divided into steps",
            "profile(schedule=torch.profiler.schedule(wait=1, warmup=1, active=3)), and prof.step() after each step",
        )
    recorded = trace.metadata.recorded
    if len(ops):
        args = _sample_args(trace, ops)
        if "record_shapes" not in recorded and not _has_any_key(args, _SHAPE_KEYS):
            yield _build_remark("shapes", "the sizes of ops' inputs are unknown", "profile(record_shapes=True)")
        has_frames = bool((trace.kind == Kind.PYTHON).any())
        if not has_frames and "with_stack" not in recorded and not _has_any_key(args, _STACK_KEYS):
            yield _build_remark(
                "stack", "no Python frames: the line that called an op is unknown", "profile(with_stack=True)"
            )
        if trace.memory is None and "profile_memory" not in recorded:
            yield _build_remark("memory", "no allocations: there is no memory lane", "profile(profile_memory=True)")
    if bool(np.isin(trace.kind, [Kind.KERNEL, Kind.COLLECTIVE]).any()) and not trace.devices:
        yield _build_remark("device", "no deviceProperties: occupancy cannot be computed", "record with a newer torch")


def _find_missing_gpu(trace: Trace, ops: I64) -> Iterator[Remark]:
    """Find missing GPU work, and missing CPU ops or runtime calls of existing GPU work."""
    has_calls = bool((trace.kind == Kind.RUNTIME).any())
    if not len(ops) and trace.links.gpu_events:
        yield _build_remark(
            "CPU ops",
            "GPU work without the ops that launched it",
            "profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA])",
        )
    if trace.links.gpu_events:
        if not has_calls:
            yield _build_remark(
                "runtime calls", "no launches: GPU work cannot be matched with its ops", "ProfilerActivity.CPU"
            )
        elif len(ops):
            yield from _find_threads_without_ops(trace, ops)
        return
    if has_calls:
        yield _build_remark(
            "GPU work",
            "runtime calls were recorded, but no GPU work",
            "CUPTI recorded no activity: another profiler may use the GPU, or the permission is missing "
            "(NVreg_RestrictProfilingToAdminUsers=0); or the recording ended before the GPU work started",
        )
    else:
        yield _build_remark(
            "GPU work",
            "only the CPU was recorded",
            "on a machine with a GPU: profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA])",
        )


def _find_threads_without_ops(trace: Trace, ops: I64) -> Iterator[Remark]:
    """Find threads that launched GPU work, but of which no op was recorded, while ops of others were.

    torch.profiler records the ops of the thread that starts it and of autograd's, and the runtime calls of all.
    """
    work = np.flatnonzero(trace.links.launch_of >= 0)
    lane = trace.lane[trace.links.launch_of[work]]
    has_ops = np.bincount(trace.lane[ops], minlength=len(trace.lanes)) > 0
    without = ~has_ops[lane]
    if not without.any() or np.count_nonzero(without) < _SIGNIFICANT_SHARE * len(work):
        return
    name = trace.lanes[int(np.bincount(lane[without]).argmax())].label
    yield Remark(
        Section.MISSING,
        "ops of threads",
        int(np.count_nonzero(without)),
        f"GPU work of threads whose ops were not recorded; of {name} most",
        "",
        "profile(experimental_config=torch._C._profiler._ExperimentalConfig(profile_all_threads=True)), torch 2.7",
        int(work[without][0]),
    )


def _build_remark(kind: str, meaning: str, action: str) -> Remark:
    return Remark(Section.MISSING, kind, 1, meaning, "", action)


def _sample_args(trace: Trace, ops: I64) -> list[dict[str, Any]]:
    """Read the args of SAMPLED_OPS adjacent ops, which lie in one or two chunks; [] if the text cannot be read."""
    middle = max(len(ops) // 2 - SAMPLED_OPS // 2, 0)
    try:
        sampled = [entry.get("args") for _, entry in read_entries(trace, ops[middle : middle + SAMPLED_OPS])]
    except (OSError, LookupError):
        return []
    return [args for args in sampled if isinstance(args, dict)]


def _has_any_key(args: list[dict[str, Any]], keys: tuple[str, ...]) -> bool:
    return any(key in entry for entry in args for key in keys)
