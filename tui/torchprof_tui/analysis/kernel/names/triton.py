"""Triton kernels: Inductor's generated names, and hand-written kernels whose names carry their configuration.

`triton_poi_fused_add_gelu_native_layer_norm_3`: the kind of loop (pointwise, reduction, persistent reduction,
template), the operations that were merged, a number. The operations are joined by underscores that operations contain
too; the list is cut by longest match against the operations' names. Inductor sorts the names, which is the check.
"""

from __future__ import annotations

import re

from torchprof_tui.analysis.kernel.names.aten_ops import COMPOUND_OPS
from torchprof_tui.analysis.kernel.names.model import KernelClass, KernelName, format_tile, join_parts
from torchprof_tui.analysis.kernel.names.syntax import QualifiedName

_INDUCTOR = re.compile(
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
_MATMUL_OGS = re.compile(
    r"_matmul_ogs_(?P<layout>[NT]{3})_(?P<a>\w+?)x(?P<b>\w+?)x(?P<w>\w+?)_(?P<m>\d+)x(?P<n>\d+)x(?P<k>\d+)x(?P<split>\d+)"
    r"(?:_(?P<epilogue>\w+))?$"
)
_MAX_OP_WORDS = max(name.count("_") for name in COMPOUND_OPS) + 1
_MAX_LABEL_LENGTH = 40
"""Characters of a label's list of operations."""
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
"""Operations that only change a tensor's shape: in the list, but not what a bar's few characters should name."""


def decode(name: str, parsed: QualifiedName) -> KernelName | None:
    """A Triton kernel whose name has a known form, or None."""
    found = _INDUCTOR.fullmatch(parsed.base)
    if found and found["kind"] in _LOOP_KINDS:
        return _decode_inductor(name, found["kind"], split_operations(found["ops"] or ""))
    if parsed.base.startswith(("triton_mm", "triton_bmm", "triton_flex_attention")):
        return _decode_template(name, parsed.base)
    found = _MATMUL_OGS.match(parsed.base)
    return _decode_matmul_ogs(name, found) if found else None


def split_operations(joined: str) -> tuple[str, ...]:
    """`_to_copy_add_native_layer_norm_view` → ("_to_copy", "add", "native_layer_norm", "view")."""
    words = joined.split("_")
    found: list[str] = []
    place = 0
    while place < len(words):
        for length in range(min(_MAX_OP_WORDS, len(words) - place), 0, -1):
            candidate = "_".join(words[place : place + length])
            if candidate in COMPOUND_OPS:
                found.append(candidate)
                place += length
                break
        else:
            if words[place]:
                found.append(words[place])
            place += 1
    return tuple(found)


def _decode_inductor(name: str, kind: str, operations: tuple[str, ...]) -> KernelName:
    kernel_class = KernelClass.TRITON
    if kind == "tem" and operations:
        kernel_class = KernelClass.ATTENTION if "attention" in operations[0] else KernelClass.GEMM
    telling = [one.strip("_") for one in operations if one.strip("_") not in _SHAPE_ONLY_OPS] or list(operations)
    shown = _join_operations(telling)
    listed = ", ".join(operations)
    return KernelName(
        name,
        kernel_class,
        known=True,
        family=f"Inductor {_LOOP_KINDS[kind]}",
        library="torch.compile (Triton)",
        fused=operations,
        direction="backward" if any(one.endswith("_backward") for one in operations) else None,
        display=f"triton {shown}" if shown else f"triton {_LOOP_KINDS[kind]}",
        summary=f"Inductor's {_LOOP_KINDS[kind]} kernel in Triton"
        + (f", {len(operations)} ops in one: {listed}" if listed else ""),
        details=(("kind", _LOOP_KINDS[kind]),),
    )


def _join_operations(operations: list[str]) -> str:
    """The first operations that fit a bar's label, at least one."""
    shown = operations[:1]
    for one in operations[1:]:
        if len("+".join((*shown, one))) > _MAX_LABEL_LENGTH:
            return "+".join((*shown, "…"))
        shown.append(one)
    return "+".join(shown)


def _decode_template(name: str, base: str) -> KernelName:
    """A matrix product or attention that autotuning chose from Inductor's Triton templates."""
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


def _decode_matmul_ogs(name: str, found: re.Match[str]) -> KernelName:
    """triton_kernels' mixture-of-experts product: output, activation and weight types, block M x N x K, split K."""
    dtypes = tuple(dict.fromkeys((found["b"], found["w"], found["a"])))
    tile = (int(found["m"]), int(found["n"]), int(found["k"]))
    epilogue = found["epilogue"]
    return KernelName(
        name,
        KernelClass.GEMM,
        known=True,
        family="Triton matmul_ogs",
        library="triton_kernels",
        dtypes=dtypes,
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
        details=(("layout letters", found["layout"]), ("split-K", found["split"])),
    )
