"""Find the chains of events for the Python API."""

from __future__ import annotations

from torchprof_tui.analysis.dispatch.chain import find_chain
from torchprof_tui.analysis.dispatch.source_line import SourceLineFinder
from torchprof_tui.answers.chain import Chain, build_chain
from torchprof_tui.trace.model.trace import Trace


class ChainFinder:
    """Find the chains of a trace; what is needed for several is computed once."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._lines = SourceLineFinder(trace)

    def build_chain(self, event: int) -> Chain:
        """Build the chain through an event. Raises IndexError outside the trace, OSError, LookupError."""
        found = find_chain(self._trace, event)
        return build_chain(self._trace, found, self._lines.find_chain_line(found))
