"""Decode kernels of other libraries by the words in their names: CUB, rocPRIM, FBGEMM, cuDNN's norms, serving engines.

A rule is a pattern over the function with its namespaces, and the meaning of its words. A result contains nothing that
is not in the name.
"""

from __future__ import annotations

import re

from torchprof_tui.analysis.kernel.names.model import KernelClass, KernelName, build_operation_name, join_words
from torchprof_tui.analysis.kernel.names.syntax import QualifiedName, parse_dtypes
from torchprof_tui.trace.core.late_regex import compile_later

_K = KernelClass
_FWD, _BWD = "forward", "backward"

_RULES = (
    # MTIA: the op, then the type of its data
    (r"^(fc|(add|b)?mm|linear|matmul)\w*-dtype_", _K.GEMM, "MTIA", "gemm", None),
    (r"^(vector_norm|sum|mean|amax|amin)\w*-dtype_", _K.REDUCTION, "MTIA", "reduction", None),
    # sorting, scanning, selecting
    (r"cub::(?:\w+::)*Device(Segmented)?RadixSort", _K.SORT, "CUB", "radix sort", None),
    (r"cub::(?:\w+::)*DeviceMergeSort", _K.SORT, "CUB", "merge sort", None),
    (r"cub::(?:\w+::)*DeviceScan", _K.SORT, "CUB", "scan", None),
    (r"cub::(?:\w+::)*DeviceReduceByKey", _K.SORT, "CUB", "reduce by key", None),
    (r"cub::(?:\w+::)*Device(Select|Compact|Partition|UniqueByKey|RunLength)", _K.SORT, "CUB", "select", None),
    (r"cub::(?:\w+::)*Device(Segmented)?Reduce", _K.REDUCTION, "CUB", "reduce", None),
    (r"cub::(?:\w+::)*DeviceHistogram", _K.REDUCTION, "CUB", "histogram", None),
    (r"rocprim::.*(init_)?lookback_scan_state", _K.SORT, "rocPRIM", "scan setup", None),
    (r"thrust::.*sort", _K.SORT, "Thrust", "sort", None),
    # normalisation
    (r"cudnn::bn_fw", _K.NORM, "cuDNN", "batch norm", _FWD),
    (r"cudnn::bn_bw", _K.NORM, "cuDNN", "batch norm", _BWD),
    (r"MIOpenBatchNormFwd", _K.NORM, "MIOpen", "batch norm", _FWD),
    (r"MIOpenBatchNormBwd", _K.NORM, "MIOpen", "batch norm", _BWD),
    (r"groupnorm_kernel_dispatch", _K.NORM, "", "group norm", None),
    (r"(?i)(rms_?norm)\w*?_?(bwd|backward)", _K.NORM, "", "RMS norm", _BWD),
    (r"(?i)rms_?norm", _K.NORM, "", "RMS norm", None),
    (r"(?i)layer_?norm\w*?_?(bwd|backward)", _K.NORM, "", "layer norm", _BWD),
    (r"(?i)layer_?norm", _K.NORM, "", "layer norm", None),
    # data layout
    (r"(nchwToNhwcKernel|nhwcToNchwKernel|foldedNhwcToNchw)", _K.COPY, "cuDNN", "layout change", None),
    (r"^batched_transpose_", _K.COPY, "MIOpen", "transpose", None),
    (r"scalePackedTensor_kernel", _K.ELEMENTWISE, "cuDNN", "scale tensor", None),
    (r"SubTensorOpWith(Scalar|CastTensor)", _K.ELEMENTWISE, "MIOpen", "tensor op", None),
    (
        r"(?:^|::)op_(generic_)?tensor_kernel|add_tensor_kernel_v3|activation_(fw|bw)_4d",
        _K.ELEMENTWISE,
        "cuDNN",
        "tensor op",
        None,
    ),
    (r"pooling_fw_", _K.POOLING, "cuDNN", "pooling", _FWD),
    (r"pooling_bw_", _K.POOLING, "cuDNN", "pooling", _BWD),
    (r"(LSTM|GRU)_elementWise|elemWiseRNNcell", _K.ELEMENTWISE, "cuDNN", "recurrent cell", None),
    (r"RNN_blockPersist|persistRNN", _K.GEMM, "cuDNN", "persistent RNN", None),
    (r"^(vector_fft|regular_fft|composite_2way_fft|fft_rtc|fft_\w*_len)", _K.OTHER, "", "FFT", None),
    # embeddings and recommendation models
    (r"split_embedding\w*_backward", _K.GATHER, "FBGEMM", "table-batched embedding", _BWD),
    (r"split_embedding\w*_(codegen_)?forward", _K.GATHER, "FBGEMM", "table-batched embedding", _FWD),
    (r"split_embedding\w*grad_indice_weights", _K.GATHER, "FBGEMM", "embedding weight gradients", _BWD),
    (r"dense_embedding\w*_forward", _K.GATHER, "FBGEMM", "embedding", _FWD),
    (r"(fbgemm_gpu::permute_|permute_pooled_embs|recat_copy_async)", _K.GATHER, "FBGEMM", "permute", None),
    (r"fbgemm_gpu::.*(quantize|FP8|hfp8|_to_float)", _K.ELEMENTWISE, "FBGEMM", "quantize", None),
    (r"fbgemm_gpu::_offsets_range", _K.GATHER, "FBGEMM", "offsets range", None),
    (r"(bounds_check_indices|linearize_index)", _K.GATHER, "FBGEMM", "index preparation", None),
    (r"to_dense_representation", _K.GATHER, "FBGEMM", "jagged to dense", None),
    # mixture of experts
    (
        r"moe::dev::(finalize|permute)|finalizeMoeRouting|finalizeKernel|_finalize_matmul_scatter|expandInputRows|(un)?permute_"
        r"|ep_(gather|scatter)|moe_(sum|reduce)|post_reorder_triton|pre_reorder_triton",
        _K.GATHER,
        "",
        "mixture-of-experts permute",
        None,
    ),
    (
        r"moe::dev::routing|routingIndices|routingMain|routingInit|_combined_routing|_sum_bitmatrix|_bitmatrix_|_keyed_add"
        r"|moe_align_block_size|count_and_sort_expert|compute_src2dst|compute_masked_m|compute_seg_indptr|moe_sorting|MoeSorting"
        r"|BuildExpertMaps|group_idx_and_topk|ComputeExpertBlockOffset|blockExpertPrefixSum|globalExpertPrefixSum",
        _K.GATHER,
        "",
        "mixture-of-experts routing",
        None,
    ),
    (
        r"moe::dev::activation|doActivationKernel|doGatedActivation|silu_(and_)?mul|gelu_(and_)?mul|swiglu|SwiGLU",
        _K.ELEMENTWISE,
        "",
        "activation and multiply",
        None,
    ),
    # transformer serving
    (r"causal_conv1d", _K.CONV, "", "causal conv1d", None),
    (
        r"(?i)sampling|TopKTopP|TopPRenorm|TopKMask|penalt(y|ies)|_topk_topp|_min_p|rejection_(greedy|random)_sample",
        _K.SORT,
        "",
        "sampling",
        None,
    ),
    (
        r"resolve_future_token|alloc_(extend|decode)|write_req_to_token|get_last_loc|compute_position|assign_(req|extend|draft)"
        r"|slot_mapping|prepare_next_token|advance_step",
        _K.GATHER,
        "",
        "request bookkeeping",
        None,
    ),
    (
        r"(?i)apply_?rot|rope_?(kernel|quant|neox)|qk_?norm_?rope|rotary_?(kernel|emb|pos)|ApplyRotary",
        _K.ELEMENTWISE,
        "",
        "rotary embedding",
        None,
    ),
    (
        r"UpdateKVCache|set_(mla_)?kv_buffer|store_cache|AppendPaged|KVCacheKernel|cp_gather|indexer_k_quant_and_cache|"
        r"gather_(and_\w+_)?cache",
        _K.COPY,
        "",
        "key-value cache write",
        None,
    ),
    (r"scale_1x128|scale_128x128|cvt_fp16_to_fp4|NVFP4Quant|fp32_to_ue8m0", _K.ELEMENTWISE, "", "quantize", None),
    (r"rotary_embedding", _K.ELEMENTWISE, "", "rotary embedding", None),
    (r"reshape_and_cache|store_kvcache|concat_and_cache", _K.COPY, "", "key-value cache write", None),
    (r"kv_indices", _K.GATHER, "", "key-value indices", None),
    (r"act_and_mul", _K.ELEMENTWISE, "", "activation and multiply", None),
    (r"^fused_moe_kernel|^_?fused_moe_", _K.GEMM, "", "mixture-of-experts product", None),
    (
        r"(?i)(top_?k\w*gating|_?topk_(forward|softmax|per_row|with_k2)|grouped_?topk|topkperrow)",
        _K.SORT,
        "",
        "top-k",
        None,
    ),
    (r"clamp_position", _K.ELEMENTWISE, "", "clamp positions", None),
    (r"(?i)(dynamic|static|per_token|scaled)\w*_quant|quantize", _K.ELEMENTWISE, "", "quantize", None),
    (r"(?i)\b(marlin|awq::gemm|gptq)", _K.GEMM, "", "quantized gemm", None),
    (r"(?i)softmax\w*?_?(bwd|backward)", _K.SOFTMAX, "", "softmax", _BWD),
    (r"(?i)softmax", _K.SOFTMAX, "", "softmax", None),
    (r"(?i)cross_?entropy\w*?_?(bwd|backward)", _K.REDUCTION, "", "cross entropy", _BWD),
    (r"(?i)cross_?entropy", _K.REDUCTION, "", "cross entropy", None),
)
"""(pattern, class, library or "", what it does, direction): first match wins."""

_COMPILED_RULES = tuple(
    (compile_later(pattern), kind, library, word, way) for pattern, kind, library, word, way in _RULES
)

_ROCPRIM_ALGORITHMS = (
    ("radix_sort", _K.SORT, "radix sort"),
    ("merge_sort", _K.SORT, "merge sort"),
    ("partition", _K.SORT, "partition"),
    ("scan", _K.SORT, "scan"),
    ("reduce", _K.REDUCTION, "reduce"),
    ("transform", _K.ELEMENTWISE, "transform"),
)
_LIBRARY_OF_SCOPE = {
    "vllm": "vLLM",
    "tensorrt_llm": "TensorRT-LLM",
    "moe": "TensorRT-LLM",
    "sglang": "SGLang",
    "sgl_hip": "SGLang",
    "flashinfer": "FlashInfer",
    "aiter": "AITER",
    "ck_tile": "Composable Kernel",
    "ck": "Composable Kernel",
    "fbgemm_gpu": "FBGEMM",
    "deep_gemm": "DeepGEMM",
    "apex": "apex",
}


def decode(name: str, parsed: QualifiedName) -> KernelName | None:
    """Decode a kernel that matches a rule; None for any other name."""
    if parsed.path[:1] == ("rocprim",) and parsed.base == "trampoline_kernel":
        # `trampoline_kernel<…, reduce_config_selector<bool>, …>`: the selector names the algorithm.
        selectors = re.findall(r"\b([a-z_]+?)(?:_config_selector|_config|_impl)\b", ", ".join(parsed.arguments))
        for selector in selectors:
            for algorithm, kind, shown in _ROCPRIM_ALGORITHMS:
                if algorithm in selector:
                    return _build_kernel_name(name, parsed, kind, "rocPRIM", shown, None)
        return None
    # ck_tile::kentry<…, Rmsnorm2dFwd<…>>: the class is a template argument.
    text = "::".join(parsed.components[:3] if parsed.path[:1] == ("ck_tile",) else filter(None, parsed.path))
    for pattern, kind, library, word, way in _COMPILED_RULES:
        if pattern.search(text):
            known = _LIBRARY_OF_SCOPE.get(parsed.root) if len(parsed.path) > 1 else None
            return _build_kernel_name(name, parsed, kind, library or known, word, way)
    return None


def _build_kernel_name(
    name: str, parsed: QualifiedName, kind: KernelClass, library: str | None, word: str, direction: str | None
) -> KernelName:
    word_of_type = parsed.base.partition("-dtype_")[2]
    dtypes = parse_dtypes([*parsed.arguments, word_of_type, word_of_type.lower()])[:1]
    label = "silu and multiply" if word.startswith("activation") and "silu" in name else word
    return build_operation_name(name, kind, join_words(library, word), library, label, dtypes, direction)
