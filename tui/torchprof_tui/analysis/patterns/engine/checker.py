"""Check all patterns of the cheatsheet over one trace, in any scope of it.

    checker = Checker(trace)                            # one per trace: shared tables are computed on demand
    findings = checker.check(whole_trace_scope(trace))  # all patterns in a scope, worst first
    checker.decide_verdict(range_scope(t0, t1))         # the regime, GPU busy share, and what to do first
    checker.gap_finder.clip(t0, t1)                     # why each GPU was idle, gap by gap

A `Checker` is not thread-safe while it fills its tables, which its first check does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np

from torchprof_tui.analysis.patterns.engine import check_scope, largest_gaps
from torchprof_tui.analysis.patterns.engine.check_scope import Scope
from torchprof_tui.analysis.patterns.engine.gpu_gaps import GapFinder
from torchprof_tui.analysis.patterns.engine.largest_gaps import LargestGap
from torchprof_tui.analysis.patterns.engine.pattern import (
    Finding,
    Pattern,
    Remedy,
    Section,
    Severity,
    State,
    registered_patterns,
)
from torchprof_tui.analysis.patterns.engine.practices import fit_remedy
from torchprof_tui.analysis.patterns.engine.scope_view import ScopeView
from torchprof_tui.analysis.patterns.engine.trace_tables import RankContext, TraceTables
from torchprof_tui.analysis.patterns.engine.undecidable_reasons import qualify_answer, reword_for_slice
from torchprof_tui.analysis.patterns.rules import (  # noqa: F401  their import registers their patterns
    backward_pass,
    communication,
    conversions,
    cpu_lane,
    debug_leftovers,
    decode_tokens,
    dispatch_chain,
    gpu_kernels,
    gpu_lane,
    gpu_waits,
    graphs,
    host_code,
    kernel_shapes,
    machine,
    memory,
    memory_moves,
    multi_gpu,
    npu,
    op_loop,
    optimizer,
    python_in_step,
    repeated_inputs,
    serving,
    table_sums,
    throughput,
    torch_compile,
    warmup,
    written_out,
)
from torchprof_tui.analysis.patterns.verdict.verdict import Verdict, decide_verdict
from torchprof_tui.trace.core.arrays import keep_freed_memory, sorted_unique
from torchprof_tui.trace.model.trace import Trace

_ORDER = {
    Section.TABLE: ("overhead-bound", "compute-bound", "hotspot", "call-count", "cost-in-children"),
    Section.CPU_LANE: (
        "first-step-wide", "dead-window", "adaptive-launch", "fixed-launch", "trailing-sync", "hidden-copy",
    ),
    Section.GPU_LANE: ("buffer-request", "one-off-gap", "kernel-variance", "gemm-kernel", "copy-before-gemm"),
    Section.DISPATCH: ("canonical-chain", "matmul-to-mm", "matmul-to-bmm", "addmm-fusion"),
    Section.COMPILE: (
        "compiled-region", "beside-eager", "cache-lookup", "aot-prologue", "fxgraph-hash", "compile-tax",
        "graph-breaks",
    ),
    Section.BEYOND: (
        "recompiles", "metadata-op", "fused-triton", "sdpa-math", "sdpa-fused", "no-tensor-core", "occupancy-misread",
        "graph-replay", "exposed-comm", "straggler", "communication", "sync-in-step", "pageable-copy",
        "input-starved", "idle-gap", "tiny-kernels", "alloc-in-step", "memory-bound-elementwise", "gemm-efficiency",
        "wave-quantization", "autocast-casts", "layout-conversion", "cold-call", "not-warmed-up",
        "profiler-inflation", "serving-phases", "decode-without-graphs", "eager-fallback", "graph-padding",
        "kv-cache-cat", "token-sync", "mixed-batch", "scheduler-bound", "graph-input-copies", "moe-expert-loop",
        "optimizer-loop", "op-loop", "written-out", "repeated-mask", "equal-copies", "tensor-from-list",
        "one-sample-at-a-time", "few-blocks", "odd-matrix-size", "strided-reads", "colliding-atomics",
        "float64-kernels", "float32-attention", "gc-pause", "slow-host", "gqa-expand-copy", "clock-variation",
        "fsdp-prefetch", "op-compilation", "ai-cpu-ops", "host-code", "cpu-contention", "cpu-work", "memory-growth",
        "fragmentation", "peak-phase", "activation-memory", "temporary-spike", "allocator-retries",
        "graph-in-inference", "optimizer-states", "duplicate-copies", "kv-cache", "second-backward",
        "recomputed-forward", "unused-gradients", "anomaly-mode", "reads-one-by-one", "repeated-synchronize",
        "deterministic-algorithms", "python-in-step", "growing-cat", "repeated-clones", "offloaded-activations",
        "activation-statistics", "python-dispatch",
    ),
}  # fmt: skip
"""Pattern ids by section, related ones together: in lists and in the cheatsheet."""

PATTERNS: dict[str, Pattern] = {
    name: replace(registered_patterns()[name], section=section) for section, names in _ORDER.items() for name in names
}
"""id -> pattern, in this order."""

_STATE_ORDER = (State.FIRED, State.CANNOT_TELL, State.ABSENT)
_SEVERITY_ORDER = tuple(Severity)


class Checker:
    """Checks the patterns over one process's trace, in any scope. `rank_context`: None for a single rank.

    `with_serving_steps`: see `TraceTables`.
    """

    def __init__(self, trace: Trace, rank_context: RankContext | None = None, with_serving_steps: bool = False) -> None:
        keep_freed_memory()
        self.trace = trace
        self.tables = TraceTables(trace, rank_context, with_serving_steps)
        self.gap_finder = GapFinder(self.tables)

    @cached_property
    def default_scope(self) -> Scope:
        """The scope used unless one is given: the whole trace, of a slice the range it was cut to."""
        return check_scope.default_scope(self.trace)

    def view(self, scope: Scope, raise_if_cancelled: Callable[[], object] = lambda: None) -> ScopeView:
        """Return the view of a scope; `raise_if_cancelled` is called before each step that may take milliseconds."""
        return ScopeView(self.tables, self.gap_finder, scope, raise_if_cancelled)

    def check(self, scope: Scope | None = None, ids: Iterable[str] | None = None) -> list[Finding]:
        """Check all patterns (or those of `ids`) and return their findings, worst first.

        Order: problems by time at stake, then notices, artefacts, undecidable patterns, absent ones. Raises KeyError
        for an unknown id.
        """
        return check_view(self.view(scope or self.default_scope), ids)

    def decide_verdict(self, scope: Scope | None = None, findings: Sequence[Finding] = ()) -> Verdict:
        """Decide regime, busy share and advice of a scope; its `findings` make the advice more specific."""
        return decide_verdict(self.view(scope or self.default_scope), findings)

    def list_largest_gaps(self, scope: Scope | None = None, count: int = largest_gaps.MAX_GAPS) -> list[LargestGap]:
        """List the longest idle gaps of a scope, each with its place and line, longest first."""
        return largest_gaps.list_largest_gaps(self.view(scope or self.default_scope), count)

    def find_event_notes(self) -> dict[int, str]:
        """Describe single events for the lanes, by event: the trailing sync and the GPU work that it covers."""
        return cpu_lane.find_trailing_sync_note(self.view(self.default_scope))


def check_view(view: ScopeView, ids: Iterable[str] | None = None) -> list[Finding]:
    """Check all patterns (or those of `ids`) in a scope and return their findings, worst first: see `Checker.check`."""
    patterns = PATTERNS.values() if ids is None else [PATTERNS[pattern_id] for pattern_id in ids]
    findings = []
    for pattern in patterns:
        view.raise_if_cancelled()
        findings.append(_evaluate_pattern(pattern, view))
    return sorted(findings, key=severity_sort_key)


def _evaluate_pattern(pattern: Pattern, view: ScopeView) -> Finding:
    answer = qualify_answer(pattern, pattern.check(view), view.tables.data_loss)
    if view.tables.is_slice and answer.reason:
        answer = replace(answer, reason=reword_for_slice(answer.reason))
    if answer.state is State.FIRED:
        general = answer.remedy or Remedy(pattern.action, pattern.code)
        fitted = fit_remedy(view.tables.practices, general)
        remedy = answer.remedy if fitted == general else fitted
        rows = sorted_unique(answer.events)  # none for a pattern that fired by the events of other ranks only
        answer = replace(answer, events=rows[np.argsort(view.trace.start[rows], kind="stable")], remedy=remedy)
    line = None
    if answer.state is State.FIRED and pattern.severity is Severity.PROBLEM:
        line = view.tables.line_finder.find_common_line(answer.events, _MAX_LINE_EVENTS)
    return Finding(pattern, answer, min(answer.at_stake / view.scope.length, 1.0), line)


_MAX_LINE_EVENTS = 24  # events of a problem whose lines are looked up; each takes up to a quarter of a millisecond


def severity_sort_key(finding: Finding) -> tuple[int, int, bool, bool, float, int]:
    """Return the sort key of a finding: state, severity, the one that the verdict is about, then what each costs."""
    weight = _SEVERITY_ORDER.index(finding.pattern.severity) if finding.has_fired else 0
    return (
        _STATE_ORDER.index(finding.state),
        weight,
        not finding.is_significant,
        not finding.is_leading,
        -finding.share,
        -finding.answer.at_stake,
    )
