"""Check real traces against their expectations (`expectations/`), which were written from the trace files alone.

Subclass `ExpectationTests` in a test module that has a fixture `real`, which yields one `RealTrace` after the other.
"""

from __future__ import annotations

import gzip
import json
import random
import re
from bisect import bisect_right
from collections import Counter, defaultdict
from functools import cached_property
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.helpers.expectations import Expectation
from tests.helpers.long_run import scale_examples
from torchprof_tui.analysis.patterns.engine.check_scope import Scope, range_scope, step_scope
from torchprof_tui.analysis.patterns.engine.checker import PATTERNS, Checker
from torchprof_tui.analysis.patterns.engine.pattern import Finding, State
from torchprof_tui.trace.loading.load_in_process import load_trace

TRACE_SUFFIX = ".pt.trace.json.gz"


class RealTrace:
    """A trace file with its expectation, loaded and checked once for all tests of it."""

    def __init__(self, name: str, path: Path, expected: Expectation) -> None:
        self.name, self.path, self.expected = name, path, expected

    @cached_property
    def checker(self) -> Checker:
        return Checker(load_trace(str(self.path), cache=False))

    @cached_property
    def findings(self) -> list[Finding]:
        return list(self.checker.check())

    @cached_property
    def entries(self) -> list[dict[str, Any]]:
        """The complete events of the file, read with the standard library alone."""
        entries = json.loads(gzip.decompress(self.path.read_bytes()))["traceEvents"]
        return [entry for entry in entries if entry.get("ph") == "X" and entry["cat"] != "Trace"]


class ExpectationTests:
    """Tests of one real trace."""

    def test_answers_equal_the_expectation(self, real: RealTrace) -> None:
        states = {finding.id: finding.state for finding in real.findings}
        differ = [
            f"{pattern_id}: {states.get(pattern_id)}, not {state} ({real.expected.why[pattern_id]})"
            for pattern_id, state in real.expected.states.items()
            if states.get(pattern_id) is not state
        ]
        assert not differ, "\n".join(differ)
        assert real.checker.decide_verdict(findings=real.findings).regime.value == real.expected.regime

    def test_findings_are_consistent_in_every_scope(self, real: RealTrace) -> None:
        for scope in choose_scopes(real.checker, real.name, scale_examples(0.2)):
            assert_consistent(real.checker, scope, real.findings if scope.is_whole_trace else None)

    def test_patterns_of_names_and_counts_equal_a_scan_of_the_file(self, real: RealTrace) -> None:
        expected = scan_patterns(real.entries)
        fired = ids_in_state(real.findings, State.FIRED)
        assert {pattern: pattern in fired for pattern in expected} == expected

    def test_the_busy_share_equals_a_scan_of_the_file(self, real: RealTrace) -> None:
        busy = real.checker.decide_verdict(findings=real.findings).busy
        assert busy == pytest.approx(scan_busy_share(real.entries), abs=2e-4)


def ids_in_state(findings: list[Finding], state: State) -> set[str]:
    """Ids of the findings in this state."""
    return {finding.id for finding in findings if finding.state is state}


def assert_consistent(checker: Checker, scope: Scope, findings: list[Finding] | None = None) -> None:
    """Assert what must hold for any trace and scope; `findings`: if they were computed already."""
    trace = checker.trace
    if findings is None:
        findings = list(checker.check(scope))
    assert {finding.id for finding in findings} == set(PATTERNS)
    for finding in findings:
        answer = finding.answer
        assert 0 <= answer.at_stake <= scope.length, finding.id
        assert 0 <= finding.share <= 1, finding.id
        if finding.has_fired:
            start = trace.start[answer.events]
            end = np.maximum(start + trace.duration[answer.events], start + 1)
            assert len(answer.events), finding.id
            assert ((start < scope.t1) & (end > scope.t0)).all(), finding.id
            assert (np.diff(start) >= 0).all(), finding.id
            assert answer.seen, finding.id
        else:
            assert not len(answer.events), finding.id
            assert bool(answer.reason) == (finding.state is State.CANNOT_TELL), finding.id
    verdict = checker.decide_verdict(scope, findings)
    assert verdict.first
    assert verdict.busy is None or 0 <= verdict.busy <= 1 + 1e-9


def fixed_scopes(checker: Checker) -> list[Scope]:
    """The default scope, two steps, and ranges inside, around and outside of the trace."""
    first, last = checker.trace.span
    scopes = [checker.default_scope, *(step_scope(step) for step in checker.trace.steps[:2])]
    for begin, end in ((0.2, 0.3), (0.5, 0.5), (0.0, 0.07), (0.9, 1.0), (1.1, 1.2), (-0.5, -0.1)):
        t0 = first + int((last - first) * begin)
        scopes.append(range_scope(t0, max(first + int((last - first) * end), t0 + 1)))
    return scopes


def choose_scopes(checker: Checker, name: str, count: int) -> list[Scope]:
    """The default scope, and some of the other fixed ones and of random ones: different ones for each trace."""
    default, *others = [*fixed_scopes(checker), *random_scopes(checker, name, count)]
    return [default, *random.Random(name).sample(others, count)]


def random_scopes(checker: Checker, name: str, count: int) -> list[Scope]:
    """Random ranges from a microsecond to more than the trace's length, inside and near it.

    Seeded by `name`: the same ranges in each run, different ones for each trace.
    """
    rng = random.Random(name)
    first, last = checker.trace.span
    span = max(last - first, 1000)
    scopes = []
    for _ in range(count):
        length = int(1000 * (1.2 * span / 1000) ** rng.random())
        t0 = first + int(rng.uniform(-0.1, 1.05) * span)
        scopes.append(range_scope(t0, t0 + max(length, 1)))
    return scopes


# ---- the same facts, scanned from the JSON with the standard library alone -----------------------------------------


GPU_WORK = ("kernel", "gpu_memcpy", "gpu_memset")
JsonEntry = dict[str, Any]


def scan_patterns(entries: list[JsonEntry]) -> dict[str, bool]:
    """Decide the patterns that depend on a name, a count or a containment: id -> whether it fires."""
    names = Counter(entry["name"] for entry in entries)
    ops = [entry for entry in entries if entry["cat"] == "cpu_op"]
    steps = sorted(_steps(entries), key=lambda entry: entry["ts"])
    launches = Counter(entry["args"]["correlation"] for entry in entries if entry["cat"] in GPU_WORK)

    def any_named(prefix: str) -> bool:
        return any(name.startswith(prefix) for name in names)

    fires = {
        "compiled-region": any_named("Torch-Compiled Region"),
        "cache-lookup": any_named("TorchDynamo Cache Lookup"),
        "aot-prologue": any_named("AOTDispatcher Runtime Wrapper Prologue"),
        "fxgraph-hash": any_named("## Call CompiledFxGraph"),
        "buffer-request": any_named("Activity Buffer Request"),
        "adaptive-launch": any("Occupancy" in name for name in names),
        "sdpa-math": any_named("aten::_scaled_dot_product_attention_math"),
        "fused-triton": any(
            entry["cat"] == "kernel" and re.match(r"triton_(poi|red|per)_fused_", entry["name"]) for entry in entries
        ),
        "graph-replay": max(launches.values(), default=0) > 1,
    }
    if ops and len(ops) < 5000:
        fires["matmul-to-mm"] = _has_child_op(ops, "aten::matmul", "aten::mm")
        fires["matmul-to-bmm"] = _has_child_op(ops, "aten::matmul", "aten::bmm")
    prompts = [entry for entry in entries if entry["name"].startswith("step[PREFILL")]
    steps = [step for step in steps if not any(_overlap(entry, step) for entry in prompts)]
    if len(steps) >= 3:
        first = steps[0]
        overhead = sum(_overlap(entry, first) for entry in entries if entry["cat"] == "overhead")
        median_of_others = float(np.median([step["dur"] for step in steps[1:]]))
        is_wide = first["dur"] - overhead >= 1.5 * median_of_others
        fires["first-step-wide"] = is_wide and not _is_hidden(entries, first, first["dur"] - median_of_others)
    return fires


def _is_hidden(entries: list[JsonEntry], step: JsonEntry, excess: float) -> bool:
    """Return whether the GPU has more work of the step than the step takes, and is hardly idle in it."""
    launched = {
        entry["args"].get("correlation")
        for entry in entries
        if entry["cat"] in ("cuda_runtime", "cuda_driver") and _overlap(entry, step)
    } - {None}
    work = [entry for entry in entries if entry["cat"] in ("kernel", "gpu_memcpy", "gpu_memset")]
    own = sum(entry["dur"] for entry in work if entry["args"].get("correlation") in launched)
    idle, reached = 0.0, step["ts"]
    for entry in sorted(work, key=lambda entry: entry["ts"]):
        idle += max(min(entry["ts"], _end(step)) - reached, 0)
        reached = max(reached, min(_end(entry), _end(step)))
    return own > step["dur"] and idle + _end(step) - reached < 0.1 * excess


def _steps(entries: list[JsonEntry]) -> list[JsonEntry]:
    return [
        entry for entry in entries if entry["cat"] == "user_annotation" and entry["name"].startswith("ProfilerStep#")
    ]


def _end(entry: JsonEntry) -> float:
    end: float = entry["ts"] + entry["dur"]
    return end


def _overlap(entry: JsonEntry, other: JsonEntry) -> float:
    overlap: float = max(min(_end(entry), _end(other)) - max(entry["ts"], other["ts"]), 0)
    return overlap


def _has_child_op(ops: list[JsonEntry], parent: str, child: str) -> bool:
    """Whether any op named `child` has an op named `parent` as its innermost enclosing op."""
    by_thread = defaultdict(list)
    for op in ops:
        by_thread[op["tid"]].append(op)
    for op in ops:
        if op["name"] != child:
            continue
        enclosing = [
            other
            for other in by_thread[op["tid"]]
            if other["ts"] <= op["ts"] and _end(other) >= _end(op) and other is not op
        ]
        if enclosing and min(enclosing, key=lambda other: other["dur"])["name"] == parent:
            return True
    return False


def scan_busy_share(entries: list[JsonEntry]) -> float | None:
    """Measure the busy share over the steps and the work that they launched. None: no GPU work was recorded.

    Left out: idle time of the profiler (loading a module is the program's), before the first work if that was launched
    outside the window or long before it began.
    """
    work = sorted((entry for entry in entries if entry["cat"] in GPU_WORK), key=lambda entry: entry["ts"])
    if not work:
        return None
    overhead = [entry for entry in entries if entry["cat"] == "overhead" and "Loading" not in entry["name"]]
    first, last = _scan_window(entries, work)
    calls = {
        entry["args"]["correlation"]: entry for entry in entries if entry["cat"] in ("cuda_runtime", "cuda_driver")
    }
    starts = [entry["ts"] for entry in work]

    def is_known(time: float) -> bool:
        call = calls.get(work[0]["args"]["correlation"])
        is_prompt = call is not None and call["ts"] >= first and work[0]["ts"] - _end(call) <= 100
        return is_prompt or bisect_right(starts, time) > 0

    bounds = {time for entry in (*work, *overhead) for time in (entry["ts"], _end(entry)) if first < time < last}
    work_time, overhead_time = CoveredTime(work), CoveredTime(overhead)
    busy = idle = 0.0
    for begin, end in pairwise(sorted({first, last, *bounds})):
        middle = (begin + end) / 2
        if middle in work_time:
            busy += end - begin
        elif middle not in overhead_time and is_known(middle):
            idle += end - begin
    return busy / (busy + idle)


def _scan_window(entries: list[JsonEntry], work: list[JsonEntry]) -> tuple[float, float]:
    """From the first step's start, or the end of what was launched before it, to the end of the last step or of the
    last work launched in one."""
    steps = _steps(entries)
    first, last = min(step["ts"] for step in steps), max(map(_end, steps))
    launch_times = {
        entry["args"]["correlation"]: entry["ts"]
        for entry in entries
        if entry["cat"] in ("cuda_runtime", "cuda_driver")
    }
    launched = [entry for entry in work if first <= launch_times.get(entry["args"]["correlation"], 0) < last]
    backlog = [each for stream in _split_streams(work) for each in _take_backlog(stream, launch_times, first)]
    return max(first, *map(_end, backlog), 0), max(last, *map(_end, launched))


def _split_streams(work: list[JsonEntry]) -> list[list[JsonEntry]]:
    streams: dict[tuple[object, object], list[JsonEntry]] = {}
    for entry in work:
        streams.setdefault((entry["pid"], entry["tid"]), []).append(entry)
    return list(streams.values())


def _take_backlog(stream: list[JsonEntry], launch_times: dict[object, float], first: float) -> list[JsonEntry]:
    """Return what was launched before a time: a stream runs what has no recorded launch before what has one."""
    launches = [launch_times.get(entry["args"]["correlation"]) for entry in stream]
    known = next((index for index, launch in enumerate(launches) if launch is not None), 0)
    return [
        entry
        for index, (entry, launch) in enumerate(zip(stream, launches, strict=True))
        if (launch < first if launch is not None else index < known)
    ]


class CoveredTime:
    """The union of the entries' time, overlapping or not."""

    def __init__(self, entries: list[JsonEntry]) -> None:
        intervals = sorted((entry["ts"], _end(entry)) for entry in entries)
        self.starts = [start for start, _ in intervals]
        self.latest_end = list(accumulate((end for _, end in intervals), max))

    def __contains__(self, time: float) -> bool:
        """Whether any entry that started by then ends after this time."""
        count = bisect_right(self.starts, time)
        return count > 0 and self.latest_end[count - 1] > time
