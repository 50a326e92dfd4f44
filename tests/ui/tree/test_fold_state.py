"""Folding in the dispatch tree, with a search and without; times in µs.

```
CPU 100
  train 0..100
    forward 0..60
      aten::mm 0..50
        aten::copy_ 10..15
    backward 60..95
      aten::copy_ 70..80
      aten::add 80..90
```
"""

from __future__ import annotations

import pytest

from tests.helpers.trace_builder import cpu, trace
from torchprof_tui.analysis.dispatch.call_tree import DispatchTree, build_dispatch_tree
from torchprof_tui.trace.model.trace import Trace
from torchprof_tui.ui.common.child_screen import find_adjacent
from torchprof_tui.ui.tree.tree_screen import FoldState

LEADING_TO_COPIES = "CPU train forward aten::mm aten::copy_ backward aten::copy_"


@pytest.fixture
def shown() -> Trace:
    return trace(
        cpu("train", 0, 100),
        cpu("forward", 0, 60),
        cpu("aten::mm", 0, 50),
        cpu("aten::copy_", 10, 5),
        cpu("backward", 60, 35),
        cpu("aten::copy_", 70, 10),
        cpu("aten::add", 80, 10),
    )


@pytest.fixture
def tree(shown: Trace) -> DispatchTree:
    return build_dispatch_tree(shown)


@pytest.fixture
def folds(tree: DispatchTree, shown: Trace) -> FoldState:
    return FoldState(tree, shown.names)


def listed(folds: FoldState, tree: DispatchTree, shown: Trace) -> str:
    names = (
        "CPU" if node in tree.root_labels else shown.names[int(tree.name[node])]
        for node in folds.visible_nodes.tolist()
    )
    return " ".join(names)


def test_folding_works_within_a_filter(folds: FoldState, tree: DispatchTree, shown: Trace) -> None:
    assert folds.set_filter("copy") == ""
    assert (listed(folds, tree, shown), folds.match_count) == (LEADING_TO_COPIES, 2)
    forward = int(folds.visible_nodes[2])
    folds.toggle(forward)
    assert listed(folds, tree, shown) == "CPU train forward backward aten::copy_"
    assert not folds.is_unfolded(forward)
    folds.unfold(forward)
    assert listed(folds, tree, shown) == LEADING_TO_COPIES
    folds.set_all_folds(False)
    assert listed(folds, tree, shown) == "CPU"
    folds.set_all_folds(True)
    assert listed(folds, tree, shown) == LEADING_TO_COPIES


def test_another_filter_unfolds_its_matches(folds: FoldState, tree: DispatchTree, shown: Trace) -> None:
    folds.set_filter("cop")
    folds.set_all_folds(False)
    folds.set_filter("copy")
    assert listed(folds, tree, shown) == LEADING_TO_COPIES


def test_without_the_filter_all_is_folded_as_before(folds: FoldState, tree: DispatchTree, shown: Trace) -> None:
    assert listed(folds, tree, shown) == "CPU train forward backward"
    folds.unfold(2)  # and aten::mm, its only child
    before = listed(folds, tree, shown)
    assert before == "CPU train forward aten::mm aten::copy_ backward"
    folds.set_filter("copy")
    folds.set_all_folds(False)
    folds.set_filter("")
    assert (listed(folds, tree, shown), folds.match_count) == (before, -1)
    folds.fold(1)
    assert listed(folds, tree, shown) == "CPU train"


def test_a_node_without_matches_below_it_cannot_be_folded(folds: FoldState) -> None:
    def can_fold() -> list[bool]:
        return [folds.can_fold(node) for node in folds.visible_nodes.tolist()]

    folds.set_filter("aten::mm")
    assert can_fold() == [True, True, True, False]  # aten::mm: its copy_ does not match
    folds.set_filter("aten")
    assert can_fold() == [True, True, True, True, False, True, False, False]


def test_a_node_that_is_not_listed_has_the_index_of_the_one_before_it(folds: FoldState) -> None:
    folds.set_filter("add")
    assert folds.index_of(0) == 0
    assert folds.index_of(4) == 1  # aten::copy_ below forward: train is the nearest listed node above
    folds.set_filter("nothing has this name")
    assert folds.index_of(4) == -1
    assert folds.match_count == 0


def test_a_capital_makes_the_search_case_sensitive_and_slashes_make_it_an_expression(folds: FoldState) -> None:
    folds.set_filter("COPY")
    assert folds.match_count == 0
    folds.set_filter("/^aten::(add|mm)$/")
    assert folds.match_count == 2
    assert "regular expression" in folds.set_filter("/(/")
    assert (folds.filter, folds.match_count) == ("/^aten::(add|mm)$/", 2)  # as before


def test_matches_are_found_in_both_directions_and_revealed(folds: FoldState) -> None:
    folds.set_filter("copy")
    first, second = folds.matching_nodes.tolist()
    assert [find_adjacent(folds.matching_nodes, node, 1) for node in (0, first, second)] == [0, 1, 0]
    assert [find_adjacent(folds.matching_nodes, node, -1) for node in (0, first, second)] == [1, 1, 0]
    folds.set_all_folds(False)
    assert second not in folds.visible_nodes
    folds.reveal(second)
    assert second in folds.visible_nodes
    assert first not in folds.visible_nodes
    folds.set_filter("nothing has this name")
    assert find_adjacent(folds.matching_nodes, 0, 1) == -1


def test_a_snapshot_restores_the_folding_and_the_search(folds: FoldState, tree: DispatchTree, shown: Trace) -> None:
    folds.unfold(2)
    unfiltered = folds.take_snapshot(2)
    before = listed(folds, tree, shown)
    folds.set_filter("copy")
    folds.fold(1)
    filtered, within = folds.take_snapshot(1), listed(folds, tree, shown)
    folds.set_filter("")
    folds.set_all_folds(False)
    folds.restore(filtered)
    assert (listed(folds, tree, shown), folds.filter) == (within, "copy")
    folds.restore(unfiltered)
    assert (listed(folds, tree, shown), folds.filter) == (before, "")
