"""Begins and ends into pairs: B/E on threads, b/e and S/F of async events.

The rules, on one stack (a thread; an async id), by time, at equal times as the file has them:

1. An end closes the innermost open begin of its name. An end without a name closes the innermost open begin.
2. An end whose begin comes after it in the file but at the same time waits for it.
3. An end that finds no begin of its name closes the innermost open begin if no other end claims that one:
   writers do rename (`begin("alpha") … end("beta")`), and nesting is what the format promises.
4. What is left over is returned: begins to be drawn open-ended, ends to be counted.

Begins that a pair jumps over (`A( B( )A`) stay open: their own end may still come.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import numpy as np

from torchprof_tui.trace.core.arrays import I32, I64, Bool


@dataclass(frozen=True, slots=True)
class Pairs:
    """Places in the arrays that were given: `begin[k]` and `end[k]` belong together."""

    begin: I64
    end: I64
    unclosed: I64
    orphans: I64
    renamed: I64  # the ends of rule 3, which are in `end` too


def match_begin_end(stack: I64, time: I64, name: I32, is_begin: Bool, empty_name: int) -> Pairs:
    """Pair k begins and ends given in file order. `unnamed`: the number of the empty name, -1 if there is none.

    Stacks whose names match as brackets do are settled all at once, the others one by one; linear but for sorts.
    """
    if not len(stack):
        nothing = np.zeros(0, np.int64)
        return Pairs(nothing, nothing, nothing, nothing, nothing)
    order = np.lexsort((time, stack))
    stack, name, is_begin = stack[order], name[order], is_begin[order]
    changes = np.flatnonzero(np.concatenate([[True], stack[1:] != stack[:-1]]))
    sizes = np.diff(np.append(changes, len(stack)))
    which = np.repeat(np.arange(len(changes)), sizes)

    after = np.cumsum(np.where(is_begin, 1, -1))
    base = np.concatenate([[0], after[changes[1:] - 1]])
    after -= base[which]
    depth = np.where(is_begin, after - 1, after)  # a begin and its end have the same
    odd = np.zeros(len(changes), np.bool_)
    odd[which[depth < 0]] = True  # an end too many

    brackets = np.lexsort((depth, which))
    first, second = brackets[:-1], brackets[1:]
    meet = is_begin[first] & ~is_begin[second] & (which[first] == which[second]) & (depth[first] == depth[second])
    first, second = first[meet], second[meet]
    odd[which[first[(name[first] != name[second]) & (name[second] != empty_name)]]] = True

    fine = ~odd[which[first]]
    begin, end = first[fine], second[fine]
    closed = np.zeros(len(stack), np.bool_)
    closed[begin] = True
    clean = ~odd[which]
    unclosed = np.flatnonzero(clean & is_begin & ~closed)
    orphans = np.zeros(0, np.int64)
    renamed = np.zeros(0, np.int64)
    if odd.any():
        slow = _StackMatcher(empty_name)
        columns = (name, is_begin, time[order])
        for group in np.flatnonzero(odd).tolist():
            low, high = int(changes[group]), int(changes[group] + sizes[group])
            slow.match_stack(low, *(column[low:high].tolist() for column in columns))
        begin, end = np.append(begin, slow.begin).astype(np.int64), np.append(end, slow.end).astype(np.int64)
        unclosed = np.append(unclosed, slow.unclosed).astype(np.int64)
        orphans = np.array(slow.orphans, np.int64)
        renamed = np.array(slow.renamed, np.int64)
    return Pairs(order[begin], order[end], np.sort(order[unclosed]), np.sort(order[orphans]), np.sort(order[renamed]))


class _StackMatcher:
    """The rules one by one, for the stacks that are no plain brackets. Every begin is pushed and popped once."""

    def __init__(self, unnamed: int) -> None:
        self.empty_name = unnamed
        self.begin: list[int] = []
        self.end: list[int] = []
        self.unclosed: list[int] = []
        self.orphans: list[int] = []
        self.renamed: list[int] = []

    def match_stack(self, low: int, names: list[int], opens: list[bool], times: list[int]) -> None:
        closer = self._match_by_name(names, opens, times)
        claimed = set(closer.values())
        stack: list[int] = []  # begins, innermost last; what has been closed is dropped when it comes to the top
        for place, is_begin in enumerate(opens):
            if is_begin:
                stack.append(place)
            elif place not in claimed:
                while stack and closer.get(stack[-1], place) < place:
                    stack.pop()
                if stack and stack[-1] not in closer:
                    closer[stack.pop()] = place
                    self.renamed.append(low + place)
                else:
                    self.orphans.append(low + place)
        for place, is_begin in enumerate(opens):
            if is_begin and place in closer:
                self.begin.append(low + place)
                self.end.append(low + closer[place])
            elif is_begin:
                self.unclosed.append(low + place)

    def _match_by_name(self, names: list[int], opens: list[bool], times: list[int]) -> dict[int, int]:
        """Rules 1 and 2: begin -> end."""
        closer: dict[int, int] = {}
        stack: list[int] = []
        by_name: defaultdict[int, list[int]] = defaultdict(list)
        waiting: dict[int, list[int]] = {}  # ends of this moment, by name
        now = None
        for place, (name, is_begin, time) in enumerate(zip(names, opens, times, strict=True)):
            if time != now:
                waiting.clear()
                now = time
            if is_begin:
                if waiting.get(name):
                    closer[place] = waiting[name].pop(0)
                else:
                    stack.append(place)
                    by_name[name].append(place)
            elif name == self.empty_name:
                while stack and stack[-1] in closer:
                    stack.pop()
                if stack:
                    top = stack.pop()
                    closer[top] = place
                    by_name[names[top]].pop()
            elif by_name[name]:
                closer[by_name[name].pop()] = place
            else:
                waiting.setdefault(name, []).append(place)
        return closer
