"""Forward op ⇢ backward node and back: by `fwdbwd` flows, and where a trace has none, by sequence numbers."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tui.trace.arrays import I32, I64, Bool
from tui.trace.trace import Trace


class Autograd:
    """Answers for one trace; what must be looked up over all ops is computed once, when first asked for."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace

    def partners(self, path: list[int]) -> tuple[int, int]:
        """(the forward op whose backward this path runs in or -1, the backward node of an op of the path or -1).

        The innermost op that has a partner decides; flows are believed first, then sequence numbers.
        """
        links = self.trace.links
        rows = np.array(path, dtype=np.int32)
        forward = _partner(links.backward, links.forward, rows)
        if forward < 0:
            forward = self._by_sequence(rows, backward=True)
        if forward >= 0:
            return forward, -1
        backward = _partner(links.forward, links.backward, rows)
        return -1, backward if backward >= 0 else self._by_sequence(rows, backward=False)

    def _by_sequence(self, rows: I32, backward: bool) -> int:
        """The partner of the innermost of `rows` by sequence number; of backward nodes where `backward`.

        An op notes the number that the next node of the graph will get, so the ops around it note the same: the
        one that made the node is the last to begin. Around a backward node stands the engine's own call, which
        has its number too: the node is the last to begin there as well.
        """
        if self._sequences is None:
            return -1
        forwards, backwards = self._sequences
        mine, theirs = (backwards, forwards) if backward else (forwards, backwards)
        for row in rows[::-1].tolist():
            number = mine.number_of(row)
            # Numbers are a thread's own: where several threads used one, nobody can tell whose it is.
            if number is None or forwards.lanes_of(number) != 1 or (not backward and mine.last_of(number) != row):
                continue
            found = theirs.last_of(number)
            if found >= 0:
                return found
        return -1

    @cached_property
    def _sequences(self) -> tuple[_Numbered, _Numbered] | None:
        """(forward ops, backward nodes) by sequence number; None where the trace has none."""
        numbers = self.trace.args.get("sequence")
        threads = self.trace.args.get("forward_thread")
        if numbers is None or threads is None:
            return None
        threads_of: I64 = np.zeros(len(numbers.events), np.int64)
        if len(threads.events):
            place = np.minimum(np.searchsorted(threads.events, numbers.events), len(threads.events) - 1)
            known = threads.events[place] == numbers.events
            threads_of[known] = threads.values[place[known]]
        values: I64 = np.asarray(numbers.values, dtype=np.int64)
        backward: Bool = threads_of > 0
        valid: Bool = values >= 0
        forwards, backwards = (
            _Numbered.build(self.trace, numbers.events[which & valid], values[which & valid])
            for which in (~backward, backward)
        )
        return forwards, backwards


def _partner(ours: I32, theirs: I32, rows: I32) -> int:
    """The other end of a pair of the innermost row that has one: the first where it has several; else -1."""
    found = np.flatnonzero(np.isin(ours, rows))
    if not len(found):
        return -1
    place = {int(row): k for k, row in enumerate(rows)}
    return int(theirs[max(found.tolist(), key=lambda k: (place[int(ours[k])], -k))])


@dataclass(frozen=True, slots=True)
class _Numbered:
    """Ops by sequence number. `events` ascending with the `of_event` of each; `numbers` ascending with `last` op of
    each, in time, and the number of `lanes` that have it."""

    events: I32
    of_event: I64
    numbers: I64
    last: I32
    lanes: I64

    @staticmethod
    def build(trace: Trace, events: I32, numbers: I64) -> _Numbered:
        order = np.lexsort((events, trace.start[events], numbers))
        ordered = numbers[order]
        ends = np.flatnonzero(np.diff(ordered, append=ordered[-1:] + 1)) if len(ordered) else np.empty(0, np.int64)
        known: I64 = ordered[ends]
        pairs = np.unique(np.stack([numbers, trace.lane[events].astype(np.int64)]), axis=1)
        lanes = np.bincount(np.searchsorted(known, pairs[0]), minlength=len(known))
        return _Numbered(events, numbers, known, events[order][ends], lanes)

    def number_of(self, event: int) -> int | None:
        place = int(np.searchsorted(self.events, event))
        return int(self.of_event[place]) if place < len(self.events) and self.events[place] == event else None

    def _place(self, number: int) -> int:
        place = int(np.searchsorted(self.numbers, number))
        return place if place < len(self.numbers) and self.numbers[place] == number else -1

    def last_of(self, number: int) -> int:
        place = self._place(number)
        return int(self.last[place]) if place >= 0 else -1

    def lanes_of(self, number: int) -> int:
        place = self._place(number)
        return int(self.lanes[place]) if place >= 0 else 0
