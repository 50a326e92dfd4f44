"""A program that uses torch.profiler itself is left alone: two profilers cannot be on at once."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import torch.autograd.profiler
import torch.profiler

from .profiler_cycles import OWN_PROFILE_ATTRIBUTE, Recorder


class ProfilerConflictWatcher:
    """Hears of profilers that the program makes or starts.

    `yield_to(made)` is called before one of the program's is made (`made`), or before one that a library inside torch
    made for itself (autotuning, say) starts. `traces` are the files that the program's own profiler exported.
    """

    def __init__(self, recorder: Recorder, yield_to: Callable[[bool], None]) -> None:
        self._recorder, self._yield_to = recorder, yield_to
        self._pid = os.getpid()
        self.script_traces: list[str] = []

    def install(self) -> None:
        """Watch torch.profiler from now on. Nothing that it does changes."""
        profile: Any = torch.profiler.profile
        make, export = profile.__init__, profile.export_chrome_trace
        backend: Any = torch.autograd.profiler

        @functools.wraps(make)
        def made(instance: Any, *args: Any, **kwargs: Any) -> None:
            if self._is_foreign() and not _is_inside_torch(sys._getframe(1)):
                self._yield_to(True)
            make(instance, *args, **kwargs)

        @functools.wraps(export)
        def exported(instance: Any, path: Any, *args: Any, **kwargs: Any) -> Any:
            result = export(instance, path, *args, **kwargs)
            if not getattr(instance, OWN_PROFILE_ATTRIBUTE, False) and os.getpid() == self._pid:
                self.script_traces.append(os.path.abspath(os.fspath(path)))
            return result

        profile.__init__, profile.export_chrome_trace = made, exported
        for name in ("_prepare_profiler", "_enable_profiler"):  # every profiler of torch's starts through these
            setattr(backend, name, self._wrap_start(getattr(backend, name)))

    def _wrap_start(self, start: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(start)
        def started(*args: Any, **kwargs: Any) -> Any:
            if self._is_foreign():
                self._yield_to(False)
            return start(*args, **kwargs)

        return started

    def _is_foreign(self) -> bool:
        return not self._recorder.is_creating_profile and os.getpid() == self._pid


def _is_inside_torch(frame: FrameType | None) -> bool:
    """Whether the code that makes a profiler belongs to torch. A subclass's __init__ is its maker's."""
    while frame is not None and frame.f_code.co_name == "__init__":
        frame = frame.f_back
    return frame is not None and str(frame.f_globals.get("__name__", "")).split(".")[0] == "torch"
