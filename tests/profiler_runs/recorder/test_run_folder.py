"""Run folders: a new one for each run, shared by all ranks of a launch."""

from __future__ import annotations

import os
import re
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from torchprof_runs.recorder import run_folder


@pytest.mark.parametrize(
    ("name", "stem"),
    [
        ("train.py", "train"),
        ("some/where/train.py", "train"),
        ("./a b;c.py", "a_b_c"),
        ("pkg.sub.train", "train"),
        ("app/", "app"),
        ("matmul_add", "matmul_add"),
        ("..", "run"),
        ("日本.py", "日本"),
        ("x" * 300 + ".py", "x" * 80),
        ("\x1b[31m.py", "__31m"),
    ],
)
def test_stem(name: str, stem: str) -> None:
    assert run_folder.make_stem(name) == stem


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        paths = list(pool.map(lambda _: run_folder.create_folder(str(tmp_path / "runs"), "train"), range(40)))
    assert len(set(paths)) == 40
    assert all(
        os.path.isdir(path) and re.fullmatch(r"train-\d{8}-\d{6}(-\d+)?", os.path.basename(path)) for path in paths
    )


def test_ranks_of_a_launch_share_a_folder_and_launches_do_not(tmp_path: Path) -> None:
    def join(number: int) -> tuple[str, str]:
        launch = f"launch{number % 3}"
        path = run_folder.join_folder(str(tmp_path), "train", launch, number // 3)
        Path(path, f"manifest.rank{number // 3}.json").touch()
        return launch, path

    with ThreadPoolExecutor(12) as pool:
        folders = set(pool.map(join, range(12)))
    assert len(folders) == 3
    assert len({path for _, path in folders}) == 3
    # A second launch with the same id (a fixed port, for example) finds its ranks' files and takes another folder.
    second_launch = {run_folder.join_folder(str(tmp_path), "train", "launch0", number) for number in range(2)}
    assert len(second_launch) == 1
    assert not second_launch & {path for _, path in folders}
    assert not [name for name in os.listdir(tmp_path) if name.startswith(".")]


def test_an_old_launch_is_not_joined(tmp_path: Path) -> None:
    old = run_folder.join_folder(str(tmp_path), "train", "same", 0)
    past = time.time() - run_folder.JOIN_WITHIN_SECONDS - 1
    os.utime(Path(old, ".launch"), (past, past))
    assert run_folder.join_folder(str(tmp_path), "train", "same", 1) != old


def test_names_of_files() -> None:
    single = run_folder.RunFolder("/runs/a", "train", None)
    assert single.trace_path() == "/runs/a/train.pt.trace.json.gz"
    assert (single.table_path(2), single.averages_path()) == ("/runs/a/table.cycle2.txt", "/runs/a/key_averages.json")
    third = run_folder.RunFolder("/runs/a", "train", 3)
    assert third.trace_path(2) == "/runs/a/train.rank3.cycle2.pt.trace.json.gz"
    assert (third.manifest_path(), third.manifest_path(0)) == (
        "/runs/a/manifest.rank3.json",
        "/runs/a/manifest.rank0.json",
    )
