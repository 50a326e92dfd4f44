"""Start several ranks (--nproc, or through torchrun), each of them recorded, all into one folder."""

from __future__ import annotations

import contextlib
import glob
import importlib
import importlib.util
import json
import math
import os
import signal
import socket
import stat
import subprocess
import sys
import time
from typing import Any, NoReturn

from . import run_folder, torch_capabilities
from .atomic_files import explain_os_error, write_json
from .exit_handlers import end_by_signal, end_with_parent
from .manifest import SCHEMA_VERSION
from .options import Options, UsageError
from .status_messages import STATUS_VARIABLE, Reporter

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_TORCHRUN_MODULES = ("torch.distributed.run", "torch.distributed.launch")
_FORWARDED_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
POLL_SECONDS = 0.05  # seconds
FAILURE_GRACE_SECONDS = 5.0  # seconds after a rank's failure before the others get SIGTERM
SAVE_WITHIN_SECONDS = 120.0  # seconds after SIGTERM before a rank is killed
MAX_MANIFEST_CHARACTERS = 8 << 20  # the viewer reads no more; a rank that records ten thousand cycles writes 4 MB
_MANIFEST_FIELDS: dict[str, tuple[type, ...]] = {
    "rank": (int,),
    "world_size": (int,),
    "state": (str,),
    "ended": (str,),
    "exit_status": (int,),
    "seconds": (int, float),
}


def is_multi_rank(options: Options) -> bool:
    """Return whether this command starts several ranks."""
    return options.nproc is not None or _is_torchrun(options)


def run_ranks(options: Options, reporter: Reporter) -> int:
    """Start the ranks, wait until all have ended, and write a manifest that combines theirs. Returns the exit status.

    That is the status of the first rank that failed, or 128 plus the number of the signal that ended it.
    """
    if importlib.util.find_spec("torch") is None:
        raise UsageError(torch_capabilities.explain_missing_torch())
    commands = _build_torchrun_commands(options) if _is_torchrun(options) else _build_rank_commands(options)
    try:
        path = run_folder.create_folder(options.output, run_folder.make_stem(_find_program_name(options)))
    except OSError as error:
        raise UsageError(f"cannot make a folder in {options.output}: {error.strerror or error}") from error
    return _RankLauncher(options, path, reporter).run(commands)


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
        # The reporter has moved an inherited descriptor to another number, which the ranks need; a path is unchanged.
        channel = self._reporter.channel
        is_inherited = os.environ.get(STATUS_VARIABLE, "").isdigit() and channel is not None
        channel_variable = {STATUS_VARIABLE: str(channel)} if is_inherited else {}
        for argv, environment in commands:
            self._children.append(
                subprocess.Popen(
                    argv,
                    env={**os.environ, **environment, **channel_variable, run_folder.FOLDER_VARIABLE: self._path},
                    stdin=subprocess.DEVNULL,
                    pass_fds=[channel] if is_inherited and channel is not None else [],
                    # In its own session, a rank gets a terminal's Ctrl-C only once, forwarded by the launcher.
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
        if self._interrupts == 2:  # ranks that were saving have given up; SIGTERM ends those that hang
            self._send_signal(signal.SIGTERM)
        elif self._interrupts > 2:
            self._send_signal(signal.SIGKILL)

    def _send_signal(self, signum: int) -> None:
        for child in self._children:
            with contextlib.suppress(ProcessLookupError):
                child.send_signal(signum)

    def _wait_for_ranks(self) -> int:
        """Wait until all ranks have ended; after a failure, end the others when a grace period is over."""
        failure, failed_at, sent_sigterm = 0, 0.0, False
        while [child for child in self._children if child.poll() is None]:  # a list, so that every child is polled
            time.sleep(POLL_SECONDS)
            if not failure:
                failure, failed_at = self._find_first_failure(), time.monotonic()
            elif (
                self._last_signal is None and not sent_sigterm and time.monotonic() - failed_at > FAILURE_GRACE_SECONDS
            ):
                sent_sigterm = True
                self._reporter.log("a rank has failed: ending the other ranks, which save what they recorded")
                self._send_signal(signal.SIGTERM)
            elif sent_sigterm and time.monotonic() - failed_at > FAILURE_GRACE_SECONDS + SAVE_WITHIN_SECONDS:
                self._reporter.log("a rank does not stop: killing it")
                self._send_signal(signal.SIGKILL)
                failed_at = time.monotonic()
        return failure or self._find_first_failure()

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
        traces = [entry["trace"] for facts in ranks for entry in facts.get("kept", [])]
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
    """Find the name of the program that the ranks run, for the run's folder."""
    if not _is_torchrun(options):
        return options.command[0]
    return str(_parse_torchrun_arguments(options).training_script)


def _build_harness_command() -> list[str]:
    """Build the command that starts the harness by its path, with this interpreter and its flags."""
    # The interpreter's flags, then the harness as it was named on the command line.
    words = sys.orig_argv[1 : len(sys.orig_argv) - len(sys.argv) + 1]
    flags = words[:-2] if words[-2:-1] == ["-m"] else words[:-1]
    return [sys.executable, *flags, os.path.join(_PACKAGE, "harness.py")]


def _build_rank_commands(options: Options) -> list[tuple[list[str], dict[str, str]]]:
    """Build the command and the environment of each of --nproc ranks, as torchrun would set it."""
    count = options.nproc or 1
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    argv = [*_build_harness_command(), *options.as_argv(), *(["-m"] if options.module else []), *options.command]
    environment = {
        "WORLD_SIZE": str(count),
        "LOCAL_WORLD_SIZE": str(count),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        # Otherwise each rank would use all cores; torchrun sets 1 for the same reason.
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1"),
    }
    return [(argv, {**environment, "RANK": str(rank), "LOCAL_RANK": str(rank)}) for rank in range(count)]


def _is_torchrun(options: Options) -> bool:
    name = options.command[0]
    return name in _TORCHRUN_MODULES if options.module else os.path.basename(name) == "torchrun"


def _parse_torchrun_arguments(options: Options) -> Any:
    """Parse torchrun's arguments with its own parser. Raises UsageError."""
    try:
        parser = importlib.import_module("torch.distributed.run").get_args_parser()
    except ImportError as error:
        raise UsageError(f"torch in {sys.executable} has no torchrun: {error}") from error

    def raise_usage_error(message: str) -> None:
        raise UsageError(f"torchrun: {message}")

    parser.error = raise_usage_error
    return parser.parse_args(list(options.command[1:]))


def _build_torchrun_commands(options: Options) -> list[tuple[list[str], dict[str, str]]]:
    """Build the torchrun command that the user gave, with the harness inserted before its script."""
    if options.nproc is not None:
        raise UsageError("--nproc cannot be combined with torchrun: use torchrun's --nproc-per-node instead")
    parsed = _parse_torchrun_arguments(options)
    if parsed.no_python:
        raise UsageError("torchrun --no-python does not start a Python program; only Python programs can be recorded")
    arguments = list(options.command[1:])
    torchrun_arguments = arguments[: len(arguments) - len(parsed.training_script_args) - 1]
    # The program may be a module: -m then goes to the harness, not to torchrun.
    module = ["-m"] if parsed.module else []
    torchrun_arguments = [word for word in torchrun_arguments if word not in ("-m", "--module")]
    *python, harness = _build_harness_command()
    argv = [*python, "-m", "torch.distributed.run", *torchrun_arguments, harness, *options.as_argv()]
    return [([*argv, *module, parsed.training_script, *parsed.training_script_args], {})]


def _read_manifest(path: str) -> dict[str, Any]:
    """Read what one rank wrote: the known fields that have their types; nothing from what is no manifest."""
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            return {}
        with open(path, encoding="utf-8") as file:
            facts = json.loads(file.read(MAX_MANIFEST_CHARACTERS), parse_constant=_refuse_constant)
    except (OSError, ValueError, RecursionError):
        return {}
    if not isinstance(facts, dict):
        return {}
    known = {name: facts[name] for name, kinds in _MANIFEST_FIELDS.items() if _is_of_kind(facts.get(name), kinds)}
    kept = facts.get("kept")
    traces = [entry for entry in kept if isinstance(entry, dict)] if isinstance(kept, list) else []
    return {**known, "kept": [entry for entry in traces if isinstance(entry.get("trace"), str)]}


def _is_of_kind(value: object, kinds: tuple[type, ...]) -> bool:
    is_finite = not isinstance(value, float) or math.isfinite(value)
    return type(value) in kinds and is_finite  # a bool is no number here


def _refuse_constant(word: str) -> NoReturn:
    raise ValueError(f"{word} is no JSON")


def _format_exit_code(code: int) -> str:
    return f"exit status {code}" if code > 0 else f"by {signal.Signals(-code).name}"
