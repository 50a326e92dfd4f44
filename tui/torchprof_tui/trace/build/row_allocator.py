"""Find the lowest free row from a given row on, with a segment tree of minima.

A plain scan would be quadratic on a lane where every event crosses the one before.
"""

from __future__ import annotations

_FREE = -(2**63)


class RowAllocator:
    """Rows, each held until some time; calls must be in order of time."""

    __slots__ = ("_size", "_tree")

    def __init__(self) -> None:
        self._size = 64
        self._tree = [_FREE] * (2 * self._size)

    def hold_row(self, row: int, until: int) -> None:
        while row >= self._size:
            self._grow()
        tree, node = self._tree, self._size + row
        tree[node] = until
        while node > 1:
            node >>= 1
            left, right = tree[2 * node], tree[2 * node + 1]
            tree[node] = left if left < right else right

    def find_free_row(self, row: int, now: int) -> int:
        """Find the first row >= `row` that is not held at `now`."""
        if row >= self._size:
            return row
        tree, node = self._tree, self._size + row
        while tree[node] > now:
            while node & 1:  # a right child: go up until there is a sibling to the right
                node >>= 1
            if node == 0:
                return self._size
            node += 1
        while node < self._size:
            node *= 2
            if tree[node] > now:
                node += 1
        return node - self._size

    def _grow(self) -> None:
        leaves = self._tree[self._size :]
        self._size *= 2
        self._tree = [_FREE] * self._size + leaves + [_FREE] * (self._size - len(leaves))
        for node in range(self._size - 1, 0, -1):
            self._tree[node] = min(self._tree[2 * node], self._tree[2 * node + 1])
