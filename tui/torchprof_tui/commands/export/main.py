"""Write a trace for other programs: `torchprof-tui export`."""

from __future__ import annotations

import sys
from pathlib import Path

from torchprof_tui.analysis.export.chrome_file import write_chrome_file
from torchprof_tui.analysis.export.event_columns import (
    EventColumns,
    require_arrow,
    write_arrow,
    write_csv,
    write_parquet,
)
from torchprof_tui.analysis.flame.flame_tree import (
    FlameTree,
    FoldBy,
    FoldTime,
    NoFramesError,
    format_speedscope,
    iterate_folded_lines,
)
from torchprof_tui.analysis.flame.fold import fold_trace
from torchprof_tui.analysis.privacy.private_metadata import PrivateValue
from torchprof_tui.analysis.slicing.slice_writer import check_not_source
from torchprof_tui.analysis.table.event_scope import range_mask, step_mask
from torchprof_tui.analysis.table.table_sheet import find_step
from torchprof_tui.answers.files import Export
from torchprof_tui.answers.losses import build_losses
from torchprof_tui.answers.pictures.roofline import draw_roofline
from torchprof_tui.answers.roofline import Roofline, build_roofline
from torchprof_tui.commands.common.errors import UsageError
from torchprof_tui.commands.common.load import load_specs, report_private_values, select_rank
from torchprof_tui.commands.common.options import parse_time_range
from torchprof_tui.commands.common.output import print_answer
from torchprof_tui.commands.common.picture_file import check_picture, write_picture
from torchprof_tui.commands.export import ExportOptions, choose_format
from torchprof_tui.program.terminal_progress import show_work
from torchprof_tui.trace.core.arrays import Bool
from torchprof_tui.trace.core.atomic_file import OutputError, check_target, write_atomically
from torchprof_tui.trace.core.printable import clean
from torchprof_tui.trace.core.records import record
from torchprof_tui.trace.model.trace import Trace
from torchprof_tui.ui.common.number_format import format_file_size
from torchprof_tui.ui.table.roofline_text import format_roofline

STACKS = ("folded", "speedscope")
FLAME_OPTIONS = ("by", "time", "range", "step", "limit")


def run(options: ExportOptions) -> int:
    target = None if options.output == "-" else options.output
    name = choose_format(options.format, None if target is None else Path(target))
    if name not in STACKS and (
        flag := next((flag for flag in FLAME_OPTIONS if getattr(options, flag) is not None), "")
    ):
        raise UsageError(f"--{flag} works only with --folded and --speedscope")
    if target is None:
        if options.json:
            raise UsageError("--json describes the file that was written: it needs -o OUT")
        trace = _load(options)
        if name == "roofline":
            print("\n".join(format_roofline(find_roofline(trace, options))))
        else:
            print(format_stacks(trace, name, options)[0], end="")
        return 0
    out = Path(target)
    if name in ("parquet", "arrow"):
        require_arrow()
    if name == "roofline":
        check_picture(target)
    try:
        check_target(out)  # before a large trace is read
        trace = _load(options)
        check_not_source(trace, out)
        with show_work(f"writing {out.name}"):
            result = write_trace(trace, name, out, options)
    except OutputError as error:
        raise UsageError(f"-o: {error}") from error
    if result.left_out:
        print(clean(f"torchprof-tui: left out: {', '.join(result.left_out)}"), file=sys.stderr)
    report_private_values(result.private_values, result.kept_keys)
    size = out.stat().st_size
    if options.json:
        answer = Export(
            trace=target,
            format=name,
            count=result.count,
            unit=result.unit,
            bytes=size,
            left_out=[*result.left_out, *(value.path for value in result.private_values)],
            partial=build_losses(trace),
        )
        print_answer(answer)
        return 0
    print(clean(f"wrote {out}: {result.count:,} {result.unit}, {format_file_size(size)}"))
    return 0


def _load(options: ExportOptions) -> Trace:
    """Load what the user named: all ranks of a run, or one."""
    trace = load_specs(options.trace, cache=not options.no_cache).trace
    if options.rank is None:
        return trace
    trace, rank = select_rank(trace, options.rank)
    return trace if rank is None else rank.numbered_trace


ROW_WRITERS = {"parquet": write_parquet, "arrow": write_arrow, "csv": write_csv}

OTHER_FRAMES = {FoldBy.STACK: " (or: --by op)", FoldBy.MODULE: " (or: --by op)", FoldBy.OP: ""}


@record
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
    if name == "roofline":
        roofline = find_roofline(trace, options)
        write_picture(out, draw_roofline(roofline))
        return ExportResult(len(roofline.groups), "groups of like launches")
    if name == "chrome":
        written = write_chrome_file(trace, out, options.keep_metadata)
        return ExportResult(written.entries, "entries", written.skipped_keys, written.private_values, written.kept_keys)
    text, count = format_stacks(trace, name, options)
    write_atomically(out, text)
    return ExportResult(count, "stacks")


def find_roofline(trace: Trace, options: ExportOptions) -> Roofline:
    """Find the roofline of one rank. Raises UsageError."""
    roofline = build_roofline(select_rank(trace, options.rank)[0])
    if roofline.cannot_tell:
        raise UsageError(f"{clean(trace.label)}: no roofline: {roofline.cannot_tell}")
    return roofline


def format_stacks(trace: Trace, name: str, options: ExportOptions) -> tuple[str, int]:
    """Format folded stacks, or the document of speedscope; also return how many there are. Raises UsageError."""
    tree = fold_chosen(trace, options)
    if name == "speedscope":
        if options.limit:
            raise UsageError("--limit works only with --folded")
        return format_speedscope(tree, clean(Path(trace.label).name)), int((tree.value_ns > 0).sum())
    lines = [*iterate_folded_lines(tree)]
    if options.limit:
        lines = sorted(lines, key=lambda line: -int(line.rpartition(" ")[2]))[: options.limit]
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
    return step_mask(trace, find_step(trace, options.step))
