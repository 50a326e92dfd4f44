"""Define the arguments of `torchprof-tui export`."""

from __future__ import annotations

import argparse

from torchprof_tui.commands.common.arguments import add_keep_metadata_option, add_trace_arguments
from torchprof_tui.commands.common.time_range import TIME_RANGE_HELP
from torchprof_tui.commands.export.formats import FORMATS


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Write a trace for other programs. The file name chooses the format: .parquet, .arrow and .csv hold all events "
        "as rows (times in ns), .json and .json.gz are a Chrome trace file, in which the processes of several ranks "
        "are kept apart. .folded and .speedscope.json hold the self time of each Python stack, module or op, for "
        "flame graphs."
    )
    add_trace_arguments(parser, "a trace, host:path, a URL, sample:NAME, or - for stdin")
    parser.add_argument("--rank", metavar="N", type=int, help="only this rank of a run (default: all ranks)")
    parser.add_argument("-o", "--output", metavar="OUT", help="file to write; without it stacks are printed")
    chosen = parser.add_mutually_exclusive_group()
    for name, each in FORMATS.items():
        chosen.add_argument(
            f"--{name}",
            dest="format",
            action="store_const",
            const=name,
            help=f"{each.help} ({', '.join(each.suffixes)})",
        )
    add_keep_metadata_option(parser)
    stacks = parser.add_argument_group("flame graphs (--folded, --speedscope)")
    stacks.add_argument("--by", choices=("stack", "module", "op"), help="what the frames are (default: stack)")
    stacks.add_argument("--time", choices=("gpu", "cpu"), help="self time to add up (default: gpu, without a GPU cpu)")
    scope = stacks.add_mutually_exclusive_group()
    scope.add_argument("--range", metavar="T0:T1", help=f"only events that start in it: {TIME_RANGE_HELP}")
    scope.add_argument("--step", metavar="N", type=int, help="only the work that ProfilerStep#N did and launched")
    parser.add_argument("--json", action="store_true", help="print what was written as JSON")
