"""Decode attention kernels: flash attention 2 and 3, memory-efficient (xFormers), cuDNN, AOTriton, serving engines.

void pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<64, 128, 128, 4, …, cutlass::bfloat16_t, …>, …>
fmha_cutlassF_bf16_aligned_64x64_rf_sm80
cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7_64x128x64_4x1x1_cga1x1x1_kernel0_0
attn_fwd, paged_attention_ll4mi_QKV_mfma16_kernel, kernel_unified_attention_2d
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from torchprof_tui.analysis.kernel.names.model import (
    SHORT_DIRECTIONS,
    KernelClass,
    KernelName,
    NameFields,
    format_tile,
    join_parts,
    join_words,
)
from torchprof_tui.analysis.kernel.names.syntax import (
    QualifiedName,
    parse_dtypes,
    parse_integer,
    parse_qualified_name,
)
from torchprof_tui.analysis.kernel.names.xmma import ELEMENT_TYPES, parse_sm_arch
from torchprof_tui.trace.core.late_regex import compile_later

if TYPE_CHECKING:
    from typing_extensions import Unpack

FORWARD, BACKWARD = "forward", "backward"

_EFFICIENT = compile_later(
    r"fmha_cutlass(?P<way>[FB])_(?P<type>bf16|f16|f32)_(?P<alignment>aligned|notaligned)_(?P<m>\d+)x(?P<n>\d+)_"
    r"(?P<rest>\w*?)_?(?P<arch>sm\d+)$"
)
_CUDNN = compile_later(
    r"cudnn_generated_fort_native_sdpa_(?P<arch>sm\d+[a-z]?)_(?P<kind>flash|\w+?)_(?P<way>fprop|bprop)_"
    r"(?P<mma>wgmma|wmma|mma|umma)?_?(?P<type>bf16|f16|f8)?.*?_knob_(?P<knob>\d+)_(?P<tile>\d+x\d+x\d+)"
)
_TRITON_KERNELS = {
    "attn_fwd": ("AOTriton", FORWARD),
    "attn_bwd_preprocess": ("AOTriton", BACKWARD),
    "bwd_preprocess": ("AOTriton", BACKWARD),
    "bwd_kernel_dk_dv": ("AOTriton", BACKWARD),
    "bwd_kernel_dq": ("AOTriton", BACKWARD),
    "bwd_kernel_fuse": ("AOTriton", BACKWARD),
    "kernel_unified_attention_2d": ("vLLM", None),
    "kernel_unified_attention_3d": ("vLLM", None),
    "kernel_unified_attention": ("vLLM", None),
    "kernel_paged_attention_2d": ("vLLM", None),
    "reduce_segments": ("vLLM", None),
    "_fwd_grouped_kernel_stage1": ("SGLang", FORWARD),
    "_fwd_kernel_stage1": ("SGLang", FORWARD),
    "_fwd_kernel_stage2": ("SGLang", FORWARD),
    "_attn_fwd": ("Triton", FORWARD),
    "_attn_bwd": ("Triton", BACKWARD),
}
_TRITON_STEPS = {
    "attn_bwd_preprocess": "preprocess",
    "bwd_preprocess": "preprocess",
    "reduce_segments": "combine",
    "_fwd_kernel_stage2": "combine",
}
"""Steps without a matrix product; all other Triton attention kernels multiply with `tl.dot`, on matrix units."""
_MERGE = compile_later(r"^(?:Persistent)?(?:VariableLength)?MergeStates?(?:InPlace)?Kernel|^merge_attn_states_kernel")
_DELTA_RULE = compile_later(
    r"^_?(?:chunk|fused_recurrent|fused_sigmoid_gating|recompute_w_u|selective|state_passing|chunk_scan|chunk_state)\w*?"
    r"(?:delta_rule|gla|_fwd_kernel_o|w_u_fwd|scan_fwd|scan_update|state_fwd|state_passing_fwd|dot_kkt)"
)
"""Linear attention and state-space models: flash-linear-attention and Mamba."""
_TRTLLM_ELEMENTS = {"E4m3": "fp8 e4m3", "Bfloat16": "bf16", "Fp16": "fp16", "E2m1": "fp4 e2m1"}
_TRTLLM = compile_later(
    r"fmhaSm(?P<arch>\d+[a-z]?)Kernel_Q(?:kv)?(?P<type>E4m3|Bfloat16|Fp16)(?:K\w*?)??O(?P<out>E4m3|Bfloat16|Fp16|E2m1)"
    r"(?:HQk(?P<qk>\d+)HV\d+|H(?P<head>\d+))?"
)
_FMHA_V2 = compile_later(r"fmha_v2_(?:flash_attention_)?(?P<type>bf16|fp16|fp32|e4m3)\w*?_sm(?P<arch>\d+)")
_AITER = compile_later(r"(?:aiter::)?_?(?P<kind>fmha_(?P<way>fwd|bwd)|mla_|pa_)\w*")
_TILE_OF_TRTLLM = compile_later(r"Q(\d+)Kv(\d+)")
_CUDNN_STEPS = {
    "fmha_reduce_head": "sums over heads after cuDNN's attention backward",
    "compute_dot_do_o_specialized": "the dO · O sums that start cuDNN's attention backward",
    "compute_dot_do_o": "the dO · O sums that start cuDNN's attention backward",
    "convert_dq_to_16bits": "converts the gradient of the queries after cuDNN's attention backward",
}


_LABELS = {
    "memory-efficient attention": "mem-eff attention",
    **{family: family for family in ("cuDNN attention", "paged attention", "linear attention")},
    **dict.fromkeys(("flash attention 2", "flash attention 3"), "flash attention"),
}
"""Short names of families; "attention" for all others."""


def decode(name: str, parsed: QualifiedName) -> KernelName | None:
    """Decode an attention kernel; None for any other name."""
    families = (
        _decode_memory_efficient,
        _decode_cudnn,
        _decode_flash,
        _decode_trtllm,
        _decode_aiter,
        _decode_paged,
        _decode_triton,
    )
    return next((decoded for decode_family in families if (decoded := decode_family(name, parsed))), None)


def _decode_memory_efficient(name: str, parsed: QualifiedName) -> KernelName | None:
    match = _EFFICIENT.match(parsed.base)
    if not match:
        return None
    return _build_attention(
        name,
        "memory-efficient attention",
        "PyTorch (xFormers, CUTLASS)",
        direction=FORWARD if match["way"] == "F" else BACKWARD,
        dtypes=(ELEMENT_TYPES[match["type"]],),
        tile=(int(match["m"]), int(match["n"])),
        arch=parse_sm_arch(match["arch"]),
        # Tensor cores take fp32 as TF32 only since Ampere; before, fp32 attention runs on CUDA cores.
        tensor_core=match["type"] != "f32" or int(match["arch"][2:]) >= 80,
        fused=("dropout",) if "dropout" in match["rest"] else (),
    )


def _decode_cudnn(name: str, parsed: QualifiedName) -> KernelName | None:
    match = _CUDNN.match(parsed.base)
    if match:
        # "f16" is also in the names of bf16 kernels: it only means 16 bits, so no dtype is claimed.
        details = [("knob", match["knob"])]
        if match["mma"]:
            details.insert(0, ("instruction", f"{match['mma']} {match['type'] or ''}".strip()))
        return _build_attention(
            name,
            "cuDNN attention",
            "cuDNN",
            direction=FORWARD if match["way"] == "fprop" else BACKWARD,
            tile=tuple(map(int, match["tile"].split("x"))),
            arch=parse_sm_arch(match["arch"]),
            tensor_core=True if match["mma"] else None,
            details=tuple(details),
        )
    step = _CUDNN_STEPS.get(parsed.base) if parsed.root == "cudnn" else None
    if not step:
        return None
    return KernelName(
        name,
        KernelClass.ATTENTION,
        family="cuDNN attention",
        library="cuDNN",
        direction=BACKWARD,
        display="attention bwd step",
        summary=step,
    )


def _decode_flash(name: str, parsed: QualifiedName) -> KernelName | None:
    """Decode flash attention 2, whose traits are <head size, block M, block N, warps, …, element type, …>."""
    base = parsed.base
    if base == "device_kernel" and ("FlashAttn" in name or re.search(r"(?i)fmha", parsed.argument(0))):
        return _decode_cutlass_device_kernel(name, parsed)
    if not re.match(r"flash_(fwd|bwd)_", base):
        return None
    traits = parse_qualified_name(parsed.argument(0))
    sizes = [parse_integer(argument) for argument in traits.arguments[:3]]
    head, m, n = sizes if len(sizes) == 3 and all(sizes) else (None, None, None)
    split = "splitkv" in base
    details = [("head size", str(head))] if head else []
    if split:
        details.append(("split", "keys and values"))
    step = re.search(r"(preprocess|dot_do_o|convert_dq|convert_dkv|combine)", base)
    return _build_attention(
        name,
        "flash attention 2",
        "PyTorch" if parsed.root == "pytorch_flash" else "flash-attention",
        direction=FORWARD if base.startswith("flash_fwd") else BACKWARD,
        dtypes=parse_dtypes(traits.arguments),
        tile=(m, n) if m and n else None,
        tensor_core=None if step else True,
        step=step[1].replace("_", " ") if step else None,
        details=tuple(details),
    )


def _decode_cutlass_device_kernel(name: str, parsed: QualifiedName) -> KernelName:
    """Decode flash attention 3, or CUTLASS's own `device_kernel<cutlass::fmha::kernel::Sm100FmhaMlaKernel…<…>>`."""
    inner = parsed.argument(0)
    is_flash = "FlashAttn" in name
    text = name if is_flash else inner
    arch = re.search(r"Sm(\d+)", text)
    types = re.findall(r"cutlass::(?:bfloat16_t|half_t|float_e4m3_t)", inner)
    steps = ("Combine", "Preprocess") if is_flash else ("Reduction",)
    step = next((word.lower() for word in steps if word in text), None)
    direction: str | None = BACKWARD if "Bwd" in inner else FORWARD
    if is_flash:
        way = re.search(r"FlashAttn(Fwd|Bwd)", name)
        direction = (FORWARD if way[1] == "Fwd" else BACKWARD) if way else None
    return _build_attention(
        name,
        "flash attention 3" if is_flash else "CUTLASS attention",
        "flash-attention" if is_flash else "CUTLASS",
        direction=direction,
        dtypes=parse_dtypes(types[:1]),
        arch=f"sm_{arch[1]}" if arch else None,
        tensor_core=None if step else True,
        step=step,
    )


def _decode_trtllm(name: str, parsed: QualifiedName) -> KernelName | None:
    """Decode TensorRT-LLM: trtllm-gen's `fmhaSm100aKernel_Qkv<type>O<type>H<head>…Q<m>Kv<n>…Context`, FMHA v2, XQA.

    `Context` marks the prompt's attention, `ForGen` that of single tokens.
    """
    base = parsed.base
    match = _TRTLLM.match(base)
    if match:
        tile = _TILE_OF_TRTLLM.search(base, match.end())
        details = [("head size", match["qk"] or match["head"])] if match["qk"] or match["head"] else []
        phase = "prefill" if "Context" in base else "decoding" if "ForGen" in base else None
        if phase:
            details.append(("phase", phase))
        return _build_attention(
            name,
            "trtllm-gen attention",
            "TensorRT-LLM",
            direction=FORWARD,
            dtypes=tuple(dict.fromkeys((_TRTLLM_ELEMENTS[match["type"]], _TRTLLM_ELEMENTS[match["out"]]))),
            tile=(int(tile[1]), int(tile[2])) if tile else None,
            arch=f"sm_{match['arch']}",
            tensor_core=True,
            details=tuple(details),
        )
    older = _FMHA_V2.match(base)
    if older or base.startswith(("fmhaSm", "kernel_mha", "masked_multihead_attention_kernel")):
        return _build_attention(
            name,
            "fused multi-head attention",
            "TensorRT-LLM",
            direction=FORWARD,
            dtypes=(ELEMENT_TYPES[older["type"]],) if older else (),
            arch=f"sm_{older['arch']}" if older else None,
            tensor_core=None if base.startswith("masked") else True,
        )
    return None


def _decode_aiter(name: str, parsed: QualifiedName) -> KernelName | None:
    """Decode AITER's attention in assembly (`aiter::fmha_fwd_hd128_bf16_causal`): on matrix cores."""
    match = _AITER.match(parsed.base)
    if not match or (parsed.root != "aiter" and not match["way"]):
        return None
    types = re.findall(r"_(bf16|fp16|fp8|a16w16|a8w8)(?=_|$)", parsed.base)
    dtype = {"fp8": "fp8 e4m3", "a8w8": "fp8 e4m3"}.get(types[0], ELEMENT_TYPES.get(types[0])) if types else None
    step = "convert" if "convert" in parsed.base else "dO · O" if "odo" in parsed.base.lower() else None
    return _build_attention(
        name,
        "AITER attention",
        "AITER",
        direction=BACKWARD if match["way"] == "bwd" else FORWARD,
        dtypes=(dtype,) if dtype else (),
        tensor_core=None if step else True,
        step=step,
    )


def _decode_paged(name: str, parsed: QualifiedName) -> KernelName | None:
    """Decode attention over a paged key-value cache, used by serving engines for decoding."""
    base = parsed.base
    if _MERGE.match(base):
        return _build_attention(name, "paged attention", None, direction=FORWARD, step="combine")
    flashinfer = re.match(r"(Batch|Single)?(Prefill|Decode)With|BatchMLAPaged", base)
    if not re.match(r"paged_attention_", base) and not flashinfer:
        return None
    library = "FlashInfer" if flashinfer else "vLLM" if "vllm" in name else "ROCm" if "ll4mi" in base else None
    return _build_attention(
        name,
        "paged attention",
        library,
        dtypes=parse_dtypes(parsed.arguments[:2]) if not flashinfer else (),
        tensor_core=True if "mfma" in base else None,
        direction=FORWARD,
        step="reduce" if base.endswith("reduce_kernel") else None,
    )


def _decode_triton(name: str, parsed: QualifiedName) -> KernelName | None:
    if _DELTA_RULE.match(parsed.base):
        return _build_attention(name, "linear attention", None, direction=FORWARD if "fwd" in parsed.base else None)
    if parsed.base not in _TRITON_KERNELS:
        return None
    library, way = _TRITON_KERNELS[parsed.base]
    step = _TRITON_STEPS.get(parsed.base)
    return _build_attention(name, "Triton attention", library, step, direction=way, tensor_core=None if step else True)


def _build_attention(
    name: str, family: str, library: str | None, step: str | None = None, **fields: Unpack[NameFields]
) -> KernelName:
    kernel = KernelName(name, KernelClass.ATTENTION, family=family, library=library, **fields)
    label, way = _LABELS.get(family, "attention"), SHORT_DIRECTIONS.get(kernel.direction or "")
    return replace(
        kernel,
        display=join_words(label, way, *kernel.dtypes[:1], step),
        summary=join_parts(
            f"{family}{f', {kernel.direction}' if kernel.direction else ''}: "
            + (f"its {step} step" if step else "the whole softmax(Q·Kᵀ)·V in one kernel"),
            *kernel.dtypes[:1],
            f"tile {format_tile(kernel.tile)}" if kernel.tile else None,
            *(f"with {operation}" for operation in kernel.fused),
        ),
    )
