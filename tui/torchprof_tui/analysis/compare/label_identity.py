"""Decide which names of two recordings mean the same call, apart from what a vendor or a compiler numbers."""

from __future__ import annotations

import re
from functools import lru_cache

from torchprof_tui.analysis.graphs.captured_nodes import remove_mark

_RUNTIME_CALL = re.compile(r"(?:cuda|hip|cu)(?=[A-Z])")
_GRAPH_KEY = re.compile(r"(CompiledFxGraph) \w+")
_KERNEL_NUMBER = re.compile(r"^(triton_\w+?)_\d+$")
_REGION_NUMBER = re.compile(r"^(Torch-Compiled Region): [\d/_]+$")


@lru_cache(maxsize=65536)
def simplify_label(name: str) -> str:
    """Return what is compared of a name.

    `hipLaunchKernel` and `cudaLaunchKernel` are the same call; the key of a compiled graph and the number of a compiled
    region or of a Triton kernel change when anything before them does. A captured op is the op of that name.
    """
    name = remove_mark(name)
    if name == "Memset (Unknown)":  # in graphs that were captured before CUPTI was started
        return "Memset (Device)"
    if name.startswith(("cu", "hip")):
        return _RUNTIME_CALL.sub("", name, count=1)
    name = _KERNEL_NUMBER.sub(r"\1", name)
    name = _REGION_NUMBER.sub(r"\1", name)
    return _GRAPH_KEY.sub(r"\1", name)


def simplify_op(name: str) -> str:
    """Return an op's name as Inductor writes it into the name of a kernel: `aten::add_` → `add`."""
    return remove_mark(name).rsplit("::", 1)[-1].split(".", 1)[0].strip("_")
