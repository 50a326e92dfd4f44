"""Define the arguments of `torchprof-tui snapshot`."""

from __future__ import annotations

import argparse

from torchprof_tui.commands.common.arguments import add_capture_option


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "trace",
        nargs="*",
        metavar="TRACE",
        help="a trace, sample:NAME, or the ranks of one run; without one, the start screen",
    )
    parser.add_argument("--size", default="160x48", metavar="WxH", help="columns x lines (default 160x48)")
    parser.add_argument(
        "--keys", default="", help="keys to press, by Textual's names, separated by commas: w,w,right,c"
    )
    parser.add_argument("-o", "--output", required=True, metavar="OUT", help="OUT.svg or OUT.txt")
    parser.add_argument("--theme", choices=("dark", "light"), default="dark")
    add_capture_option(parser)
    parser.add_argument("--no-cache", action="store_true", help="neither read nor write the cache of decoded traces")
