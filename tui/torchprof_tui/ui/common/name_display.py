"""Format names for display: escape them, shorten them to their distinctive part, and cut them to a width in cells."""

from __future__ import annotations

import re

import numpy as np
from rich.cells import cell_len

from torchprof_tui.analysis.kernel.names.model import KernelClass
from torchprof_tui.analysis.kernel.names.name_decoder import decode_kernel_name
from torchprof_tui.analysis.search.name_search import is_case_sensitive
from torchprof_tui.trace.core.printable import clean as clean
from torchprof_tui.trace.model.event_kind import GPU_WORK
from torchprof_tui.trace.model.trace import Trace
from torchprof_tui.ui.common.cell_text import truncate as truncate

_FRAME = re.compile(r"^(?:.*[/\\])?([^/\\]+)\((\d+)\): (.+)$")
"""`path/to/file.py(12): function`, a Python frame of the profiler."""

_NAMESPACES = re.compile(r"(?:\(anonymous namespace\)|[\w~]+)::")


def shorten(name: str) -> str:
    """Shorten a (cleaned) name to its distinctive part, for bars and columns too narrow for all of it.

    Python frames lose their folder; operators, module calls and autograd nodes lose their prefix. C++ kernels are
    decoded, or else lose their return type, namespaces, template arguments and parameters. Other names stay.
    """
    frame = _FRAME.match(name)
    if frame:
        return f"{frame[3]} {frame[1]}:{frame[2]}"
    for prefix in ("aten::", "nn.Module: ", "autograd::engine::evaluate_function: ", "torch::autograd::"):
        if name.startswith(prefix):
            return name[len(prefix) :]
    if name.startswith("<built-in "):
        return name[1:].partition(" object at ")[0].rstrip(">")
    if name.startswith("void ") or ("<" in name and "::" in name):
        decoded = decode_kernel_name(name)
        if decoded.known and decoded.display:
            return decoded.display
        head = _NAMESPACES.sub("", name.removeprefix("void ").partition("<")[0])
        return head.partition("(")[0] or name
    return name


_UNLABELLED_CLASSES = (KernelClass.OTHER, KernelClass.MEMORY)
"""Classes without a label: unknown, or obvious from the name."""


def kernel_class_label(name: str) -> str:
    """Return the class of a kernel in a word ("gemm", "elementwise"), "" if unknown or obvious from the name."""
    kernel_class = decode_kernel_name(name).kernel_class
    return "" if kernel_class in _UNLABELLED_CLASSES else kernel_class.label


class DisplayNames:
    """Cleaned and shortened names by their index in `Trace.names`, computed when they are first drawn."""

    def __init__(self, names: list[str]) -> None:
        self._names = names
        self._cache: dict[int, tuple[str, str]] = {}
        self._short_only: set[int] = set()  # Python's names, which stand beside each other in one form

    def __getitem__(self, index: int) -> tuple[str, str]:
        """Return (the full name, the short name), both cleaned."""
        names = self._cache.get(index)
        if names is None:
            full_name = clean(self._names[index])
            names = self._cache[index] = (full_name, shorten(full_name))
            if _FRAME.match(full_name) or full_name.startswith("<built-in "):
                self._short_only.add(index)
        return names

    def fit_name(self, index: int, width: int) -> str:
        """Return the full name if it fits into `width` cells, otherwise the short name cut to that width.

        A Python frame or function has its short name everywhere.
        """
        full_name, short_name = self[index]
        if index not in self._short_only and cell_len(full_name) <= width:
            return full_name
        return truncate(short_name, width)

    def fit_name_with_class(self, index: int, width: int) -> str:
        """Fit a kernel's class and name into `width` cells.

        In a narrow bar the class is more informative than the first letters of the name.
        """
        full_name, short_name = self[index]
        label = kernel_class_label(self._names[index])
        if not label:
            return self.fit_name(index, width)
        decoded = decode_kernel_name(self._names[index])
        short_name = clean(decoded.display) if decoded.known and decoded.display else short_name
        labelled_short_name = short_name if label in short_name else f"{label} · {short_name}"
        for text in (full_name if label in full_name else f"{label} · {full_name}", labelled_short_name):
            if cell_len(text) <= width:
                return text
        if len(label) + 3 < width:
            return truncate(labelled_short_name, width)
        return label if len(label) <= width else truncate(short_name, width)


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


def format_found(count: int, text: str) -> str:
    """Format how many rows a search finds, beside its text, which is case-sensitive where it has a capital."""
    return f"{count:,} found" + (" · case-sensitive: it has a capital" if is_case_sensitive(text) else "")
