"""Ask the user whether to record a large trace: in the terminal, or in the app that started the run.

The question reaches the app as the status phase "asking" (see `status_messages`).
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from .size_estimate import format_megabytes
from .status_messages import ANSWERS_VARIABLE, Reporter

ALL, FEWER, NONE = "y", "f", "n"  # the answers


@dataclass(frozen=True)
class SizeQuestion:
    """Whether to record `steps` steps of `bytes` of JSON in all, or `fewer` ones of `fewer_bytes`."""

    steps: int
    bytes: int
    fewer: int
    fewer_bytes: int

    @property
    def choices(self) -> dict[str, str]:
        """The answers that make sense → what they do."""
        choices = {ALL: f"record {_format_steps(self.steps)}, about {format_megabytes(self.bytes)}"}
        if self.fewer < self.steps:
            choices[FEWER] = f"record {_format_steps(self.fewer)}, about {format_megabytes(self.fewer_bytes)}"
        return {**choices, NONE: "stop, record nothing"}


def find_answerer(environment: Mapping[str, str], reporter: Reporter) -> Callable[[SizeQuestion], str | None] | None:
    """Return a function that asks and waits for the answer; None if nobody can be asked.

    The function returns None if the user went away.
    """
    if path := environment.get(ANSWERS_VARIABLE):
        return lambda question: _ask_app(question, path, reporter)
    return _ask_terminal if _is_user_at_terminal() else None


def _is_user_at_terminal() -> bool:
    """Return whether this process reads from and writes to a terminal, in its foreground."""
    with contextlib.suppress(OSError):
        return os.isatty(0) and os.isatty(2) and os.tcgetpgrp(0) == os.getpgrp()
    return False


def _ask_app(question: SizeQuestion, path: str, reporter: Reporter) -> str | None:
    reporter.report_phase("asking", choices=question.choices)
    with contextlib.suppress(OSError):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            while answer := os.read(descriptor, 1):
                if answer.decode("latin-1") in question.choices:
                    return answer.decode()
        finally:
            os.close(descriptor)
    return None


def _ask_terminal(question: SizeQuestion) -> str | None:
    # The program may have replaced sys.stdin and sys.stderr, so the descriptors are used.
    prompt = "  ".join(f"[{key}] {text}" for key, text in question.choices.items()) + " ? "
    with contextlib.suppress(OSError):
        os.write(2, prompt.encode())
        while line := os.read(0, 1024):
            answer = line.decode("latin-1").strip().lower()[:1]
            if answer in question.choices:
                return answer
            os.write(2, prompt.encode())
    return None


def _format_steps(count: int) -> str:
    return "1 step" if count == 1 else f"{count} steps"
