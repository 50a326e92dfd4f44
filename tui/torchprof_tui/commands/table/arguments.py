"""Define the arguments of `torchprof-tui table`."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from torchprof_tui.commands.common.arguments import add_rank_option, add_trace_arguments

if TYPE_CHECKING:
    pass

DEFAULT_ROWS = 100
"""Rows of a text table by default, as many as torch prints."""


GROUPINGS = ("name", "shape", "stack", "module", "class", "step")


TABLE_NAMES = ("calls", "kernels", "copies", "collectives", "memory", "arrivals")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_trace_arguments(parser)
    add_rank_option(parser)
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="one JSON document on stdout: a list of rows, times in µs")
    form.add_argument("--csv", action="store_true", help="comma-separated values with a header line, times in µs")
    form.add_argument("--markdown", action="store_true", help="a Markdown table")
    parser.add_argument(
        "--sort",
        metavar="COLUMN",
        help="self_gpu, gpu, self_cpu, cpu, gpu_avg, cpu_avg, calls, name (what took most; JSON, CSV: torch's order)",
    )
    parser.add_argument(
        "--limit",
        metavar="N",
        type=_parse_row_limit,
        help=f"so many rows, as text of work and of annotations each (0: all; for people {DEFAULT_ROWS}, else all)",
    )
    parser.add_argument("--by", choices=GROUPINGS, default="name", help="what makes a row (name)")
    parser.add_argument("--step", metavar="N", type=int, help="only what ProfilerStep#N did and launched")
    parser.add_argument(
        "--of",
        choices=TABLE_NAMES,
        default="calls",
        help="which table (calls); arrivals: over all ranks, who came late to each collective",
    )
    parser.add_argument("--flops", action="store_true", help="add FLOPs, TFLOP/s and share of the peak")


def _parse_row_limit(text: str) -> int:
    number = int(text) if text.isascii() and text.isdecimal() else -1
    if number < 0:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of rows")
    return number
