"""The trace doctor: report what a file lost, what was repaired, what is odd though valid, what was not recorded.

For data that was not recorded, the option that records it is named.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import orjson

from torchprof_tui.analysis.completeness.data_loss import find_data_loss, read_slice_metadata
from torchprof_tui.analysis.doctor.oddities import find_oddities, find_rule_violations
from torchprof_tui.analysis.doctor.read_problems import Diagnosis, Remark, Section, find_read_problems
from torchprof_tui.analysis.graphs.captured_ops import REASON_TEXT, get_captured_ops
from torchprof_tui.analysis.graphs.replay_join import Reason
from torchprof_tui.analysis.privacy.private_metadata import (
    PrivateKind,
    PrivateValue,
    find_private_values,
)
from torchprof_tui.trace.core.arrays import I64, is_in
from torchprof_tui.trace.core.errors import TraceChangedError
from torchprof_tui.trace.core.problems import excerpt
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


_CPU_AND_CUDA = "profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA])"
_MISSING = {
    "CPU ops": ("GPU work without the ops that launched it", _CPU_AND_CUDA),
    "runtime calls": ("no launches: GPU work cannot be matched with its ops", "ProfilerActivity.CPU"),
    "GPU work": ("only the CPU was recorded", f"on a machine with a GPU: {_CPU_AND_CUDA}"),
    "steps": (
        "no ProfilerStep: the trace is not divided into steps",
        "profile(schedule=torch.profiler.schedule(wait=1, warmup=1, active=3)), and prof.step() after each step",
    ),
    "shapes": ("the sizes of ops' inputs are unknown", "profile(record_shapes=True)"),
    "stack": ("no Python frames: the line that called an op is unknown", "profile(with_stack=True)"),
    "memory": ("no allocations: there is no memory lane", "profile(profile_memory=True)"),
    "device": ("no deviceProperties: occupancy cannot be computed", "record with a newer torch"),
}
"""What may be missing → (what it means, the option that records it)."""

_NO_ACTIVITY = (
    "runtime calls were recorded, but no GPU work",
    "CUPTI recorded no activity: another profiler may use the GPU, or the permission is missing "
    "(NVreg_RestrictProfilingToAdminUsers=0); or the recording ended before the GPU work started",
)


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
    has_calls = bool((trace.kind == Kind.RUNTIME).any())
    if trace.links.gpu_events and has_calls and len(ops):
        yield from _find_threads_without_ops(trace, ops)
    is_missing = _decide_missing(trace, ops, has_calls)
    for kind, (meaning, action) in _MISSING.items():
        if is_missing[kind]:
            if kind == "GPU work" and has_calls:
                meaning, action = _NO_ACTIVITY
            yield _build_remark(kind, meaning, action)


def _decide_missing(trace: Trace, ops: I64, has_calls: bool) -> dict[str, bool]:
    has_ops, has_work = len(ops) > 0, bool(trace.links.gpu_events)
    has_frames = bool((trace.kind == Kind.PYTHON).any())
    has_kernels = bool(is_in(trace.kind, [Kind.KERNEL, Kind.COLLECTIVE]).any())
    recorded = trace.metadata.recorded
    args = _sample_args(trace, ops) if has_ops else []
    return {
        "CPU ops": has_work and not has_ops,
        "runtime calls": has_work and not has_calls,
        "GPU work": not has_work,
        "steps": not trace.steps,
        "shapes": has_ops and "record_shapes" not in recorded and not _has_any_key(args, _SHAPE_KEYS),
        "stack": has_ops and not has_frames and "with_stack" not in recorded and not _has_any_key(args, _STACK_KEYS),
        "memory": has_ops and trace.memory is None and "profile_memory" not in recorded,
        "device": has_kernels and not trace.devices,
    }


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


_MAX_READ_BYTES = 4 << 20
"""Larger values of a file (samples, stack tables) are searched when they are copied, not for a remark."""

_MEANINGS = {
    PrivateKind.ENVIRONMENT: "the file holds environment variables of the process, which often contain tokens",
    PrivateKind.SECRET: "the metadata of the file holds what looks like a password or token",
}
_KINDS = {PrivateKind.ENVIRONMENT: "environment variables", PrivateKind.SECRET: "secrets"}
_ACTION = "before you share the file: torchprof-tui export leaves this out, and so does slice"


def find_private_metadata(trace: Trace) -> Iterator[Remark]:
    """Find environment variables and secrets in the metadata of all ranks: one remark of each kind, on keys only."""
    found = [(rank.label_prefix(": "), value) for rank in trace.all_ranks for value in _find_values(rank.trace)]
    for kind in PrivateKind:
        of_kind = [(owner, value) for owner, value in found if value.kind is kind]
        if of_kind:
            owner, first = of_kind[0]
            more = f" and {len(of_kind) - 1} more" if len(of_kind) > 1 else ""
            count = sum(value.count for _, value in of_kind)
            example = excerpt(f"{owner}{first.path}{more}")
            yield Remark(Section.ODD, _KINDS[kind], count, _MEANINGS[kind], example, _ACTION)


def _find_values(trace: Trace) -> Iterator[PrivateValue]:
    yield from find_private_values(trace.header)
    if trace.large_keys is None:
        return
    for key, (_, size, _) in trace.large_keys.spans.items():
        if size <= _MAX_READ_BYTES:
            try:
                yield from find_private_values({key: orjson.loads(trace.large_keys.read_text(key))})
            except (OSError, ValueError, TraceChangedError):  # reported where the value is used
                continue


_CAPTURE_ACTION = "record the capture as well, or the same model without the graph, and name that trace with --capture"
_THREADS_REASON = REASON_TEXT[Reason.NO_OPS_OF_THREAD]
_THREADS_ACTION = "record the capture again with the ops of all threads: torchprof-tui run --capture"


def find_graph_remarks(trace: Trace) -> Iterator[Remark]:
    """Report on the replays of graphs, over all ranks; nothing for a trace without any. Opens the captures."""
    unknown: Counter[str] = Counter()
    first_event = -1
    problems: list[str] = []
    for rank in trace.all_ranks:
        ops = get_captured_ops(rank.trace)
        if ops is None:
            continue
        unknown.update({REASON_TEXT[reason]: count for reason, count in ops.count_reasons().items()})
        if first_event < 0 and ops.first_unmatched >= 0:
            first_event = rank.first + ops.first_unmatched
        if rank.trace.captures is not None:
            problems += rank.trace.captures.problems
    if problems:
        yield Remark(
            Section.ODD,
            "capture",
            len(problems),
            "a trace of a graph's capture could not be used; the rest of the trace is complete",
            problems[0],
            "name another one with --capture",
        )
    if unknown:
        yield Remark(
            Section.MISSING,
            "ops of replays",
            unknown.total(),
            "kernels of graph replays whose op, shapes and lines are unknown",
            next(reason for reason, _ in unknown.most_common(1)),
            _THREADS_ACTION if unknown.most_common(1)[0][0] == _THREADS_REASON else _CAPTURE_ACTION,
            first_event,
        )


def diagnose_trace(trace: Trace) -> Diagnosis:
    """Collect all remarks on a trace, most severe first.

    Costs a few passes over the columns (50 ms for a million events) and reads one chunk of the text, more where there
    are collectives; opens the captures of a trace that replays graphs.
    """
    remarks = [
        *find_read_problems(trace),
        *find_private_metadata(trace),
        *find_oddities(trace),
        *find_rule_violations(trace),
        *find_missing_recordings(trace),
        *find_graph_remarks(trace),
    ]
    order = list(Section)
    return Diagnosis(sorted(remarks, key=lambda remark: (order.index(remark.section), -remark.count)))
