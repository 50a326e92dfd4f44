"""Slow, obvious answers to what the trace core computes in bulk: one event at a time, from plain lists."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any, NamedTuple

Interval = tuple[int, int]  # start, duration


class Nested(NamedTuple):
    row: list[int]
    parent: list[int]
    self_duration: list[int]


def nest(events: Sequence[Interval], flat: bool = False) -> Nested:
    """One lane, sorted by start, longest first. See `trace/build/nesting.py` for the rule, nothing else for the way."""
    rows: list[int] = []
    parents: list[int] = []
    ends = [start + max(duration, 1) for start, duration in events]
    still_open: list[int] = []
    for k, (start, _) in enumerate(events):
        still_open = [j for j in still_open if ends[j] > start]
        parent = -1
        if not flat:
            for j in still_open:
                if ends[j] >= ends[k]:
                    parent = j  # the last one is the innermost
        held = {rows[j] for j in still_open}
        row = rows[parent] + 1 if parent >= 0 else 0
        while row in held:
            row += 1
        rows.append(row)
        parents.append(parent)
        still_open.append(k)
    return Nested(rows, parents, self_durations(events, parents))


def self_durations(events: Sequence[Interval], parents: Sequence[int]) -> list[int]:
    children: defaultdict[int, list[Interval]] = defaultdict(list)
    for (start, duration), parent in zip(events, parents, strict=True):
        children[parent].append((start, start + duration))
    return [duration - covered(children[k]) for k, (_, duration) in enumerate(events)]


def covered(intervals: Sequence[Interval]) -> int:
    """Length of the union of (start, end) intervals."""
    total = 0
    reached: int | None = None
    for start, end in sorted(intervals):
        if reached is None or start > reached:
            reached = start
        if end > reached:
            total += end - reached
            reached = end
    return total


class Token(NamedTuple):
    """A begin or an end. `name` "" is an end (or a begin) without one."""

    stack: int
    time: int
    name: str
    opens: bool


def pair(tokens: Sequence[Token]) -> tuple[dict[int, int], list[int], list[int]]:
    """Begin → end, open-ended begins, lost ends, by the rules in `trace/build/begin_end_pairs.py`."""
    pairs: dict[int, int] = {}
    for stack in {token.stack for token in tokens}:
        order = sorted((k for k, token in enumerate(tokens) if token.stack == stack), key=lambda k: tokens[k].time)
        _pair_stack(tokens, order, pairs)
    unclosed = [k for k, token in enumerate(tokens) if token.opens and k not in pairs]
    lost = [k for k, token in enumerate(tokens) if not token.opens and k not in pairs.values()]
    return pairs, unclosed, lost


def _pair_stack(tokens: Sequence[Token], order: list[int], pairs: dict[int, int]) -> None:
    open_begins: list[int] = []
    early: list[int] = []  # ends that found no begin so far
    for k in order:
        token = tokens[k]
        if token.opens:
            for end in early:
                if tokens[end].time == token.time and tokens[end].name == token.name:
                    pairs[k] = end
                    early.remove(end)
                    break
            else:
                open_begins.append(k)
            continue
        fitting = [b for b in open_begins if token.name in ("", tokens[b].name)]
        if fitting:
            pairs[fitting[-1]] = k
            open_begins.remove(fitting[-1])
        elif token.name:
            early.append(k)
    place = {k: n for n, k in enumerate(order)}
    for end in early:
        before = [k for k in order[: place[end]] if tokens[k].opens]
        still_open = [b for b in before if b not in pairs or place[pairs[b]] > place[end]]
        if still_open and still_open[-1] not in pairs:
            pairs[still_open[-1]] = end


def launches(entries: Sequence[dict[str, Any]]) -> tuple[int, int, int]:
    """(launches, GPU events, linked GPU events) of a file's entries, by a dict of correlations."""
    work = ("kernel", "gpu_memcpy", "gpu_memset", "memcpy", "memset")
    calls: set[int] = set()
    gpu: list[int] = []
    for entry in entries:
        category = str(entry.get("cat", "")).lower()
        if entry.get("ph") != "X" or "ts" not in entry:
            continue
        correlation = int((entry.get("args") or {}).get("correlation", -1))
        if category in work:
            gpu.append(correlation)
        elif category == "runtime" or category.endswith(("_runtime", "_driver")):
            calls.add(correlation)
    calls -= {0, -1}
    linked = [correlation for correlation in gpu if correlation in calls]
    return len(set(linked)), len(gpu), len(linked)
