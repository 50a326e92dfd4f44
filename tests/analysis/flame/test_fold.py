from __future__ import annotations

import itertools

import numpy as np
import pytest

from tests.helpers.flame_reference import fold_slowly, list_children, list_tree_paths
from tests.helpers.golden_files import load_sample
from tests.helpers.trace_builder import annotation, cpu, flow, kernel, python, runtime, step, trace
from torchprof_tui.analysis.flame import fold
from torchprof_tui.analysis.flame.flame_tree import FlameTree, FoldBy, FoldTime, NoFramesError
from torchprof_tui.analysis.flame.fold import fold_trace, select_timed_events
from torchprof_tui.analysis.table.event_scope import range_mask
from torchprof_tui.trace.model.trace import Trace

BOTH = list(itertools.product(FoldBy, FoldTime))


def training() -> Trace:
    """Build two steps: a forward in two modules, its backward on another thread, work without launch or stack."""
    events = []
    for number in (0, 1):
        t = number * 1000
        events += [
            step(number, t, 900),
            python("train.py(3): main", t + 10, 480),
            python("nn.Module: Net_0", t + 20, 400),
            python("nn.Module: Linear_0", t + 30, 300),
            python("torch/nn/linear.py(9): forward", t + 40, 250),
            cpu("aten::linear", t + 50, 200),
            cpu("aten::addmm", t + 60, 150),
            runtime("cudaLaunchKernel", t + 70, 20, corr=number * 10 + 1),
            kernel("gemm", t + 100, 70, corr=number * 10 + 1),
            flow("s", "fwdbwd", number + 1, t + 60),
            cpu("autograd::engine::evaluate_function: AddmmBackward0", t + 500, 200, thread=7),
            cpu("AddmmBackward0", t + 510, 180, thread=7),
            flow("f", "fwdbwd", number + 1, t + 510, thread=7),
            python("function.py(4): backward", t + 515, 160, thread=7),
            runtime("cudaLaunchKernel", t + 520, 20, corr=number * 10 + 2, thread=7),
            kernel("gemm", t + 540, 90, corr=number * 10 + 2),
            runtime("cudaLaunchKernel", t + 950, 20, corr=number * 10 + 3, thread=8),
            kernel("fill", t + 960, 5, corr=number * 10 + 3),
        ]
    return trace(*events, kernel("lost", 2000, 11))


def check(folded: FlameTree, whole: Trace, only: np.ndarray | None = None) -> None:
    """Check a tree against the slow computation, and its own arrays against each other."""
    chosen = None if only is None else set(np.flatnonzero(only).tolist())
    assert list_tree_paths(folded) == fold_slowly(whole, folded.fold_by, folded.time, chosen)
    assert folded.value_ns.sum() == folded.total == select_timed_events(whole, folded.time, only)[1].sum()
    assert folded.parent[0] == -1
    for node in range(len(folded)):
        children = list_children(folded, node)
        assert all(folded.parent[child] == node for child in children)
        assert folded.size[node] == 1 + sum(folded.size[child] for child in children)
        assert folded.total_ns[node] == folded.value_ns[node] + sum(folded.total_ns[child] for child in children)
        left = int(folded.offset_ns[node])
        for child, after in itertools.zip_longest(children, children[1:]):
            assert folded.offset_ns[child] == left
            left += int(folded.total_ns[child])
            assert after is None or folded.total_ns[child] >= folded.total_ns[after]
        if node and folded.label(node)[:1] != "(":
            name = whole.event(int(folded.first_event[node])).name
            assert folded.label(node) in (name, "ProfilerStep*")
            assert folded.count[node] > 0


@pytest.mark.parametrize(("fold_by", "time"), BOTH)
def test_folds_a_literal_trace_as_the_slow_computation_does(fold_by: FoldBy, time: FoldTime) -> None:
    whole = training()
    check(fold_trace(whole, fold_by, time), whole)
    only = range_mask(whole, 60_000, 1_500_000)
    check(fold_trace(whole, fold_by, time, only), whole, only)


def test_gpu_time_belongs_to_the_stack_of_its_launch() -> None:
    paths = list_tree_paths(fold_trace(training(), FoldBy.STACK, FoldTime.GPU))
    frames = (
        "train.py(3): main",
        "nn.Module: Net_0",
        "nn.Module: Linear_0",
        "torch/nn/linear.py(9): forward",
    )
    assert paths == {
        (*frames, "gemm"): 140_000,
        (*frames, "function.py(4): backward", "gemm"): 180_000,  # backward below its forward
        ("(no Python stack)", "fill"): 10_000,
        ("(GPU work without a recorded launch)", "lost"): 11_000,
    }


def test_frames_of_the_recorder_are_left_out() -> None:
    folded = fold_trace(load_sample("train_gpt_stack_memory"), FoldBy.STACK, FoldTime.GPU)
    labels = [folded.label(node) for node in range(len(folded))]
    assert labels[1].endswith("train_gpt.py(168): <module>")
    assert not any("harness.py" in label or "stepping.py" in label for label in labels)


def test_time_without_a_frame_has_nodes_of_its_own() -> None:
    folded = fold_trace(training(), FoldBy.MODULE, FoldTime.GPU)
    assert folded.missing_ns == 21_000
    assert [folded.label(node) for node in list_children(folded, 0)] == [
        "nn.Module: Net_0",
        "(GPU work without a recorded launch)",
        "(no module)",
    ]
    assert folded.missing_ns == sum(folded.total_ns[node] for node in list_children(folded, 0)[1:])


def test_the_first_event_is_the_earliest_in_the_scope() -> None:
    whole = training()
    folded = fold_trace(whole, FoldBy.OP, FoldTime.GPU, range_mask(whole, 900_000, 3_000_000))
    node = next(n for n in range(len(folded)) if folded.label(n) == "aten::addmm")
    assert whole.start[folded.first_event[node]] == 1_060_000
    assert folded.count[node] == 1


@pytest.mark.parametrize("sample", ["train_gpt_stack_memory", "matmul_add_64_cold_eager", "cuda_graph_replay"])
@pytest.mark.parametrize(("fold_by", "time"), BOTH)
def test_values_of_samples_sum_to_the_self_time(sample: str, fold_by: FoldBy, time: FoldTime) -> None:
    whole = load_sample(sample)
    try:
        folded = fold_trace(whole, fold_by, time)
    except NoFramesError:
        assert fold_by is not FoldBy.OP
        return
    assert folded.value_ns.sum() == folded.total == select_timed_events(whole, time)[1].sum()
    first, second = range_mask(whole, 0, whole.span[1] // 3), range_mask(whole, whole.span[1] // 3, 1 << 62)
    assert (
        fold_trace(whole, fold_by, time, first).total + fold_trace(whole, fold_by, time, second).total == folded.total
    )


def test_says_what_to_record() -> None:
    ops = trace(cpu("aten::mm", 0, 10))
    with pytest.raises(NoFramesError, match="with_stack=True"):
        fold_trace(ops, FoldBy.STACK, FoldTime.CPU)
    with pytest.raises(NoFramesError, match="with_stack=True"):
        fold_trace(ops, FoldBy.MODULE, FoldTime.CPU)
    with pytest.raises(NoFramesError, match="no GPU work"):
        fold_trace(ops, FoldBy.OP, FoldTime.GPU)
    with pytest.raises(NoFramesError, match="no ops"):
        fold_trace(trace(), FoldBy.OP, FoldTime.CPU)


def test_an_empty_scope_has_only_a_root() -> None:
    whole = training()
    folded = fold_trace(whole, FoldBy.STACK, FoldTime.GPU, np.zeros(len(whole), np.bool_))
    assert (len(folded), folded.total, folded.label(0)) == (1, 0, "all GPU time")


def test_a_link_back_in_time_makes_no_cycle() -> None:
    whole = trace(
        python("a.py(1): f", 0, 100),
        cpu("Backward0", 10, 80),
        flow("f", "fwdbwd", 1, 10),
        cpu("aten::mm", 20, 10),
        flow("s", "fwdbwd", 1, 20),
    )
    check(fold_trace(whole, FoldBy.STACK, FoldTime.CPU), whole)


def test_frames_beyond_the_limit_count_for_the_deepest_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fold, "MAX_LEVELS", 4)
    whole = trace(*(annotation(f"level {depth}", depth, 100 - 2 * depth) for depth in range(9)))
    folded = fold_trace(whole, FoldBy.OP, FoldTime.CPU)
    assert [folded.label(node) for node in range(len(folded))] == ["all CPU time", *(f"level {n}" for n in range(4))]
    assert folded.value_ns.tolist() == [0, 2000, 2000, 2000, 94_000]
