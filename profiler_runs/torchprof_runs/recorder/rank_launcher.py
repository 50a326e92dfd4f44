"""Several ranks: started here (--nproc), or by torchrun, each of them recorded, all into one folder."""

from __future__ import annotations

import contextlib
import glob
import importlib
import importlib.util
import json
import os
import signal
import socket
import subprocess
import sys
import time
from typing import Any

from . import run_folder
from .atomic_files import explain_os_error, write_json
from .exit_handlers import end_by_signal, end_with_parent
from .manifest import SCHEMA_VERSION
from .options import Options, UsageError
from .status_messages import STATUS_VARIABLE, Reporter

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_TORCHRUN_MODULES = ("torch.distributed.run", "torch.distributed.launch")
_FORWARDED_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
POLL_SECONDS = 0.05  # seconds
FAILURE_GRACE_SECONDS = 5.0  # seconds for the others to notice that a rank has died, before they are told
SAVE_WITHIN_SECONDS = 120.0  # seconds for a rank that was told to end, before it is killed


def is_multi_rank(options: Options) -> bool:
    """Whether this command starts several processes rather than being one of them."""
    return options.nproc is not None or _is_torchrun(options)


def run_ranks(options: Options, reporter: Reporter) -> int:
    """Start the ranks, see them to their end, and write a manifest over theirs; the exit status.

    That is the status of the first rank that failed, 128 more than the number of a signal that ended it.
    """
    if importlib.util.find_spec("torch") is None:
        raise UsageError(f"no torch in {sys.executable}: run with the interpreter that runs your program")
    commands = _build_torchrun_commands(options) if _is_torchrun(options) else _build_rank_commands(options)
    try:
        path = run_folder.create_folder(options.output, run_folder.make_stem(_find_program_name(options)))
    except OSError as error:
        raise UsageError(f"cannot make a folder in {options.output}: {error.strerror or error}") from error
    launch = _RankLauncher(options, path, reporter)
    return launch.run(commands)


class _RankLauncher:
    def __init__(self, options: Options, path: str, reporter: Reporter) -> None:
        self._options, self._path, self._reporter = options, path, reporter
        self._children: list[subprocess.Popen[bytes]] = []
        self._last_signal: int | None = None
        self._interrupts = 0
        self._started = time.time()
        reporter.open_log(os.path.join(path, "log.txt"))

    def run(self, commands: list[tuple[list[str], dict[str, str]]]) -> int:
        for signum in _FORWARDED_SIGNALS:
            if signal.getsignal(signum) != signal.SIG_IGN:
                signal.signal(signum, self._forward_signal)
        self._write_manifest("running", None)
        self._reporter.report_phase("starting", folder=self._path, launcher=True)
        channel = self._reporter.channel  # a descriptor that was inherited lies elsewhere by now; a path stays one
        inherited = os.environ.get(STATUS_VARIABLE, "").isdigit() and channel is not None
        told = {STATUS_VARIABLE: str(channel)} if inherited else {}
        for argv, environment in commands:
            self._children.append(
                subprocess.Popen(
                    argv,
                    env={**os.environ, **environment, **told, run_folder.FOLDER_VARIABLE: self._path},
                    stdin=subprocess.DEVNULL,
                    pass_fds=[channel] if inherited and channel is not None else [],
                    # Its own session: a terminal's Ctrl-C reaches a rank once, through us, and never twice.
                    start_new_session=True,
                    preexec_fn=end_with_parent,
                )
            )
        status = self._wait_for_ranks()
        self._write_manifest("ended", status)
        if self._last_signal is not None:
            end_by_signal(self._last_signal)
        return status

    def _forward_signal(self, signum: int, frame: object) -> None:
        self._last_signal = signum
        self._interrupts += signum == signal.SIGINT
        self._send_signal(signum)
        if self._interrupts == 2:  # those that save have given up now; those that hang are told more plainly
            self._send_signal(signal.SIGTERM)
        elif self._interrupts > 2:
            self._send_signal(signal.SIGKILL)

    def _send_signal(self, signum: int) -> None:
        for child in self._children:
            with contextlib.suppress(ProcessLookupError):
                child.send_signal(signum)

    def _wait_for_ranks(self) -> int:
        """Until all have ended; where one fails, the others are told to end after a while."""
        failed, since, told = 0, 0.0, False
        while [child for child in self._children if child.poll() is None]:  # asks each of them
            time.sleep(POLL_SECONDS)
            if not failed:
                failed, since = self._find_first_failure(), time.monotonic()
            elif self._last_signal is None and not told and time.monotonic() - since > FAILURE_GRACE_SECONDS:
                told = True
                self._reporter.log("a rank has failed: ending the others, which save what they recorded")
                self._send_signal(signal.SIGTERM)
            elif told and time.monotonic() - since > FAILURE_GRACE_SECONDS + SAVE_WITHIN_SECONDS:
                self._reporter.log("a rank does not end: killing it")
                self._send_signal(signal.SIGKILL)
                since = time.monotonic()
        return failed or self._find_first_failure()

    def _find_first_failure(self) -> int:
        for rank, child in enumerate(self._children):
            code = child.returncode
            if code:
                if len(self._children) > 1:
                    self._reporter.log(f"rank {rank} ended first, {_format_exit_code(code)}")
                return code if code > 0 else 128 - code
        return 0

    def _write_manifest(self, state: str, status: int | None) -> None:
        ranks = [
            _read_manifest(path)
            for path in sorted(glob.glob(os.path.join(glob.escape(self._path), "manifest.rank*.json")))
        ]
        ranks.sort(key=lambda facts: facts.get("rank") or 0)
        traces = [kept["trace"] for facts in ranks for kept in facts.get("kept", [])]
        error = write_json(
            os.path.join(self._path, "manifest.json"),
            {
                "schema": SCHEMA_VERSION,
                "state": state,
                "command": list(self._options.command),
                "cwd": os.getcwd(),
                "options": self._options.as_dict(),
                "seconds": round(time.time() - self._started, 3),
                "exit_status": status,
                "world_size": max((facts.get("world_size", 0) for facts in ranks), default=self._options.nproc),
                "ranks": [
                    {key: facts.get(key) for key in ("rank", "state", "ended", "exit_status", "seconds", "kept")}
                    for facts in ranks
                ],
            },
        )
        if error is not None:
            self._reporter.log(f"cannot write a manifest: {explain_os_error(error)}")
        if state == "ended":
            self._reporter.report_phase("done", exit_status=status, launcher=True, folder=self._path)
            plural = "" if len(traces) == 1 else "s"
            self._reporter.log(f"{len(traces)} trace{plural} of {len(ranks)} ranks kept in {self._path}")


def _find_program_name(options: Options) -> str:
    """What the ranks run, for the run's name."""
    if not _is_torchrun(options):
        return options.command[0]
    return str(_parse_torchrun_arguments(options).training_script)


def _build_harness_command() -> list[str]:
    """This interpreter with its own flags, and the harness by its path."""
    before = sys.orig_argv[1 : len(sys.orig_argv) - len(sys.argv) + 1]  # the flags, then the harness as it was named
    flags = before[:-2] if before[-2:-1] == ["-m"] else before[:-1]
    return [sys.executable, *flags, os.path.join(_PACKAGE, "harness.py")]


def _build_rank_commands(options: Options) -> list[tuple[list[str], dict[str, str]]]:
    """A command and its environment for each of --nproc ranks, as torchrun would set it."""
    count = options.nproc or 1
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    argv = [*_build_harness_command(), *options.as_argv(), *(["-m"] if options.module else []), *options.command]
    shared = {
        "WORLD_SIZE": str(count),
        "LOCAL_WORLD_SIZE": str(count),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        # Each rank would take all cores otherwise; torchrun says 1 for the same reason.
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1"),
    }
    return [(argv, {**shared, "RANK": str(rank), "LOCAL_RANK": str(rank)}) for rank in range(count)]


def _is_torchrun(options: Options) -> bool:
    name = options.command[0]
    return name in _TORCHRUN_MODULES if options.module else os.path.basename(name) == "torchrun"


def _parse_torchrun_arguments(options: Options) -> Any:
    """What torchrun itself makes of its arguments. Raises UsageError."""
    try:
        parser = importlib.import_module("torch.distributed.run").get_args_parser()
    except ImportError as error:
        raise UsageError(f"torch in {sys.executable} has no torchrun: {error}") from error

    def refuse(message: str) -> None:
        raise UsageError(f"torchrun: {message}")

    parser.error = refuse
    return parser.parse_args(list(options.command[1:]))


def _build_torchrun_commands(options: Options) -> list[tuple[list[str], dict[str, str]]]:
    """torchrun as it was given, with the harness put before its script."""
    if options.nproc is not None:
        raise UsageError("--nproc starts ranks itself: leave it out, torchrun has --nproc-per-node")
    parsed = _parse_torchrun_arguments(options)
    if parsed.no_python:
        raise UsageError("torchrun --no-python starts no Python program, and only those are recorded")
    given = list(options.command[1:])
    own = given[: len(given) - len(parsed.training_script_args) - 1]
    module = ["-m"] if parsed.module else []
    own = [word for word in own if word not in ("-m", "--module")]
    *python, harness = _build_harness_command()
    argv = [*python, "-m", "torch.distributed.run", *own, harness, *options.as_argv()]
    return [([*argv, *module, parsed.training_script, *parsed.training_script_args], {})]


def _read_manifest(path: str) -> dict[str, Any]:
    try:
        with open(path, encoding="utf-8") as file:
            facts: dict[str, Any] = json.load(file)
            return facts
    except (OSError, ValueError):
        return {}


def _format_exit_code(code: int) -> str:
    return f"exit status {code}" if code > 0 else f"by {signal.Signals(-code).name}"
