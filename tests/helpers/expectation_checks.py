"""What must hold for every real trace that was read by hand (`expectations/`), wherever it lies.

`HeldToItsReading` is the tests; who subclasses it brings a fixture `real`, one trace after the other.
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
from torchprof_tui.analysis.patterns.engine import check_scope as scopes
from torchprof_tui.analysis.patterns.engine.check_scope import Scope
from torchprof_tui.analysis.patterns.engine.checker import PATTERNS, Checker
from torchprof_tui.analysis.patterns.engine.pattern import Finding, State
from torchprof_tui.trace.loading.load import load_trace

ENDING = ".pt.trace.json.gz"


class Real:
    """A trace, opened once for all that is asked of it."""

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
        """The complete events of the file, by the standard library alone."""
        entries = json.loads(gzip.decompress(self.path.read_bytes()))["traceEvents"]
        return [entry for entry in entries if entry.get("ph") == "X" and entry["cat"] != "Trace"]


class HeldToItsReading:
    def test_says_what_reading_it_says(self, real: Real) -> None:
        says = {found.id: found.state for found in real.findings}
        differ = [
            f"{one}: {says.get(one)}, not {state} ({real.expected.why[one]})"
            for one, state in real.expected.states.items()
            if says.get(one) is not state
        ]
        assert not differ, "\n".join(differ)
        assert real.checker.decide_verdict(findings=real.findings).regime.value == real.expected.regime

    def test_holds_together_in_every_scope(self, real: Real) -> None:
        for scope in [*scopes_of(real.checker), *random_scopes(real.checker, real.name, 8)]:
            holds_together(real.checker, scope, real.findings if scope.is_whole_trace else None)

    def test_names_counts_and_steps_agree_with_the_file_itself(self, real: Real) -> None:
        wanted = by_hand(real.entries)
        fired = named(real.findings, State.FIRED)
        assert {pattern: pattern in fired for pattern in wanted} == wanted

    def test_the_busy_share_agrees_with_a_sweep_over_sorted_work(self, real: Real) -> None:
        said = real.checker.decide_verdict(findings=real.findings).busy
        assert said == pytest.approx(busy_by_hand(real.entries), abs=2e-4)


def named(findings: list[Finding], state: State) -> set[str]:
    return {found.id for found in findings if found.state is state}


def holds_together(checker: Checker, scope: Scope, findings: list[Finding] | None = None) -> None:
    """What must hold for any trace and any scope; `findings` where it has been asked already."""
    trace = checker.trace
    if findings is None:
        findings = list(checker.check(scope))
    assert {found.id for found in findings} == set(PATTERNS)
    for found in findings:
        answer = found.answer
        assert 0 <= answer.at_stake <= scope.length, found.id
        assert 0 <= found.share <= 1, found.id
        if found.has_fired:
            start = trace.start[answer.events]
            end = np.maximum(start + trace.duration[answer.events], start + 1)
            assert len(answer.events), found.id
            assert ((start < scope.t1) & (end > scope.t0)).all(), found.id
            assert (np.diff(start) >= 0).all(), found.id
            assert answer.seen, found.id
        else:
            assert not len(answer.events), found.id
            assert bool(answer.reason) == (found.state is State.CANNOT_TELL), found.id
    said = checker.decide_verdict(scope, findings)
    assert said.advice
    assert said.busy is None or 0 <= said.busy <= 1 + 1e-9


def scopes_of(checker: Checker) -> list[Scope]:
    first, last = checker.trace.span
    found = [checker.default_scope, *(scopes.step_scope(step) for step in checker.trace.steps[:2])]
    for begins, ends in ((0.2, 0.3), (0.5, 0.5), (0.0, 0.07), (0.9, 1.0), (1.1, 1.2), (-0.5, -0.1)):
        t0 = first + int((last - first) * begins)
        found.append(scopes.range_scope(t0, max(first + int((last - first) * ends), t0 + 1)))
    return found


def random_scopes(checker: Checker, name: str, count: int) -> list[Scope]:
    """Ranges of every length, from a microsecond up to more than the trace, that begin anywhere near it: the same in
    each run, others for each trace."""
    draw = random.Random(name)
    first, last = checker.trace.span
    span = max(last - first, 1000)
    found = []
    for _ in range(count):
        length = int(1000 * (1.2 * span / 1000) ** draw.random())
        t0 = first + int(draw.uniform(-0.1, 1.05) * span)
        found.append(scopes.range_scope(t0, t0 + max(length, 1)))
    return found


# ---- the same facts, read from the JSON with the standard library alone --------------------------------------------


def by_hand(entries: list[dict[str, Any]]) -> dict[str, bool]:
    """Patterns that a name, a count or a containment decides."""
    names = Counter(entry["name"] for entry in entries)
    on_cpu = [entry for entry in entries if entry["cat"] == "cpu_op"]
    steps = sorted(
        (entry for entry in entries if entry["cat"] == "user_annotation" and entry["name"].startswith("ProfilerStep#")),
        key=lambda entry: entry["ts"],
    )
    taken = [step["dur"] for step in steps]
    profiler = [entry for entry in entries if entry["cat"] == "overhead"]

    def inside_first(entry: dict[str, Any]) -> float:
        first = steps[0]
        return max(min(entry["ts"] + entry["dur"], first["ts"] + first["dur"]) - max(entry["ts"], first["ts"]), 0)

    def any_named(start: str) -> bool:
        return any(name.startswith(start) for name in names)

    def below(parent: str, child: str) -> bool:
        """A child whose innermost enclosing op is the parent."""
        for entry in on_cpu:
            if entry["name"] == child:
                around = [
                    other
                    for other in by_thread[entry["tid"]]
                    if other["ts"] <= entry["ts"]
                    and other["ts"] + other["dur"] >= entry["ts"] + entry["dur"]
                    and other is not entry
                ]
                if around and min(around, key=lambda other: other["dur"])["name"] == parent:
                    return True
        return False

    by_thread = defaultdict(list)
    for entry in on_cpu:
        by_thread[entry["tid"]].append(entry)
    launched = Counter(
        entry["args"]["correlation"] for entry in entries if entry["cat"] in ("kernel", "gpu_memcpy", "gpu_memset")
    )
    found = {
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
        "graph-replay": max(launched.values()) > 1,
    }
    if on_cpu and len(on_cpu) < 5000:
        found["matmul-to-mm"] = below("aten::matmul", "aten::mm")
        found["matmul-to-bmm"] = below("aten::matmul", "aten::bmm")
    if len(steps) >= 3:
        mine = taken[0] - sum(map(inside_first, profiler))
        found["first-step-wide"] = mine >= 1.5 * float(np.median(taken[1:]))
    return found


def busy_by_hand(entries: list[dict[str, Any]]) -> float:
    """Over the steps and the work that they launched; without idle time in which the profiler worked."""
    work = sorted(
        (entry["ts"], entry["ts"] + entry["dur"])
        for entry in entries
        if entry["cat"] in ("kernel", "gpu_memcpy", "gpu_memset")
    )
    steps = [
        entry for entry in entries if entry["cat"] == "user_annotation" and entry["name"].startswith("ProfilerStep#")
    ]
    first, last = min(s["ts"] for s in steps), max(s["ts"] + s["dur"] for s in steps)
    calls = {
        entry["args"]["correlation"]: entry["ts"]
        for entry in entries
        if entry["cat"] in ("cuda_runtime", "cuda_driver")
    }
    launched = [
        entry["ts"] + entry["dur"]
        for entry in entries
        if entry["cat"] in ("kernel", "gpu_memcpy", "gpu_memset")
        and first <= calls.get(entry["args"]["correlation"], 0) < last
    ]
    last = max(last, *launched)
    moments = sorted({first, last, *(t for pair in work for t in pair if first < t < last)} | {
        t
        for entry in entries
        if entry["cat"] == "overhead"
        for t in (entry["ts"], entry["ts"] + entry["dur"])
        if first < t < last
    })  # fmt: skip
    busy_pieces = Pieces(work)
    overhead = Pieces([(e["ts"], e["ts"] + e["dur"]) for e in entries if e["cat"] == "overhead"])
    busy = idle = 0.0
    for begins, ends in pairwise(moments):
        middle = (begins + ends) / 2
        if middle in busy_pieces:
            busy += ends - begins
        elif middle not in overhead:
            idle += ends - begins
    return busy / (busy + idle)


class Pieces:
    """Which moments some pieces of time cover, overlapping or not."""

    def __init__(self, pieces: list[tuple[float, float]]) -> None:
        self.starts = [start for start, _ in sorted(pieces)]
        self.reach = list(accumulate((end for _, end in sorted(pieces)), max))

    def __contains__(self, time: float) -> bool:
        """Whether any piece that has begun ends after it."""
        begun = bisect_right(self.starts, time)
        return begun > 0 and self.reach[begun - 1] > time
