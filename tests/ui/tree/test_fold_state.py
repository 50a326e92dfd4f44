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
from torchprof_tui.analysis.dispatch.call_tree import DispatchTree, dispatch_tree
from torchprof_tui.trace.model.trace import Trace
from torchprof_tui.ui.tree.fold_state import TreeFolds
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
    return dispatch_tree(shown)


@pytest.fixture
def folds(tree: DispatchTree, shown: Trace) -> TreeFolds:
    return TreeFolds(tree, shown.names)


def listed(folds: TreeFolds, tree: DispatchTree, shown: Trace) -> str:
    names = ("CPU" if node in tree.roots else shown.names[int(tree.name[node])] for node in folds.listed.tolist())
    return " ".join(names)


def test_folding_works_in_what_a_filter_lists(folds: TreeFolds, tree: DispatchTree, shown: Trace) -> None:
    folds.filter_by("COPY")
    assert (listed(folds, tree, shown), folds.found) == (LEADING_TO_COPIES, 2)
    forward = int(folds.listed[2])
    folds.toggle(forward)
    assert listed(folds, tree, shown) == "CPU train forward backward aten::copy_"
    assert not folds.is_open(forward)
    folds.open(forward)
    assert listed(folds, tree, shown) == LEADING_TO_COPIES
    folds.all(False)
    assert listed(folds, tree, shown) == "CPU"
    folds.all(True)
    assert listed(folds, tree, shown) == LEADING_TO_COPIES


def test_another_filter_unfolds_all_that_it_finds(folds: TreeFolds, tree: DispatchTree, shown: Trace) -> None:
    folds.filter_by("cop")
    folds.all(False)
    folds.filter_by("copy")
    assert listed(folds, tree, shown) == LEADING_TO_COPIES


def test_without_the_filter_all_is_folded_as_before(folds: TreeFolds, tree: DispatchTree, shown: Trace) -> None:
    assert listed(folds, tree, shown) == "CPU train forward backward"
    folds.open(2)  # and aten::mm, the only way on
    before = listed(folds, tree, shown)
    assert before == "CPU train forward aten::mm aten::copy_ backward"
    folds.filter_by("copy")
    folds.all(False)
    folds.filter_by("")
    assert (listed(folds, tree, shown), folds.found) == (before, -1)
    folds.close(1)
    assert listed(folds, tree, shown) == "CPU train"


def test_what_has_nothing_beneath_it_that_is_found_cannot_be_folded(folds: TreeFolds) -> None:
    folds.filter_by("aten::mm")
    assert [folds.can_fold(node) for node in folds.listed.tolist()] == [True, True, True, False]  # mm: no copy_ here
    folds.filter_by("aten")
    assert [folds.can_fold(node) for node in folds.listed.tolist()] == [
        True,
        True,
        True,
        True,
        False,
        True,
        False,
        False,
    ]


def test_a_node_that_is_not_listed_has_the_place_of_the_one_before_it(folds: TreeFolds) -> None:
    folds.filter_by("add")
    assert folds.place_of(0) == 0
    assert folds.place_of(4) == 1  # aten::copy_ below forward: train stands above it
    folds.filter_by("nothing has this name")
    assert folds.place_of(4) == -1
    assert folds.found == 0


async def test_space_and_arrows_fold_while_filtering(shown: Trace) -> None:
    async with explorer(shown, (120, 40)) as (screen, pilot):
        await pilot.press("T")
        tree = screen.app.screen
        assert isinstance(tree, TreeScreen)
        await until(pilot, lambda: tree.nodes is not None)

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
