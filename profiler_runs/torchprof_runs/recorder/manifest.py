"""manifest.json: what ran, how, how it ended and what was kept. Written early and again at each change."""

from __future__ import annotations

import os
import time
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from .atomic_files import write_json

if TYPE_CHECKING:
    from .schedule import Phase
    from .trace_export import Kept

SCHEMA = 1


class Manifest:
    """The facts of one process's run, in `facts`; `state` goes running → saved → ended.

    A manifest that still says "running" belongs to a run that goes on, or to one that was killed.
    """

    def __init__(self, path: str, command: list[str], options: dict[str, Any], rank: int | None, world: int) -> None:
        self._path = path
        self._began = time.monotonic()
        self.facts: dict[str, Any] = {
            "schema": SCHEMA,
            "state": "running",
            "command": command,
            "cwd": os.getcwd(),
            "options": options,
            "started": datetime.now(timezone.utc).isoformat(timespec="milliseconds"),
            "seconds": None,
            "ended": None,
            "exit_status": None,
            "rank": rank,
            "world_size": world,
            "pid": os.getpid(),
            "environment": {},
            "phases": [],
            "kept": [],
            "script_profiles_itself": False,
            "script_traces": [],
            "preflight": None,
            "messages": [],
        }

    def phase(self, phase: Phase) -> None:
        """Note when each kind of phase began; its steps are not told one by one."""
        phases = self.facts["phases"]
        if not phases or phases[-1]["phase"] != phase.name or phases[-1]["cycle"] != phase.cycle:
            phases.append({"phase": phase.name, "at_s": round(self._seconds(), 6), "cycle": phase.cycle})

    def keep(self, kept: Kept) -> None:
        """A cycle has been written."""
        cycle = kept.cycle
        name = os.path.dirname(self._path)
        self.facts["kept"].append(
            {
                "trace": os.path.relpath(kept.trace, name),
                "bytes": kept.bytes,
                "json_bytes": kept.counts.bytes,
                "events": kept.counts.events,
                "gpu_events": kept.counts.gpu_events,
                "cycle": cycle.number,
                "steps": [cycle.first, cycle.last] if cycle.counted else None,
                "seconds": round(cycle.seconds, 6),
                "partial": kept.partial,
                "table": kept.table and os.path.basename(kept.table),
                "key_averages": kept.averages and os.path.basename(kept.averages),
            }
        )

    def end(self, state: str, ended: str, status: int | None) -> None:
        """How the program ended: `status` as `subprocess` counts it, a signal's number negative."""
        self.facts.update(state=state, ended=ended, exit_status=status, seconds=round(self._seconds(), 3))

    def write(self) -> OSError | None:
        """Replace the file by what is known now; what went wrong, if it did."""
        return write_json(self._path, self.facts)

    def _seconds(self) -> float:
        return time.monotonic() - self._began
