"""The lines between the layers, held twice: by the declared contracts, and by what really gets imported."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


def said_by(code: str) -> str:
    """What it prints in a fresh interpreter, in which nothing has been imported yet; and what goes wrong."""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


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
    assert said_by(code) == "[]\n"


def test_nothing_heavy_is_imported_before_the_first_frame() -> None:
    code = (
        "import sys, tui.app, tui.commands.open\n"
        "heavy = {'numpy', 'orjson', 'isal', 'tui.trace.trace', 'tui.analysis'}\n"
        "later = {'tui.screens.start', 'tui.screens.explorer', 'tui.recent'}\n"
        "of_several = {'tui.trace.rank_files', 'tui.trace.looking'}\n"
        "print(sorted((heavy | later | of_several) & sys.modules.keys()))"
    )
    assert said_by(code) == "[]\n"


def test_lanes_do_not_wait_for_what_only_the_panels_will_ask() -> None:
    """Imported while the child decodes on the same cores: what threads find out behind the first lanes is not."""
    code = (
        "import sys, tui.app, tui.screens.explorer\n"
        "light = {'model', 'scope', 'labels'}  # what an answer is, for the panels that will show it\n"
        "later = {'chain', 'collectives', 'event_facts', 'footprint', 'instances', 'kernel_facts', 'occupancy'}\n"
        "later |= {'ranges', 'table', 'transfer', 'doctor.examine'}\n"
        "later = {f'tui.analysis.{name}' for name in later} | {'tui.screens.table', 'tui.screens.tree'}\n"
        "later |= {name for name in sys.modules if name.startswith('tui.analysis.patterns.')}\n"
        "later -= {f'tui.analysis.patterns.{name}' for name in light}\n"
        "print(sorted(later & sys.modules.keys()))"
    )
    assert said_by(code) == "[]\n"


PRESS_KEYS = """\
import asyncio, sys, threading

from tui.app import TorchprofApp
from tui.specs import named


class Watch:
    found = []

    def find_spec(self, name, path=None, target=None):
        if name.startswith("tui."):
            self.found.append((name, threading.current_thread() is threading.main_thread()))


async def main():
    watch, shown = Watch(), []
    opening = named([sys.argv[1]]).opening(cache=False)
    opening.start()
    app = TorchprofApp(opening, cache=False)
    sys.meta_path.insert(0, watch)
    async with app.run_test(size=(200, 50)) as pilot:
        await app.explored.wait()
        await pilot.press("right", "right_square_bracket", "i", "k", "l", "c", "v", "m", "w", "m", "x")
        for _ in range(3):  # what threads find out is shown, and may ask for more
            await pilot.pause(0.05)
            await app.workers.wait_for_complete()
        await pilot.press("l", "down", "k", "c", "n", "tab")
        for key in ("t", "T", "G", "question_mark", "R", "o"):
            await pilot.press(key)
            await pilot.pause(0.05)
            shown.append(type(app.screen).__name__)
            await pilot.press("escape")
    print("screens:", *shown)
    print("in threads:", "tui.analysis.patterns.checker" in sys.modules, "tui.analysis.kernel_facts" in sys.modules)
    print("on the screen's:", sorted(name for name, screens_own in watch.found if screens_own))


asyncio.run(main())
"""
"""In a fresh interpreter: which of our modules are imported on which thread, from the first frame on."""


def test_no_key_waits_for_an_import() -> None:
    """Those of the panels when lanes have only just come, those to other screens a little later: nothing of ours is
    imported on the thread that draws."""
    trace = ROOT / "sample_traces" / "linear_eager.pt.trace.json.gz"
    command = [sys.executable, "-c", PRESS_KEYS, str(trace)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stdout.splitlines() == [
        "screens: TableScreen TreeScreen GuessScreen HelpScreen RunScreen StartScreen",
        "in threads: True True",
        "on the screen's: []",
    ], done.stdout + done.stderr


def test_the_loader_is_started_before_the_event_loop_is_imported() -> None:
    code = (
        "import sys, tui.commands.open, tui.trace.opening\n"
        "print(sorted({'asyncio', 'numpy', 'textual', 'rich'} & sys.modules.keys()))"
    )
    assert said_by(code) == "[]\n"


def test_ci_runs_the_line_that_the_readme_promises() -> None:
    line = "python3 -m venv .venv && .venv/bin/pip install -q -c constraints.txt -e '.[dev]' && .venv/bin/pytest"
    assert f"\n{line}\n" in (ROOT / "README.md").read_text(encoding="utf-8")
    assert f"\n{line}\n" in (ROOT / ".ci" / "run").read_text(encoding="utf-8")
