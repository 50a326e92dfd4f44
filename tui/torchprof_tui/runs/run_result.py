"""Read what a run saved from the manifests in its folder."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from typing import Any

MANIFEST_FILE = "manifest.json"


@dataclass(frozen=True, slots=True)
class RunResult:
    """How a run ended and what it saved. Paths are absolute; `traces` are sorted by rank, then by time.

    `exit_status` is the program's own, or 128 plus the number of the signal that ended it. `end_reason` is "stopped" if
    the program was stopped because its recording was complete, "interrupted", …; None if it was killed.
    """

    folder: str | None
    traces: tuple[str, ...]
    tables: tuple[str, ...]
    exit_status: int
    seconds: float
    end_reason: str | None
    command: tuple[str, ...]
    traces_to_open: tuple[str, ...] = ()
    """The traces to show: the first one, or with several ranks the first of each, which cover the same time."""

    def as_json(self) -> dict[str, Any]:
        """Return what `run --json` prints."""
        return {
            "traces": list(self.traces),
            "table": self.tables[0] if self.tables else None,
            "tables": list(self.tables),
            "exit_status": self.exit_status,
            "seconds": round(self.seconds, 3),
            "ended": self.end_reason,
            "folder": self.folder,
            "command": list(self.command),
        }


def read_result(folder: str | None, status: int, seconds: float, command: tuple[str, ...]) -> RunResult:
    """Read the result of a run that ended with `status` as `subprocess` counts it, after `seconds`."""
    manifests = _read_manifests(folder) if folder is not None else []
    traces: list[str] = []
    tables: list[str] = []
    first_traces: list[str] = []
    for facts in manifests:
        trace_count = len(traces)
        entries = [entry for entry in facts.get("kept", []) if isinstance(entry, dict)]
        traces += [os.path.join(folder or "", entry["trace"]) for entry in entries]
        tables += [os.path.join(folder or "", entry["table"]) for entry in entries if entry.get("table")]
        # A program that profiles itself wrote its own traces, whose rank is unknown.
        traces += [path for path in facts.get("script_traces", []) if not entries and os.path.exists(path)]
        first_traces += traces[trace_count : trace_count + 1] if entries else []
    end_reason = next((facts["ended"] for facts in manifests if facts.get("ended")), None)
    return RunResult(
        os.path.abspath(folder) if folder is not None else None,
        tuple(traces),
        tuple(tables),
        status if status >= 0 else 128 - status,
        seconds,
        end_reason,
        command,
        tuple(first_traces or traces[:1]),
    )


def _read_manifests(folder: str) -> list[dict[str, Any]]:
    """Read the manifests of all recorded processes, by rank: one `manifest.json`, or several `manifest.rankN.json`."""
    try:
        names = os.listdir(folder)
    except OSError:
        return []
    rank_files = [name for name in names if name.startswith("manifest.rank") and name.endswith(".json")]
    manifests = []
    for name in rank_files or [MANIFEST_FILE]:
        try:
            with open(os.path.join(folder, name), encoding="utf-8") as file:
                facts = json.load(file)
        except (OSError, ValueError):
            continue
        if isinstance(facts, dict):
            manifests.append(facts)
    return sorted(manifests, key=lambda facts: facts.get("rank") or 0)
