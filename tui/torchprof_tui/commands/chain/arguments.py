"""Define the arguments of `torchprof-tui chain`."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from torchprof_tui.commands.common.arguments import add_capture_option, add_rank_option, add_trace_arguments

if TYPE_CHECKING:
    pass


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_trace_arguments(parser)
    add_rank_option(parser)
    add_capture_option(parser)
    parser.add_argument("--event", metavar="NAME", required=True, help="the full name of an event (an op, a kernel, …)")
    parser.add_argument(
        "--nth", metavar="K", type=int, default=0, help="which event of that name, in time order, from 0 (default)"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
