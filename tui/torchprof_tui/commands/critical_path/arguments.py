"""Define the arguments of `torchprof-tui critical-path`."""

from __future__ import annotations

import argparse

from torchprof_tui.commands.common.arguments import add_trace_arguments
from torchprof_tui.commands.common.time_range import TIME_RANGE_HELP

DEFAULT_ROWS = 10
"""Rows of each list by default."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Follow the longest chain of dependencies backwards from the end of a step: the thread's own work, launches, "
        "order of streams, events, blocking calls, backward passes. Its parts fill the step exactly. Only a shorter "
        "path makes the step shorter; what is off it can take longer by its slack. Of several ranks it is the path of "
        "all: at the end of a collective it goes on with the rank that came last to it."
    )
    add_trace_arguments(parser)
    parser.add_argument("--rank", metavar="N", type=int, help="only this rank of a run (default: all, joined)")
    scope = parser.add_mutually_exclusive_group()
    scope.add_argument(
        "--step",
        metavar="N",
        type=int,
        help="number of the step, or of a repetition without steps (default: the step of median duration)",
    )
    scope.add_argument("--range", metavar="T0:T1", help=f"this range instead of a step: {TIME_RANGE_HELP}")
    parser.add_argument(
        "--top",
        metavar="N",
        type=_parse_row_count,
        default=DEFAULT_ROWS,
        help=f"events on the path, and names off it, that are listed (default: {DEFAULT_ROWS})",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")


def _parse_row_count(text: str) -> int:
    number = int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else -1
    if number < 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of rows")
    return number
