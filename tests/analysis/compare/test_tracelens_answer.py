"""Compare the matching with the answer of TraceLens' TraceDiff for its own test pair; see README.md beside this file.

Its `diff_stats.csv` has a row for each kernel of either trace, with the lowest common op that its merged tree has for
it. trace1 is the MI300X, trace2 the H100.
"""

from __future__ import annotations

import csv
import gzip
from collections import Counter, defaultdict
from functools import cache

import pytest

from tests.analysis.compare.sides import load_side
from tests.helpers.paths import SHARED_TRACES
from torchprof_tui.analysis.compare.compared_tree import ComparedTree
from torchprof_tui.analysis.compare.matching import TreeMatch, match_trees
from torchprof_tui.analysis.compare.op_tree import Side
from torchprof_tui.trace.core.arrays import I32

FOLDER = SHARED_TRACES / "pairs"
PAIR = ("timesformer_mi300.json.gz", "timesformer_h100.json.gz")
SOURCES = ("trace1", "trace2")

pytestmark = pytest.mark.skipif(not FOLDER.exists(), reason="the shared traces are not here")

Kernel = tuple[str, int]  # name, ns


@cache
def read_answer() -> list[dict[str, str]]:
    with gzip.open(FOLDER / "timesformer.diff_stats.csv.gz", "rt") as file:
        return list(csv.DictReader(file))


def kernel_of(row: dict[str, str]) -> Kernel:
    return row["name"], round(float(row["kernel_time"]) * 1000)


@cache
def match_pair() -> tuple[TreeMatch, tuple[Side, Side]]:
    sides = load_side(FOLDER / PAIR[0]), load_side(FOLDER / PAIR[1])
    return match_trees(*sides), sides


def find_common_callers(match: TreeMatch) -> tuple[I32, I32]:
    """Find the lowest common caller of each row of GPU work: its node on that side, int32[rows of A] and [of B].

    For work of matched calls it is the call; for work of calls whose names differ, the caller whose pair is matched.
    """
    callers = tuple(tree.tree.work.node.copy() for tree in (match.a, match.b))
    for group in match.work_groups:
        callers[0][list(group.members_a)] = group.caller_a
        callers[1][list(group.members_b)] = group.caller_b
    moved = match.work.caller_a >= 0
    callers[0][match.work.a[moved]] = match.work.caller_a[moved]
    callers[1][match.work.b[moved]] = match.work.caller_b[moved]
    return callers[0], callers[1]


def list_kernels(side: Side, tree: ComparedTree, callers: I32) -> list[tuple[Kernel, int]]:
    """List (kernel, node of its lowest common caller)."""
    trace, built = side.trace, tree.tree
    return [
        ((trace.names[trace.name[event]], int(trace.duration[event])), int(callers[row]))
        for event, row in zip(built.selected.work.tolist(), built.row_of_work.tolist(), strict=True)
    ]


def test_every_kernel_has_the_same_lowest_common_op() -> None:
    """Coverage: all 449 and 534 kernels of the answer, with 119.9 ms and 158.4 ms, and no kernel more."""
    match, sides = match_pair()
    for index, (tree, callers) in enumerate(zip((match.a, match.b), find_common_callers(match), strict=True)):
        found = Counter((kernel, tree.name_of(caller)) for kernel, caller in list_kernels(sides[index], tree, callers))
        expected = Counter(
            (kernel_of(row), row["lowest_common_ancestor_name"])
            for row in read_answer()
            if row["source"] == SOURCES[index]
        )
        assert expected
        assert found == expected


def test_the_same_kernels_of_both_sides_belong_together() -> None:
    """The instances of the lowest common ops: which kernels of one side share an op's call with which of the other."""
    match, sides = match_pair()
    callers = find_common_callers(match)
    partner = dict(zip(match.calls.a.tolist(), match.calls.b.tolist(), strict=True))
    found: dict[int, tuple[list[Kernel], list[Kernel]]] = defaultdict(lambda: ([], []))
    for kernel, caller in list_kernels(sides[0], match.a, callers[0]):
        found[partner[caller]][0].append(kernel)
    for kernel, caller in list_kernels(sides[1], match.b, callers[1]):
        found[caller][1].append(kernel)
    expected: dict[str, tuple[list[Kernel], list[Kernel]]] = defaultdict(lambda: ([], []))
    for row in read_answer():
        expected[row["lowest_common_ancestor_id"]][SOURCES.index(row["source"])].append(kernel_of(row))
    assert count_groups(found.values()) == count_groups(expected.values())


def count_groups(groups: object) -> Counter[tuple[tuple[Kernel, ...], ...]]:
    assert hasattr(groups, "__iter__")
    return Counter(tuple(tuple(sorted(kernels)) for kernels in group) for group in groups)


def test_every_op_of_the_merged_tree_is_matched() -> None:
    """Ops that its merged tree has for both traces; those of one trace are marked `>> trace1` and `<< trace2`."""
    with gzip.open(FOLDER / "timesformer.merged_tree_output.txt.gz", "rt") as file:
        names = [line.lstrip("│├└─ \t\n").rstrip("\n") for line in file]
    merged = Counter(name for name in names if not name.startswith((">> trace1", "<< trace2")))
    match, _ = match_pair()
    assert merged.total() > 1000
    assert merged <= Counter(match.a.name_of(node) for node in match.calls.a.tolist())
