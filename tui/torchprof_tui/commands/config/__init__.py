"""Declare the options of `torchprof-tui config`."""

from __future__ import annotations

from torchprof_tui.commands.common.options import Options, option


class ConfigOptions(Options):
    check: bool = option("exit with 2 and one line for each mistake in the file", exclusive="action", default=False)
    init: bool = option(
        "write a file with every setting commented out; never replaces one", exclusive="action", default=False
    )
    keys: bool = option("list the ids of all bindings with their keys", exclusive="action", default=False)
