"""manifest.json: what ran, with which options, how it ended and which traces were kept.

Written when the run starts and again at each change.
"""

from __future__ import annotations

import os
import time
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from .atomic_files import write_json

if TYPE_CHECKING:
    from .schedule import Phase
    from .trace_export import SavedTrace

SCHEMA_VERSION = 1


class Manifest:
    """The contents of manifest.json for one process, in `facts`; `state` is "running", then "ended".

    A manifest with state "running" belongs to a run that has not ended, or that was killed.
    """

    def __init__(
        self, path: str, command: list[str], options: dict[str, Any], rank: int | None, world_size: int
    ) -> None:
        self._path = path
        self._start_time = time.monotonic()
        self.facts: dict[str, Any] = {
            "schema": SCHEMA_VERSION,
            "state": "running",
            "command": command,
            "cwd": os.getcwd(),
            "options": options,
            "started": datetime.now(timezone.utc).isoformat(timespec="milliseconds"),
            "seconds": None,
            "ended": None,
            "exit_status": None,
            "rank": rank,
            "world_size": world_size,
            "pid": os.getpid(),
            "environment": {},
            "phases": [],
            "kept": [],
            "captures": [],
            "memory_snapshot": None,
            "script_profiles_itself": False,
            "script_traces": [],
            "preflight": None,
            "messages": [],
        }

    def add_phase(self, phase: Phase) -> None:
        """Add the time at which a phase began; further steps of the same phase are not listed."""
        phases = self.facts["phases"]
        if not phases or phases[-1]["phase"] != phase.name or phases[-1]["cycle"] != phase.cycle:
            phases.append({"phase": phase.name, "at_s": round(self._elapsed_seconds(), 6), "cycle": phase.cycle})

    def add_trace(self, saved_trace: SavedTrace) -> None:
        """Add the trace of a cycle that has been saved."""
        cycle = saved_trace.cycle
        folder = os.path.dirname(self._path)
        self.facts["kept"].append(
            {
                "trace": os.path.relpath(saved_trace.trace, folder),
                "bytes": saved_trace.bytes,
                "json_bytes": saved_trace.counts.bytes,
                "events": saved_trace.counts.events,
                "gpu_events": saved_trace.counts.gpu_events,
                "cycle": cycle.number,
                "steps": [cycle.first_step, cycle.last_step] if cycle.counts_steps else None,
                "seconds": round(cycle.seconds, 6),
                "partial": saved_trace.partial,
                "table": saved_trace.table and os.path.basename(saved_trace.table),
                "key_averages": saved_trace.averages and os.path.basename(saved_trace.averages),
            }
        )

    def set_outcome(self, state: str, ended: str, status: int | None) -> None:
        """Set how the program ended: `status` as `subprocess` counts it, a signal's number negative."""
        self.facts.update(state=state, ended=ended, exit_status=status, seconds=round(self._elapsed_seconds(), 3))

    def write(self) -> OSError | None:
        """Write the file. Returns the error, or None."""
        return write_json(self._path, self.facts)

    def _elapsed_seconds(self) -> float:
        return time.monotonic() - self._start_time
