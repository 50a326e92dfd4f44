"""Ask an inference server for a trace by its own endpoint, or dynolog's daemon by its command `dyno`.

vLLM (docs: Profiling vLLM) records from POST /start_profile to POST /stop_profile, into the folder that was set at its
start; SGLang (docs: Benchmark and profiling) takes the folder, the steps and the options, and stops by itself.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable
from typing import Any

from torchprof_attach.host.processes import Process

PORTS = {"vllm": 8000, "sglang": 30000}
DEFAULT_WINDOW_MS = 1000
HTTP_SECONDS = 600.0  # a server may write for minutes before it answers /stop_profile

TRACE_NAMES = (".json", ".json.gz")
SETTLE_SECONDS = 1.0


class WayError(Exception):
    """A way did not work; `str()` is one line."""


def find_address(process: Process) -> tuple[str, int]:
    """Find where a server listens, by its arguments."""
    host = _find_argument(process.command, "--host") or "127.0.0.1"
    port = _find_argument(process.command, "--port") or ""
    return ("127.0.0.1" if host in ("0.0.0.0", "::") else host), (
        int(port) if re.fullmatch("[0-9]{1,5}", port) else PORTS[process.server]
    )


def find_trace_folder(process: Process) -> str:
    """Find the folder into which vLLM writes, "" where none was set at its start."""
    found = process.environment.get("VLLM_TORCH_PROFILER_DIR", "")
    for word in process.command:
        match = re.search(r'torch_profiler_dir"?\s*[=:]\s*"?([^",}\s]+)', word)
        found = match[1] if match else found
    found = _find_argument(process.command, "--profiler-config.torch_profiler_dir") or found
    return os.path.join(os.readlink(f"/proc/{process.pid}/cwd"), found) if found else ""


def record_server(process: Process, request: dict[str, Any], folder: str, stopped: Callable[[], bool]) -> list[str]:
    """Record a server; returns the files. `folder`: private, for SGLang. Raises WayError."""
    address = find_address(process)
    if process.server == "sglang":
        options = request.get("options") or ()
        body = {
            "output_dir": folder,
            "num_steps": request["steps"],
            "activities": ["CPU", "GPU"],
            "with_stack": "stacks" in options,
            "record_shapes": "shapes" in options,
        }
        _post(address, "/start_profile", body)
        return _wait_for_files(folder, set(), float(request["timeout"]), stopped)
    target = find_trace_folder(process)
    if not target:
        raise WayError(
            "vLLM records only into a folder that was set at its start (--profiler-config, VLLM_TORCH_PROFILER_DIR)"
        )
    before = _list_traces(target)
    _post(address, "/start_profile", None)
    try:
        until = time.monotonic() + (request.get("window_ms") or DEFAULT_WINDOW_MS) / 1000
        while time.monotonic() < until and not stopped():
            time.sleep(0.02)
    finally:
        _post(address, "/stop_profile", None)
    return _wait_for_files(target, before, float(request["timeout"]), stopped)


def record_dynolog(process: Process, request: dict[str, Any], path: str) -> None:
    """Ask the dynolog that already runs. Kineto then writes the file as if we had asked. Raises WayError."""
    program = shutil.which("dyno")
    if program is None:
        raise WayError("dynolog runs here and holds Kineto's socket, and its command dyno is not on PATH")
    options = request.get("options") or ()
    command = [program, "gputrace", "--pids", str(process.pid), "--log-file", path]
    if request.get("window_ms"):
        command += ["--duration-ms", str(request["window_ms"])]
    else:
        command += ["--iterations", str(request["steps"])]
        command += ["--profile-start-iteration-roundup", str(request.get("multiple") or 1)]
    flags = {"shapes": "--record-shapes", "memory": "--profile-memory", "stacks": "--with-stacks"}
    flags.update(flops="--with-flops", modules="--with-modules")
    command += [flags[option] for option in options]
    try:
        result = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise WayError(f"dyno: {error}") from error
    output = (result.stdout + result.stderr).decode(errors="replace")
    if result.returncode or "Matched 0" in output or "No processes were matched" in output:
        last = (output.strip().splitlines() or ["no output"])[-1][:200]
        raise WayError(f"dyno gputrace did not reach the process: {last}")


def _post(address: tuple[str, int], path: str, body: dict[str, Any] | None) -> None:
    where = f"http://{address[0]}:{address[1]}{path}"
    import http.client  # deferred: the list of jobs is shown before a server is asked

    connection = http.client.HTTPConnection(*address, timeout=HTTP_SECONDS)
    try:
        text = "" if body is None else json.dumps(body)
        connection.request("POST", path, text, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        detail = answer.read(300).decode(errors="replace")
    except (OSError, http.client.HTTPException) as error:
        raise WayError(f"{where}: {error}") from error
    finally:
        connection.close()
    if answer.status == 404:
        raise WayError(f"{where}: no such endpoint: the server was started without its profiler")
    if not 200 <= answer.status < 300:
        raise WayError(f"{where}: HTTP {answer.status} {' '.join(detail.split())}")


def _wait_for_files(folder: str, before: set[str], seconds: float, stopped: Callable[[], bool]) -> list[str]:
    """Wait until new traces are in a folder and do not grow any more."""
    sizes: dict[str, int] = {}
    until, since = time.monotonic() + seconds, time.monotonic()
    while time.monotonic() < until and not stopped():
        now = {path: os.stat(path).st_size for path in sorted(_list_traces(folder) - before) if os.path.exists(path)}
        if now != sizes:
            sizes, since = now, time.monotonic()
        elif sizes and all(sizes.values()) and time.monotonic() - since > SETTLE_SECONDS:
            return list(sizes)
        time.sleep(0.1)
    raise WayError(f"no trace came into {folder} within {seconds:.0f} s")


def _list_traces(folder: str) -> set[str]:
    try:
        return {os.path.join(folder, name) for name in os.listdir(folder) if name.endswith(TRACE_NAMES)}
    except OSError:
        return set()


def _find_argument(command: list[str], name: str) -> str:
    for at, word in enumerate(command):
        if word == name and at + 1 < len(command):
            return command[at + 1]
        if word.startswith(f"{name}="):
            return word[len(name) + 1 :]
    return ""
