"""A diagnosis: one thing that costs time, with its remedy; and the evidence that diagnoses are made from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field
from functools import cached_property

import numpy as np

from torchprof_tui.analysis.patterns.engine import thresholds
from torchprof_tui.analysis.patterns.engine.idle_causes import DeviceTimeShares, IdleCause
from torchprof_tui.analysis.patterns.engine.largest_gaps import describe_launch_place
from torchprof_tui.analysis.patterns.engine.pattern import Finding
from torchprof_tui.analysis.patterns.engine.practices import Practices
from torchprof_tui.analysis.patterns.engine.scope_view import ScopeView, format_percent
from torchprof_tui.analysis.patterns.verdict.tree_model import COMPUTE, EXPOSED, UNSPECIFIC_PATTERN_IDS, TimeTree
from torchprof_tui.trace.core.arrays import I64, find_largest, find_median, sorted_unique
from torchprof_tui.trace.core.records import record


@record
class HostPause:
    """Host code of one place that the GPU waits for: `time` ns over all devices, in `count` gaps.

    `place`: the ops around it ("between aten::to and aten::linear"). `typical`: median ns of host code in a gap.
    `events`: the work that waited for it. `longest`: the lane and the times (ns) of the longest: (lane, start, end).
    `steps`: in how many steps.
    """

    time: int
    count: int
    typical: float
    place: str
    events: I64
    longest: tuple[int, int, int]
    steps: int


def find_largest_pause(view: ScopeView) -> HostPause | None:
    """Find the place with the largest host code pauses; None without a gap with enough of it."""
    gaps = view.gaps
    host_time = gaps.time[:, IdleCause.HOST]
    is_pause = host_time >= thresholds.HOST_PAUSE_MIN.value
    if not is_pause.any():
        return None
    candidates = np.flatnonzero(is_pause)
    longest = candidates[find_largest(host_time[candidates], _MAX_PAUSES)]
    pauses, host_time = gaps.select(longest), host_time[longest]
    places = [describe_launch_place(view.tables, event) for event in pauses.next_event.tolist()]
    distinct, number = np.unique(np.array(places), return_inverse=True)
    worst = int(np.bincount(number.reshape(-1), weights=host_time).argmax())
    chosen = np.flatnonzero(number.reshape(-1) == worst)
    events, longest_gap = pauses.next_event[chosen], int(chosen[0])
    event, start, end = (int(each[longest_gap]) for each in (pauses.next_event, pauses.start, pauses.end))
    launch = int(view.trace.links.launch_of[event]) if event >= 0 else -1
    lane = int(view.gap_finder.busiest_lane) if launch < 0 else int(view.trace.lane[launch])
    if launch >= 0:
        end = max(min(end, int(pauses.call_start[longest_gap])), start + 1)
    return HostPause(
        int(host_time[chosen].sum()),
        len(chosen),
        find_median(host_time[chosen]),
        str(distinct[worst]),
        events[events >= 0],
        (lane, start, end),
        len(sorted_unique(view.tables.steps.index_at(pauses.end[chosen]))),
    )


_MAX_PAUSES = 200  # pauses that are told apart by place; a trace with more has no pauses but slow code everywhere


Says = Callable[[float], str]
"""Build a text that says a share of the time, 0..1."""


def always(text: str) -> Says:
    """Build the builder of a text that says no share, or one of something else."""
    return lambda _: text


def say_share(before: str, after: str = "") -> Says:
    return lambda share: f"{before} {format_percent(share)} of the time{after}"


SAY_NOTHING = always("")


@record
class RecordingFault:
    """Why a recording does not represent the program.

    `say`: builds it from the share of the time that is lost, "" for nothing worth a word; `share`: as measured.
    `pattern`: the id of the pattern of the lost time, "" for none.
    """

    say: Says = SAY_NOTHING
    share: float = 0.0
    pattern: str = ""


@record
class Diagnosis:
    """One thing that costs time.

    `cause`: the part of the time tree. `share`: of the device time, 0..1; `told`: the share that the texts say, where
    it is another. `say`: builds what costs the time, `say_why` the numbers behind it, from the share to say. `remedy`:
    "" where nothing is to be done. `events`: the rows that prove it, for the line of code. `pause`: the line is the one
    that the CPU was in during it, not that of the next launch. `late_rank`: the index of the rank that is waited for,
    if only its own verdict can say why. `pattern`: the id of the fired pattern that it is about, "" for none.
    `explained`: the part of `share` that other patterns explain. `say_before`: builds what stands before it, how the
    first step differs, from the share that this step costs. `fault`: the recording's; `around`: what stands before and
    after all of it.
    """

    cause: str
    share: float
    say: Says
    remedy: str = ""
    say_why: Says = SAY_NOTHING
    events: I64 = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    pause: HostPause | None = None
    is_recording_fault: bool = False
    late_rank: int | None = None
    pattern: str = ""
    explained: float = 0.0
    told: float | None = None
    say_before: Says = SAY_NOTHING
    fault: RecordingFault = RecordingFault()
    around: tuple[str, str] = ("", "")

    @property
    def own_share(self) -> float:
        """The share without what patterns explain of it that it does not name."""
        return self.share - self.explained

    @property
    def measured(self) -> float:
        """The share that the texts say as long as no costs are known."""
        return self.share if self.told is None else self.told

    @property
    def what(self) -> str:
        """What costs the time, with the measured share."""
        return self.say(self.measured)


@record(slots=False)
class Evidence:
    """A scope with everything that was found in it."""

    view: ScopeView
    findings: Sequence[Finding]
    shares: DeviceTimeShares
    tree: TimeTree

    @cached_property
    def fired(self) -> dict[str, Finding]:
        return {finding.id: finding for finding in self.findings if finding.has_fired}

    @property
    def problems(self) -> list[Finding]:
        return [finding for finding in self.fired.values() if finding.is_problem]

    @property
    def practices(self) -> Practices:
        return self.view.tables.practices

    @cached_property
    def pause(self) -> HostPause | None:
        """The place with the largest host code pauses."""
        return find_largest_pause(self.view)

    def idle(self, *causes: IdleCause) -> float:
        """Return the share of the device time that is idle for any of these causes."""
        return sum(self.shares.idle.get(cause, 0.0) for cause in causes)

    def explained_time(self, *part_ids: str) -> dict[str, int]:
        """Sum by specific pattern what it explains of these parts of the tree, of all parts if none is named.

        ns over all devices, at most the pattern's time at stake: its evidence may take longer than a change can save.
        """
        time: dict[str, int] = {}
        for part in self.tree.parts:
            if part_ids and part.id not in part_ids:
                continue
            # GPU work is divided into classes first.
            inside = [pattern for kernel_class in part.parts for pattern in kernel_class.parts]
            for pattern in inside if part.id == COMPUTE else part.parts:
                if pattern.id not in UNSPECIFIC_PATTERN_IDS:
                    time[pattern.id] = time.get(pattern.id, 0) + pattern.time
        devices = self.tree.device_count
        return {name: min(each, self.fired[name].answer.at_stake * devices) for name, each in time.items()}

    def find_largest(self, *part_ids: str) -> tuple[str, float]:
        """Find the specific pattern that explains most of these parts: (its id, share of the device time); ("", 0)."""
        return self._choose_largest(self.explained_time(*part_ids))

    def _choose_largest(self, explained: dict[str, int]) -> tuple[str, float]:
        largest = max(explained, key=explained.__getitem__, default="")
        return largest, explained.get(largest, 0) / self.device_time

    @property
    def op_compilation(self) -> float:
        """Share of the device time that is idle while an NPU's runtime compiles ops: a cold call that comes again."""
        return self.explained_time(IdleCause.COLD_CALL.id).get("op-compilation", 0) / self.device_time

    @cached_property
    def main_problem(self) -> Diagnosis | None:
        """The specific problem that explains most of the whole scope, None if none explains enough."""
        return self._diagnose_largest(self.explained_time(), thresholds.PROBLEM_MIN_SHARE.value)

    @cached_property
    def main_fault(self) -> Diagnosis | None:
        """The work without need that takes most of the whole scope, None if none takes enough to be named first."""
        explained = {name: time for name, time in self.explained_time().items() if self.fired[name].pattern.is_fault}
        return self._diagnose_largest(explained, thresholds.FAULT_FIRST_SHARE.value)

    def _diagnose_largest(self, explained: dict[str, int], least: float) -> Diagnosis | None:
        """Diagnose what explains most, from `least` of the device time on, in the part in which most of it lies."""
        largest, share = self._choose_largest(explained)
        if share < least:
            return None
        by_part = {part.id: self.explained_time(part.id).get(largest, 0) for part in self.tree.parts}
        return diagnose_finding(self.fired[largest], max(by_part, key=by_part.__getitem__), share)

    @property
    def device_time(self) -> int:
        return max(self.view.device_time, 1)


def diagnose_finding(finding: Finding, cause: str, share: float) -> Diagnosis:
    """Make the diagnosis of a fired pattern that explains this share of the device time."""
    title = finding.answer.headline or finding.pattern.title[0].lower() + finding.pattern.title[1:]
    remedy, said = finding.remedy, finding.answer
    return Diagnosis(
        cause,
        share,
        lambda part: f"{title} ({format_percent(part)})",
        remedy.action,
        always(said.seen),
        said.events,
        pattern=finding.id,
    )


_PATTERNS_OF_CAUSE = {
    IdleCause.INPUT.id: ("input-starved",),
    IdleCause.COLD_CALL.id: ("cold-call",),
    IdleCause.SYNC.id: ("sync-in-step",),
    IdleCause.DISPATCH.id: ("overhead-bound",),
    IdleCause.HOST.id: ("host-code",),
    IdleCause.CPU_COMPUTE.id: ("cpu-work",),
    EXPOSED: ("straggler", "exposed-comm"),
}
"""cause -> the patterns that are about it, the one that says most first."""


def find_pattern(diagnosis: Diagnosis, findings: Sequence[Finding]) -> str:
    """Find the fired problem that a diagnosis is about: its id, "" for none."""
    fired = [finding.id for finding in findings if finding.is_problem]
    candidates = (diagnosis.pattern,) if diagnosis.pattern else _PATTERNS_OF_CAUSE.get(diagnosis.cause, ())
    return next((name for name in candidates if name in fired), "")
