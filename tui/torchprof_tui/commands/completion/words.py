"""What can be completed on the command line: read from the parsers of all commands."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum

from torchprof_samples import SAMPLES
from torchprof_tui.runs.recording_request import WORKLOADS

OPEN = "open"
"""The command without a word of its own: `torchprof-tui TRACE`."""

_FILE_METAVARS = {"OUT", "FILE", "PATH", "FOLDER"}
_TRACE_METAVARS = {"TRACE", "A", "B", "LAST|TRACE"}


class ValueKind(Enum):
    """What a value is: one of a list, a file, a trace (a file or a sample), or free text."""

    CHOICE = "choice"
    FILE = "file"
    TRACE = "trace"
    COMMAND = "command"
    TEXT = "text"


@dataclass(frozen=True, slots=True)
class Value:
    """The value of an option or of a positional argument; `choices` of a CHOICE or COMMAND."""

    kind: ValueKind
    choices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Option:
    """One option: its flags, a line of help, and its value; None for a switch."""

    flags: tuple[str, ...]
    help: str
    value: Value | None


@dataclass(frozen=True, slots=True)
class CommandWords:
    """One command: its name (OPEN for none), a line of help, its options, and what its other arguments are."""

    name: str
    help: str
    options: tuple[Option, ...]
    positional: Value | None


def list_sample_names() -> list[str]:
    """Return the samples that are installed, as they are typed."""
    return [f"sample:{sample.name}" for sample in SAMPLES if sample.path.exists()]


def read_commands(
    commands: Mapping[str, str], build_parser: Callable[[str], argparse.ArgumentParser]
) -> list[CommandWords]:
    """Read what the parsers accept, the program without a command first."""
    return [_read_parser(name, commands.get(name, ""), build_parser(name)) for name in (OPEN, *commands)]


def _read_parser(name: str, description: str, parser: argparse.ArgumentParser) -> CommandWords:
    options = []
    positional = None
    for action in parser._actions:
        if action.option_strings:
            value = None if action.nargs == 0 else _read_value(action)
            options.append(Option(tuple(action.option_strings), expand_help(parser, action), value))
        elif positional is None:
            positional = _read_value(action)
    return CommandWords(name, description, tuple(options), positional)


def _read_value(action: argparse.Action) -> Value:
    if action.choices is not None:
        return Value(ValueKind.CHOICE, tuple(map(str, action.choices)))
    if action.nargs == argparse.REMAINDER:
        return Value(ValueKind.COMMAND, tuple(WORKLOADS))
    metavar = action.metavar if isinstance(action.metavar, str) else ""
    if metavar in _TRACE_METAVARS:
        return Value(ValueKind.TRACE)
    return Value(ValueKind.FILE if metavar in _FILE_METAVARS else ValueKind.TEXT)


def expand_help(parser: argparse.ArgumentParser, action: argparse.Action) -> str:
    """Return the help of an option on one line, as `--help` prints it."""
    if not action.help or action.help == argparse.SUPPRESS:
        return ""
    return " ".join(parser._get_formatter()._expand_help(action).split())
