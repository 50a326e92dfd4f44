"""Declare the options of `torchprof-tui perfetto`."""

from __future__ import annotations

from torchprof_tui.commands.common.options import (
    TIME_RANGE_HELP,
    AnyRank,
    KeepMetadata,
    NoCache,
    Number,
    TraceOptions,
    TracesOrAddresses,
    option,
)

PERFETTO_PORT = 9001
"""The only port of this machine from which ui.perfetto.dev may fetch: its content security policy names it."""


class PerfettoOptions(TraceOptions):
    description = (
        "Print a link that opens the trace in Perfetto's UI. The browser fetches the trace from this command, over "
        "127.0.0.1, once; nothing is uploaded. The command ends after that, or with ctrl+c."
    )

    trace: TracesOrAddresses
    no_cache: NoCache = False
    rank: AnyRank = None
    range: str | None = option(f"only this part of it: {TIME_RANGE_HELP}", "T0:T1", exclusive="scope", default=None)
    step: int | None = option("only ProfilerStep#N", "N", exclusive="scope", default=None)
    port: int = option(
        f"port of this machine; other than {PERFETTO_PORT}, forward {PERFETTO_PORT} to it with ssh -L",
        "N",
        number=Number("a port", 1, (1 << 16) - 1),
        default=PERFETTO_PORT,
    )
    keep_metadata: KeepMetadata = False
