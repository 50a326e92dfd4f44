"""Declare the options of `torchprof-tui diff`."""

from __future__ import annotations

from typing import Literal

from torchprof_tui.commands.common.options import PICTURE, TraceOptions, Undecided, option, reject_undecided_alone

Grouping = Literal["op", "module", "kernel", "class", "cause"]
"""What the rows of the second table are: `class` and `cause` group the account, the others match events."""

_TRACE = "a trace, sample:NAME, host:path, a URL, a folder of ranks"


class DiffOptions(TraceOptions):
    a: str = option(f"the recording to compare with: {_TRACE}", "A", is_positional=True)
    b: str = option("the recording that changed; the same path for two steps of one trace", "B", is_positional=True)
    json: bool = option("one JSON document on stdout", exclusive="output", default=False)
    markdown: bool = option("a report for a ticket, as Markdown", exclusive="output", default=False)
    screen: bool = option(
        "both traces' lanes on one screen, locked in time (key D in the explorer)", exclusive="output", default=False
    )
    steps: str | None = option(
        "these steps: 3..7 or '#3'; 3..7/8..12: the first of A, the second of B",
        "N..M",
        exclusive="selection",
        default=None,
    )
    range: str | None = option(
        "this time: 12ms..30ms; 12ms..30ms/5ms..23ms: the first of A, the second of B",
        "T0..T1",
        exclusive="selection",
        default=None,
    )
    rank: str | None = option("of several ranks this one (the first); 0/3: of A and of B", "N", default=None)
    by: Grouping = option("what the rows are (default: op)", default="op")
    fail_on: str | None = option(
        "exit status 1 if a step of B takes that much longer than one of A (+5%%, +200us), beyond the noise",
        "+5%",
        default=None,
    )
    undecided: Undecided = None
    capture: tuple[str, ...] = option(
        "a trace of the capture of graphs that A or B replays, or a folder of such: replays are compared op by op "
        "(default: capture_traces/ beside each)",
        "PATH",
        default=(),
    )
    output: str | None = option(f"also draw the waterfall: {PICTURE}", "OUT", short="-o", default=None)
    no_cache: bool = option("neither use nor keep what was decoded", default=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        reject_undecided_alone(self.fail_on, self.undecided)
