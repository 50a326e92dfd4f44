"""The lines between the layers, held twice: by the declared contracts, and by what really gets imported."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


def test_the_contracts_hold() -> None:
    command = [str(Path(sys.executable).with_name("lint-imports")), "--no-cache"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("package", "forbidden"),
    [
        ("tui.trace", ("textual", "rich", "torch", "tui.analysis", "tui.widgets", "tui.screens", "tui.app")),
        ("tui.analysis", ("textual", "rich", "torch", "tui.widgets", "tui.screens", "tui.app")),
        ("tui.widgets", ("torch", "tui.screens", "tui.app", "tui.commands")),
        ("tui.screens", ("torch", "tui.app", "tui.commands", "tui.cli")),
        ("tui", ("torch", "profiler_runs")),
    ],
)
def test_importing_a_layer_imports_nothing_above_it(package: str, forbidden: tuple[str, ...]) -> None:
    """Every module of the package, in a fresh interpreter, in which nothing else has imported anything."""
    code = (
        "import importlib, pkgutil, sys\n"
        f"package = importlib.import_module({package!r})\n"
        "for found in pkgutil.walk_packages(package.__path__, package.__name__ + '.'):\n"
        "    if not found.name.endswith('__main__'):\n"
        "        importlib.import_module(found.name)\n"
        f"print(sorted(set({forbidden!r}) & sys.modules.keys()))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stdout == "[]\n", done.stdout + done.stderr


def test_nothing_heavy_is_imported_before_the_first_frame() -> None:
    code = (
        "import sys, tui.app, tui.commands.open\n"
        "heavy = {'numpy', 'orjson', 'isal', 'tui.trace.trace', 'tui.analysis'}\n"
        "print(sorted((heavy | {'tui.screens.start', 'tui.screens.explorer'}) & sys.modules.keys()))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stdout == "[]\n", done.stdout + done.stderr


def test_the_loader_is_started_before_the_event_loop_is_imported() -> None:
    code = (
        "import sys, tui.commands.open, tui.trace.opening\n"
        "print(sorted({'asyncio', 'numpy', 'textual', 'rich'} & sys.modules.keys()))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stdout == "[]\n", done.stdout + done.stderr


def test_ci_runs_the_line_that_the_readme_promises() -> None:
    line = "python3 -m venv .venv && .venv/bin/pip install -q -c constraints.txt -e '.[dev]' && .venv/bin/pytest"
    assert f"\n{line}\n" in (ROOT / "README.md").read_text(encoding="utf-8")
    assert f"\n{line}\n" in (ROOT / ".ci" / "run").read_text(encoding="utf-8")
