"""Parse the fields that xmma names of matrix products and convolutions share.

`sm80_xmma_fprop_implicit_gemm_tf32f32_tf32f32_f32_nhwckrsc_nchw_tilesize128x64x32_stage5_warpsize2x2x1_g1_tensor16x8x8_…`
"""

from __future__ import annotations

import re

from torchprof_tui.trace.core.late_regex import compile_later
from torchprof_tui.trace.core.records import record

ELEMENT_TYPES = {
    "f16": "fp16",
    "fp16": "fp16",
    "bf16": "bf16",
    "f32": "fp32",
    "fp32": "fp32",
    "tf32": "tf32",
    "f64": "fp64",
    "i8": "int8",
    "s8": "int8",
    "u8": "uint8",
    "i32": "int32",
    "s32": "int32",
    "e4m3": "fp8 e4m3",
    "e5m2": "fp8 e5m2",
}
_TYPE = r"(?:bf16|tf32|f16|f32|f64|i8|i32|e4m3|e5m2)"
_TYPES = compile_later(rf"_({_TYPE})({_TYPE})_({_TYPE})({_TYPE})_")
_TILE = compile_later(r"tilesize(\d+)x(\d+)x(\d+)")
_STAGES = compile_later(r"_stage(\d+)")
_INSTRUCTION = compile_later(r"_tensor(\d+x\d+x\d+)")


@record
class XmmaFields:
    """Fields of an xmma name; `details` as in `KernelName`."""

    arch: str | None
    dtypes: tuple[str, ...]
    tensor_core: bool | None
    tile: tuple[int, ...] | None
    stages: int | None
    details: tuple[tuple[str, str], ...]


def parse_xmma(name: str) -> XmmaFields:
    """Parse the fields of an xmma name; absent ones are None."""
    types = _TYPES.search(name)
    words: tuple[str, ...] = ()
    if types:
        a, b, result, _ = types.groups()
        # Any tf32 means fp32 data that is rounded for the tensor cores.
        words = ("tf32",) if "tf32" in types.groups() else (a, b, result)
    tile, stages, instruction = _TILE.search(name), _STAGES.search(name), _INSTRUCTION.search(name)
    details = []
    tensor_core: bool | None = None
    if instruction:
        tensor_core = True
        details.append(("instruction", instruction[1].replace("x", "×")))
    elif "_warpgroupsize" in name:
        tensor_core = True
        details.append(("instruction", "wgmma"))
    elif "_ffma" in name or "_dfma" in name:
        tensor_core = False
    if "_split_k" in name:
        details.append(("split-K", "yes"))
    return XmmaFields(
        arch=parse_sm_arch(name.split("_", 1)[0]),
        dtypes=tuple(dict.fromkeys(ELEMENT_TYPES[word] for word in words)),
        tensor_core=tensor_core,
        tile=tuple(map(int, tile.groups())) if tile else None,
        stages=int(stages[1]) if stages else None,
        details=tuple(details),
    )


def parse_sm_arch(text: str | None) -> str | None:
    """Parse `sm90` as "sm_90"; None for anything else."""
    match = re.fullmatch(r"sm_?(\d+[a-z]?)", text or "")
    return f"sm_{match[1]}" if match else None


def format_compute_unit(tensor_core: bool | None) -> str:
    """Format the unit that does the arithmetic as the end of a phrase; "" if unknown."""
    return {True: " on tensor cores", False: " on CUDA cores", None: ""}[tensor_core]
