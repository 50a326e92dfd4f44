"""Measure one step before recording, and choose how many steps to record if the trace would be large."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

from . import size_question
from .options import DEFAULT_ACTIVE
from .size_estimate import (
    LARGE_TRACE_BYTES,
    SizeEstimate,
    estimate_size,
    format_megabytes,
    read_available_memory,
)

if TYPE_CHECKING:
    from .recording_session import RecordingSession
    from .trace_export import TraceCounts


class SizePreflight:
    """The preflight of `session`. `expected_bytes`: the size of a cycle's JSON; None if no step was measured."""

    def __init__(self, session: RecordingSession) -> None:
        self._session = session
        self._estimate: SizeEstimate | None = None
        self._step: TraceCounts | None = None
        self.expected_bytes: int | None = None

    def measure(self, profile: Any) -> None:
        """Estimate the size of the recording from the profile of one step, and log it."""
        session, options = self._session, self._session.options
        step = session.exporter.measure_trace(profile)
        if step is None:
            return
        active = options.active or DEFAULT_ACTIVE
        large = LARGE_TRACE_BYTES if options.max_size is None else options.max_size * 1_000_000
        free_disk = shutil.disk_usage(session.folder.path).free
        estimate = estimate_size(step, active, options.with_stack, free_disk, read_available_memory(), large)
        self._step, self._estimate, self.expected_bytes = step, estimate, estimate.bytes
        session.manifest.facts["preflight"] = {
            "events_per_step": step.events,
            "json_bytes_per_step": step.bytes,
            "steps": active,
            "warning": estimate.warning,
        }
        session.log(estimate.text)

    def confirm(self) -> None:
        """Ask whether to record a large trace, or record fewer steps of it where nobody can be asked.

        The ranks of a run are not asked, because a rank that waits for an answer holds up the others; and they take as
        many steps as before, because a rank that stops early does too.
        """
        session, estimate, step = self._session, self._estimate, self._step
        if estimate is None or step is None or not estimate.warning or session.options.yes:
            return
        active, fewer = session.options.active or DEFAULT_ACTIVE, estimate.fitting_steps
        is_alone = session.rank is None
        ask = size_question.find_answerer(session.environment, session.reporter) if is_alone else None
        question = size_question.SizeQuestion(active, estimate.bytes, fewer, step.bytes * fewer)
        answer = ask(question) if ask is not None else None
        if answer == size_question.NONE:
            session.decline_recording()
        elif answer != size_question.ALL and fewer < active:
            reason = "" if answer else ": no terminal to ask on (--yes records all, --max-size sets the limit)"
            session.log(f"recording {fewer} of {active} steps, about {format_megabytes(question.fewer_bytes)}{reason}")
            session.mode.record_fewer(fewer, ends_early=is_alone)
            session.manifest.facts["preflight"]["recorded_steps"] = fewer
            self.expected_bytes = question.fewer_bytes
