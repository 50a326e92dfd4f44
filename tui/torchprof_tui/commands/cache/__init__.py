"""Declare the options of `torchprof-tui cache`."""

from __future__ import annotations

from torchprof_tui.commands.common.options import AsJson, Options, option


class CacheOptions(Options):
    clear: bool = option("remove all entries, except those of traces that are open now", default=False)
    json: AsJson = False
