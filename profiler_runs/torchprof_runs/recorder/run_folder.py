"""The folder of one run: made fresh, shared by the ranks of one launch, with a name for each file in it."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import time

FOLDER_VARIABLE = "TORCHPROF_RUN_FOLDER"  # set by our own launcher: the very folder, already made
_LAUNCH_FILE = ".launch"  # names the launch that a shared folder belongs to
JOIN_WITHIN_SECONDS = 600.0  # seconds: ranks of one launch start together, an older folder is another launch's


class RunFolder:
    """Where one process of a run keeps its files; `rank` is None for a process that runs alone."""

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
        """This process's manifest, or the one of another rank of the same launch."""
        return self._file_path("manifest", ".json", 1, self.rank if rank is None else rank)

    def log_path(self) -> str:
        return os.path.join(self.path, "log.txt")


def make_stem(name: str) -> str:
    """A short file name for what is run: ``train`` for ``some/train.py``, ``b`` for the module ``a.b``."""
    base = os.path.basename(name.rstrip("/"))
    base = base[:-3] if base.endswith(".py") else base.rpartition(".")[2] or base
    kept = "".join(char if char.isalnum() or char in "-_" else "_" for char in base)
    return kept[:80] if kept.strip("_") else "run"


def create_folder(parent: str, stem: str) -> str:
    """Make a new folder ``STEM-DATE-TIME`` in `parent` and return its path. Raises OSError where it cannot."""
    os.makedirs(parent, exist_ok=True)
    for path in _list_candidates(parent, stem):
        try:
            os.mkdir(path)
        except FileExistsError:
            continue
        return os.path.abspath(path)
    raise FileExistsError(f"no free name for {stem} in {parent}")


def join_folder(parent: str, stem: str, launch_id: str, rank: int) -> str:
    """The one folder that all ranks of `launch` get, made by whichever comes first. Raises OSError where it cannot.

    Ranks that another program started share no parent of ours to choose a folder for them. So each tries the same
    names: a folder that says it is this launch's is joined unless this rank already wrote there, any other skipped.
    """
    os.makedirs(parent, exist_ok=True)
    # A folder and its launch appear at once: it is filled under a private name and renamed to the public one.
    made = tempfile.mkdtemp(prefix=f".{stem}-", dir=parent)
    try:
        os.chmod(made, 0o755)
        with open(os.path.join(made, _LAUNCH_FILE), "w", encoding="utf-8") as file:
            file.write(launch_id)
        # Numbered, not named by the clock, which two ranks may read on either side of a second.
        for number in range(1, 10_000):
            path = os.path.join(parent, f"{stem}-{number:04d}")
            with contextlib.suppress(OSError):  # taken: rename refuses a folder that is not empty
                os.rename(made, path)
                return os.path.abspath(path)
            if _is_joinable(path, launch_id, rank):
                return os.path.abspath(path)
        raise FileExistsError(f"no free name for {stem} in {parent}")
    finally:
        shutil.rmtree(made, ignore_errors=True)


def _list_candidates(parent: str, stem: str) -> list[str]:
    base = os.path.join(parent, f"{stem}-{time.strftime('%Y%m%d-%H%M%S')}")
    return [base, *(f"{base}-{number}" for number in range(2, 1000))]


def _is_joinable(path: str, launch: str, rank: int) -> bool:
    marker = os.path.join(path, _LAUNCH_FILE)
    try:
        with open(marker, encoding="utf-8") as file:
            same = file.read() == launch
        young = time.time() - os.path.getmtime(marker) < JOIN_WITHIN_SECONDS
    except OSError:
        return False
    return same and young and not os.path.exists(os.path.join(path, f"manifest.rank{rank}.json"))
