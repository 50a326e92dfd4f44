"""Decode PyTorch's own kernels: templates of `at::native`, down to the operation in them.

Also related kernels outside of it: apex's multi-tensor kernels, and `cunn_…` from THC.

A functor is a struct (`at::native::CUDAFunctor_add<float>`), a struct around another (`BinaryFunctor<float, float,
float, MulFunctor<float>>`), or a lambda inside the function that launches it
(`at::native::GeluCUDAKernelImpl(at::TensorIteratorBase&, at::native::GeluType)::{lambda()#2}::operator()() const::
{lambda()#4}::operator()() const::{lambda(c10::BFloat16)#1}`). The operation is the identifier without
affixes such as "kernel"; the data type is the template argument or the innermost lambda's parameter.
"""

from __future__ import annotations

import re

from torchprof_tui.analysis.kernel.names.model import (
    KernelClass,
    KernelName,
    build_operation_name,
    join_parts,
    join_words,
)
from torchprof_tui.analysis.kernel.names.syntax import (
    QualifiedName,
    parse_dtype,
    parse_dtypes,
    parse_float_dtypes,
    parse_integer,
    parse_lambda_dtypes,
    parse_qualified_name,
    parse_template_arguments,
)
from torchprof_tui.trace.core.late_regex import compile_later
from torchprof_tui.trace.core.records import record

_WRAPPERS = {
    "BinaryFunctor": "",
    "AUnaryFunctor": " scalar",
    "BUnaryFunctor": " scalar",
    "UnaryOpFunctor": "",
    "BinaryOpScalarFunctor": " scalar",
    "BinaryOpScalarListFunctor": " scalar",
    "BinaryOpListAlphaFunctor": "",
    "TernaryOpScalarFunctor": "",
    "TernaryOpListFunctor": "",
    "func_wrapper_t": "",
}
_KERNEL_SUFFIX = compile_later(
    r"(_?cuda_kernel|_?kernel_cuda|_?kernel_impl|_?cuda_out|_kernel_gpu|_gpu|CUDAKernelImpl|KernelImplInternal|KernelImpl"
    r"|CUDAKernel|_kernel|_cuda|Functor|_functor|Ops|Op|_struct)$"
)
_PREFIX = compile_later(r"^(CUDAFunctorOnSelf_|CUDAFunctorOnOther_|CUDAFunctor_|launch_|cuda_)")
_STD_OPERATIONS = {
    "multiplies": "mul",
    "divides": "div",
    "plus": "add",
    "minus": "sub",
    "less": "less",
    "greater": "greater",
}
_WORD_BOUNDARY = compile_later(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_TRAILING_BACKWARD = compile_later(r"_(backward|grad)$")


@record
class Functor:
    """Operation and data types of a functor."""

    operation: str  # "gelu", "mul scalar", "" if unknown
    dtypes: tuple[str, ...]
    is_backward: bool


def parse_functor(text: str) -> Functor:
    """Parse the C++ type of a functor."""
    name = parse_qualified_name(text)
    index = next((i for i, part in enumerate(name.path) if part.startswith("{lambda")), None)
    if index is not None:
        # A lambda is named by the function that contains it, operator() by its struct.
        index = next((i for i in range(index - 1, -1, -1) if not name.path[i].startswith(("operator", "{"))), 0)
        dtypes = parse_lambda_dtypes(text) or parse_dtypes(parse_qualified_name(name.components[index]).arguments)
        return _build_functor(name.path[index], "", dtypes)
    base = name.base
    if base in _WRAPPERS and name.arguments:
        wrapped = [argument for argument in name.arguments if parse_dtype(argument) is None and not argument.isdigit()]
        inner = parse_functor(wrapped[-1]) if wrapped and wrapped[-1] else Functor("", (), False)
        return Functor(
            inner.operation + _WRAPPERS[base] if inner.operation else "",
            parse_dtypes(name.arguments) or inner.dtypes,
            inner.is_backward,
        )
    suffix = " scalar" if base.startswith(("CUDAFunctorOnSelf", "CUDAFunctorOnOther")) else ""
    return _build_functor(base, suffix, parse_dtypes(name.arguments))


def extract_operation(identifier: str) -> str:
    """Extract the operation: `pow_tensor_scalar_kernel_impl` → "pow_tensor_scalar", `GeluCUDAKernelImpl` → "gelu"."""
    text = _PREFIX.sub("", identifier.strip("_"))
    while (shorter := _KERNEL_SUFFIX.sub("", text)) != text and shorter:
        text = shorter
    text = _WORD_BOUNDARY.sub("_", text).lower().strip("_")
    return _STD_OPERATIONS.get(text, text)


def _build_functor(identifier: str, suffix: str, dtypes: tuple[str, ...]) -> Functor:
    operation = extract_operation(identifier)
    return Functor(operation + suffix if operation else "", dtypes, bool(_TRAILING_BACKWARD.search(operation)))


_ELEMENTWISE = {
    "vectorized_elementwise_kernel": ("vectorized elementwise", 1),
    "vectorized_templated_elementwise_kernel": ("vectorized elementwise, mixed types", 1),
    "unrolled_elementwise_kernel": ("unrolled elementwise", 0),
    "unrolled_elementwise_kernel_for_multi_outputs": ("unrolled elementwise, several outputs", 1),
    "elementwise_kernel": ("strided elementwise", 2),
    "elementwise_kernel_manual_unroll": ("strided elementwise", 2),
    "legacy_elementwise_kernel": ("strided elementwise", 2),
    "elementwise_kernel_with_index": ("elementwise by index", 1),
}
"""Template → (how it iterates over its elements, index of the template argument with the functor)."""

_COPIES = ("copy", "direct_copy", "copy_device_to_device", "bfloat16_copy", "bfloat16tofloat32_copy", "float16_copy")
_CAST_DTYPES = {
    "bfloat16_copy": ("fp32", "bf16"),
    "bfloat16tofloat32_copy": ("bf16", "fp32"),
    "float16_copy": ("fp32", "fp16"),
}
_REDUCTIONS = {
    "welford": "variance",
    "arg_max": "argmax",
    "arg_min": "argmin",
    "max_nan": "max",
    "min_nan": "min",
    "norm_two": "L2 norm",
    "norm_one": "L1 norm",
    "abs_max": "largest magnitude",
    "and": "all",
    "or": "any",
    "prod": "product",
    "nan_sum": "nansum",
}
"""Words other than the operation itself."""
_FORWARD, _BACKWARD = "forward", "backward"

_K = KernelClass
_RULES: tuple[tuple[re.Pattern[str], KernelClass, str, str | None], ...] = tuple(
    (compile_later(pattern), kind, word, way)
    for pattern, kind, word, way in (
        (r"(vectorized_layer_norm|LayerNormForwardCUDAKernel|cuApplyLayerNorm)", _K.NORM, "layer norm", _FORWARD),
        (r"layer_norm_grad_input_kernel", _K.NORM, "layer norm", _BACKWARD),
        (r"(GammaBetaBackward|cuCompute(Part)?GradGammaBeta)", _K.NORM, "norm weight gradients", _BACKWARD),
        (r"cuComputeGradInput", _K.NORM, "norm", _BACKWARD),
        (r"RowwiseMomentsCUDAKernel", _K.NORM, "norm statistics", _FORWARD),
        (r"Compute(InternalGradients|BackwardFusedParams)CUDAKernel", _K.NORM, "group norm", _BACKWARD),
        (r"ComputeFusedParamsCUDAKernel", _K.NORM, "group norm", _FORWARD),
        (r"batch_norm_backward", _K.NORM, "batch norm", _BACKWARD),
        (r"batch_norm_(collect_statistics|transform_input|reduce_statistics)", _K.NORM, "batch norm", _FORWARD),
        (r"(rms_?norm|RMSNorm)\w*backward", _K.NORM, "RMS norm", _BACKWARD),
        (r"(rms_?norm|RMSNorm)", _K.NORM, "RMS norm", None),
        (r"(indexSelect(Large|Small)Index|vectorized_gather_kernel)", _K.GATHER, "index select", None),
        (r"(embedding_backward|krn_partials_per_segment|compute_grad_weight)", _K.GATHER, "embedding", _BACKWARD),
        (r"indexing_backward", _K.GATHER, "index", _BACKWARD),
        (r"indexFunc(Large|Small)Index", _K.GATHER, "index add", None),
        (r"(embedding_bag|EmbeddingBag)", _K.GATHER, "embedding bag", None),
        (r"renorm_kernel", _K.GATHER, "embedding renorm", None),
        (r"fused_dropout_kernel", _K.RANDOM, "dropout", _FORWARD),
        (r"(max_pool|avg_pool|average_pool|MaxPool|AvgPool|adaptivemaxpool|adaptiveaveragepool)\w*(backward|grad)",
         _K.POOLING, "pooling", _BACKWARD),
        (r"(max_pool|avg_pool|average_pool|MaxPool|AvgPool|adaptivemaxpool|adaptiveaveragepool)",
         _K.POOLING, "pooling", _FORWARD),
        (r"upsample_\w*backward", _K.POOLING, "upsample", _BACKWARD),
        (r"upsample_", _K.POOLING, "upsample", _FORWARD),
        (r"(nll_loss_backward|ClassNLLCriterion_updateGradInput)", _K.REDUCTION, "nll loss", _BACKWARD),
        (r"(nll_loss_forward|ClassNLLCriterion_updateOutput)", _K.REDUCTION, "nll loss", _FORWARD),
        (r"triu_tril_kernel", _K.ELEMENTWISE, "triu / tril", None),
        (r"(searchsorted_cuda_kernel|radixSortKVInPlace|bitonicSortKVInPlace|gatherTopK|sbtopk|mbtopk|computeBlockwise"
         r"|radixFindKthValues|gatherKthValue|gatherMedian|tensor_kernel_scan|sort_postprocess|fill_index_and_segment"
         r"|write_indices|flag_kernel|computeDigitCumSum)", _K.SORT, "", None),
        (r"(CatArrayBatchedCopy|chunk_cat_cuda_kernel|HIP_CatArrayBatchedCopy)", _K.COPY, "concatenate", None),
        (r"split_with_sizes_copy", _K.COPY, "split", None),
        (r"conv_depthwise", _K.CONV, "depthwise conv", None),
        (r"(im2col|col2im)", _K.CONV, "", None),
        (r"lstm_cell|gru_cell", _K.ELEMENTWISE, "", None),
        (r"(reflection_pad|replication_pad)", _K.COPY, "pad", None),
        (r"(index_put|index_copy|scatter|gather)", _K.GATHER, "", None),
        (r"spin_kernel", _K.OTHER, "sleep", None),
        (r"unpack_cudnn", _K.RANDOM, "philox state", None),
        (r"compute_cuda_kernel", _K.GATHER, "repeat interleave", None),
        (r"(bincount|histogram)", _K.REDUCTION, "histogram", None),
    )
)  # fmt: skip
"""Kernels with descriptive names. First match wins; "" means the operation is taken from the name."""


def decode(name: str, parsed: QualifiedName) -> KernelName | None:
    """Decode a kernel of PyTorch; None for any other name."""
    base = parsed.base
    if base in _ELEMENTWISE:
        return _decode_elementwise(name, parsed)
    if base == "reduce_kernel" and len(parsed.arguments) > 2:
        return _decode_reduction(name, parsed)
    if base == "multi_tensor_apply_kernel":
        return _decode_multi_tensor(name, parsed)
    if base.startswith(("softmax_warp_", "cunn_SoftMax", "cunn_SpatialSoftMax")):
        return _decode_softmax(name, parsed)
    if base in ("index_elementwise_kernel", "_scatter_gather_elementwise_kernel"):
        return _decode_indexing(name, parsed)
    if base == "distribution_elementwise_grid_stride_kernel":
        match = re.search(r"cuda::(\w+?)(?:_and_transform|_kernel)\b", name)
        word = match[1].replace("_", " ") if match else "random numbers"
        dtypes = parse_float_dtypes(parsed.arguments[:1])
        return build_operation_name(name, KernelClass.RANDOM, "PyTorch random", _LIBRARY, word, dtypes)
    if parsed.root == "at" or base.startswith(_OTHER_PREFIXES):
        for pattern, kind, known_word, way in _RULES:
            if pattern.search(base):
                word = known_word or extract_operation(base).replace("_", " ")
                direction = way or (_BACKWARD if "backward" in base.lower() else None)
                dtypes = parse_dtypes(parsed.arguments)[:1]
                return build_operation_name(name, kind, _LIBRARY, _LIBRARY, word, dtypes, direction)
    return None


_LIBRARY = "PyTorch"
_OTHER_PREFIXES = ("cunn_", "krn_", "indexing_backward", "compute_cuda_kernel", "cuCompute")


def _decode_elementwise(name: str, parsed: QualifiedName) -> KernelName | None:
    iteration, functor_index = _ELEMENTWISE[parsed.base]
    functor = parse_functor(_find_inner_functor(parsed.argument(functor_index)))
    if not functor.operation:
        return None
    width = parse_integer(parsed.argument(0)) if parsed.base.startswith("vectorized") else None
    details = (("elements per load", str(width)),) if width else ()
    dtypes = functor.dtypes
    if parsed.base == "vectorized_templated_elementwise_kernel":
        dtypes = parse_dtypes(parsed.arguments[-3:]) or dtypes  # result first, then the stored operands
    if functor.operation in _COPIES:
        return _build_copy(name, functor, iteration, cast="WithCast" in name, details=details)
    way = _BACKWARD if functor.is_backward else None
    word = functor.operation.removesuffix("_backward") if way else functor.operation
    # where() and dropout have bool masks; the short label shows the type of the data.
    label_dtypes = [dtype for dtype in dtypes if dtype != "bool"] or list(dtypes)
    is_norm = re.search(r"(batch|group|layer)_norm", functor.operation)
    return KernelName(
        name,
        KernelClass.NORM if is_norm else KernelClass.ELEMENTWISE,
        family=f"PyTorch {iteration}",
        library=_LIBRARY,
        dtypes=dtypes,
        fused=(functor.operation,),
        direction=way,
        display=join_words(word, "bwd" if way else None, *label_dtypes[:1]),
        summary=join_parts(
            f"PyTorch {iteration}: {functor.operation}", *dtypes[:2], f"{width} elements per load" if width else None
        ),
        details=details,
    )


def _build_copy(
    name: str, functor: Functor, iteration: str, cast: bool, details: tuple[tuple[str, str], ...]
) -> KernelName:
    dtypes = _CAST_DTYPES.get(functor.operation, functor.dtypes)
    if len(dtypes) == 2:
        what, display = f"converts {dtypes[0]} to {dtypes[1]}", f"cast {dtypes[0]}→{dtypes[1]}"
    elif cast:
        what, display = "copies and converts the data type", " ".join(("cast", *dtypes))
    else:
        what, display = "copies, as .contiguous() and .clone() do", " ".join(("copy", *dtypes))
    return KernelName(
        name,
        KernelClass.COPY,
        family=f"PyTorch {iteration}",
        library=_LIBRARY,
        dtypes=dtypes,
        fused=(functor.operation,),
        display=display,
        summary=join_parts(f"PyTorch {iteration}: {what}", *(dtypes if len(dtypes) == 1 else ())),
        details=details,
    )


def _find_inner_functor(text: str) -> str:
    """Find the functor inside `gpu_kernel_impl<F>(…)::{lambda(int)#1}` and similar types; others are unchanged."""
    for component in parse_qualified_name(text).components:
        if component.startswith(("gpu_kernel_impl", "gpu_kernel_with", "apply<", "opmath_")) and "<" in component:
            return parse_template_arguments(component)[0]
    return text


def _decode_reduction(name: str, parsed: QualifiedName) -> KernelName | None:
    """Decode `reduce_kernel<512, 1, ReduceOp<float, func_wrapper_t<float, sum_functor<…>::operator()…>, …>>`."""
    outer = parse_qualified_name(parsed.argument(2))
    if outer.base != "ReduceOp" or len(outer.arguments) < 2:
        return None
    functor = parse_functor(outer.arguments[1])
    word = _REDUCTIONS.get(functor.operation, functor.operation)
    if not word:
        return None
    dtypes = parse_dtypes(outer.arguments[:1])
    return build_operation_name(name, KernelClass.REDUCTION, "PyTorch reduction", _LIBRARY, word, dtypes)


def _decode_multi_tensor(name: str, parsed: QualifiedName) -> KernelName | None:
    """Decode a launch over a list of tensors: `torch._foreach_…`, fused and multi-tensor optimizers."""
    functor = parse_qualified_name(parsed.argument(1))
    dtypes = parse_dtypes(functor.arguments)
    # A later argument has the operation of a generic functor (std::plus<float>, Sqrt<float>, LerpFunctor<float>).
    others = [argument for argument in parsed.arguments[2:] if parse_dtype(argument) is None and "<" in argument]
    own = extract_operation(functor.base)
    if others and not functor.base.startswith("Fused"):
        word = extract_operation(parse_qualified_name(others[0]).base)
        if functor.base.startswith("PointwiseOp"):
            word = {"mul": "addcmul", "div": "addcdiv"}.get(word, word)
        kind = KernelClass.COPY if word == "copy" else KernelClass.OPTIMIZER
        label = f"foreach {word}"
        text = f"{label} over a list of tensors"
        return build_operation_name(
            name, kind, "PyTorch foreach", _LIBRARY, label, dtypes, operation=word, summary=text
        )
    word = own.removeprefix("fused_").removesuffix("_math").replace("_", " ")
    kind = KernelClass.OPTIMIZER
    if functor.base.startswith("LpNorm") or "norm" in own:
        return build_operation_name(name, kind, "PyTorch foreach", _LIBRARY, f"foreach {word}", dtypes, operation=word)
    if not word:
        return None
    library = _LIBRARY if parsed.root == "at" else "apex"
    family, label = f"{library} fused optimizer", f"fused {word}"
    text = f"fused optimizer step, {word}, over a list of tensors"
    return build_operation_name(name, kind, family, library, label, dtypes, operation=word, summary=text)


def _decode_softmax(name: str, parsed: QualifiedName) -> KernelName:
    """Decode `softmax_warp_forward<in, out, acc, log2(elements), is_log, …>`, `cunn_SoftMaxForward<…, Epilogue>`."""
    is_warp = parsed.base.startswith("softmax_warp")
    is_log = "LogSoftMax" in name or (is_warp and parsed.argument(4) == "true")
    power = parse_integer(parsed.argument(3)) if is_warp else None
    return build_operation_name(
        name,
        KernelClass.SOFTMAX,
        "PyTorch softmax",
        _LIBRARY,
        "log softmax" if is_log else "softmax",
        parse_dtypes(parsed.arguments)[:1],
        _BACKWARD if "backward" in parsed.base.lower() else _FORWARD,
        details=() if power is None else (("row of at most", f"{2**power} elements"),),
    )


def _decode_indexing(name: str, parsed: QualifiedName) -> KernelName:
    words = re.findall(
        r"(index_put|index_copy|index_fill|index_kernel|scatter_gather|masked_scatter|take|put|flip|roll)", name
    )
    word = words[0].removesuffix("_kernel") if words else "index"
    size = re.search(r"OpaqueType<(\d+)>", name)
    dtypes = (f"{size[1]}-byte",) if size else ()
    if word == "scatter_gather":
        # The first template argument of the internal kernel is is_scatter_like.
        inner = re.search(r"_cuda_scatter_gather_internal_kernel<(true|false)", name)
        word = {"true": "scatter", "false": "gather"}[inner[1]] if inner else "scatter / gather"
        if "ReduceAdd" in name:
            word = f"{word} add"
    return build_operation_name(name, KernelClass.GATHER, "PyTorch indexing", _LIBRARY, word, dtypes)
