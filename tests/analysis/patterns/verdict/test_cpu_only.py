"""Test the verdict on programs without GPU work."""

from __future__ import annotations

from tests.helpers.trace_builder import Entry, annotation, cpu, step, trace
from torchprof_tui.analysis.patterns.engine.checker import Checker
from torchprof_tui.analysis.patterns.verdict.verdict import Regime, Verdict

LOADER = "enumerate(DataLoader)#_{}DataLoaderIter.__next__"


def decide(*entries: Entry) -> Verdict:
    checker = Checker(trace(*entries))
    return checker.decide_verdict(findings=checker.check())


def loop(loader: str, load: float, compute: float) -> list[Entry]:
    """Four steps that load, then compute; times in µs."""
    length = load + compute + 10
    entries: list[Entry] = []
    for k in range(4):
        at = k * length
        entries += [step(k + 1, at, length), annotation(loader, at, load), cpu("aten::mm", at + load + 5, compute)]
    return entries


def test_a_starved_loop_names_the_loader_and_its_share() -> None:
    verdict = decide(*loop(LOADER.format("SingleProcess"), 570, 420))
    assert verdict.regime is Regime.CPU_ONLY
    assert verdict.busy is None
    assert "the data loader takes 57 % of the CPU's time: load in worker processes (num_workers)" in verdict.first
    assert verdict.line is not None


def test_workers_are_not_advised_where_they_run() -> None:
    verdict = decide(*loop(LOADER.format("MultiProcessing"), 570, 420))
    assert "num_workers" not in verdict.first
    assert "more workers" in verdict.first


def test_the_longest_op_is_named() -> None:
    verdict = decide(*loop(LOADER.format("SingleProcess"), 40, 950))
    assert "ops take 95 % of the CPU's time, aten::mm 95 %" in verdict.first


def test_code_outside_any_op() -> None:
    verdict = decide(step(1, 0, 1000), cpu("aten::mm", 100, 200), step(2, 1000, 1000), cpu("aten::mm", 1100, 200))
    assert "code outside any op takes 80 % of the CPU's time" in verdict.first


def test_the_parts_sum_to_the_scope() -> None:
    tree = decide(*loop(LOADER.format("SingleProcess"), 570, 420)).tree
    assert tree is not None
    assert sum(part.time for part in tree.parts) == tree.total == 4_000_000
    assert {part.id: part.time for part in tree.parts} == {"input": 2_280_000, "ops": 1_680_000, "host_code": 40_000}


def test_a_trace_without_ops_has_nothing_to_say() -> None:
    verdict = decide(annotation("build", 0, 100))
    assert verdict.regime is Regime.UNKNOWN
    assert verdict.first == "no GPU activity was recorded"
