"""Diagnose the GPU's own work: which class of it takes the time, what limits it, and what to do about it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from torchprof_tui.analysis.kernel.names.name_decoder import decode_kernel_name
from torchprof_tui.analysis.patterns.engine import thresholds
from torchprof_tui.analysis.patterns.engine.scope_view import format_percent
from torchprof_tui.analysis.patterns.rules.communication import build_card_of_view, describe_missing_collectives
from torchprof_tui.analysis.patterns.rules.remedy_choice import choose_blocking_copy_remedy
from torchprof_tui.analysis.patterns.verdict.diagnosis import Diagnosis, Evidence, always, diagnose_finding, say_share
from torchprof_tui.analysis.patterns.verdict.tree_model import COMPUTE, COPIES
from torchprof_tui.analysis.serving.measure_steps import get_serving_steps
from torchprof_tui.analysis.serving.serving_steps import StepKind
from torchprof_tui.analysis.throughput.roofline import COLLECTIVES, OTHER, GpuClassSummary
from torchprof_tui.trace.core.arrays import I64, is_in
from torchprof_tui.trace.core.time_format import format_duration
from torchprof_tui.trace.model.event_kind import Kind

_CLASS_PATTERN_IDS = frozenset(["memory-bound-elementwise", "gemm-efficiency", "no-tensor-core"])
"""Problems of a class of work: the class and its limit say more than the problem's title."""


def diagnose_gpu_work(evidence: Evidence) -> Diagnosis:
    """Diagnose what the GPU is busy with: by the problem that explains most of it, else by its largest class."""
    shares = evidence.shares
    if shares.copies >= thresholds.COMPUTE_SHARE_OF_BUSY.value * shares.busy and shares.busy:
        return _diagnose_copies(evidence)
    pattern_id, share = evidence.find_largest(COMPUTE, COPIES)
    if shares.copies >= max(thresholds.ADVICE_MIN_IDLE_SHARE.value, share):
        return _diagnose_copies(evidence)
    if share >= thresholds.PROBLEM_MIN_SHARE.value:
        diagnosis = diagnose_finding(evidence.fired[pattern_id], COMPUTE, share)
        if pattern_id in _CLASS_PATTERN_IDS and (classes := _name_classes(evidence, diagnosis.events)):
            return replace(diagnosis, say=lambda cost: f"up to {format_percent(cost)} of the time is lost in {classes}")
        return diagnosis
    if not evidence.view.gpu_classes:
        return Diagnosis(COMPUTE, 0.0, always("the GPU did almost no work"))
    steps = get_serving_steps(evidence.view.trace)
    what, (t0, t1) = _describe_classes(evidence), evidence.view.window
    inside = (steps.start < t1) & (steps.end > t0)
    decoding = inside & steps.kind_mask(StepKind.DECODE)
    if decoding.any() and 2 * int(steps.step_time[decoding].sum()) > int(steps.step_time[inside].sum()):
        what += ", most of it in decode steps, which read all weights for one token of each sequence"
        return Diagnosis(COMPUTE, 0.0, always(what), "larger batches, or weights of fewer bits (quantization)")
    return Diagnosis(COMPUTE, 0.0, always(what), _describe_unknown(evidence))


def _describe_unknown(evidence: Evidence) -> str:
    """Say that no problem was found, or, where much of the work is unknown, what to measure by itself."""
    view = evidence.view
    others = sum(part.share for part in view.gpu_classes if part.name == OTHER)
    row, share = _find_largest_other(evidence)
    if others < thresholds.OTHER_KERNELS_SHARE.value or decode_kernel_name(view.tables.name(row)).known:
        return "no problem found in these kernels"
    name = view.tables.short_name(row)
    if share < thresholds.OTHER_KERNELS_SHARE.value:
        return f"measure them alone, {name} first: what they do is not known from their names"
    return f"measure {name} alone: what it does is not known from its name"


def _find_largest_other(evidence: Evidence) -> tuple[int, float]:
    """Find the kernel with most time among "other kernels": (one event of it, its share of the GPU time)."""
    view = evidence.view
    class_names, of_piece = view.tables.work_classes
    if OTHER not in class_names:
        return -1, 0.0
    others = np.flatnonzero(of_piece[view.work_in_scope] == class_names.index(OTHER))
    if not len(others):
        return -1, 0.0
    name, time = view.work.events.name[others], view.work_time[others]
    by_name = np.bincount(name, weights=time)
    largest = int(by_name.argmax())
    row = int(view.work.events.row[others[np.flatnonzero(name == largest)[0]]])
    return row, float(by_name[largest]) / max(float(view.work_time.sum()), 1.0)


def _diagnose_copies(evidence: Evidence) -> Diagnosis:
    shares, work = evidence.shares, evidence.view.work
    rows = work.events.row[work.kind == Kind.COPY]
    pattern_id, share = evidence.find_largest(COPIES)
    if pattern_id and share >= thresholds.EXPLAINED_SHARE_OF_WAIT.value * shares.copies:
        return diagnose_finding(evidence.fired[pattern_id], COPIES, share)
    calls = evidence.view.select_in_scope(evidence.view.gap_finder.blocking_copies)
    is_blocking = is_in(work.launch, calls.row) & (work.kind == Kind.COPY)
    if int(work.events.duration[is_blocking].sum()) * 2 > int(work.events.duration[work.kind == Kind.COPY].sum()):
        name = evidence.view.tables.name(int(calls.row[calls.duration.argmax()]))
        say = say_share(f"blocking copies ({name}) take", _ALONE)
        remedy = choose_blocking_copy_remedy(evidence.view, calls).action
        return Diagnosis(COPIES, shares.copies, say, remedy, events=calls.row)
    remedy = "copy less, or overlap the copies with compute"
    return Diagnosis(COPIES, shares.copies, say_share("copies take", _ALONE), remedy, events=rows)


def _name_classes(evidence: Evidence, events: I64) -> str:
    """Name the largest classes of these kernels (rows, int64[k]) with what limits them; "" where none is known."""
    view, (names, of_piece) = evidence.view, evidence.view.tables.work_classes
    of_work = of_piece[view.work_in_scope]
    time = np.where(is_in(view.work.events.row, events), view.work_time, 0)
    by_class = dict(zip(names, np.bincount(of_work, weights=time, minlength=len(names)).tolist(), strict=True))
    least = _CLASS_MIN_SHARE * sum(by_class.values())
    return ", ".join(part.describe_rate() for part in view.gpu_classes if by_class[part.name] > least)


def _describe_classes(evidence: Evidence) -> str:
    """Describe the largest classes of the GPU's work with what limits them."""
    classes = [part for part in evidence.view.gpu_classes[:_MAX_CLASSES] if part.share >= _CLASS_MIN_SHARE]
    base = "the time of all GPU work, which overlaps," if evidence.view.does_work_overlap else "the GPU's time"
    return f"{base} is {', '.join(_describe_class(evidence, part) for part in classes)}"


def _describe_class(evidence: Evidence, part: GpuClassSummary) -> str:
    """Describe a class: of collectives how much is hidden, of "other kernels", which says nothing, the largest one."""
    view, text = evidence.view, part.describe()
    if part.name == COLLECTIVES:
        card = build_card_of_view(view)
        waiting = f", {format_duration(card.waiting)} of them wait for other ranks" if card.waiting else ""
        return f"{text} ({format_percent(card.hidden_share)} hidden behind compute{waiting})"
    row, share = _find_largest_other(evidence) if part.name == OTHER else (-1, 0.0)
    if row < 0:
        return text
    missing = describe_missing_collectives(view)
    return f"{text} ({format_percent(share)} {view.tables.short_name(row)}{'; ' if missing else ''}{missing})"


_ALONE = " while no kernel computes"
_MAX_CLASSES = 3
_CLASS_MIN_SHARE = 0.1
