"""Declare the options of `torchprof-tui attach`."""

from __future__ import annotations

from typing import Annotated

from torchprof_attach.session import DEFAULT_STEPS, DEFAULT_TIMEOUT, OPTIONS, Wish
from torchprof_tui.commands.common.options import Argument, AsJson, Number, ScreenOptions, option
from torchprof_tui.trace.core.time_format import parse_time

DEFAULT_KEEP = 5
SECTION = "what is recorded, as far as the way takes it"


class AttachOptions(ScreenOptions):
    command_name = "attach"
    description = (
        "Record a job that is already running, without a restart: a list of the ranks of yours on this host and "
        "others, of which enter records one and r all at the same iteration. With PID or --all it records without "
        "a screen. A job can be recorded if it was started with KINETO_USE_DAEMON=1 (any torch of Linux since 2.1), "
        "is a server of vLLM or SGLang with its profiler on, was started by torchprof-tui run, or has called "
        "torchprof_runs.install(). Nothing is installed on other hosts; python3 runs there."
    )

    target: tuple[str, ...] = option(
        "hosts for ssh (this one without), and pids to record", "HOST|PID", is_positional=True, default=()
    )
    list: bool = option("print the processes, record nothing", default=False, exclusive="what")
    all: bool = option("record all ranks of the job at the same iteration", default=False, exclusive="what")
    steps: int = option(
        f"iterations to record (default: {DEFAULT_STEPS})",
        "N",
        number=Number("a number from 1 to 10000", 1, 10_000),
        default=DEFAULT_STEPS,
        exclusive="length",
    )
    window: str | None = option(
        "record for a time, 300ms, not iterations; where the trace is empty then, iterations are recorded",
        "TIME",
        default=None,
        exclusive="length",
    )
    output: str | None = option(
        "the trace, or the folder of several (default: a new name below ./attached)", "PATH", short="-o", default=None
    )
    every: str | None = option("record again and again, each 30m, 90s or 2h, until ctrl+c", "TIME", default=None)
    keep: int = option(
        f"with --every: recordings to keep, the oldest goes (default: {DEFAULT_KEEP})",
        "N",
        number=Number("a number from 1 on", 1, 99_999),
        default=DEFAULT_KEEP,
    )
    watch_hang: int | None = option(
        "when no step ends for this long, write what each rank waits for (flight recorder, stacks) below ./attached or "
        "-o, and say which rank did not come; until ctrl+c. Records as well only with --every, and on the screen",
        "SECONDS",
        number=Number("a number of seconds from 1 to 86400", 1, 86_400),
        default=None,
    )
    timeout: int = option(
        f"seconds to wait for a trace (default: {DEFAULT_TIMEOUT})",
        "S",
        number=Number("a number of seconds from 1 to 86400", 1, 86_400),
        default=DEFAULT_TIMEOUT,
    )
    inject: bool = option("allow sys.remote_exec: run the recorder inside of a process of Python 3.14", default=False)
    shapes: Annotated[
        bool, Argument("record shapes (default)", section=SECTION, off_flag=("--no-shapes", "do not record shapes"))
    ] = True
    memory: bool = option("record allocations", default=False, section=SECTION)
    stacks: bool = option("record Python stacks; slows the recorded iterations", default=False, section=SECTION)
    flops: bool = option("record FLOPs", default=False, section=SECTION)
    modules: bool = option("record modules", default=False, section=SECTION)
    json: AsJson = False

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("window", "every"):
            value = getattr(self, name)
            if value is not None and parse_seconds(value) is None:
                self._refuse(f"argument --{name}: {value!r} is no time (write it like 300ms, 90s, 30m or 2h)")
        if self.every is not None and not self.records:
            self._refuse("--every needs a PID or --all")
        if self.list and self.watch_hang is not None:
            self._refuse("--list only prints; --watch-hang watches")
        if self.list and self.pids:
            self._refuse("--list takes hosts, not pids")

    @property
    def pids(self) -> tuple[int, ...]:
        return tuple(int(word) for word in self.target if is_pid(word))

    @property
    def hosts(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(word for word in self.target if not is_pid(word)))

    @property
    def records(self) -> bool:
        """Whether it records without a screen."""
        return bool(self.pids) or self.all

    @property
    def wish(self) -> Wish:
        """What is to be recorded."""
        seconds = None if self.window is None else parse_seconds(self.window)
        chosen = tuple(name for name in OPTIONS if getattr(self, name))
        window = None if seconds is None else max(round(seconds * 1000), 1)
        return Wish(self.steps, window, chosen, self.timeout, self.inject)


def is_pid(word: str) -> bool:
    return word.isascii() and word.isdecimal() and len(word) <= 9


def parse_seconds(text: str) -> float | None:
    """Parse 300ms, 90s, 30m or 2h; None for anything else, and for nothing."""
    minutes = {"m": 60, "h": 3600}.get(text[-1:])
    if minutes is not None and text[:-1].isdecimal():
        seconds = float(text[:-1]) * minutes
    elif text[-1:] == "s" and not text.startswith("-"):
        try:
            seconds = parse_time(text) / 1e9
        except ValueError:
            return None
    else:
        return None
    return seconds if 0 < seconds < 10**7 else None
