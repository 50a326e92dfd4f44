"""Decode convolutions of cuDNN and MIOpen, and the small kernels that prepare and finish them."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from torchprof_tui.analysis.kernel.names import xmma
from torchprof_tui.analysis.kernel.names.model import (
    ARCHITECTURES,
    KernelClass,
    KernelName,
    NameFields,
    format_tile,
    join_parts,
    join_words,
)
from torchprof_tui.analysis.kernel.names.syntax import QualifiedName, parse_dtypes
from torchprof_tui.trace.core.late_regex import compile_later

if TYPE_CHECKING:
    from typing_extensions import Unpack

FORWARD, BACKWARD_DATA, BACKWARD_WEIGHTS = "forward", "backward, data", "backward, weights"
_DIRECTIONS = {
    "fprop": FORWARD,
    "dgrad": BACKWARD_DATA,
    "wgrad": BACKWARD_WEIGHTS,
    "fwd": FORWARD,
    "bwd": BACKWARD_DATA,
    "wrw": BACKWARD_WEIGHTS,
}

_CUTLASS = compile_later(
    r"cutlass_tensorop_(?:(?P<input>bf16|f16|tf32)_)?[shi](?P<shape>\d{3,6})(?P<direction>fprop|dgrad|wgrad)"
    r"_\w+?_(?:(?P<output>bf16|f16|f32|tf32)_)?(?P<m>\d+)x(?P<n>\d+)_(?P<k>\d+)x(?P<stages>\d+)_(?P<layout>nhwc|nchw)"
)
_CASK = compile_later(
    r"(?:(?:_\d+x_)?cudnn_(?:infer_|train_|ops_|cnn_)?)?(?P<arch>[a-z]+)_(?:(?P<type>fp16|bf16|fp32|int8|int8x4)_)?"
    r"(?P<acc>[shdi])(?P<shape>884|1688|8816|16816|16832)?cudnn_(?P<rest>.*)"
)
"""`s` and `h` give the accumulator; digits after it are the shape of a tensor core instruction."""
_HMMA = compile_later(
    r"(?i)(?:cudnn_(?:infer_|train_)?)?(?P<arch>volta|turing|ampere)_hmma_implicit_gemm_(?P<way>fprop|dgrad|wgrad)_"
    r"fp(?:16|32)_(?P<layout>nhwc|nchw)_(?P<m>\d+)x(?P<n>\d+)x(?P<k>\d+)"
)
_IGEMM = compile_later(
    r"igemm_(?P<direction>fwd|bwd|wrw)_gtc(?P<x>x\d?)?_(?P<layout>nhwc|nchw)_(?P<type>bf16|fp16|fp32|int8)_"
    r".*?bt(?P<m>\d+)x(?P<n>\d+)x(?P<k>\d+)"
)
_ENGINE = compile_later(
    r"(?:dgrad|wgrad)(?:2d)?_(?:alg\w*_)?(?:nd_)?(?:float_)?engine|(?:dgrad|wgrad|conv)2d_(?:c1_k1_\w+|grouped_direct_kernel|alg\w+)"
    r"|(?:implicit|explicit|precomputed)_convolve(?:Nd)?_[sh]gemm|winograd3x3Kernel"
)
_MIOPEN = compile_later(r"(?:miopen\w*AsmConv|gcnAsmConv|MIOpenConv|MIOpenCv|mloConv|Conv_Winograd|naive_conv_)")
_HELPERS = {
    "computeOffsetsKernel": "computes offsets for a cuDNN convolution",
    "computeBOffsetsKernel": "computes offsets for a cuDNN convolution",
    "computeWgradSplitKOffsetsKernel": "computes offsets for a cuDNN weight gradient",
    "computeWgradBOffsetsKernel": "computes offsets for a cuDNN weight gradient",
    "init_device_workspace_kernel": "prepares the workspace of a cuDNN convolution",
    "generateWinogradTilesKernel": "transforms filters for a Winograd convolution",
    "im2col4d_kernel": "unfolds images into columns for a convolution as a matrix product",
    "Im2d2Col_v2": "unfolds images into columns for a convolution as a matrix product",
}


def decode(name: str, parsed: QualifiedName) -> KernelName | None:
    """Decode a convolution or a step of one; None for any other name."""
    if "_xmma_" in name and "implicit_gemm" in name and parsed.scope == "":
        fields = xmma.parse_xmma(name)
        word = re.search(r"_(fprop|dgrad|wgrad)_", name)
        layout = re.search(r"_(nhwc|nchw)(?:krsc|kcrs)_", name)
        return _build_convolution(
            name,
            "xmma",
            "cuDNN" if "cudnn" in name else None,
            direction=_DIRECTIONS[word[1]] if word else None,
            dtypes=fields.dtypes,
            tile=fields.tile,
            stages=fields.stages,
            layout=layout[1] if layout else None,
            arch=fields.arch,
            tensor_core=fields.tensor_core,
            algorithm="implicit GEMM",
            details=fields.details,
        )
    families = (_decode_cutlass, _decode_cask, _decode_igemm, _decode_engine, _decode_direct, _decode_helper)
    return next((decoded for decode_family in families if (decoded := decode_family(name, parsed))), None)


def _decode_cutlass(name: str, parsed: QualifiedName) -> KernelName | None:
    """Decode CUTLASS inside cuDNN, by its short name or as a mangled or demangled type."""
    if not parsed.scope.startswith("cutlass") and not parsed.base.startswith("cutlass_tensorop"):
        return None
    match = _CUTLASS.search(name)
    if match:
        # fp32 operands are converted to TF32 for tensor cores; the name then has no type.
        types = [xmma.ELEMENT_TYPES[word] for word in (match["input"], match["output"]) if word] or ["tf32"]
        return _build_convolution(
            name,
            "cutlass",
            "cuDNN" if "cudnn" in name else "CUTLASS",
            direction=_DIRECTIONS[match["direction"]],
            dtypes=tuple(dict.fromkeys(types)),
            tile=(int(match["m"]), int(match["n"]), int(match["k"])),
            stages=int(match["stages"]),
            layout=match["layout"],
            tensor_core=True,
            algorithm="implicit GEMM",
        )
    if "ReduceSplitK" in name:
        return _build_step(name, "cuDNN", "adds up the partial results of a split-K convolution", "split-K sum")
    if "ImplicitGemmConvolution" not in name:
        return None
    way = re.search(r"Conv2d(Fprop|Dgrad|Wgrad)", name)
    tile = re.search(r"GemmShapeILi(\d+)ELi(\d+)ELi(\d+)E", name) or re.search(r"GemmShape<(\d+), (\d+), (\d+)>", name)
    tf32 = "tfloat32_t" in name
    return _build_convolution(
        name,
        "cutlass",
        "cuDNN" if "cudnn" in name else "CUTLASS",
        direction=_DIRECTIONS[way[1].lower()] if way else None,
        dtypes=("tf32",) if tf32 else (),
        tile=tuple(map(int, tile.groups())) if tile else None,
        tensor_core=True if "TensorOp" in name else None,
        algorithm="implicit GEMM",
    )


def _decode_cask(name: str, parsed: QualifiedName) -> KernelName | None:
    """Decode cuDNN's hand-scheduled convolutions, alone or behind `cudnn_`, `cudnn_infer_` and `cudnn_train_`.

    `volta_scudnn_128x64_stridedB_splitK_xregs_large_nn_v1`: fp32 on CUDA cores;
    `volta_fp16_s884cudnn_fp16_256x64_ldg8_relu_f2f_exp_small_nhwc_tn_v1`: fp16 on tensor cores.
    """
    match = _CASK.fullmatch(parsed.base)
    if not match or match["arch"] not in ARCHITECTURES:
        return _decode_hmma(name, parsed.base)
    words = match["rest"].split("_")
    sizes = [word for word in words if re.fullmatch(r"\d+x\d+", word)]
    letters = next((word for word in words if re.fullmatch(r"[nt]{2}", word)), None)
    details = [("layout", letters)] if letters else []
    if match["shape"]:
        details.append(("instruction", match["shape"]))
    if "splitK" in words:
        details.append(("split-K", "yes"))
    on_tensor_cores = match["shape"] is not None

    # Names of this family contain relu if the kernel supports it, used or not: no ReLU is claimed.
    return _build_convolution(
        name,
        "scudnn" if match["acc"] == "s" and not on_tensor_cores else "cask",
        "cuDNN",
        direction=next((_DIRECTIONS[word] for word in words if word in ("dgrad", "wgrad", "fprop")), None),
        dtypes=(_find_operand_type(match, words),),
        tile=tuple(map(int, sizes[0].split("x"))) if sizes else None,
        arch=ARCHITECTURES[match["arch"]],
        layout="nhwc" if "nhwc" in words else None,
        tensor_core=on_tensor_cores,
        algorithm="Winograd" if "winograd" in words else "implicit GEMM",
        details=tuple(details),
    )


def _find_operand_type(match: re.Match[str], words: list[str]) -> str:
    """Find the type of the operands: the accumulator of a tensor core kernel is fp32 while they are not."""
    word = match["type"] or next((word for word in words if word in ("fp16", "bf16", "int8")), "")
    plain = {"s": "fp32", "h": "fp16", "d": "fp64", "i": "int8"}[match["acc"]]
    return xmma.ELEMENT_TYPES.get(word, "fp16" if match["shape"] and plain == "fp32" else plain)


def _decode_hmma(name: str, base: str) -> KernelName | None:
    """Decode `volta_hmma_implicit_gemm_fprop_fp32_nhwc_128x128x64x1_1x3x3x0x1`: fp16 operands, fp32 sums."""
    match = _HMMA.match(base)
    if not match:
        return None
    return _build_convolution(
        name,
        "cask",
        "cuDNN",
        direction=_DIRECTIONS[match["way"].lower()],
        dtypes=("fp16",),
        tile=(int(match["m"]), int(match["n"]), int(match["k"])),
        arch=ARCHITECTURES[match["arch"].lower()],
        layout=match["layout"],
        tensor_core=True,
        algorithm="implicit GEMM",
    )


def _decode_igemm(name: str, parsed: QualifiedName) -> KernelName | None:
    """Decode `igemm_fwd_gtcx2_nhwc_bf16_…_bt128x128x32_…`: MIOpen's assembly implicit GEMM; x: matrix instructions."""
    del parsed
    match = _IGEMM.match(name)
    if not match:
        return None
    return _build_convolution(
        name,
        "igemm",
        "MIOpen",
        direction=_DIRECTIONS[match["direction"]],
        dtypes=(xmma.ELEMENT_TYPES.get(match["type"], match["type"]),),
        tile=(int(match["m"]), int(match["n"]), int(match["k"])),
        layout=match["layout"],
        tensor_core=True if match["x"] else None,
        algorithm="implicit GEMM",
    )


def _decode_engine(name: str, parsed: QualifiedName) -> KernelName | None:
    """Decode cuDNN's templates: dgrad_engine, wgrad_alg0_engine, implicit_convolve_sgemm, steps of Winograd and FFT.

    They are older than tensor cores and multiply on CUDA cores, whatever the element type.
    """
    base = parsed.base
    dtypes = parse_dtypes(parsed.arguments[:2])[:1]
    if "winograd_nonfused" in parsed.path:
        way = BACKWARD_WEIGHTS if "Wgrad" in base else FORWARD
        step = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", base.removeprefix("winograd")).lower()
        what = f"a step of a Winograd convolution: {step}"
        # With fp16 data the products between the steps may run on tensor cores; with fp32 they never do.
        unit = False if dtypes == ("fp32",) else None
        return _build_step(name, "cuDNN", what, "winograd step", dtypes=dtypes, direction=way, tensor_core=unit)
    if re.match(r"fft\dd_[rc]2[rc]_", base) and "cudnn" in name:
        what = "a step of an FFT convolution"
        return _build_step(name, "cuDNN", what, "FFT step", dtypes=dtypes, tensor_core=False)
    if not _ENGINE.fullmatch(base):
        return None
    way = next((_DIRECTIONS[word] for word in ("dgrad", "wgrad") if base.startswith(word)), FORWARD)
    kinds = {"implicit": "implicit GEMM", "explicit": "explicit GEMM", "precomputed": "implicit GEMM"}
    kind = kinds.get(base.split("_", 1)[0])
    dtypes = dtypes or (("fp32",) if "sgemm" in base or "float" in base else ())
    return _build_convolution(name, "cuDNN engine", "cuDNN", kind, direction=way, dtypes=dtypes, tensor_core=False)


def _decode_direct(name: str, parsed: QualifiedName) -> KernelName | None:
    """Decode MIOpen's convolutions in assembly and plain HIP: Winograd, direct and naive, none on matrix cores."""
    base = parsed.base
    if not _MIOPEN.match(base):
        return None
    ways = {"_fwd": FORWARD, "(?i)wrw": BACKWARD_WEIGHTS, "(?i)_bwd|bwdd": BACKWARD_DATA}
    dtype = re.search(r"_(fp16|bf16|fp32|half|float)(?=_|$)", base)
    return _build_convolution(
        name,
        "MIOpen direct",
        "MIOpen",
        direction=next((way for pattern, way in ways.items() if re.search(pattern, base)), None),
        dtypes=({"half": "fp16", "float": "fp32"}.get(dtype[1], dtype[1]),) if dtype else (),
        tensor_core=False,
        algorithm="Winograd" if re.search(r"(?i)winograd|Sp3AsmConv", base) else None,
    )


def _decode_helper(name: str, parsed: QualifiedName) -> KernelName | None:
    what = _HELPERS.get(parsed.base)
    if not what:
        return None
    return _build_step(name, "MIOpen" if parsed.base == "Im2d2Col_v2" else "cuDNN", what, "conv setup")


def _build_step(name: str, library: str, summary: str, display: str, **fields: Unpack[NameFields]) -> KernelName:
    kernel = KernelName(name, KernelClass.CONV, family="convolution step", library=library, **fields)
    return replace(kernel, display=join_words(display, *kernel.dtypes), summary=join_parts(summary, *kernel.dtypes))


def _build_convolution(
    name: str, family: str, library: str | None, algorithm: str | None = None, **fields: Unpack[NameFields]
) -> KernelName:
    kernel = KernelName(name, KernelClass.CONV, family=family, library=library, **fields)
    direction, tile = kernel.direction, kernel.tile
    short = {FORWARD: "fwd", BACKWARD_DATA: "bwd data", BACKWARD_WEIGHTS: "bwd weights", None: ""}[direction]
    return replace(
        kernel,
        display=join_words("conv", short, *kernel.dtypes[:1], format_tile(tile[:2]) if tile else None),
        summary=join_parts(
            join_words(library, "convolution", f"({direction})" if direction else None)
            + xmma.format_compute_unit(kernel.tensor_core),
            f"as {algorithm}" if algorithm else None,
            *kernel.dtypes[:1],
            kernel.layout,
            f"tile {format_tile(tile)}" if tile else None,
            f"{kernel.stages} stages" if kernel.stages else None,
        ),
    )
