"""Declare the options of `torchprof-tui snapshot`."""

from __future__ import annotations

from torchprof_tui.commands.common.options import PICTURE, Captures, NoCache, Theme, TraceOptions, option


class SnapshotOptions(TraceOptions):
    trace: tuple[str, ...] = option(
        "a trace, sample:NAME, or the ranks of one run; without one, the start screen",
        "TRACE",
        is_positional=True,
        default=(),
    )
    size: str = option("columns x lines (default 160x48)", "WxH", default="160x48")
    keys: str = option("keys to press, by Textual's names, separated by commas: w,w,right,c", default="")
    output: str = option(f"OUT.txt, {PICTURE}", "OUT", short="-o")
    theme: Theme = "dark"
    capture: Captures = ()
    no_cache: NoCache = False
