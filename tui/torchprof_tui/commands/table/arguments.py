"""Define the arguments of `torchprof-tui table`."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from torchprof_tui.commands.common.arguments import add_capture_option, add_rank_option, add_trace_arguments

if TYPE_CHECKING:
    pass

DEFAULT_ROWS = 100
"""Rows of a text table by default, as many as torch prints."""


GROUPINGS = ("name", "shape", "stack", "module", "class", "step", "step-kind")


TABLE_NAMES = ("calls", "kernels", "copies", "collectives", "memory", "arrivals", "repetitions")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_trace_arguments(parser)
    add_rank_option(parser)
    add_capture_option(parser)
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print one JSON document: rows and totals, times in µs")
    form.add_argument("--csv", action="store_true", help="print comma-separated values with a header line, times in µs")
    form.add_argument("--markdown", action="store_true", help="print a Markdown table")
    parser.add_argument(
        "--sort",
        metavar="COLUMN",
        help="sort by self_gpu, gpu, self_cpu, cpu, gpu_avg, cpu_avg, calls or name (default: longest first; JSON, "
        "CSV: torch's order)",
    )
    parser.add_argument(
        "--limit",
        metavar="N",
        type=_parse_row_limit,
        help=f"number of rows; in text, of work and of annotations each (0: all; default: {DEFAULT_ROWS} in text, "
        f"else all)",
    )
    parser.add_argument(
        "--by",
        choices=GROUPINGS,
        default="name",
        help="group calls by this (default: name); step-kind: prefill, decode and mixed steps of a serving engine",
    )
    parser.add_argument("--step", metavar="N", type=int, help="only the work that step N did and launched")
    parser.add_argument(
        "--of",
        choices=TABLE_NAMES,
        default="calls",
        help="which table (default: calls); arrivals: over all ranks, which rank was late at each collective; "
        "repetitions: tokens, iterations and layers, found in the order of the kernels",
    )
    parser.add_argument("--flops", action="store_true", help="add FLOPs, TFLOP/s and share of the peak")


def _parse_row_limit(text: str) -> int:
    number = int(text) if text.isascii() and text.isdecimal() else -1
    if number < 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of rows")
    return number
