"""Test forecasts on literal steps, one scenario each, and on the samples."""

from __future__ import annotations

from typing import Any

import pytest

from tests.helpers.long_run import keep_some
from tests.helpers.paths import SAMPLES
from tests.helpers.trace_builder import annotation, cpu, kernel, runtime, step, trace
from torchprof_tui.analysis.what_if.forecast import Forecast, Forecaster, Resource
from torchprof_tui.analysis.what_if.scenario import ScenarioError
from torchprof_tui.analysis.what_if.step_model import build_step_model
from torchprof_tui.api.trace import open as open_trace

GEMM = "ampere_sgemm_128x64_nn"
ADD = (
    "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, at::detail::Array<char*, 3>>"
)
NCCL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


def predict(entries: list[Any], *scenarios: str) -> Forecast:
    return Forecaster(build_step_model(trace(*entries))).predict(scenarios)


def launch(name: str, at: float, begin: float, takes: float, corr: int, op: str = "aten::mm", **more: Any) -> list[Any]:
    """An op of 8 µs at `at` with its launch, 4 to 6 µs in, and its kernel."""
    return [
        cpu(op, at, 8),
        runtime("cudaLaunchKernel", at + 4, 2, corr),
        kernel(name, begin, takes, corr, **more),
    ]


def gpu_bound() -> list[Any]:
    """Two ops of 8 µs each; 100 µs of gemm and 50 of addition, one after the other."""
    return [step(1, 0, 20), *launch(GEMM, 0, 7, 100, 1), *launch(ADD, 10, 108, 50, 2, "aten::add")]


def test_a_class_of_kernels_on_the_path() -> None:
    forecast = predict(gpu_bound(), "class=gemm*0.5")
    assert forecast.recorded == 158_000
    assert forecast.alone == 108_000
    assert (forecast.before, forecast.after) == (151_000, 101_000)  # the next step's launch is hidden
    assert forecast.limit is Resource.GPU
    assert forecast.bottleneck is not None
    assert forecast.bottleneck.label in ("kernel: gemm", "kernel: elementwise")


def test_faster_kernels_of_a_cpu_bound_step_win_nothing() -> None:
    entries = [step(1, 0, 200), cpu("aten::long", 0, 190), *launch(GEMM, 190, 197, 3, 1)]
    forecast = predict(entries, "class=gemm*0")
    assert forecast.after == forecast.before == 200_000
    assert forecast.limit is Resource.CPU
    assert predict(entries, "op=aten::long*0.5").after == 105_000


def test_a_kernel_that_the_next_step_hides_shortens_one_step_by_itself_alone() -> None:
    entries = [step(1, 0, 200), cpu("aten::long", 0, 90), *launch(GEMM, 90, 97, 150, 1), cpu("aten::later", 98, 102)]
    forecast = predict(entries, "class=gemm*0.5")
    assert (forecast.recorded, forecast.alone) == (247_000, 200_000)
    assert forecast.after == forecast.before == 200_000
    assert sum(part.time for part in forecast.path) == forecast.after  # none of it is the gemm's
    assert {part.resource for part in forecast.path} == {Resource.CPU}
    assert forecast.describe_alone().startswith("one step by itself: 247.0 µs → 200.0 µs; ")
    assert predict(entries, "cpu=0.5").describe_alone()  # 247 → 197, and 200 → 150 from one to the next
    assert not predict(entries).describe_alone()
    assert not predict([step(1, 0, 200), cpu("aten::long", 0, 190)], "cpu=0.5").describe_alone()


def test_an_op_is_its_cpu_time_and_its_work() -> None:
    forecast = predict(gpu_bound(), "op=aten::add*0")
    assert forecast.alone == 108_000  # the launch takes no time, the gap of the stream stays
    assert predict(gpu_bound(), "op=aten::mm*0", "op=aten::add*0").alone < 15_000


def test_an_event_by_its_row_is_a_kernel_or_an_op() -> None:
    entries = gpu_bound()
    model = trace(*entries)
    rows = [row for row in range(len(model)) if model.event(row).name in (GEMM, "aten::mm")]
    times = [Forecaster(build_step_model(model)).predict([f"event={row}*0.5"]).alone for row in rows]
    assert times == [105_000, 108_000] or times == [108_000, 105_000] or max(times) <= 108_000


def blocked() -> list[Any]:
    """A kernel of 100 µs that the thread waits for, and 90 µs of CPU work after it that nothing on the GPU needs."""
    return [
        step(1, 0, 200),
        *launch(GEMM, 0, 7, 100, 1),
        runtime("cudaStreamSynchronize", 9, 99, 3),
        cpu("aten::later", 108, 92),
    ]


def test_without_a_blocking_call_cpu_and_gpu_overlap() -> None:
    forecast = predict(blocked(), "sync=0")
    assert forecast.recorded == forecast.before == 200_000
    assert forecast.after == 101_000  # 8 + 1 of the first op, 92 of the later one
    assert forecast.speedup == pytest.approx(200 / 101)


def test_scenarios_stack() -> None:
    assert predict(blocked(), "sync=0", "cpu=0.5").after == 100_000  # then the kernel limits
    assert predict(blocked(), "sync=0", "cpu=0.5", "gpu=0").after == 50_500


def test_the_data_loader_is_gone() -> None:
    entries = [
        step(1, 0, 300),
        annotation("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 0, 250),
        cpu("aten::stack", 10, 200),
        *launch(GEMM, 260, 267, 10, 1),
    ]
    assert predict(entries, "dataloader=0").after == 50_000


def test_a_graph_takes_the_launches_off_the_cpu() -> None:
    entries = [step(1, 0, 400)]
    for number in range(20):
        entries += launch(ADD, 20 * number, 20 * number + 7, 3, number + 1, "aten::add")
    forecast = predict(entries, "launch=graph")
    assert forecast.before == 400_000
    assert 60_000 < forecast.after < 100_000  # 20 kernels of 3 µs, gaps of 0.45 µs, and what is outside of ops
    assert forecast.limit is Resource.GPU


def test_a_graph_leaves_cold_calls() -> None:
    entries = [step(1, 0, 5400), cpu("aten::cold", 200, 5000), runtime("cudaMalloc", 210, 4000, 99)]
    for number in range(20):
        at = 20 * number + (5000 if number >= 10 else 0)
        entries += launch(ADD, at, at + 7, 3, number + 1, "aten::add")
    assert 4_000_000 < predict(entries, "launch=graph").after < 4_250_000  # cudaMalloc, not the 990 µs behind it


def test_compiled_neighbours_are_merged() -> None:
    entries = [step(1, 0, 30)]
    for number in range(3):
        entries += launch(ADD, 10 * number, 7 + 501 * number, 500, number + 1, "aten::add")
    assert predict(entries, "compile").after < 700_000 < 1_500_000 < predict(entries).before


def test_a_fused_optimizer() -> None:
    entries = [step(1, 0, 420), annotation("Optimizer.step#Adam.step", 10, 405)]
    for number in range(20):
        entries += launch(ADD, 12 + 20 * number, 19 + 20 * number, 3, number + 1, "aten::add")
    assert predict(entries, "optimizer=fused").after < 60_000


def test_overlapped_collectives_hold_up_nothing() -> None:
    entries = [
        step(1, 0, 40),
        *launch(NCCL, 0, 7, 200, 1, "nccl:all_reduce", stream=20),
        runtime("cudaEventRecord", 9, 1, 5),
        runtime("cudaStreamWaitEvent", 11, 1, 6),
        *launch(GEMM, 14, 208, 300, 2, stream=7),
    ]
    assert predict(entries).alone == 508_000
    forecast = predict(entries, "collectives=overlapped")
    assert forecast.alone < 330_000


@pytest.mark.parametrize(
    ("scenario", "said"),
    [
        ("class=conv*0.5", "no conv kernels in this step"),
        ("op=aten::conv2d*0", "no op 'aten::conv2d'"),
        ("kernel=flash*0", "'flash'"),
        ("event=99*0", "event 99 is not part"),
        ("sync=0", "no blocking call"),
        ("dataloader=0", "no data loader"),
        ("collectives=0", "no collectives"),
        ("copies=0", "no copies"),
        ("optimizer=fused", "no Optimizer.step"),
        ("rank=3*0", "no rank 3; the trace names no rank"),
        ("late-rank=0", "several ranks"),
    ],
)
def test_what_changes_nothing_is_refused(scenario: str, said: str) -> None:
    with pytest.raises(ScenarioError, match=said):
        predict(gpu_bound(), scenario)


@pytest.mark.parametrize(
    "sample", keep_some(sorted(SAMPLES.glob("*.json.gz")), 6), ids=lambda path: path.name.split(".")[0]
)
def test_samples_are_replayed_and_never_slower_with_less(sample: Any) -> None:
    with open_trace(sample) as opened:
        same = opened.what_if([])
        assert same.before_us == same.predicted_us
        assert abs(same.replay_error) < 0.05
        half = opened.what_if(["cpu=0.5"])
        assert half.predicted_us <= same.before_us
        assert opened.what_if(["cpu=0.5", "cpu=0.5"]).predicted_us <= half.predicted_us
        assert opened.what_if(["cpu=0"]).predicted_us <= same.before_us


def test_without_the_profiler_ops_and_launches_are_shorter_and_kernels_are_not() -> None:
    """100 ops of 20 µs with a launch each, 5 µs of other code between two; then the same with long kernels."""
    for takes, is_gpu_bound in ((1.0, False), (60.0, True)):
        entries: list[Any] = [step(1, 0, 2500)]
        for number in range(100):
            at = 25.0 * number
            entries += [cpu("aten::add", at, 20), runtime("cudaLaunchKernel", at + 4, 12, number + 1)]
            entries.append(kernel(ADD, max(at + 18, 18 + number * takes), takes, number + 1))
        forecaster = Forecaster(build_step_model(trace(*entries)))
        recorded, left = forecaster.unchanged.step_time, forecaster.leave_out_profiler().unchanged.step_time
        saved = recorded - left
        assert saved == pytest.approx(0, abs=10_000) if is_gpu_bound else saved == pytest.approx(770_000, rel=0.01)


def test_a_wait_for_the_gpu_is_none_of_the_profilers_time() -> None:
    entries = [step(1, 0, 200), *launch(GEMM, 0, 7, 180, 1), runtime("cudaDeviceSynchronize", 10, 178, 2)]
    forecaster = Forecaster(build_step_model(trace(*entries)))
    assert forecaster.leave_out_profiler().unchanged.step_time >= 185_000
