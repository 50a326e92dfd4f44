"""Tell calls of one name apart by the shapes of their inputs, where the names alone leave a choice.

Shapes are in the file, not in the columns: only those of ambiguous siblings are read, and only so many.
"""

from __future__ import annotations

import numpy as np

from torchprof_tui.analysis.compare.compared_tree import U64, ComparedTree, mix_bits
from torchprof_tui.trace.core.arrays import I32, I64
from torchprof_tui.trace.model.trace import Trace
from torchprof_tui.trace.query.read_entries import read_entries

MAX_SIBLINGS = 500
"""Children of one call whose shapes are read."""

MAX_READS = 40
"""Calls whose children's shapes are read: each read parses a few hundred KB of the file, a few milliseconds."""


class InputDigests:
    """The digests of subtrees of both sides, refined by input shapes where that decides the alignment."""

    def __init__(self, a: ComparedTree, b: ComparedTree, trace_a: Trace, trace_b: Trace) -> None:
        self._sides = ((a, trace_a), (b, trace_b))
        self._number_of_shape: dict[str, int] = {}
        self._reads_left = MAX_READS

    def refine(self, children_a: I32, children_b: I32) -> tuple[U64, U64]:
        """Return the digests of two lists of siblings: uint64[...] each."""
        (a, _), (b, _) = self._sides
        plain = a.digests[children_a], b.digests[children_b]
        if self._reads_left <= 0 or max(len(children_a), len(children_b)) > MAX_SIBLINGS:
            return plain
        if not _is_ambiguous(a.label[children_a], b.label[children_b]):
            return plain
        self._reads_left -= 1
        numbers = [
            self._number_shapes(trace, tree, children)
            for (tree, trace), children in zip(self._sides, (children_a, children_b), strict=True)
        ]
        if numbers[0] is None or numbers[1] is None:
            self._reads_left = 0
            return plain
        refined = [
            digest ^ mix_bits(number) for digest, number in zip(plain, numbers, strict=True) if number is not None
        ]
        # With another batch size no shape occurs on both sides: then they decide nothing.
        has_common = len(np.intersect1d(refined[0], refined[1])) > 0
        return (refined[0], refined[1]) if has_common else plain

    def _number_shapes(self, trace: Trace, tree: ComparedTree, nodes: I32) -> U64 | None:
        """Number the input shapes of each node's first call, 0 for none; None where no file can be read or has shapes.

        Shapes of captured ops are read from the capture.
        """
        numbers = np.zeros(len(nodes), np.uint64)
        source = tree.tree.source[nodes]
        try:
            for number in np.unique(source).tolist():
                members = np.flatnonzero(source == number)
                file = trace if number < 0 else tree.tree.sources[number]
                events = (tree.tree.event if number < 0 else tree.tree.source_event)[nodes[members]]
                for index, entry in read_entries(file, events):
                    args = entry.get("args")
                    dims = args.get("Input Dims") if isinstance(args, dict) else None
                    if dims:
                        known = self._number_of_shape.setdefault(str(dims), len(self._number_of_shape) + 1)
                        numbers[members[index]] = known
        except (OSError, LookupError):
            return None
        return numbers if numbers.any() else None


def _is_ambiguous(labels_a: I64, labels_b: I64) -> bool:
    """Test whether a label that both sides have occurs another number of times on either."""
    values_a, counts_a = np.unique(labels_a, return_counts=True)
    values_b, counts_b = np.unique(labels_b, return_counts=True)
    _, at_a, at_b = np.intersect1d(values_a, values_b, assume_unique=True, return_indices=True)
    return bool((counts_a[at_a] != counts_b[at_b]).any())
