"""Try remedies: `torchprof-tui try`."""

from __future__ import annotations

import contextlib
import importlib
import math
import signal
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from torchprof_try.answers import build_tried, format_patches
from torchprof_try.command import INTERRUPTED_STATUS, TryOptions
from torchprof_try.remedies import BY_NAME, combine
from torchprof_try.trials import TrialRequest, Trials, is_recorded_run, read_recorded_run
from torchprof_tui.commands.common.errors import UsageError
from torchprof_tui.commands.common.output import print_answer
from torchprof_tui.commands.common.terminal import find_terminal_problem, show_screen


def run(options: TryOptions) -> int:
    with contextlib.closing(Trials(build_request(options))) as trials:
        is_printed = options.json or options.markdown or options.text
        if is_printed or not sys.stdout.isatty() or find_terminal_problem():
            status = _run_in_terminal(trials)
        else:
            status = show_screen(options, trials)
        tried = build_tried(trials)
        if options.json:
            print_answer(tried)
        else:
            # imports rich, which JSON does not need
            text = importlib.import_module("torchprof_try.command.text")
            text.print_markdown(tried) if options.markdown else text.print_tried(tried)
        if options.write_patch is not None:
            won = [each for each in tried.remedies if each.won and not each.parts and each.loss != "different"]
            names = [remedy.name for remedy in combine([BY_NAME[each.name] for each in won])]
            Path(options.write_patch).write_text(format_patches(tried, names, trials.places), encoding="utf-8")
    return status


def _run_in_terminal(trials: Trials) -> int:
    """Try all, with a line of progress on stderr where somebody may read it. Returns the exit status."""
    try:
        with _one_interrupt(), contextlib.closing(trials.run()) as lines:
            for line in lines:
                if sys.stderr.isatty():
                    print(f"torchprof-tui: {line}", file=sys.stderr, flush=True)
    except KeyboardInterrupt:
        return INTERRUPTED_STATUS
    return 0


@contextlib.contextmanager
def _one_interrupt() -> Iterator[None]:
    """Let the first of ctrl+c, SIGTERM and SIGHUP end the trials; later ones are ignored while processes end."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

    def interrupt(*_: object) -> None:
        for number in numbers:
            signal.signal(number, signal.SIG_IGN)
        raise KeyboardInterrupt

    before = [signal.signal(number, interrupt) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)


def build_request(options: TryOptions) -> TrialRequest:
    """Build the request of a command line. Raises UsageError."""
    if not options.command:
        raise UsageError("name the program: torchprof-tui try -- python train.py")
    found = TrialRequest(options.command)
    if is_recorded_run(options.command):
        found = read_recorded_run(options.command[0])
    return replace(
        found,
        python=options.python or found.python,
        step=options.step if options.step != "auto" else found.step,
        only=_split(options.only),
        without=_split(options.without),
        everything=options.all,
        limit=float(options.time_limit),
        keep=options.keep_trace,
        max_seconds=options.max_time or math.inf,
        max_runs=options.max_runs or math.inf,
        **{name: getattr(options, name) for name in ("steps", "warmup", "repeat", "seed", "allow_writes")},
    )


def _split(names: str | None) -> tuple[str, ...]:
    return tuple(name.strip() for name in names.split(",") if name.strip()) if names else ()
