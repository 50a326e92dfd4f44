"""Declare the options of `torchprof-tui check`."""

from __future__ import annotations

from torchprof_tui.commands.common.errors import UsageError
from torchprof_tui.commands.common.options import (
    AsJson,
    Captures,
    NoCache,
    TraceOptions,
    Traces,
    Undecided,
    option,
    reject_undecided_alone,
)

NOTES_HINTS = {"json": ": JSON always has the notes"}


class CheckOptions(TraceOptions):
    trace: Traces = ()
    no_cache: NoCache = False
    capture: Captures = ()
    json: AsJson = False
    problems: bool = option("print only the verdict and the problems", default=False)
    notes: bool = option("print also the patterns that only help to read the trace", default=False)
    markdown: bool = option("print a Markdown report, for a ticket", default=False)
    list: bool = option("list all patterns; needs no TRACE", default=False)
    fail_on: str | None = option(
        "exit with 1 if one of these was found; `fired`: any that costs time (notes and artefacts do not count); "
        "--json lists them as `failed_on`",
        "PATTERN[,…]|fired",
        default=None,
    )
    undecided: Undecided = None
    range: str | None = option("check only this range: 12.5ms:30ms (µs without a unit)", "T0:T1", default=None)

    def __post_init__(self) -> None:
        """Reject options that cannot be given together, and a missing TRACE."""
        super().__post_init__()
        outputs = [name for name in ("json", "problems", "markdown") if getattr(self, name)]
        if self.list:
            # These say what to do with a trace, and the list is about none.
            others = ("problems", "markdown", "fail_on", "range", "capture", "notes")
            refused = [name for name in others if getattr(self, name)]
            if self.trace:
                raise UsageError("--list lists all patterns: it takes no TRACE")
            if refused:
                raise UsageError(f"--list and --{refused[0].replace('_', '-')} cannot be given together")
        elif not self.trace:
            raise UsageError("no TRACE given (or use --list; see: torchprof-tui check --help)")
        elif self.notes and outputs:
            raise UsageError(f"--notes and --{outputs[0]} cannot be given together" + NOTES_HINTS.get(outputs[0], ""))
        elif len(outputs) > 1:
            raise UsageError(f"--{outputs[0]} and --{outputs[1]} cannot be given together: choose one output")
        reject_undecided_alone(self.fail_on, self.undecided)
