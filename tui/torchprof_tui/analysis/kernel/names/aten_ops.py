"""Names of ATen and primitive operations with underscores, needed to split Inductor's joined names."""

from __future__ import annotations

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
