"""Record the history of the CUDA caching allocator, and write a snapshot of it when the program ends."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from . import torch_capabilities
from .atomic_files import explain_os_error, remove_on_exit

MAX_ENTRIES = 1_000_000
"""Allocations and frees that are kept, the latest; about 300 MB of the program's memory."""


class MemorySnapshot:
    """The allocator's history of one process. `path`: where the snapshot is written."""

    def __init__(self, torch: Any, path: str, log: Callable[[str], None]) -> None:
        self._torch, self._path, self._log = torch, path, log
        self._is_recording = self._is_explained = False

    def start(self) -> None:
        """Record from the moment on which the program uses a GPU.

        torch initializes CUDA when it is first used, and a program that forks before must not find it initialized.
        """
        if not torch_capabilities.is_gpu_present(self._torch):
            self._log(f"no memory snapshot: {torch_capabilities.explain_missing_allocator(self._torch)}")
            self._is_explained = True
            return
        try:
            self._torch.cuda._lazy_call(self._begin)
        except Exception as error:
            self._log(f"no memory snapshot: {_format_error(error)}")

    def _begin(self) -> None:
        try:
            self._torch.cuda.memory._record_memory_history(max_entries=MAX_ENTRIES, stacks="python")
        except Exception as error:  # it is the program's own call that would fail
            self._log(f"no memory snapshot: torch refused to record it: {_format_error(error)}")
            return
        self._is_recording = True

    def save(self) -> str | None:
        """Write the snapshot. Returns the name of the file, None where there is none, which is logged."""
        if not self._is_recording:
            if not self._is_explained and not self._torch.cuda.is_initialized():
                self._log("no memory snapshot: the program used no GPU")
            return None
        self._is_recording = False
        part = f"{self._path}.part"
        try:
            with remove_on_exit(part):
                self._torch.cuda.memory._dump_snapshot(part)
                os.replace(part, self._path)
        except Exception as error:
            reason = explain_os_error(error) if isinstance(error, OSError) else _format_error(error)
            self._log(f"no memory snapshot: {reason}")
            return None
        name = os.path.basename(self._path)
        self._log(f"kept the memory snapshot {name}: torchprof-tui memory {self._path}")
        return name


def _format_error(error: Exception) -> str:
    text = str(error).strip()
    return f"{type(error).__name__}: {text.splitlines()[0]}" if text else type(error).__name__
