"""Folding in the dispatch tree, with a filter and without; times in µs.

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

from tests.helpers.explorer_app import explorer, until
from tests.helpers.trace_builder import cpu, trace
from torchprof_tui.analysis.dispatch.call_tree import DispatchTree, build_dispatch_tree
from torchprof_tui.trace.model.trace import Trace
from torchprof_tui.ui.tree.fold_state import FoldState
from torchprof_tui.ui.tree.tree_screen import TreeScreen

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
    folds.set_filter("COPY")
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


async def test_space_and_arrows_fold_while_filtering(shown: Trace) -> None:
    async with explorer(shown, (120, 40)) as (screen, pilot):
        await pilot.press("T")
        tree = screen.app.screen
        assert isinstance(tree, TreeScreen)
        await until(pilot, lambda: tree.call_tree is not None)

        def lines() -> list[str]:
            return [strip.text.rstrip() for strip in tree._compositor.render_strips()]

        def signs() -> list[str]:
            return [letter for line in lines() for letter in line if letter in "▾▸"]

        await pilot.press(*"copy")
        await until(pilot, lambda: sum("aten::copy_" in line for line in lines()) == 2)
        assert signs() == ["▾"] * 5
        await pilot.press("home", "down", "down", "space")
        await until(pilot, lambda: sum("aten::copy_" in line for line in lines()) == 1)
        assert signs() == ["▾", "▾", "▸", "▾"]
        await pilot.press("right")
        await until(pilot, lambda: sum("aten::copy_" in line for line in lines()) == 2)
        await pilot.press("left", "left", "left")
        await until(pilot, lambda: not any("forward" in line for line in lines()))
        assert any("filter: copy" in line for line in lines())
        await pilot.press("escape")
        await until(pilot, lambda: not any("filter: " in line for line in lines()))
        assert screen.app.screen is tree
