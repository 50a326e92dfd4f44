"""Decode matrix products of cuBLAS, cuBLASLt and CUTLASS, and the small kernels before and after them.

Four generations of names, each with its own grammar:

    volta_sgemm_128x64_nt, ampere_bf16_s16816gemm_bf16_128x256_ldg8_f2f_stages_64x3_nn      hand-scheduled
    cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_64x64_64x6_tn_align8                       CUTLASS 2
    sm80_xmma_gemm_f32f32_f32f32_f32_nn_n_tilesize64x64x8_stage3_warpsize1x4x1_ffma_…        xmma
    nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_NNT                                           Hopper and later

The parts of an nvjet name are not documented. The meanings used here were measured on an H200: launches record
clusters of 1 x 2 blocks for "1x2"; shared memory is (256 + 128) x 64 x 2 bytes x 4 plus a constant, so "64x4" is the K
step and the stages; "tst" occurs with bf16 operands and "hsh" with fp16; "badd" occurs if the product is added to a
matrix and "bz" if it is not. "q" is what public reports of fp8 products on B200 show ("qqtst", with "Avec32UE8M0" where
blocks of 32 elements share a scale), "o" those of NVFP4. Other parts are shown unchanged.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from torchprof_tui.analysis.kernel.names import xmma
from torchprof_tui.analysis.kernel.names.model import (
    ARCHITECTURES,
    KernelClass,
    KernelName,
    format_tile,
    join_parts,
    join_words,
)
from torchprof_tui.analysis.kernel.names.syntax import QualifiedName, parse_dtypes, parse_float_dtypes
from torchprof_tui.analysis.kernel.names.xmma import ELEMENT_TYPES
from torchprof_tui.trace.core.late_regex import compile_later

_GEMV = compile_later(r"gemv|gemvx|gemvNSP|gemv2[TN]")
_HELPERS = {
    "splitKreduce_kernel": "adds up the partial products of a split-K GEMM",
    "globalKernel": "applies the epilogue of a cuBLASLt GEMM",
    "dot_kernel": "dot product of two vectors",
    "reduce_1Block_kernel": "last step of a cuBLAS dot product",
    "scal_kernel": "scales a vector",
}


def _decode_helper(name: str, parsed: QualifiedName) -> KernelName | None:
    """Decode small kernels of cuBLAS: matrix x vector, small products, and the steps after a split-K product."""
    base = parsed.base
    dtypes = parse_float_dtypes(parsed.arguments)[:2]
    kind, tensor_core, layout = KernelClass.GEMM, None, None
    if base in _HELPERS and (base != "globalKernel" or "epilogue" in parsed.scope):
        kind = KernelClass.ELEMENTWISE if base == "scal_kernel" else KernelClass.GEMM
        labels = {"splitKreduce_kernel": "split-K sum", "globalKernel": "gemm epilogue"}
        family, label = "cuBLAS helper", labels.get(base, base.removesuffix("_kernel"))
        texts: tuple[str, ...] = (_HELPERS[base], *dtypes[:1])
    elif _GEMV.search(f"{parsed.scope}::{base}"):
        family = label = "gemv"
        texts = ("cuBLAS matrix × vector product", *dtypes[:1], "bound by memory bandwidth")
    elif re.match(r"gemm(SN|k1)_?[NT]*_?", base) or base.startswith("magma_") or base == "sgemm_largek_lds64":
        letters = re.search(r"_([NT]{2})_kernel", base)
        dtypes = dtypes or (("fp32",) if "sgemm" in base else ())
        family, label, tensor_core, layout = "cuBLAS small", "gemm", False, letters[1].lower() if letters else None
        texts = ("cuBLAS matrix product for special shapes on CUDA cores", *dtypes[:1])
    else:
        return None
    return KernelName(
        name,
        kind,
        family=family,
        library="cuBLAS",
        dtypes=dtypes,
        tensor_core=tensor_core,
        layout=layout,
        display=join_words(label, *dtypes[:1]),
        summary=join_parts(*texts),
    )


_CUDA_CORE_LETTERS = {"s": "fp32", "d": "fp64", "h": "fp16", "c": "complex64", "z": "complex128", "gc": "complex64"}
_ACCUMULATORS = {"s": "fp32", "h": "fp16", "d": "fp64", "i": "int32", "c": "complex64", "z": "complex128"}
_NVJET_ELEMENTS = {"t": "bf16", "h": "fp16", "s": "fp32", "q": "fp8 e4m3", "o": "fp4 e2m1"}
_NVJET_EPILOGUES = {"bias": "bias", "badd": "adds a matrix (beta)"}
# Names of cuBLAS and CUTLASS 2 contain relu if the kernel supports it, used or not: no ReLU is claimed.
_EPILOGUES = {"bias": "bias", "gelu": "GELU", "sigmoid": "sigmoid", "silu": "SiLU"}

_NVJET = compile_later(
    r"nvjet(?:_(?P<arch>sm\d+[a-z]?))?_(?P<types>[a-z]+)_(?P<tile>\d+x\d+)_(?P<step>\d+)x(?P<stages>\d+)_(?P<rest>.*)"
)
_TENSOR_OP = compile_later(r"^(?P<acc>[shdicz])(?P<shape>\d{3,6})(?P<math>tf32|bf16|f16)?gemm$")
_CUDA_CORE = compile_later(r"^(?P<type>gc|[sdhcz])gemm$")
_COLLECTIVE_TILE = compile_later(
    r"CollectiveMma<.*?cute::tuple<(?:cute::)?C<(\d+)>, ?(?:cute::)?C<(\d+)>, ?(?:cute::)?C<(\d+)> ?>"
    r"(?=, (?:cutlass::(?:bfloat16|half|tfloat32|float_e\w+)_t|float|double|signed|unsigned|int|__))"
)
"""The tile is the shape before an element type; the cluster shape, of the same form, precedes it."""
_NAMED_TYPES = (("gemm_fp8", "fp8 e4m3"), ("gemmfp8", "fp8 e4m3"), ("gemmfp4", "fp4 e2m1"), ("gemm_fp4", "fp4 e2m1"))
_SPLIT_K = ("split-K", "yes")
_SIZE = compile_later(r"^\d+x\d+$")
_LAYOUT = compile_later(r"^[nt]{2}$")
_ALIGNMENT = compile_later(r"align(\d+)$")
_MMA_SHAPES = {"884": "8×8×4", "1688": "16×8×8", "16816": "16×8×16", "16832": "16×8×32", "161616": "16×16×16"}
"""The shapes of MMA instructions as names have them, without separators."""


def decode(name: str, parsed: QualifiedName) -> KernelName | None:
    """Decode a GEMM of NVIDIA's libraries; None for any other name."""
    if name.startswith("nvjet"):
        return _decode_nvjet(name)
    if "xmma_gemm" in name and "cudnn" not in parsed.scope:
        return _decode_xmma(name)
    if parsed.scope.startswith("cutlass") and parsed.base in ("Kernel", "Kernel2", "device_kernel"):
        inner = parsed.argument(0)
        if "gemm" in inner and "cudnn" not in parsed.scope:
            return _decode_cutlass3(name, inner) if "::" in inner else _decode_classic(name, inner)
        return None
    first = parsed.base.split("_", 1)[0]
    if parsed.base.startswith("cutlass") or first in ARCHITECTURES:
        return _decode_classic(name, parsed.base)
    return _decode_helper(name, parsed)


def _decode_nvjet(name: str) -> KernelName | None:
    match = _NVJET.match(name)
    if not match:
        return None
    m, n = map(int, match["tile"].split("x"))
    step, stages = int(match["step"]), int(match["stages"])
    arch = xmma.parse_sm_arch(match["arch"])
    dtypes, accumulator = _parse_nvjet_types(match["types"])
    layout, epilogue, details = _parse_nvjet_suffix(match["rest"])
    return KernelName(
        name,
        KernelClass.GEMM,
        family="nvjet",
        library="cuBLAS",
        arch=arch,
        dtypes=dtypes,
        tensor_core=True,
        tile=(m, n, step),
        stages=stages,
        layout=layout,
        fused=("bias",) if epilogue == "bias" else (),
        epilogue=epilogue,
        display=_format_display(dtypes, (m, n), epilogue),
        summary=join_parts(
            f"cuBLAS matrix product for {arch or 'Hopper and later'} on tensor cores",
            _format_operands(dtypes, accumulator),
            f"tile {m}×{n}, K step {step}, {stages} stages",
            "split along K" if _SPLIT_K in details else None,
            f"epilogue: {epilogue}" if epilogue else None,
        ),
        details=(("types", match["types"]), *details),
    )


def _parse_nvjet_types(letters: str) -> tuple[tuple[str, ...], str | None]:
    """Parse `tst` → (("bf16",), "fp32"): (element types of input and output, accumulator if it is fp32).

    Three letters: operands, accumulator, output. Five, with fp8 and fp4: A, B, output, accumulator, C (`qqtst`).
    """
    elements = [_NVJET_ELEMENTS[letter] for letter in letters if letter in _NVJET_ELEMENTS]
    if len(letters) not in (3, 5) or len(elements) != len(letters):
        return (), None
    operands, output = (elements[:1], elements[2]) if len(letters) == 3 else (elements[:2], elements[2])
    accumulator = elements[1] if len(letters) == 3 else elements[3]
    return tuple(dict.fromkeys((*operands, output))), accumulator if accumulator == "fp32" else None


def _parse_nvjet_suffix(suffix: str) -> tuple[str | None, str | None, list[tuple[str, str]]]:
    """Parse `1x2_h_bz_coopA_NNT` → (layout, epilogue, details); words without a known meaning are a detail."""
    layout = epilogue = None
    details: list[tuple[str, str]] = []
    unknown = []
    for word in suffix.split("_"):
        if _SIZE.match(word):
            details.append(("cluster", word.replace("x", "×")))
        elif re.fullmatch(r"[NT]{3}", word):
            layout = word[:2].lower()
            details.append(("layout letters", word))
        elif word == "splitK":
            details.append(_SPLIT_K)
        elif word in _NVJET_EPILOGUES:
            epilogue = _NVJET_EPILOGUES[word]
        elif word != "bz":
            unknown.append(word)
    if unknown:
        details.append(("not decoded", "_".join(unknown)))
    return layout, epilogue, details


@dataclass(slots=True)
class _ClassicFields:
    """Fields of a classic name, filled word by word. `sizes`: the tile, then K step and stages."""

    arch: str | None = None
    tensor_core: bool | None = None  # None: no word names a matrix product
    accumulator: str | None = None
    layout: str | None = None
    dtypes: list[str] = field(default_factory=list)
    sizes: list[tuple[int, ...]] = field(default_factory=list)
    fused: list[str] = field(default_factory=list)
    details: list[tuple[str, str]] = field(default_factory=list)

    def read_word(self, word: str) -> None:
        """Add what a word says; words without a known form are ignored."""
        if match := _TENSOR_OP.match(word):
            self.tensor_core = True
            self.accumulator = _ACCUMULATORS[match["acc"]]
            self.details.append(("instruction", _MMA_SHAPES.get(match["shape"], match["shape"])))
            if match["math"]:
                self.dtypes.append(ELEMENT_TYPES[match["math"]])
        elif match := _CUDA_CORE.match(word):
            self.tensor_core = False
            self.dtypes.append(_CUDA_CORE_LETTERS[match["type"]])
        elif word in ARCHITECTURES:
            self.arch = ARCHITECTURES[word]
        elif word in ELEMENT_TYPES:
            self.dtypes.append(ELEMENT_TYPES[word])
        elif _SIZE.match(word):
            self.sizes.append(tuple(map(int, word.split("x"))))
        elif _LAYOUT.match(word):
            self.layout = word
        elif word in _EPILOGUES:
            self.fused.append(_EPILOGUES[word])
        elif match := _ALIGNMENT.match(word):
            self.details.append(("alignment", f"{match[1]} elements"))
        elif word.startswith("sliced"):
            self.details.append(("sliced", word.removeprefix("sliced").replace("x", "×")))
        elif word in ("splitK", "splitk"):
            self.details.append(_SPLIT_K)


def _decode_classic(name: str, text: str) -> KernelName | None:
    """Decode the hand-scheduled and CUTLASS 2 grammars: the same words in a different order."""
    words = text.split("_")
    is_cutlass = words[0] == "cutlass"
    fields = _ClassicFields()
    if is_cutlass and len(words) > 1 and words[1].isdigit():
        fields.arch = f"sm_{words[1]}"
    for word in words:
        fields.read_word(word)
    if fields.tensor_core is None:
        return None
    # fp32 operands are converted to TF32 for tensor cores; CUTLASS then names no type.
    dtypes = tuple(dict.fromkeys(fields.dtypes)) or (("tf32",) if fields.tensor_core else ())
    tile, stages = _split_classic_sizes(fields.sizes, has_stages=fields.tensor_core or is_cutlass)
    library = "CUTLASS" if is_cutlass else "cuBLAS"
    epilogue = ", ".join(fields.fused) or None
    return KernelName(
        name,
        KernelClass.GEMM,
        family="cutlass" if is_cutlass else "classic cuBLAS",
        library=library,
        arch=fields.arch,
        dtypes=dtypes,
        tensor_core=fields.tensor_core,
        tile=tile,
        stages=stages,
        layout=fields.layout,
        fused=tuple(fields.fused),
        epilogue=epilogue,
        display=_format_display(dtypes, tile, fields.fused[0] if fields.fused else None),
        summary=join_parts(
            f"{library} matrix product for {fields.arch or 'an unknown architecture'}"
            + xmma.format_compute_unit(fields.tensor_core),
            _format_operands(dtypes, fields.accumulator),
            f"tile {format_tile(tile)}" if tile else None,
            f"{stages} stages" if stages else None,
            f"epilogue: {epilogue}" if epilogue else None,
        ),
        details=tuple(fields.details),
    )


def _split_classic_sizes(sizes: list[tuple[int, ...]], has_stages: bool) -> tuple[tuple[int, ...] | None, int | None]:
    """Split the sizes of a classic name into (tile, stages): the second size is K step x stages."""
    if not sizes:
        return None, None
    if len(sizes) == 1 or not has_stages:
        return sizes[0], None
    step, stages = sizes[1]
    return (*sizes[0], step), stages


def _decode_xmma(name: str) -> KernelName:
    fields = xmma.parse_xmma(name)
    layout = re.search(r"_([nt]{2})_[nt]_", name)
    tile = fields.tile
    return KernelName(
        name,
        KernelClass.GEMM,
        family="xmma",
        library="cuBLAS" if "cublas" in name else None,
        arch=fields.arch,
        dtypes=fields.dtypes,
        tensor_core=fields.tensor_core,
        tile=tile,
        stages=fields.stages,
        layout=layout[1] if layout else None,
        display=_format_display(fields.dtypes, tile, None),
        summary=join_parts(
            f"matrix product for {fields.arch}{xmma.format_compute_unit(fields.tensor_core)}",
            _format_operands(fields.dtypes, None),
            f"tile {format_tile(tile)}" if tile else None,
            f"{fields.stages} stages" if fields.stages else None,
            "split along K" if "_split_k" in name else None,
        ),
        details=fields.details,
    )


def _decode_cutlass3(name: str, inner: str) -> KernelName:
    """Decode CUTLASS 3: `GemmUniversal<…, CollectiveMma<MainloopSm90TmaGmma…<7, …>, tuple<C<128>, …>, …>, …>`."""
    arch = re.search(r"(?:Mainloop|arch::)Sm(\d+)", inner)
    mainloop = re.search(r"Mainloop\w+<\s*(\d+)", inner)
    collective = _COLLECTIVE_TILE.search(inner)
    tile = tuple(map(int, collective.groups())) if collective else None
    operands = re.findall(r"cutlass::(?:bfloat16_t|half_t|tfloat32_t|float_e\dm\d_t)", inner)
    # Serving engines wrap the product in a class named by its type: cutlass_3x_gemm_fp8, DeviceGemmFp4…
    named = [shown for word, shown in _NAMED_TYPES if word in inner.lower()]
    dtypes = parse_dtypes(operands) or tuple(named[:1])
    return KernelName(
        name,
        KernelClass.GEMM,
        family="cutlass 3",
        library="CUTLASS",
        arch=f"sm_{arch.group(1)}" if arch else None,
        dtypes=dtypes,
        tensor_core=True if named or re.search(r"Gmma|Umma|TensorOp|float_e\dm\d_t", inner) else None,
        tile=tile,
        stages=int(mainloop.group(1)) if mainloop else None,
        display=_format_display(dtypes, tile[:2] if tile else None, None),
        summary=join_parts(
            "CUTLASS matrix product", _format_operands(dtypes, None), f"tile {format_tile(tile)}" if tile else None
        ),
    )


def _format_operands(dtypes: tuple[str, ...], accumulator: str | None) -> str | None:
    if not dtypes:
        return None
    words = dtypes[0] if len(dtypes) == 1 else f"{dtypes[0]} in, {dtypes[-1]} out"
    return f"{words}, accumulates in {accumulator}" if accumulator and accumulator != dtypes[0] else words


def _format_display(dtypes: tuple[str, ...], tile: tuple[int, ...] | None, epilogue: str | None) -> str:
    shown = f"+{epilogue}" if epilogue in ("bias", "GELU") else None
    return join_words("gemm", *dtypes[:1], format_tile(tile[:2]) if tile else None, shown)
