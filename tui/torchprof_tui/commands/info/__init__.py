"""Declare the options of `torchprof-tui info`."""

from __future__ import annotations

from torchprof_tui.commands.common.options import RANKS_HELP, AsJson, Captures, NoCache, TraceOptions, option


class InfoOptions(TraceOptions):
    trace: tuple[str, ...] = option(
        f"a trace, host:path, a URL, sample:NAME, - for stdin; or host:folder/ to list its traces; {RANKS_HELP}",
        "TRACE",
        is_positional=True,
    )
    no_cache: NoCache = False
    capture: Captures = ()
    json: AsJson = False
