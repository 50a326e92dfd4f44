"""The lines between the layers, held twice: by the declared contracts, and by what really gets imported."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.paths import ROOT, SAMPLES


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
        (
            "torchprof_tui.trace",
            ("textual", "rich", "torch", "torchprof_tui.analysis", "torchprof_tui.ui", "torchprof_tui.app"),
        ),
        ("torchprof_tui.analysis", ("textual", "rich", "torch", "torchprof_tui.ui", "torchprof_tui.app")),
        ("torchprof_tui.ui", ("torch", "torchprof_tui.app", "torchprof_tui.commands", "torchprof_tui.cli")),
        ("torchprof_tui", ("torch", "torchprof_runs")),
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
        "import sys, torchprof_tui.app, torchprof_tui.commands.open.main\n"
        "heavy = {'numpy', 'orjson', 'isal', 'torchprof_tui.trace.model.trace', 'torchprof_tui.analysis'}\n"
        "later = {'start.start_screen', 'explorer.explorer_screen', 'start.recent_traces'}\n"
        "later = {f'torchprof_tui.ui.{name}' for name in later}\n"
        "of_several = {'torchprof_tui.trace.specs.rank_files', 'torchprof_tui.trace.sources.listing'}\n"
        "print(sorted((heavy | later | of_several) & sys.modules.keys()))"
    )
    assert said_by(code) == "[]\n"


def test_lanes_do_not_wait_for_what_only_the_panels_will_ask() -> None:
    """Imported while the child decodes on the same cores: what threads find out behind the first lanes is not."""
    code = (
        "import sys, torchprof_tui.app, torchprof_tui.ui.explorer.explorer_screen\n"
        "light = {'pattern', 'check_scope', 'lane_labels'}  # what an answer is, for the panels\n"
        "later = {'dispatch.chain', 'collectives.late_arrivals', 'dispatch.event_context', 'kernel.footprint'}\n"
        "later |= {'kernel.duration_distribution', 'kernel.kernel_summary', 'kernel.occupancy'}\n"
        "later |= {'time.range_statistics'}\n"
        "later |= {'table', 'kernel.memory_transfer', 'doctor.examination'}\n"
        "later = {f'torchprof_tui.analysis.{name}' for name in later}\n"
        "later |= {'torchprof_tui.ui.table.table_screen', 'torchprof_tui.ui.tree.tree_screen'}\n"
        "patterns = 'torchprof_tui.analysis.patterns.'\n"
        "later |= {name for name in sys.modules if name.startswith(patterns) and name.count('.') > 3}\n"
        "later -= {f'{patterns}engine.{name}' for name in light}\n"
        "print(sorted(later & sys.modules.keys()))"
    )
    assert said_by(code) == "[]\n"


PRESS_KEYS = """\
import asyncio, sys, threading

from torchprof_tui.app import TorchprofApp
from torchprof_tui.trace.loading.resolve import resolve_specs


class Watch:
    found = []

    def find_spec(self, name, path=None, target=None):
        if name.startswith("torchprof_tui."):
            self.found.append((name, threading.current_thread() is threading.main_thread()))


async def main():
    watch, shown = Watch(), []
    opener = resolve_specs([sys.argv[1]]).create_opener(cache=False)
    opener.start()
    app = TorchprofApp(opener, cache=False)
    sys.meta_path.insert(0, watch)
    async with app.run_test(size=(200, 50)) as pilot:
        await app.lanes_ready.wait()
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
    threads = ("patterns.engine.checker", "kernel.kernel_summary")
    print("in threads:", *(f"torchprof_tui.analysis.{name}" in sys.modules for name in threads))
    print("on the screen's:", sorted(name for name, screens_own in watch.found if screens_own))


asyncio.run(main())
"""
"""In a fresh interpreter: which of our modules are imported on which thread, from the first frame on."""


def test_no_key_waits_for_an_import() -> None:
    """Those of the panels when lanes have only just come, those to other screens a little later: nothing of ours is
    imported on the thread that draws."""
    trace = SAMPLES / "linear_eager.pt.trace.json.gz"
    command = [sys.executable, "-c", PRESS_KEYS, str(trace)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stdout.splitlines() == [
        "screens: TableScreen TreeScreen GuessScreen HelpScreen RecordScreen StartScreen",
        "in threads: True True",
        "on the screen's: []",
    ], done.stdout + done.stderr


def test_the_loader_is_started_before_the_event_loop_is_imported() -> None:
    code = (
        "import sys, torchprof_tui.commands.open.main, torchprof_tui.trace.loading.open_trace\n"
        "print(sorted({'asyncio', 'numpy', 'textual', 'rich'} & sys.modules.keys()))"
    )
    assert said_by(code) == "[]\n"


def test_ci_runs_the_line_that_the_readme_promises() -> None:
    line = "python3 -m venv .venv && .venv/bin/pip install -q -c constraints.txt -e '.[dev]' && .venv/bin/pytest"
    assert f"\n{line}\n" in (ROOT / "README.md").read_text(encoding="utf-8")
    assert f"\n{line}\n" in (ROOT / ".ci" / "run").read_text(encoding="utf-8")
