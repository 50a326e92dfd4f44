"""Define the arguments of `torchprof-tui run`."""

from __future__ import annotations

import argparse
from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from torchprof_tui.commands.common.arguments import add_undecided_option
from torchprof_tui.commands.open.arguments import add_appearance_options
from torchprof_tui.runs.recording_request import DEFAULT_OUTPUT, OPTIONS, WORKLOADS, summarize_workload

if TYPE_CHECKING:
    pass


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = (
        f"{parser.prog} [OPTIONS] WORKLOAD [ARGS…]\n       {parser.prog} [OPTIONS] -- python train.py [ARGS…]"
    )
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    width = max(map(len, WORKLOADS)) + 2
    parser.epilog = "workloads, each with options of its own (WORKLOAD --help):\n" + "\n".join(
        f"  {name:<{width}}{summarize_workload(name)}" for name in WORKLOADS
    )
    add_recording_options(parser)
    parser.add_argument("command", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)


def add_recording_options(parser: argparse.ArgumentParser, taken: Collection[str] = ()) -> None:
    """Add the recording options except the flags in `taken`, which the workload defines itself."""
    recording = parser.add_argument_group("what to record")
    for option in OPTIONS:
        if option.flag in taken:
            continue
        shown: dict[str, Any] = {"help": option.help, "dest": option.name}
        if option.kind == "switch":
            recording.add_argument(option.flag, action="store_true", **shown)
        elif option.kind == "choice":
            recording.add_argument(option.flag, choices=option.values, **shown)
        else:
            kind = {"count": int, "seconds": float, "text": str}[option.kind]
            recording.add_argument(option.flag, type=kind, metavar=option.metavar, **shown)
    parser.add_argument(
        "--python",
        metavar="PATH",
        help="Python interpreter with torch, or the folder of its environment (default: of the active environment)",
    )
    parser.add_argument("-o", "--output", metavar="FOLDER", default=DEFAULT_OUTPUT, help="folder for runs")
    parser.add_argument("--no-open", action="store_true", help="do not open the recorded trace")
    parser.add_argument(
        "--compare-to",
        metavar="LAST|TRACE",
        help="then print what changed (see diff) since the last recording of the same command, or since TRACE",
    )
    parser.add_argument(
        "--fail-on",
        metavar="+5%",
        help="with --compare-to: exit status 1 if a step takes that much longer (+5%%, +200us), beyond the noise",
    )
    add_undecided_option(parser)
    parser.add_argument("--json", action="store_true", help="print the result as one JSON document; opens nothing")
    add_appearance_options(parser)
