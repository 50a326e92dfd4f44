"""Parse the command line and run a command: a package of `commands/`, or of an extension.

Only the standard library is imported before the command is known: `--version` answers at once, and a worker process
reads the trace before textual is imported.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Sequence
from typing import Any

from torchprof_tui import __version__
from torchprof_tui.commands.common.errors import UsageError
from torchprof_tui.commands.common.parsers import (
    COMMANDS,
    PROGRAM,
    build_parser,
    import_command,
    is_command,
    load_extensions,
    print_error,
    read_options,
    suggest,
)
from torchprof_tui.commands.common.process import (
    close_command_entries,
    drop_unwritten_output,
    exit_on_signals,
    is_stdout_error,
    replace_closed_streams,
    tolerate_encoding,
)
from torchprof_tui.program.config_file import apply_configuration, load_configuration, report_problems
from torchprof_tui.program.phase_log import close_log, note_phase, open_log
from torchprof_tui.trace.core.errors import NotThereError, format_error, is_expected
from torchprof_tui.trace.core.extensions import explain_unsupported_system
from torchprof_tui.trace.core.process_state import JOBS, freeze_imported_objects, start_without_collections


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
    except (UsageError, NotThereError) as error:
        print_error(str(error))
        return 2
    except BrokenPipeError:
        return 0  # the reader closed the pipe
    except KeyboardInterrupt:
        return 130
    except Exception as error:
        if debug:
            raise
        line = format_error(error) if is_expected(error) else _import_crash_report().report_crash(error)
        print_error(f"stdout: {line}" if is_stdout_error(error) else line)
        return 2
    finally:
        close_log()
        drop_unwritten_output()


def _run_command(words: list[str]) -> int:
    name, rest = (words[0], words[1:]) if words and is_command(words[0]) else ("open", words)
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
    parsed = parser.parse_args(rest)
    _reject_missing_values(parser, parsed)
    if configuration is not None and name not in ("open", "config"):  # the app notifies, `config` prints all
        report_problems(configuration, name)
    if parsed.log is not None:
        _start_log(parsed.log)
    note_phase(f"command {name}")
    if getattr(parsed, "unpack_all", False):
        os.environ["TORCHPROF_TUI_UNPACK_ALL"] = "1"  # worker processes inherit it
    if getattr(parsed, "jobs", None):
        os.environ[JOBS] = str(parsed.jobs)
    if name == "open":
        _reject_unknown_command(parsed.trace)  # the first check does not see words behind options
    elif hasattr(parsed, "unpack_all"):  # reads a trace; `open` may start a recording, which inherits it
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # each thread takes 40 MB of address space for nothing
    options = read_options(name, parsed, configuration)
    run = import_command(name)
    freeze_imported_objects()
    status: int = run(options)
    return status


def _reject_missing_values(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    """Reject `--at=--`, of which argparse before Python 3.12.5 makes an empty list."""
    for action in parser._actions:
        value = getattr(options, action.dest, None)
        is_missing = isinstance(value, list) and value != action.default and [] in (value, *value)
        if action.nargs is None and action.option_strings and is_missing:
            parser.error(f"argument {'/'.join(action.option_strings)}: expected one argument")


def _start_log(path: str) -> None:
    describe = _import_crash_report()
    try:
        open_log(path, [*describe.describe_program(), *describe.describe_terminal()])
    except (OSError, ValueError) as error:
        raise UsageError(f"--log {path}: {getattr(error, 'strerror', None) or error}") from error


def _reject_unknown_command(words: list[str]) -> None:
    """Raise UsageError if the first word is neither a command nor a file: it was most likely meant as a command."""
    if not words:
        return
    first = words[0]
    if is_command(first):
        raise UsageError(f"options come after the command: {PROGRAM} {first} … (for a file of that name: ./{first})")
    if first.isidentifier() and not os.path.exists(first):
        known = [*COMMANDS, *load_extensions().list_command_names()]
        hint = suggest(first, known) or f"the commands are {', '.join(map(repr, known))}"
        raise UsageError(f"invalid choice: {first!r} (no file of that name; {hint})")


def _import_crash_report() -> Any:
    return importlib.import_module("torchprof_tui.program.crash_report")
