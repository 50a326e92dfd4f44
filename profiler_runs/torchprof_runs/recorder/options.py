"""Parse the harness's command line into one frozen value."""

from __future__ import annotations

import argparse
from dataclasses import asdict, dataclass
from typing import Any, NoReturn

DEFAULT_OUTPUT_FOLDER = "torchprof_runs"
# Step 0 contains the program's start-up, step 1 is measured by the preflight, step 2 warms up. Three recorded steps
# are enough to see whether the first differs from those that repeat.
DEFAULT_WAIT, DEFAULT_WARMUP, DEFAULT_ACTIVE, DEFAULT_REPEAT = 2, 1, 3, 1
STEP_KEYWORDS = ("auto", "optimizer", "none")


class UsageError(Exception):
    """The command line is wrong; the message says how, in one line."""


@dataclass(frozen=True)
class Options:
    """The parsed command line. Times are seconds, memory is megabytes; None: the option was not used.

    `table`: torch's table is written (True), not written (False), or written for few enough events (None).
    """

    command: tuple[str, ...]
    module: bool = False
    wait: int | None = None
    warmup: int | None = None
    active: int | None = None
    repeat: int | None = None
    record_shapes: bool = False
    profile_memory: bool = False
    with_stack: bool = False
    with_flops: bool = False
    with_modules: bool = False
    capture: bool = False
    memory_snapshot: bool = False
    watch_hang: float | None = None
    step: str = "auto"
    after: float | None = None
    duration: float | None = None
    then: str | None = None
    nproc: int | None = None
    output: str = DEFAULT_OUTPUT_FOLDER
    preflight: bool = True
    table: bool | None = None
    max_memory: int | None = None
    max_size: int | None = None
    yes: bool = False

    @property
    def is_timed(self) -> bool:
        """Whether a window of time is recorded instead of steps."""
        return self.after is not None or self.duration is not None

    def as_dict(self) -> dict[str, Any]:
        """Return the options for the manifest: everything except the command."""
        return {key: value for key, value in asdict(self).items() if key not in ("command", "module")}

    def as_argv(self) -> list[str]:
        """Return the options that a rank is started with: all of them except the command and --nproc."""
        argv: list[str] = []
        for flag, value in (
            ("--wait", self.wait),
            ("--warmup", self.warmup),
            ("--active", self.active),
            ("--repeat", self.repeat),
            ("--step", self.step),
            ("--after", self.after),
            ("--for", self.duration),
            ("--then", self.then),
            ("--watch-hang", self.watch_hang),
            ("--max-memory", self.max_memory),
            ("--max-size", self.max_size),
            ("--output", self.output),
        ):
            if value is not None:
                argv += [flag, str(value)]
        for flag, is_set in (
            ("--record-shapes", self.record_shapes),
            ("--profile-memory", self.profile_memory),
            ("--with-stack", self.with_stack),
            ("--with-flops", self.with_flops),
            ("--with-modules", self.with_modules),
            ("--capture", self.capture),
            ("--memory-snapshot", self.memory_snapshot),
            ("--no-preflight", not self.preflight),
            ("--table", self.table is True),
            ("--no-table", self.table is False),
            ("--yes", self.yes),
        ):
            if is_set:
                argv.append(flag)
        return argv


class _OneLineParser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message} (--help lists the options)")


def _count(text: str) -> int:
    number = int(text)
    if number < 0:
        raise argparse.ArgumentTypeError(f"{text} is negative")
    return number


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is not 1 or more")
    return number


def _seconds(text: str) -> float:
    number = float(text)
    if not 0 <= number < 1e9:
        raise argparse.ArgumentTypeError(f"{text} is not a number of seconds")
    return number


def _build_parser() -> argparse.ArgumentParser:
    parser = _OneLineParser(
        prog="harness.py",
        usage="harness.py [options] (SCRIPT | -m MODULE | WORKLOAD | torchrun …) [ARGS…]",
        description="Run a PyTorch program unchanged under torch.profiler and keep what was recorded.",
        allow_abbrev=False,
    )
    steps = parser.add_argument_group("which steps", "as for torch.profiler.schedule")
    steps.add_argument("--wait", type=_count, metavar="N", help="steps to skip before the warm-up (default 2)")
    steps.add_argument(
        "--warmup",
        type=_count,
        metavar="N",
        help="steps to profile without keeping them, to warm up the profiler (default 1)",
    )
    steps.add_argument("--active", type=_positive, metavar="N", help="steps to record (default 3)")
    steps.add_argument(
        "--repeat", type=_count, metavar="N", help="cycles to record; 0: until the program ends (default 1)"
    )
    steps.add_argument(
        "--step",
        default="auto",
        metavar="auto|optimizer|MODULE:FUNCTION|none",
        help="what counts as a step: an optimizer step, each call of a function, or none (record the whole run); "
        "auto: optimizer steps if there are any, else the whole run",
    )
    window = parser.add_argument_group("record a window of time instead of steps")
    window.add_argument("--after", type=_seconds, metavar="SECONDS", help="start recording after this long")
    window.add_argument("--for", type=_seconds, dest="duration", metavar="SECONDS", help="record for this long")
    parser.add_argument(
        "--then",
        choices=("stop", "finish"),
        help="after the recording: stop the program (default) or let it finish",
    )
    parser.add_argument(
        "--keep-going",
        dest="then",
        action="store_const",
        const="finish",
        help="let the program run on after the recording: --then finish",
    )
    what = parser.add_argument_group("record more than ops and kernels; each option slows the program")
    what.add_argument("--record-shapes", action="store_true", help="the shapes of each op's inputs")
    what.add_argument("--profile-memory", action="store_true", help="allocations and frees")
    what.add_argument("--with-stack", action="store_true", help="every Python call; traces become large")
    what.add_argument("--with-flops", action="store_true", help="estimated FLOPs of matmuls and convolutions")
    what.add_argument("--with-modules", action="store_true", help="the module hierarchy (TorchScript)")
    what.add_argument(
        "--capture", action="store_true", help="the captures of CUDA graphs: the ops of replayed kernels (graph_replay)"
    )
    what.add_argument(
        "--memory-snapshot", action="store_true", help="the CUDA allocator's history with stacks, in a file of its own"
    )
    _add_output_options(parser)
    parser.add_argument("-m", dest="module", nargs=argparse.REMAINDER, metavar="MODULE", help="run a module")
    parser.add_argument("command", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    return parser


def _add_output_options(parser: argparse.ArgumentParser) -> None:
    """Add the options about ranks, files and limits."""
    parser.add_argument(
        "--watch-hang",
        type=_seconds,
        metavar="SECONDS",
        help="when no step ends for this long, write the flight recorder and the stacks of each rank",
    )
    parser.add_argument("--nproc", type=_positive, metavar="N", help="start N ranks on this machine")
    parser.add_argument("-o", "--output", default=DEFAULT_OUTPUT_FOLDER, metavar="FOLDER", help="folder for runs")
    parser.add_argument(
        "--max-memory",
        type=_positive,
        metavar="MB",
        help="end the recording when the program's memory has grown by this much",
    )
    parser.add_argument(
        "--max-size",
        type=_positive,
        metavar="MB",
        help="above this size of the JSON, ask or record fewer steps (default 1000)",
    )
    parser.add_argument("-y", "--yes", action="store_true", help="record all steps above --max-size without asking")
    parser.add_argument(
        "--no-preflight", dest="preflight", action="store_false", help="do not record a test step to estimate the size"
    )
    table = parser.add_mutually_exclusive_group()
    table.add_argument("--table", action="store_true", default=None, help="write torch's table of a large trace, too")
    table.add_argument(
        "--no-table",
        dest="table",
        action="store_false",
        default=None,
        help="write only the trace, without torch's table",
    )


def parse_options(argv: list[str]) -> Options:
    """Parse `argv`. Raises UsageError with a message of one line; --help prints and exits."""
    values = vars(_build_parser().parse_args(argv))
    module: list[str] | None = values.pop("module")
    command: list[str] = values.pop("command")
    if module is not None:
        command = module
    elif command[:1] == ["--"]:
        command = command[1:]
    if not command:
        raise UsageError("no program to run: name a script, -m MODULE or a workload (--help lists the options)")
    options = Options(command=tuple(command), module=module is not None, **values)
    _check_options(options)
    return options


def _check_options(options: Options) -> None:
    if options.step not in STEP_KEYWORDS and not all(options.step.partition(":")):
        raise UsageError(
            f"--step {options.step}: use auto, optimizer, none or MODULE:FUNCTION, such as train:train_step"
        )
    steps = (options.wait, options.warmup, options.active, options.repeat)
    if options.is_timed and options.step not in ("auto", "none"):
        raise UsageError(f"--step {options.step} and --after/--for: choose steps or a window of time, not both")
    if (options.is_timed or options.step == "none") and any(value is not None for value in steps):
        raise UsageError("--wait, --warmup, --active and --repeat need steps, but --step none has none")
    if options.watch_hang == 0:
        raise UsageError("--watch-hang 0: a step takes longer than that")
    if options.duration == 0:
        raise UsageError("--for 0 records nothing")
