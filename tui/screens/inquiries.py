"""What is asked about a trace and takes more than a frame to answer: here threads find it out, for the panels.

What answers is imported by the thread that asks: the first frame with lanes waits for none of it, because until then
its cores decode, and no key ever does.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from tui.analysis.intervals import Intervals
from tui.messages import ChainRead, Diagnosed, FactsRead, RangeRead, ScopeChecked, TraceChecked
from tui.trace.trace import Step, Trace

if TYPE_CHECKING:
    from tui.analysis.chain import Dispatch
    from tui.analysis.collectives import Arrivals
    from tui.analysis.patterns.asking import Asking
    from tui.analysis.patterns.scope import Scope


class Inquiries:
    """Each method answers with a message, and is called in a thread; only `whole` is asked on the screen's own."""

    def __init__(self, trace: Trace, busy: dict[int, Intervals]) -> None:
        self._trace, self._busy = trace, busy
        self._asked_of: dict[int, Asking] = {}  # by rank

    def facts(self, event: int) -> FactsRead:
        from tui.analysis.event_facts import facts

        if self._trace.ranks is not None:  # alike are the events of its own process
            rank = self._trace.ranks.of_event(event)
            return FactsRead(event, facts(rank.trace, event - rank.first))
        return FactsRead(event, facts(self._trace, event))

    def chain(self, event: int) -> ChainRead:
        from tui.analysis.kernel_facts import kernel_facts

        chain = self._dispatch.chain(event)
        return ChainRead(chain, kernel_facts(self._trace, chain.work[0].event if chain.work else -1))

    def statistics(self, start: int, end: int, steps: list[Step]) -> RangeRead:
        from tui.analysis.ranges import range_time

        return RangeRead(range_time(self._trace, start, end, self._busy, of_steps=steps))

    def warm(self, place: int) -> TraceChecked:
        """Look through the whole trace, of several ranks that at `place`: from then on any scope is answered soon."""
        checked, gaps, notes = self._asking(place).warm()
        return TraceChecked(checked, gaps, notes, place)

    def check(self, place: int, scope: Scope) -> ScopeChecked | None:
        """None where another scope has been asked about since."""
        checked = self._asking(place).check(scope)
        return None if checked is None else ScopeChecked(checked, place)

    def diagnose(self) -> Diagnosed:
        from tui.analysis.doctor.examine import examined

        return Diagnosed(examined(self._trace))

    def whole(self, place: int) -> Scope:
        """All of the trace, or of that rank. Cheap once one has been looked through: `warm`."""
        return self._asking(place).whole

    def _asking(self, place: int) -> Asking:
        from tui.analysis.patterns.asking import Asking

        if place not in self._asked_of:  # of two threads that come at once, both take the first one's
            self._asked_of.setdefault(place, Asking(self._trace, self._met, place))
        return self._asked_of[place]

    @cached_property
    def _met(self) -> Arrivals | None:
        from tui.analysis.collectives import arrivals

        return None if self._trace.ranks is None else arrivals(self._trace.ranks)

    @cached_property
    def _dispatch(self) -> Dispatch:
        from tui.analysis.chain import Dispatch

        return Dispatch(self._trace)
