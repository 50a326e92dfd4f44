"""Define the arguments of `torchprof-tui memory`."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from torchprof_tui.commands.common.arguments import add_rank_option, add_trace_arguments

if TYPE_CHECKING:
    pass

DEFAULT_ROWS = 15
"""Rows of each text table by default."""

GROUPINGS = ("category", "op", "module", "line", "phase", "shape", "stack")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_trace_arguments(
        parser, "a trace recorded with profile_memory, a snapshot.pickle of torch.cuda.memory, sample:NAME, or -"
    )
    add_rank_option(parser)
    parser.add_argument("--device", metavar="NAME", help="GPU0, GPU1, …, CPU (default: the GPU with the highest peak)")
    parser.add_argument(
        "--at",
        metavar="TIME",
        default="peak",
        help="what is alive at this time: 12.5ms, 300us, peak (default) or end; of a snapshot from its first entry",
    )
    parser.add_argument(
        "--by",
        choices=GROUPINGS,
        help="group by this (default: category, of a snapshot line); stack: of a snapshot only",
    )
    parser.add_argument(
        "--top",
        metavar="N",
        type=_parse_row_count,
        help=f"number of groups and of allocations (0: all; default: {DEFAULT_ROWS} in text, else all)",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")


def _parse_row_count(text: str) -> int:
    number = int(text) if text.isascii() and text.isdecimal() else -1
    if number < 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of rows")
    return number
