"""Rows of two matched recordings: sums, mirror images, and what is said of what differs."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.analysis.compare.sides import load_side, side_of
from tests.helpers.long_run import keep_some, scale_examples
from tests.helpers.paths import SAMPLES, SHARED_TRACES
from tests.helpers.trace_builder import Entry, cpu, kernel, runtime, step, trace
from torchprof_tui.analysis.compare.matched_rows import (
    CPU_CALLS,
    OUTSIDE_OPS,
    By,
    ComparedRow,
    ComparedRows,
    RowStatus,
    SideSums,
    match_sides,
)
from torchprof_tui.analysis.compare.op_tree import Side
from torchprof_tui.analysis.compare.side_analysis import SideAnalysis
from torchprof_tui.trace.model.event_kind import GPU_WORK, Kind
from torchprof_tui.trace.model.trace import Trace

ALL_BY: tuple[By, ...] = ("op", "module", "kernel", "class")
_SWAPPED = {RowStatus.ADDED: RowStatus.REMOVED, RowStatus.REMOVED: RowStatus.ADDED}


def launch(op: str, start: float, kernels: dict[str, float], corr: int, ops: tuple[str, ...] = ()) -> list[Entry]:
    """An op of 8 µs, in nested `ops`, that launches kernels of given lengths 100 µs later."""
    entries = [cpu(name, start - len(ops) + k, 8 + 2 * (len(ops) - k)) for k, name in enumerate(ops)]
    entries.append(cpu(op, start, 8))
    at = start + 100
    for number, (name, duration) in enumerate(kernels.items()):
        entries.append(runtime("cudaLaunchKernel", start + 1 + number, 0.5, corr + number))
        entries.append(kernel(name, at, duration, corr=corr + number))
        at += duration
    return entries


def two_steps(*calls: tuple[str, dict[str, float]]) -> Trace:
    """Two equal steps of 1000 µs, each with the given calls one after the other."""
    entries: list[Entry] = []
    for number in range(2):
        entries.append(step(number, number * 1000, 990))
        for index, (op, kernels) in enumerate(calls):
            entries += launch(op, number * 1000 + 10 + 20 * index, kernels, 1 + 100 * number + 10 * index)
    return trace(*entries)


def by_text(rows: ComparedRows) -> dict[str, ComparedRow]:
    return {row.text: row for row in rows.rows}


def assert_sums(rows: ComparedRows, a: Side, b: Side) -> None:
    """The rows and what is not matched sum to the whole of each side, which is counted here another way."""
    for side, sums in ((a, "sums_a"), (b, "sums_b")):
        parts = [getattr(row, sums) for row in (*rows.rows, rows.not_matched)]
        whole = SideSums(sum(p.calls for p in parts), sum(p.cpu for p in parts), sum(p.gpu for p in parts))
        assert whole == getattr(rows.total, sums)
        assert (whole.cpu, whole.gpu) == count_whole(side)
    if rows.total.delta_ns:
        assert sum(row.share for row in rows.rows) + rows.not_matched.share == pytest.approx(1)


def count_whole(side: Side) -> tuple[int, int]:
    """Sum CPU self time and GPU time of the window, event by event: ns.

    GPU work without a launch was launched before the recording, and is of no step, if launched work follows on its
    stream and none comes before it.
    """
    t, (first, last) = side.trace, side.window
    launched_rows = [row for row in range(len(t)) if Kind(int(t.kind[row])) in GPU_WORK and t.links.launch_of[row] >= 0]
    first_launched = {int(t.lane[row]): row for row in reversed(launched_rows)}
    last += 0 if side.steps else 1
    cpu_time = gpu_time = 0
    for event in range(len(t)):
        kind = Kind(int(t.kind[event]))
        if kind in GPU_WORK:
            launched = int(t.links.launch_of[event])
            if side.steps and launched < 0 and event < first_launched.get(int(t.lane[event]), -1):
                continue
            at = int(t.start[launched if launched >= 0 else event])
            gpu_time += int(t.duration[event]) if first <= at < last else 0
        elif kind in (Kind.STEP, Kind.ANNOTATION, Kind.PYTHON, Kind.OP, Kind.RUNTIME):
            on_thread = t.lanes[int(t.lane[event])].role.value == "thread"
            cpu_time += int(t.self_duration[event]) if on_thread and first <= int(t.start[event]) < last else 0
    return cpu_time, gpu_time


def mirror(row: ComparedRow) -> tuple[object, ...]:
    status = _SWAPPED.get(row.status, row.status)
    return (status.value, row.name_b, row.name_a, row.below, row.sums_b, row.sums_a, row.event_b, row.event_a)


def as_tuple(row: ComparedRow) -> tuple[object, ...]:
    return (row.status.value, row.name_a, row.name_b, row.below, row.sums_a, row.sums_b, row.event_a, row.event_b)


def assert_properties(a: Side, b: Side, by: By) -> None:
    rows, reverse = match_sides(a, b, by), match_sides(b, a, by)
    assert_sums(rows, a, b)
    assert sorted(map(str, map(mirror, rows.rows))) == sorted(map(str, map(as_tuple, reverse.rows)))
    assert mirror(rows.not_matched) == as_tuple(reverse.not_matched)
    assert mirror(rows.total) == as_tuple(reverse.total)


def test_same_ops_with_another_time() -> None:
    a = side_of(two_steps(("aten::mm", {"gemm": 10}), ("aten::add", {"add": 5})))
    b = side_of(two_steps(("aten::mm", {"gemm": 30}), ("aten::add", {"add": 4})))
    rows = match_sides(a, b)
    first, second = rows.rows[:2]
    assert (first.status, first.text, first.gpu_ns_a, first.gpu_ns_b) == (RowStatus.MATCHED, "aten::mm", 10e3, 30e3)
    assert (first.delta_ns, first.calls_a, first.calls_b) == (20e3, 1, 1)
    assert first.share == pytest.approx(20 / 19)
    assert (second.text, second.delta_ns) == ("aten::add", -1e3)
    assert second.share == pytest.approx(-1 / 19)
    assert (first.event_a, first.event_b) == (1, 1)  # the first call in the trace, after its step
    assert OUTSIDE_OPS in by_text(rows)


def test_cpu_time_of_an_op_includes_its_launches() -> None:
    side = side_of(two_steps(("aten::mm", {"gemm": 10})))
    row = by_text(match_sides(side, side))["aten::mm"]
    assert row.cpu_ns_a == 8e3  # 7.5 of its own and 0.5 of cudaLaunchKernel


def test_another_kernel_is_a_change_below_its_op() -> None:
    a = side_of(two_steps(("aten::mm", {"nvjet_sm90_tst_128x64_64x4_1x2_h_bz_coopA_TNT": 10})))
    b = side_of(two_steps(("aten::mm", {"Cijk_Alik_Bljk_BBS_MT64x64x32": 12})))
    row = match_sides(a, b).rows[0]
    assert (row.status, row.text, row.below) == (RowStatus.CHANGED, "changed: below aten::mm", "aten::mm")
    row = match_sides(a, b, "kernel").rows[0]
    assert (row.status, row.name_a, row.name_b) == (
        RowStatus.CHANGED,
        "nvjet_sm90_tst_128x64_64x4_1x2_h_bz_coopA_TNT",
        "Cijk_Alik_Bljk_BBS_MT64x64x32",
    )
    assert row.below == "aten::mm"


def test_other_names_are_a_change_below_the_common_caller() -> None:
    def convolution(inner: str, name: str, duration: float) -> Side:
        entries = launch(inner, 20, {name: duration}, 1, ("aten::conv2d", "aten::_convolution"))
        return side_of(trace(*entries))

    a = convolution("aten::cudnn_convolution", "implicit_convolve_sgemm", 10)
    b = convolution("aten::miopen_convolution", "miopenSp3AsmConv_v30", 30)
    row = match_sides(a, b).rows[0]
    assert row.status is RowStatus.CHANGED
    assert row.text == "aten::cudnn_convolution → aten::miopen_convolution"
    assert row.below == "aten::_convolution"
    assert match_sides(a, b, "kernel").rows[0].below == "aten::_convolution"


def test_added_and_removed_calls() -> None:
    a = side_of(two_steps(("aten::mm", {"gemm": 10}), ("aten::add", {"add": 5})))
    b = side_of(two_steps(("aten::mm", {"gemm": 10}), ("aten::add", {"add": 5}), ("aten::relu", {"relu": 7})))
    row = match_sides(a, b).rows[0]
    assert (row.status, row.name_a, row.name_b, row.below) == (RowStatus.ADDED, "", "aten::relu", "the step")
    assert (row.calls_a, row.calls_b, row.event_a) == (0, 1, -1)
    row = match_sides(b, a).rows[0]
    assert (row.status, row.text, row.delta_ns) == (RowStatus.REMOVED, "aten::relu", -7e3)


def test_triton_kernel_takes_the_ops_of_its_name() -> None:
    gelu = two_steps(
        ("aten::mm", {"gemm": 10}), ("aten::gelu", {"gelu": 5}), ("aten::mul", {"mul": 5}), ("aten::neg", {"neg": 2})
    )
    name = "triton_poi_fused_gelu_mul_0"
    fused = two_steps(("aten::mm", {"gemm": 10}), (name, {name: 6}), ("aten::neg", {"neg": 2}))
    rows = match_sides(side_of(gelu), side_of(fused))
    assert rows.rows[0].text == f"aten::gelu + aten::mul → {name}"
    assert (rows.rows[0].gpu_ns_a, rows.rows[0].gpu_ns_b) == (10e3, 6e3)
    assert {row.text: row.status for row in rows.rows if row.gpu_ns_a}["aten::mm"] is RowStatus.MATCHED
    rows = match_sides(side_of(gelu), side_of(fused), "kernel")
    assert rows.rows[0].text == f"gelu + mul → {name}"


def test_product_and_sum_become_one_op() -> None:
    a = side_of(two_steps(("aten::mm", {"gemm": 10}), ("aten::add", {"add": 5})))
    b = side_of(two_steps(("aten::addmm", {"gemm_bias": 11})))
    assert match_sides(a, b).rows[0].text == "aten::add + aten::mm → aten::addmm"


def test_reordered_calls_are_matched() -> None:
    calls = [(f"aten::op{number}", {f"kernel{number}": 5.0}) for number in range(4)]
    rows = match_sides(side_of(two_steps(*calls)), side_of(two_steps(*calls[::-1])))
    assert {row.status for row in rows.rows} == {RowStatus.MATCHED}


def test_graph_launch_takes_the_calls_whose_kernels_it_replays() -> None:
    calls = [(f"aten::op{number}", {f"kernel{number}": 5.0}) for number in range(3)]
    eager = side_of(two_steps(*calls))
    replay: list[Entry] = []
    for number in range(2):
        at = number * 1000
        replay += [step(number, at, 990), runtime("cudaGraphLaunch", at + 10, 8, 1 + number)]
        replay += [kernel(f"kernel{k}", at + 100 + 10 * k, 4, corr=1 + number) for k in range(3)]
    row = match_sides(eager, side_of(trace(*replay))).rows[0]
    assert row.text == "aten::op0 + aten::op1 + aten::op2 → cudaGraphLaunch"
    assert (row.calls_a, row.calls_b, row.delta_ns) == (3, 1, -3e3)
    rows = match_sides(eager, side_of(trace(*replay)), "kernel").rows[:3]
    assert {(row.status, row.text, row.delta_ns) for row in rows} == {
        (RowStatus.MATCHED, f"kernel{number}", -1e3) for number in range(3)
    }


def test_work_without_launch_is_not_matched_by_op_but_by_kernel() -> None:
    a = trace(cpu("aten::mm", 0, 10), kernel("gemm", 12, 5))
    b = trace(cpu("aten::mm", 0, 10), kernel("gemm", 12, 9))
    rows = match_sides(side_of(a), side_of(b))
    assert rows.not_matched.gpu_delta_ns == 4e3
    assert rows.not_matched.status is RowStatus.NOT_MATCHED
    assert sum(row.gpu_delta_ns for row in rows.rows) == 0
    rows = match_sides(side_of(a), side_of(b), "kernel")
    assert rows.rows[0].text == "gemm"
    assert rows.not_matched.gpu_ns_b == 0


def test_differences_are_cpu_time_where_there_is_no_gpu() -> None:
    a, b = trace(cpu("aten::mm", 0, 10)), trace(cpu("aten::mm", 0, 14))
    rows = match_sides(side_of(a), side_of(b))
    assert rows.rows[0].delta_ns == 4e3
    assert rows.rows[0].share == 1


def test_steps_of_different_number_are_compared_per_step() -> None:
    recorded = two_steps(("aten::mm", {"gemm": 10}))
    rows = match_sides(side_of(recorded), side_of(recorded, 0, 1))
    assert rows.total.delta_ns == 0
    assert by_text(rows)["aten::mm"].sums_a.calls == 2
    assert by_text(rows)["aten::mm"].calls_a == by_text(rows)["aten::mm"].calls_b == 1


def test_by_class_and_cpu_row() -> None:
    a = side_of(two_steps(("aten::mm", {"nvjet_sm90_tst_128x64_64x4_1x2_h_bz_coopA_TNT": 10})))
    rows = match_sides(a, a, "class")
    assert set(by_text(rows)) == {"gemm", CPU_CALLS}


OPS = ("aten::mm", "aten::add", "aten::gelu", "aten::addmm", "triton_poi_fused_add_gelu_0", "cudnn")
KERNELS = ("gemm", "nvjet_tst_64x8", "Cijk_x", "triton_poi_fused_add_gelu_0", "elementwise_kernel", "Memset (Device)")


@st.composite
def programs(draw: st.DrawFn) -> Trace:
    """Random steps of nested ops that launch kernels; some kernels have no launch, and steps differ."""
    entries: list[Entry] = []
    number_of_steps = draw(st.integers(0, 3))
    corr = 1
    for number in range(max(number_of_steps, 1)):
        at = number * 10_000
        if number_of_steps:
            entries.append(step(number, at, 9000))
        for _ in range(draw(st.integers(0, 5))):
            at += 100
            depth = draw(st.integers(1, 3))
            thread = draw(st.sampled_from((100, 200)))
            names = draw(st.lists(st.sampled_from(OPS), min_size=depth, max_size=depth))
            entries += [cpu(name, at + level, 90 - 2 * level, thread) for level, name in enumerate(names)]
            for launched in range(draw(st.integers(0, 3))):
                name = draw(st.sampled_from(KERNELS))
                entries.append(runtime("cudaLaunchKernel", at + 10 + 5 * launched, 2, corr, thread))
                entries.append(kernel(name, at + 200 + 30 * launched, draw(st.integers(1, 25)), corr=corr))
                corr += 1
        if draw(st.booleans()):
            entries.append(kernel(draw(st.sampled_from(KERNELS)), at + 5000, draw(st.integers(1, 25))))
    return trace(*entries, cpu("aten::last", 40_000, 1))


@given(programs(), programs())
@settings(max_examples=scale_examples(0.4), deadline=None)
def test_sums_and_mirror_image(first: Trace, second: Trace) -> None:
    for by in ALL_BY:
        assert_properties(side_of(first), side_of(second), by)


@given(programs())
@settings(max_examples=scale_examples(1), deadline=None)
def test_a_recording_matches_itself(recorded: Trace) -> None:
    assert_equal_to_itself(side_of(recorded))


def assert_equal_to_itself(side: Side) -> None:
    for by in ALL_BY:
        rows = match_sides(side, replace(side, label="other"), by)
        assert {row.status for row in rows.rows} <= {RowStatus.MATCHED}
        assert all(row.sums_a == row.sums_b and not row.delta_ns and row.name_a == row.name_b for row in rows.rows)
        assert rows.total.delta_ns == 0


SAMPLE_NAMES = (
    "geglu_mlp_eager",
    "geglu_mlp_compile",
    "matmul_add_4096_warm_eager",
    "matmul_add_4096_warm_compile",
    "attention_naive",
    "attention_flash",
    "cuda_graph_replay",
)


def sample(name: str) -> Side:
    return load_side(SAMPLES / f"{name}.pt.trace.json.gz")


@pytest.mark.parametrize(("first", "second"), keep_some(combinations(SAMPLE_NAMES, 2), 7))
def test_properties_of_sample_pairs(first: str, second: str) -> None:
    for by in ALL_BY:
        assert_properties(sample(first), sample(second), by)


@pytest.mark.parametrize("name", SAMPLE_NAMES)
def test_samples_match_themselves(name: str) -> None:
    assert_equal_to_itself(sample(name))


def test_compiled_geglu_tells_which_ops_became_the_triton_kernel() -> None:
    rows = match_sides(sample("geglu_mlp_eager"), sample("geglu_mlp_compile"))
    row = rows.rows[0]
    assert row.text == "aten::gelu + aten::mul → triton_poi_fused__unsafe_view_gelu_mul_0"
    assert (row.calls_a, row.calls_b, row.below) == (2, 1, "mlp_fwd")
    products = by_text(rows)["aten::mm"]
    assert (products.status, products.calls_a, products.calls_b) == (RowStatus.MATCHED, 3, 3)


def test_compiled_matmul_add_becomes_addmm() -> None:
    rows = match_sides(sample("matmul_add_4096_warm_eager"), sample("matmul_add_4096_warm_compile"))
    assert rows.rows[0].text == "aten::add + aten::mm → aten::addmm"
    assert rows.rows[0].share == pytest.approx(1)


def test_flash_attention_replaces_the_kernels_of_naive_attention() -> None:
    row = match_sides(sample("attention_naive"), sample("attention_flash")).rows[0]
    assert row.status is RowStatus.CHANGED
    assert row.name_b == "aten::_flash_attention_forward"
    assert (row.calls_a, row.calls_b) == (6, 1)


@pytest.mark.skipif(not SHARED_TRACES.exists(), reason="the shared traces are not here")
def test_compiled_training_leaves_no_gpu_work_unexplained() -> None:
    eager = load_side(SHARED_TRACES / "gpt2_train_modules_flops.pt.trace.json.gz")
    compiled = load_side(SHARED_TRACES / "gpt2_train_compile.pt.trace.json.gz")
    rows = match_sides(eager, compiled)
    assert_sums(rows, eager, compiled)
    one_sided = sum(row.sums_a.gpu + row.sums_b.gpu for row in rows.rows if not (row.name_a and row.name_b))
    assert one_sided < 0.05 * (rows.total.sums_a.gpu + rows.total.sums_b.gpu)


@pytest.mark.skipif(not SHARED_TRACES.exists(), reason="the shared traces are not here")
@pytest.mark.parametrize(
    ("first", "second"),
    [
        pytest.param("pairs/timesformer_mi300.json.gz", "pairs/timesformer_h100.json.gz", marks=pytest.mark.long),
        pytest.param(
            "gpt2_train_modules_flops.pt.trace.json.gz", "gpt2_train_compile.pt.trace.json.gz", marks=pytest.mark.long
        ),
        ("cuda_graph_replay.pt.trace.json.gz", "gpt2_train_compile.pt.trace.json.gz"),
    ],
)
def test_properties_of_shared_pairs(first: str, second: str) -> None:
    for by in ALL_BY:
        assert_properties(load_side(SHARED_TRACES / first), load_side(SHARED_TRACES / second), by)


def test_work_from_before_the_recording_is_of_no_step() -> None:
    """Of the step's first 300 µs the GPU runs a kernel that the step before launched: neither its time nor its row."""
    backlog = [kernel("gemm", 0, 300)]
    entries = [step(0, 0, 990), *launch("aten::mm", 10, {"gemm": 50}, 1)]
    entries[-1]["ts"] = 400
    with_backlog, without = side_of(trace(*entries, *backlog)), side_of(trace(*entries))
    rows = match_sides(without, with_backlog)
    assert (rows.total.gpu_ns_a, rows.total.gpu_ns_b) == (50e3, 50e3)
    assert rows.not_matched.sums_b.calls == 0
    analysed = SideAnalysis(with_backlog.trace, "")
    assert analysed.step_durations.tolist() == [690e3]  # from the end of the backlog to that of the thread
