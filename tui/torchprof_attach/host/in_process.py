"""Ask the recorder inside of a process: by SIGUSR2 where it is installed, or by `sys.remote_exec` (Python 3.14).

Each request is a file with mode 0600 in the user's private folder; the recorder (`attached.py`) answers
with the trace, or with a line in `PATH.error`.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from typing import Any

from torchprof_attach.host.processes import Process, is_running, make_private, scratch_folder

REMOTE_EXEC_PYTHON = (3, 14)


def send_signal(process: Process, request: dict[str, Any]) -> None:
    """Write a request and send SIGUSR2. Raises OSError where the process has ended or does not handle it any more."""
    _write_request(process, request)
    descriptor = os.pidfd_open(process.pid) if hasattr(os, "pidfd_open") else -1
    try:
        if not is_running(process.pid, process.start):  # otherwise the signal would end another program
            raise ProcessLookupError(process.pid)
        if descriptor >= 0:
            signal.pidfd_send_signal(descriptor, signal.SIGUSR2)
        else:
            os.kill(process.pid, signal.SIGUSR2)
    finally:
        if descriptor >= 0:
            os.close(descriptor)


def find_remote_exec_problem(process: Process) -> str:
    """Say why `sys.remote_exec` cannot be used with a process; "" where it can."""
    if process.python is None or process.python < REMOTE_EXEC_PYTHON:
        version = "another Python" if process.python is None else f"Python {process.python[0]}.{process.python[1]}"
        return f"sys.remote_exec needs Python 3.14, the process runs {version}"
    if not hasattr(sys, "remote_exec") or sys.version_info[:2] != process.python:
        return f"sys.remote_exec needs attach to run under Python 3.{process.python[1]}, as the process does"
    return ""


def run_remotely(process: Process, request: dict[str, Any], recorder: str) -> None:
    """Let a process run the recorder's source with a request. Raises OSError, e.g. without the right to trace it."""
    folder = make_private(scratch_folder())
    _write_request(process, request)
    script = os.path.join(folder, f"{process.pid}-{process.start}.py")
    text = f"{recorder}\n\nhandle_request({_request_path(process)!r})\n"
    _write_private(
        script, f"exec(compile({text!r}, 'torchprof_attached', 'exec'), {{'__name__': 'torchprof_attached'}})\n"
    )
    sys.remote_exec(process.pid, script)  # type: ignore[attr-defined]


def _write_request(process: Process, request: dict[str, Any]) -> None:
    make_private(scratch_folder())
    _write_private(_request_path(process), json.dumps(request))


def _request_path(process: Process) -> str:
    return os.path.join(scratch_folder(), f"{process.pid}-{process.start}.request")


def _write_private(path: str, text: str) -> None:
    temporary = f"{path}.{os.getpid()}"
    with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600), "w") as file:
        file.write(text)
    os.replace(temporary, path)
