"""When the app collects garbage: the young objects after a frame, all of them when a screen has been removed.

Python's own collector would run in mid-frame, so it is disabled once lanes are on screen. A removed screen is a cycle
of widgets that refers to a whole trace or table; it has survived the young generations, so that only a full collection
frees it. What is freed lies between blocks that are still used, where the C library keeps it: random keys on a trace of
338 MB left 190 MB in use and 450 MB free. So a full collection is followed by `malloc_trim`. Each thread that allocates
has an arena of its own otherwise, with gaps of its own: 200 MB of them after 15 minutes of random keys, 40 MB with one.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from contextvars import Context
from typing import Any
from weakref import WeakSet

from textual._styles_cache import StylesCache
from textual.app import App
from textual.await_complete import AwaitComplete
from textual.screen import Screen

YOUNG_OBJECT_LIMIT = 2_000
"""New objects after which a frame is followed by a collection of the young generations: painting a frame makes some
thousands in cycles, moving the cursor hardly any."""

FRAME_WRITE_SECONDS = 0.005  # seconds within which the writer thread has written a frame to the terminal

MAX_YOUNG_COLLECTIONS = 200
"""Collections of the young generations after which all objects are collected, even if no screen was removed."""

QUIET_SECONDS = 0.3  # seconds without a frame after which a full collection disturbs nobody

MAX_WAIT_SECONDS = 10.0  # longest delay of a full collection where frames never stop, as with a clock on the screen
MAX_ATTEMPTS = 6
"""Collections for one removed screen; each waits twice as long as the one before. A thread may still use the screen."""


class GarbageCollectingApp(App[None]):
    """An app that collects garbage between frames, from `defer_garbage_collection` on."""

    def __init__(self) -> None:
        super().__init__()
        share_heap()
        self._young_scheduled = False
        self._full_deadline: float | None = None  # when a full collection is due at the latest; None: none is
        self._last_frame = 0.0
        self._removed_screens: WeakSet[Screen[Any]] = WeakSet()  # that have not been freed yet
        self._attempts = 0
        self._has_started = False

    def on_mount(self) -> None:
        asyncio.get_running_loop().set_default_executor(SeparateContextExecutor(thread_name_prefix="asyncio"))

    def freeze_program(self) -> None:
        """Exclude all objects so far from collections, which would take ten times as long: they are the program's own.

        The first trace is freed nevertheless when it is replaced: it refers to nothing that leads back to it.
        """
        gc.freeze()

    def defer_garbage_collection(self) -> None:
        """Collect garbage only between frames from now on."""
        gc.disable()
        self._has_started = True

    def restore_garbage_collection(self) -> None:
        """Leave collections to Python again."""
        gc.unfreeze()
        gc.enable()

    def collect_all(self) -> None:
        """Free all garbage, and give its memory back."""
        forget_styles_caches()
        gc.collect()
        with suppress(RuntimeError):  # the app ends
            asyncio.get_running_loop().run_in_executor(None, trim_heap)

    def _list_kept_screens(self) -> list[Screen[Any]]:
        return [screen for screen in self._removed_screens if screen not in self.screen_stack]

    def post_display_hook(self) -> None:
        """Schedule a collection after a frame: painted strips are cycles, and the collector would run in mid-frame.

        It is delayed because the writer thread has yet to write the frame, which a collection would hold up.
        """
        self._last_frame = time.monotonic()
        if not gc.isenabled() and gc.get_count()[0] > YOUNG_OBJECT_LIMIT and not self._young_scheduled:
            self._young_scheduled = True
            asyncio.get_running_loop().call_later(FRAME_WRITE_SECONDS, self._collect_young)

    def _collect_young(self) -> None:
        self._young_scheduled = False
        if not gc.isenabled():
            gc.collect(1)
            if gc.get_count()[2] > MAX_YOUNG_COLLECTIONS:
                self.schedule_full_collection()

    def pop_screen(self) -> AwaitComplete:
        self._expect_removal(self.screen)
        return super().pop_screen()

    def switch_screen(self, screen: Any) -> AwaitComplete:
        self._expect_removal(self.screen)
        return super().switch_screen(screen)

    def _expect_removal(self, screen: Screen[Any]) -> None:
        if not self._has_started:
            return  # the first screens are frozen with the program, and are never freed
        self._removed_screens.add(screen)
        self._attempts = 0
        self.schedule_full_collection()

    def schedule_full_collection(self, delay: float = 0.0) -> None:
        """Collect all garbage once no frame has been drawn for a moment, `delay` seconds from now at the earliest."""
        if self._full_deadline is None:
            self._full_deadline = time.monotonic() + delay + MAX_WAIT_SECONDS
            asyncio.get_running_loop().call_later(QUIET_SECONDS + delay, self._collect_all_when_quiet)

    def _collect_all_when_quiet(self) -> None:
        now = time.monotonic()
        if self._full_deadline is None or gc.isenabled():
            self._full_deadline = None
        elif now - self._last_frame < QUIET_SECONDS and now < self._full_deadline:
            asyncio.get_running_loop().call_later(QUIET_SECONDS, self._collect_all_when_quiet)
        else:
            self._full_deadline = None
            self.collect_all()
            if self._attempts < MAX_ATTEMPTS and self._list_kept_screens():
                self._attempts += 1
                self.schedule_full_collection(QUIET_SECONDS * 2**self._attempts)


class SeparateContextExecutor(ThreadPoolExecutor):
    """Threads that run each call in a context of its own.

    textual stores a worker in a context variable of the thread that runs it, where it stays until the thread's next
    worker: every idle thread would keep a removed screen.
    """

    def submit(self, function: Callable[..., Any], /, *args: Any, **options: Any) -> Future[Any]:
        return super().submit(Context().run, function, *args, **options)


def forget_styles_caches() -> None:
    """Empty a cache of textual's that keeps the painted lines of 1,024 widgets, 50 KB each, after they were removed.

    `StylesCache.get_inner_outer` is a method behind `lru_cache`, so `self` is part of the key. It holds two colours,
    which are computed again at once.
    """
    clear = getattr(StylesCache.get_inner_outer, "cache_clear", None)
    if clear is not None:  # a later textual may have no such cache
        clear()


def _load_c_function(name: str) -> Any:
    """Load a function of the C library; None where it has none of that name, as others than glibc."""
    try:
        return getattr(ctypes.CDLL(None), name)
    except (OSError, AttributeError):
        return None


_malloc_trim, _mallopt = _load_c_function("malloc_trim"), _load_c_function("mallopt")

_M_ARENA_MAX = -8  # number of the option in glibc's malloc.h


def trim_heap() -> None:
    """Give pages of the heap that hold only free blocks back to the system, where the C library is glibc. Blocks."""
    if _malloc_trim is not None:
        _malloc_trim(0)


def share_heap() -> None:
    """Let all threads that start from now on allocate from one heap, where the C library is glibc."""
    if _mallopt is not None and _malloc_trim is not None:  # others have a `mallopt` with options of their own
        _mallopt(_M_ARENA_MAX, 1)
