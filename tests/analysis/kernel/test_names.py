# ruff: noqa: E501, SIM905  (names and their parts are literal)
"""Test the name decoder on every GPU kernel name of the shared traces, and on names of each family with full results.

`fixtures/kernel_names.tsv` is written by `tools/harvest_kernel_names.py`: distinct names with their GPU time (µs) in
our own H200 traces and in the public ones, and the result of the decoder at that time, so that a change shows here and
in the diff. Correctness is tested by the names of each family below, and by the text that a result requires in a name.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.helpers.paths import FIXTURES
from torchprof_tui.analysis.kernel.names.copies import (
    is_host_copy,
    is_pageable,
    is_pinned,
    is_to_device,
    is_to_host,
    is_within_device,
)
from torchprof_tui.analysis.kernel.names.model import KernelClass
from torchprof_tui.analysis.kernel.names.name_decoder import classify_names, decode_kernel_name
from torchprof_tui.analysis.kernel.names.syntax import (
    parse_dtype,
    parse_function,
    parse_integer,
    parse_qualified_name,
)
from torchprof_tui.analysis.kernel.names.triton import split_operations

FIXTURE = FIXTURES / "kernel_names.tsv"


class HarvestedName(NamedTuple):
    own_us: float
    public_us: float
    count: int
    kernel_class: str
    dtype: str
    tensor_core: str
    tile: str
    name: str


@cache
def load_harvested_names() -> list[HarvestedName]:
    with FIXTURE.open(encoding="utf-8", newline="") as file:
        rows = csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
        assert next(rows) == list(HarvestedName._fields)
        return [HarvestedName(float(row[0]), float(row[1]), int(row[2]), *row[3:]) for row in rows]


# All harvested names


def test_every_harvested_name_decodes_as_recorded() -> None:
    words = {True: "yes", False: "no", None: ""}
    wrong = []
    for row in load_harvested_names():
        found = decode_kernel_name(row.name)
        ours = (
            found.kernel_class.label if found.known else "UNKNOWN",
            found.dtypes[0] if found.dtypes else "",
            words[found.tensor_core],
            "x".join(map(str, found.tile or ())),
        )
        if ours != (row.kernel_class, row.dtype, row.tensor_core, row.tile):
            wrong.append((ours, row))
    assert wrong == []
    assert len(load_harvested_names()) > 1000


def test_undecoded_names_are_few_and_of_unknown_libraries() -> None:
    unread = [row.name for row in load_harvested_names() if row.kernel_class == "UNKNOWN"]
    assert len(unread) < 10
    libraries = (
        "at::native",
        "cutlass",
        "cudnn",
        "cublas",
        "nvjet",
        "triton_",
        "nccl",
        "gemm",
        "Cijk",
        "flash",
        "fmha",
    )
    assert not [name for name in unread if any(library in name for library in libraries)]


WRITTEN_AS = {
    "fp32": r"float|f32|fp32|FP32|sgemm|scudnn|_S_|_SB_|s1688",
    "tf32": r"tf32|s1688|f32f32_|tfloat32",
    "bf16": r"(?i)bf16|bfloat16|^Cijk_\w{4}_\w{4}_(BBS|B_BS|BSS)_|^nvjet_\w+_t\w[ts]_",
    "fp16": r"(?i)fp16|half|f16|hgemm|h884|h1688|^Cijk_\w{4}_\w{4}_(HHS|HSS)_|^nvjet_\w+_h\w\w_",
    "fp64": r"double|f64|dgemm",
    "int64": r"long|int64|i64",
    "bool": r"bool",
    "complex64": r"complex<float>|gcgemm",
    "int32": r"\bint\b|i32|int32",
    "int8": r"int8|char",
    "uint8": r"unsigned char|uint8",
}
"""By data type: its spellings, one of which must be in the name."""


def test_results_are_supported_by_the_name() -> None:
    """Data types need one of their spellings, tiles their numbers, some classes a word."""
    words = {
        "collective": "nccl|rccl|reduce_1stage|reduce_2stage|AllReduce|all_reduce|allreduce|multimem",
        "softmax": "(?i)softmax",
        "sort/scan": "(?i)sort|scan|topk|select|search|unique|partition|merge|cub|nonzero|where|compact|histogram",
        "random": "(?i)random|philox|dropout|distribution|bernoulli|normal|uniform|multinomial|exponential",
        "triton fused": "triton_",
        "memory": "^Mem(cpy|set)",
        "pooling": "(?i)pool|upsample|interpol|resize|grid_sampl",
    }
    invented = []
    for row in load_harvested_names():
        found = decode_kernel_name(row.name)
        digits = set(re.findall(r"\d+", row.name))
        wrong = [size for size in found.tile or () if str(size) not in digits]
        spelled = WRITTEN_AS.get(row.dtype)
        if wrong or (spelled and not re.search(spelled, row.name)):
            invented.append((row.dtype, found.tile, row.name))
        word = words.get(row.kernel_class)
        if word and not re.search(word, row.name):
            invented.append((row.kernel_class, None, row.name))
    assert invented == []


def test_the_share_of_gpu_time_that_is_decoded() -> None:
    rows = load_harvested_names()
    for column, least in (("own_us", 0.95), ("public_us", 0.90)):
        total = sum(getattr(row, column) for row in rows)
        decoded = sum(getattr(row, column) for row in rows if decode_kernel_name(row.name).known)
        assert decoded / total >= least, (column, decoded / total)


def test_what_is_shown_of_every_name() -> None:
    for row in load_harvested_names():
        found = decode_kernel_name(row.name)
        assert found.name == row.name
        assert found.display
        assert len(found.display) <= 60, found.display
        assert found.summary
        assert "\n" not in found.display + found.summary
        assert not {"None", "()", "[]"} & set((found.display + " " + found.summary).replace(",", " ").split())
        if not found.known:
            assert found.kernel_class is KernelClass.OTHER


# Families, with full results

FULL: list[tuple[str, dict[str, Any]]] = [
    (
        "ampere_bf16_s16816gemm_bf16_128x256_ldg8_f2f_stages_64x3_nn",
        {
            "kernel_class": KernelClass.GEMM,
            "library": "cuBLAS",
            "arch": "sm_80",
            "dtypes": ("bf16",),
            "tensor_core": True,
            "tile": (128, 256, 64),
            "stages": 3,
            "layout": "nn",
            "display": "gemm bf16 128×256",
            "details": (("instruction", "16×8×16"),),
        },
    ),
    (
        "ampere_fp16_s16816gemm_fp16_128x64_ldg8_relu_f2f_stages_64x4_tn",
        {
            "dtypes": ("fp16",),
            "tile": (128, 64, 64),
            "stages": 4,
            "layout": "tn",
            "epilogue": None,
            "fused": (),
        },
    ),
    (
        "volta_sgemm_128x32_sliced1x4_tn",
        {"arch": "sm_70", "dtypes": ("fp32",), "tensor_core": False, "tile": (128, 32), "layout": "tn", "stages": None},
    ),
    (
        "turing_fp16_s1688gemm_fp16_128x128_ldg8_f2f_tn",
        {"arch": "sm_75", "dtypes": ("fp16",), "tensor_core": True, "tile": (128, 128), "layout": "tn"},
    ),
    ("volta_fp16_s884gemm_fp16_128x64_ldg8_f2f_nt", {"arch": "sm_70", "tensor_core": True, "tile": (128, 64)}),
    ("ampere_dgemm_64x64_nn", {"dtypes": ("fp64",), "tensor_core": False}),
    ("volta_h884gemm_64x128_ldg8_nn", {"tensor_core": True, "tile": (64, 128), "layout": "nn"}),
    (
        "void cutlass::Kernel2<cutlass_80_wmma_tensorop_bf16_s161616gemm_bf16_32x32_128x2_tn_align8>"
        "(cutlass_80_wmma_tensorop_bf16_s161616gemm_bf16_32x32_128x2_tn_align8::Params)",
        {
            "library": "CUTLASS",
            "arch": "sm_80",
            "dtypes": ("bf16",),
            "tensor_core": True,
            "tile": (32, 32, 128),
            "stages": 2,
            "layout": "tn",
            "details": (("instruction", "16×16×16"), ("alignment", "8 elements")),
        },
    ),
    (
        "void cutlass::Kernel2<cutlass_80_simt_sgemm_128x64_8x5_nt_align1>"
        "(cutlass_80_simt_sgemm_128x64_8x5_nt_align1::Params)",
        {"dtypes": ("fp32",), "tensor_core": False, "tile": (128, 64, 8), "stages": 5, "layout": "nt"},
    ),
    (
        "void cutlass::Kernel<cutlass_80_tensorop_s1688gemm_64x64_32x6_tn_align4>"
        "(cutlass_80_tensorop_s1688gemm_64x64_32x6_tn_align4::Params)",
        {"dtypes": ("tf32",), "tensor_core": True, "tile": (64, 64, 32), "stages": 6},
    ),
    (
        "sm80_xmma_gemm_f32f32_f32f32_f32_nn_n_tilesize64x64x8_stage3_warpsize1x4x1_ffma_aligna4_alignc4_execute_kernel"
        "__5x_cublas",
        {
            "library": "cuBLAS",
            "arch": "sm_80",
            "dtypes": ("fp32",),
            "tensor_core": False,
            "tile": (64, 64, 8),
            "stages": 3,
            "layout": "nn",
        },
    ),
    (
        "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1_execute_segment_k_off_kernel"
        "__5x_cublas",
        {"arch": "sm_90", "dtypes": ("bf16",), "tensor_core": True, "tile": (128, 128, 64), "layout": "tn"},
    ),
    (
        "nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_bias_NNT",
        {
            "family": "nvjet",
            "library": "cuBLAS",
            "arch": "sm_90",
            "dtypes": ("bf16",),
            "tensor_core": True,
            "tile": (256, 128, 64),
            "stages": 4,
            "layout": "nn",
            "epilogue": "bias",
            "fused": ("bias",),
            "details": (("types", "tst"), ("cluster", "1×2"), ("layout letters", "NNT"), ("not decoded", "h_coopA")),
        },
    ),
    ("nvjet_sm90_hsh_64x8_64x16_2x4_h_bz_bias_TNT", {"dtypes": ("fp16",), "tile": (64, 8, 64), "layout": "tn"}),
    ("nvjet_sm90_tst_128x64_64x8_1x2_h_bz_splitK_NNT", {"stages": 8, "epilogue": None}),
    ("nvjet_sm90_tst_256x128_64x4_1x2_h_badd_coopA_NNT", {"epilogue": "adds a matrix (beta)", "fused": ()}),
    (
        "nvjet_qqtst_128x256_128x6_2x1_v_bz_TNT",
        {"dtypes": ("fp8 e4m3", "bf16"), "arch": None, "tile": (128, 256, 128), "stages": 6},
    ),
    (
        "void cutlass::device_kernel<cutlass::gemm::kernel::GemmUniversal<cute::tuple<int, int, int, int>, "
        "cutlass::gemm::collective::CollectiveMma<cutlass::gemm::MainloopSm90TmaGmmaWarpSpecialized<7, "
        "cute::tuple<cute::C<2>, cute::C<1>, cute::C<1> >, cutlass::gemm::KernelTmaWarpSpecializedPingpong>, "
        "cute::tuple<cute::C<64>, cute::C<128>, cute::C<64> >, cutlass::bfloat16_t, cute::tuple<long, cute::C<1>, long>, "
        "cutlass::bfloat16_t, cute::tuple<long, cute::C<1>, long> > > >(Params)",
        {
            "family": "cutlass 3",
            "arch": "sm_90",
            "dtypes": ("bf16",),
            "tile": (64, 128, 64),
            "stages": 7,
            "tensor_core": True,
        },
    ),
    (
        "void cublasLt::splitKreduce_kernel<32, 16, int, float, __nv_bfloat16, float, __nv_bfloat16, false, float, "
        "__nv_bfloat16, __nv_bfloat16, true, false, false, false>(cublasLt::cublasSplitKParams<float>)",
        {"kernel_class": KernelClass.GEMM, "dtypes": ("fp32", "bf16"), "display": "split-K sum fp32"},
    ),
    (
        "std::enable_if<!(false), void>::type internal::gemvx::kernel<int, int, __nv_bfloat16, __nv_bfloat16, "
        "__nv_bfloat16, float, false, true, true, false, 7, false, cublasGemvParamsEx<int> >(cublasGemvParamsEx<int>)",
        {"kernel_class": KernelClass.GEMM, "family": "gemv", "display": "gemv bf16"},
    ),
    (
        "Cijk_Ailk_Bjlk_HHS_BH_Bias_HA_S_SAV_UserArgs_MT128x128x32_MI32x32x8x1_SN_1LDSB0_ISA90a_IU1_WG32_8_1.kd",
        {
            "library": "rocBLAS / hipBLASLt",
            "arch": "gfx90a",
            "dtypes": ("fp16",),
            "tensor_core": True,
            "tile": (128, 128, 32),
            "layout": "nt",
            "details": (("types", "HHS"), ("instruction", "MFMA 32×32×8×1")),
        },
    ),
    (
        "_matmul_ogs_NNT_bf16xbf16xmxfp4_16x128x256x1_swiglu",
        {"kernel_class": KernelClass.GEMM, "tile": (16, 128, 256), "epilogue": "swiglu", "dtypes": ("bf16", "mxfp4")},
    ),
    (
        "cudnn_generated_fort_native_sdpa_sm90_flash_bprop_wgmma_f16_knob_26_64x64x64_1x4x1_cga1x1x1_kernel0_0",
        {
            "kernel_class": KernelClass.ATTENTION,
            "library": "cuDNN",
            "arch": "sm_90",
            "dtypes": (),  # names of bf16 kernels contain f16 as well
            "tensor_core": True,
            "tile": (64, 64, 64),
            "direction": "backward",
            "details": (("instruction", "wgmma f16"), ("knob", "26")),
        },
    ),
    (
        "fmha_cutlassF_bf16_aligned_64x64_rf_sm80(PyTorchMemEffAttention::AttentionKernel<cutlass::bfloat16_t, "
        "cutlass::arch::Sm80, true, 64, 64, 64, true, true>::Params)",
        {
            "family": "memory-efficient attention",
            "arch": "sm_80",
            "dtypes": ("bf16",),
            "tensor_core": True,
            "tile": (64, 64),
            "direction": "forward",
            "display": "mem-eff attention fwd bf16",
        },
    ),
    (
        "fmha_cutlassB_f32_aligned_64x64_k64_dropout_sm80(PyTorchMemEffAttention::AttentionBackwardKernel::Params)",
        {"direction": "backward", "fused": ("dropout",), "dtypes": ("fp32",), "tensor_core": True},
    ),
    ("fmha_cutlassF_f32_aligned_64x64_rf_sm70(Params)", {"tensor_core": False, "arch": "sm_70"}),
    (
        "void pytorch_flash::flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel<Flash_bwd_kernel_traits<64, 128, 128, 8, 4, 4, "
        "4, false, false, cutlass::half_t, Flash_kernel_traits<64, 128, 128, 8, cutlass::half_t> >, false, true>"
        "(pytorch_flash::Flash_bwd_params)",
        {
            "family": "flash attention 2",
            "dtypes": ("fp16",),
            "tile": (128, 128),
            "direction": "backward",
            "tensor_core": True,
            "details": (("head size", "64"),),
        },
    ),
    (
        "void flash_fwd_splitkv_kernel<Flash_fwd_kernel_traits<128, 64, 128, 4, false, false, cutlass::bfloat16_t, "
        "Flash_kernel_traits<128, 64, 128, 4, cutlass::bfloat16_t> >, true>(Flash_fwd_params)",
        {"tile": (64, 128), "details": (("head size", "128"), ("split", "keys and values"))},
    ),
    (
        "void cutlass::device_kernel<flash::enable_sm90_or_later<flash::FlashAttnFwdSm90<flash::CollectiveMainloopFwdSm90"
        "<2, cute::tuple<cute::C<1>, cute::C<1>, cute::C<1> >, cutlass::bfloat16_t, float, cutlass::arch::Sm90> > > >(P)",
        {"family": "flash attention 3", "kernel_class": KernelClass.ATTENTION, "arch": "sm_90", "dtypes": ("bf16",)},
    ),
    (
        "triton_poi_fused_add_gelu_3",
        {
            "kernel_class": KernelClass.TRITON,
            "fused": ("add", "gelu"),
            "display": "triton add+gelu",
            "details": (("kind", "pointwise"),),
        },
    ),
    (
        "triton_red_fused__log_softmax__to_copy_prepare_softmax_online_view_0",
        {"fused": ("_log_softmax", "_to_copy", "prepare_softmax_online", "view")},
    ),
    (
        "triton_per_fused_native_layer_norm_backward_12",
        {"fused": ("native_layer_norm_backward",), "direction": "backward"},
    ),
    ("triton_tem_fused_addmm_relu_5", {"kernel_class": KernelClass.GEMM, "fused": ("addmm", "relu")}),
    ("triton_poi_fused_0", {"fused": (), "display": "triton pointwise"}),
    (
        "ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
        {
            "kernel_class": KernelClass.COLLECTIVE,
            "display": "NCCL reduce-scatter bf16",
            "details": (("algorithm", "ring"), ("protocol", "LL (low latency)")),
            "summary": "NCCL reduce-scatter, sum, bf16, ring, LL (low latency) protocol",
        },
    ),
    (
        "ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclWorkElem)",
        {"display": "NCCL send and receive int8", "summary": "NCCL send and receive, int8, ring, Simple protocol"},
    ),
    (
        "void at::native::vectorized_elementwise_kernel<4, at::native::GeluCUDAKernelImpl(at::TensorIteratorBase&, "
        "at::native::GeluType)::{lambda()#2}::operator()() const::{lambda()#4}::operator()() const::"
        "{lambda(c10::BFloat16)#1}, std::array<char*, 2ul> >(int, at::native::GeluCUDAKernelImpl(at::TensorIteratorBase&, "
        "at::native::GeluType)::{lambda()#2}::operator()() const::{lambda()#4}::operator()() const::"
        "{lambda(c10::BFloat16)#1}, std::array<char*, 2ul>)",
        {
            "kernel_class": KernelClass.ELEMENTWISE,
            "family": "PyTorch vectorized elementwise",
            "dtypes": ("bf16",),
            "fused": ("gelu",),
            "display": "gelu bf16",
            "details": (("elements per load", "4"),),
        },
    ),
    (
        "void at::native::elementwise_kernel<128, 2, at::native::gpu_kernel_impl_nocast<at::native::BinaryFunctor<float, "
        "float, float, at::native::binary_internal::MulFunctor<float> > >(at::TensorIteratorBase&, "
        "at::native::BinaryFunctor<float, float, float, at::native::binary_internal::MulFunctor<float> > const&)::"
        "{lambda(int)#1}>(int, at::native::gpu_kernel_impl_nocast<...>)",
        {"display": "mul fp32", "family": "PyTorch strided elementwise"},
    ),
    (
        "void at::native::vectorized_elementwise_kernel<8, at::native::(anonymous namespace)::silu_backward_kernel"
        "(at::TensorIteratorBase&)::{lambda()#1}::operator()() const::{lambda()#4}::operator()() const::"
        "{lambda(c10::BFloat16, c10::BFloat16)#1}, std::array<char*, 3ul> >(int)",
        {"display": "silu bwd bf16", "direction": "backward"},
    ),
    (
        "void at::native::unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda(at::TensorIteratorBase&)::"
        "{lambda()#3}::operator()() const::{lambda()#7}::operator()() const::{lambda(float)#1}, std::array<char*, 2ul>, 4, "
        "TrivialOffsetCalculator<1, unsigned int>, TrivialOffsetCalculator<1, unsigned int>, "
        "at::native::memory::LoadWithCast<1>, at::native::memory::StoreWithCast<1> >(int)",
        {"kernel_class": KernelClass.COPY, "display": "cast fp32"},
    ),
    (
        "void at::native::vectorized_elementwise_kernel<8, at::native::bfloat16_copy_kernel_cuda(at::TensorIteratorBase&)"
        "::{lambda(float)#1}, std::array<char*, 2ul> >(int)",
        {"kernel_class": KernelClass.COPY, "display": "cast fp32→bf16", "dtypes": ("fp32", "bf16")},
    ),
    (
        "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::func_wrapper_t<float, "
        "at::native::sum_functor<float, float, float>::operator()(at::TensorIterator&)::{lambda(float, float)#1}>, "
        "unsigned int, float, 4, 4> >(at::native::ReduceOp<float>)",
        {"kernel_class": KernelClass.REDUCTION, "display": "sum fp32"},
    ),
    (
        "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::ArgMaxOps<float>, unsigned int, "
        "long, 4, 4> >(at::native::ReduceOp<float>)",
        {"display": "argmax fp32"},
    ),
    (
        "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<at::native::(anonymous namespace)::"
        "FusedOptimizerTensorListMetadata<4>, at::native::(anonymous namespace)::FusedAdamMathFunctor<float, 4, "
        "(at::native::ADAM_MODE)1, false>, float const*, double, double>(int)",
        {"kernel_class": KernelClass.OPTIMIZER, "display": "fused adam fp32"},
    ),
    (
        "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<at::native::(anonymous namespace)::"
        "TensorListScalarListMetadata<float, 3>, at::native::(anonymous namespace)::PointwiseOpScalarListFunctor<float, "
        "3, 3, 0>, std::divides<float> >(int)",
        {"kernel_class": KernelClass.OPTIMIZER, "display": "foreach addcdiv fp32"},
    ),
    (
        "void (anonymous namespace)::softmax_warp_forward<float, float, float, 11, true, false>(float*, float const*)",
        {
            "kernel_class": KernelClass.SOFTMAX,
            "display": "log softmax fwd fp32",
            "details": (("row of at most", "2048 elements"),),
        },
    ),
    (
        "void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<c10::BFloat16, float, false>(int)",
        {"kernel_class": KernelClass.NORM, "display": "layer norm fwd bf16"},
    ),
    (
        "void at_cuda_detail::cub::detail::scan::DeviceScanKernel<at_cuda_detail::cub::detail::scan::policy_hub<long, "
        "long, long, unsigned int, std::plus<long> >::Policy1000, long const*, long*>(int)",
        {"kernel_class": KernelClass.SORT, "library": "CUB", "display": "scan int64"},
    ),
    (
        "_ZN5aiter24add_rmsnorm_quant_kernelIDF16bDF16bLi256ELi16ELb1ELb0ELb1ELi1EEEvPT0_PT_PfS4_S4_S4_diiiiiiib",
        {"kernel_class": KernelClass.NORM, "library": "AITER", "display": "RMS norm"},
    ),
    (
        "igemm_wrw_gtcx2_nhwc_bf16_bx0_ex1_bt256x128x16_wt32x32x8_ws2x1_wr2x2_ta1x4x1x4_1x4x1x64_tb1x4x1x2_1x4x1x64_gkgs",
        {
            "kernel_class": KernelClass.CONV,
            "library": "MIOpen",
            "direction": "backward, weights",
            "dtypes": ("bf16",),
            "tile": (256, 128, 16),
            "layout": "nhwc",
        },
    ),
    (
        "sm80_xmma_fprop_implicit_gemm_indexed_tf32f32_tf32f32_f32_nhwckrsc_nchw_tilesize128x128x16_stage4_warpsize2x2x1"
        "_g1_tensor16x8x8_alignc4_execute_kernel_cudnn",
        {
            "kernel_class": KernelClass.CONV,
            "library": "cuDNN",
            "dtypes": ("tf32",),
            "tensor_core": True,
            "direction": "forward",
            "tile": (128, 128, 16),
            "stages": 4,
            "layout": "nhwc",
        },
    ),
    (
        "void cutlass__5x_cudnn::Kernel<cutlass_tensorop_bf16_s16816fprop_optimized_bf16_256x64_32x4_nhwc_align8>(P)",
        {
            "kernel_class": KernelClass.CONV,
            "dtypes": ("bf16",),
            "tile": (256, 64, 32),
            "stages": 4,
            "direction": "forward",
        },
    ),
    (
        "Memcpy HtoD (Pageable -> Device)",
        {"kernel_class": KernelClass.MEMORY, "direction": "host to device", "details": (("host memory", "pageable"),)},
    ),
    ("Memcpy DtoD (Device -> Device)", {"direction": "device to device", "details": ()}),
    ("Memset (Device)", {"kernel_class": KernelClass.MEMORY, "display": "memset"}),
    ("void vllm::cross_device_reduce_1stage<__nv_bfloat16, 2>(int)", {"kernel_class": KernelClass.COLLECTIVE}),
]


@pytest.mark.parametrize(("name", "expected"), FULL, ids=[name[:50] for name, _ in FULL])
def test_a_name_judged_in_full(name: str, expected: dict[str, Any]) -> None:
    found = decode_kernel_name(name)
    assert found.known
    assert {key: getattr(found, key) for key in expected} == expected


@pytest.mark.parametrize(
    "name",
    [
        "my_kernel",
        "void my::gemmy<float>(float*)",
        "kernel0",
        "_Z6kernelPf",
        "gemmlike_but_not",
        "nvjet",
        "nvjet_sm90_what_ever",
        "cutlass",
        "triton_",
        "triton_fused",
        "Cijk_nonsense",
        "volta_",
        "void at::native::vectorized_elementwise_kernel<4>",
        "",
    ],
)
def test_what_cannot_be_read_is_shown_as_it_is(name: str) -> None:
    found = decode_kernel_name(name)
    assert not found.known
    assert found.kernel_class is KernelClass.OTHER
    assert (found.library, found.arch, found.dtypes, found.tensor_core, found.tile) == (None, None, (), None, None)
    assert found.display in (name, parse_function(name).base)


def test_a_long_unread_name_is_cut() -> None:
    assert decode_kernel_name("x" * 100).display == "x" * 39 + "…"


# Never an error

pieces = st.sampled_from(
    "void at::native:: < > ( ) , :: {lambda(float)#1} nvjet_sm90_ 64x8 _ZN 12 cutlass:: Kernel< triton_poi_fused_ _MT "
    "Cijk_Alik_Bljk_ gemm 999999999999999999999 ReduceOp< reduce_kernel<512, multi_tensor_apply_kernel< softmax_warp_ "
    "forward flash_fwd_kernel< fmha_cutlassF_ -> operator()() elementwise_kernel<128, 2, gpu_kernel_impl<".split(" ")
)


@given(st.one_of(st.text(max_size=80), st.lists(pieces, max_size=14).map("".join)))
@example("_Z9223372036854775787")
@example("_ZN" + "9" * 5000 + "x")
def test_no_text_makes_it_stumble(name: str) -> None:
    found = decode_kernel_name(name)
    assert found.name == name
    assert found.as_dict()["kernel_class"] == found.kernel_class.label


@given(st.integers(0, 10_000), st.integers(1, 400))
def test_names_cut_short_anywhere(pick: int, length: int) -> None:
    """Profilers truncate long names; the rest may be undecodable, but must not give a wrong class."""
    row = load_harvested_names()[pick % len(load_harvested_names())]
    decode_kernel_name(row.name[:length])


# Parsing


def test_qualified_names_and_their_arguments() -> None:
    name = parse_function("void a::(anonymous namespace)::b<c<d, e>, (f)1, g()::{lambda(int, x<y>)#1}>::h<i>(j<k>, l)")
    assert name.path == ("a", "{anonymous}", "b", "h")
    assert name.arguments == ("i",)
    assert parse_qualified_name("b<c<d, e>, (f)1, g()::{lambda(int, x<y>)#1}>").arguments == (
        "c<d, e>",
        "(f)1",
        "g()::{lambda(int, x<y>)#1}",
    )


@pytest.mark.parametrize(
    ("text", "value"), [("4", 4), ("2ul", 2), ("(at::M)1", 1), ("-2", -2), ("x", None), ("", None)]
)
def test_literals(text: str, value: int | None) -> None:
    assert parse_integer(text) == value


@pytest.mark.parametrize(
    ("text", "short"),
    [
        ("float const*", "fp32"),
        ("c10::BFloat16", "bf16"),
        ("at::native::OpaqueType<4u>", "4-byte"),
        ("unsigned char", "uint8"),
        ("c10::complex<float>", "complex64"),
        ("Params", None),
    ],
)
def test_data_types(text: str, short: str | None) -> None:
    assert parse_dtype(text) == short


def test_operations_are_cut_where_names_meet() -> None:
    assert split_operations("_to_copy_add_native_layer_norm_view") == ("_to_copy", "add", "native_layer_norm", "view")
    assert split_operations("_unsafe_view_mul_silu") == ("_unsafe_view", "mul", "silu")
    assert split_operations("native_dropout_native_dropout_backward") == ("native_dropout", "native_dropout_backward")
    assert split_operations("") == ()


def test_split_inductor_names_are_sorted() -> None:
    """A wrong split would break the sort order in which Inductor joins the names."""
    checked = 0
    for row in load_harvested_names():
        if row.name.startswith("triton_"):
            fused = list(decode_kernel_name(row.name).fused)
            assert fused == sorted(fused), row.name
            checked += len(fused) > 1
    assert checked > 50


def test_classes_of_many_names() -> None:
    names = ["volta_sgemm_64x64_nt", "what_is_this", "Memset (Device)"]
    found = classify_names(names)
    assert found.dtype.name == "uint8"
    assert found.tolist() == [KernelClass.GEMM, KernelClass.OTHER, KernelClass.MEMORY]
    assert classify_names([]).tolist() == []


def test_class_values_are_stored_and_never_renumbered() -> None:
    assert [kind.value for kind in KernelClass] == list(range(17))
    assert (KernelClass.GEMM, KernelClass.TRITON, KernelClass.POOLING) == (1, 14, 16)
    assert len({kind.label for kind in KernelClass}) == len(KernelClass)


@pytest.mark.parametrize(
    ("name", "directions"),
    [
        ("Memcpy HtoD (Pinned -> Device)", {is_to_device, is_host_copy, is_pinned}),
        ("Memcpy DtoH (Device -> Pageable)", {is_to_host, is_host_copy, is_pageable}),
        ("Memcpy DtoD (Device -> Device)", {is_within_device}),
        ("Memcpy PtoP (Device -> Device)", set()),  # between two GPUs
        ("CopyHostToDevice", {is_to_device, is_host_copy}),
        ("CopyDeviceToHost", {is_to_host, is_host_copy}),
        ("CopyDeviceToDevice", {is_within_device}),
        ("Memcpy D2D", {is_within_device}),
        ("Device -> Host", {is_to_host, is_host_copy}),
    ],
)
def test_the_direction_of_a_copy_is_read_from_its_name(name: str, directions: set[Callable[[str], bool]]) -> None:
    tests = (is_to_device, is_to_host, is_host_copy, is_within_device, is_pageable, is_pinned)
    assert {each for each in tests if each(name)} == directions
