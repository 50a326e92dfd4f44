"""Write a trace for other programs: `torchprof-tui export`."""

from __future__ import annotations

import sys
from pathlib import Path

from torchprof_tui.analysis.export.arrow_events import require_arrow
from torchprof_tui.analysis.slicing.slice_writer import check_not_source
from torchprof_tui.answers.files import Export
from torchprof_tui.answers.losses import build_losses
from torchprof_tui.commands.common.errors import UsageError
from torchprof_tui.commands.common.load import load_specs, report_private_values, select_rank
from torchprof_tui.commands.common.output import print_answer
from torchprof_tui.commands.export.formats import choose_format
from torchprof_tui.commands.export.options import ExportOptions
from torchprof_tui.commands.export.writers import format_stacks, write_trace
from torchprof_tui.trace.core.atomic_file import OutputError, check_target
from torchprof_tui.trace.core.printable import clean
from torchprof_tui.trace.model.trace import Trace
from torchprof_tui.ui.common.number_format import format_file_size

FLAME_OPTIONS = ("by", "time", "range", "step")


def run(options: ExportOptions) -> int:
    target = None if options.output == "-" else options.output
    name, chosen = choose_format(options.format, None if target is None else Path(target))
    if not chosen.can_print and (
        flag := next((flag for flag in FLAME_OPTIONS if getattr(options, flag) is not None), "")
    ):
        raise UsageError(f"--{flag} works only with --folded and --speedscope")
    if target is None:
        if options.json:
            raise UsageError("--json describes the file that was written: it needs -o OUT")
        print(format_stacks(_load(options), name, options)[0], end="")
        return 0
    out = Path(target)
    if name in ("parquet", "arrow"):
        require_arrow()
    try:
        check_target(out)  # before a large trace is read
        trace = _load(options)
        check_not_source(trace, out)
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
