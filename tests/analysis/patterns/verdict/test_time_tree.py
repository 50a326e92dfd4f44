"""Test that the parts of a scope's time sum to it, and that patterns explain each of them once."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.helpers.long_run import keep_some
from tests.helpers.paths import SAMPLES
from tests.helpers.pattern_traces import ADD, GEMM, NCCL, op_with_work
from tests.helpers.trace_builder import Entry, cpu, kernel, memcpy, runtime, step, trace
from torchprof_tui.analysis.patterns.engine.check_scope import range_scope
from torchprof_tui.analysis.patterns.engine.checker import Checker
from torchprof_tui.analysis.patterns.verdict.time_tree import build_time_tree
from torchprof_tui.analysis.patterns.verdict.tree_model import TimePart, TimeTree
from torchprof_tui.trace.loading.load_in_process import load_trace

US = 1000


def build_tree(checker: Checker, t0: int | None = None, t1: int = 0) -> TimeTree:
    """Build the tree of the whole trace, or of a range, with the patterns found in it."""
    scope = checker.default_scope if t0 is None else range_scope(t0, t1)
    return build_time_tree(checker.view(scope), checker.check(scope))


def assert_sums(tree: TimeTree) -> None:
    """Assert that the parts sum to the scope, and that no part holds more than itself."""
    assert sum(part.time for part in tree.parts) == tree.total
    for part in tree.parts:
        assert part.time > 0
        inside = sum(inner.time for inner in part.parts)
        assert inside == part.time if part.id == "compute" else inside <= part.time
        for kernel_class in part.parts:
            assert sum(pattern.time for pattern in kernel_class.parts) <= kernel_class.time


def as_dict(parts: tuple[TimePart, ...]) -> dict[str, int]:
    return {part.id: part.time // US for part in parts}


def test_parts_of_a_small_program() -> None:
    """Two kernels overlap, a collective is half hidden, a copy runs alone, and the CPU is late once."""
    entries = [
        step(1, 0, 1000),
        *op_with_work("aten::mm", 0, 10, 100, GEMM),
        *op_with_work("aten::add", 10, 60, 100, ADD, stream=9),
        *op_with_work("c10d::x", 20, 140, 60, NCCL, stream=11),
        cpu("aten::to", 40, 20),
        runtime("cudaMemcpyAsync", 42, 10, 5),
        memcpy("Memcpy HtoD (Pinned -> Device)", 200, 50, 5),
        *op_with_work("aten::mm", 300, 320, 680, GEMM),
    ]
    tree = build_tree(Checker(trace(*entries)))
    assert_sums(tree)
    assert as_dict(tree.parts) == {
        "compute": 830,
        "copies": 50,
        "exposed_communication": 40,
        "host_code": 50,
        "queued": 18,  # from the calls' ends at 6 and 306 to the kernels' starts at 10 and 320
        "launch": 8,
        "dispatch": 4,
    }
    assert as_dict(tree.parts[0].parts) == {"gemm": 780, "elementwise": 50}


def test_a_pattern_explains_no_time_twice() -> None:
    """Reading a value waits in the op that the table of calls counts as well."""
    reads: list[Entry] = []
    for k in range(200):
        reads += [cpu("aten::item", 100 + 40 * k, 30), runtime("cudaStreamSynchronize", 102 + 40 * k, 25, 50 + k)]
    entries = [step(1, 0, 9000), *op_with_work("aten::mm", 0, 10, 95, GEMM), *reads]
    entries += op_with_work("aten::mm", 8500, 8520, 400, GEMM)
    checker = Checker(trace(*entries))
    tree = build_tree(checker)
    assert_sums(tree)
    explained = [pattern for part in tree.parts for pattern in part.parts if pattern.id == "sync-in-step"]
    at_stake = checker.check(ids=["sync-in-step"])[0].answer.at_stake
    assert sum(pattern.time for pattern in explained) == at_stake


PIECES = st.lists(
    st.tuples(
        st.integers(0, 300),
        st.integers(1, 60),
        st.sampled_from([GEMM, ADD, NCCL, "Memcpy DtoD (Device -> Device)"]),
        st.sampled_from([7, 9]),
        st.integers(0, 1),
    ),
    min_size=1,
    max_size=10,
)


@given(PIECES, st.integers(0, 300), st.integers(1, 300))
def test_any_program_and_any_range_sums(pieces: list, t0: int, length: int) -> None:
    entries = [step(1, 0, 400)]
    for number, (start, duration, name, stream, device) in enumerate(pieces):
        on_gpu = memcpy if name.startswith("Memcpy") else kernel
        entries += [cpu("aten::x", max(start - 8, 0), 6), runtime("cudaLaunchKernel", max(start - 6, 0), 3, number + 1)]
        entries += [on_gpu(name, start, duration, number + 1, stream=stream, device=device)]
    checker = Checker(trace(*entries, ns=True))
    assert_sums(build_tree(checker))
    assert_sums(build_tree(checker, t0, t0 + length))


@pytest.mark.parametrize(
    "path", keep_some(sorted(SAMPLES.glob("*.json.gz")), 2), ids=lambda path: path.name.split(".")[0]
)
def test_samples_sum_in_every_step(path: object) -> None:
    checker = Checker(load_trace(str(path), cache=False))
    assert_sums(build_tree(checker))
    for one_step in checker.trace.steps:
        assert_sums(build_tree(checker, one_step.start, one_step.start + one_step.duration))
