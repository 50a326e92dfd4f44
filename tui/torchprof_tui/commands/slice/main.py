"""Write a time range of a trace as a new trace: `torchprof-tui slice`."""

from __future__ import annotations

import sys
from pathlib import Path

from torchprof_tui.analysis.slicing.slice_writer import OUTPUT_SUFFIXES, SliceError, write_slice
from torchprof_tui.answers.files import build_slice
from torchprof_tui.commands.common.errors import UsageError
from torchprof_tui.commands.common.load import load_specs, report_private_values, select_rank
from torchprof_tui.commands.common.options import parse_time_range
from torchprof_tui.commands.common.output import print_answer
from torchprof_tui.commands.slice import SliceOptions
from torchprof_tui.program.terminal_progress import show_work
from torchprof_tui.trace.core.atomic_file import OutputError, check_target
from torchprof_tui.ui.common.name_display import clean
from torchprof_tui.ui.explorer.slice_export import format_slice_result


def run(options: SliceOptions) -> int:
    times = parse_time_range(options.range)
    out = Path(options.output)
    if not out.name.endswith(OUTPUT_SUFFIXES):
        raise UsageError(f"-o: {options.output!r} ends in neither .json nor .json.gz")
    try:
        check_target(out)  # before a large trace is read
    except OutputError as error:
        raise UsageError(f"-o: {error}") from error
    trace, rank = select_rank(load_specs(options.trace, cache=not options.no_cache).trace, options.rank)
    try:
        with show_work(f"writing {out.name}"):
            sliced = write_slice(trace, *times, out, keep_private=options.keep_metadata)
    except OutputError as error:
        raise UsageError(f"-o: {error}") from error
    except (SliceError, LookupError) as error:
        raise UsageError(f"{trace.label}: {error.args[0]}") from error
    if rank is not None and options.rank is None:
        print(f"{rank.label}; another: --rank N", file=sys.stderr)
    report_private_values(sliced.private_values, sliced.kept_keys)
    if options.json:
        print_answer(build_slice(trace, options.output, sliced))
        return 0

    print(clean(format_slice_result(sliced, with_private=False)))
    return 0
