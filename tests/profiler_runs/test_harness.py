"""Start the harness under any interpreter: by path, without torch, with modules of the program that share its names."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.later_imports import skip_without
from tests.profiler_runs.conftest import HARNESS, Start
from torchprof_runs.recorder import target_program
from torchprof_runs.recorder.options import UsageError, parse_options


def harness(*argv: str, cwd: Path, flags: tuple[str, ...] = (), **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *flags, str(HARNESS), *argv],
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **env},
    )


def test_no_torch(tmp_path: Path) -> None:
    """-S leaves out site-packages, and so torch."""
    (tmp_path / "train.py").write_text("print('must not run')\n")
    for options in ((), ("--nproc", "2")):
        done = harness(*options, "train.py", cwd=tmp_path, flags=("-S",), PYTHONPATH="")
        assert done.returncode == 2
        assert done.stdout == ""
        assert done.stderr.startswith(f"torchprof: no torch in {sys.executable}")
        assert len(done.stderr.splitlines()) == 1
    assert os.listdir(tmp_path) == ["train.py"]


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("raise ImportError('libcudart.so.12: cannot open shared object file')", "does not load: libcudart"),
        ("__version__ = '1.13.1+cu117'", "torch 1.13.1+cu117 in"),
        ("import no_such_thing", "is broken"),
    ],
)
def test_a_torch_that_cannot_record(tmp_path: Path, source: str, says: str) -> None:
    (tmp_path / "torch.py").write_text(source + "\n")
    (tmp_path / "train.py").write_text("print('must not run')\n")
    done = harness("train.py", cwd=tmp_path, PYTHONPATH=str(tmp_path))
    assert (done.returncode, done.stdout) == (2, "")
    assert says in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_help_needs_no_torch(tmp_path: Path) -> None:
    done = harness("--help", cwd=tmp_path, flags=("-S",), PYTHONPATH="")
    assert done.returncode == 0
    assert "--warmup" in done.stdout


def test_a_wrong_call_needs_no_torch(tmp_path: Path) -> None:
    done = harness("--active", "x", "train.py", cwd=tmp_path, flags=("-S",), PYTHONPATH="")
    assert done.returncode == 2
    assert done.stderr.startswith("torchprof: ")
    assert len(done.stderr.splitlines()) == 1


def test_the_package_is_not_on_sys_path(start: Start, tmp_path: Path) -> None:
    """The program's own modules take precedence over the package and its modules of the same name."""
    (tmp_path / "script.py").write_text(
        "import sys, options, recorder, torchprof_runs\n"
        "print(options.name, recorder.name, torchprof_runs.name, any('torchprof_runs' in path for path in sys.path))\n"
    )
    for name in ("options", "recorder", "torchprof_runs"):
        (tmp_path / f"{name}.py").write_text(f"name = {name!r}\n")
    run = start(["script.py"], cwd=tmp_path)
    assert run.wait() == 0, run.err
    assert run.out == "options recorder torchprof_runs False\n"


def test_as_a_module(start: Start, tmp_path: Path) -> None:
    """python -m needs the package installed."""
    installed = tmp_path / "installed"
    shutil.copytree(HARNESS.parent, installed / "torchprof_runs", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "script.py").write_text("import sys; print(sys.path[0], 'torch' in sys.modules)\n")
    run = start(["script.py"], cwd=tmp_path, module=installed)
    assert run.wait() == 0, run.err
    assert run.out == f"{tmp_path} True\n"


@pytest.mark.long
@pytest.mark.slow
def test_isolated(tmp_path: Path) -> None:
    """With -I neither the harness nor the program is on sys.path."""
    skip_without("torch")
    (tmp_path / "script.py").write_text("import sys; print(sys.path[0])\n")
    isolated = harness("script.py", cwd=tmp_path, flags=("-I",))
    assert isolated.returncode == 0, isolated.stderr
    assert str(tmp_path) not in isolated.stdout


def test_workloads_exist() -> None:
    for name in target_program.WORKLOADS:
        assert target_program.is_workload(parse_options([name]))
        assert (HARNESS.parent / "workloads" / f"{name}.py").exists()
    assert not target_program.is_workload(parse_options(["-m", "matmul_add"]))
    with pytest.raises(UsageError, match="no workload of that name"):
        target_program.find_program(parse_options(["matmul_sub"]), None, None)
