"""Declare the options of `torchprof-tui try`."""

from __future__ import annotations

from torchprof_tui.commands.common.options import AsJson, Number, ScreenOptions, option

INTERRUPTED_STATUS = 130  # exit status where the table is not full, because the user ended the trials
LEAST_RUNS = 5  # the program as it is three times, a recording, and one remedy

_STEPS = Number("a number from 2 on", 2, 99_999)


class TryOptions(ScreenOptions):
    command_name = "try"
    description = (
        "Run a program as it is, then once with each remedy that its trace suggests and that needs no change of the "
        "source, then the best together, and print what each really won. The program must be repeatable: it is stopped "
        "where it would change a file that was there before, and files that it creates are removed. In a terminal as a "
        "screen, in a pipe as text."
    )

    command: tuple[str, ...] = option(
        "the program with its arguments: FILE, -m MODULE, torchrun … FILE, or a built-in workload; after --; or a "
        "trace, whose run is repeated",
        "PROGRAM",
        is_positional=True,
    )
    only: str | None = option("try these alone, with or without evidence", "A,B", default=None)
    without: str | None = option("do not try these", "A,B", default=None)
    all: bool = option("try all, also those without evidence", default=False)
    steps: int = option("steps to measure in each process (default 30)", "N", number=_STEPS, default=30)
    warmup: int = option("steps before them (default 5)", "N", number=Number("a number from 1 on", 1), default=5)
    repeat: int = option("run winners so many times more (default 1)", "N", number=Number("a number"), default=1)
    time_limit: int = option(
        "seconds to measure in each process, at most (default 60)",
        "S",
        number=Number("a number from 1 on", 1),
        default=60,
    )
    max_time: int | None = option(
        "begin no further run after so many seconds", "S", number=Number("a number from 1 on", 1), default=None
    )
    max_runs: int | None = option(
        f"start the program so many times at most, {LEAST_RUNS} at least",
        "N",
        number=Number(f"a number from {LEAST_RUNS} on", LEAST_RUNS),
        default=None,
    )
    step: str = option("what ends a step, as run takes it (default auto)", "auto|MODULE:FUNCTION", default="auto")
    python: str | None = option("the interpreter of the program (default: as run finds it)", "PATH", default=None)
    seed: int = option("of random, numpy and torch (default 0)", "N", number=Number("a number"), default=0)
    allow_writes: bool = option("let the program change files that were there before", default=False)
    keep_trace: str | None = option("keep the recording in this folder", "FOLDER", default=None)
    write_patch: str | None = option("write the patches of the winners into this file", "FILE", default=None)
    json: AsJson = False
    markdown: bool = option("print the table as Markdown, for a pull request", default=False)
    text: bool = option("print the table when all is tried, also in a terminal", default=False)
