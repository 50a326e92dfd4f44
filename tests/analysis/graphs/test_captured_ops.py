"""Join literal replays with literal captures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.helpers.literal_text import readable_trace as trace
from tests.helpers.trace_builder import Entry, annotation, cpu, kernel, memcpy, memset, runtime
from tests.helpers.trace_builder import trace as plain_trace
from torchprof_tui.analysis.graphs import replay_join
from torchprof_tui.analysis.graphs.captured_ops import (
    CapturedOps,
    OpSource,
    build_captured_ops,
    find_captured_chain,
    get_captured_ops,
)
from torchprof_tui.analysis.graphs.node_matching import Doubt
from torchprof_tui.analysis.graphs.replay_join import Reason
from torchprof_tui.analysis.search.name_search import SearchResult, search_names
from torchprof_tui.trace.model.trace import Trace

GEMM = "nvjet_sm90_hsh_64x64_64x13_4x2_h_bz_bias_TNT"
OTHER_GEMM = "nvjet_sm90_hsh_128x64_64x13_4x2_h_bz_bias_TNT"
MODEL = [("aten::addmm", GEMM), ("aten::relu", "relu_kernel"), ("aten::addmm", GEMM), ("aten::sum", "sum_kernel")]


def replay(*kernels: str, corr: int = 1, start: float = 100, **args: Any) -> list[Entry]:
    """A launch of a graph and its kernels on stream 7."""
    work = [kernel(name, start + 10 * (k + 1), 5, corr, **args) for k, name in enumerate(kernels)]
    return [runtime("cudaGraphLaunch", start, 5, corr), *work]


def capture(*nodes: tuple[str, str], named: bool = True, first: int = 500, batch: int = 0, **args: Any) -> list[Entry]:
    """A capture of (op, kernel): the calls without work, which name their kernels as on ROCm with `named`."""
    entries = [runtime("cudaStreamBeginCapture", 0, 1, first)]
    if batch:
        entries.append(annotation(f"capture_{batch}_FULL", 0, 20 * len(nodes) + 20))
    for k, (op, name) in enumerate(nodes):
        call_args: dict[str, Any] = {"kernel": name} if named else {}
        call = runtime("cudaLaunchKernel", 20 * k + 15, 2, first + k + 1, **call_args, **args)
        entries += [cpu(op, 20 * k + 10, 10), call]
    return [*entries, runtime("cudaStreamEndCapture", 20 * len(nodes) + 10, 1, first + 100)]


def eager(*nodes: tuple[str, str], **args: Any) -> list[Entry]:
    entries: list[Entry] = []
    for k, (op, name) in enumerate(nodes):
        entries += [cpu(op, 20 * k, 10), runtime("cudaLaunchKernel", 20 * k + 2, 2, 900 + k)]
        entries.append(kernel(name, 20 * k + 12, 5, 900 + k, **args))
    return entries


def op_names(trace: Trace, ops: CapturedOps) -> list[str]:
    found = [ops.find_op(trace, event) for event in ops.replays.work.tolist()]
    return ["" if op is None else op.op_name for op in found]


def join(replayed: Sequence[Entry], *captures: Sequence[Entry]) -> tuple[list[str], CapturedOps]:
    made = trace(*replayed)
    ops = build_captured_ops(made, [trace(*entries) for entries in captures])
    return op_names(made, ops), ops


KERNELS = [name for _, name in MODEL]
OPS = [op for op, _ in MODEL]


def test_a_capture_with_names_gives_each_kernel_its_op() -> None:
    names, ops = join(replay(*KERNELS), capture(*MODEL))
    assert names == OPS
    assert (ops.source, ops.matched_count, ops.count_reasons()) == (OpSource.CAPTURE, 4, {})


def test_a_capture_without_names_is_matched_by_order() -> None:
    names, _ = join(replay(*KERNELS), capture(*MODEL, named=False))
    assert names == OPS


def test_copies_and_fills_must_be_at_the_same_places() -> None:
    replayed = [
        runtime("cudaGraphLaunch", 0, 5, 1),
        memset("Memset (Device)", 10, 1, 1),
        kernel("k", 20, 5, 1),
        memcpy("Memcpy DtoD (Device -> Device)", 30, 2, 1),
    ]

    def made_of(*calls: str) -> list[Entry]:
        nodes = [(cpu(f"op{k}", 20 * k, 10), runtime(call, 20 * k + 1, 2, 50 + k)) for k, call in enumerate(calls)]
        entries = [entry for pair in nodes for entry in pair]
        return [runtime("cudaStreamBeginCapture", -5, 1, 40), *entries, runtime("cudaStreamEndCapture", 90, 1, 41)]

    assert join(replayed, made_of("cudaMemsetAsync", "cudaLaunchKernel", "cudaMemcpyAsync"))[0] == ["op0", "op1", "op2"]
    assert join(replayed, made_of("cudaMemcpyAsync", "cudaLaunchKernel", "cudaMemsetAsync"))[0] == ["", "", ""]


def test_an_eager_run_gives_ops_from_its_last_matching_part() -> None:
    warmup = [("aten::copy_", "copy_kernel"), *MODEL]
    names, ops = join(replay(*KERNELS), eager(*warmup, *MODEL, ("aten::argmax", "argmax_kernel")))
    assert names == OPS
    assert ops.source is OpSource.EAGER
    starts = ops.captures[0].start[ops.join.launch]
    assert starts.min() >= 20_000 * len(warmup)


def test_without_any_capture_each_kernel_has_that_reason() -> None:
    names, ops = join(replay(*KERNELS))
    assert names == [""] * 4
    assert ops.count_reasons() == {Reason.NO_CAPTURE: 4}
    assert ops.source is OpSource.NONE


def test_a_capture_of_another_model_is_not_taken() -> None:
    _, ops = join(replay(*KERNELS), capture(("aten::cos", "cos_kernel"), ("aten::sin", "sin_kernel")))
    assert ops.count_reasons() == {Reason.OTHER_KERNELS: 4}


def test_a_renamed_kernel_is_matched_by_its_class_and_marked() -> None:
    names, ops = join(replay(*KERNELS), capture(("aten::addmm", OTHER_GEMM), *MODEL[1:]))
    assert names == OPS
    assert ops.join.doubt.tolist() == [Doubt.OTHER_NAME, Doubt.NONE, Doubt.NONE, Doubt.NONE]


def test_a_kernel_that_the_capture_lacks_is_counted() -> None:
    names, ops = join(replay(*KERNELS), capture(MODEL[0], *MODEL[2:]))
    assert names == ["aten::addmm", "", "aten::addmm", "aten::sum"]
    assert ops.count_reasons() == {Reason.NOT_IN_CAPTURE: 1}


def test_launches_that_the_replay_lacks_are_skipped() -> None:
    names, _ = join(replay(*KERNELS), capture(MODEL[0], ("aten::cos", "cos_kernel"), *MODEL[1:]))
    assert names == OPS


def test_of_two_captures_that_with_the_same_kernels_is_chosen() -> None:
    small = [("aten::mv", "gemv_kernel"), *MODEL[1:]]
    both = capture(*small), capture(*MODEL)
    assert join(replay(*KERNELS), *both)[1].join.capture.tolist() == [1] * 4
    assert join(replay("gemv_kernel", *KERNELS[1:]), *both)[1].join.capture.tolist() == [0] * 4


def test_of_two_captures_with_the_same_kernels_that_with_the_same_grids_is_chosen() -> None:
    both = capture(*MODEL, grid=[1, 1, 1]), capture(*MODEL, grid=[8, 1, 1])
    for number, blocks in enumerate((1, 8)):
        _, ops = join(replay(*KERNELS, grid=[blocks, 1, 1]), *both)
        assert ops.join.capture.tolist() == [number] * 4
        assert not ops.join.doubt.any()


def test_of_two_captures_without_names_the_batch_size_of_the_step_decides() -> None:
    step = annotation("execute_24_context_0(sq0)_generation_24(sq24)", 90, 30)
    captures = [capture(*MODEL, named=False, batch=size) for size in (8, 32, 64)]
    _, ops = join([step, *replay(*KERNELS)], *captures)
    assert ops.join.capture.tolist() == [1] * 4
    assert not ops.join.doubt.any()


def test_captures_without_names_that_fit_alike_leave_the_shapes_uncertain() -> None:
    names, ops = join(replay(*KERNELS), capture(*MODEL, named=False), capture(*MODEL, named=False))
    assert names == OPS
    assert set(ops.join.doubt.tolist()) == {Doubt.OTHER_CAPTURE}


def test_captures_without_names_and_with_other_ops_are_ambiguous() -> None:
    other = [("aten::mm", ""), *MODEL[1:]]
    _, ops = join(replay(*KERNELS), capture(*MODEL, named=False), capture(*other, named=False))
    assert ops.count_reasons() == {Reason.SEVERAL_CAPTURES: 4}


def test_each_of_several_replays_is_matched() -> None:
    replayed = [entry for k in range(3) for entry in replay(*KERNELS, corr=k + 1, start=100 * (k + 1))]
    names, ops = join([*replayed, *replay("cos_kernel", "cos_kernel", corr=9, start=900)], capture(*MODEL))
    assert len(ops.replays) == 4
    assert names == [*OPS * 3, "", ""]


LAYERS = 3
LAYER = [("aten::addmm", GEMM), ("aten::relu", "relu_kernel")]


def captured_layers(named: bool) -> list[Entry]:
    """A capture of each of three layers with the same kernels, one after the other."""
    entries = []
    for layer in range(LAYERS):
        part = capture(*LAYER, named=named, first=500 + 200 * layer)
        entries += [{**entry, "ts": entry["ts"] + 1000 * layer} for entry in part]
    return entries


def replayed_layers(count: int) -> list[Entry]:
    kernels = [name for _, name in LAYER]
    return [entry for k in range(count) for entry in replay(*kernels, corr=k + 1, start=100 * (k + 1))]


def layers_of(ops: CapturedOps) -> list[int]:
    """The layer that each replay was matched with."""
    starts = ops.captures[0].start[ops.join.launch[ops.replays.first[:-1]]]
    return [int(each) for each in starts // 1_000_000]


@pytest.mark.parametrize("named", [True, False])
def test_layers_with_the_same_kernels_are_replayed_in_the_order_of_their_captures(named: bool) -> None:
    names, ops = join(replayed_layers(2 * LAYERS), captured_layers(named))
    assert names == ["aten::addmm", "aten::relu"] * 2 * LAYERS
    assert layers_of(ops) == [0, 1, 2, 0, 1, 2]
    assert not ops.join.doubt.any()


def test_layers_of_incomplete_steps_are_uncertain() -> None:
    names, ops = join(replayed_layers(2 * LAYERS + 1), captured_layers(True))
    assert names == ["aten::addmm", "aten::relu"] * (2 * LAYERS + 1)
    assert set(ops.join.doubt.tolist()) == {Doubt.OTHER_CALL}


def test_layers_of_an_eager_run_are_replayed_in_their_order() -> None:
    _, ops = join(replayed_layers(LAYERS), eager(*LAYER * LAYERS))
    assert ops.join.launch.tolist() == sorted(ops.join.launch.tolist())
    assert len(set(ops.join.launch.tolist())) == 2 * LAYERS


def test_too_many_different_replays_are_not_all_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay_join, "MAX_ALIGNED", 1)
    replayed = [
        entry for k, name in enumerate("abc") for entry in replay(name, *KERNELS[1:], corr=k + 1, start=100 * k)
    ]
    _, ops = join(replayed, capture(("aten::addmm", GEMM), *MODEL[1:]))
    assert ops.count_reasons() == {Reason.TOO_MANY: 8, Reason.NOT_IN_CAPTURE: 1}


def test_graph_node_ids_give_the_order_of_capture() -> None:
    names = ["a", "b", "c"]
    entries = [
        kernel(name, start, 5, 1, stream=stream, **{"graph node id": (7 << 32) + k})
        for k, (name, start, stream) in enumerate(zip(names, (30, 10, 20), (7, 8, 9), strict=True))
    ]
    made = [runtime("cudaGraphLaunch", 0, 5, 1), *entries]
    found, ops = join(made, capture(*((f"op_{name}", name) for name in names), named=False))
    assert found == ["op_a", "op_b", "op_c"]
    assert ops.replays.has_node_ids.all()


def test_annotations_of_nodes_are_the_ops_where_nothing_was_captured() -> None:
    entries = [kernel(name, 10 * k, 5, 1, **{"graph node id": k}) for k, name in enumerate("abc", start=1)]
    entries[0]["args"] |= {"name": "attention", "module_fqn": "layers.0.attention"}
    entries[1]["args"] |= {"name": "mlp"}
    names, ops = join([runtime("cudaGraphLaunch", 0, 5, 1), *entries])
    assert names == ["layers.0.attention", "mlp", ""]
    assert ops.source is OpSource.ANNOTATIONS
    assert ops.count_reasons() == {Reason.NO_CAPTURE: 1}


def test_a_capture_in_the_trace_itself_is_used() -> None:
    made = trace(*capture(*MODEL), *replay(*KERNELS, start=1000))
    ops = get_captured_ops(made)
    assert ops is not None
    assert op_names(made, ops) == OPS
    assert ops.captures == ()


def test_each_stream_of_a_replay_is_aligned_on_its_own() -> None:
    nodes = [("op0", "a"), ("op1", "b"), ("op2", "a"), ("op3", "c")]
    replayed = [
        runtime("cudaGraphLaunch", 0, 5, 1),
        kernel("a", 10, 5, 1, stream=7),
        kernel("c", 12, 5, 1, stream=8),
        kernel("b", 20, 5, 1, stream=7),
        kernel("a", 30, 5, 1, stream=7),
    ]
    names, _ = join(replayed, capture(*nodes))
    assert names == ["op0", "op1", "op2", "op3"]


def test_a_capture_whose_file_is_gone_is_left_out() -> None:
    made = trace(*replay(*KERNELS))
    ops = build_captured_ops(made, [plain_trace(*capture(*MODEL)), trace(*capture(*MODEL))])
    assert op_names(made, ops) == OPS
    assert set(ops.join.capture.tolist()) == {1}


def test_kernels_outside_of_replays_have_no_captured_op() -> None:
    made = trace(*eager(*MODEL))
    assert get_captured_ops(made) is None
    assert all(find_captured_chain(made, event) is None for event in range(len(made)))


def test_replayed_kernels_are_found_by_the_name_of_their_op() -> None:
    made = trace(*capture(*MODEL), *replay(*KERNELS, start=1000))
    before = search_names(made, "aten::addmm")
    assert get_captured_ops(made) is not None
    after = search_names(made, "aten::addmm")
    assert isinstance(before, SearchResult)
    assert isinstance(after, SearchResult)
    added = sorted(set(after.events.tolist()) - set(before.events.tolist()))
    assert [made.event(event).name for event in added] == [GEMM, GEMM]
    assert after.starts.tolist() == sorted(after.starts.tolist())


NAMES = st.sampled_from(["a", "b", "relu_kernel", GEMM, OTHER_GEMM])


@given(
    replays=st.lists(st.lists(NAMES, min_size=2, max_size=6), min_size=1, max_size=3),
    captures=st.lists(st.lists(NAMES, min_size=1, max_size=8), max_size=3),
    named=st.booleans(),
    streams=st.lists(st.integers(7, 9), min_size=6, max_size=6),
)
def test_each_replayed_kernel_has_an_op_or_a_reason(
    replays: list[list[str]], captures: list[list[str]], named: bool, streams: list[int]
) -> None:
    entries = [
        entry
        for k, kernels in enumerate(replays)
        for entry in (
            runtime("cudaGraphLaunch", 1000 * k, 5, k + 1),
            *(kernel(name, 1000 * k + 10 * (n + 1), 5, k + 1, stream=streams[n]) for n, name in enumerate(kernels)),
        )
    ]
    made = trace(*entries)
    sources = [capture(*((f"op{n}", name) for n, name in enumerate(names)), named=named) for names in captures]
    ops = build_captured_ops(made, [trace(*source) for source in sources])
    assert sorted(ops.replays.work.tolist()) == np.flatnonzero(made.links.launch_of >= 0).tolist()
    for event in ops.replays.work.tolist():
        assert (ops.find_op(made, event) is None) == (ops.find_reason(event) != "")
    for first, last in zip(ops.replays.first[:-1].tolist(), ops.replays.first[1:].tolist(), strict=True):
        launches = ops.join.launch[first:last]
        used = launches[launches >= 0]
        assert len(np.unique(used)) == len(used)
        assert len(np.unique(ops.join.capture[first:last][launches >= 0])) <= 1


def test_a_capture_on_a_thread_without_ops_gives_no_op() -> None:
    """The launch and its lines are known, but the op is not: torch.profiler records one thread's ops by default."""
    other_thread = [cpu("aten::ones", 400, 5, thread=99)]
    bare = [entry for entry in capture(*MODEL) if entry["cat"] != "cpu_op"]
    _, ops = join(replay(*KERNELS), [*bare, *other_thread])
    assert ops.matched_count == 0
    assert ops.count_reasons() == {Reason.NO_OPS_OF_THREAD: len(MODEL)}
    assert ops.first_unmatched == ops.replays.work[0]
    assert "profile_all_threads" in ops.find_reason(int(ops.replays.work[0]))
