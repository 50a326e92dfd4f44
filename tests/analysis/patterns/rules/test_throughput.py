"""Test the patterns that compare GPU work with the device's peaks, on traces made for them and on real ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.helpers.long_run import keep_some
from tests.helpers.paths import SHARED_TRACES
from tests.helpers.pattern_cases import ABSENT, CANNOT_TELL, FIRED, Cases, case_params, check_case, find_missing_answers
from tests.helpers.pattern_traces import ADD, CPU_ONLY, GEMM, H200, SOFTMAX, check_pattern, healthy, op_with_work
from tests.helpers.shape_traces import load_entries, op_with_shapes
from tests.helpers.trace_builder import Entry, annotation, cpu, trace
from torchprof_tui.analysis.patterns.engine.pattern import Finding, State
from torchprof_tui.analysis.patterns.rules import throughput
from torchprof_tui.trace.loading.load_in_process import load_trace

ELEMENTWISE, PRODUCTS, WAVES = "memory-bound-elementwise", "gemm-efficiency", "wave-quantization"
F, H = "float", "c10::BFloat16"
FOREACH = (
    "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<at::native::(anonymous namespace)::"
    "TensorListMetadata<1>, at::native::(anonymous namespace)::BinaryOpScalarFunctor<float, 1, 1, 0>, "
    "std::multiplies<float>, float>(at::native::(anonymous namespace)::TensorListMetadata<1>)"
)
TRITON = "triton_poi_fused_gelu_mul_0"
DEVICE = {**H200, "maxThreadsPerMultiprocessor": 2048, "regsPerMultiprocessor": 65536,
          "sharedMemPerMultiprocessor": 233472, "sharedMemPerBlockOptin": 232448}  # fmt: skip


def chain(op: str = "aten::add", kernel: str = ADD, count: int = 4, each: float = 200) -> list[Entry]:
    """A matrix product of 300 µs, then this many kernels in a row."""
    entries = op_with_work("aten::mm", 0, 20, 300, GEMM)
    for index in range(count):
        entries += op_with_work(op, 10 + 10 * index, 320 + each * index, each, kernel)
    return entries


CASES: Cases = {ELEMENTWISE: {FIRED: chain(), ABSENT: chain(each=10), CANNOT_TELL: CPU_ONLY}}
"""`gemm-efficiency` needs shapes in a file, `wave-quantization` a device: see PRODUCT_SHAPES and GRIDS."""

PRODUCT_SHAPES: list[tuple[list[Any], float, State]] = [
    ([[4096, 4096], [4096, 4096]], 250, ABSENT),  # 550 TFLOP/s, 56 % of the peak
    ([[4096, 4096], [4096, 4096]], 1000, FIRED),  # 137 TFLOP/s
    ([[8, 16384], [16384, 16384]], 200, ABSENT),  # 2,690 GB/s: a product with a vector at 56 % of the bandwidth
    ([[8, 16384], [16384, 16384]], 900, FIRED),
]
"""(sizes of both operands in bf16, µs, answer)."""

GRIDS = [([140, 1, 1], FIRED), ([132, 1, 1], ABSENT), ([264, 1, 1], ABSENT), ([132 * 9 + 1, 1, 1], ABSENT)]
"""(grid of a kernel of which one block fits on each of 132 SMs, answer)."""


@pytest.mark.parametrize(("name", "state"), case_params(CASES))
def test_fires_absent_cannot_tell(name: str, state: State) -> None:
    check_case(CASES, name, state)


def test_every_pattern_has_a_trace_for_each_answer() -> None:
    assert not find_missing_answers(
        throughput,
        CASES,
        {
            PRODUCTS: {state for *_, state in PRODUCT_SHAPES} | {CANNOT_TELL},
            WAVES: {state for _, state in GRIDS} | {CANNOT_TELL},
        },
    )


def test_what_is_at_stake_is_all_but_the_longest_of_a_run() -> None:
    """One kernel has to read and write: of four in a row, three are to win. A product between them ends the run."""
    finding = check_pattern(trace(*chain()), ELEMENTWISE)
    assert finding.answer.at_stake == 600_000
    assert "1 run of several in a row" in finding.answer.seen
    entries = [*chain(count=2), *op_with_work("aten::mm", 90, 800, 300, GEMM)]
    entries += op_with_work("aten::add", 99, 1100, 100, ADD)
    finding = check_pattern(trace(*entries), ELEMENTWISE)
    assert finding.answer.at_stake == 200_000


def test_kernels_that_follow_no_other_of_their_kind_are_nothing_to_fuse() -> None:
    finding = check_pattern(trace(*chain(count=1)), ELEMENTWISE)
    assert finding.state is ABSENT
    assert "few in a row" in finding.answer.seen


def test_on_a_gpu_that_waits_moved_memory_is_no_problem() -> None:
    entries = [*chain(each=20), *op_with_work("aten::mm", 50_000, 50_020, 1, GEMM)]
    assert check_pattern(trace(*entries), ELEMENTWISE).state is ABSENT


def test_the_rate_comes_from_the_shapes(tmp_path: Path) -> None:
    big = [8192, 8192]
    entries = op_with_shapes("aten::mm", [big, big], [H, H], 0, 20, 1500, GEMM)
    for index in range(4):
        at = 10.0 + 10 * index
        entries += op_with_shapes("aten::add", [big, big], [F, F], at, 1600 + 201 * index, 200, ADD)
    seen = check_pattern(load_entries(tmp_path, entries), ELEMENTWISE).answer.seen
    assert "800.0 µs in 4 kernels that only move data at 4,027 GB/s, 84 % of memory bandwidth" in seen


@pytest.mark.parametrize(
    ("entries", "code"),
    [
        (chain(), "torch.compile(model)"),
        ([annotation("Optimizer.step#AdamW.step", 9, 90), *chain("aten::_foreach_mul_", FOREACH)],
         "torch.optim.AdamW(params, fused=True)"),
        ([annotation("Optimizer.step#SGD.step", 9, 90), *chain()], "torch.optim.SGD(params, fused=True)"),
        ([annotation("Optimizer.step#Lion.step", 9, 90), *chain()], "torch._foreach_mul_"),  # not of torch
        ([annotation("Optimizer.step#AdamW.step", 9, 90), *chain("aten::_fused_adamw_", FOREACH)], ""),  # in use
        ([*chain(), *op_with_work("aten::gelu", 90, 2000, 300, TRITON)], ""),  # compiled already
        ([cpu("aten::bmm", 0, 1), *chain("aten::_softmax", SOFTMAX)], "scaled_dot_product_attention(q, k, v)"),
    ],
)  # fmt: skip
def test_the_remedy_fits_the_owner(entries: list[Entry], code: str) -> None:
    finding = check_pattern(trace(*entries), ELEMENTWISE)
    assert finding.state is FIRED
    assert code in finding.remedy.code
    assert bool(code) == bool(finding.remedy.code)


@pytest.mark.parametrize(("dims", "microseconds", "state"), PRODUCT_SHAPES)
def test_products_below_the_peak(tmp_path: Path, dims: list[Any], microseconds: float, state: State) -> None:
    entries = op_with_shapes("aten::mm", dims, [H, H], 0, 20, microseconds, GEMM)
    assert check_pattern(load_entries(tmp_path, entries), PRODUCTS).state is state


def test_a_product_with_few_rows_is_told_by_its_bandwidth(tmp_path: Path) -> None:
    entries = op_with_shapes("aten::mm", [[8, 16384], [16384, 16384]], [H, H], 0, 20, 900, GEMM)
    finding = check_pattern(load_entries(tmp_path, entries), PRODUCTS)
    assert "aten::mm 8×16384×16384 bf16, 597 GB/s (m = 8: " in finding.answer.seen
    assert "more rows" in finding.remedy.action


def test_what_a_better_shape_wins_is_the_time_above_a_good_rate(tmp_path: Path) -> None:
    """2 × 4096³ operations take 138.9 µs at the peak and 231.5 µs at 60 % of it."""
    entries = op_with_shapes("aten::mm", [[4096, 4096], [4096, 4096]], [H, H], 0, 20, 1000, GEMM)
    finding = check_pattern(load_entries(tmp_path, entries), PRODUCTS)
    assert finding.answer.at_stake == pytest.approx(768_500, abs=200)


@pytest.mark.parametrize(
    ("entries", "device"),
    [
        (op_with_work("aten::mm", 0, 20, 500, GEMM), H200),  # no shapes
        (op_with_shapes("aten::mm", [[4096, 4096]] * 2, [H, H], 0, 20, 500, GEMM), {**H200, "name": "unknown"}),
        (CPU_ONLY, H200),
    ],
)
def test_products_cannot_be_judged(tmp_path: Path, entries: list[Entry], device: dict[str, Any]) -> None:
    finding = check_pattern(load_entries(tmp_path, entries, device), PRODUCTS)
    assert finding.state is CANNOT_TELL
    assert finding.answer.reason


def test_few_products_are_no_problem_without_shapes() -> None:
    assert check_pattern(trace(*chain(count=20)), PRODUCTS).state is ABSENT


@pytest.mark.parametrize(("grid", "state"), GRIDS)
def test_tails(grid: list[int], state: State) -> None:
    assert _check_waves(_tail(grid)).state is state


def test_what_a_tail_costs() -> None:
    """140 blocks for 132 SMs: two waves, of whose 264 places 124 stay empty: 47 % of 500 µs."""
    finding = _check_waves(_tail([140, 1, 1]))
    assert finding.answer.at_stake == 234_848
    assert "needs 1.06 waves: its last is 6.1 % full" in finding.answer.seen


def test_a_kernel_with_another_beside_it_has_no_tail() -> None:
    entries = [*_tail([140, 1, 1]), *op_with_work("aten::add", 5, 30, 400, ADD, stream=8, grid=[132, 1, 1])]
    assert _check_waves(entries).state is ABSENT


@pytest.mark.parametrize("entries", [CPU_ONLY, healthy()])
def test_tails_cannot_be_told(entries: list[Entry]) -> None:
    assert check_pattern(trace(*entries), WAVES).state is CANNOT_TELL


@pytest.mark.parametrize(
    ("name", "pattern", "state"),
    keep_some(
        [
            ("attention_naive", ELEMENTWISE, FIRED),  # 78 % of GPU time in elementwise and softmax kernels
            ("attention_math", ELEMENTWISE, ABSENT),  # these belong to `sdpa-math`
            ("resnet18_pinned_workers", ELEMENTWISE, FIRED),
            ("attention_flash", ELEMENTWISE, ABSENT),
            ("llama_decode_eager", ELEMENTWISE, ABSENT),  # the GPU mostly waits
            ("resnet18_pinned_workers", PRODUCTS, FIRED),  # TF32 convolutions at 17 % of the peak
            ("attention_math", PRODUCTS, ABSENT),  # fp32 products at 56 % of the fp32 peak
            ("llama_decode_eager", PRODUCTS, CANNOT_TELL),
            ("public/luatil+torch-profile/trace_04.json.gz", WAVES, FIRED),  # a RTX 3060: 28 SMs, 1.14 waves
            ("attention_math", WAVES, ABSENT),
        ],
        4,
    ),
)
def test_real_traces(name: str, pattern: str, state: State) -> None:
    path = SHARED_TRACES / (name if name.endswith(".gz") else f"{name}.pt.trace.json.gz")
    if not path.exists():
        pytest.skip("the shared traces are not available")
    assert check_pattern(load_trace(str(path), cache=False), pattern).state is state


def _tail(grid: list[int]) -> list[Entry]:
    """A kernel that needs so much shared memory that one block fits on an SM."""
    return op_with_work("aten::mm", 0, 20, 500, GEMM, grid=grid, block=[384, 1, 1], **{
        "registers per thread": 168, "shared memory": 200_000})  # fmt: skip


def _check_waves(entries: list[Entry]) -> Finding:
    return check_pattern(trace(*entries, header={"deviceProperties": [DEVICE]}), WAVES)


@pytest.mark.parametrize(
    ("op", "length", "is_advised"),
    [
        ("aten::addcdiv_", 300, True),
        ("aten::addcdiv_", 10, False),  # one kernel in place of these saves a part of one percent
        ("aten::_fused_adamw_", 300, False),  # in use
    ],
)
def test_a_fused_optimizer_is_advised_where_the_one_in_use_takes_a_tenth(
    op: str, length: float, is_advised: bool
) -> None:
    update = [annotation("Optimizer.step#AdamW.step", 95, 40), *op_with_work(op, 100, 1_200, length, ADD)]
    assert "optimizer" not in check_pattern(trace(*chain()), ELEMENTWISE).remedy.action
    assert ("optimizer" in check_pattern(trace(*chain(), *update), ELEMENTWISE).remedy.action) == is_advised


def test_compiled_code_is_not_advised_to_compile() -> None:
    region = annotation("Torch-Compiled Region: 0/0", 0, 1)
    assert not check_pattern(trace(region, *chain()), ELEMENTWISE).remedy.code
