"""Write or print a trace in a format of `torchprof-tui export`, and fold the stacks that its options ask for."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from torchprof_tui.analysis.completeness.private_metadata import PrivateValue
from torchprof_tui.analysis.export.arrow_events import write_arrow, write_parquet
from torchprof_tui.analysis.export.chrome_file import write_chrome_file
from torchprof_tui.analysis.export.event_columns import EventColumns, write_csv
from torchprof_tui.analysis.flame.flame_export import format_speedscope, iterate_folded_lines
from torchprof_tui.analysis.flame.flame_tree import FlameTree, FoldBy, FoldTime, NoFramesError
from torchprof_tui.analysis.flame.fold import fold_trace
from torchprof_tui.analysis.table.event_scope import range_mask, step_mask
from torchprof_tui.commands.common.errors import UsageError
from torchprof_tui.commands.common.options import parse_time_range
from torchprof_tui.commands.export.options import ExportOptions
from torchprof_tui.trace.core.arrays import Bool
from torchprof_tui.trace.core.atomic_file import write_atomically
from torchprof_tui.trace.core.printable import clean
from torchprof_tui.trace.model.trace import Trace

ROW_WRITERS = {"parquet": write_parquet, "arrow": write_arrow, "csv": write_csv}

OTHER_FRAMES = {FoldBy.STACK: " (or: --by op)", FoldBy.MODULE: " (or: --by op)", FoldBy.OP: ""}


@dataclass(frozen=True, slots=True)
class ExportResult:
    """What was written: `count` things called `unit` ("events", "entries", "stacks").

    `left_out`: what the file does not hold, for stderr. `private_values`: environment variables and secrets that it
    does not hold. `kept_keys`: metadata in it of which only a search says that it holds none.
    """

    count: int
    unit: str
    left_out: tuple[str, ...] = ()
    private_values: tuple[PrivateValue, ...] = ()
    kept_keys: tuple[str, ...] = ()


def write_trace(trace: Trace, name: str, out: Path, options: ExportOptions) -> ExportResult:
    """Write a trace, of one rank or merged, in the format of a name. Raises OutputError, TraceError, UsageError,
    MissingExtraError, OSError, LookupError."""
    if name in ROW_WRITERS:
        columns = EventColumns(trace)
        ROW_WRITERS[name](columns, out)
        return ExportResult(len(columns), "events")
    if name == "chrome":
        written = write_chrome_file(trace, out, options.keep_metadata)
        return ExportResult(written.entries, "entries", written.skipped_keys, written.private_values, written.kept_keys)
    text, count = format_stacks(trace, name, options)
    write_atomically(out, text)
    return ExportResult(count, "stacks")


def format_stacks(trace: Trace, name: str, options: ExportOptions) -> tuple[str, int]:
    """Format folded stacks, or the document of speedscope; also return how many there are. Raises UsageError."""
    tree = fold_chosen(trace, options)
    if name == "speedscope":
        return format_speedscope(tree, clean(Path(trace.label).name)), int((tree.value_ns > 0).sum())
    lines = [*iterate_folded_lines(tree)]
    return "".join(lines), len(lines)


def fold_chosen(trace: Trace, options: ExportOptions) -> FlameTree:
    """Fold a trace as the options say; without --time by GPU time where there is GPU work. Raises UsageError."""
    fold_by = FoldBy(options.by or FoldBy.STACK.value)
    default = FoldTime.GPU if trace.links.gpu_events else FoldTime.CPU
    time = FoldTime(options.time) if options.time else default
    try:
        tree = fold_trace(trace, fold_by, time, _select_events(trace, options))
    except NoFramesError as error:
        raise UsageError(f"{error}{OTHER_FRAMES[fold_by]}") from error
    if not tree.total:
        raise UsageError(f"no {time.value.upper()} time in this range")
    return tree


def _select_events(trace: Trace, options: ExportOptions) -> Bool | None:
    """Select the events of --range or --step, None for all. Raises UsageError."""
    if options.range is not None:
        return range_mask(trace, *parse_time_range(options.range))
    if options.step is None:
        return None
    if trace.merged_ranks is not None:
        raise UsageError("--step needs --rank: each rank has steps of its own")
    for step in trace.steps:
        if step.number == options.step:
            return step_mask(trace, step)
    known = f"it has {trace.steps[0].number} to {trace.steps[-1].number}" if trace.steps else "it has none"
    raise UsageError(f"no step {options.step} in this trace ({known})")
