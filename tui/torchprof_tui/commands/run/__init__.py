"""Declare the options of `torchprof-tui run`."""

from __future__ import annotations

import argparse
from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, Any

from torchprof_tui.commands.common.options import ScreenOptions, Undecided, option
from torchprof_tui.runs.recording_request import (
    DEFAULT_OUTPUT,
    OPTIONS,
    WORKLOADS,
    is_workload,
    summarize_workload,
    workload_flags,
)

if TYPE_CHECKING:
    from torchprof_tui.program.settings import Configuration


class RunOptions(ScreenOptions):
    """`recording`: what to record, as words for the recorder; `command`: what to run, with its own options."""

    recording: tuple[str, ...] = ()
    python: str | None = option(
        "Python interpreter with torch, or the folder of its environment (default: of the active environment)",
        "PATH",
        default=None,
    )
    output: str = option("folder for runs", "FOLDER", short="-o", default=DEFAULT_OUTPUT)
    no_open: bool = option("do not open the recorded trace", default=False)
    compare_to: str | None = option(
        "then print what changed (see diff) since the last recording of the same command, or since TRACE",
        "LAST|TRACE",
        default=None,
    )
    fail_on: str | None = option(
        "with --compare-to: exit status 1 if a step takes that much longer (+5%%, +200us), beyond the noise",
        "+5%",
        default=None,
    )
    undecided: Undecided = None
    json: bool = option("print the result as one JSON document; opens nothing", default=False)
    command: tuple[str, ...] = ()

    @classmethod
    def add_arguments(cls, parser: argparse.ArgumentParser) -> None:
        parser.usage = (
            f"{parser.prog} [OPTIONS] WORKLOAD [ARGS…]\n       {parser.prog} [OPTIONS] -- python train.py [ARGS…]"
        )
        parser.formatter_class = argparse.RawDescriptionHelpFormatter
        width = max(map(len, WORKLOADS)) + 2
        parser.epilog = "workloads, each with options of its own (WORKLOAD --help):\n" + "\n".join(
            f"  {name:<{width}}{summarize_workload(name)}" for name in WORKLOADS
        )
        _add_recording_flags(parser)
        super().add_arguments(parser)
        parser.add_argument("command", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)

    @classmethod
    def read(cls, parsed: argparse.Namespace, configuration: Configuration | None) -> RunOptions:
        """Build the options. Those behind a workload are recording options unless the workload defines them."""
        command = parsed.command[1:] if parsed.command[:1] == ["--"] else parsed.command
        if command and is_workload(command[0]) and "--" not in command:
            ours = argparse.ArgumentParser(prog=f"torchprof-tui run {command[0]}", add_help=False, allow_abbrev=False)
            _add_recording_flags(ours, taken=workload_flags(command[0]))
            super().add_arguments(ours)
            command = [command[0], *ours.parse_known_args(command[1:], parsed)[1]]
        parsed.command, parsed.recording = command, list(_list_recording_words(parsed))
        return super().read(parsed, configuration)


def _add_recording_flags(parser: argparse.ArgumentParser, taken: Collection[str] = ()) -> None:
    """Add the recorder's options except the flags in `taken`, which the workload defines itself."""
    section = parser.add_argument_group("what to record")
    for each in OPTIONS:
        if each.flag in taken:
            continue
        shown: dict[str, Any] = {"help": each.help, "dest": each.name}
        if each.kind == "switch":
            section.add_argument(each.flag, action="store_true", **shown)
        elif each.kind == "choice":
            section.add_argument(each.flag, choices=each.values, **shown)
            if each.flag == "--then":
                section.add_argument(
                    "--keep-going",
                    dest="then",
                    action="store_const",
                    const="finish",
                    help="let the program run on after the recorded steps: --then finish",
                )
        else:
            kind = {"count": int, "seconds": float, "text": str}[each.kind]
            section.add_argument(each.flag, type=kind, metavar=each.metavar, **shown)


def _list_recording_words(parsed: argparse.Namespace) -> Iterator[str]:
    for each in OPTIONS:
        value = getattr(parsed, each.name)
        if value is True:
            yield each.flag
        elif value is not None and value is not False:  # 0 is a value
            yield from (each.flag, f"{value:g}" if isinstance(value, float) else str(value))
