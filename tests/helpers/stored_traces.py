"""Load samples and shared traces that other tests, in any of the tests' processes, have decoded before.

A suite of tests opens the same files again and again; each is decoded once and mapped from then on, as the program's
cache does. Tests of what reads and builds a trace load it themselves.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from tests.helpers.paths import KEPT_TRACES, SAMPLES, SHARED_TRACES, STORE_VARIABLE
from torchprof_tui.trace.loading import load_in_process
from torchprof_tui.trace.loading.capture_files import CaptureFiles
from torchprof_tui.trace.loading.decode_and_store import decode_and_store
from torchprof_tui.trace.loading.progress import ignore_progress
from torchprof_tui.trace.model.trace import Trace
from torchprof_tui.trace.storage.trace_store import open_trace

_MAX_BYTES = 2 << 20
"""Larger files are decoded by few tests, and their columns take much room."""


def load_trace(spec: str, cache: bool = False) -> Trace:
    """Load a trace as `load_in_process.load_trace` does without the user's cache."""
    path, store = Path(spec).absolute(), os.environ.get(STORE_VARIABLE)
    is_ours = any(path.is_relative_to(folder.absolute()) for folder in (SAMPLES, SHARED_TRACES, KEPT_TRACES))
    if cache or store is None or not is_ours or not path.is_file() or path.stat().st_size > _MAX_BYTES:
        return load_in_process.load_trace(spec, cache=cache)
    folder = Path(store) / hashlib.sha256(os.fsencode(path)).hexdigest()
    if not folder.exists():
        draft = tempfile.mkdtemp(dir=store)
        decode_and_store(spec, Path(draft), ignore_progress)
        with suppress(OSError):  # another process was faster
            os.rename(draft, folder)
        shutil.rmtree(draft, ignore_errors=True)
    return replace(open_trace(folder), label=spec, captures=CaptureFiles(spec, (), cache=False))
