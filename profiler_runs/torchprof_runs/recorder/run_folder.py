"""Create the folder of a run, shared by the ranks of one launch, and name the files in it."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import time

FOLDER_VARIABLE = "TORCHPROF_RUN_FOLDER"  # set by `rank_launcher`: the run's folder, already created
_LAUNCH_FILE = ".launch"  # contains the id of the launch that a shared folder belongs to
# Seconds. Ranks of one launch start together, so an older folder belongs to another launch.
JOIN_WITHIN_SECONDS = 600.0


class RunFolder:
    """Paths of the files of one process of a run; `rank` is None for a process that runs alone."""

    def __init__(self, path: str, stem: str, rank: int | None) -> None:
        self.path, self.stem, self.rank = path, stem, rank

    def _file_path(self, kind: str, suffix: str, cycle: int, rank: int | None) -> str:
        parts = [kind]
        if rank is not None:
            parts.append(f"rank{rank}")
        if cycle > 1:
            parts.append(f"cycle{cycle}")
        return os.path.join(self.path, ".".join(parts) + suffix)

    def trace_path(self, cycle: int = 1) -> str:
        return self._file_path(self.stem, ".pt.trace.json.gz", cycle, self.rank)

    def table_path(self, cycle: int = 1) -> str:
        return self._file_path("table", ".txt", cycle, self.rank)

    def averages_path(self, cycle: int = 1) -> str:
        return self._file_path("key_averages", ".json", cycle, self.rank)

    def manifest_path(self, rank: int | None = None) -> str:
        """Return the path of this process's manifest, or of that of another rank of the same launch."""
        return self._file_path("manifest", ".json", 1, self.rank if rank is None else rank)

    def snapshot_path(self) -> str:
        return self._file_path("memory_snapshot", ".pickle", 1, self.rank)

    def log_path(self) -> str:
        return os.path.join(self.path, "log.txt")


class CaptureFolder:
    """Paths of the captures of one process of a run, in the folder in which the viewer looks for them."""

    def __init__(self, run: RunFolder) -> None:
        self.path = os.path.join(run.path, "capture_traces")
        self._rank = run.rank

    def trace_path(self, cycle: int = 1) -> str:
        """Return the path of the trace of the capture with this number."""
        rank = "" if self._rank is None else f".rank{self._rank}"
        return os.path.join(self.path, f"graph{cycle:03}{rank}.pt.trace.json.gz")

    def table_path(self, cycle: int = 1) -> str:
        return f"{self.trace_path(cycle)}.txt"

    def averages_path(self, cycle: int = 1) -> str:
        return f"{self.trace_path(cycle)}.averages.json"


def make_stem(name: str) -> str:
    """Make a short file name from a program's: ``train`` for ``some/train.py``, ``b`` for the module ``a.b``."""
    base = os.path.basename(name.rstrip("/"))
    base = base[:-3] if base.endswith(".py") else base.rpartition(".")[2] or base
    stem = "".join(char if char.isalnum() or char in "-_" else "_" for char in base)
    return stem[:80] if stem.strip("_") else "run"


def create_folder(parent: str, stem: str) -> str:
    """Create a new folder ``STEM-DATE-TIME`` in `parent` and return its path. Raises OSError if it cannot."""
    os.makedirs(parent, exist_ok=True)
    for path in _list_candidates(parent, stem):
        try:
            os.mkdir(path)
        except FileExistsError:
            continue
        return os.path.abspath(path)
    raise FileExistsError(f"no free name for {stem} in {parent}")


def join_folder(parent: str, stem: str, launch_id: str, rank: int) -> str:
    """Return the folder that all ranks of a launch share; the first rank creates it. Raises OSError if it cannot.

    Ranks that another program started have no common parent process of this package that could choose a folder. So
    each rank tries the same names: it joins a folder that belongs to `launch_id`, unless it has already written there,
    and skips every other one.
    """
    os.makedirs(parent, exist_ok=True)
    # The folder and its launch file must appear at the same time, so it is filled under a temporary name and renamed.
    draft = tempfile.mkdtemp(prefix=f".{stem}-", dir=parent)
    try:
        os.chmod(draft, 0o755)
        with open(os.path.join(draft, _LAUNCH_FILE), "w", encoding="utf-8") as file:
            file.write(launch_id)
        # Numbered instead of named by the time, because the ranks may start in different seconds.
        for number in range(1, 10_000):
            path = os.path.join(parent, f"{stem}-{number:04d}")
            with contextlib.suppress(OSError):  # taken: rename fails if the target is not empty
                os.rename(draft, path)
                return os.path.abspath(path)
            if _is_joinable(path, launch_id, rank):
                return os.path.abspath(path)
        raise FileExistsError(f"no free name for {stem} in {parent}")
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _list_candidates(parent: str, stem: str) -> list[str]:
    base = os.path.join(parent, f"{stem}-{time.strftime('%Y%m%d-%H%M%S')}")
    return [base, *(f"{base}-{number}" for number in range(2, 1000))]


def _is_joinable(path: str, launch_id: str, rank: int) -> bool:
    launch_file = os.path.join(path, _LAUNCH_FILE)
    try:
        with open(launch_file, encoding="utf-8") as file:
            is_same_launch = file.read() == launch_id
        is_recent = time.time() - os.path.getmtime(launch_file) < JOIN_WITHIN_SECONDS
    except OSError:
        return False
    return is_same_launch and is_recent and not os.path.exists(os.path.join(path, f"manifest.rank{rank}.json"))
