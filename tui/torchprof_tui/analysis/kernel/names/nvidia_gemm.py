"""Matrix products of cuBLAS, cuBLASLt and CUTLASS.

Four generations of names, each read by its own grammar:

    volta_sgemm_128x64_nt, ampere_bf16_s16816gemm_bf16_128x256_ldg8_f2f_stages_64x3_nn      hand-scheduled
    cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_64x64_64x6_tn_align8                       CUTLASS 2
    sm80_xmma_gemm_f32f32_f32f32_f32_nn_n_tilesize64x64x8_stage3_warpsize1x4x1_ffma_…        xmma
    nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_NNT                                           Hopper and later

What the parts of an nvjet name mean is not documented. The readings used here were measured on an H200: launches
record clusters of as many blocks as "1x2" multiplies to; shared memory is (256 + 128) x 64 x 2 bytes x 4 plus a
constant, so "64x4" is the K step and the stages; "tst" comes with bf16 operands and "hsh" with fp16; "badd" comes
where the product is added to a matrix and "bz" where it is not. Other parts are shown as they stand.
"""

from __future__ import annotations

import re

from torchprof_tui.analysis.kernel.names import xmma
from torchprof_tui.analysis.kernel.names.model import KernelClass, KernelName, format_tile, join_parts
from torchprof_tui.analysis.kernel.names.syntax import QualifiedName, parse_dtypes, parse_float_dtypes
from torchprof_tui.analysis.kernel.names.xmma import ELEMENT_TYPES

ARCHITECTURES = {
    "kepler": "sm_35",
    "maxwell": "sm_50",
    "pascal": "sm_60",
    "volta": "sm_70",
    "turing": "sm_75",
    "ampere": "sm_80",
    "ada": "sm_89",
    "hopper": "sm_90",
    "blackwell": "sm_100",
}
_CUDA_CORE_LETTERS = {"s": "fp32", "d": "fp64", "h": "fp16", "c": "complex64", "z": "complex128", "gc": "complex64"}
_ACCUMULATORS = {"s": "fp32", "h": "fp16", "d": "fp64", "i": "int32", "c": "complex64", "z": "complex128"}
_NVJET_ELEMENTS = {"t": "bf16", "h": "fp16", "s": "fp32"}
_EPILOGUES = {"relu": "ReLU", "bias": "bias", "gelu": "GELU", "sigmoid": "sigmoid", "silu": "SiLU"}

_NVJET = re.compile(
    r"nvjet(?:_(?P<arch>sm\d+[a-z]?))?_(?P<types>[a-z]+)_(?P<tile>\d+x\d+)_(?P<step>\d+)x(?P<stages>\d+)_(?P<rest>.*)"
)
_TENSOR_OP = re.compile(r"^(?P<acc>[shdicz])(?P<shape>\d{3,6})(?P<math>tf32|bf16|f16)?gemm$")
_CUDA_CORE = re.compile(r"^(?P<type>gc|[sdhcz])gemm$")
_COLLECTIVE_TILE = re.compile(
    r"CollectiveMma<.*?cute::tuple<(?:cute::)?C<(\d+)>, ?(?:cute::)?C<(\d+)>, ?(?:cute::)?C<(\d+)> ?>"
    r"(?=, (?:cutlass::(?:bfloat16|half|tfloat32|float_e\w+)_t|float|double|signed|unsigned|int|__))"
)
"""The tile is the shape that an element type follows; the cluster's shape, of the same form, stands before it."""
_SIZE = re.compile(r"^\d+x\d+$")
_LAYOUT = re.compile(r"^[nt]{2}$")


def decode(name: str, parsed: QualifiedName) -> KernelName | None:
    """A GEMM of NVIDIA's libraries, or None."""
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
    found = _NVJET.match(name)
    if not found:
        return None
    m, n = map(int, found["tile"].split("x"))
    letters = found["types"]
    read = [_NVJET_ELEMENTS.get(letter) for letter in letters] if len(letters) == 3 else [None]
    dtypes = tuple(dict.fromkeys(t for t in (read[0], read[-1]) if t)) if all(read) else ()
    words = found["rest"].split("_")
    details = [("types", letters)]
    layout = epilogue = None
    left = []
    for word in words:
        if _SIZE.match(word):
            details.append(("cluster", word.replace("x", "×")))
        elif re.fullmatch(r"[NT]{3}", word):
            layout = word[:2].lower()
            details.append(("layout letters", word))
        elif word == "splitK":
            details.append(("split-K", "yes"))
        elif word == "bias":
            epilogue = "bias"
        elif word == "badd":
            epilogue = "adds a matrix (beta)"
        elif word != "bz":
            left.append(word)
    if left:
        details.append(("not decoded", "_".join(left)))
    arch = xmma.parse_sm_arch(found["arch"])
    step, stages = int(found["step"]), int(found["stages"])
    return KernelName(
        name,
        KernelClass.GEMM,
        known=True,
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
            _format_operands(dtypes, "fp32" if len(read) == 3 and read[1] == "fp32" else None),
            f"tile {m}×{n}, K step {step}, {stages} stages",
            "split along K" if ("split-K", "yes") in details else None,
            f"epilogue: {epilogue}" if epilogue else None,
        ),
        details=tuple(details),
    )


def _decode_classic(name: str, text: str) -> KernelName | None:
    """The hand-scheduled and CUTLASS 2 grammars: the same words, in another order."""
    words = text.split("_")
    arch: str | None = None
    dtypes: list[str] = []
    sizes: list[str] = []
    details: list[tuple[str, str]] = []
    fused: list[str] = []
    tensor_core: bool | None = None
    layout = accumulator = None
    stages = step = None
    found = False
    for place, word in enumerate(words):
        tensor, scalar = _TENSOR_OP.match(word), _CUDA_CORE.match(word)
        if tensor:
            found = tensor_core = True
            accumulator = _ACCUMULATORS[tensor["acc"]]
            details.append(("instruction", _format_mma_shape(tensor["shape"])))
            if tensor["math"]:
                dtypes.append(ELEMENT_TYPES[tensor["math"]])
        elif scalar:
            found = True
            tensor_core = False
            dtypes.append(_CUDA_CORE_LETTERS[scalar["type"]])
        elif word in ARCHITECTURES:
            arch = ARCHITECTURES[word]
        elif place == 1 and words[0] == "cutlass" and word.isdigit():
            arch = f"sm_{word}"
        elif word in ELEMENT_TYPES:
            dtypes.append(ELEMENT_TYPES[word])
        elif _SIZE.match(word):
            sizes.append(word)
        elif _LAYOUT.match(word):
            layout = word
        elif word in _EPILOGUES:
            fused.append(_EPILOGUES[word])
        elif word.startswith("align") and word[5:].isdigit():
            details.append(("alignment", f"{word[5:]} elements"))
        elif word.startswith("sliced"):
            details.append(("sliced", word[6:].replace("x", "×")))
        elif word in ("splitK", "splitk"):
            details.append(("split-K", "yes"))
    if not found:
        return None
    if tensor_core and not dtypes:
        dtypes = ["tf32"]  # fp32 operands reach tensor cores as TF32; CUTLASS names no type then
    tile = tuple(map(int, sizes[0].split("x"))) if sizes else None
    if len(sizes) > 1 and (tensor_core or words[0] == "cutlass"):
        step, stages = map(int, sizes[1].split("x"))
        tile = (*tile, step) if tile else None
    types = tuple(dict.fromkeys(dtypes))
    library = "CUTLASS" if words[0] == "cutlass" else "cuBLAS"
    return KernelName(
        name,
        KernelClass.GEMM,
        known=True,
        family="cutlass" if library == "CUTLASS" else "classic cuBLAS",
        library=library,
        arch=arch,
        dtypes=types,
        tensor_core=tensor_core,
        tile=tile,
        stages=stages,
        layout=layout,
        fused=tuple(fused),
        epilogue=", ".join(fused) or None,
        display=_format_display(types, tile, fused[0] if fused else None),
        summary=join_parts(
            f"{library} matrix product for {arch or 'an architecture that the name leaves out'} on "
            + ("tensor cores" if tensor_core else "CUDA cores"),
            _format_operands(types, accumulator),
            f"tile {format_tile(tile)}" if tile else None,
            f"{stages} stages" if stages else None,
            f"epilogue: {', '.join(fused)}" if fused else None,
        ),
        details=tuple(details),
    )


def _decode_xmma(name: str) -> KernelName:
    found = xmma.parse_xmma(name)
    layout = re.search(r"_([nt]{2})_[nt]_", name)
    tile = found.tile
    return KernelName(
        name,
        KernelClass.GEMM,
        known=True,
        family="xmma",
        library="cuBLAS" if "cublas" in name else None,
        arch=found.arch,
        dtypes=found.dtypes,
        tensor_core=found.tensor_core,
        tile=tile,
        stages=found.stages,
        layout=layout[1] if layout else None,
        display=_format_display(found.dtypes, tile, None),
        summary=join_parts(
            f"matrix product for {found.arch}{xmma.format_compute_unit(found.tensor_core)}",
            _format_operands(found.dtypes, None),
            f"tile {format_tile(tile)}" if tile else None,
            f"{found.stages} stages" if found.stages else None,
            "split along K" if "_split_k" in name else None,
        ),
        details=found.details,
    )


def _decode_cutlass3(name: str, inner: str) -> KernelName:
    """CUTLASS 3: `GemmUniversal<…, CollectiveMma<MainloopSm90TmaGmma…<7, …>, tuple<C<128>, …>, …>, …>`."""
    arch = re.search(r"(?:Mainloop|arch::)Sm(\d+)", inner)
    mainloop = re.search(r"Mainloop\w+<\s*(\d+)", inner)
    collective = _COLLECTIVE_TILE.search(inner)
    tile = tuple(map(int, collective.groups())) if collective else None
    operands = re.findall(r"cutlass::(?:bfloat16_t|half_t|tfloat32_t)", inner)
    dtypes = parse_dtypes(operands)
    return KernelName(
        name,
        KernelClass.GEMM,
        known=True,
        family="cutlass 3",
        library="CUTLASS",
        arch=f"sm_{arch.group(1)}" if arch else None,
        dtypes=dtypes,
        tensor_core=True if "Gmma" in inner or "Umma" in inner or "TensorOp" in inner else None,
        tile=tile,
        stages=int(mainloop.group(1)) if mainloop else None,
        display=_format_display(dtypes, tile[:2] if tile else None, None),
        summary=join_parts(
            "CUTLASS matrix product", _format_operands(dtypes, None), f"tile {format_tile(tile)}" if tile else None
        ),
    )


_GEMV = re.compile(r"gemv|gemvx|gemvNSP|gemv2[TN]")
_HELPERS = {
    "splitKreduce_kernel": "adds up the partial products of a split-K GEMM",
    "globalKernel": "applies the epilogue of a cuBLASLt GEMM",
    "dot_kernel": "dot product of two vectors",
    "reduce_1Block_kernel": "last step of a cuBLAS dot product",
    "scal_kernel": "scales a vector",
}


def _decode_helper(name: str, parsed: QualifiedName) -> KernelName | None:
    """Small kernels of cuBLAS: matrix x vector, tiny products, and what follows a split-K product."""
    base = parsed.base
    text = f"{parsed.scope}::{base}"
    dtypes = parse_float_dtypes(parsed.arguments)[:2]
    if base in _HELPERS and (base != "globalKernel" or "epilogue" in parsed.scope):
        kind = KernelClass.ELEMENTWISE if base == "scal_kernel" else KernelClass.GEMM
        word = {"splitKreduce_kernel": "split-K sum", "globalKernel": "gemm epilogue"}.get(
            base, base.removesuffix("_kernel")
        )
        return KernelName(
            name,
            kind,
            known=True,
            family="cuBLAS helper",
            library="cuBLAS",
            dtypes=dtypes,
            display=" ".join((word, *dtypes[:1])),
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
            summary=join_parts(
                "cuBLAS matrix × vector product", _format_operands(dtypes, None), "bound by memory bandwidth"
            ),
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
            display=_format_display(types, None, None),
            summary=join_parts("cuBLAS matrix product for special shapes on CUDA cores", _format_operands(types, None)),
        )
    return None


def _format_mma_shape(digits: str) -> str:
    """The MMA shape written without separators: 884, 1688, 16816, 161616, 16832."""
    shapes = {"884": "8×8×4", "1688": "16×8×8", "16816": "16×8×16", "16832": "16×8×32", "161616": "16×16×16"}
    return shapes.get(digits, digits)


def _format_operands(dtypes: tuple[str, ...], accumulator: str | None) -> str | None:
    if not dtypes:
        return None
    words = dtypes[0] if len(dtypes) == 1 else f"{dtypes[0]} in, {dtypes[-1]} out"
    return f"{words}, accumulates in {accumulator}" if accumulator and accumulator != dtypes[0] else words


def _format_display(dtypes: tuple[str, ...], tile: tuple[int, ...] | None, epilogue: str | None) -> str:
    words = ["gemm", *dtypes[:1]]
    if tile:
        words.append(format_tile(tile[:2]))
    if epilogue in ("bias", "ReLU", "GELU"):
        words.append(f"+{epilogue}")
    return " ".join(words)
