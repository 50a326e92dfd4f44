"""Import what is not needed before the first frame: the explorer while a trace is read, other screens after that."""

from __future__ import annotations

import asyncio
import gc
import importlib
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from torchprof_tui.trace.core.errors import TraceError
from torchprof_tui.trace.core.extensions import find_command, guard_function

if TYPE_CHECKING:
    from textual.app import App
    from textual.screen import Screen

    from torchprof_tui.trace.loading.opener import TraceOpener
    from torchprof_tui.trace.model.trace import Trace
    from torchprof_tui.trace.sources.ssh_connections import SshConnections
    from torchprof_tui.trace.specs.address import ListedTrace
    from torchprof_tui.ui.common.compare_asked import CompareAsked
    from torchprof_tui.ui.diff.diff_screen import DiffScreen
    from torchprof_tui.ui.start.start_screen import StartScreen

EXPLORER = "torchprof_tui.ui.explorer.explorer_screen"
LOADING = "torchprof_tui.ui.start.loading_screen"


def create_start_screen(
    can_go_back: bool = False, remote_folder: tuple[str, list[ListedTrace]] | None = None
) -> StartScreen:
    """Create the start screen."""
    from torchprof_tui.ui.start.start_screen import StartScreen  # deferred: not shown when started with a trace

    return StartScreen(can_go_back=can_go_back, remote_folder=remote_folder)


def create_learn_screen() -> Screen[Any]:
    """Create the list of cases where no trace is open."""
    screen: Screen[Any] = importlib.import_module("torchprof_tui.ui.learn.learn_screen").LearnScreen()
    return screen


class SnapshotApp(Protocol):
    """What the app tells its callers: why the first file is not shown, and when that is settled."""

    failure: str | None
    lanes_ready: asyncio.Event

    @property
    def screen_stack(self) -> Sequence[Screen[Any]]: ...


def start_opener(
    specs: Sequence[str], captures: tuple[str, ...], use_cache: bool, connections: SshConnections | None
) -> TraceOpener:
    """Start to open a trace, and import the screen that shows how far that is. Blocks; call it on a thread."""
    resolve = importlib.import_module("torchprof_tui.trace.loading.resolve")
    opener: TraceOpener = resolve.resolve_specs(specs, list_folders=True).create_opener(
        cache=use_cache, defer_blocks=True, connections=connections
    )
    opener.set_captures(captures)
    opener.start()
    importlib.import_module(LOADING)
    return opener


def create_opening_screen(app: SnapshotApp, opener: TraceOpener) -> Screen[Any]:
    """Create the screen that loads a trace; of a memory snapshot its own screen, and stop reading it as a trace.

    Two bytes are read for that: a pickle begins with them, and no trace does.
    """
    if not _is_pickle(opener.spec):
        loading: Screen[Any] = importlib.import_module(LOADING).LoadingScreen(opener, import_explorer, import_checks)
        return loading
    asyncio.get_running_loop().run_in_executor(None, opener.cancel)

    def settle(problem: str) -> None:
        if len(app.screen_stack) <= 2:  # above another screen it is not the file that the program was started with
            app.failure = problem or None
        app.lanes_ready.set()

    module = importlib.import_module("torchprof_tui.ui.memory.snapshot_screen")
    screen: Screen[Any] = module.SnapshotScreen(Path(opener.spec), settle)
    return screen


def create_second_screen(
    opener: TraceOpener, show: Callable[[Trace], object], retry: Callable[[], object]
) -> Screen[Any]:
    """Create the screen that loads a trace to compare with. `show`: called with it. `retry`: after a failure."""
    screen: Screen[Any] = importlib.import_module(LOADING).SecondTraceScreen(opener, show, retry)
    return screen


def _is_pickle(spec: str) -> bool:
    try:
        if not Path(spec).is_file():  # reading a pipe would wait for its writer, and take bytes of the trace
            return False
        with open(spec, "rb") as file:
            head = file.read(2)
    except (OSError, ValueError):
        return False
    if head == b"\x1f\x8b" and Path(spec).stem.endswith((".pickle", ".pkl")):
        snapshot_file = importlib.import_module("torchprof_tui.analysis.memory.snapshots.snapshot_file")
        return bool(snapshot_file.is_snapshot_file(spec))
    return len(head) == 2 and head[0] == 0x80 and head[1] in range(2, 6)


def import_checks() -> None:
    """Import the checks of the whole trace, which begin with the first frame of the lanes."""
    importlib.import_module("torchprof_tui.analysis.patterns.verdict.check_report")


def import_screens() -> None:
    """Import the screens that the explorer's keys open, in a thread, so that no key waits for an import.

    What each import created is collected at once where the app collects only between frames: all of it together would
    take 30 ms after the next frame.
    """
    for module in (
        "table.table_screen",
        "tree.tree_screen",
        "flame.flame_screen",
        "memory.memory_screen",
        "learn.learn_screen",
        "explorer.lesson_panel",
        "diff.diff_screen",
        "common.help_screen",
        "start.start_screen",
        "record.record_screen",
        "record.recording_screen",
    ):
        importlib.import_module(f"torchprof_tui.ui.{module}")
        if not gc.isenabled():
            gc.collect(1)


def check_keys(app: type[App[None]], keymap: Mapping[str, str]) -> list[str]:
    """Return what is wrong with remapped keys, one line each; in a thread, because it imports every screen."""
    problems: list[str] = importlib.import_module("torchprof_tui.ui.all_bindings").check_keymap(app, keymap)
    return problems


def create_diff_screen(asked: CompareAsked, other: Trace, opener: TraceOpener | None) -> DiffScreen:
    """Create the screen that compares the open trace with `other`."""
    opening = importlib.import_module("torchprof_tui.ui.diff.diff_screen")
    screen: DiffScreen = opening.create_diff_screen(asked, other, opener)
    return screen


TRIALS = "try"  # the command that repeats the run of a trace with remedies


def list_tryable_findings(trace: str) -> frozenset[str]:
    """List the findings whose remedies can be tried: the run of this trace can be repeated. Reads the disk."""
    # deferred: not needed before the first frame
    history = importlib.import_module("torchprof_tui.runs.history")
    try:
        stored, command = history.read_request(trace), find_command(TRIALS)
    except (OSError, ValueError):
        return frozenset()
    if stored is None or not stored.is_own or command is None or not command.open_finding:
        return frozenset()
    return frozenset(command.findings)


def create_trials_screen(trace: str, finding: str) -> Screen[Any]:
    """Create the screen that repeats the run of a trace with remedies. Raises TraceError where it cannot."""
    command = find_command(TRIALS)
    if command is None or not command.open_finding:
        raise TraceError("no package with the command try is installed")
    screen: Screen[Any] = guard_function(command, command.open_finding)(trace, finding)
    return screen


def update_recent_and_prune(spec: str) -> str | None:
    """Add a trace to the recent ones and prune the cache, in a thread: a home folder on a network disk may be slow.

    Returns one line about a cache folder that is not used.
    """
    if spec:
        from torchprof_tui.ui.start.recent_traces import add_recent_trace  # deferred: not needed before the first frame

        add_recent_trace(spec)
    disk_cache = importlib.import_module("torchprof_tui.trace.storage.disk_cache")
    disk_cache.prune_cache()
    refusal: str | None = disk_cache.explain_refused_folder()
    return refusal


def import_explorer() -> None:
    """Import numpy and the explorer's modules, in a thread, while the worker decodes.

    Where the app collects only between frames, what was imported is excluded from collections; only the first time,
    because later a trace would be excluded with it and never be freed.
    """
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    is_new = EXPLORER not in sys.modules
    importlib.import_module(EXPLORER)
    if is_new and not gc.isenabled():
        gc.freeze()
