"""Find GPUs of one process that take turns: each waits, with its work launched, while another one computes."""

from __future__ import annotations

import numpy as np

from torchprof_tui.analysis.patterns.engine import thresholds
from torchprof_tui.analysis.patterns.engine.idle_causes import IdleCause
from torchprof_tui.analysis.patterns.engine.scope_view import ScopeView
from torchprof_tui.analysis.time.intervals import NO_INTERVALS


def measure_turn_taking(view: ScopeView) -> float:
    """Return the share of the device time in which a GPU waits for its turn, 0 where the GPUs take none.

    They take turns where they hardly work at the same time, and most of the time in which launched work does not start
    is time in which another GPU works: a model that was divided over GPUs layer by layer.
    """
    devices = view.tables.devices
    if len(devices) < 2 or not view.device_time:
        return 0.0
    busy = {device: view.tables.busy_intervals(device).clip(*view.window) for device in devices}
    together, total = NO_INTERVALS, sum(part.total for part in busy.values())
    for part in busy.values():
        together = together | part
    if total - together.total > thresholds.TURNS_OVERLAP.value * total:
        return 0.0
    gaps = view.gaps
    held, elsewhere = 0, 0
    for device in devices:
        waiting = view.gap_finder.list_cause_intervals(gaps, IdleCause.QUEUED, device)
        held += waiting.total
        elsewhere += (waiting & (together - busy[device])).total
    return elsewhere / view.device_time if elsewhere >= thresholds.TURNS_SHARE.value * held else 0.0


def find_waiting_events(view: ScopeView) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Return the work that waited for its turn, int64[k]."""
    events = view.gaps.next_event[view.gaps.time[:, IdleCause.QUEUED] > thresholds.PROMPT_START.value]
    return events[events >= 0]
