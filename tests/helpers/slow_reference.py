"""Slow references for what the trace core computes in bulk: one event at a time, from plain lists."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from decimal import Decimal
from typing import Any, NamedTuple

Interval = tuple[int, int]  # start, duration


class Nested(NamedTuple):
    row: list[int]
    parent: list[int]
    self_duration: list[int]


def nest(events: Sequence[Interval], flat: bool = False) -> Nested:
    """Nest the events of one lane, sorted by start, longest first, by the rules of `trace/build/nesting.py`."""
    rows: list[int] = []
    parents: list[int] = []
    ends = [start + max(duration, 1) for start, duration in events]
    open_events: list[int] = []
    for k, (start, _) in enumerate(events):
        open_events = [j for j in open_events if ends[j] > start]
        parent = -1
        if not flat:
            for j in open_events:
                if ends[j] >= ends[k]:
                    parent = j  # the last one is the innermost
        used_rows = {rows[j] for j in open_events}
        row = rows[parent] + 1 if parent >= 0 else 0
        while row in used_rows:
            row += 1
        rows.append(row)
        parents.append(parent)
        open_events.append(k)
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
    """A begin or an end. `name`: "" if it has none."""

    stack: int
    time: int
    name: str
    opens: bool


def pair(tokens: Sequence[Token]) -> tuple[dict[int, int], list[int], list[int]]:
    """Pair begins with ends, by the rules of `trace/build/event_phases.py`.

    Returns the end of each paired begin, the unclosed begins, and the ends without a begin.
    """
    pairs: dict[int, int] = {}
    for stack in {token.stack for token in tokens}:
        order = sorted((k for k, token in enumerate(tokens) if token.stack == stack), key=lambda k: tokens[k].time)
        _pair_stack(tokens, order, pairs)
    unclosed = [k for k, token in enumerate(tokens) if token.opens and k not in pairs]
    unmatched = [k for k, token in enumerate(tokens) if not token.opens and k not in pairs.values()]
    return pairs, unclosed, unmatched


def _pair_stack(tokens: Sequence[Token], order: list[int], pairs: dict[int, int]) -> None:
    open_begins: list[int] = []
    early: list[int] = []  # ends without a begin so far
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
        matching = [b for b in open_begins if token.name in ("", tokens[b].name)]
        if matching:
            pairs[matching[-1]] = k
            open_begins.remove(matching[-1])
        elif token.name:
            early.append(k)
    position = {k: n for n, k in enumerate(order)}
    for end in early:
        begins = [k for k in order[: position[end]] if tokens[k].opens]
        open_begins = [b for b in begins if b not in pairs or position[pairs[b]] > position[end]]
        if open_begins and open_begins[-1] not in pairs:
            pairs[open_begins[-1]] = end


GPU_CATEGORIES = frozenset(("kernel", "gpu_memcpy", "gpu_memset", "memcpy", "memset", "mtia_ccp_events"))
WAITS = frozenset(("event_wait",))
"""Names of entries on an MTIA's lanes that are waits, not work."""


def is_gpu_work(entry: dict[str, Any]) -> bool:
    """Whether an entry with a category is work of a GPU or of another accelerator."""
    return str(entry.get("cat", "")).lower() in GPU_CATEGORIES and entry.get("name") not in WAITS


def count_launches(entries: Sequence[dict[str, Any]]) -> tuple[int, int, int]:
    """Count (launches, GPU events, linked GPU events) of a file's entries, by a dict of correlations.

    Ascend's profiler writes the work of its NPU without categories, under a process named "Ascend Hardware", and
    joins it to its launches by flows instead of correlations.
    """
    calls: set[int] = set()
    gpu_events: list[int] = []
    npu_pids = {
        str(entry["pid"])
        for entry in entries
        if entry.get("ph") == "M" and entry["name"] == "process_name" and entry["args"]["name"] == "Ascend Hardware"
    }
    for entry in entries:
        if entry.get("ph") != "X" or "ts" not in entry:
            continue
        category = str(entry.get("cat", "")).lower()
        correlation = int((entry.get("args") or {}).get("correlation", -1))
        if is_gpu_work(entry) or (not category and str(entry.get("pid")) in npu_pids):
            gpu_events.append(correlation)
        elif category == "runtime" or category.endswith(("_runtime", "_driver")):
            calls.add(correlation)
    calls -= {0, -1}
    linked = [correlation for correlation in gpu_events if correlation in calls]
    by_flow = join_npu_work(entries)
    return len(set(linked)) + len(set(by_flow.values())), len(gpu_events), len(linked) + len(by_flow)


def join_npu_work(entries: Sequence[dict[str, Any]]) -> dict[int, int]:
    """Join the work of an Ascend NPU with what launched it: index of the work's entry -> index of the op's.

    An arrow `async_npu` ends where the work starts, and begins within the op: the last to start that has not ended.
    """
    begins: dict[Any, dict[str, Any]] = {}
    for entry in entries:
        if entry.get("ph") == "s" and entry.get("cat") == "async_npu":
            begins.setdefault(entry["id"], entry)
    joined: dict[int, int] = {}
    for arrow in entries:
        if arrow.get("ph") == "f" and arrow.get("cat") == "async_npu" and arrow["id"] in begins:
            work = [k for k, entry in enumerate(entries) if _begins_with(entry, arrow)]
            ops = [k for k, entry in enumerate(entries) if _encloses(entry, begins[arrow["id"]])]
            if work and ops:
                joined[work[-1]] = max(ops, key=lambda k: (Decimal(entries[k]["ts"]), -Decimal(entries[k]["dur"])))
    return joined


def _begins_with(entry: dict[str, Any], arrow: dict[str, Any]) -> bool:
    return entry.get("ph") == "X" and all(entry[key] == arrow[key] for key in ("pid", "tid", "ts"))


def _encloses(entry: dict[str, Any], arrow: dict[str, Any]) -> bool:
    if entry.get("ph") != "X" or entry["pid"] != arrow["pid"] or entry["tid"] != arrow["tid"]:
        return False
    start = Decimal(entry["ts"])
    return start <= Decimal(arrow["ts"]) <= start + Decimal(entry["dur"])
