"""List the names of a trace as its lanes print them, for searches: "mul bf16", "elementwise · mul bf16", "mm"."""

from __future__ import annotations

import numpy as np

from torchprof_tui.analysis.kernel.names.name_decoder import decode_kernel_name
from torchprof_tui.trace.model.event_kind import GPU_WORK
from torchprof_tui.trace.model.trace import Trace
from torchprof_tui.ui.common.name_display import clean, kernel_class_label, shorten


def list_lane_names(trace: Trace) -> dict[int, tuple[str, ...]]:
    """List the short forms of each distinct name, by its index in `trace.names`; names without one are left out.

    GPU work has its decoded name, alone and behind its class; operators and frames lose their prefix and folder.
    """
    on_gpu = np.zeros(len(trace.names), np.bool_)
    on_gpu[np.unique(trace.name[np.isin(trace.kind, [int(kind) for kind in GPU_WORK])])] = True
    forms = {}
    for index, name in enumerate(trace.names):
        found = _list_gpu_forms(name) if on_gpu[index] else (shorten(clean(name)),)
        found = tuple(form for form in dict.fromkeys(found) if form and form != name)
        if found:
            forms[index] = found
    return forms


def find_names_on_lanes(lane_names: dict[int, tuple[str, ...]], text: str) -> list[int]:
    """Find the names that lanes print as exactly this text: indices into `trace.names`."""
    return [index for index, forms in lane_names.items() if text in forms]


def _list_gpu_forms(name: str) -> tuple[str, ...]:
    decoded = decode_kernel_name(name)
    label = kernel_class_label(name)
    short = clean(decoded.display) if decoded.known and decoded.display else shorten(clean(name))
    return (short, f"{label} · {short}") if label and label not in short else (short,)
