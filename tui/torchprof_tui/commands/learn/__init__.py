"""Declare the options of `torchprof-tui learn`."""

from __future__ import annotations

from torchprof_tui.commands.common.options import AsJson, NoCache, ScreenOptions, TraceOptions, option


class LearnOptions(ScreenOptions, TraceOptions):
    description = (
        "Learn to read traces. A case is a sample and a few questions: what do you expect, look at it on the real "
        "screens, read what it is with the numbers of this trace. With a trace of yours, what `check` finds in it is "
        "asked. Without a name: the list of cases."
    )

    case: tuple[str, ...] = option(
        "a case by its name, its title or how one begins, its file (.toml), or a trace: path, sample:NAME, host:path",
        "CASE",
        is_positional=True,
        default=(),
    )
    list: bool = option("print the cases and how many answers were as expected", exclusive="output", default=False)
    text: bool = option("print the questions, answers and explanations", exclusive="output", default=False)
    json: AsJson = False
    no_cache: NoCache = False
