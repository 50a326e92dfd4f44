"""Try remedies: `torchprof-tui try`."""

from __future__ import annotations

import contextlib
import importlib
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

from torchprof_try.answers import Tried, build_tried
from torchprof_try.command import TryOptions
from torchprof_try.trials import TrialRequest, Trials
from torchprof_tui.commands.common.errors import UsageError
from torchprof_tui.commands.common.output import print_answer

INTERRUPTED_STATUS = 130


def run(options: TryOptions) -> int:
    trials = Trials(build_request(options))
    status = 0
    try:
        with _one_interrupt(), contextlib.closing(trials.run()) as lines:
            for line in lines:
                if sys.stderr.isatty():
                    print(f"torchprof-tui: {line}", file=sys.stderr, flush=True)
    except KeyboardInterrupt:
        status = INTERRUPTED_STATUS
    tried = build_tried(trials)
    if options.json:
        print_answer(tried)
    else:
        # imports rich, which JSON does not need
        text = importlib.import_module("torchprof_try.command.text")
        text.print_markdown(tried) if options.markdown else text.print_tried(tried)
    if options.write_patch is not None:
        _write_patches(options.write_patch, tried)
    return status


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
    command, python = options.command, options.python or sys.executable
    if Path(command[0]).name.startswith(("python", "pypy")) and len(command) > 1:
        python, command = options.python or command[0], command[1:]
    return TrialRequest(
        command,
        python,
        _split(options.only),
        _split(options.without),
        options.all,
        options.steps,
        options.warmup,
        float(options.time_limit),
        options.repeat,
        options.seed,
        options.step,
        options.allow_writes,
        options.keep_trace,
    )


def _split(names: str | None) -> tuple[str, ...]:
    return tuple(name.strip() for name in names.split(",") if name.strip()) if names else ()


def _write_patches(path: str, tried: Tried) -> None:
    """Write what to change for each winner: lines of Python or of the shell, for review."""
    parts = [
        f"# {each.name}: {each.says}; saved {each.saved_share:.0%} of a step, "
        f"losses {each.loss or 'not seen'}\n{each.patch}\n"
        for each in tried.remedies
        if each.won and not each.parts
    ]
    Path(path).write_text("\n".join(parts), encoding="utf-8")
