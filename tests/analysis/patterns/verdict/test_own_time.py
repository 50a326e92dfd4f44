"""The time that a pattern alone explains: no time is counted twice, on every trace."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.helpers.merged_ranks import load_shared_ranks
from tests.helpers.paths import SAMPLES, find_shared_traces, mark_long_traces
from torchprof_tui.analysis.patterns.engine.checker import PATTERNS, Checker
from torchprof_tui.analysis.patterns.engine.multi_rank_check import MultiRankChecker
from torchprof_tui.analysis.patterns.verdict.own_time import find_own_times
from torchprof_tui.analysis.patterns.verdict.tree_lines import merge_trees
from torchprof_tui.analysis.patterns.verdict.tree_model import GENERAL_PATTERN_IDS, TimePart, TimeTree
from torchprof_tui.trace.core.errors import TraceError
from torchprof_tui.trace.loading.load_in_process import load_trace


def part(part_id: str, time: int, *inner: TimePart) -> TimePart:
    return TimePart(part_id, part_id, time, inner)


def test_a_pattern_has_its_time_in_every_part_and_class() -> None:
    tree = TimeTree(
        (
            part("compute", 500, part("gemm", 300, part("x", 100), part("y", 50)), part("copy", 200, part("x", 20))),
            part("dispatch", 400, part("y", 60), part("aten::add", 70)),
            part("launch", 100),
        ),
        1000,
        2,
    )
    own = find_own_times(tree, ["x", "y", "z"])
    assert set(own) == {"x", "y"}
    assert (own["x"].time, own["x"].share) == (120, 0.12)
    assert [(inside.id, inside.time, inside.parts) for inside in own["x"].within] == [("compute", 120, ())]
    assert [(inside.id, inside.time) for inside in own["y"].within] == [("dispatch", 60), ("compute", 50)]


def check_own_times(tree: TimeTree | None) -> None:
    if tree is None:
        return
    own = find_own_times(tree, PATTERNS)
    assert not GENERAL_PATTERN_IDS & own.keys()
    assert sum(each.time for each in own.values()) <= tree.total
    for each in own.values():
        assert sum(inside.time for inside in each.within) == each.time
    for whole in tree.parts:
        inside = [item.time for each in own.values() for item in each.within if item.id == whole.id]
        assert sum(inside) <= whole.time


@pytest.mark.parametrize("path", mark_long_traces([*sorted(SAMPLES.glob("*.json.gz")), *find_shared_traces()]))
def test_own_times_sum_to_the_scope_at_most(path: Path) -> None:
    try:
        checker = Checker(load_trace(str(path), cache=False))
    except TraceError:
        pytest.skip("this is no trace")
    check_own_times(checker.decide_verdict(None, checker.check()).divided_tree)


@pytest.mark.parametrize("name", ["ddp", "fsdp"])
def test_own_times_of_ranks_sum_to_the_scope_at_most(name: str) -> None:
    checker = MultiRankChecker(load_shared_ranks(name)[1])
    _, verdicts = checker.check(checker.default_scope)
    tree = merge_trees(verdict.divided_tree for verdict in verdicts)
    assert tree is not None
    assert tree.device_count == 4
    check_own_times(tree)
