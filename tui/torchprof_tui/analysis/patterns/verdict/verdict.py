"""Decide the verdict on a scope: its regime, how busy the GPU was, and the one thing to do first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace

import numpy as np

from torchprof_tui.analysis.dispatch.frame_names import SourceLine
from torchprof_tui.analysis.patterns.engine import thresholds
from torchprof_tui.analysis.patterns.engine import undecidable_reasons as reasons
from torchprof_tui.analysis.patterns.engine.idle_causes import DeviceTimeShares, IdleCause
from torchprof_tui.analysis.patterns.engine.pattern import Finding, Remedy
from torchprof_tui.analysis.patterns.engine.practices import Vendor, fit_remedy
from torchprof_tui.analysis.patterns.engine.scope_view import ScopeView, format_count, format_percent
from torchprof_tui.analysis.patterns.rules.warmup import estimate_frame_cost, find_warming_steps
from torchprof_tui.analysis.patterns.verdict.cpu_only import build_cpu_time_tree, diagnose_cpu
from torchprof_tui.analysis.patterns.verdict.diagnosis import (
    Diagnosis,
    Evidence,
    RecordingFault,
    Says,
    always,
    find_pattern,
)
from torchprof_tui.analysis.patterns.verdict.gpu_work import diagnose_gpu_work
from torchprof_tui.analysis.patterns.verdict.time_tree import build_time_tree
from torchprof_tui.analysis.patterns.verdict.tree_model import COMPUTE, EXPOSED, TimeTree
from torchprof_tui.analysis.patterns.verdict.waiting import diagnose_waiting, measure_turn_taking, say_cold
from torchprof_tui.trace.core.records import record
from torchprof_tui.trace.core.text_enum import TextEnum
from torchprof_tui.trace.core.time_format import format_duration
from torchprof_tui.trace.model.event_kind import Kind


class Regime(TextEnum):
    OVERHEAD = "overhead-bound"
    COMPUTE = "compute-bound"
    INPUT = "input-bound"
    COMMUNICATION = "communication-bound"
    MIXED = "mixed"
    CPU_ONLY = "cpu-only"
    UNKNOWN = "unknown"


@record
class Verdict:
    """The answer that is read first.

    `busy`: GPU busy share 0..1 of `busy_base`, None without a GPU. `first`: what costs most and what to do about it,
    on one line. `why`: the numbers behind it. `line`: where in the user's code. `recording_fault`: why the recording
    does not represent the program, "" if it does. `what`: the part of `first` that says what costs most. `late_rank`:
    the index of the rank that is waited for, if only its own verdict can say why. `tree`: the scope's time by cause,
    None where nothing is known. `cause`: the part of it that `first` is about.
    `remedy`: the part of `first` that says what to do, "" for nothing. `pattern`: the fired pattern that `first` is
    about, `fault_pattern` the one that says why the recording is not representative: ids, "" for none.
    `diagnosis`: what the texts are built from, None where nothing was found.
    """

    regime: Regime
    busy: float | None
    first: str
    why: str = ""
    line: SourceLine | None = None
    recording_fault: str = ""
    what: str = ""
    late_rank: int | None = None
    tree: TimeTree | None = None
    cause: str = ""
    remedy: str = ""
    busy_base: str = "the steps"
    pattern: str = ""
    fault_pattern: str = ""
    diagnosis: Diagnosis | None = field(default=None, compare=False, repr=False)

    @property
    def is_problem(self) -> bool:
        """Whether the regime is one in which the GPU waits."""
        return self.regime in (Regime.OVERHEAD, Regime.INPUT, Regime.COMMUNICATION)

    @property
    def headline(self) -> str:
        """What limits the program, in words that need no explanation beside them."""
        if self.regime is not Regime.MIXED:
            return str(self.regime.value)
        has_slow_start = self.diagnosis is not None and bool(self.diagnosis.say_before(0.0))
        return "compute-bound after the first step" if has_slow_start else "mixed (no single limit)"

    @property
    def text(self) -> str:
        """The whole verdict on one line."""
        if self.busy is None:
            return self.first
        return f"{self.headline} · GPU busy {format_percent(self.busy)} of {self.busy_base} · {self.first}"


@record
class ScopeRegime:
    """What limits a scope: its regime, how busy the GPU was (0..1, None without GPU work), and why nothing is known.

    `busy_base`: what `busy` is a share of.
    """

    regime: Regime
    busy: float | None
    undetermined: str = ""
    busy_base: str = ""


def decide_verdict(view: ScopeView, findings: Sequence[Finding] = ()) -> Verdict:
    """Decide the regime of a scope and what to do first.

    `findings` of the same scope make the answer specific: they name what causes a part of the time, and its remedy.
    """
    if missing_reason := view.missing_window_reason():
        return _decide_without_gpu(view, missing_reason, findings)
    shares, base = view.shares, view.window_label
    measured = measure_regime(view)
    regime, data_loss = measured.regime, view.tables.data_loss
    tree = build_time_tree(view, findings)
    if measured.undetermined:
        return Verdict(regime, shares.busy, measured.undetermined, tree=tree, busy_base=base)
    evidence = Evidence(view, findings, shares, tree)
    diagnosis = _choose_diagnosis(evidence, regime)
    if regime is Regime.INPUT and diagnosis.cause == COMPUTE:  # the wait is less than what this work costs
        regime = Regime.MIXED
    fitted = fit_remedy(view.tables.practices, Remedy(diagnosis.remedy)).action if diagnosis.remedy else ""
    after = f" ({reasons.PARTIAL_INPUT_NOTE}: {data_loss.summary})" if data_loss else ""
    diagnosis = replace(diagnosis, remedy=fitted, fault=find_recording_fault(evidence), around=("", after))
    return _name_largest(view, Verdict(regime, shares.busy, "", tree=tree, busy_base=base), diagnosis, findings)


def tell_costs(verdict: Verdict, findings: Sequence[Finding]) -> Verdict:
    """Say of a verdict's own findings what they cost: a wait is less where another finding explains a part of it.

    Where others explain most of it the wait stays what was measured.
    """
    costs = {found.id: found.share for found in findings if found.is_significant}
    return _word(verdict, verdict.diagnosis, costs) if verdict.diagnosis is not None else verdict


def _word(verdict: Verdict, diagnosis: Diagnosis, costs: Mapping[str, float]) -> Verdict:
    """Build the texts of a verdict. `costs`: shares of the time by finding; without one, what was measured is said."""
    fault = diagnosis.fault.say(costs.get(diagnosis.fault.pattern, diagnosis.fault.share))
    cost = costs.get(verdict.pattern or verdict.cause, diagnosis.measured)
    share = cost if 2 * cost > diagnosis.measured else diagnosis.measured
    what, why = diagnosis.say(share), diagnosis.say_why(share)
    if before := diagnosis.say_before(costs.get(_FIRST_STEP, 0.0)):
        what = f"{before}; {what}"
    sentence = f"{what}: {diagnosis.remedy}" if diagnosis.remedy else what
    if fault and not diagnosis.is_recording_fault:
        sentence = f"{fault}; {sentence}"
    return replace(verdict, first=sentence.join(diagnosis.around), what=what, why=why, recording_fault=fault)


def measure_regime(view: ScopeView) -> ScopeRegime:
    """Measure what limits a scope, for the verdict and for the sentence under the profiler's table."""
    if view.missing_window_reason():
        return ScopeRegime(Regime.UNKNOWN, None)
    shares, data_loss, base = view.shares, view.tables.data_loss, view.window_label
    regime = decide_regime(shares)
    if regime is Regime.UNKNOWN and measure_turn_taking(view):
        regime = Regime.MIXED
    # Missing entries cannot make a GPU less busy, so COMPUTE stays decidable.
    if data_loss and regime is not Regime.COMPUTE and reasons.is_loss_significant(data_loss):
        text = f"undetermined: {data_loss.reason}; the numbers are {reasons.PARTIAL_INPUT_NOTE}"
        return ScopeRegime(Regime.UNKNOWN, shares.busy, text, base)
    if unknown := _describe_unknown(view):
        return ScopeRegime(Regime.UNKNOWN, shares.busy, unknown, base)
    return ScopeRegime(regime, shares.busy, busy_base=base)


def _name_largest(view: ScopeView, verdict: Verdict, diagnosis: Diagnosis, findings: Sequence[Finding]) -> Verdict:
    """Add to a verdict what costs most, why, where, and the pattern that is about it."""
    finder, pause = view.tables.line_finder, diagnosis.pause
    named = replace(
        verdict,
        line=finder.find_gap_line(*pause.longest) if pause else finder.find_common_line(diagnosis.events),
        cause=diagnosis.cause,
        remedy=diagnosis.remedy,
        pattern=find_pattern(diagnosis, findings),
        fault_pattern=diagnosis.fault.pattern,
        late_rank=diagnosis.late_rank,
        diagnosis=diagnosis,
    )
    return _word(named, diagnosis, {})


def _describe_unknown(view: ScopeView) -> str:
    """Describe how much of a window is not known, "" where enough is known to decide."""
    unknown = int(view.gaps.time[:, [IdleCause.UNKNOWN, IdleCause.LEAD_IN]].sum())
    total = view.window_length * len(view.tables.devices)
    share = unknown / total if total else 0.0
    if share < thresholds.UNKNOWN_SHARE.value:
        return ""
    if call := _name_early_wait(view):
        return (
            f"undetermined: for {format_percent(share)} of the time {call} waits for GPU work from before the "
            "recording; record more steps, and judge the later ones"
        )
    return (
        f"undetermined: {format_percent(share)} of the time is before the first or after the last recorded GPU "
        "work, or the work's launch was not recorded; record whole steps, with CPU and CUDA activities"
    )


def _name_early_wait(view: ScopeView) -> str:
    """Name the call in which the CPU waits during most of the unknown time at the start, "" for none."""
    gaps = view.gaps.select(view.gaps.time[:, IdleCause.LEAD_IN] > 0)
    if not len(gaps):
        return ""
    longest = int(gaps.duration.argmax())
    t0, t1 = int(gaps.start[longest]), int(gaps.end[longest])
    for calls in (view.gap_finder.sync_calls, view.gap_finder.blocking_copies):
        covered = np.minimum(calls.end, t1) - np.maximum(calls.start, t0)
        if len(calls) and 2 * int(covered.max()) > t1 - t0:
            return view.tables.name(int(calls.row[covered.argmax()]))
    return ""


def _decide_without_gpu(view: ScopeView, missing_reason: str, findings: Sequence[Finding]) -> Verdict:
    data_loss = view.tables.data_loss
    if data_loss:
        why = reasons.format_missing_reason(missing_reason, data_loss)
        return Verdict(Regime.UNKNOWN, None, f"undetermined: {why}")
    if view.tables.is_slice:
        missing_reason = reasons.reword_for_slice(missing_reason)
    tables = view.tables
    tree = build_cpu_time_tree(view) if not len(tables.work) else None
    if tree is None:
        if not (len(tables.ops) or len(tables.calls) or len(tables.work) or tables.is_slice):
            missing_reason = "no operator, runtime call or GPU work was recorded: is this a trace of torch.profiler?"
        return Verdict(Regime.UNKNOWN, None, missing_reason)
    diagnosis = diagnose_cpu(view, tree, findings)
    # Runtime calls without GPU work: the program uses a GPU, and the recording lacks it.
    is_cpu_only = not tables.is_slice and not len(tables.calls)
    prefix = "CPU-only trace:" if is_cpu_only else f"{_describe_lost_work(view) or missing_reason};"
    diagnosis = replace(diagnosis, around=(f"{prefix} ", ""))
    return _name_largest(view, Verdict(Regime.CPU_ONLY, None, "", tree=tree), diagnosis, findings)


def _describe_lost_work(view: ScopeView) -> str:
    """Describe calls that launched work of which none was recorded, and why that happens; "" without such calls."""
    calls = view.match_names(r".*(Launch|Memcpy|Memset)", Kind.RUNTIME)
    if not len(calls) or len(view.tables.work):
        return ""
    amd = view.tables.practices.vendor is Vendor.AMD
    count = format_count(len(calls), "call that launches or copies", "calls that launch or copy")
    return (
        f"{count}, but no GPU work was recorded: {'roctracer' if amd else 'CUPTI'} delivered none (no permission, "
        f"another profiler{'' if amd else ', or WSL'})"
    )


def _choose_diagnosis(evidence: Evidence, regime: Regime) -> Diagnosis:
    """Choose what costs most: a wait with its remedy, or the GPU's own work; the regime decides where it is clear."""
    waiting, work, fault = diagnose_waiting(evidence), diagnose_gpu_work(evidence), evidence.main_fault
    if fault is not None and waiting is not None and _is_compiled_away(fault, waiting):
        fault = None
    others = [found for found in (waiting, work) if found is not None and _names_one_cause(found, fault)]
    if fault is not None and all(fault.share >= found.share for found in others) and not _is_decoding(evidence, fault):
        return fault
    say_before = describe_first_step_lead_in(evidence) if regime in (Regime.MIXED, Regime.COMPUTE) else None
    if regime is Regime.COMPUTE and say_before is not None:
        return replace(work, say_before=lambda cost: say_before(cost) if cost else "")
    if waiting is None or regime is Regime.COMPUTE:
        return work
    if say_before is not None:
        return replace(work, say_before=say_before)
    if regime in (Regime.INPUT, Regime.COMMUNICATION, Regime.OVERHEAD, Regime.UNKNOWN):
        return work if work.share > waiting.share else waiting
    candidates = [work, waiting, *([evidence.main_problem] if evidence.main_problem else [])]
    largest = max(candidates, key=lambda candidate: candidate.own_share)
    is_idle = waiting.cause != EXPOSED  # collectives are work of the GPU
    is_mostly_busy = evidence.shares.busy >= thresholds.GPU_BUSY_MOSTLY.value
    if largest is waiting and is_idle and is_mostly_busy and not work.pattern:  # a finding would say its own share
        return replace(waiting, say=lambda share: f"{work.what}; {waiting.say(share)}")
    return largest


def _is_compiled_away(fault: Diagnosis, waiting: Diagnosis) -> bool:
    """Return whether ops written out are a small part of a wait for launches: its remedy mends both."""
    is_launching = waiting.cause == IdleCause.DISPATCH.id and not waiting.pattern
    return (
        is_launching
        and fault.pattern == "written-out"
        and fault.share < thresholds.COMPILED_SHARE_OF_WAIT.value * waiting.measured
    )


def _names_one_cause(diagnosis: Diagnosis, fault: Diagnosis | None) -> bool:
    """Return whether a diagnosis names what to change, and does not describe what most programs do.

    A pause at one place does, unless the fault is what the CPU does in it.
    """
    if diagnosis.pause is not None:
        return fault is not None and fault.cause != diagnosis.cause
    return (bool(diagnosis.pattern) and diagnosis.pattern not in _DESCRIPTIONS) or diagnosis.cause in _SPECIFIC_CAUSES


def _is_decoding(evidence: Evidence, fault: Diagnosis) -> bool:
    """Return whether tokens are generated without CUDA graphs, which launch the ops of a fault at once as well."""
    if fault.pattern == "one-sample-at-a-time" or "decode-without-graphs" not in evidence.fired:
        return False
    return fault.cause != COMPUTE


_DESCRIPTIONS = frozenset(
    ["memory-bound-elementwise", "gemm-efficiency", "sync-in-step", "tiny-kernels", "decode-without-graphs"]
)
_SPECIFIC_CAUSES = frozenset([IdleCause.INPUT.id, IdleCause.COLD_CALL.id, IdleCause.CPU_COMPUTE.id, EXPOSED])


def decide_regime(shares: DeviceTimeShares) -> Regime:
    if shares.idle.get(IdleCause.QUEUED, 0.0) >= thresholds.OVERHEAD_SHARE_OF_IDLE.value:
        return Regime.UNKNOWN  # the GPU held work back for most of the time, and nothing says why
    lost_shares = {Regime.COMMUNICATION: shares.communication, Regime.INPUT: shares.input}
    largest = max(lost_shares, key=lambda regime: lost_shares[regime])
    if lost_shares[largest] >= thresholds.BOUND_SHARE.value and lost_shares[largest] >= shares.overhead:
        return largest
    if shares.compute >= thresholds.GPU_BUSY_HIGH.value:
        return Regime.COMPUTE
    return Regime.OVERHEAD if shares.is_overhead_bound else Regime.MIXED


_FIRST_STEP = "first-step-wide"


def describe_first_step_lead_in(evidence: Evidence) -> Says | None:
    """Describe how the first step explains why the GPU was idle, and later ones keep it busy; None if that is not so.

    By what the step costs; where that is not known (0), by how long the GPU is idle in it.
    """
    view, steps = evidence.view, evidence.view.tables.steps
    if len(view.steps) < thresholds.LEAD_IN_MIN_STEPS.value or not len(view.work):
        return None
    t0, t1 = view.window
    second = int(view.steps.start[1])
    if int(view.steps.start[0]) != int(steps.start[0]) or not t0 < second < t1:
        return None
    # The first step's work may run on into the second: the queue that it left is what keeps the GPU busy.
    later = view.gap_finder.clip(second, t1)
    idle_later, idle_all = int(later.program_time.sum()), int(view.gaps.program_time.sum())
    later_time = (t1 - second) * len(view.tables.devices)
    busy_afterwards = 1 - int(later.duration.sum()) / later_time
    if busy_afterwards < thresholds.GPU_BUSY_HIGH.value or idle_later > thresholds.LEAD_IN_SHARE.value * idle_all:
        return None
    left_out = (IdleCause.PROFILER, IdleCause.LEAD_IN)
    times = view.gap_finder.clip(t0, second).time_by_cause().items()
    shares = {cause: time / evidence.device_time for cause, time in times if cause not in left_out}
    largest = sorted(shares, key=lambda cause: -shares[cause])[:3]
    listed = ", ".join(f"{cause.label} {format_percent(shares[cause])}" for cause in largest)
    idle, in_first = format_percent(1 - evidence.shares.busy), format_percent(sum(shares.values()))
    waits, then = (
        " and ".join(cause.label for cause in largest[:2]),
        f"then it is {format_percent(busy_afterwards)} busy",
    )

    def say(cost: float) -> str:
        if cost:
            return f"the first step costs {format_percent(cost)} of the time: the GPU waits in it ({waits}), {then}"
        part = "all of it" if in_first == idle else in_first
        return f"the GPU is idle {idle} of the time, {part} in the first step ({listed}), {then}"

    return say


def find_recording_fault(evidence: Evidence) -> RecordingFault:
    """Find why the numbers of this scope are not those of the program."""
    cold = evidence.idle(IdleCause.COLD_CALL) - evidence.op_compilation  # which later steps do as well
    if cold >= thresholds.COLD_SHARE.value:
        return RecordingFault(say_cold("; record later steps"), cold, "cold-call")
    if "not-warmed-up" in evidence.fired:
        warming = evidence.view.tables.compute_once(find_warming_steps)
        if not warming.count:
            return RecordingFault(always("not warmed up: record later steps"), pattern="not-warmed-up")
        first, last = (format_duration(warming.durations[index]) for index in (0, warming.count - 1))
        return RecordingFault(always(f"not warmed up ({first}, then {last} a step)"), pattern="not-warmed-up")
    why, pattern = "", _FIRST_STEP if describe_first_step_lead_in(evidence) else ""
    if "profiler-inflation" in evidence.fired and evidence.shares.busy < thresholds.GPU_BUSY_MOSTLY.value:
        share = min(estimate_frame_cost(evidence.view)[1] / evidence.view.scope.length, 1.0)
        why = f"Python stacks cost up to {format_percent(share)} of the time; record without them to measure"
    return RecordingFault(always(why), pattern=pattern)
