"""Compare the ops of replays with what TraceLens makes of the same traces; see README.md in this folder."""

from __future__ import annotations

import csv
import gzip
import re
from collections import defaultdict
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from tests.helpers.long_run import keep_some
from tests.helpers.paths import SHARED_TRACES
from torchprof_tui.analysis.graphs.captured_nodes import remove_mark
from torchprof_tui.analysis.graphs.captured_ops import CapturedOps, OpSource, get_captured_ops
from torchprof_tui.analysis.table.groups import Profile
from torchprof_tui.analysis.table.profiler_table import GroupBy
from torchprof_tui.trace.loading.load_in_process import load_trace
from torchprof_tui.trace.model.event_kind import Kind

GRAPHS = SHARED_TRACES / "graphs"
VLLM = GRAPHS / "vllm_decode_full/graph_execution.json.gz"
SGLANG = GRAPHS / "sglang_decode/sglang_Qwen3-8B_decode.json.gz"
WITHOUT_GRAPH = GRAPHS / "sglang_prefilldecode/sglang_Qwen3-8B_prefilldecode.json.gz"
ROUNDING_US = 1 / 256
"""TraceLens subtracts times since the boot in µs as float64, whose step is 1/1024 there; twice for each kernel."""
MAX_KERNELS_OF_OP = 4

pytestmark = pytest.mark.skipif(not VLLM.exists(), reason="needs the shared traces")


@cache
def profile_of(path: Path) -> Profile:
    return Profile(load_trace(str(path)))


def captured_ops_of(path: Path) -> CapturedOps:
    ops = get_captured_ops(profile_of(path).trace)
    assert ops is not None
    return ops


@pytest.mark.long
@pytest.mark.parametrize(("path", "kernels"), keep_some([(VLLM, 421), (SGLANG, 544)], 1))
def test_every_replayed_kernel_has_its_op(path: Path, kernels: int) -> None:
    ops = captured_ops_of(path)
    assert len(ops.replays.work) == kernels == ops.matched_count
    assert ops.source is OpSource.CAPTURE
    assert (ops.op >= 0).all()
    assert not ops.join.doubt.any()


def test_a_trace_without_a_graph_has_no_replays() -> None:
    assert get_captured_ops(profile_of(WITHOUT_GRAPH).trace) is None


def sums_by_op(path: Path) -> dict[tuple[str, str], tuple[int, float]]:
    """Sum (calls, µs of their own kernels) of the calls that launched work, by name and innermost module."""
    profile = profile_of(path)
    calls = profile.calls
    module, paths = profile.call_sites.factorize_modules()
    work = np.flatnonzero(calls.on_gpu & ~calls.annotation)
    sums: dict[tuple[str, str], tuple[set[int], float]] = defaultdict(lambda: (set(), 0.0))
    for index in work.tolist():
        op = owner = int(calls.parent[index])
        while owner >= 0 and profile.trace.kind[calls.event[owner]] != Kind.OP and not is_captured(profile, owner):
            owner = int(calls.parent[owner])
        op = owner if owner >= 0 else op
        name = remove_mark(calls.names[calls.name[op]])
        where = remove_mark(paths[module[op]]).rsplit("/", 1)[-1].rsplit("_", 1)[0]
        members, time = sums[name, where]
        members.add(op)
        sums[name, where] = members, time + int(calls.gpu[index]) / 1e3
    return {key: (len(members), time) for key, (members, time) in sums.items()}


def is_captured(profile: Profile, call: int) -> bool:
    captured = profile.calls.captured
    return captured is not None and bool(captured.is_op[call])


def read_rows(path: Path, name: str) -> list[dict[str, str]]:
    with gzip.open(path.parent / f"tracelens_{name}.csv.gz", "rt") as file:
        return list(csv.DictReader(file))


def read_times(row: dict[str, str]) -> tuple[int, float]:
    return int(row["Count"]), float(row["total_direct_kernel_time_sum"])


@pytest.mark.parametrize("path", keep_some([VLLM, SGLANG, WITHOUT_GRAPH], 1))
def test_counts_and_times_equal_those_of_tracelens(path: Path) -> None:
    ours = {(simplify(name), where): sums for (name, where), sums in sums_by_op(path).items()}
    theirs = {
        (row["name"], row["parent_module"].removeprefix("nn.Module: ").removeprefix("NA")): read_times(row)
        for row in read_rows(path, "ops_summary")
    }
    assert ours.keys() == theirs.keys()
    for key, (count, time) in theirs.items():
        assert ours[key][0] == count, key
        assert ours[key][1] == pytest.approx(time, abs=ROUNDING_US * MAX_KERNELS_OF_OP * count), key


def simplify(name: str) -> str:
    """Return the name of an op as TraceLens writes it, without the number that ends those of SGLang's profiler."""
    return re.sub(r"^(sglang_profiler::.*)_[0-9]+$", r"\1", name)


def sums_by_shape(path: Path) -> dict[tuple[str, str], tuple[int, float]]:
    """Sum (calls, µs of all kernels below them) by name and input shapes, which have no spaces here."""
    profile = profile_of(path)
    table = profile.build_table(GroupBy.SHAPE)
    return {
        (simplify(remove_mark(name)), re.sub(r"[ ,]", "", detail)): (int(calls), int(gpu) / 1e3)
        for name, detail, calls, gpu in zip(table.names, table.details, table.calls, table.gpu, strict=True)
    }


OWN_OPS = ("pseudo_op::", "(Synthetic Op)")
"""Rows for ops that TraceLens makes up: of parts of an op, and of kernels without shapes."""

COPIES_INSIDE_OPS = {
    (SGLANG, "aten::copy_", "[[32][32][]]"): (3, 9_973),  # one inside `cumsum`, two inside another `copy_`
    (WITHOUT_GRAPH, "aten::copy_", "[[15][15][]]"): (1, 5_688),  # inside `cumsum`
}
"""(calls, ns) that TraceLens counts for the op above alone, and the table of this program for both."""


@pytest.mark.parametrize("path", [VLLM, SGLANG, WITHOUT_GRAPH])
def test_shapes_equal_those_of_tracelens(path: Path) -> None:
    ours = sums_by_shape(path)
    theirs: dict[tuple[str, str], tuple[int, float]] = defaultdict(lambda: (0, 0.0))
    for row in read_rows(path, "unified_perf_summary"):  # rows differ in strides and values, too
        if not any(mark in row["name"] for mark in OWN_OPS):
            dims = re.sub(r"[ ,]", "", row["Input Dims"].replace("(", "[").replace(")", "]"))
            calls, time = theirs[row["name"], dims]
            time += float(row["Kernel Time (µs)_sum"])
            theirs[row["name"], dims] = calls + int(row["operation_count"]), time
    assert len(theirs) >= 15
    for key, (calls, time) in theirs.items():
        nested_calls, nested_ns = COPIES_INSIDE_OPS.get((path, *key), (0, 0))
        assert ours[key][0] == calls + nested_calls, key
        assert ours[key][1] == pytest.approx(time + nested_ns / 1e3, abs=ROUNDING_US * MAX_KERNELS_OF_OP * calls), key


def test_made_up_ops_of_a_mixture_of_experts_sum_to_the_op() -> None:
    parts = [
        float(row["Kernel Time (µs)_sum"])
        for row in read_rows(VLLM, "unified_perf_summary")
        if row["name"].startswith("pseudo_op::moe")
    ]
    ours = sum(time for (name, _), (_, time) in sums_by_op(VLLM).items() if name == "vllm::moe_forward")
    assert len(parts) == 3
    assert sum(parts) == pytest.approx(ours, abs=ROUNDING_US * 72)
