"""Open the app: the explorer with a trace, the start screen without one."""

from __future__ import annotations

import contextlib
import importlib
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from torchprof_tui.commands.common import terminal
from torchprof_tui.commands.common.errors import UsageError
from torchprof_tui.commands.open import OpenOptions
from torchprof_tui.program.phase_log import note_phase
from torchprof_tui.trace.core.printable import clean
from torchprof_tui.trace.sources.ssh_connections import SshConnections

if TYPE_CHECKING:
    from torchprof_tui.learn.case_file import Case
    from torchprof_tui.trace.loading.opener import TraceOpener
    from torchprof_tui.trace.loading.resolve import ResolvedInput
    from torchprof_tui.ui.common.comparison_request import ComparisonRequest

RESOLVE = "torchprof_tui.trace.loading.resolve"  # imported by name: the start screen needs nothing that opens traces

ERASE_LINE = "\r\x1b[K"


def run(
    options: OpenOptions,
    comparison: ComparisonRequest | None = None,
    *,
    learn: bool = False,
    case: Case | None = None,
) -> int:
    """Open the app. `comparison`: what to compare the trace with, once it is open.

    `learn`: begin `case` on the trace, None for one of its findings; without a trace list the cases.
    """
    if options.at is not None and not options.trace:
        raise UsageError("--at needs a trace")
    can_choose = comparison is None and not terminal.find_terminal_problem()
    meant: ResolvedInput | None = None
    if options.trace:
        meant = importlib.import_module(RESOLVE).resolve_specs(options.trace, list_folders=can_choose)
    terminal.require_terminal(None if meant is None else meant.path)
    terminal.prepare_app(options)
    start = "starting …" if meant is None else ""
    if meant is not None and os.path.exists(meant.path):  # else ssh may ask for a password on the same line
        start = f"opening {clean(os.path.basename(meant.path.rstrip('/')))} …"
    _show_line(start)  # importing the app takes a second, on a loaded machine several
    try:
        with SshConnections() as connections:
            return _run_app(options, meant, connections, comparison=comparison, learn=learn, case=case)
    finally:
        _show_line("")


def _run_app(options: OpenOptions, meant: ResolvedInput | None, connections: SshConnections, **then: Any) -> int:
    """Start to open what the user meant, then run the app. `then`: what TorchprofApp does once it is open."""
    opening = None
    if meant is not None:
        stdin = _replace_stdin_with_terminal() if meant.path == "-" else None
        opening = meant.create_opener(not options.no_cache, stdin, defer_blocks=True, connections=connections)
        name_captures(opening, options.capture)
        opening.start()
    try:
        from torchprof_tui.app import TorchprofApp

        note_phase("app imported")
        if opening is not None:
            opening.wait_until_connected()  # ssh may ask for a password on the terminal before the app draws on it
        app = TorchprofApp(
            opening,
            theme=options.theme,
            cache=not options.no_cache,
            at=options.at,
            debug=options.debug,
            connections=connections,
            configuration=options.configuration,
            **then,
        )
        return terminal.run_app(app, options)
    finally:
        if opening is not None:
            opening.cancel()


def name_captures(opening: TraceOpener, names: Sequence[str]) -> None:
    """Use these captures instead of those beside the trace. Raises UsageError where it cannot, TraceError."""
    if not names:
        return
    paths = tuple(map(importlib.import_module(RESOLVE).resolve_path, names))
    missing = next((name for name in paths if not os.path.exists(name)), None)
    if missing is not None:
        raise UsageError(f"--capture: {missing}: no such file or folder")
    if not opening.set_captures(paths):
        raise UsageError("--capture works with traces on this machine, not with those of other hosts")


def _show_line(text: str) -> None:
    """Replace the line of the shell in which the command was typed; the app draws on another screen."""
    if not os.isatty(2):  # served to a browser
        return
    with contextlib.suppress(OSError):  # the terminal is gone: the exit status still says why the program ended
        os.write(2, f"{ERASE_LINE}{text}".encode())


def _replace_stdin_with_terminal() -> int:
    """Move the piped trace to a new file descriptor, for the worker, and make the terminal stdin, for the keys."""
    if os.isatty(0):
        raise UsageError("-: stdin is the terminal; pipe a trace into it")
    pipe = os.dup(0)
    try:
        terminal = os.open("/dev/tty", os.O_RDONLY)
    except OSError as error:
        raise UsageError("-: there is no terminal to read keys from") from error
    os.dup2(terminal, 0)
    os.close(terminal)
    return pipe
