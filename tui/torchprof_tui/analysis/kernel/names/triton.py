"""Decode Triton kernels: Inductor's generated names, and hand-written kernels with their configuration in the name.

`triton_poi_fused_add_gelu_native_layer_norm_3`: the kind of loop (pointwise, reduction, persistent reduction,
template), the fused operations, a number. The operations are joined by underscores, which operations also contain; the
list is split by longest match against the known operations. Inductor sorts the names, which tests use as a check.
"""

from __future__ import annotations

import re

from torchprof_tui.analysis.kernel.names.model import KernelClass, KernelName, format_tile, join_parts, join_words
from torchprof_tui.analysis.kernel.names.syntax import QualifiedName
from torchprof_tui.trace.core.late_regex import compile_later

COMPOUND_OPS = frozenset(
    """
    _adaptive_avg_pool2d _adaptive_avg_pool2d_backward _assert_async _cdist_forward _conj _cudnn_rnn
    _efficient_attention_backward _efficient_attention_forward _embedding_bag _embedding_bag_forward_only
    _euclidean_dist _fft_c2c _fft_c2r _fft_r2c _flash_attention_backward _flash_attention_forward
    _foreach_add _foreach_addcdiv _foreach_addcmul _foreach_copy _foreach_div _foreach_mul _foreach_sqrt
    _fused_adam _fused_adamw _fused_dropout _fused_rms_norm _fused_rms_norm_backward
    _log_softmax _log_softmax_backward_data _local_scalar_dense _native_batch_norm_legit
    _native_batch_norm_legit_functional _native_batch_norm_legit_no_training _prelu_kernel
    _prelu_kernel_backward _scaled_dot_product_attention _scaled_dot_product_cudnn_attention
    _scaled_dot_product_cudnn_attention_backward _scaled_dot_product_efficient_attention
    _scaled_dot_product_efficient_attention_backward _scaled_dot_product_flash_attention
    _scaled_dot_product_flash_attention_backward _scaled_dot_product_fused_attention_overrideable _scaled_mm
    _softmax _softmax_backward_data _to_copy _unsafe_index _unsafe_index_put _unsafe_masked_index
    _unsafe_masked_index_put_accumulate _unsafe_view _weight_norm_interface _weight_norm_interface_backward
    adaptive_avg_pool2d adaptive_max_pool2d affine_grid_generator all_gather_into_tensor all_reduce all_to_all_single
    as_strided as_strided_scatter atan2 avg_pool2d avg_pool2d_backward avg_pool3d
    batch_norm_backward binary_cross_entropy binary_cross_entropy_backward binary_cross_entropy_with_logits
    bitwise_and bitwise_left_shift bitwise_not bitwise_or bitwise_right_shift bitwise_xor
    clamp_max clamp_min constant_pad_nd conv2d_backward convert_element_type convolution_backward copy_to
    cross_entropy cudnn_batch_norm cudnn_batch_norm_backward cumsum_backward detach_copy diagonal_copy
    diagonal_scatter dynamic_per_token_quant elu_backward embedding_backward embedding_bag embedding_dense_backward
    empty_like empty_permuted empty_strided expand_copy feature_dropout fill_tensor
    floor_divide full_like fused_moving_avg_obs_fake_quant gelu_backward glu_backward grid_sampler_2d group_norm
    hardsigmoid_backward hardswish_backward hardtanh_backward huber_loss huber_loss_backward
    index_add index_copy index_fill index_put index_select inductor_force_stride_order inductor_lookup_seed
    inductor_random inductor_randint inductor_seeds is_same_size l1_loss layer_norm leaky_relu leaky_relu_backward
    lift_fresh lift_fresh_copy linalg_vector_norm log1p log_sigmoid_backward log_sigmoid_forward log_softmax
    logical_and logical_not logical_or logical_xor logit_backward low_memory_max_pool2d_offsets_to_indices
    low_memory_max_pool2d_with_offsets masked_fill masked_scatter masked_select max_pool2d max_pool2d_with_indices
    max_pool2d_with_indices_backward mish_backward moe_forward mse_loss mse_loss_backward
    nan_to_num native_batch_norm native_batch_norm_backward native_dropout native_dropout_backward
    native_group_norm native_group_norm_backward native_layer_norm native_layer_norm_backward new_empty
    new_empty_strided new_full new_ones new_zeros nll_loss nll_loss2d_backward nll_loss2d_forward
    nll_loss_backward nll_loss_forward ones_like pad_sequence pixel_shuffle pixel_unshuffle
    prepare_softmax_online rand_like randint_like randn_like reduce_scatter_tensor reflection_pad1d
    reflection_pad2d reflection_pad2d_backward repeat_interleave replication_pad2d rms_norm
    rotary_embedding rrelu_with_noise rsub scalar_tensor scaled_dot_product_attention scatter_add scatter_reduce
    select_backward select_scatter sigmoid_backward silu_backward slice_backward slice_scatter smooth_l1_loss
    smooth_l1_loss_backward soft_margin_loss softplus_backward softshrink_backward split_with_sizes
    split_with_sizes_copy squeeze_copy static_scaled_fp8_quant sym_size tanh_backward threshold_backward to_copy
    transpose_copy unfold_backward unsafe_index unsafe_split unsafe_view unsqueeze_copy upsample_bicubic2d
    upsample_bilinear2d upsample_bilinear2d_backward upsample_nearest1d upsample_nearest2d
    upsample_nearest2d_backward upsample_nearest3d value_selecting_reduction_backward var_mean view_as
    view_as_complex view_as_real wait_tensor zeros_like
    """.split()  # noqa: SIM905
)


_INDUCTOR = compile_later(
    r"triton_(?P<kind>poi|red|per|tem|for|spl|mix|[a-z0-9]{3})_fused(?:_(?P<ops>.*?))??(?:_(?P<number>\d+))?$"
)
_LOOP_KINDS = {
    "poi": "pointwise",
    "red": "reduction",
    "per": "persistent reduction",
    "tem": "template",
    "for": "foreach",
    "spl": "split scan",
    "mix": "mixed-order reduction",
}
_MATMUL_OGS = compile_later(
    r"_matmul_ogs_(?P<layout>[NT]{3})_(?P<a>\w+?)x(?P<b>\w+?)x(?P<w>\w+?)_(?P<m>\d+)x(?P<n>\d+)x(?P<k>\d+)x(?P<split>\d+)"
    r"(?:_(?P<epilogue>\w+))?$"
)
_MAX_OP_WORDS = max(name.count("_") for name in COMPOUND_OPS) + 1
_MAX_LABEL_LENGTH = 40  # characters of the list of operations in a label
_SHAPE_ONLY_OPS = frozenset(
    "clone expand permute select slice split squeeze t transpose unsafe_view unsqueeze view".split()  # noqa: SIM905
)
"""Operations that only change a tensor's shape: part of `fused`, but left out of the short label."""


def decode(name: str, parsed: QualifiedName) -> KernelName | None:
    """Decode a Triton kernel whose name has a known form; None for any other name."""
    match = _INDUCTOR.fullmatch(parsed.base)
    if match and match["kind"] in _LOOP_KINDS:
        return _decode_inductor(name, match["kind"], split_operations(match["ops"] or ""))
    if parsed.base.startswith(("triton_mm", "triton_bmm", "triton_flex_attention")):
        # One of Inductor's Triton templates, selected by autotuning
        attention = "attention" in parsed.base
        return KernelName(
            name,
            KernelClass.ATTENTION if attention else KernelClass.GEMM,
            family="Inductor template",
            library="torch.compile (Triton)",
            display="flex attention" if attention else "triton gemm",
            summary=f"{'Attention' if attention else 'Matrix product'} from one of Inductor's Triton templates",
        )
    match = _MATMUL_OGS.match(parsed.base)
    return _decode_matmul_ogs(name, match) if match else None


def split_operations(joined: str) -> tuple[str, ...]:
    """Split joined names: `_to_copy_add_native_layer_norm_view` → ("_to_copy", "add", "native_layer_norm", "view")."""
    words = joined.split("_")
    operations: list[str] = []
    index = 0
    while index < len(words):
        for length in range(min(_MAX_OP_WORDS, len(words) - index), 0, -1):
            candidate = "_".join(words[index : index + length])
            if candidate in COMPOUND_OPS:
                operations.append(candidate)
                index += length
                break
        else:
            if words[index]:
                operations.append(words[index])
            index += 1
    return tuple(operations)


def _decode_inductor(name: str, kind: str, operations: tuple[str, ...]) -> KernelName:
    kernel_class = KernelClass.TRITON
    if kind == "tem" and operations:
        kernel_class = KernelClass.ATTENTION if "attention" in operations[0] else KernelClass.GEMM
    loop = _LOOP_KINDS[kind]
    stripped = [operation.strip("_") for operation in operations]
    label_operations = [operation for operation in stripped if operation not in _SHAPE_ONLY_OPS] or list(operations)
    shown = label_operations[:1]
    for operation in label_operations[1:]:
        fits = len("+".join((*shown, operation))) <= _MAX_LABEL_LENGTH
        shown.append(operation if fits else "…")
        if not fits:
            break
    return KernelName(
        name,
        kernel_class,
        family=f"Inductor {loop}",
        library="torch.compile (Triton)",
        fused=operations,
        direction="backward" if any(operation.endswith("_backward") for operation in operations) else None,
        display=f"triton {'+'.join(shown) or loop}",
        summary=f"Inductor's {loop} kernel in Triton"
        + (f", {len(operations)} ops in one: {', '.join(operations)}" if operations else ""),
        details=(("kind", loop),),
    )


def _decode_matmul_ogs(name: str, match: re.Match[str]) -> KernelName:
    """Decode triton_kernels' mixture-of-experts product: output, activation, weight types, block M x N x K, split K."""
    dtypes = tuple(dict.fromkeys((match["b"], match["w"], match["a"])))
    tile = (int(match["m"]), int(match["n"]), int(match["k"]))
    epilogue = match["epilogue"]
    return KernelName(
        name,
        KernelClass.GEMM,
        family="Triton matmul_ogs",
        library="triton_kernels",
        dtypes=dtypes,
        tensor_core=None if dtypes == ("fp32",) else True,  # tl.dot; with fp32 it depends on allow_tf32
        tile=tile,
        fused=(epilogue,) if epilogue else (),
        epilogue=epilogue,
        display=join_words("gemm", dtypes[:2][-1], format_tile(tile[:2]), f"+{epilogue}" if epilogue else None),
        summary=join_parts(
            "Triton matrix product over experts (mixture of experts)",
            " × ".join(dtypes),
            f"tile {format_tile(tile)}",
            f"epilogue: {epilogue}" if epilogue else None,
        ),
        details=(("layout letters", match["layout"]), ("split-K", match["split"])),
    )
