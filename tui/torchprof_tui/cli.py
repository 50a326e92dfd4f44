"""Parse the command line and run a command: a package of `commands/`, or of an extension.

Only the standard library is imported before the command is known: `--version` answers at once, and a worker process
reads the trace before textual is imported.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import os
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from torchprof_tui import __version__
from torchprof_tui.commands.common.command_entries import close_command_entries
from torchprof_tui.commands.common.errors import UsageError
from torchprof_tui.commands.common.standard_streams import (
    drop_unwritten_output,
    is_stdout_error,
    replace_closed_streams,
    tolerate_encoding,
)
from torchprof_tui.commands.common.termination import exit_on_signals
from torchprof_tui.program.config_file import apply_configuration, load_configuration, report_problems
from torchprof_tui.program.phase_log import close_log, note_phase, open_log
from torchprof_tui.trace.core.core_count import JOBS, MAX_JOBS
from torchprof_tui.trace.core.errors import ExtensionError, format_error, is_expected
from torchprof_tui.trace.core.optional_modules import explain_unsupported_system
from torchprof_tui.trace.core.process_state import freeze_imported_objects, start_without_collections

if TYPE_CHECKING:
    from torchprof_tui.trace.core.extensions import CommandExtension

PROGRAM = "torchprof-tui"

COMMANDS = {
    "run": "profile a built-in workload or your own command, then open what it recorded",
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
    "snapshot": "save the screen after some keys, as SVG or text",
    "mcp": "answer an agent's questions about traces, as an MCP server",
    "cache": "list or clear the cache of opened traces",
    "config": "print the settings in force, check or create the configuration file",
    "completion": "print a completion script for bash, zsh or fish",
}
"""Packages of `torchprof_tui.commands`, with `_` for `-`: `arguments.add_arguments(parser)` and
`main.run(options) -> exit status`. `list_commands` adds those of extensions."""

TRACE_COMMANDS = frozenset(
    (
        "open",
        "info",
        "table",
        "check",
        "diff",
        "critical-path",
        "what-if",
        "chain",
        "memory",
        "slice",
        "export",
        "perfetto",
        "snapshot",
    )
)  # fmt: skip
"""Commands that read a trace."""

EXAMPLES = f"""\
examples:
  {PROGRAM}                                  the start screen: recent traces, samples, the traces of this folder
  {PROGRAM} sample:matmul_add_64_cold_eager  a small sample to learn on
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
            hints = [_suggest(word, [flag for action in self._actions for flag in action.option_strings])]
        raise UsageError(f"{message} ({'; '.join([*filter(None, hints), f'see: {self.prog} --help'])})")


class _ProgramParser(_Parser):
    """Parse the arguments of the program without a command. Its help lists the commands, which imports extensions."""

    def format_help(self) -> str:
        listed = [f"  {name:<13} {does}   ({PROGRAM} {name} --help)" for name, does in list_commands().items()]
        self.epilog = "\n".join(["commands:", *listed, "", EXAMPLES])
        return super().format_help()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program and return its exit status: 0 done, 1 the answer is no, 2 wrong call or input, 3 undecided,
    128 + signal.
    """
    if arguments is None:  # not called by a test
        start_without_collections()
    words = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in words
    replace_closed_streams()
    tolerate_encoding()
    try:
        with exit_on_signals(), close_command_entries():
            try:
                status = _run_command(words)
            finally:  # also after --help, which exits: a full disk is an error
                sys.stdout.flush()
        note_phase("end", status=status)
        return status
    except UsageError as error:
        return _report_error(str(error))
    except BrokenPipeError:
        return 0  # the reader closed the pipe
    except KeyboardInterrupt:
        return 130
    except Exception as error:
        if debug:
            raise
        line = format_error(error) if is_expected(error) else _report_crash(error)
        return _report_error(f"stdout: {line}" if is_stdout_error(error) else line)
    finally:
        close_log()
        drop_unwritten_output()


def _run_command(words: list[str]) -> int:
    name, rest = (words[0], words[1:]) if words and _is_command(words[0]) else ("open", words)
    if words[:1] == ["--version"]:  # scripts ask for this: no parser is needed
        print(f"{PROGRAM} {__version__}")
        return 0
    unsupported = explain_unsupported_system()
    if unsupported:
        raise UsageError(unsupported)
    if name == "open":
        _reject_unknown_command(rest)
    parser = build_parser(name)
    configuration = None if name == "completion" else load_configuration()
    if configuration is not None:
        apply_configuration(configuration, parser)
    options = parser.parse_args(rest)
    _reject_missing_values(parser, options)
    if configuration is not None and name not in ("open", "config"):  # the app notifies, `config` prints all
        report_problems(configuration, name)
    options.configuration, options.build_parser, options.list_commands = configuration, build_parser, list_commands
    if options.log is not None:
        _start_log(options.log)
    note_phase(f"command {name}")
    if getattr(options, "unpack_all", False):
        os.environ["TORCHPROF_TUI_UNPACK_ALL"] = "1"  # worker processes inherit it
    if getattr(options, "jobs", None):
        os.environ[JOBS] = str(options.jobs)
    if name == "open":
        _reject_unknown_command(options.trace)  # the first check does not see words behind options
    if hasattr(options, "unpack_all") and name != "open":  # `open` may start a recording, which inherits it
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # each thread takes 40 MB of address space for nothing
    extension = find_extension(name)
    run = _import_part(name, "main").run if extension is None else _guard(extension, extension.run)
    freeze_imported_objects()
    status: int = run(options)
    return status


def _import_part(command: str, module: str) -> Any:
    """Import a module of a command's package in `torchprof_tui.commands`."""
    return importlib.import_module(f"torchprof_tui.commands.{command.replace('-', '_')}.{module}")


def _load_extensions() -> Any:
    """Import what finds extensions: not needed where the command is one of the program's own."""
    return importlib.import_module("torchprof_tui.trace.core.extensions")


def _guard(extension: CommandExtension, target: str) -> Any:
    """Import a function of an extension, whose exceptions are reported as its own."""
    return _load_extensions().guard_function(extension, target, UsageError)


def find_extension(name: str) -> CommandExtension | None:
    """Find the command of an extension; None where it is of the program itself. Raises ExtensionError, KeyError."""
    if name in COMMANDS or name == "open":
        return None
    extension: CommandExtension | None = _load_extensions().find_command(name)
    if extension is None:
        raise KeyError(name)
    return extension


def _is_command(word: str) -> bool:
    return word in COMMANDS or (word.replace("-", "").isalnum() and word in _load_extensions().list_command_names())


def list_commands() -> dict[str, str]:
    """List all commands with one line of help. Of extensions that cannot be used a line on stderr says why."""
    extensions, problems = _load_extensions().list_commands()
    for problem in problems:
        _print_error(problem)
    return COMMANDS | {name: extension.help for name, extension in extensions.items() if name not in COMMANDS}


def _reject_missing_values(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    """Reject `--at=--`, of which argparse before Python 3.12.5 makes an empty list."""
    for action in parser._actions:
        value = getattr(options, action.dest, None)
        is_missing = isinstance(value, list) and value != action.default and [] in (value, *value)
        if action.nargs is None and action.option_strings and is_missing:
            parser.error(f"argument {'/'.join(action.option_strings)}: expected one argument")


def build_parser(name: str) -> argparse.ArgumentParser:
    """Create the complete parser of a command; "open" is the program without a command."""
    extension = find_extension(name)
    parser = _create_parser(name, extension)
    # Arguments and command are separate modules: --help and a wrong call import nothing else.
    if extension is None:
        _import_part(name, "arguments").add_arguments(parser)
    else:
        _guard(extension, extension.add_arguments)(parser)
    try:
        _add_common_options(parser, name in TRACE_COMMANDS if extension is None else extension.reads_traces)
    except argparse.ArgumentError as error:
        if extension is None:
            raise
        raise ExtensionError(f"command {name} of {extension.package} cannot be used: {error}") from error
    return parser


def _add_common_options(parser: argparse.ArgumentParser, reads_traces: bool) -> None:
    parser.add_argument("--debug", action="store_true", help="print the traceback of an error")
    parser.add_argument("--log", metavar="FILE", help="write phases with times, sizes and versions, for a bug report")
    if reads_traces:
        parser.add_argument(
            "--unpack-all", action="store_true", help="allow compression ratios above 200:1, and text without an end"
        )
        parser.add_argument(
            "--jobs", metavar="N", type=_parse_jobs, help="processes and threads that read a trace, at most (all cores)"
        )


def _parse_jobs(text: str) -> int:
    if text.isascii() and text.isdigit() and 0 < int(text) <= MAX_JOBS:
        return int(text)
    raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1 to {MAX_JOBS}")


def _start_log(path: str) -> None:
    describe = importlib.import_module("torchprof_tui.program.crash_report")
    try:
        open_log(path, [*describe.describe_program(), *describe.describe_terminal()])
    except (OSError, ValueError) as error:
        raise UsageError(f"--log {path}: {getattr(error, 'strerror', None) or error}") from error


def _create_parser(name: str, extension: CommandExtension | None) -> argparse.ArgumentParser:
    if name != "open":
        description = COMMANDS[name] if extension is None else extension.help
        return _Parser(prog=f"{PROGRAM} {name}", description=description, allow_abbrev=False)
    parser = _ProgramParser(
        prog=PROGRAM,
        description="Read a torch.profiler trace in the terminal where it was made.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"{PROGRAM} {__version__}")
    return parser


def _reject_unknown_command(words: list[str]) -> None:
    """Raise UsageError if the first word is neither a command nor a file: it was most likely meant as a command."""
    if not words:
        return
    first = words[0]
    if _is_command(first):
        raise UsageError(f"options come after the command: {PROGRAM} {first} … (for a file of that name: ./{first})")
    if first.isidentifier() and not os.path.exists(first):
        known = [*COMMANDS, *_load_extensions().list_command_names()]
        hint = _suggest(first, known) or f"the commands are {', '.join(map(repr, known))}"
        raise UsageError(f"invalid choice: {first!r} (no file of that name; {hint})")


def _suggest(word: str, known: Iterable[str]) -> str:
    hint: str = importlib.import_module("torchprof_tui.commands.common.suggestions").suggest(word, known)
    return hint


def _report_crash(error: Exception) -> str:
    line: str = importlib.import_module("torchprof_tui.program.crash_report").report_crash(error)
    return line


def _report_error(line: str) -> int:
    _print_error(line)
    return 2


def _print_error(line: str) -> None:
    # A file name or text from a file may hold control sequences.
    shown = "".join(c if c.isprintable() else "·" for c in " ".join(line.split()))
    with contextlib.suppress(OSError):  # where stderr is full or gone, the exit status has to do
        print(f"{PROGRAM}: {shown}", file=sys.stderr)
