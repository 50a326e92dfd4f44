"""Define cases: all that a session reads, and what the user does in it. A case is a literal, so `repr` keeps it."""

from __future__ import annotations

from dataclasses import dataclass

FOLDER = "torchprof_runs/run1"
"""Folder of the trace and of the files of its run, below the current folder; the start screen and `R` look there."""

TRACE = f"{FOLDER}/a.json"


@dataclass(frozen=True, slots=True)
class Inputs:
    """What a session reads. The defaults are an intact, empty session around `trace`.

    `run_files`: (name, bytes) in the trace's folder. `recent`: the list of recent traces. `answer`: what the host `box`
    answers to ssh. `status_lines` and `console`: what a recorded program writes to the status pipe and prints.
    `environment`: (name, value; None: unset); `{root}` stands for the session's folder, `{file}` for a file in it.
    `cache_flips`: (file, offset, bit) of bits to flip in the trace's cache entry, both modulo what there is; None: the
    session does not use the cache.
    """

    trace: bytes
    run_files: tuple[tuple[str, bytes], ...] = ()
    recent: bytes | None = None
    answer: bytes = b""
    status_lines: bytes = b""
    console: bytes = b""
    environment: tuple[tuple[str, str | None], ...] = ()
    cache_flips: tuple[tuple[int, int, int], ...] | None = None


@dataclass(frozen=True, slots=True)
class CommandCase:
    """One call of the command line. `encoding`: that of stdout and stderr."""

    inputs: Inputs
    words: tuple[str, ...]
    encoding: str = "utf-8"


@dataclass(frozen=True, slots=True)
class ScreenCase:
    """One session of the app, from the start screen or with the trace.

    `bursts`: keys by textual's names; those of a burst are sent without waiting. `resize:WxH` resizes the terminal and
    `click:X,Y` clicks.
    """

    inputs: Inputs
    bursts: tuple[tuple[str, ...], ...] = ()
    size: tuple[int, int] = (120, 40)
    opens_trace: bool = True
    at: str | None = None


@dataclass(frozen=True, slots=True)
class TerminalCase:
    """One session of the program in a terminal. `keys`: bytes to send after the first output."""

    inputs: Inputs
    words: tuple[str, ...] = (TRACE,)
    keys: bytes = b"q"
    size: tuple[int, int] = (80, 24)
