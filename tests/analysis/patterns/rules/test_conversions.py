"""Test the patterns of casts and layout changes on traces made for them and on real ones."""

from __future__ import annotations

import pytest

from tests.analysis.patterns.rules import test_attention_layout
from tests.helpers.long_run import keep_some
from tests.helpers.paths import SHARED_TRACES
from tests.helpers.pattern_cases import ABSENT, CANNOT_TELL, FIRED, Cases, case_params, check_case, find_missing_answers
from tests.helpers.pattern_traces import CPU_ONLY, GEMM, H200, check_pattern, healthy, op_with_work
from tests.helpers.trace_builder import Entry, cpu, trace
from torchprof_tui.analysis.kernel.names.name_decoder import decode_kernel_name
from torchprof_tui.analysis.patterns.engine.pattern import State
from torchprof_tui.analysis.patterns.rules import conversions
from torchprof_tui.trace.loading.load_in_process import load_trace

CASTS, LAYOUT = "autocast-casts", "layout-conversion"
CAST = (
    "void at::native::vectorized_elementwise_kernel<4, at::native::bfloat16_copy_kernel_cuda(at::TensorIteratorBase&)::"
    "{lambda(float)#1}, std::array<char*, 2ul> >(int, at::native::bfloat16_copy_kernel_cuda(at::TensorIteratorBase&)::"
    "{lambda(float)#1}, std::array<char*, 2ul>)"
)
COPY = (
    "void at::native::elementwise_kernel<128, 4, at::native::gpu_kernel_impl_nocast<at::native::direct_copy_kernel_cuda"
    "(at::TensorIteratorBase&)::{lambda()#3}::operator()() const::{lambda()#12}::operator()() const::"
    "{lambda(c10::BFloat16)#1}>(at::TensorIteratorBase&, at::native::direct_copy_kernel_cuda(at::TensorIteratorBase&)::"
    "{lambda()#3}::operator()() const::{lambda()#12}::operator()() const::{lambda(c10::BFloat16)#1} const&)::"
    "{lambda(int)#1}>(int, at::native::gpu_kernel_impl_nocast<at::native::direct_copy_kernel_cuda"
    "(at::TensorIteratorBase&)::{lambda()#3}::operator()() const::{lambda()#12}::operator()() const::"
    "{lambda(c10::BFloat16)#1}>(at::TensorIteratorBase&, at::native::direct_copy_kernel_cuda(at::TensorIteratorBase&)::"
    "{lambda()#3}::operator()() const::{lambda()#12}::operator()() const::{lambda(c10::BFloat16)#1} const&)::"
    "{lambda(int)#1})"
)
NHWC = (
    "void cudnn::engines_precompiled::nchwToNhwcKernel<float, float, float, false, true, (cudnnKernelDataType_t)2>"
    "(cudnn::engines_precompiled::nchw2nhwc_params_t<float>, float const*, float*)"
)
V100 = {**H200, "name": "Tesla V100-SXM2-32GB", "computeMajor": 7, "computeMinor": 0}


def under(outer: list[str], op: str, kernel: str, microseconds: float = 100) -> list[Entry]:
    """A product of 900 µs, then a kernel whose op was called by these ops, the outermost first."""
    entries = op_with_work("aten::mm", 0, 20, 900, GEMM)
    entries += [cpu(name, 20 + depth, 60 - 2 * depth) for depth, name in enumerate(outer)]
    return entries + op_with_work(op, 40, 920, microseconds, kernel)


AUTOCAST = ["aten::linear", "aten::to", "aten::_to_copy"]

CASES: Cases = {
    CASTS: {
        FIRED: under(AUTOCAST, "aten::copy_", CAST),
        ABSENT: under(AUTOCAST, "aten::copy_", CAST, 30),
        CANNOT_TELL: CPU_ONLY,
    },
    LAYOUT: {
        FIRED: under(["aten::cudnn_convolution"], "aten::cudnn_convolution", NHWC),
        ABSENT: healthy(),
        CANNOT_TELL: CPU_ONLY,
    },
}


@pytest.mark.parametrize(("name", "state"), case_params(CASES))
def test_fires_absent_cannot_tell(name: str, state: State) -> None:
    check_case(CASES, name, state)


def test_every_pattern_has_a_trace_for_each_answer() -> None:
    assert not find_missing_answers(conversions, CASES | test_attention_layout.CASES)


def test_the_names_of_these_kernels() -> None:
    displays = [decode_kernel_name(name).display for name in (CAST, COPY, NHWC)]
    assert displays == ["cast fp32→bf16", "copy bf16", "layout change fp32"]


def test_casts_that_autocast_put_into_an_operator_are_named() -> None:
    finding = check_pattern(trace(*CASES[CASTS][FIRED]), CASTS)
    assert finding.answer.seen == ("10 % of GPU time in 1 cast; autocast added 1 cast into operators, 100 % of it")
    assert finding.answer.at_stake == 100_000
    assert finding.remedy.code == "model = model.to(torch.bfloat16)"


@pytest.mark.parametrize(
    ("entries", "device", "action", "code"),
    [
        (under(AUTOCAST, "aten::copy_", CAST), V100, "compile the model", "torch.compile(model)"),  # no bf16
        (under(["aten::to", "aten::_to_copy"], "aten::copy_", CAST), H200, "keep each tensor in one type", ""),
        (
            [
                *under(AUTOCAST, "aten::copy_", CAST),
                *op_with_work("aten::gelu", 90, 1100, 9, "triton_poi_fused_gelu_0"),
            ],
            H200,
            "outside the compiled code",
            "",
        ),
    ],
)
def test_the_remedy_for_casts_fits_owner_and_gpu(
    entries: list[Entry], device: dict[str, object], action: str, code: str
) -> None:
    finding = check_pattern(trace(*entries, header={"deviceProperties": [device]}), CASTS)
    assert finding.state is FIRED
    assert action in finding.remedy.action
    assert finding.remedy.code.endswith(code)
    assert bool(finding.remedy.code) == bool(code)


def test_casts_of_attention_by_the_slow_reference_are_counted_there() -> None:
    entries = under(["aten::_scaled_dot_product_attention_math", "aten::to"], "aten::copy_", CAST)
    assert check_pattern(trace(*entries), CASTS).state is ABSENT
    assert check_pattern(trace(*entries), "sdpa-math").state is FIRED


@pytest.mark.parametrize(
    ("outer", "kernel", "state"),
    [
        (["aten::contiguous", "aten::clone"], COPY, FIRED),
        (["aten::reshape", "aten::clone"], COPY, FIRED),
        (["aten::clone"], COPY, ABSENT),  # a copy in the same layout
        (["aten::contiguous", "aten::to"], CAST, ABSENT),  # a cast
    ],
)
def test_copies_into_another_layout(outer: list[str], kernel: str, state: State) -> None:
    finding = check_pattern(trace(*under(outer, "aten::copy_", kernel)), LAYOUT)
    assert finding.state is state
    if state is FIRED:
        assert "aten::contiguous or aten::reshape" in finding.answer.seen
        assert finding.remedy.code == ""


def test_convolutions_are_told_to_use_channels_last() -> None:
    finding = check_pattern(trace(*CASES[LAYOUT][FIRED]), LAYOUT)
    assert finding.answer.seen == "10 % of GPU time in 1 copy, mostly for convolutions"
    assert "channels_last" in finding.remedy.code


@pytest.mark.parametrize("name", [CASTS, LAYOUT])
def test_on_a_gpu_that_waits_a_conversion_is_no_problem(name: str) -> None:
    entries = [*CASES[name][FIRED], *op_with_work("aten::mm", 50_000, 50_020, 1, GEMM)]
    finding = check_pattern(trace(*entries), name)
    assert finding.state is ABSENT
    assert "but only 100.0 µs in total" in finding.answer.seen


@pytest.mark.parametrize(
    ("name", "pattern", "state"),
    keep_some(
        [
            ("gpt2_train_modules_flops", CASTS, FIRED),
            ("attention_flash", CASTS, ABSENT),
            ("resnet18_pinned_workers", CASTS, ABSENT),
            ("resnet18_pinned_workers", LAYOUT, FIRED),
            ("attention_flash", LAYOUT, ABSENT),
        ],
        2,
    ),
)
def test_real_traces(name: str, pattern: str, state: State) -> None:
    path = SHARED_TRACES / f"{name}.pt.trace.json.gz"
    if not path.exists():
        pytest.skip("the shared traces are not available")
    assert check_pattern(load_trace(str(path), cache=False), pattern).state is state
