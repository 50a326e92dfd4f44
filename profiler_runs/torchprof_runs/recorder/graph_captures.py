"""Record the capture of each CUDA graph as a trace of its own: the ops behind the kernels that its replays launch.

A replay has no ops, shapes or Python calls; they exist only while the graph is captured, mostly before the first
recorded step. A profile runs from the begin of each capture to its end and is written to `capture_traces/` beside the
run's trace, where the viewer looks for it.
"""

from __future__ import annotations

import functools
import os
import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

from . import target_program
from .exit_handlers import SaveAbandoned
from .schedule import Cycle
from .trace_export import TraceExporter

if TYPE_CHECKING:
    from .recording_session import RecordingSession
    from .run_folder import CaptureFolder

MAX_CAPTURES = 64
"""Captures that are recorded of one process. Serving engines capture one graph for each batch size, up to hundreds."""


class GraphCaptureRecorder:
    """Record what the program of a session captures, if that was asked for.

    Shapes and Python calls are always recorded: a capture is short, and its times are of no interest. While the session
    itself records, a capture is part of its trace; only what it drops is saved here. `files`: what was written.
    """

    def __init__(self, session: RecordingSession, folder: CaptureFolder) -> None:
        options = session.options
        is_workload = target_program.is_workload(options)
        self._is_enabled = options.capture or (
            is_workload and options.command[0] in target_program.WORKLOADS_WITH_GRAPHS
        )
        self._folder, self._recorder, self._log = folder, session.recorder, session.log
        self._hold_signals = session.exit_handlers.hold_signals
        self._flags = replace(session.flags, record_shapes=True, with_stack=True, profile_memory=False)
        self._exporter = TraceExporter(folder, False, session.log, lambda *_, **__: None)
        self._pid = os.getpid()
        self._profile: Any = None
        self._graph_id = 0  # of the graph that is being captured
        self._thread_id = 0
        self._count = 0
        self._is_in_recording = False  # a graph was captured while the session recorded
        self.files: list[str] = []

    def install(self) -> None:
        """Wrap the begin and the end of a capture, which `torch.cuda.graph` and all else that captures call."""
        if not self._is_enabled:
            return
        graph: Any = getattr(torch.cuda, "CUDAGraph", None)
        begin, end = (getattr(graph, name, None) for name in ("capture_begin", "capture_end"))
        if begin is None or end is None:
            self._log("--capture: this version of torch has no CUDA graphs")
            return

        @functools.wraps(begin)
        def recorded_begin(instance: Any, *args: Any, **kwargs: Any) -> Any:
            self._start(id(instance))
            try:
                return begin(instance, *args, **kwargs)
            except BaseException:
                self._stop(id(instance), keep=False)
                raise

        @functools.wraps(end)
        def recorded_end(instance: Any, *args: Any, **kwargs: Any) -> Any:
            is_captured = False
            try:
                result = end(instance, *args, **kwargs)
                is_captured = True
            finally:
                self._stop(id(instance), keep=is_captured)
            return result

        graph.capture_begin, graph.capture_end = recorded_begin, recorded_end

    def disable(self) -> None:
        """Record no more captures: the program uses torch's profiler itself."""
        self._is_enabled = False

    def save_if_captured(self, profile: Any) -> None:
        """Save what the session recorded and drops, if a graph was captured meanwhile."""
        if self._is_in_recording:
            self._count += 1
            self._save(profile)
            self._is_in_recording = False

    def _start(self, graph: int) -> None:
        """Start a profile, unless a profiler is on or enough was recorded."""
        if self._profile is not None or not self._is_enabled or os.getpid() != self._pid:
            return
        self._is_in_recording |= self._recorder.is_active
        autograd: Any = torch.autograd
        if self._recorder.is_active or autograd._profiler_enabled():
            return
        if self._count >= MAX_CAPTURES:
            self.disable()
            self._log(f"--capture: more than {MAX_CAPTURES} graphs: the captures of the others are not recorded")
            return
        try:
            with self._hold_signals():
                self._profile = self._recorder.prepare_profile(self._flags)
                self._recorder.start_profile(self._profile)
                self._graph_id, self._thread_id = graph, threading.get_ident()
        except Exception as error:  # the user's program continues without a recording
            self._give_up(error)

    def _stop(self, graph: int, keep: bool) -> None:
        """Stop the profile of this capture, and write its trace."""
        if self._profile is None or graph != self._graph_id or self._thread_id != threading.get_ident():
            return
        with self._hold_signals():
            profile, self._profile = self._profile, None
            try:
                profile.stop_trace()
            except Exception as error:  # the user's program continues without a recording
                self._give_up(error)
                return
            if keep:
                self._count += 1
                self._save(profile)

    def _save(self, profile: Any) -> None:
        try:
            os.makedirs(self._folder.path, exist_ok=True)
            saved = self._exporter.save_cycle(profile, Cycle(self._count, 0, 0, True, False, 0.0))
        except (OSError, SaveAbandoned) as error:
            self._log(f"--capture: a capture could not be saved: {error}")
            return
        if saved is not None:
            self.files.append(saved.trace)
            self._log(f"kept the capture of a graph: {saved.counts.events:,} events in {saved.trace}")

    def _give_up(self, error: Exception) -> None:
        self._profile = None
        self.disable()
        self._log(f"--capture: torch refused to record: {type(error).__name__}: {error}")
