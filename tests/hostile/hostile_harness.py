"""Stand in for the recorder: write prepared bytes to the status pipe and to the terminal, and leave a run folder.

Runs as a script in a process of its own, without the checkout on sys.path.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
from pathlib import Path

root = Path(os.environ["HOSTILE_ROOT"])
folder = root / "work" / "torchprof_runs" / "recorded"
with contextlib.suppress(OSError):
    shutil.copytree(root / "work" / "torchprof_runs" / "run1", folder)
with contextlib.suppress(OSError, KeyError):
    pipe = os.open(os.environ["TORCHPROF_STATUS"], os.O_WRONLY | os.O_NONBLOCK)
    os.write(pipe, b'{"time": 1, "rank": 0, "phase": "starting", "folder": "%s"}\n' % os.fsencode(folder))
    for line in (root / "status").read_bytes().split(b"\n"):
        os.write(pipe, line + b"\n")
with contextlib.suppress(OSError):
    os.write(1, (root / "console").read_bytes())
sys.exit(3 if (root / "status").stat().st_size % 2 else 0)
