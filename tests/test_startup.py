"""Hold the start-up budget: what is imported before the first frame, before the first lanes, and on a key.

The layers themselves are import contracts in pyproject.toml.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.helpers.paths import ROOT, SAMPLES


def output_of(code: str) -> str:
    """Run code in a fresh interpreter; return its stdout and stderr."""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


def test_nothing_heavy_is_imported_before_the_first_frame() -> None:
    code = (
        "import sys, torchprof_tui.app, torchprof_tui.commands.open.main\n"
        "heavy = {'numpy', 'orjson', 'isal', 'msgspec', 'torchprof_tui.trace.model.trace', 'torchprof_tui.analysis'}\n"
        "later = {'start.start_screen', 'explorer.explorer_screen', 'start.recent_traces', 'common.status_line'}\n"
        "later = {f'torchprof_tui.ui.{name}' for name in later}\n"
        "of_several = {'torchprof_tui.trace.specs.rank_files', 'torchprof_tui.trace.sources.listing'}\n"
        "print(sorted((heavy | later | of_several) & sys.modules.keys()))"
    )
    assert output_of(code) == "[]\n"


@pytest.mark.long
def test_the_list_of_jobs_does_not_wait_for_what_traces_need() -> None:
    code = (
        "import sys, torchprof_attach.command.screen\n"
        "later = {'trace.model.trace', 'trace.loading.opener', 'trace.storage.disk_cache', 'ui.start.loading_screen'}\n"
        "later = {f'torchprof_tui.{name}' for name in later}\n"
        "print(sorted(({'numpy', 'http.client', 'msgspec', 'torchprof_attach.answers'} | later) & sys.modules.keys()))"
    )
    assert output_of(code) == "[]\n"


def test_the_start_screen_needs_nothing_that_opens_traces() -> None:
    code = (
        "import sys, torchprof_tui.app, torchprof_tui.commands.open.main, torchprof_tui.ui.start.start_screen\n"
        "later = {name for name in sys.modules if name.startswith('torchprof_tui.trace.loading')}\n"
        "print(sorted(later | ({'msgspec', 'torchprof_tui.runs.history'} & sys.modules.keys())))"
    )
    assert output_of(code) == "[]\n"


@pytest.mark.long
def test_lanes_do_not_wait_for_what_only_the_panels_will_ask() -> None:
    """The explorer is imported while the worker decodes on the same cores; analysis behind panels comes later."""
    code = (
        "import sys, torchprof_tui.app, torchprof_tui.ui.explorer.explorer_screen\n"
        "light = {'pattern', 'check_scope'}  # what an answer is, for the panels\n"
        "light |= {'thresholds', 'code_location', 'undecidable_reasons'}\n"
        "later = {'dispatch.chain', 'dispatch.event_context', 'kernel.footprint'}\n"
        "later |= {'collectives.communication_waiting', 'kernel.kernel_summary', 'kernel.occupancy'}\n"
        "later |= {'time.range_statistics'}\n"
        "later |= {'table', 'kernel.memory_transfer', 'doctor.examination'}\n"
        "later = {f'torchprof_tui.analysis.{name}' for name in later}\n"
        "later |= {'torchprof_tui.ui.table.table_screen', 'torchprof_tui.ui.tree.tree_screen'}\n"
        "later |= {'torchprof_tui.ui.flame.flame_screen'}\n"
        "patterns = 'torchprof_tui.analysis.patterns.'\n"
        "later |= {name for name in sys.modules if name.startswith(patterns) and name.count('.') > 3}\n"
        "later -= {f'{patterns}engine.{name}' for name in light}\n"
        "later -= {f'{patterns}verdict.{name}' for name in ('tree_lines', 'tree_model')}\n"
        "print(sorted(later & sys.modules.keys()))"
    )
    assert output_of(code) == "[]\n"


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
    opening = resolve_specs([sys.argv[1]]).create_opener(cache=False)
    opening.start()
    app = TorchprofApp(opening, cache=False)
    async with app.run_test(size=(200, 50)) as pilot:
        sys.meta_path.insert(0, watch)
        await app.lanes_ready.wait()
        await pilot.press("right", "right_square_bracket", "i", "k", "l", "c", "v", "m", "w", "m", "x")
        for _ in range(3):  # what threads find out is shown, and may ask for more
            await pilot.pause(0.05)
            await app.workers.wait_for_complete()
        await pilot.press("l", "down", "k", "c", "n", "tab")
        for key in ("t", "T", "F", "G", "question_mark", "r", "o"):
            await pilot.press(key)
            await pilot.pause(0.05)
            shown.append(type(app.screen).__name__)
            await pilot.press("escape")
    print("screens:", *shown)
    threads = ("patterns.engine.checker", "kernel.kernel_summary")
    print("in threads:", *(f"torchprof_tui.analysis.{name}" in sys.modules for name in threads))
    print("on the UI thread:", sorted(name for name, on_ui_thread in watch.found if on_ui_thread))


asyncio.run(main())
"""
"""Program for a fresh interpreter that prints on which thread modules are imported after the first frame."""


@pytest.mark.long
def test_no_key_waits_for_an_import() -> None:
    """No module is imported on the UI thread, neither by panel keys right after the first lanes nor by keys
    that open another screen a little later."""
    trace = SAMPLES / "linear_eager.pt.trace.json.gz"
    command = [sys.executable, "-c", PRESS_KEYS, str(trace)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stdout.splitlines() == [
        "screens: TableScreen TreeScreen FlameScreen LearnScreen HelpScreen RecordScreen StartScreen",
        "in threads: True True",
        "on the UI thread: []",
    ], done.stdout + done.stderr


def test_the_loader_is_started_before_the_event_loop_is_imported() -> None:
    code = (
        "import sys, torchprof_tui.commands.open.main, torchprof_tui.trace.loading.opener\n"
        "print(sorted({'asyncio', 'numpy', 'textual', 'rich'} & sys.modules.keys()))"
    )
    assert output_of(code) == "[]\n"


def test_json_needs_no_rich() -> None:
    code = (
        "import importlib, sys\n"
        "for name in ('critical_path', 'what_if', 'memory', 'check', 'info', 'table', 'chain'):\n"
        "    importlib.import_module(f'torchprof_tui.commands.{name}.main')\n"
        "print(sorted({'rich.console', 'rich.table', 'textual'} & sys.modules.keys()))"
    )
    assert output_of(code) == "[]\n"
