"""Decode the names of AMD's kernel generators: Tensile, which rocBLAS and hipBLASLt use, and Composable Kernel.

`Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT256x224x64_MI16x16x1_SN_…_ISA942_…_WG64_4_1`: the indices give the
transposed operand (`Alik`: summed index first, so A is transposed), the first letters the data types, MT the macro
tile, MI the matrix instruction (MFMA), ISA the gfx number, WG the threads of a workgroup.

Composable Kernel makes convolutions, products and attention; its names are demangled or mangled:

    _ZN2ck16tensor_operation6device12_GLOBAL__N_139kernel_grouped_conv_fwd_xdl_cshuffle_v3INS_34GridwiseGemm…
    _ZN2ck16tensor_operation6device37kernel_batched_gemm_xdlops_bwd_weightINS_47GridwiseGemm_bk0mk1_…
    _ZN7ck_tile6kentryILi2ENS_38FmhaBatchPrefillWithPagedKVCacheKernelINS_…

`xdl` stands for the matrix instructions (MFMA), `dl` for those without, `wmma` for those of Radeon.
"""

from __future__ import annotations

import re

from torchprof_tui.analysis.kernel.names.model import KernelClass, KernelName, format_tile, join_parts, join_words
from torchprof_tui.analysis.kernel.names.syntax import QualifiedName
from torchprof_tui.analysis.kernel.names.xmma import format_compute_unit
from torchprof_tui.trace.core.late_regex import compile_later

_TENSILE = compile_later(r"(?:Custom_)?Cijk_(?P<a>A[il][il]k)_(?P<b>B[lj][lj]k)_(?P<types>[A-Za-z0-9]+)_")
_POST_REDUCTION = compile_later(r"Cijk_[A-Z0-9a-z]+_\w*?(?:PostGSU|_GA)")


_TENSILE_LIBRARY = "rocBLAS / hipBLASLt"


_LETTERS = {
    "F8": "fp8 e4m3",
    "B8": "fp8 e5m2",
    "I8": "int8",
    "4xi8": "int8",
    "B": "bf16",
    "H": "fp16",
    "S": "fp32",
    "D": "fp64",
    "C": "complex64",
    "Z": "complex128",
}


def decode(name: str, parsed: QualifiedName) -> KernelName | None:
    """Decode a Tensile GEMM; None for any other name."""
    del parsed
    match = _TENSILE.match(name)
    if not match:
        if not _POST_REDUCTION.match(name):  # `Cijk_S_…_PostGSU4_VW4`: the sum after a product split along K
            return None
        text = "adds up the partial products of a split-K GEMM"
        return KernelName(
            name, KernelClass.GEMM, family="Tensile", library=_TENSILE_LIBRARY, display="split-K sum", summary=text
        )
    layout = ("t" if match["a"] == "Alik" else "n") + ("n" if match["b"] == "Bljk" else "t")
    types = match["types"]
    dtypes = tuple(dtype for letter, dtype in _LETTERS.items() if types.startswith(letter))[:1]
    tile = re.search(r"_MT(\d+)x(\d+)x(\d+)", name)
    sizes = tuple(map(int, tile.groups())) if tile else None
    instruction = re.search(r"_MI(\d+(?:x\d+)+)_", name)
    isa = re.search(r"_ISA([0-9a-f]+)_", name)
    arch = f"gfx{isa[1]}" if isa else None
    details = [("types", types)]
    if instruction:
        details.append(("instruction", f"MFMA {instruction[1].replace('x', '×')}"))
    return KernelName(
        name,
        KernelClass.GEMM,
        family="Tensile",
        library=_TENSILE_LIBRARY,
        arch=arch,
        dtypes=dtypes,
        tensor_core=instruction is not None or None,
        tile=sizes,
        layout=layout,
        display=join_words("gemm", *dtypes, format_tile(sizes[:2]) if sizes else None),
        summary=join_parts(
            f"rocBLAS or hipBLASLt matrix product{f' for {arch}' if arch else ''}"
            + (" on matrix cores" if instruction else ""),
            *dtypes,
            f"tile {format_tile(sizes)}" if sizes else None,
            f"layout {layout}",
        ),
        details=tuple(details),
    )


_LIBRARY = "Composable Kernel"
_DIRECTIONS = {"fwd": "forward", "bwd_data": "backward, data", "bwd_weight": "backward, weights"}
_SHORT = {"forward": "fwd", "backward, data": "bwd data", "backward, weights": "bwd weights", "backward": "bwd"}
_CONV = compile_later(r"(?:^|_)(?:conv\w*?_(fwd|bwd_data|bwd_weight)(?:_|$)|\w*_(bwd_weight|bwd_data)$)")
_GEMM = compile_later(r"^kernel_\w*gemm|^kernel_moe_|^GemmKernel|^\w*GemmKernel$|^UniversalGemm")
_TILE_KERNELS: tuple[tuple[re.Pattern[str], KernelClass, str, str | None], ...] = (
    (compile_later(r"^Fmha(?:Fwd|BatchPrefill)\w*Combine"), KernelClass.ATTENTION, "attention combine", "forward"),
    (compile_later(r"^Fmha(?:Fwd|BatchPrefill|PagedKV)"), KernelClass.ATTENTION, "attention", "forward"),
    (compile_later(r"^FmhaBwdDQDKDV"), KernelClass.ATTENTION, "attention", "backward"),
    (compile_later(r"^FmhaBwd"), KernelClass.ATTENTION, "attention step", "backward"),
    (compile_later(r"^GroupedConvolution\w*Forward|^GroupedConvFwd"), KernelClass.CONV, "conv", "forward"),
    (compile_later(r"^GroupedConvolutionBackwardData"), KernelClass.CONV, "conv", "backward, data"),
    (compile_later(r"^GroupedConvolutionBackwardWeight"), KernelClass.CONV, "conv", "backward, weights"),
    (compile_later(r"^(?:\w*Gemm\w*Kernel|FusedMoeGemmKernel|FlatmmKernel)$"), KernelClass.GEMM, "gemm", None),
    (compile_later(r"^MoeSorting"), KernelClass.SORT, "expert sort", None),
    (compile_later(r"^TopkSoftmax"), KernelClass.SORT, "top-k", None),
)
"""Kernels of ck_tile, whose entry function is a template over the kernel's class."""

_ELEMENTS = {"DF16b": "bf16", "DF16_": "fp16", "f": "fp32", "ushort": "bf16", "_Float16": "fp16", "float": "fp32"}
_MATRIX_CLASSES = (KernelClass.ATTENTION, KernelClass.CONV, KernelClass.GEMM)


def decode_composable_kernel(name: str, parsed: QualifiedName) -> KernelName | None:
    """Decode a kernel of Composable Kernel; None for any other name."""
    if parsed.root == "ck_tile":  # `ck_tile::kentry<…, FmhaFwdKernel<…>>`: the first class with a known name
        words = parsed.components if name.startswith("_Z") else re.findall(r"\w+", name)
        for word in words:
            for pattern, kind, label, way in _TILE_KERNELS:
                if pattern.match(word):
                    element = re.search(r"ProblemI(DF16b|DF16_|f)|Problem<(?:\s*)(\w+)", name)
                    dtype = _ELEMENTS.get((element[1] or element[2]) if element else "")
                    multiplies = kind in _MATRIX_CLASSES and "step" not in label and "combine" not in label
                    return _build(name, kind, label, way, multiplies or None, (dtype,) if dtype else ())
    if parsed.root != "ck":
        return None
    conv = _CONV.search(parsed.base)
    if conv:
        return _build(name, KernelClass.CONV, "conv", _DIRECTIONS[conv[1] or conv[2]], _uses_matrix_cores(parsed.base))
    if _GEMM.match(parsed.base):
        return _build(name, KernelClass.GEMM, "gemm", None, _uses_matrix_cores(name))
    return None


def _uses_matrix_cores(text: str) -> bool | None:
    return True if re.search(r"_xdl|_wmma|_mfma", text) else False if re.search(r"_dl(?:_|$)", text) else None


def _build(
    name: str, kind: KernelClass, label: str, way: str | None, matrix: bool | None, dtypes: tuple[str, ...] = ()
) -> KernelName:
    words = {KernelClass.CONV: "convolution", KernelClass.GEMM: "matrix product"}.get(kind, label)
    return KernelName(
        name,
        kind,
        family=_LIBRARY,
        library=_LIBRARY,
        dtypes=dtypes,
        tensor_core=matrix,
        direction=way,
        display=join_words(label, _SHORT.get(way or ""), *dtypes),
        summary=join_parts(
            f"{_LIBRARY} {words}"
            + (f" ({way})" if way else "")
            + format_compute_unit(matrix).replace("tensor", "matrix")
        ),
    )
