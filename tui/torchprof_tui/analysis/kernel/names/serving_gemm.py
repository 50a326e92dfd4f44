"""Decode matrix products of inference libraries: trtllm-gen, DeepGEMM, AITER and the kernels written for vLLM.

    bmm_MxE4m3_MxE2m1MxE4m3_Fp32_Ab32_Bb32_Cb32_t128x128x256u2_s4_et128x32_m256x128x32_c2x1x1_…_swiGlu_dynB_sm100f
    void deep_gemm::fp8_gemm_kernel<4096u, 7168u, 128u, 160u, 128u, 0u, 64u, 9u, …>(__nv_bfloat16*, …)
    void deep_gemm::sm90_fp8_gemm_1d2d_impl<(cute::UMMA::Major)0, 0u, 5120u, 17408u, 1u, 128u, …>

trtllm-gen names its kernels `<bmm|gemm>_<output>_<A><B>_<accumulator>_t<M>x<N>x<K>_s<stages>`; `Mx` marks operands with
a scale for every block of elements (OCP microscaling formats), `E2m1` is four bits wide. All of these kernels multiply
on tensor cores: fp8 and fp4 exist nowhere else.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from torchprof_tui.analysis.kernel.names.model import (
    KernelClass,
    KernelName,
    NameFields,
    format_tile,
    join_parts,
    join_words,
)
from torchprof_tui.analysis.kernel.names.syntax import QualifiedName
from torchprof_tui.trace.core.late_regex import compile_later

if TYPE_CHECKING:
    from typing_extensions import Unpack

_TRTLLM_TYPES = {
    "MxE4m3": "mxfp8 e4m3",
    "MxE2m1": "mxfp4",
    "MxInt4": "mxint4",
    "E4m3": "fp8 e4m3",
    "E5m2": "fp8 e5m2",
    "E2m1": "fp4 e2m1",
    "E2m3": "fp6 e2m3",
    "E3m2": "fp6 e3m2",
    "Bfloat16": "bf16",
    "Fp16": "fp16",
    "Fp32": "fp32",
    "Int8": "int8",
}
_TYPE = "|".join(_TRTLLM_TYPES)
_TRTLLM = compile_later(
    rf"(?P<kind>[bB]mm|[gG]emm)_(?P<out>{_TYPE})_(?P<a>{_TYPE})(?P<b>{_TYPE})?_(?P<acc>Fp32|Fp16|Int32)_"
)
_TILE = compile_later(r"_t(\d+)x(\d+)x(\d+)")
_STAGES = compile_later(r"_s(\d+)(?=[x_])")
_SM = compile_later(r"_sm(\d+[a-z]?)(?:_|$)")
_ACTIVATIONS = {"swiGlu": "swiGlu", "geGlu": "geGlu", "relu2": "ReLU²", "silu": "SiLU", "gelu": "GELU"}

_DEEP_GEMM = compile_later(
    r"^(?:sm(?P<arch>\d+)_)?(?P<grouped>m_grouped_)?(?P<type>fp8_fp4|fp8_nt|fp8|bf16|fp4|tf32)_(?P<rest>.*)$"
)
_ELEMENTS = {"fp8": "fp8 e4m3", "fp8_nt": "fp8 e4m3", "bf16": "bf16", "fp4": "fp4 e2m1", "tf32": "tf32"}
_FP8_GEMM = compile_later(r"(?i)^(?:sm\d+_)?fp8_\w*gemm\w*$")
_OTHERS: tuple[tuple[re.Pattern[str], str | None, tuple[str, ...], bool | None, str], ...] = (
    (compile_later(r"^_?w8a8_(?:triton_)?block_(?:scaled_mm|fp8_matmul)"), "vLLM", ("fp8 e4m3",), True, "block-scaled"),
    (compile_later(r"^_?w8a8_block_int8_matmul"), "vLLM", ("int8",), True, "block-scaled"),
    (compile_later(r"^(?:scaled_mm_kernel|_scaled_mm)"), None, (), None, "scaled"),
    (compile_later(r"^bf16gemm_"), "AITER", ("bf16",), True, ""),
    (compile_later(r"^f4gemm_"), "AITER", ("fp4 e2m1",), True, "block-scaled"),
    (compile_later(r"^[Ii]8gemm_"), "AITER", ("int8",), True, ""),
    (compile_later(r"^f8_block_scale|^fp8gemm_"), "AITER", ("fp8 e4m3",), True, "block-scaled"),
    (compile_later(r"^f?moe_(?:stage[12]_)?(?:bf16|fp8|fp16|int8|xbf16|f8|f4)|^fmoe_"), "AITER", (), True, "experts"),
    (compile_later(r"^wvSplitKQ|^wv_splitkq"), "vLLM", ("fp8 e4m3",), None, "skinny"),
    (compile_later(r"^wvSplitK|^LLGemm|^LLMM"), "vLLM", (), None, "skinny"),
    (compile_later(r"^_?lora_(?:shrink|expand)|^_?sgmv_|^_?bgmv_|^_sgemm_lora_|^_qkv_lora_b_"), None, (), None, "LoRA"),
    (compile_later(r"^(?:dsv3_)?(?:fused_a_gemm|router_gemm)_kernel"), None, (), True, "skinny"),
    (compile_later(r"^tinygemm_kernel|^tinygemm_m16n8k16"), None, (), True, "skinny"),
    (compile_later(r"^_?(?:batched_)?(?:grouped|persistent|fused)_(?:matmul|gemm)_kernel"), None, (), None, ""),
)
"""(pattern over the function, library, types, on tensor cores, what is special): first match wins."""


def decode(name: str, parsed: QualifiedName) -> KernelName | None:
    """Decode a matrix product of an inference library; None for any other name."""
    match = _TRTLLM.match(parsed.base)
    if match:
        return _decode_trtllm(name, parsed.base, match)
    if parsed.root == "deep_gemm" or "fp8_blockscale_gemm" in parsed.path or _FP8_GEMM.match(parsed.base):
        return _decode_deep_gemm(name, parsed)
    base = parsed.base if parsed.root not in ("aiter", "vllm", "sglang") else parsed.path[-1]
    for pattern, library, dtypes, matrix, kind in _OTHERS:
        if pattern.search(base):
            library = library or {"vllm": "vLLM", "aiter": "AITER", "sglang": "SGLang"}.get(parsed.root)
            return _build_product(name, "serving gemm", library, kind=kind, dtypes=dtypes, tensor_core=matrix)
    return None


def _decode_trtllm(name: str, base: str, match: re.Match[str]) -> KernelName:
    """Decode a trtllm-gen product: inputs first in `dtypes`, the output last."""
    inputs = [_TRTLLM_TYPES[word] for word in (match["a"], match["b"]) if word]
    output = _TRTLLM_TYPES[match["out"]]
    tile, stages, arch = _TILE.search(base), _STAGES.search(base), _SM.search(base)
    activation = next((shown for word, shown in _ACTIVATIONS.items() if f"_{word}" in base), None)
    details = [("output", output)]
    cluster = re.search(r"_c(?:ga)?(\d+x\d+x\d+)", base)
    if cluster:
        details.append(("cluster", cluster[1].replace("x", "×")))
    if "dynB" in base:
        details.append(("batch", "experts of different sizes"))
    return _build_product(
        name,
        "trtllm-gen",
        "TensorRT-LLM",
        dtypes=tuple(dict.fromkeys((*inputs, output))),
        tile=tuple(map(int, tile.groups())) if tile else None,
        stages=int(stages[1]) if stages else None,
        arch=f"sm_{arch[1]}" if arch else None,
        epilogue=activation,
        kind="batched" if match["kind"].lower() == "bmm" else "",
        scaled=any(word.startswith(("Mx", "E2m1")) for word in (match["a"], match["b"] or "")),
        details=tuple(details),
    )


def _decode_deep_gemm(name: str, parsed: QualifiedName) -> KernelName | None:
    """Decode DeepGEMM: the first function that names types and a product; its other kernels prepare scales."""
    match = _DEEP_GEMM.match(parsed.base)
    library = "DeepGEMM" if "deep_gemm" in name else "TensorRT-LLM" if "tensorrt_llm" in parsed.path else None
    if not match:
        if "gemm" in parsed.base.lower() and "transpose" not in parsed.base.lower():
            return _build_product(name, "DeepGEMM", library)
        if parsed.root != "deep_gemm":
            return None
        text = "DeepGEMM: transposes or packs the scales of a block-scaled product"
        return KernelName(
            name, KernelClass.COPY, family="DeepGEMM", library=library, display="scale layout", summary=text
        )
    rest = match["rest"].lower()
    dtypes = ("fp8 e4m3", "fp4 e2m1") if match["type"] == "fp8_fp4" else (_ELEMENTS[match["type"]],)
    if "mqa_logits" in rest:
        return KernelName(
            name,
            KernelClass.ATTENTION,
            family="DeepGEMM",
            library=library,
            dtypes=dtypes,
            tensor_core=True,
            direction="forward",
            display=f"attention logits {dtypes[0]}",
            summary=join_parts("DeepGEMM: scores that select the keys of sparse attention", dtypes[0]),
        )
    if "gemm" not in rest and "bmm" not in rest and "einsum" not in rest and "bhr" not in rest:
        return None
    arch = f"sm_{match['arch']}" if match["arch"] else None
    return _build_product(
        name,
        "DeepGEMM",
        library,
        dtypes=dtypes,
        arch=arch,
        kind="grouped" if match["grouped"] else "",
        scaled="fp8" in dtypes[0],
    )


def _build_product(
    name: str,
    family: str,
    library: str | None,
    epilogue: str | None = None,
    kind: str = "",
    scaled: bool = False,
    **fields: Unpack[NameFields],
) -> KernelName:
    fields.setdefault("tensor_core", True)
    kernel = KernelName(name, KernelClass.GEMM, family=family, library=library, epilogue=epilogue, **fields)
    tile, dtypes = kernel.tile, kernel.dtypes
    return replace(
        kernel,
        fused=(epilogue,) if epilogue else (),
        display=join_words(
            "gemm", *dtypes[:1], format_tile(tile[:2]) if tile else None, f"+{epilogue}" if epilogue else None
        ),
        summary=join_parts(
            join_words(library, kind, "matrix product", f"for {kernel.arch}" if kernel.arch else None)
            + (" on tensor cores" if kernel.tensor_core else ""),
            "one scale for each block of elements" if scaled else None,
            " × ".join(dtypes[:2]),
            f"tile {format_tile(tile)}" if tile else None,
            f"{kernel.stages} stages" if kernel.stages else None,
            f"epilogue: {epilogue}" if epilogue else None,
        ),
    )
