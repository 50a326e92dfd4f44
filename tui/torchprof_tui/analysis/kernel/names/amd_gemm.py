"""Decode matrix products of AMD's Tensile, the generator of rocBLAS and hipBLASLt kernels.

`Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT256x224x64_MI16x16x1_SN_…_ISA942_…_WG64_4_1`: the indices give the
transposed operand (`Alik`: summed index first, so A is transposed), the first letters the data types, MT the macro
tile, MI the matrix instruction (MFMA), ISA the gfx number, WG the threads of a workgroup.
"""

from __future__ import annotations

import re

from torchprof_tui.analysis.kernel.names.model import KernelClass, KernelName, format_tile, join_parts
from torchprof_tui.analysis.kernel.names.syntax import QualifiedName
from torchprof_tui.trace.core.late_regex import compile_later

_TENSILE = compile_later(r"(?:Custom_)?Cijk_(?P<a>A[il][il]k)_(?P<b>B[lj][lj]k)_(?P<types>[A-Za-z0-9]+)_")
_POST_REDUCTION = compile_later(r"Cijk_[A-Z0-9a-z]+_\w*?(?:PostGSU|_GA)")
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
        return _build_reduction(name) if _POST_REDUCTION.match(name) else None
    layout = ("t" if match["a"] == "Alik" else "n") + ("n" if match["b"] == "Bljk" else "t")
    types = match["types"]
    letter = next((letter for letter in _LETTERS if types.startswith(letter)), None)
    dtypes = (_LETTERS[letter],) if letter else ()
    tile = re.search(r"_MT(\d+)x(\d+)x(\d+)", name)
    sizes = tuple(map(int, tile.groups())) if tile else None
    instruction = re.search(r"_MI(\d+(?:x\d+)+)_", name)
    isa = re.search(r"_ISA([0-9a-f]+)_", name)
    arch = f"gfx{isa[1]}" if isa else None
    uses_matrix_cores = instruction is not None
    details = [("types", types)]
    if instruction:
        details.append(("instruction", f"MFMA {instruction[1].replace('x', '×')}"))
    return KernelName(
        name,
        KernelClass.GEMM,
        known=True,
        family="Tensile",
        library="rocBLAS / hipBLASLt",
        arch=arch,
        dtypes=dtypes,
        tensor_core=uses_matrix_cores or None,
        tile=sizes,
        layout=layout,
        display=" ".join(("gemm", *dtypes, *([format_tile(sizes[:2])] if sizes else ()))),
        summary=join_parts(
            f"rocBLAS or hipBLASLt matrix product{f' for {arch}' if arch else ''}"
            + (" on matrix cores" if uses_matrix_cores else ""),
            *dtypes,
            f"tile {format_tile(sizes)}" if sizes else None,
            f"layout {layout}",
        ),
        details=tuple(details),
    )


def _build_reduction(name: str) -> KernelName:
    """Build the result for `Cijk_S_…_PostGSU4_VW4`: the sum after a product that is split along K."""
    return KernelName(
        name,
        KernelClass.GEMM,
        known=True,
        family="Tensile",
        library="rocBLAS / hipBLASLt",
        display="split-K sum",
        summary="adds up the partial products of a split-K GEMM",
    )
