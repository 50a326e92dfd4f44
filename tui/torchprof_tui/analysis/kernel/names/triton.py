"""Decode Triton kernels: Inductor's generated names, and hand-written kernels with their configuration in the name.

`triton_poi_fused_add_gelu_native_layer_norm_3`: the kind of loop (pointwise, reduction, persistent reduction,
template), the fused operations, a number. The operations are joined by underscores, which operations also contain; the
list is split by longest match against the known operations. Inductor sorts the names, which tests use as a check.
"""

from __future__ import annotations

import re

from torchprof_tui.analysis.kernel.names.aten_ops import COMPOUND_OPS
from torchprof_tui.analysis.kernel.names.model import KernelClass, KernelName, format_tile, join_parts
from torchprof_tui.analysis.kernel.names.syntax import QualifiedName
from torchprof_tui.trace.core.late_regex import compile_later

_INDUCTOR = compile_later(
    r"triton_(?P<kind>poi|red|per|tem|for|spl|mix|[a-z0-9]{3})_fused(?:_(?P<ops>.*?))??(?:_(?P<number>\d+))?$"
)
_LOOP_KINDS = {
    "poi": "pointwise",
    "red": "reduction",
    "per": "persistent reduction",
    "tem": "template",
    "for": "foreach",
    "spl": "split scan",
    "mix": "mixed-order reduction",
}
_MATMUL_OGS = compile_later(
    r"_matmul_ogs_(?P<layout>[NT]{3})_(?P<a>\w+?)x(?P<b>\w+?)x(?P<w>\w+?)_(?P<m>\d+)x(?P<n>\d+)x(?P<k>\d+)x(?P<split>\d+)"
    r"(?:_(?P<epilogue>\w+))?$"
)
_MAX_OP_WORDS = max(name.count("_") for name in COMPOUND_OPS) + 1
_MAX_LABEL_LENGTH = 40
"""Characters of the list of operations in a label."""
_SHAPE_ONLY_OPS = {
    "view",
    "t",
    "transpose",
    "permute",
    "unsqueeze",
    "squeeze",
    "expand",
    "slice",
    "select",
    "clone",
    "split",
    "unsafe_view",
}
"""Operations that only change a tensor's shape: part of `fused`, but left out of the short label."""


def decode(name: str, parsed: QualifiedName) -> KernelName | None:
    """Decode a Triton kernel whose name has a known form; None for any other name."""
    match = _INDUCTOR.fullmatch(parsed.base)
    if match and match["kind"] in _LOOP_KINDS:
        return _decode_inductor(name, match["kind"], split_operations(match["ops"] or ""))
    if parsed.base.startswith(("triton_mm", "triton_bmm", "triton_flex_attention")):
        return _decode_template(name, parsed.base)
    match = _MATMUL_OGS.match(parsed.base)
    return _decode_matmul_ogs(name, match) if match else None


def split_operations(joined: str) -> tuple[str, ...]:
    """Split joined names: `_to_copy_add_native_layer_norm_view` → ("_to_copy", "add", "native_layer_norm", "view")."""
    words = joined.split("_")
    operations: list[str] = []
    index = 0
    while index < len(words):
        for length in range(min(_MAX_OP_WORDS, len(words) - index), 0, -1):
            candidate = "_".join(words[index : index + length])
            if candidate in COMPOUND_OPS:
                operations.append(candidate)
                index += length
                break
        else:
            if words[index]:
                operations.append(words[index])
            index += 1
    return tuple(operations)


def _decode_inductor(name: str, kind: str, operations: tuple[str, ...]) -> KernelName:
    kernel_class = KernelClass.TRITON
    if kind == "tem" and operations:
        kernel_class = KernelClass.ATTENTION if "attention" in operations[0] else KernelClass.GEMM
    stripped = [operation.strip("_") for operation in operations]
    label_operations = [operation for operation in stripped if operation not in _SHAPE_ONLY_OPS] or list(operations)
    label = _join_operations(label_operations)
    listed = ", ".join(operations)
    return KernelName(
        name,
        kernel_class,
        known=True,
        family=f"Inductor {_LOOP_KINDS[kind]}",
        library="torch.compile (Triton)",
        fused=operations,
        direction="backward" if any(operation.endswith("_backward") for operation in operations) else None,
        display=f"triton {label}" if label else f"triton {_LOOP_KINDS[kind]}",
        summary=f"Inductor's {_LOOP_KINDS[kind]} kernel in Triton"
        + (f", {len(operations)} ops in one: {listed}" if listed else ""),
        details=(("kind", _LOOP_KINDS[kind]),),
    )


def _join_operations(operations: list[str]) -> str:
    """Join the first operations that fit into a bar's label, at least one."""
    shown = operations[:1]
    for operation in operations[1:]:
        if len("+".join((*shown, operation))) > _MAX_LABEL_LENGTH:
            return "+".join((*shown, "…"))
        shown.append(operation)
    return "+".join(shown)


def _decode_template(name: str, base: str) -> KernelName:
    """Decode a matrix product or attention from one of Inductor's Triton templates, selected by autotuning."""
    attention = "attention" in base
    return KernelName(
        name,
        KernelClass.ATTENTION if attention else KernelClass.GEMM,
        known=True,
        family="Inductor template",
        library="torch.compile (Triton)",
        display="flex attention" if attention else "triton gemm",
        summary=f"{'Attention' if attention else 'Matrix product'} from one of Inductor's Triton templates",
    )


def _decode_matmul_ogs(name: str, match: re.Match[str]) -> KernelName:
    """Decode triton_kernels' mixture-of-experts product: output, activation, weight types, block M x N x K, split K."""
    dtypes = tuple(dict.fromkeys((match["b"], match["w"], match["a"])))
    tile = (int(match["m"]), int(match["n"]), int(match["k"]))
    epilogue = match["epilogue"]
    return KernelName(
        name,
        KernelClass.GEMM,
        known=True,
        family="Triton matmul_ogs",
        library="triton_kernels",
        dtypes=dtypes,
        tensor_core=None if dtypes == ("fp32",) else True,  # tl.dot; with fp32 it depends on allow_tf32
        tile=tile,
        fused=(epilogue,) if epilogue else (),
        epilogue=epilogue,
        display=" ".join(
            (
                "gemm",
                dtypes[1] if len(dtypes) > 1 else dtypes[0],
                format_tile(tile[:2]),
                *([f"+{epilogue}"] if epilogue else []),
            )
        ),
        summary=join_parts(
            "Triton matrix product over experts (mixture of experts)",
            " × ".join(dtypes),
            f"tile {format_tile(tile)}",
            f"epilogue: {epilogue}" if epilogue else None,
        ),
        details=(("layout letters", match["layout"]), ("split-K", match["split"])),
    )
