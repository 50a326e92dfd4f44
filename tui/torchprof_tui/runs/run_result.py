"""What a run kept, read from the manifests in its folder."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from typing import Any

MANIFEST_FILE = "manifest.json"


@dataclass(frozen=True, slots=True)
class RunResult:
    """How a run ended and what it left. Paths are absolute; `traces` by rank, then in the order of recording.

    `exit_status` is the program's own, 128 more than the number of a signal that ended it; `ended` says how ("stopped"
    where its recording was done, "interrupted", …), None where it was killed.
    """

    folder: str | None
    traces: tuple[str, ...]
    tables: tuple[str, ...]
    exit_status: int
    seconds: float
    end_reason: str | None
    command: tuple[str, ...]
    traces_to_open: tuple[str, ...] = ()
    """What to look at: the first trace; of several ranks the first of each, which are of the same time."""

    def as_json(self) -> dict[str, Any]:
        """What `run --json` prints."""
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
    """The result of a run that ended with `status` as `subprocess` counts it, after `seconds`."""
    manifests = _read_manifests(folder) if folder is not None else []
    traces: list[str] = []
    tables: list[str] = []
    opened: list[str] = []
    for facts in manifests:
        before = len(traces)
        kept = [each for each in facts.get("kept", []) if isinstance(each, dict)]
        traces += [os.path.join(folder or "", each["trace"]) for each in kept]
        tables += [os.path.join(folder or "", each["table"]) for each in kept if each.get("table")]
        # A program that profiled itself wrote its own.
        traces += [path for path in facts.get("script_traces", []) if not kept and os.path.exists(path)]
        opened += traces[before : before + 1] if kept else []  # of those only we know the rank
    ended = next((facts["ended"] for facts in manifests if facts.get("ended")), None)
    return RunResult(
        os.path.abspath(folder) if folder is not None else None,
        tuple(traces),
        tuple(tables),
        status if status >= 0 else 128 - status,
        seconds,
        ended,
        command,
        tuple(opened or traces[:1]),
    )


def _read_manifests(folder: str) -> list[dict[str, Any]]:
    """Those of the processes that recorded, by rank: one in `manifest.json`, several in `manifest.rankN.json`."""
    try:
        names = os.listdir(folder)
    except OSError:
        return []
    ranks = [name for name in names if name.startswith("manifest.rank") and name.endswith(".json")]
    found = []
    for name in ranks or [MANIFEST_FILE]:
        try:
            with open(os.path.join(folder, name), encoding="utf-8") as file:
                facts = json.load(file)
        except (OSError, ValueError):
            continue
        if isinstance(facts, dict):
            found.append(facts)
    return sorted(found, key=lambda facts: facts.get("rank") or 0)
