"""Earlier runs: their requests are stored beside the traces, so that a run can be repeated."""

from __future__ import annotations

import contextlib
import json
import os
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from torchprof_tui.runs.recording_request import DEFAULT_OUTPUT, RecordingRequest
from torchprof_tui.runs.run_result import MANIFEST_FILE, RunResult, read_result

REQUEST_FILE = "request.json"


@dataclass(frozen=True, slots=True)
class PastRun:
    """One run: its request, made in folder `cwd`; when it started (Unix seconds), and what it saved."""

    request: RecordingRequest
    cwd: str
    started_at: float
    result: RunResult


def save_request(folder: str, request: RecordingRequest, cwd: str | None = None) -> None:
    """Store `request`, made in `cwd` (None: the current folder), in the run's folder.

    Errors are ignored: without the file, only this run cannot be repeated.
    """
    cwd = cwd or os.getcwd()
    with contextlib.suppress(OSError), open(os.path.join(folder, REQUEST_FILE), "w", encoding="utf-8") as file:
        json.dump({**asdict(request), "output": os.path.join(cwd, request.output), "cwd": cwd}, file, indent=1)


def read_request(trace: str) -> tuple[RecordingRequest, str] | None:
    """Read the request that recorded the trace at this path, and the folder it was made in; None if there is none."""
    facts = _read_json(os.path.join(os.path.dirname(os.path.abspath(trace)), REQUEST_FILE))
    try:
        request = RecordingRequest(
            tuple(map(str, facts["command"])), tuple(map(str, facts["options"])), facts["python"], str(facts["output"])
        )
        return request, str(facts["cwd"])
    except (KeyError, TypeError):
        return None


def list_past_runs(output: str = DEFAULT_OUTPUT, limit: int = 50) -> list[PastRun]:
    """List the runs in folder `output` that can be repeated, newest first."""
    runs = []
    try:
        folders = [os.path.join(output, name) for name in os.listdir(output)]
    except OSError:
        return []
    for folder in folders:
        stored = read_request(os.path.join(folder, REQUEST_FILE))
        facts = _read_json(os.path.join(folder, MANIFEST_FILE))
        if stored is not None:
            request, cwd = stored
            status = facts.get("exit_status")
            result = read_result(
                os.path.abspath(folder),
                status if isinstance(status, int) else 0,
                facts.get("seconds") or 0.0,
                request.command,
            )
            runs.append(PastRun(request, cwd, _read_start_time(facts, folder), result))
    return sorted(runs, key=lambda run: -run.started_at)[:limit]


def _read_start_time(facts: dict[str, Any], folder: str) -> float:
    try:
        return datetime.fromisoformat(facts["started"]).timestamp()
    except (KeyError, TypeError, ValueError):
        return os.path.getmtime(folder)


def _read_json(path: str) -> dict[str, Any]:
    try:
        with open(path, encoding="utf-8") as file:
            facts = json.load(file)
    except (OSError, ValueError):
        return {}
    return facts if isinstance(facts, dict) else {}
