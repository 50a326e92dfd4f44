"""Read what is slow to read about a selected event; called on worker threads, which import this module."""

from __future__ import annotations

from dataclasses import dataclass, replace

from torchprof_tui.analysis.collectives.communication_waiting import describe_wait
from torchprof_tui.analysis.dispatch.chain import Chain, ChainFinder
from torchprof_tui.analysis.dispatch.event_context import EventContext, read_event_context
from torchprof_tui.analysis.dispatch.source_line import SourceLine, SourceLineFinder
from torchprof_tui.analysis.dispatch.step_rows import StepRows, compare_steps
from torchprof_tui.analysis.graphs.captured_ops import CapturedChain, find_captured_chain, is_ready
from torchprof_tui.analysis.kernel.kernel_summary import KernelSummary, summarize_kernel
from torchprof_tui.trace.model.event_kind import GPU_WORK, Kind
from torchprof_tui.trace.model.trace import Trace
from torchprof_tui.ui.common.debounced_worker import WorkResult


@dataclass
class ChainRead(WorkResult):
    """A worker has read the dispatch chain through an event, the summary of the kernel at its end, and its line.

    `captured`: of a replayed kernel the chain in its capture, or the reason why there is none; None for all others.
    """

    chain: Chain
    kernel: KernelSummary | None
    line: SourceLine | None = None
    captured: CapturedChain | str | None = None


def read_step_rows(trace: Trace, event: int) -> StepRows | None:
    """Compare an event and its chain over the steps of its rank; None where it is in no step."""
    rank = trace.rank_of_event(event)
    return compare_steps(rank.trace, event - rank.first)


def read_event(trace: Trace, event: int) -> tuple[EventContext, CapturedChain | str | None]:
    """Read the args of an event, its position among its siblings and the events of the same name in its rank.

    With the captured op of a replayed kernel, see `ChainRead`; it is left out while the captures have not been opened:
    that takes seconds.
    """
    rank = trace.rank_of_event(event)
    context = read_event_context(rank.trace, event - rank.first)
    return context, _find_captured(trace, event) if is_ready(rank.trace) else None


def read_chain(trace: Trace, chain_finder: ChainFinder, line_finder: SourceLineFinder, event: int) -> ChainRead:
    """Find the dispatch chain through an event and its line, and summarize the kernel at its end.

    The line of a replayed kernel is that of its capture.
    """
    chain = chain_finder.find_chain(event)
    work = chain.work[0].event if chain.work else -1
    line = line_finder.find_chain_line(chain)
    captured = _find_captured(trace, work) if work >= 0 else None
    if isinstance(captured, CapturedChain) and captured.line is not None and Kind(int(trace.kind[event])) in GPU_WORK:
        line = captured.line
    kernel = summarize_kernel(trace, work)
    if kernel is not None and trace.kind[work] == Kind.COLLECTIVE:
        kernel = replace(kernel, wait=describe_wait(trace, work))
    return ChainRead(chain, kernel, line, captured)


def _find_captured(trace: Trace, event: int) -> CapturedChain | str | None:
    rank = trace.rank_of_event(event)
    return find_captured_chain(rank.trace, event - rank.first)
