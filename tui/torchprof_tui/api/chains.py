"""Find the chains of events for the Python API."""

from __future__ import annotations

import msgspec

from torchprof_tui.analysis.dispatch.chain import find_chain
from torchprof_tui.analysis.dispatch.source_line import SourceLineFinder
from torchprof_tui.analysis.dispatch.step_rows import compare_steps
from torchprof_tui.answers.chain import Chain, build_chain
from torchprof_tui.answers.chain_steps import build_chain_steps
from torchprof_tui.trace.core.errors import TraceError
from torchprof_tui.trace.model.trace import Trace


class ChainFinder:
    """Find the chains of a trace; what is needed for several is computed once."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._lines = SourceLineFinder(trace)

    def build_chain(self, event: int, all_steps: bool = False) -> Chain:
        """Build the chain through an event, with its rows over `all_steps`.

        Raises IndexError outside the trace, TraceError where it is in no step, OSError, LookupError.
        """
        found = find_chain(self._trace, event)
        line = self._lines.find_chain_line(found)
        if not all_steps:
            return build_chain(self._trace, found, line)
        rank = self._trace.rank_of_event(event)
        steps = compare_steps(rank.trace, event - rank.first)
        if steps is None:
            raise TraceError(f"{self._trace.label}: event {event} is in no step")
        chain = build_chain(self._trace, found, line)
        return msgspec.structs.replace(chain, steps=build_chain_steps(steps, rank.first))
