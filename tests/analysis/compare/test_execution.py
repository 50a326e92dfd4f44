"""How the program of a side runs, and whether its set-up was recorded: said before anything else."""

from __future__ import annotations

import pytest

from tests.helpers.paths import find_shared_trace
from tests.helpers.pattern_traces import GEMM, op_with_work
from tests.helpers.trace_builder import Entry, annotation, cpu, kernel, runtime, step, trace
from torchprof_tui.analysis.compare.comparability import list_recording_differences
from torchprof_tui.analysis.compare.comparison import Comparison
from torchprof_tui.analysis.compare.execution import find_execution, find_set_up
from torchprof_tui.analysis.compare.side_analysis import SideAnalysis
from torchprof_tui.trace.loading.load_in_process import load_trace


def run_steps(region: str = "", kernel_name: str = GEMM, replays: int = 0) -> SideAnalysis:
    """Three steps of an op with a kernel; `replays` of a graph of four kernels follow in each."""
    entries: list[Entry] = []
    for number in range(3):
        at = 1_000.0 * number
        entries += [step(number, at, 900), *op_with_work("aten::mm", at + 1, at + 20, 50, kernel_name)]
        entries += [annotation(region, at, 100)] if region else []
        for replay in range(replays):
            corr, begin = 10 * number + replay + 1, at + 200 + 100 * replay
            entries.append(runtime("cudaGraphLaunch", begin, 5, corr))
            entries += [kernel(GEMM, begin + 10 * (1 + each), 10, corr) for each in range(4)]
    return SideAnalysis(trace(*entries), "side")


@pytest.mark.parametrize(
    ("side", "text"),
    [
        (run_steps(), "eager"),
        (run_steps(region="Torch-Compiled Region: 0/0"), "torch.compile"),
        (run_steps(kernel_name="triton_poi_fused_add_0"), "torch.compile"),
        (run_steps(kernel_name="triton_rope_kernel"), "eager"),
        (run_steps(replays=1), "CUDA graphs (1 replay a step: 4 of 5 kernels)"),
        (
            run_steps(region="## Call CompiledFxGraph f ##", replays=2),
            "torch.compile, CUDA graphs (2 replays a step: 8 of 9 kernels)",
        ),
    ],
)
def test_how_a_program_runs(side: SideAnalysis, text: str) -> None:
    assert find_execution(side).text == text


def test_how_it_runs_comes_first_and_only_where_it_differs() -> None:
    eager, compiled, replayed = run_steps(), run_steps("Torch-Compiled Region: 0/0"), run_steps(replays=1)
    first = list_recording_differences(eager, compiled)[0]
    assert (first.what, first.a, first.b) == ("how it runs", "eager", "torch.compile")
    assert "other kernels" in first.consequence
    assert "replay" not in first.consequence
    assert "replay launches many" in list_recording_differences(compiled, replayed)[0].consequence
    assert not list_recording_differences(compiled, run_steps("Torch-Compiled Region: 1/0"))


def test_launches_of_graphs_are_counted_beside_their_work() -> None:
    assert Comparison(run_steps(), run_steps(replays=2)).verdict.launches == (
        "launches a step: 1 → 3 (+200 %); kernels: 1 → 9"
    )
    assert Comparison(run_steps(), run_steps()).verdict.launches == "launches a step: 1 → 1"


def run_in_one_piece(set_up: float, captured: bool = False) -> SideAnalysis:
    """`set_up` µs of weights filled on the CPU, then 40 products; with a capture before the last ten, 20 replays."""
    entries: list[Entry] = [cpu("aten::uniform_", 0, set_up)] if set_up else []
    at = set_up + 10
    for number in range(40):
        entries += op_with_work("aten::mm", at + 100 * number, at + 100 * number + 20, 70, GEMM)
    if captured:
        entries += [
            runtime("cudaStreamBeginCapture", at + 4_000, 5, 900),
            runtime("cudaStreamEndCapture", at + 4_200, 5, 901),
            runtime("cudaGraphInstantiateWithFlags", at + 4_300, 100, 902),
        ]
        for replay in range(20):
            entries += [
                runtime("cudaGraphLaunch", at + 4_500 + 10 * replay, 5, 910 + replay),
                kernel(GEMM, at + 4_510 + 10 * replay, 9, 910 + replay),
            ]
    return SideAnalysis(trace(*entries), "side")


def test_weights_that_are_filled_on_the_cpu_first_are_set_up() -> None:
    """Nothing is dispatched to the GPU for 20 of 24 ms."""
    plain, side = run_in_one_piece(0), run_in_one_piece(20_000)
    found = find_set_up(side)
    assert found is not None
    assert (found.end, found.share) == (20_000_000, "20.0 of 24.0 ms")
    assert "aten::uniform_ 20.0 ms on the CPU" in found.signs
    assert find_set_up(plain) is None
    verdict = Comparison(plain, side).verdict
    assert verdict.first == (
        "not comparable: B's recording covers set-up (20.0 of 24.0 ms); record after it, or compare B from 20.0 ms on "
        "(--range)"
    )
    assert not verdict.is_comparable
    assert list_recording_differences(side, plain)[0].what == "set-up recorded"
    assert "A's recording covers set-up" in Comparison(side, plain).verdict.first
    assert "both recordings cover set-up" in Comparison(side, side).verdict.first


def test_a_short_start_is_no_set_up() -> None:
    assert find_set_up(run_in_one_piece(1_000)) is None


def test_a_batch_that_a_step_prepares_on_the_cpu_is_no_set_up() -> None:
    entries = [step(6, 0, 30_000), cpu("aten::to", 10, 20_000), *op_with_work("aten::mm", 20_100, 20_120, 900, GEMM)]
    assert find_set_up(SideAnalysis(trace(*entries), "side")) is None


def test_time_outside_ops_before_the_first_work_is_no_set_up() -> None:
    """Of 217 ms before the first kernel, only 2 ms compute on the CPU: the rest is the program's own code."""
    entries = [cpu("aten::to", 215_000, 2_000), *op_with_work("aten::mm", 217_100, 217_120, 90_000, GEMM)]
    assert find_set_up(SideAnalysis(trace(annotation("prepare", 0, 217_000), *entries), "side")) is None


def test_a_graph_that_is_captured_before_its_replays_is_set_up() -> None:
    found = find_set_up(run_in_one_piece(0, captured=True))
    assert found is not None
    assert found.signs == "a graph is captured"


def test_a_step_is_not_compared_with_a_recording() -> None:
    sentence = Comparison(run_steps(), run_in_one_piece(0)).verdict.first
    assert (
        sentence
        == "not comparable: A is one step and B is one piece without steps; give --steps, or a --range of one step"
    )


def test_decoding_with_graphs_after_weight_initialisation() -> None:
    """By raw JSON: aten::normal_ begins at 1.785 ms, the last aten::uniform_ ends at 848.9, the graph at 1572.6 ms."""
    path = find_shared_trace("released/geng.pt.trace.json.gz")
    if not path.exists():
        pytest.skip("needs the shared traces")
    side = SideAnalysis(load_trace(str(path), cache=False), "geng")
    found = find_set_up(side)
    assert found is not None
    first = int(side.trace.start[side.trace.name == side.trace.names.index("aten::normal_")].min())
    assert (found.end - first) / 1e6 == pytest.approx(1572.6 - 1.785, abs=0.1)
    assert found.signs.startswith("aten::uniform_ 656.0 ms, aten::normal_ 179.5 ms on the CPU")
