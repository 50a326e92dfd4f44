"""Import what is not needed before the first frame: the explorer while a trace is read, other screens after that."""

from __future__ import annotations

import asyncio
import gc
import importlib
import os
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torchprof_tui.trace.core.errors import TraceError
from torchprof_tui.trace.core.extensions import find_command, guard_function

if TYPE_CHECKING:
    from textual.screen import Screen

    from torchprof_tui.trace.loading.opener import TraceOpener
    from torchprof_tui.trace.sources.ssh_connections import SshConnections
    from torchprof_tui.trace.specs.address import ListedTrace
    from torchprof_tui.ui.start.start_screen import StartScreen

EXPLORER = "torchprof_tui.ui.explorer.explorer_screen"
LOADING = "torchprof_tui.ui.start.loading_screen"


def import_attribute(name: str) -> Any:
    """Import what a name below this package stands for, as `learn.learn_screen:LearnScreen`."""
    module, _, attribute = name.partition(":")
    return getattr(importlib.import_module(f"torchprof_tui.ui.{module}"), attribute)


def create_start_screen(
    can_go_back: bool = False, remote_folder: tuple[str, list[ListedTrace]] | None = None
) -> StartScreen:
    """Create the start screen."""
    start: StartScreen = import_attribute("start.start_screen:StartScreen")(can_go_back, remote_folder=remote_folder)
    return start


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


def create_opening_screen(opener: TraceOpener, settle: Callable[[str], None]) -> Screen[Any]:
    """Create the screen that loads a trace; of a memory snapshot its own screen, and stop reading it as a trace.

    Two bytes are read for that: a pickle begins with them, and no trace does. `settle`: called when a snapshot was
    read, with "", or with why it cannot be.
    """
    if not _is_pickle(opener.spec):
        checks = "torchprof_tui.analysis.patterns.verdict.check_report"  # they begin with the first frame of the lanes
        loading = import_attribute("start.loading_screen:LoadingScreen")
        screen: Screen[Any] = loading(opener, import_explorer, partial(importlib.import_module, checks))
        return screen
    asyncio.get_running_loop().run_in_executor(None, opener.cancel)
    snapshot: Screen[Any] = import_attribute("memory.snapshot_screen:SnapshotScreen")(Path(opener.spec), settle)
    return snapshot


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
