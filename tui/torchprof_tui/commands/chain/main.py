"""Print the dispatch chain through one event and the footprint of its kernel: `torchprof-tui chain`."""

from __future__ import annotations

import sys

import numpy as np

from torchprof_tui.analysis.dispatch.chain import find_chain
from torchprof_tui.analysis.dispatch.source_line import SourceLineFinder
from torchprof_tui.analysis.dispatch.step_rows import compare_steps
from torchprof_tui.analysis.graphs.captured_ops import find_captured_chain
from torchprof_tui.analysis.search.name_search import suggest_names
from torchprof_tui.answers.chain import ChainQuestion, build_chain
from torchprof_tui.commands.chain import ChainOptions
from torchprof_tui.commands.common.errors import UsageError
from torchprof_tui.commands.common.load import load_specs, select_rank, use_captures
from torchprof_tui.commands.common.output import import_text, print_answer
from torchprof_tui.trace.model.trace import Trace
from torchprof_tui.ui.common.name_display import clean, find_names_on_lanes, list_lane_names, truncate


def run(options: ChainOptions) -> int:
    trace, rank = select_rank(load_specs(options.trace, cache=not options.no_cache).trace, options.rank)
    trace = use_captures(trace, options.capture, not options.no_cache)

    event, of = find_event(trace, options.event, options.nth)
    found = find_chain(trace, event)
    line = SourceLineFinder(trace).find_chain_line(found)
    steps = compare_steps(trace, event) if options.all_steps else None
    if options.all_steps and steps is None:
        which = "this event is in no step" if trace.steps else "the trace has no steps"
        raise UsageError(f"--all-steps: {which} (steps are recorded with a schedule and prof.step())")
    if options.json:
        print_answer(build_chain(trace, found, line, ChainQuestion(options.event, options.nth, of), rank, steps))
        return 0

    if rank is not None and options.rank is None:
        print(f"{rank.label}; another: --rank N", file=sys.stderr)
    if steps is not None:
        import_text("chain").print_step_rows(trace, steps, options.nth, of)
    else:
        captured = find_captured_chain(trace, found.hops[-1].event)
        import_text("chain").print_chain(trace, found, line, options.nth, of, captured)
    return 0


def find_event(trace: Trace, name: str, nth: int) -> tuple[int, int]:
    """Find the `nth` event of a name in time; return (event, events of that name). Raises UsageError if absent.

    A name that no event has may be one that the lanes print ("mul bf16"): then all events that they print so count.
    """
    shown, lane_names = truncate(clean(name), 60), {} if name in trace.names else list_lane_names(trace)
    names = [trace.names.index(name)] if name in trace.names else find_names_on_lanes(lane_names, name)
    if not names:
        known = [*trace.names, *dict.fromkeys(form for forms in lane_names.values() for form in forms)]
        hint = ", ".join(f"'{truncate(clean(each), 60)}'" for each in suggest_names(known, name))
        raise UsageError(f"no event has the name '{shown}'" + (f"; did you mean {hint}?" if hint else ""))
    rows = np.flatnonzero(np.isin(trace.name, names))
    if nth >= len(rows):
        times = "once" if len(rows) == 1 else f"{len(rows):,} times"
        raise UsageError(f"--nth {nth}: '{shown}' occurs {times}; the first one is 0")
    rows = rows[np.argsort(trace.start[rows], kind="stable")]
    return int(rows[nth]), len(rows)
