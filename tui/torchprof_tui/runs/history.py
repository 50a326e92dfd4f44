"""Earlier runs: their requests are stored beside the traces, so that a run can be repeated."""

from __future__ import annotations

import contextlib
import json
import os
from dataclasses import asdict

from torchprof_tui.runs.recording_request import DEFAULT_OUTPUT, RecordingRequest
from torchprof_tui.runs.request_signature import add_signature, is_signed_by_user
from torchprof_tui.runs.run_result import (
    MAX_REQUEST_BYTES,
    REQUEST_FILE,
    REQUEST_VERSION,
    Manifest,
    RequestFile,
    RunResult,
    read_manifest,
    read_result,
)
from torchprof_tui.trace.core.errors import UnreadableFileError
from torchprof_tui.trace.core.records import record
from torchprof_tui.trace.core.typed_json import decode_typed_json, explain_version, read_small_file
from torchprof_tui.trace.core.user_files import make_absolute, replace_file

MAX_FOLDERS = 1_000  # folders that are searched for past runs, the last changed first


@record
class StoredRequest:
    """A request that was read from the file at `path` and made in folder `cwd`.

    `is_own`: this user made it with this program, so it may be repeated at one key. See `request_signature`.
    `problem`: one line about a file of a newer version, else None.
    """

    request: RecordingRequest
    cwd: str
    path: str
    is_own: bool
    problem: str | None = None


@record
class PastRun:
    """One run: its request, when it started (Unix seconds), and what it saved."""

    stored: StoredRequest
    started_at: float
    result: RunResult

    @property
    def request(self) -> RecordingRequest:
        return self.stored.request


def save_request(folder: str, request: RecordingRequest, cwd: str | None = None) -> None:
    """Store `request`, made in `cwd` (None: the current folder), signed in the run's folder.

    Errors are ignored: without the file, only this run cannot be repeated.
    """
    with contextlib.suppress(OSError):
        cwd = cwd or os.getcwd()
        facts = {**asdict(request), "output": os.path.join(cwd, request.output), "cwd": cwd, "schema": REQUEST_VERSION}
        document = add_signature(json.dumps(facts, indent=1).encode("ascii"), folder)
        replace_file(os.path.join(folder, REQUEST_FILE), document)


def read_request(trace: str) -> StoredRequest | None:
    """Read the request that recorded the trace at this path; None if there is none.

    Raises UnreadableFileError if the file beside the trace is no request.
    """
    folder = os.path.dirname(make_absolute(trace))
    path = os.path.join(folder, REQUEST_FILE)
    if not os.path.lexists(path):
        return None
    try:
        document = read_small_file(path, MAX_REQUEST_BYTES)
    except OSError as error:
        raise UnreadableFileError(f"{REQUEST_FILE}: {error.strerror}") from error
    file = decode_typed_json(document, RequestFile, REQUEST_FILE)
    request = RecordingRequest(file.command, file.options, file.python, file.output or DEFAULT_OUTPUT)
    problem = explain_version(REQUEST_FILE, file.schema, REQUEST_VERSION)
    return StoredRequest(request, file.cwd, path, is_signed_by_user(document, folder), problem)


def list_past_runs(output: str = DEFAULT_OUTPUT, limit: int = 50) -> list[PastRun]:
    """List the runs in folder `output` that can be repeated, newest first."""
    folders: list[tuple[float, str]] = []
    with contextlib.suppress(OSError), os.scandir(output) as entries:
        for entry in entries:
            with contextlib.suppress(OSError):
                if entry.is_dir():
                    folders.append((entry.stat().st_mtime, entry.path))
    found = (_read_past_run(path) for _, path in sorted(folders, reverse=True)[:MAX_FOLDERS])
    return sorted((run for run in found if run is not None), key=lambda run: -run.started_at)[:limit]


def _read_past_run(folder: str) -> PastRun | None:
    """Read the run in `folder`; None if it has no request, or one that is unreadable."""
    try:
        stored = read_request(os.path.join(folder, REQUEST_FILE))
        changed_at = os.path.getmtime(folder)
    except (UnreadableFileError, OSError):
        return None
    if stored is None:
        return None
    try:
        manifest, _ = read_manifest(folder)
    except (UnreadableFileError, OSError):
        manifest = Manifest()  # `read_result` reports why
    return PastRun(
        stored,
        changed_at if manifest.started is None else manifest.started.timestamp(),
        read_result(make_absolute(folder), manifest.exit_status or 0, manifest.seconds or 0.0, stored.request.command),
    )
