"""The commands of the program and of its extensions, and their parsers.

Standard library only: imported before the command is known.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import sys
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, NoReturn

from torchprof_tui import __version__
from torchprof_tui.commands.common.errors import UsageError
from torchprof_tui.trace.core.errors import ExtensionError

if TYPE_CHECKING:
    from torchprof_tui.commands.common.options import Options
    from torchprof_tui.program.settings import Configuration
    from torchprof_tui.trace.core.extensions import CommandExtension

PROGRAM = "torchprof-tui"

COMMANDS = {
    "run": "profile a built-in workload or your own command, then open what it recorded",
    "learn": "learn to read traces: cases of a few questions, on the real screens; or questions about a trace of yours",
    "info": "print the contents of a trace: steps, devices, events, time tree",
    "table": "print the profiler's table, as prof.key_averages() does",
    "check": "say what is slow, why, and how to fix it",
    "diff": "say what changed between two traces, part by part of a step",
    "critical-path": "print what limits a step: its critical path, by kind of time",
    "what-if": "predict a step with some changes: faster kernels, no .item(), a CUDA graph",
    "chain": "print the dispatch chain of an event: step, ops, launch, kernel, occupancy",
    "memory": "print what fills memory at the peak or at any time, of a trace or a snapshot",
    "slice": "write a time range of a trace as a smaller trace",
    "export": "write all events as Parquet, Arrow or CSV, or ranks as one Chrome trace file",
    "perfetto": "open a trace, or a part of it, in Perfetto's UI in the browser",
    "snapshot": "save the screen after some keys, as SVG, PNG or text",
    "mcp": "answer an agent's questions about traces, as an MCP server",
    "cache": "list or clear the cache of opened traces",
    "config": "print the settings in force, check or create the configuration file",
    "completion": "print a completion script for bash, zsh or fish",
}
"""Packages of `torchprof_tui.commands`, with `_` for `-`: a dataclass of options, such as `WhatIfOptions` for what-if,
and `main.run(options) -> exit status`. `list_commands` adds those of extensions."""

EXAMPLES = f"""\
examples:
  {PROGRAM}                                  the start screen: recent traces, samples, the traces of this folder
  {PROGRAM} sample:matmul_add_64_cold_eager  a small sample to learn on
  {PROGRAM} learn                            cases to learn with: what do you expect, look, what it is
  {PROGRAM} trace.json.gz                    any trace that torch.profiler exported
  {PROGRAM} run -- python train.py --lr 1e-4   profile your own program, unchanged
  {PROGRAM} diff before.json after.json     what changed from one trace to the other
  {PROGRAM} runs/ddp/                        the ranks of one run, one file per rank
  {PROGRAM} gpu-box:runs/trace.json.gz       a trace on another host, over your own ssh
  zcat trace.json.gz | {PROGRAM} -           read from a pipe
  {PROGRAM} ./info                           a trace file with the name of a command
"""


class _Parser(argparse.ArgumentParser):
    """Parse arguments as argparse does, and raise UsageError with one line instead of printing the usage."""

    def _print_message(self, message: str, file: Any = None) -> None:
        (file or sys.stderr).write(message)  # argparse ignores where it fails

    def error(self, message: str) -> NoReturn:
        hints = []
        if message.startswith("unrecognized arguments: --"):
            word = message.split()[2].partition("=")[0]
            hints = [suggest(word, [flag for action in self._actions for flag in action.option_strings])]
        raise UsageError(f"{message} ({'; '.join([*filter(None, hints), f'see: {self.prog} --help'])})")


class _ProgramParser(_Parser):
    """Parse the arguments of the program without a command. Its help lists the commands, which imports extensions."""

    def format_help(self) -> str:
        listed = [f"  {name:<13} {does}   ({PROGRAM} {name} --help)" for name, does in list_commands().items()]
        self.epilog = "\n".join(["commands:", *listed, "", EXAMPLES])
        return super().format_help()


def _import_package(command: str, module: str = "") -> Any:
    """Import a command's package in `torchprof_tui.commands`, or a module of it."""
    return importlib.import_module(f"torchprof_tui.commands.{command.replace('-', '_')}{module}")


def load_extensions() -> Any:
    """Import what finds extensions: not needed where the command is one of the program's own."""
    return importlib.import_module("torchprof_tui.trace.core.extensions")


def _guard(extension: CommandExtension | None, function: str | Callable[..., Any]) -> Any:
    """Return a function, of an extension one whose exceptions are reported as its own; a text is imported."""
    if extension is None:
        return function
    return load_extensions().guard_function(extension, function, UsageError, argparse.ArgumentError)


def _find_extension(name: str) -> CommandExtension | None:
    """Find the command of an extension; None where it is of the program itself. Raises ExtensionError, KeyError."""
    if name in COMMANDS or name == "open":
        return None
    extension: CommandExtension | None = load_extensions().find_command(name)
    if extension is None:
        raise KeyError(name)
    return extension


def is_command(word: str) -> bool:
    return word in COMMANDS or (word.replace("-", "").isalnum() and word in load_extensions().list_command_names())


def list_commands() -> dict[str, str]:
    """List all commands with one line of help. Of extensions that cannot be used a line on stderr says why."""
    extensions, problems = load_extensions().list_commands()
    for problem in problems:
        print_error(problem)
    return COMMANDS | {name: extension.help for name, extension in extensions.items() if name not in COMMANDS}


def import_options(name: str) -> type[Options]:
    """Import the dataclass of a command's options; "open" is the program without a command."""
    extension = _find_extension(name)
    if extension is None:
        own: type[Options] = getattr(_import_package(name), f"{name.title().replace('-', '')}Options")
        return own
    found = load_extensions().import_target(extension, extension.options)
    base = importlib.import_module("torchprof_tui.commands.common.options").Options
    if not (isinstance(found, type) and issubclass(found, base)):
        raise _refuse(extension, f"{extension.options} is no subclass of Options")
    return found


def _refuse(extension: CommandExtension, reason: object) -> ExtensionError:
    return ExtensionError(f"command {extension.name} of {extension.package} cannot be used: {reason}")


def read_options(name: str, parsed: argparse.Namespace, configuration: Configuration | None) -> Options:
    """Build the options of a command from what its parser has parsed. Raises UsageError."""
    options: Options = _guard(_find_extension(name), import_options(name).read)(parsed, configuration)
    return options


def import_command(name: str) -> Callable[[Options], int]:
    """Import the function that runs a command with its options."""
    extension = _find_extension(name)
    run: Callable[[Options], int]
    run = _import_package(name, ".main").run if extension is None else _guard(extension, extension.run)
    return run


def build_parser(name: str) -> argparse.ArgumentParser:
    """Create the complete parser of a command; "open" is the program without a command."""
    extension = _find_extension(name)
    if name == "open":
        parser: _Parser = _ProgramParser(
            prog=PROGRAM,
            description="Read a torch.profiler trace in the terminal where it was made.",
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        parser.add_argument("--version", action="version", version=f"{PROGRAM} {__version__}")
    else:
        description = COMMANDS[name] if extension is None else extension.help
        parser = _Parser(prog=f"{PROGRAM} {name}", description=description, allow_abbrev=False)
    # Options and command are separate modules: --help and a wrong call import nothing else.
    options = import_options(name)
    try:
        _guard(extension, options.add_arguments)(parser)
        options.add_shared_arguments(parser)
    except argparse.ArgumentError as error:
        if extension is None:
            raise
        raise _refuse(extension, error) from error
    return parser


def print_error(line: str) -> None:
    # A file name or text from a file may hold control sequences.
    shown = "".join(c if c.isprintable() else "·" for c in " ".join(line.split()))
    with contextlib.suppress(OSError):  # where stderr is full or gone, the exit status has to do
        print(f"{PROGRAM}: {shown}", file=sys.stderr)


def suggest(word: str, known: Iterable[str]) -> str:
    """Return `did you mean X?` for the closest known word; "" where none is close."""
    difflib = importlib.import_module("difflib")  # imported only for a mistake
    close = difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)
    return f"did you mean {close[0]}?" if close else ""
