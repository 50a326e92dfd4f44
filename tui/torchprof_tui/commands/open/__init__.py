"""Declare the options of `torchprof-tui TRACE`, which opens the app."""

from __future__ import annotations

from torchprof_tui.commands.common.options import Captures, NoCache, ScreenOptions, TraceOptions, option


class OpenOptions(ScreenOptions, TraceOptions):
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
