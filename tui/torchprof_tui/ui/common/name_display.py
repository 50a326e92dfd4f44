"""Names as a terminal may show them: escaped, shortened to what tells them apart, cut by cells."""

from __future__ import annotations

import re

from rich.cells import cell_len

from torchprof_tui.analysis.kernel.names.model import KernelClass
from torchprof_tui.analysis.kernel.names.name_decoder import decode_kernel_name
from torchprof_tui.trace.core.printable import clean as clean
from torchprof_tui.ui.common.cell_text import truncate as truncate

_FRAME = re.compile(r"^(?:.*[/\\])?([^/\\]+)\((\d+)\): (.+)$")
"""`path/to/file.py(12): function`, a Python frame of the profiler."""

_NAMESPACES = re.compile(r"(?:\(anonymous namespace\)|[\w~]+)::")


def shorten(name: str) -> str:
    """The part of a (cleaned) name that tells it apart, for places too narrow for all of it.

    Python frames lose their folder, operators, module calls and autograd nodes their prefix. C++ kernels are decoded;
    those that cannot be lose their return type, namespaces, template arguments and parameters. Everything else stays.
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
"""Not known, and said by the name already."""


def kernel_class_label(name: str) -> str:
    """The class of a kernel in a word ("gemm", "elementwise"), "" where the name does not tell."""
    found = decode_kernel_name(name).kernel_class
    return "" if found in _UNLABELLED_CLASSES else found.label


class DisplayNames:
    """Cleaned and shortened names by their number in `Trace.names`, worked out when first drawn."""

    def __init__(self, names: list[str]) -> None:
        self._names = names
        self._cache: dict[int, tuple[str, str]] = {}

    def __getitem__(self, number: int) -> tuple[str, str]:
        """(the whole name, its short form), both cleaned."""
        known = self._cache.get(number)
        if known is None:
            whole = clean(self._names[number])
            known = self._cache[number] = (whole, shorten(whole))
        return known

    def fit_name(self, number: int, width: int) -> str:
        """The whole name where it fits, the short one cut to `width` cells where it does not."""
        whole, brief = self[number]
        return whole if cell_len(whole) <= width else truncate(brief, width)

    def fit_name_with_class(self, number: int, width: int) -> str:
        """A kernel's name with its class before it; in a narrow bar the class says more than how a name begins."""
        whole, brief = self[number]
        word = kernel_class_label(self._names[number])
        if not word:
            return self.fit_name(number, width)
        decoded = decode_kernel_name(self._names[number])
        brief = clean(decoded.display) if decoded.known and decoded.display else brief
        told = brief if word in brief else f"{word} · {brief}"
        for text in (whole if word in whole else f"{word} · {whole}", told):
            if cell_len(text) <= width:
                return text
        if len(word) + 3 < width:
            return truncate(told, width)
        return word if len(word) <= width else truncate(brief, width)
