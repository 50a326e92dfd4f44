"""Print a critical path as text."""

from __future__ import annotations

from torchprof_tui.analysis.critical_path.critical_path import CriticalPath
from torchprof_tui.analysis.kernel.names.distinct_labels import label_kernels
from torchprof_tui.analysis.rank_path.joined_path import list_rank_changes
from torchprof_tui.commands.common.tables import ConsoleTable, create_console
from torchprof_tui.trace.core.printable import clean
from torchprof_tui.trace.core.time_format import format_duration, format_time
from torchprof_tui.trace.model.event_kind import GPU_WORK
from torchprof_tui.trace.model.trace import Trace
from torchprof_tui.ui.common.number_format import format_share


def print_path(trace: Trace, path: CriticalPath, top: int) -> None:
    """Print the verdict of the replay, the path by kind, its longest events and the GPU work off it."""
    console = create_console()
    console.print(clean(trace.label))
    console.print(_describe_window(path))
    console.print(_describe_replay(path))
    for line in (*path.missing, *((f"to see more, {path.advice}",) if path.advice else ())):
        console.print(f"  {clean(line)}")
    console.print()
    console.print(_build_kinds(path))
    if path.rank_shares:
        console.print()
        console.print(_build_ranks(path))
        changes = list_rank_changes(path)
        if changes and top:
            console.print()
            console.print(_build_changes(trace, path, top))
    if top and path.find_longest(1):
        console.print()
        console.print(_build_events(trace, path, top))
    off_path = path.sum_off_path(trace, top)
    if off_path:
        console.print()
        table = ConsoleTable(
            "GPU work off the path: no gain in a faster one",
            ("time", "right"), ("count", "right"), ("slack", "right"), ("name", "left"),
        )  # fmt: skip
        labels = label_kernels([trace.names[each.name] for each in off_path])
        for each, label in zip(off_path, labels, strict=True):
            table.add_cells(format_duration(each.time), f"{each.count:,}", format_duration(each.slack), clean(label))
        console.print(table)


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
    if window.end > window.cpu_end:
        text += f", {format_duration(window.end - window.cpu_end)} of it after the CPU had finished"
    return text


def _describe_replay(path: CriticalPath) -> str:
    text = f"replay of the unchanged graph: {format_duration(path.replayed)}, error {path.replay_error * 100:.1f} %"
    if path.inferred:
        text += f"; {path.inferred:,} dependencies on the path inferred from order and times"
    return text if path.is_trusted else f"{text}: dependencies are missing"


def _build_kinds(path: CriticalPath) -> ConsoleTable:
    table = ConsoleTable("Critical path", ("share", "right"), ("time", "right"), ("pieces", "right"), ("kind", "left"))
    for each in path.shares:
        table.add_cells(format_share(each.share), format_duration(each.time), f"{each.count:,}", each.label)
    return table


def _build_ranks(path: CriticalPath) -> ConsoleTable:
    table = ConsoleTable("By rank", ("share", "right"), ("time", "right"), ("stretches", "right"), ("rank", "left"))
    for each in path.rank_shares:
        table.add_cells(format_share(each.share), format_duration(each.time), f"{each.count:,}", f"rank {each.rank}")
    return table


def _build_changes(trace: Trace, path: CriticalPath, top: int) -> ConsoleTable:
    changes = list_rank_changes(path)
    more = f", the first {top} of {len(changes):,}" if len(changes) > top else ""
    table = ConsoleTable(
        f"A rank goes on that waited for another{more}",
        ("at", "right"),
        ("waited", "left"),
        ("for", "left"),
        ("in", "left"),
    )
    for each in changes[:top]:
        names = label_kernels([trace.event(each.event).name]) if each.event >= 0 else [""]
        table.add_cells(format_duration(each.time), f"rank {each.after}", f"rank {each.before}", clean(names[0]))
    return table


def _build_events(trace: Trace, path: CriticalPath, top: int) -> ConsoleTable:
    table = ConsoleTable(
        "Longest on the path", ("on path", "right"), ("at", "right"), ("lane", "left"), ("name", "left")
    )
    longest = path.find_longest(top)
    events = [trace.event(each.event) for each in longest]
    work = [event.name for event in events if event.kind in GPU_WORK]
    labels = dict(zip(work, label_kernels(work), strict=True))
    for each, event in zip(longest, events, strict=True):
        name = clean(labels.get(event.name, event.name))
        lane = event.lane.label if event.lane.rank is None else f"rank {event.lane.rank} {event.lane.label}"
        table.add_cells(format_duration(each.time), format_duration(event.start), clean(lane), name)
    return table
