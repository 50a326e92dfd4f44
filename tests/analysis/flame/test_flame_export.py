from __future__ import annotations

import json
import re
from collections import Counter

import pytest

from tests.analysis.flame.test_fold import training
from tests.helpers.flame_reference import list_tree_paths
from tests.helpers.paths import FIXTURES
from tests.helpers.trace_builder import cpu, trace
from torchprof_tui.analysis.flame.flame_tree import (
    FoldBy,
    FoldTime,
    build_speedscope,
    format_speedscope,
    iterate_folded_lines,
)
from torchprof_tui.analysis.flame.fold import fold_trace
from torchprof_tui.trace.loading.load_in_process import load_opened_trace

RECORDED = FIXTURES / "export_stacks"
OMITTED_BY_TORCH = re.compile(r"autograd/__init__.*(backward|_make_grads)")


@pytest.mark.parametrize("fold_by", list(FoldBy))
@pytest.mark.parametrize("time", list(FoldTime))
def test_folded_lines_and_speedscope_have_the_paths_of_the_tree(fold_by: FoldBy, time: FoldTime) -> None:
    tree = fold_trace(training(), fold_by, time)
    paths: Counter[tuple[str, ...]] = Counter()
    for line in iterate_folded_lines(tree):
        stack, _, value = line.rstrip("\n").rpartition(" ")
        paths[tuple(stack.split(";"))] += int(value)
    assert paths == list_tree_paths(tree)
    document = json.loads(format_speedscope(tree, "a.json"))
    frames, profile = document["shared"]["frames"], document["profiles"][0]
    sampled = Counter(
        {
            tuple(frames[index]["name"] for index in sample): weight
            for sample, weight in zip(profile["samples"], profile["weights"], strict=True)
        }
    )
    assert sampled == paths
    assert sum(profile["weights"]) == profile["endValue"] == tree.total


def test_folded_lines_escape_separators() -> None:
    tree = fold_trace(trace(cpu("a;b\nc\x1b[2J", 0, 1), cpu("", 2, 1)), FoldBy.OP, FoldTime.CPU)
    assert sorted(iterate_folded_lines(tree)) == ["(no name) 1000\n", "a:b·c·[2J 1000\n"]


def test_speedscope_document_follows_the_published_schema() -> None:
    """The fields that the schema requires, by name and type; a Python frame names its file and line."""
    document = build_speedscope(fold_trace(training(), FoldBy.STACK, FoldTime.GPU), "run.json")
    assert document["$schema"] == "https://www.speedscope.app/file-format-schema.json"
    assert {"name": "train.py(3): main", "file": "train.py", "line": 3} in document["shared"]["frames"]
    assert {"name": "gemm"} in document["shared"]["frames"]
    (profile,) = document["profiles"]
    assert profile.keys() == {"type", "name", "unit", "startValue", "endValue", "samples", "weights"}
    assert (profile["type"], profile["unit"], profile["startValue"]) == ("sampled", "nanoseconds", 0)
    assert len(profile["samples"]) == len(profile["weights"])
    assert document["activeProfileIndex"] == 0
    assert document["exporter"].startswith("torchprof-tui@")


def test_folded_lines_have_the_stacks_of_export_stacks() -> None:
    """The same frames in the same order. Torch leaves out two frames of autograd, and a frame's own time in its stack.

    (The stack of an event there is that of its caller, so a frame's self time is one level too high.)
    """
    whole = load_opened_trace(str(RECORDED / "cpu_backward.pt.trace.json.gz"), cache=False).trace
    ours = set()
    for line in iterate_folded_lines(fold_trace(whole, FoldBy.STACK, FoldTime.CPU)):
        frames = [frame for frame in line.rpartition(" ")[0].split(";") if not OMITTED_BY_TORCH.search(frame)]
        ours.add(";".join(frames).replace(" ", "_"))
    lines = (RECORDED / "cpu_backward.stacks.txt").read_text(encoding="utf-8").splitlines()
    theirs = {line.rpartition(" ")[0] for line in lines}
    assert len(theirs) > 30
    assert theirs <= ours
