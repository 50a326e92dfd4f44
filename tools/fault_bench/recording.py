"""Record cells, the ones of a model in a process of its own, so that neither a crash nor a hang stops the others."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from .kinds import KINDS

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def read_cells(folder: str) -> list[dict[str, Any]]:
    """Read cells.jsonl; the last line of a cell counts, and a line that was cut off does not."""
    cells: dict[tuple[str, str], dict[str, Any]] = {}
    try:
        with open(os.path.join(folder, "cells.jsonl"), encoding="utf-8") as file:
            lines = file.read().splitlines()
    except FileNotFoundError:
        lines = []
    for line in lines:
        try:
            cell = json.loads(line)
        except ValueError:
            continue
        cells[cell["kind"], cell["model"]] = cell
    return list(cells.values())


def _append(folder: str, cell: dict[str, Any]) -> None:
    with open(os.path.join(folder, "cells.jsonl"), "a", encoding="utf-8") as file:
        file.write(json.dumps(cell) + "\n")


def _compress(path: str) -> None:
    with open(path, "rb") as source, gzip.open(path + ".gz", "wb", 6) as target:
        shutil.copyfileobj(source, target)
    os.remove(path)


def compress_traces(folder: str) -> None:
    """Compress what was traced, after the measurements, which it would disturb."""
    names = [name for name in os.listdir(folder) if name.endswith((".faulty.json", ".mended.json"))]
    paths = [os.path.join(folder, name) for name in names]
    with ThreadPoolExecutor() as workers:
        list(workers.map(_compress, paths))


def record(
    folder: str, models: Sequence[str], kinds: Sequence[str], device: str, seconds: float
) -> list[dict[str, Any]]:
    """Record kinds × models into `folder` within `seconds`, and return all cells that are there afterwards.

    Cells that are recorded already are left out.
    """
    os.makedirs(folder, exist_ok=True)
    end = time.monotonic() + seconds
    for model in models:
        for kind in kinds:
            if model in KINDS[kind].skipped:
                reason = KINDS[kind].skipped[model]
                _append(folder, {"kind": kind, "model": model, "status": "skipped", "reason": reason})
        # A failed cell is tried again in a later call, not in this one.
        done = {cell["kind"] for cell in read_cells(folder) if cell["model"] == model and cell["status"] != "failed"}
        waiting = [kind for kind in kinds if kind not in done]
        while waiting and time.monotonic() < end:
            before = len(waiting)
            waiting = _record_model(folder, model, waiting, device, end)
            if len(waiting) == before:
                break
        compress_traces(folder)
    return read_cells(folder)


def _record_model(folder: str, model: str, kinds: list[str], device: str, end: float) -> list[str]:
    """Start one process for the cells of a model; return the kinds that are left after it."""
    plan = {"model": model, "kinds": kinds, "folder": os.path.abspath(folder), "device": device}
    plan["seconds"] = end - time.monotonic()  # type: ignore[assignment]
    started = os.path.join(folder, "started")
    if os.path.exists(started):
        os.remove(started)
    command = [sys.executable, "-m", f"{__package__}.measuring", json.dumps(plan)]
    status = subprocess.run(command, cwd=ROOT).returncode
    if not os.path.exists(started):
        if status:
            for kind in kinds:
                reason = f"the process of {model} ended with status {status} before its first cell"
                _append(folder, {"kind": kind, "model": model, "status": "failed", "reason": reason})
        return kinds
    with open(started, encoding="utf-8") as file:
        last = file.read()
    os.remove(started)
    if status not in (0, 3):
        reason = f"the process ended with status {status}: a hang or a crash"
        _append(folder, {"kind": last, "model": model, "status": "failed", "reason": reason})
    return kinds[kinds.index(last) + 1 :]
