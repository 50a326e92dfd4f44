"""Decode small kernels of cuBLAS: matrix x vector, small products, the steps after a split-K product."""

from __future__ import annotations

import re

from torchprof_tui.analysis.kernel.names.model import KernelClass, KernelName, join_parts
from torchprof_tui.analysis.kernel.names.syntax import QualifiedName, parse_float_dtypes
from torchprof_tui.trace.core.late_regex import compile_later

_GEMV = compile_later(r"gemv|gemvx|gemvNSP|gemv2[TN]")
_HELPERS = {
    "splitKreduce_kernel": "adds up the partial products of a split-K GEMM",
    "globalKernel": "applies the epilogue of a cuBLASLt GEMM",
    "dot_kernel": "dot product of two vectors",
    "reduce_1Block_kernel": "last step of a cuBLAS dot product",
    "scal_kernel": "scales a vector",
}


def decode(name: str, parsed: QualifiedName) -> KernelName | None:
    """Decode small kernels of cuBLAS: matrix x vector, small products, and the steps after a split-K product."""
    base = parsed.base
    text = f"{parsed.scope}::{base}"
    dtypes = parse_float_dtypes(parsed.arguments)[:2]
    if base in _HELPERS and (base != "globalKernel" or "epilogue" in parsed.scope):
        kind = KernelClass.ELEMENTWISE if base == "scal_kernel" else KernelClass.GEMM
        label = {"splitKreduce_kernel": "split-K sum", "globalKernel": "gemm epilogue"}.get(
            base, base.removesuffix("_kernel")
        )
        return KernelName(
            name,
            kind,
            known=True,
            family="cuBLAS helper",
            library="cuBLAS",
            dtypes=dtypes,
            display=" ".join((label, *dtypes[:1])),
            summary=join_parts(_HELPERS[base], *dtypes[:1]),
        )
    if _GEMV.search(text):
        return KernelName(
            name,
            KernelClass.GEMM,
            known=True,
            family="gemv",
            library="cuBLAS",
            dtypes=dtypes,
            display=" ".join(("gemv", *dtypes[:1])),
            summary=join_parts("cuBLAS matrix × vector product", " × ".join(dtypes[:1]), "bound by memory bandwidth"),
        )
    if re.match(r"gemm(SN|k1)_?[NT]*_?", base) or base.startswith("magma_") or base == "sgemm_largek_lds64":
        letters = re.search(r"_([NT]{2})_kernel", base)
        types = dtypes or (("fp32",) if "sgemm" in base else ())
        return KernelName(
            name,
            KernelClass.GEMM,
            known=True,
            family="cuBLAS small",
            library="cuBLAS",
            dtypes=types,
            tensor_core=False,
            layout=letters.group(1).lower() if letters else None,
            display=" ".join(("gemm", *types[:1])),
            summary=join_parts("cuBLAS matrix product for special shapes on CUDA cores", " × ".join(types[:1])),
        )
    return None
