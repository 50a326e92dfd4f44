"""The app itself: the explorer with a trace, the start screen without one."""

from __future__ import annotations

import argparse
import gc
import os

from torchprof_tui.commands import UsageError
from torchprof_tui.trace.loading.resolve import resolve_specs
from torchprof_tui.trace.specs.address import parse_ssh_path

COLOR_SYSTEMS = {"auto": "auto", "truecolor": "truecolor", "256": "256", "16": "standard"}
"""What `--color` says, in textual's words."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "trace",
        nargs="*",
        metavar="TRACE",
        help="a trace (.json, .json.gz, .xz, .zst), host:path, a URL, sample:NAME, or - for stdin; the ranks of one "
        "run as a folder, a pattern or several files; with none, the start screen",
    )
    parser.add_argument("--at", metavar="TIME|STEP", help="where to look first: 12.5ms, 300us, or step3")
    parser.add_argument("--no-cache", action="store_true", help="neither use nor keep what was decoded")
    add_appearance_options(parser)


def add_appearance_options(parser: argparse.ArgumentParser) -> None:
    """How the screen looks, for every command that opens it."""
    parser.add_argument("--theme", choices=("dark", "light"), default="dark")
    parser.add_argument(
        "--color",
        choices=(*COLOR_SYSTEMS, "none"),
        default="auto",
        help="how many colours the terminal shows; ssh does not forward COLORTERM, so auto may say too few",
    )
    parser.add_argument("--no-mouse", action="store_true", help="leave the mouse to the terminal's own selection")


def run(options: argparse.Namespace) -> int:
    if options.at is not None and not options.trace:
        raise UsageError("--at needs a trace to look at")
    meant = resolve_specs(options.trace) if options.trace else None
    _require_terminal(None if meant is None else meant.path)
    set_color_environment(options.color)
    # Nothing made before the first frame is garbage, and the app has a policy of its own.
    gc.disable()
    opening = None
    if meant is not None:
        stdin = _replace_stdin_with_terminal() if meant.path == "-" else None
        opening = meant.create_opener(cache=not options.no_cache, stdin=stdin, allow_prompt=True, defer_blocks=True)
        opening.start()
    try:
        from torchprof_tui.app import TorchprofApp

        if opening is not None and meant is not None and any(map(parse_ssh_path, meant.remote_names or (meant.path,))):
            opening.wait_until_connected()  # ssh may ask for a password, and no screen must be in its way
        app = TorchprofApp(opening, theme=options.theme, cache=not options.no_cache, at=options.at, debug=options.debug)
        app.run(mouse=not options.no_mouse)
    finally:
        if opening is not None:
            opening.cancel()
    if app.failure:
        raise UsageError(app.failure)
    return app.return_code or 0


def set_color_environment(color: str) -> None:
    """Tell textual, which reads its environment when it is imported. A choice on the command line beats NO_COLOR."""
    if color == "none":
        os.environ["NO_COLOR"] = "1"
    elif color != "auto":
        os.environ.pop("NO_COLOR", None)
        os.environ["TEXTUAL_COLOR_SYSTEM"] = COLOR_SYSTEMS[color]


def _require_terminal(spec: str | None) -> None:
    # Textual draws on stderr, so that stdout stays free for a pipe.
    if os.isatty(2) and (spec == "-" or os.isatty(0)):
        return
    named = spec or "TRACE"
    raise UsageError(f"the explorer needs a terminal; without one: torchprof-tui info {named}, or snapshot")


def _replace_stdin_with_terminal() -> int:
    """The pipe for the loader, as a file of its own; our stdin becomes the terminal, where the keys come from."""
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
