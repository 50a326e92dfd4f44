"""`torchprof-tui slice TRACE --range T0:T1 -o small.json.gz`: a range of a trace as a trace of its own."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from torchprof_tui.commands import UsageError
from torchprof_tui.commands.common.load import add_rank_option, add_trace_arguments, load_specs, select_rank
from torchprof_tui.commands.common.partial_input import partial_as_json
from torchprof_tui.commands.common.time_range import TIME_RANGE_HELP, parse_time_range


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Writes every event with a part in the range, whole; the other ends of its links (launch and kernels, forward "
        "and backward, flow arrows) wherever they lie; and all that encloses those. Names, labels and the header are "
        "kept, counters and memory where they lie in the range."
    )
    add_trace_arguments(parser, "a trace, host:path, a URL, sample:NAME, or - for stdin")
    add_rank_option(parser)
    parser.add_argument("--range", metavar="T0:T1", required=True, help=f"from when to when: {TIME_RANGE_HELP}")
    parser.add_argument("-o", "--output", metavar="OUT", required=True, help="OUT.json or OUT.json.gz")
    parser.add_argument("--json", action="store_true", help="what was written, as one JSON document on stdout")


def run(options: argparse.Namespace) -> int:
    times = parse_time_range(options.range)
    out = Path(options.output)
    from torchprof_tui.analysis.slicing.slice_writer import OUTPUT_SUFFIXES, OutputPathError, SliceError, write_slice

    if not out.name.endswith(OUTPUT_SUFFIXES):
        raise UsageError(f"-o: {options.output!r} ends in neither .json nor .json.gz")
    trace, rank = select_rank(load_specs(options.trace, cache=not options.no_cache).trace, options.rank)
    try:
        sliced = write_slice(trace, *times, out)
    except OutputPathError as error:
        raise UsageError(f"-o: {error}") from error
    except (SliceError, LookupError) as error:
        raise UsageError(f"{trace.label}: {error.args[0]}") from error
    if rank is not None and options.rank is None:
        print(f"{rank.label}; another: --rank N", file=sys.stderr)
    if options.json:
        answer = {
            "trace": options.output,
            "entries": sliced.entries,
            "entries_of": sliced.total_entries,
            "events": sliced.events,
            "bytes": sliced.size,
            "starts_ns": sliced.first_start,
            "left_out": list(sliced.skipped_keys),
            "partial": partial_as_json(trace),
        }
        print(json.dumps(answer))
        return 0
    from torchprof_tui.ui.common.name_display import clean
    from torchprof_tui.ui.explorer.slice_messages import format_slice_result

    print(clean(format_slice_result(sliced)))
    return 0
