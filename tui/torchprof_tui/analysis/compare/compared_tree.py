"""A call tree with what is matched of it: labels shared by both sides, digests of subtrees, kernels of each node."""

from __future__ import annotations

import re
from functools import cached_property, lru_cache

import numpy as np
import numpy.typing as npt

from torchprof_tui.analysis.compare.op_tree import OpTree
from torchprof_tui.analysis.dispatch.ancestry import compute_depths
from torchprof_tui.analysis.graphs.captured_nodes import remove_mark
from torchprof_tui.analysis.kernel.names.model import KernelClass
from torchprof_tui.analysis.kernel.names.name_decoder import decode_kernel_name
from torchprof_tui.trace.core.arrays import I32, I64
from torchprof_tui.trace.core.records import record

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


U64 = npt.NDArray[np.uint64]


class SharedLabels:
    """Number the names of both sides; names that mean the same call have the same number."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def number_used(self, label: I32, names: list[str]) -> I64:
        """Number the names that are used, of those with an index in `label` int32[k]: int64[k]."""
        used, inverse = np.unique(label, return_inverse=True)
        numbers = self._numbers
        found = [numbers.setdefault(simplify_label(names[index]), len(numbers)) for index in used.tolist()]
        return np.array(found, np.int64)[inverse]


@record(slots=False)
class ComparedTree:
    """`tree` with `label` int64[n] and `work_label` int64[k], numbers shared by both sides; `names` of the trace."""

    tree: OpTree
    names: list[str]
    label: I64
    work_label: I64

    @classmethod
    def build(cls, tree: OpTree, names: list[str], labels: SharedLabels) -> ComparedTree:
        """Number the labels that the tree uses."""
        label, work_label = labels.number_used(tree.label, tree.labels), labels.number_used(tree.work.name, names)
        return cls(tree, names, label, work_label)

    def name_of(self, node: int) -> str:
        """Return the name of a node."""
        return self.tree.labels[int(self.tree.label[node])]

    def work_rows(self, node: int) -> range:
        """Return the rows of a node's GPU work."""
        first = self.tree.work.first
        return range(int(first[node]), int(first[node + 1]))

    def work_name(self, row: int) -> str:
        """Return the name of a row of GPU work."""
        return self.names[int(self.tree.work.name[row])]

    def children_of(self, node: int) -> I32:
        """Return the children of a node, in order: int32[k]."""
        order, first = self._children
        return order[first[node] : first[node + 1]]

    @property
    def no_launch_node(self) -> int:
        """The node of GPU work without a launch: the last child of the step."""
        return int(self.children_of(0)[-1])

    def work_class(self, node: int) -> KernelClass:
        """Return the class of a node's first kernel that does more than move or fill memory."""
        classes = [decode_kernel_name(self.work_name(row)).kernel_class for row in self.work_rows(node)]
        return next((kind for kind in classes if kind not in (KernelClass.MEMORY, KernelClass.COPY)), classes[0])

    @cached_property
    def has_work(self) -> npt.NDArray[np.bool_]:
        """bool[n]: nodes that launch GPU work themselves."""
        return np.diff(self.tree.work.first) > 0

    @cached_property
    def digests(self) -> U64:
        """uint64[n]: equal where the labels of two subtrees are equal, in order, without their GPU work."""
        parent = self.tree.parent
        depth = compute_depths(parent)
        digest = mix_bits(self.label.astype(np.uint64) + np.uint64(1))
        order = np.argsort(depth, kind="stable")
        for members in reversed(np.split(order, np.cumsum(np.bincount(depth))[:-1])[1:]):
            digest[members] = mix_bits(digest[members])
            above = parent[members]
            contribution = mix_bits(digest[members] + (self._number_among_siblings[members] << np.uint64(32)))
            np.add.at(digest, above, contribution)
        return digest

    @cached_property
    def work_digests(self) -> U64:
        """uint64[n]: equal where two nodes launch GPU work of the same names in the same order; 0 for none."""
        work = self.tree.work
        digest = np.zeros(len(self.tree), np.uint64)
        number = (np.arange(len(work.node)) - work.first[work.node]).astype(np.uint64)
        np.add.at(
            digest, work.node, mix_bits(self.work_label.astype(np.uint64) + (number << np.uint64(32)) + np.uint64(1))
        )
        return digest

    @cached_property
    def _children(self) -> tuple[I32, I64]:
        order = np.argsort(self.tree.parent, kind="stable").astype(np.int32)
        return order, np.searchsorted(self.tree.parent[order], np.arange(len(self.tree) + 1))

    @cached_property
    def _number_among_siblings(self) -> U64:
        order, first = self._children
        number = np.zeros(len(order), np.uint64)
        parent = self.tree.parent[order]
        inside = parent >= 0
        number[order[inside]] = (np.flatnonzero(inside) - first[parent[inside]]).astype(np.uint64)
        return number


def mix_bits(values: U64) -> U64:
    """Mix the bits of each value (the finalizer of splitmix64): uint64[k]."""
    values = values + np.uint64(0x9E3779B97F4A7C15)
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed: U64 = values ^ (values >> np.uint64(31))
    return mixed
