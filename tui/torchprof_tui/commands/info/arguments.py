"""Define the arguments of `torchprof-tui info`."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from torchprof_tui.commands.common.arguments import add_capture_option, add_trace_arguments

if TYPE_CHECKING:
    pass


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_trace_arguments(
        parser, "a trace, host:path, a URL, sample:NAME, - for stdin; or host:folder/ to list its traces"
    )
    add_capture_option(parser)
    parser.add_argument("--json", action="store_true", help="print JSON")
