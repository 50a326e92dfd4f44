"""List the rows of `diff --by class` and `--by cause`: the account grouped by class or by cause."""

from __future__ import annotations

from dataclasses import dataclass

from torchprof_tui.analysis.compare.account import GPU_CLASS, Account
from torchprof_tui.analysis.compare.matched_rows import By

CLASS, CAUSE = "class", "cause"


_MATCHINGS: dict[str, By] = {"op": "op", "module": "module", "kernel": "kernel"}


def choose_matching(by: str) -> By:
    """Choose by what events are matched for `--by`: ops, where the rows are those of the account."""
    return _MATCHINGS.get(by, "op")


@dataclass(frozen=True, slots=True)
class GroupRow:
    """A group of parts of the account: ns of one step on both sides."""

    label: str
    a: int
    b: int

    @property
    def delta(self) -> int:
        return self.b - self.a


def group_account(account: Account, by: str) -> list[GroupRow]:
    """Group the account: by class of GPU work (the rest is one row), or by cause (GPU work is one row)."""
    is_by_class = by == CLASS
    groups: dict[str, list[int]] = {}
    for part in account.parts:
        is_class = part.id.startswith(GPU_CLASS)
        label = part.label if is_class is is_by_class else "GPU computes" if is_class else "GPU does not compute"
        if not account.is_of_gpu:
            label = part.label
        sums = groups.setdefault(label, [0, 0])
        sums[0] += part.a
        sums[1] += part.b
    rows = [GroupRow(label, a, b) for label, (a, b) in groups.items()]
    return sorted(rows, key=lambda row: (-abs(row.delta), row.label))
