"""Match entries that begin an event with those that end it: B/E on threads, b/e and S/F of async events.

The rules, for one stack (a thread; an async id), by time, at equal times in file order:

1. An end closes the innermost open begin of its name. An end without a name closes the innermost open begin.
2. An end whose begin follows it in the file at the same time closes that begin.
3. An end that finds no begin of its name closes the innermost open begin, unless another end claims that begin:
   writers do rename (`begin("alpha") … end("beta")`), and nesting is what the format promises.
4. What is left over is returned: begins to be drawn open-ended, ends to be counted.

Begins that a pair jumps over (`A( B( )A`) stay open: their own end may still follow.
"""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from torchprof_tui.trace.core.arrays import I32, I64, Bool
from torchprof_tui.trace.core.records import record


@record
class Pairs:
    """Indexes into the arrays passed to `match_begin_end`: `begin[k]` and `end[k]` are a pair."""

    begin: I64
    end: I64
    unclosed: I64
    orphans: I64
    renamed: I64  # the ends matched by rule 3, which are in `end` too


def match_begin_end(stack: I64, time: I64, name: I32, is_begin: Bool, empty_name: int) -> Pairs:
    """Match begins and ends given in file order. `empty_name`: the number of the empty name, -1 if there is none.

    Stacks whose names match as brackets do are matched all at once, the others one by one; linear but for sorts.
    """
    if not len(stack):
        nothing = np.zeros(0, np.int64)
        return Pairs(nothing, nothing, nothing, nothing, nothing)
    order = np.lexsort((time, stack))
    stack, name, is_begin = stack[order], name[order], is_begin[order]
    changes = np.flatnonzero(np.concatenate([[True], stack[1:] != stack[:-1]]))
    sizes = np.diff(np.append(changes, len(stack)))
    group = np.repeat(np.arange(len(changes)), sizes)

    begin, end, is_irregular = _match_brackets(group, changes, name, is_begin, empty_name)
    closed = np.zeros(len(stack), np.bool_)
    closed[begin] = True
    unclosed = np.flatnonzero(~is_irregular[group] & is_begin & ~closed)
    orphans = np.zeros(0, np.int64)
    renamed = np.zeros(0, np.int64)
    if is_irregular.any():
        matcher = _StackMatcher(empty_name)
        columns = (name, is_begin, time[order])
        for irregular in np.flatnonzero(is_irregular).tolist():
            low, high = int(changes[irregular]), int(changes[irregular] + sizes[irregular])
            matcher.match_stack(low, *(column[low:high].tolist() for column in columns))
        begin, end = np.append(begin, matcher.begin).astype(np.int64), np.append(end, matcher.end).astype(np.int64)
        unclosed = np.append(unclosed, matcher.unclosed).astype(np.int64)
        orphans = np.array(matcher.orphans, np.int64)
        renamed = np.array(matcher.renamed, np.int64)
    return Pairs(order[begin], order[end], np.sort(order[unclosed]), np.sort(order[orphans]), np.sort(order[renamed]))


def _match_brackets(group: I64, changes: I64, name: I32, is_begin: Bool, empty_name: int) -> tuple[I64, I64, Bool]:
    """Match the stacks that are well-formed brackets: begins, their ends, and bool[stacks]: which are not.

    Tokens are sorted by stack, then time. `group` int64[n]: the stack of each; `changes` int64[stacks]: the first token
    of each stack.
    """
    depth_after = np.cumsum(np.where(is_begin, 1, -1))
    base = np.concatenate([[0], depth_after[changes[1:] - 1]])
    depth_after -= base[group]
    depth = np.where(is_begin, depth_after - 1, depth_after)  # equal for a begin and its end
    is_irregular = np.zeros(len(changes), np.bool_)
    is_irregular[group[depth < 0]] = True  # more ends than begins

    brackets = np.lexsort((depth, group))
    first, second = brackets[:-1], brackets[1:]
    is_pair = is_begin[first] & ~is_begin[second] & (group[first] == group[second]) & (depth[first] == depth[second])
    first, second = first[is_pair], second[is_pair]
    is_irregular[group[first[(name[first] != name[second]) & (name[second] != empty_name)]]] = True
    regular = ~is_irregular[group[first]]
    return first[regular], second[regular], is_irregular


class _StackMatcher:
    """Apply the rules token by token, for stacks that are not well-formed. Every begin is pushed and popped once."""

    def __init__(self, empty_name: int) -> None:
        self.empty_name = empty_name
        self.begin: list[int] = []
        self.end: list[int] = []
        self.unclosed: list[int] = []
        self.orphans: list[int] = []
        self.renamed: list[int] = []

    def match_stack(self, low: int, names: list[int], opens: list[bool], times: list[int]) -> None:
        """Match one stack. `low`: the index of its first token."""
        closer = self._match_by_name(names, opens, times)
        claimed = set(closer.values())
        stack: list[int] = []  # begins, innermost last; closed ones are dropped when they come to the top
        for index, is_begin in enumerate(opens):
            if is_begin:
                stack.append(index)
            elif index not in claimed:
                while stack and closer.get(stack[-1], index) < index:
                    stack.pop()
                if stack and stack[-1] not in closer:
                    closer[stack.pop()] = index
                    self.renamed.append(low + index)
                else:
                    self.orphans.append(low + index)
        for index, is_begin in enumerate(opens):
            if is_begin and index in closer:
                self.begin.append(low + index)
                self.end.append(low + closer[index])
            elif is_begin:
                self.unclosed.append(low + index)

    def _match_by_name(self, names: list[int], opens: list[bool], times: list[int]) -> dict[int, int]:
        """Apply rules 1 and 2: begin -> end."""
        closer: dict[int, int] = {}
        stack: list[int] = []
        by_name: defaultdict[int, list[int]] = defaultdict(list)
        early_ends: dict[int, list[int]] = {}  # ends at the current time whose begin may follow, by name
        now = None
        for index, (name, is_begin, time) in enumerate(zip(names, opens, times, strict=True)):
            if time != now:
                early_ends.clear()
                now = time
            if is_begin:
                if early_ends.get(name):
                    closer[index] = early_ends[name].pop(0)
                else:
                    stack.append(index)
                    by_name[name].append(index)
            elif name == self.empty_name:
                while stack and stack[-1] in closer:
                    stack.pop()
                if stack:
                    top = stack.pop()
                    closer[top] = index
                    by_name[names[top]].pop()
            elif by_name[name]:
                closer[by_name[name].pop()] = index
            else:
                early_ends.setdefault(name, []).append(index)
        return closer
