"""Explain a collective that ranks called with another operation, size or dtype: who is wrong, and what was meant.

Training repeats itself: what came next in earlier steps tells which of two calls is the right one, and whether the
wrong one is the next but one (skipped), or one that is never made there (another order).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from typing import Any, Literal

from torchprof_hang.analysis.alignment import Group
from torchprof_hang.analysis.records import Operation
from torchprof_tui.trace.core.records import record

MAX_CONTEXT = 6  # earlier calls that are compared to find the same place in earlier steps
MAX_HISTORY = 4000  # calls of a rank that are looked at, the latest


@record
class Call:
    """An operation and the line that called it."""

    operation: Operation
    place: str

    @staticmethod
    def of(operation: Operation) -> Call:
        frame = operation.user_frame
        return Call(operation, "" if frame is None else frame.place)

    @property
    def label(self) -> str:
        return self.operation.label

    @property
    def shown(self) -> str:
        """The operation, its sizes and its line."""
        return f"{self.label} at {self.place}" if self.place else self.label

    @property
    def dtypes(self) -> str:
        return " ".join(self.operation.dtypes)

    @property
    def key(self) -> Hashable:
        return self.operation.group, self.operation.key, self.place


@record
class Mismatch:
    """`right`, `wrong`: the calls; `kind`: what is wrong."""

    kind: Literal["skipped", "order", "size", "dtype"]
    right: Call
    wrong: Call
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
    history = [Call.of(group.rows[each][best]) for each in numbers]
    expected = _predict([each.key for each in history], [each.key for each in history])
    ranked = sorted(camps, key=lambda key: (-len(camps[key]), camps[key][0]))
    if expected is not None and history[expected].operation.key in camps:
        ranked.sort(key=lambda key: key != history[expected].operation.key)
        return _describe(group, number, history, camps[ranked[0]], camps[ranked[1]])
    found = _describe(group, number, history, camps[ranked[0]], camps[ranked[1]])
    if found.kind == "order" and len(found.right_ranks) == len(found.wrong_ranks):
        other = _describe(group, number, history, camps[ranked[1]], camps[ranked[0]])
        return other if other.kind == "skipped" else found  # a call that was left out explains it, too: more often
    return found


def _describe(group: Group, number: int, history: list[Call], rights: list[int], wrongs: list[int]) -> Mismatch:
    row = group.rows[number]
    right, wrong = Call.of(row[rights[0]]), Call.of(row[wrongs[0]])
    kind = _find_kind(group, number, right, wrong, history, rights[0], wrongs[0])
    return Mismatch(kind, right, wrong, tuple(rights), tuple(wrongs))


def _find_kind(
    group: Group, number: int, right: Call, wrong: Call, history: list[Call], right_rank: int, wrong_rank: int
) -> Literal["skipped", "order", "size", "dtype"]:
    mine, theirs = right.operation, wrong.operation
    following = [group.rows.get(number + 1, {}).get(rank) for rank in (right_rank, wrong_rank)]
    if following[0] is not None and following[0].key == theirs.key:
        return "order" if following[1] is not None and following[1].key == mine.key else "skipped"
    if mine.name == theirs.name and right.place == wrong.place and wrong.key not in {each.key for each in history}:
        return "dtype" if mine.sizes == theirs.sizes else "size"
    keys = [each.key for each in history]
    if right.key in keys:
        # The calls between the last two of the right one: those that follow it in a step.
        begin = len(keys) - 1 - keys[::-1].index(right.key)
        return "skipped" if wrong.key in keys[begin + 1 :] else "order"
    is_behind = _find_line(right) < _find_line(wrong) and right.place.partition(":")[0] == wrong.place.partition(":")[0]
    return "skipped" if is_behind and not keys.count(wrong.key) else "order"


def _find_line(call: Call) -> int:
    frame = call.operation.user_frame
    return 0 if frame is None else frame.line


def predict_next(operations: Sequence[Operation], before: Operation) -> Call | None:
    """Predict what a rank calls in place of one of its operations, from its earlier steps; None: cannot be told."""
    at = next((index for index in range(len(operations) - 1, -1, -1) if operations[index] is before), len(operations))
    calls = [Call.of(each) for each in operations[max(at - MAX_HISTORY, 0) : at]]
    keys = [each.key for each in calls]
    found = _predict(keys, keys)
    return None if found is None else calls[found]


def _predict(history: list[Hashable], context: list[Hashable]) -> int | None:
    """Find the index in the history that followed the longest part like the end of the context; the latest one."""
    best, best_length = None, 0
    for index in range(len(history) - 1, 0, -1):
        length = 0
        while length < min(index, MAX_CONTEXT) and history[index - 1 - length] == context[len(context) - 1 - length]:
            length += 1
        if length > best_length:
            best, best_length = index, length
        if best_length == MAX_CONTEXT:
            break
    return best


def find_own_change(group: Group, number: int, rank: int) -> tuple[Call, Call] | None:
    """Find whether a rank calls with another size or dtype than from the same line before: the call now, and before."""
    now = Call.of(group.rows[number][rank])
    before = [
        call
        for each in sorted(group.rows)
        if each < number and rank in group.rows[each]
        for call in [Call.of(group.rows[each][rank])]
        if call.place == now.place and call.operation.name == now.operation.name
    ]
    keys = Counter(each.operation.key for each in before)
    if not before or now.operation.key in keys:
        return None
    return now, before[-1]
