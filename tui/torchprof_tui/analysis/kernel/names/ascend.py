"""Decode the operators of Ascend NPUs: `aclnnMm_MatMulCommon_MatMulV2`, `trans_TransData_9`, `Conv2DBackpropFilter6`.

The last word is the operator that runs; `aclnn…` is the API function that called it, and numbers count the nodes of a
graph. `AiCpu` marks operators that run on the NPU's control processors, much slower than its vector and matrix units.
"""

from __future__ import annotations

from torchprof_tui.analysis.kernel.names.model import (
    SHORT_DIRECTIONS,
    KernelClass,
    KernelName,
    join_parts,
    join_words,
)
from torchprof_tui.analysis.kernel.names.syntax import QualifiedName
from torchprof_tui.trace.core.late_regex import compile_later

_K = KernelClass
_OPERATORS: dict[str, tuple[KernelClass, str, str | None]] = {
    "MatMul": (_K.GEMM, "gemm", None),
    "BatchMatMul": (_K.GEMM, "batched gemm", None),
    "GroupedMatmul": (_K.GEMM, "grouped gemm", None),
    "QuantBatchMatmul": (_K.GEMM, "quantized gemm", None),
    "WeightQuantBatchMatmul": (_K.GEMM, "quantized gemm", None),
    "Conv2D": (_K.CONV, "conv", "forward"),
    "Conv3D": (_K.CONV, "conv", "forward"),
    "Conv2DBackpropInput": (_K.CONV, "conv data", "backward"),
    "Conv2DBackpropFilter": (_K.CONV, "conv weights", "backward"),
    "FlashAttentionScore": (_K.ATTENTION, "flash attention", "forward"),
    "FlashAttentionScoreGrad": (_K.ATTENTION, "flash attention", "backward"),
    "FusedInferAttentionScore": (_K.ATTENTION, "attention", "forward"),
    "IncreFlashAttention": (_K.ATTENTION, "flash attention", "forward"),
    "PromptFlashAttention": (_K.ATTENTION, "flash attention", "forward"),
    "PagedAttention": (_K.ATTENTION, "paged attention", "forward"),
    "Cast": (_K.COPY, "cast", None),
    "TransData": (_K.COPY, "layout change", None),
    "Transpose": (_K.COPY, "transpose", None),
    "TensorMove": (_K.COPY, "copy", None),
    "ViewCopy": (_K.COPY, "copy", None),
    "AsStrided": (_K.COPY, "strided copy", None),
    "Concat": (_K.COPY, "concatenate", None),
    "Slice": (_K.COPY, "slice", None),
    "Split": (_K.COPY, "split", None),
    "MemSet": (_K.ELEMENTWISE, "fill", None),
    "ZerosLike": (_K.ELEMENTWISE, "fill", None),
    "Fill": (_K.ELEMENTWISE, "fill", None),
    "MaxPoolWithArgmax": (_K.POOLING, "pooling", "forward"),
    "MaxPoolGradWithArgmax": (_K.POOLING, "pooling", "backward"),
    "ReduceSum": (_K.REDUCTION, "sum", None),
    "ReduceMean": (_K.REDUCTION, "mean", None),
    "ReduceMax": (_K.REDUCTION, "max", None),
    "ArgMax": (_K.REDUCTION, "argmax", None),
    "NLLLoss": (_K.REDUCTION, "nll loss", "forward"),
    "NLLLossGrad": (_K.REDUCTION, "nll loss", "backward"),
    "Softmax": (_K.SOFTMAX, "softmax", "forward"),
    "SoftmaxGrad": (_K.SOFTMAX, "softmax", "backward"),
    "LogSoftmax": (_K.SOFTMAX, "log softmax", "forward"),
    "LogSoftmaxGrad": (_K.SOFTMAX, "log softmax", "backward"),
    "LayerNorm": (_K.NORM, "layer norm", "forward"),
    "LayerNormGrad": (_K.NORM, "layer norm", "backward"),
    "RmsNorm": (_K.NORM, "RMS norm", "forward"),
    "AddRmsNorm": (_K.NORM, "RMS norm", "forward"),
    "RmsNormGrad": (_K.NORM, "RMS norm", "backward"),
    "BNTrainingReduce": (_K.NORM, "batch norm", "forward"),
    "BNTrainingUpdate": (_K.NORM, "batch norm", "forward"),
    "Gather": (_K.GATHER, "gather", None),
    "Index": (_K.GATHER, "index", None),
    "ScatterElements": (_K.GATHER, "scatter", None),
    "EmbeddingDenseGrad": (_K.GATHER, "embedding", "backward"),
    "ApplyAdam": (_K.OPTIMIZER, "fused adam", None),
    "ApplyAdamW": (_K.OPTIMIZER, "fused adamw", None),
    "SwiGlu": (_K.ELEMENTWISE, "swiglu", None),
    "ReluGrad": (_K.ELEMENTWISE, "relu", "backward"),
} | {
    name: (_K.ELEMENTWISE, name.lower(), None)
    for name in "Add Sub Mul Muls RealDiv Div Sqrt Rsqrt Relu Gelu Sigmoid Tanh Exp Log Neg Pow Axpy Addcmul Addcdiv Equal Less Greater Select Adds".split()  # noqa: E501, SIM905
}
"""Operator without its version → (class, label, direction)."""

_MATRIX_UNIT = (KernelClass.GEMM, KernelClass.CONV, KernelClass.ATTENTION)
"""Classes whose operators use the NPU's matrix ("cube") unit."""

_NUMBERED = compile_later(r"^(?P<op>[A-Z]\w*?)(?:V[1-4])?(?P<node>\d+)?$")


def decode(name: str, parsed: QualifiedName) -> KernelName | None:
    """Decode an operator of an Ascend NPU; None for any other name."""
    del parsed
    if not name.isascii() or not name.replace("_", "").isalnum():
        return None
    words = name.split("_")
    if words[0] == "trans" and len(words) > 2 and words[2].isdigit():
        last = "MemSet" if words[-1] == "MemSet" else words[1]
    # A single word without a node's number may be anyone's kernel.
    elif words[0].startswith("aclnn") or words[1:] == ["MemSet"] or (len(words) == 1 and name[-1].isdigit()):
        last = words[-1]
    else:
        return None
    match = _NUMBERED.match(last)
    found = _OPERATORS.get(match["op"]) if match else None
    if found is None:
        return None
    kind, label, way = found
    on_cpu = "AiCpu" in name
    return KernelName(
        name,
        kind,
        family="Ascend operator",
        library="CANN",
        tensor_core=True if kind in _MATRIX_UNIT else None,
        fused=(label,),
        direction=way,
        display=join_words(label, SHORT_DIRECTIONS.get(way or ""), "(AI CPU)" if on_cpu else None),
        summary=join_parts(
            f"Ascend operator: {label}",
            way,
            f"for {words[0]}" if words[0].startswith("aclnn") else None,
            "on the NPU's control processors (AI CPU), not on its vector units" if on_cpu else None,
        ),
        details=(("runs on", "AI CPU"),) if on_cpu else (),
    )
