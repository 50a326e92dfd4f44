"""Explain a collective that ranks called with another operation, size or dtype: who is wrong, and what was meant.

Training repeats itself: what came next in earlier steps tells which of two calls is the right one, and whether the
wrong one is the next but one (skipped), or one that is never made there (another order).
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, Literal

from torchprof_hang.analysis.alignment import Group
from torchprof_hang.analysis.records import Operation
from torchprof_tui.trace.core.records import record

MAX_CONTEXT = 6  # earlier calls that are compared to find the same place in earlier steps
MAX_HISTORY = 4000  # calls of a rank that are looked at, the latest


Kind = Literal["skipped", "wrong order", "wrong size", "wrong dtype"]


@record
class Mismatch:
    """`right`, `wrong`: the calls; `kind`: what is wrong."""

    kind: Kind
    right: Operation
    wrong: Operation
    right_ranks: tuple[int, ...]
    wrong_ranks: tuple[int, ...]


def explain_mismatch(group: Group, number: int) -> Mismatch:
    """Explain a collective on which ranks disagree."""
    row = group.rows[number]
    camps: dict[Any, list[int]] = {}
    for rank in sorted(row):
        camps.setdefault(row[rank].key, []).append(rank)
    # the calls before, of the rank that has most of them
    best = min(row, key=lambda rank: (group.first[rank], rank))
    numbers = sorted(each for each in group.rows if each < number and best in group.rows[each])[-MAX_HISTORY:]
    history = [group.rows[each][best] for each in numbers]
    sites = [each.site for each in history]
    expected = _predict(sites)
    ranked = sorted(camps, key=lambda key: (-len(camps[key]), camps[key][0]))
    if expected is not None and history[expected].key in camps:
        ranked.sort(key=lambda key: key != history[expected].key)
        return _describe(group, number, sites, camps[ranked[0]], camps[ranked[1]])
    found = _describe(group, number, sites, camps[ranked[0]], camps[ranked[1]])
    if found.kind == "wrong order" and len(found.right_ranks) == len(found.wrong_ranks):
        other = _describe(group, number, sites, camps[ranked[1]], camps[ranked[0]])
        return other if other.kind == "skipped" else found  # a call that was left out explains it, too: more often
    return found


def _describe(group: Group, number: int, sites: list[Hashable], rights: list[int], wrongs: list[int]) -> Mismatch:
    row, following = group.rows[number], group.rows.get(number + 1, {})
    right, wrong = row[rights[0]], row[wrongs[0]]
    kind = _find_kind(right, wrong, following.get(rights[0]), following.get(wrongs[0]), sites)
    return Mismatch(kind, right, wrong, tuple(rights), tuple(wrongs))


def _find_kind(
    right: Operation,
    wrong: Operation,
    after_right: Operation | None,
    after_wrong: Operation | None,
    sites: list[Hashable],
) -> Kind:
    if after_right is not None and after_right.key == wrong.key:
        return "wrong order" if after_wrong is not None and after_wrong.key == right.key else "skipped"
    if right.name == wrong.name and right.place == wrong.place and wrong.site not in sites:
        return "wrong dtype" if right.sizes == wrong.sizes else "wrong size"
    if right.site in sites:
        # The calls between the last two of the right one: those that follow it in a step.
        begin = len(sites) - 1 - sites[::-1].index(right.site)
        return "skipped" if wrong.site in sites[begin + 1 :] else "wrong order"
    (file, _, line), (other, _, later) = right.place.rpartition(":"), wrong.place.rpartition(":")
    is_behind = file == other and int(line or 0) < int(later or 0)
    return "skipped" if is_behind and wrong.site not in sites else "wrong order"


def predict_next(operations: Sequence[Operation], before: Operation) -> Operation | None:
    """Predict what a rank calls in place of one of its operations, from its earlier steps; None: cannot be told."""
    at = next((index for index in range(len(operations) - 1, -1, -1) if operations[index] is before), len(operations))
    calls = operations[max(at - MAX_HISTORY, 0) : at]
    found = _predict([each.site for each in calls])
    return None if found is None else calls[found]


def _predict(history: list[Hashable]) -> int | None:
    """Find the index in the history that followed the longest part like its end; the latest one."""
    best, best_length = None, 0
    for index in range(len(history) - 1, 0, -1):
        length = 0
        while length < min(index, MAX_CONTEXT) and history[index - 1 - length] == history[-1 - length]:
            length += 1
        if length > best_length:
            best, best_length = index, length
        if best_length == MAX_CONTEXT:
            break
    return best


def find_own_change(group: Group, number: int, rank: int) -> tuple[Operation, Operation] | None:
    """Find whether a rank calls with another size or dtype than from the same line before: the call now, and before."""
    now = group.rows[number][rank]
    earlier = [group.rows[each][rank] for each in sorted(group.rows) if each < number and rank in group.rows[each]]
    before = [each for each in earlier if each.name == now.name and each.place == now.place]
    return (now, before[-1]) if before and now.key not in {each.key for each in before} else None
