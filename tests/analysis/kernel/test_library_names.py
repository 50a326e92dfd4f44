# ruff: noqa: E501  (names are literal)
"""Test the names of inference libraries, older cuDNN, Composable Kernel and Ascend that `test_names.py` has no trace of.

`NAMES`: (name, class, data types, tensor cores, library). The names are those that profilers print, shortened only
behind the part that is decoded.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.helpers.paths import SHARED_TRACES
from torchprof_tui.analysis.kernel.names.model import KernelClass as K
from torchprof_tui.analysis.kernel.names.name_decoder import decode_kernel_name
from torchprof_tui.analysis.kernel.names.syntax import parse_function
from torchprof_tui.trace.loading.load_in_process import load_trace
from torchprof_tui.trace.model.event_kind import GPU_WORK

NAMES: list[tuple[str, K, tuple[str, ...], bool | None, str | None]] = [
    # trtllm-gen
    (
        "bmm_MxE4m3_MxE2m1MxE4m3_Fp32_Ab32_Bb32_Cb32_t128x128x256u2_s4x4x4x4x1x4_et128x32_m256x128x32_c2x1x1_rM_TN_transOut_schPd2x1x2x3_biasFp32M_fCp_bN_ldgsts_ldgstsSf_rgTma_clmp_swiGlu_dynB_sm100f",
        K.GEMM, ("mxfp4", "mxfp8 e4m3"), True, "TensorRT-LLM",
    ),
    ("bmm_Bfloat16_E2m1E2m1_Fp32_Ab16_Bb16_t128x8x512_s5_et128x8_m128x8x64_c1x1x1_rM_TN_transOut_dynB_sm100f", K.GEMM, ("fp4 e2m1", "bf16"), True, "TensorRT-LLM"),
    ("bmm_E4m3_E4m3E4m3_Fp32_t128x8x128u2_s6_et64x8_m64x8x32_cga1x1x1_16dp256b_rM_TN_transOut_dsFp8_sm100a", K.GEMM, ("fp8 e4m3",), True, "TensorRT-LLM"),
    ("fmhaSm100aKernel_QkvE4m3OBfloat16H64PagedKvSlidingOrChunkedCausalP16VarSeqQ128Kv128PersistentContext", K.ATTENTION, ("fp8 e4m3", "bf16"), True, "TensorRT-LLM"),
    ("fmhaSm100fKernel_QkvBfloat16OBfloat16HQk576HV512PagedKvDenseP32VarSeqQ16Kv128StaticSwapsAbForGen", K.ATTENTION, ("bf16",), True, "TensorRT-LLM"),
    # DeepGEMM
    (
        "void deep_gemm::fp8_gemm_kernel<4096u, 7168u, 128u, 160u, 128u, 0u, 64u, 9u, 4u, 128u, 128u, 1u, true, (deep_gemm::GemmType)1>(__nv_bfloat16*, float*, int*, unsigned int, CUtensorMap_st)",
        K.GEMM, ("fp8 e4m3",), True, "DeepGEMM",
    ),
    ("void deep_gemm::sm90_fp8_gemm_1d2d_impl<(cute::UMMA::Major)0, 0u, 5120u, 17408u, 1u>(float*)", K.GEMM, ("fp8 e4m3",), True, "DeepGEMM"),
    ("_ZN9deep_gemm24fp8_gemm_kernel_swapABILj7168EEEvPf", K.GEMM, ("fp8 e4m3",), True, "DeepGEMM"),
    ("void deep_gemm::sm100_fp8_mqa_logits<64u, 128u>(float*)", K.ATTENTION, ("fp8 e4m3",), True, "DeepGEMM"),
    ("void deep_gemm::transpose_and_pack_fp32_into_ue8m0<512u>(float*)", K.COPY, (), None, "DeepGEMM"),
    ("fp8_blockwise_scaled_GemmKernel<128, 128>(float*)", K.GEMM, ("fp8 e4m3",), True, None),
    ("void cutlass::device_kernel<vllm::cutlass_3x_gemm_fp8_blockwise<cutlass::bfloat16_t, 1, 128, 128>::GemmKernel>(P)", K.GEMM, ("bf16",), True, "CUTLASS"),
    ("void cutlass::device_kernel<flashinfer::gemm::DeviceGemmFp4GemmSm100<__nv_bfloat16> >(P)", K.GEMM, ("fp4 e2m1",), True, "CUTLASS"),
    ("nvjet_sm100_qqtst_128x256_128x6_2x1_2cta_v_bz_Avec32UE8M0_Bvec32UE8M0_TNT", K.GEMM, ("fp8 e4m3", "bf16"), True, "cuBLAS"),
    # cuDNN without tensor cores
    ("cudnn_infer_volta_scudnn_winograd_128x128_ldg1_ldg4_relu_tile148t_nt_v1", K.CONV, ("fp32",), False, "cuDNN"),
    ("_5x_cudnn_volta_scudnn_128x32_relu_small_nn_v1", K.CONV, ("fp32",), False, "cuDNN"),
    # MTIA
    ("fc-dtype_Float", K.GEMM, ("fp32",), None, "MTIA"),
    ("vector_norm_x-dtype_BFloat16", K.REDUCTION, ("bf16",), None, "MTIA"),
    ("layer_norm_backward-dtype_Float", K.NORM, ("fp32",), None, None),
    ("dma_request", K.MEMORY, (), None, "MTIA"),
    ("cudnn_infer_volta_scudnn_128x64_relu_xregs_large_nn_v1", K.CONV, ("fp32",), False, "cuDNN"),
    ("cudnn_train_volta_scudnn_128x32_sliced1x4_ldg4_relu_exp_medium_nhwc_tn_v1", K.CONV, ("fp32",), False, "cuDNN"),
    ("volta_scudnn_128x128_stridedB_splitK_medium_nn_v1", K.CONV, ("fp32",), False, "cuDNN"),
    ("ampere_scudnn_128x64_relu_medium_nn_v1", K.CONV, ("fp32",), False, "cuDNN"),
    ("volta_hcudnn_128x64_relu_medium_nn_v1", K.CONV, ("fp16",), False, "cuDNN"),
    ("void cudnn::detail::dgrad_engine<float, 512, 6, 5, 3, 3, 3, false>(int, int, int, float const*)", K.CONV, ("fp32",), False, "cuDNN"),
    ("void cudnn::cnn::wgrad_alg0_engine<float, 128, 6, 7, 3, 3, 5, false, 512>(int, int, int)", K.CONV, ("fp32",), False, "cuDNN"),
    ("void wgrad_alg1_nd_float_engine<float, float, 3, 0, 5, 7, 3, 3, 5, false, true>(int)", K.CONV, ("fp32",), False, "cuDNN"),
    ("void precomputed_convolve_sgemm<float, 1024, 5, 5, 4, 3, 3, 1, false>(int, int, int, float const*)", K.CONV, ("fp32",), False, "cuDNN"),
    ("void cudnn::cnn::conv2d_grouped_direct_kernel<false, true, false, false, 0, 0, int, float, float>(P)", K.CONV, (), False, "cuDNN"),
    ("void fft2d_r2c_32x32<float, false, 0u, false>(float2*, float const*, int, cudnn::reduced_divisor)", K.CONV, ("fp32",), False, "cuDNN"),
    # cuDNN with tensor cores
    ("volta_fp16_s884cudnn_fp16_256x128_ldg8_relu_f2f_exp_small_nhwc2nchw_tn_v1", K.CONV, ("fp16",), True, "cuDNN"),
    ("cudnn_infer_turing_fp16_s1688cudnn_fp16_128x128_ldg8_dgrad_f2f_exp_small_nhwc_tt_v1", K.CONV, ("fp16",), True, "cuDNN"),
    ("volta_h884cudnn_256x64_ldg8_relu_exp_small_nhwc_tn_v1", K.CONV, ("fp16",), True, "cuDNN"),
    ("turing_int8_i8816cudnn_int8_256x64_ldg16_relu_medium_nt_v1", K.CONV, ("int8",), True, "cuDNN"),
    ("ampere_fp16_s16816cudnn_fp16_128x128_ldg8_relu_nhwc_tn_v1", K.CONV, ("fp16",), True, "cuDNN"),
    ("Volta_hmma_implicit_gemm_fprop_fp32_nhwc_128x128x64x1_1x3x3x0x1", K.CONV, ("fp16",), True, "cuDNN"),
    # Composable Kernel, MIOpen, Tensile, AITER
    ("_ZN2ck16tensor_operation6device37kernel_batched_gemm_xdlops_bwd_weightINS_47GridwiseGemm_bk0mk1_bk0nk1_mn_xdlops_bwd_weightILi256EtfEEvPKt", K.CONV, (), True, "Composable Kernel"),
    ("_ZN2ck16tensor_operation6device12_GLOBAL__N_146kernel_grouped_conv_bwd_weight_xdl_cshuffle_v3INS_34GridwiseGemm_xdl_cshuffle_conv_v3EEEvPKt", K.CONV, (), True, "Composable Kernel"),
    ("_ZN2ck27kernel_gemm_xdl_cshuffle_v3INS_28GridwiseGemm_xdl_cshuffle_v3EEEvPKt", K.GEMM, (), True, "Composable Kernel"),
    ("_ZN7ck_tile6kentryILi2ENS_38FmhaBatchPrefillWithPagedKVCacheKernelINS_40BlockFmhaBatchPrefillPipelineQRKSVSAsyncINS_36BlockFmhaBatchPrefillPipelineProblemIDF16bDF16bDF16bffEEEEEEvP", K.ATTENTION, ("bf16",), True, "Composable Kernel"),
    ("miopenSp3AsmConv_v30_3_1_gfx94x_fp32_f2x3_stride1", K.CONV, ("fp32",), False, "MIOpen"),
    ("naive_conv_ab_nonpacked_fwd_nchw_float_double_float", K.CONV, ("fp32",), False, "MIOpen"),
    ("Cijk_S_GA_PostGSU4_VW4", K.GEMM, (), None, "rocBLAS / hipBLASLt"),
    ("_ZN5aiter26fmha_fwd_hd128_bf16_causalE", K.ATTENTION, ("bf16",), True, "AITER"),
    # functions behind a return type with a comparison
    (
        "std::enable_if<(((8)>(0)))&&_typeConvert<c10::BFloat16>::exists, void>::type vllm::fused_add_rms_norm_kernel<c10::BFloat16, 8>(c10::BFloat16*)",
        K.NORM, ("bf16",), None, "vLLM",
    ),
    (
        "std::enable_if<(((8)>(0))), void>::type internal::gemvx::kernel<int, int, __nv_bfloat16, __nv_bfloat16, __nv_bfloat16, float, false, true>(cublasGemvParamsEx<int>)",
        K.GEMM, ("bf16", "fp32"), None, "cuBLAS",
    ),
    # serving engines
    ("_w8a8_block_fp8_matmul", K.GEMM, ("fp8 e4m3",), True, "vLLM"),
    ("void wvSplitK_hf_sml_<__hip_bfloat16, 64, 4, 16, 8, 2, 2>(int, int, __hip_bfloat16 const*)", K.GEMM, (), None, "vLLM"),
    ("void moe::dev::finalize::finalizeKernelVecLoad<moe::dev::finalize::KernelParams<cutlass::bfloat16_t> >(P)", K.GATHER, (), None, "TensorRT-LLM"),
    ("void moe::dev::routing::routingRenormalize::routingIndicesClusterKernel<P>(P)", K.GATHER, (), None, "TensorRT-LLM"),
    ("void vllm::moe::topkGating<4, 128, 4, 16, 32, int, __nv_bfloat16>(P)", K.SORT, ("int32",), None, "vLLM"),
    ("void flashinfer::activation::act_and_mul_kernel<__nv_bfloat16, &(silu(float const&))>(__nv_bfloat16*)", K.ELEMENTWISE, ("bf16",), None, "FlashInfer"),
    ("_causal_conv1d_update_kernel", K.CONV, (), None, None),
    ("chunk_gated_delta_rule_fwd_kernel_h_blockdim64", K.ATTENTION, (), None, None),
    ("merge_attn_states_kernel", K.ATTENTION, (), None, None),
    ("_combined_routing_compute", K.GATHER, (), None, None),
    ("reduce_segments", K.ATTENTION, (), None, "vLLM"),
    # Ascend
    ("aclnnMm_MatMulCommon_MatMulV2", K.GEMM, (), True, "CANN"),
    ("aclnnCast_CastAiCpu_Cast", K.COPY, (), None, "CANN"),
    ("aclnnMm_TransData_TransData", K.COPY, (), None, "CANN"),
    ("trans_TransData_16_MemSet", K.ELEMENTWISE, (), None, "CANN"),
    ("Conv2DBackpropFilter6", K.CONV, (), True, "CANN"),
    ("MaxPoolGradWithArgmaxV14", K.POOLING, (), None, "CANN"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "kind", "dtypes", "tensor_core", "library"), NAMES, ids=[each[0][:40] for each in NAMES]
)
def test_names_of_libraries(
    name: str, kind: K, dtypes: tuple[str, ...], tensor_core: bool | None, library: str | None
) -> None:
    found = decode_kernel_name(name)
    assert found.known
    assert (found.kernel_class, found.dtypes, found.tensor_core, found.library) == (kind, dtypes, tensor_core, library)
    assert found.display
    assert len(found.display) <= 60


def test_fields_of_trtllm_gen_names() -> None:
    product = decode_kernel_name(NAMES[0][0])
    assert (product.tile, product.stages, product.arch, product.epilogue) == ((128, 128, 256), 4, "sm_100f", "swiGlu")
    assert product.display == "gemm mxfp4 128×128 +swiGlu"
    attention = decode_kernel_name(NAMES[3][0])
    assert (attention.tile, attention.arch, attention.direction) == ((128, 128), "sm_100a", "forward")
    assert attention.details == (("head size", "64"), ("phase", "prefill"))
    assert decode_kernel_name(NAMES[4][0]).details == (("head size", "576"), ("phase", "decoding"))


def test_a_cast_on_the_control_processors_says_so() -> None:
    slow, fast = decode_kernel_name("aclnnCast_CastAiCpu_Cast"), decode_kernel_name("aclnnMm_CastAiCore_Cast")
    assert (slow.display, dict(slow.details)) == ("cast (AI CPU)", {"runs on": "AI CPU"})
    assert (fast.display, fast.details) == ("cast", ())


@pytest.mark.parametrize("name", ["Cast", "Add", "my_Cast_9", "Transpose_x", "MatMul_custom_3", "_fwd_kernel"])
def test_names_that_may_be_anyones_stay_undecoded(name: str) -> None:
    assert not decode_kernel_name(name).known


def test_comparisons_are_no_brackets() -> None:
    text = "std::enable_if<(((8)>(0))) && ((1)<(2)), void>::type a::b<c<d>, (e)1>(std::vector<f>)"
    assert parse_function(text).path == ("a", "b")
    assert parse_function(text).arguments == ("c<d>", "(e)1")


@pytest.mark.long
@pytest.mark.skipif(not SHARED_TRACES.exists(), reason="the shared traces are not here")
@pytest.mark.parametrize(
    ("file", "fp32_share"),
    [
        ("IBM+kineto-spyre/worker0.1623143089861.pt.trace.json.gz", 0.65),  # ResNet-50 on a V100: 35 % before
        pytest.param("facebookresearch+param/resnet_kineto.json.gz", 0.58, marks=pytest.mark.long),  # RTX 2080 Ti: 35 %
    ],
)
def test_the_share_of_fp32_products_without_tensor_cores(file: str, fp32_share: float) -> None:
    names, times = _time_by_name(SHARED_TRACES / "public" / file)
    plain = np.array(
        [found.tensor_core is False and "fp32" in found.dtypes for found in map(decode_kernel_name, names)]
    )
    assert times[plain].sum() / times.sum() == pytest.approx(fp32_share, abs=0.01)


@pytest.mark.long
@pytest.mark.skipif(not SHARED_TRACES.exists(), reason="the shared traces are not here")
def test_the_undecoded_share_of_each_public_trace() -> None:
    """At most 1 % of the GPU time of a trace has a name that is not decoded."""
    undecoded = {}
    paths = [*(SHARED_TRACES / "graphs").glob("*/*.json.gz")]
    for folder in ("facebookresearch+*", "AMD-AGI+*", "IBM+kineto-spyre", "luatil+*", "xiaobingling93-pixel+*"):
        paths += (SHARED_TRACES / "public").glob(f"{folder}/*.json.gz")
    for path in sorted(paths):
        names, times = _time_by_name(path)
        unknown = np.array([not decode_kernel_name(name).known for name in names], dtype=bool)
        if times.sum() and times[unknown].sum() / times.sum() > 0.01:
            undecoded[path.name] = times[unknown].sum() / times.sum()
    assert undecoded == {}


def _time_by_name(path: Path) -> tuple[list[str], np.ndarray]:
    """Sum the GPU time of each name: (names, float64 ns)."""
    trace = load_trace(str(path), cache=False)
    work = np.flatnonzero(np.isin(trace.kind, [int(kind) for kind in GPU_WORK]))
    names, inverse = np.unique(trace.name[work], return_inverse=True)
    times = np.bincount(inverse, weights=trace.duration[work], minlength=len(names))
    return [trace.names[name] for name in names.tolist()], times
