"""Declare the options of `torchprof-tui TRACE`, which opens the app."""

from __future__ import annotations

from typing import Annotated, Literal

from torchprof_tui.commands.common.options import Argument, Captures, NoCache, TraceOptions, option

COLOR_SYSTEMS = {"auto": "auto", "truecolor": "truecolor", "256": "256", "16": "standard"}
"""Values of `--color` and textual's names for them; `none` is none of its systems."""

Theme = Annotated[Literal["dark", "light"], Argument()]
Color = Annotated[
    Literal["auto", "truecolor", "256", "16", "none"],
    Argument("colours of the terminal; over ssh auto may choose too few, because COLORTERM is not forwarded"),
]
Pictures = Annotated[
    Literal["auto", "kitty", "blocks"] | None,
    Argument("pictures where the terminal says that it draws them (kitty, ghostty), or characters everywhere"),
]
NoMouse = Annotated[
    bool,
    Argument(
        "do not use the mouse, so that the terminal can select text",
        off_flag=("--mouse", "use the mouse where the configuration file says no"),
    ),
]


class OpenOptions(TraceOptions):
    trace: tuple[str, ...] = option(
        "a trace (.json, .json.gz, .xz, .zst), host:path, a URL, sample:NAME, or - for stdin; the ranks of one "
        "run as a folder, a pattern or several files; without one, the start screen",
        "TRACE",
        is_positional=True,
        default=(),
    )
    at: str | None = option("time or step to show first: 12.5ms, 300us, step3", "TIME|STEP", default=None)
    capture: Captures = ()
    no_cache: NoCache = False
    theme: Theme = "dark"
    color: Color = "auto"
    pictures: Pictures = None
    no_mouse: NoMouse = False
