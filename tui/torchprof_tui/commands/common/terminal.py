"""What a command does before it shows a screen: find out whether the terminal can show it, and prepare the app.

Standard library only: a command that prints imports this, too.
"""

from __future__ import annotations

import gc
import importlib
import os
from typing import TYPE_CHECKING

from torchprof_tui.commands.common.errors import UsageError
from torchprof_tui.commands.common.options import ScreenOptions
from torchprof_tui.program.config_file import PICTURES_VARIABLE

if TYPE_CHECKING:
    from torchprof_tui.app import TorchprofApp

COLOR_SYSTEMS = {"truecolor": "truecolor", "256": "256", "16": "standard"}
"""Values of `--color` and textual's names for them; `none` is none of its systems."""

LINE_TERMINALS = ("dumb", "unknown")  # values of TERM of terminals that cannot place the cursor


def prepare_app(options: ScreenOptions) -> None:
    """Prepare the import of the app: set the variables that textual reads then, and disable the cyclic collector.

    `--color` overrides NO_COLOR. Nothing allocated before the first frame is garbage; the app collects by its own
    policy.
    """
    gc.disable()
    if options.color == "none":
        os.environ["NO_COLOR"] = "1"
    elif options.color != "auto":
        os.environ.pop("NO_COLOR", None)
        os.environ["TEXTUAL_COLOR_SYSTEM"] = COLOR_SYSTEMS[options.color]
    if options.pictures is not None:
        os.environ[PICTURES_VARIABLE] = options.pictures


def show_screen(options: ScreenOptions, *arguments: object) -> int:
    """Call `open_screen` of the module `screen` beside the options. It imports textual, which text does not need."""
    prepare_app(options)
    status: int = importlib.import_module(f"{type(options).__module__}.screen").open_screen(options, *arguments)
    return status


def run_app(app: TorchprofApp, options: ScreenOptions) -> int:
    """Run an app until the user leaves; return the exit status. Raises UsageError where its trace cannot be opened.

    What was imported is excluded from collections: the first one would visit all of it right after a frame.
    """
    gc.freeze()
    app.run(mouse=not options.no_mouse)
    if app.failure:
        raise UsageError(app.failure)
    return app.return_code or 0


def require_terminal(spec: str | None) -> None:
    """Raise UsageError where the app cannot draw."""
    problem = find_terminal_problem(spec == "-")
    if problem:
        works = f"torchprof-tui info {spec or 'TRACE'}, check, table, or snapshot -o OUT.svg"
        raise UsageError(f"{problem}; what works here: {works}")


def find_terminal_problem(is_trace_piped: bool = False) -> str:
    """Say why the app cannot draw: there is no terminal, or one that only prints lines; "" where it can."""
    if os.environ.get("TEXTUAL_DRIVER"):  # textual-serve: a browser is the terminal
        return ""
    # Textual draws on stderr: stdout may be a pipe.
    if not os.isatty(2) or not (is_trace_piped or os.isatty(0)):
        return "the explorer needs a terminal"
    if os.environ.get("TERM") in LINE_TERMINALS:
        return f"TERM={os.environ['TERM']}: this terminal cannot show the explorer"
    return ""
