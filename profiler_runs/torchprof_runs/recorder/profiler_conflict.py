"""Detect programs that use torch.profiler themselves, so that they are left alone.

Two profilers cannot be active at the same time.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import torch.autograd.profiler
import torch.profiler

from . import attached
from .profiler_cycles import OWN_PROFILE_ATTRIBUTE, Recorder


class ProfilerConflictWatcher:
    """Detect profilers that the program creates or starts.

    `yield_to(True)` is called before the program creates a profiler, `yield_to(False)` before any foreign profiler
    starts, also one that a library inside torch created for itself (autotuning, for example). `script_traces` are the
    files that the program's own profiler exported.
    """

    def __init__(self, recorder: Recorder, yield_to: Callable[[bool], None]) -> None:
        self._recorder, self._yield_to = recorder, yield_to
        self._pid = os.getpid()
        self.script_traces: list[str] = []
        self._unwritten: Any = None  # the program's profiler that stopped last, if nothing takes its trace

    def install(self) -> None:
        """Wrap the functions of torch.profiler that create, start and export. Their results do not change."""
        profile: Any = torch.profiler.profile
        original_init, original_export, original_stop = profile.__init__, profile.export_chrome_trace, profile.stop
        backend: Any = torch.autograd.profiler

        @functools.wraps(original_init)
        def watched_init(instance: Any, *args: Any, **kwargs: Any) -> None:
            if self._is_foreign() and not _is_inside_torch(sys._getframe(1)):
                self._yield_to(True)
            original_init(instance, *args, **kwargs)

        @functools.wraps(original_export)
        def watched_export(instance: Any, path: Any, *args: Any, **kwargs: Any) -> Any:
            result = original_export(instance, path, *args, **kwargs)
            is_own = getattr(instance, OWN_PROFILE_ATTRIBUTE, False) or attached.is_busy()
            if not is_own and os.getpid() == self._pid:
                self.script_traces.append(os.path.abspath(os.fspath(path)))
            return result

        @functools.wraps(original_stop)
        def watched_stop(instance: Any) -> None:
            original_stop(instance)
            if self._is_foreign() and not getattr(instance, OWN_PROFILE_ATTRIBUTE, False):
                self._unwritten = instance if instance.on_trace_ready is None else None

        profile.__init__, profile.export_chrome_trace, profile.stop = watched_init, watched_export, watched_stop
        for name in ("_prepare_profiler", "_enable_profiler"):  # every torch profiler starts through these
            setattr(backend, name, self._wrap_start(getattr(backend, name)))

    def export_unwritten(self, path: str, table_path: str) -> str:
        """Write what the program's profiler recorded, if the program wrote no trace itself, and its table.

        Returns the path, "" where nothing was recorded: then torch has nothing to export.
        """
        unwritten, self._unwritten = self._unwritten, None
        if unwritten is None or self.script_traces or os.getpid() != self._pid:
            return ""
        try:
            unwritten.export_chrome_trace(path)  # which adds it to `script_traces`
            table = unwritten.key_averages().table(sort_by="cpu_time_total", row_limit=100)
            with open(table_path, "w", encoding="utf-8") as file:
                file.write(table + "\n")
        except Exception:  # torch asserts, or raises what it likes, where a schedule never recorded
            return path if self.script_traces else ""
        return path

    def _wrap_start(self, start: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(start)
        def watched_start(*args: Any, **kwargs: Any) -> Any:
            if self._is_foreign():
                self._yield_to(False)
            return start(*args, **kwargs)

        return watched_start

    def _is_foreign(self) -> bool:
        is_own = self._recorder.is_creating_profile or attached.is_busy()
        return not is_own and os.getpid() == self._pid


def _is_inside_torch(frame: FrameType | None) -> bool:
    """Return whether torch's own code creates a profiler. The __init__ of a subclass counts as its caller."""
    while frame is not None and frame.f_code.co_name == "__init__":
        frame = frame.f_back
    return frame is not None and str(frame.f_globals.get("__name__", "")).split(".")[0] == "torch"
