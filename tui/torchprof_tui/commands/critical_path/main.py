"""Print what limits a step: `torchprof-tui critical-path`."""

from __future__ import annotations

import sys
from collections.abc import Iterator

from torchprof_tui.analysis.critical_path.critical_path import CriticalPath
from torchprof_tui.analysis.critical_path.step_window import WindowError
from torchprof_tui.analysis.kernel.names.distinct_labels import label_kernels
from torchprof_tui.analysis.rank_path.joined_path import find_path_of_rank, find_path_of_run, list_rank_changes
from torchprof_tui.answers.critical_path import build_critical_path
from torchprof_tui.commands.common.errors import UsageError
from torchprof_tui.commands.common.load import load_specs, select_rank
from torchprof_tui.commands.common.options import parse_time_range
from torchprof_tui.commands.common.output import print_answer
from torchprof_tui.commands.common.tables import ConsoleTable, create_console
from torchprof_tui.commands.critical_path import CriticalPathOptions
from torchprof_tui.program.terminal_progress import show_work
from torchprof_tui.trace.core.printable import clean
from torchprof_tui.trace.core.time_format import format_duration, format_time
from torchprof_tui.trace.model.event_kind import GPU_WORK
from torchprof_tui.trace.model.ranks import Rank
from torchprof_tui.trace.model.trace import Trace
from torchprof_tui.ui.common.number_format import format_share


def run(options: CriticalPathOptions) -> int:
    time_range = None if options.range is None else parse_time_range(options.range)
    loaded = load_specs(options.trace, cache=not options.no_cache).trace
    with show_work("searching the critical path"):
        trace, rank, path = find_path(loaded, options.step, time_range, options.rank)
    if options.json:
        print_answer(build_critical_path(trace, path, options.top, trace.rank if rank is None else rank.number))
        return 0
    if path.rank_shares:
        print(
            f"{len(path.rank_shares)} of {len(trace.all_ranks)} ranks on the path; one alone: --rank N", file=sys.stderr
        )
    print_path(trace, path, options.top)
    return 0


def find_path(
    trace: Trace, step: int | None, time_range: tuple[int, int] | None, number: int | None
) -> tuple[Trace, Rank | None, CriticalPath]:
    """Find a path: the trace whose rows it has, its rank, and the path; without a number that of all ranks.

    Raises UsageError.
    """
    ranks = trace.merged_ranks
    selected, rank = select_rank(trace, number) if number is not None or ranks is None else (trace, None)
    try:
        if rank is not None and ranks is not None:
            path = find_path_of_rank(ranks, ranks.all.index(rank), step, time_range)
        else:
            if ranks is not None and len(ranks) == 1:
                selected, rank = ranks.all[0].trace, ranks.all[0]
            path = find_path_of_run(trace, step, time_range)
    except WindowError as error:
        raise UsageError(f"{selected.label}: {error}") from error
    return selected, rank, path


def print_path(trace: Trace, path: CriticalPath, top: int) -> None:
    """Print the verdict of the replay, the path by kind, its longest events and the GPU work off it."""
    console = create_console()
    console.print(clean(trace.label))
    console.print(_describe_window(path))
    text = f"replay of the unchanged graph: {format_duration(path.replayed)}, error {path.replay_error * 100:.1f} %"
    if path.inferred:
        text += f"; {path.inferred:,} dependencies on the path inferred from order and times"
    console.print(text if path.is_trusted else f"{text}: dependencies are missing")
    for line in (*path.missing, *((f"to see more, {path.advice}",) if path.advice else ())):
        console.print(f"  {clean(line)}")
    for table in _build_tables(trace, path, top):
        if table.rows:
            console.print()
            console.print(table)


def _build_tables(trace: Trace, path: CriticalPath, top: int) -> Iterator[ConsoleTable]:
    kinds = ConsoleTable("Critical path", ">share", ">time", ">pieces", "kind")
    for share in path.shares:
        kinds.add_cells(format_share(share.share), format_duration(share.time), f"{share.count:,}", share.label)
    yield kinds
    ranks = ConsoleTable("By rank", ">share", ">time", ">stretches", "rank")
    for of in path.rank_shares:
        ranks.add_cells(format_share(of.share), format_duration(of.time), f"{of.count:,}", f"rank {of.rank}")
    yield ranks
    changes = list_rank_changes(path) if path.rank_shares else []
    more = f", the first {top} of {len(changes):,}" if len(changes) > top else ""
    waits = ConsoleTable(f"A rank goes on that waited for another{more}", ">at", "waited", "for", "in")
    for change in changes[:top]:
        names = label_kernels([trace.event(change.event).name]) if change.event >= 0 else [""]
        waits.add_cells(format_duration(change.time), f"rank {change.after}", f"rank {change.before}", clean(names[0]))
    yield waits
    table = ConsoleTable("Longest on the path", ">on path", ">at", "lane", "name")
    longest = path.find_longest(top)
    events = [trace.event(each.event) for each in longest]
    launched = [event.name for event in events if event.kind in GPU_WORK]
    labels = dict(zip(launched, label_kernels(launched), strict=True))
    for part, event in zip(longest, events, strict=True):
        name = clean(labels.get(event.name, event.name))
        lane = event.lane.label if event.lane.rank is None else f"rank {event.lane.rank} {event.lane.label}"
        table.add_cells(format_duration(part.time), format_duration(event.start), clean(lane), name)
    yield table
    off_path = ConsoleTable("GPU work off the path: no gain in a faster one", ">time", ">count", ">slack", "name")
    work = path.sum_off_path(trace, top)
    for each, label in zip(work, label_kernels([trace.names[each.name] for each in work]), strict=True):
        off_path.add_cells(format_duration(each.time), f"{each.count:,}", format_duration(each.slack), clean(label))
    yield off_path


def _describe_window(path: CriticalPath) -> str:
    window = path.window
    if window.is_range:
        step = 10 ** max(len(str(path.duration)) - 3, 0)  # three digits of the length tell both ends apart
        return f"{format_time(window.start, step)} to {format_time(window.end, step)}: {format_duration(path.duration)}"
    name = "the whole recording" if window.step is None else clean(window.step.name)
    text = f"{name}: {format_duration(path.duration)}"
    if path.rank_shares:
        first, last = int(path.segments.rank[0]), int(path.segments.rank[-1])
        text += f" on all ranks, from its start on rank {first} to its end on rank {last}"
    after = window.end - max(window.cpu_end, window.begin)
    if after > 0:
        text += f", {format_duration(after)} of it after the CPU had finished"
    if window.begin > window.start and not path.rank_shares:
        text += f"; the GPU did work of before for {format_duration(window.begin - window.start)} from its start on"
    return text
