"""From what the user named to a `Trace`: map what the cache has, or decode, assemble and store it.

`load` does it in this process, for the commands without a screen. As a program,

    python -m torchprof_tui.trace.loading.load SPEC FOLDER

fills FOLDER in a process of its own and says on stdout how far it is, one JSON object a line; the last one is
`{"done": true, "identity": …, "kept": …}` or `{"error": "one line", "detail": "a traceback, for --debug"}`, with
`"found"` for a folder elsewhere. `child.py` reads the other end. With `--late`, it leaves to `--take-apart` what can be
done when the trace is on screen; that one says nothing. With `--look`, SPEC is a JSON list of names, and the
one answer is `{"looked": […]}`, what they mean; connections that later ones go through stay until stdin ends.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import select
import signal
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from torchprof_tui.trace.core.errors import format_error
from torchprof_tui.trace.loading.progress import REPORT_INTERVAL_SECONDS, Progress, Report
from torchprof_tui.trace.specs.address import is_remote
from torchprof_tui.trace.storage.disk_cache import (
    CacheEntry,
    find_by_identity,
    find_or_create_entry,
    is_cached,
    is_in_cache_folder,
)

if TYPE_CHECKING:
    from torchprof_tui.trace.model.trace import Trace


DECODER_NICE_LEVEL = 4
"""How nice a decoding child is: where cores are few, the screen and whatever trains here go first."""

BACKGROUND_NICE_LEVEL = 15
"""How nice a child is whose work nobody waits for."""

MAX_DETAIL_BYTES = 20_000
"""Of a traceback: more than anybody reads."""

MAX_LISTING_BYTES = 4 << 20
"""Of a folder's listing: the parent reads lines of at most twice as much."""

ASK_OPTION = "--ask"
"""Argument of the program: ssh may ask for a password on the terminal."""

DEFER_BLOCKS_OPTION = "--late"
"""Argument of the program: what it can do later to the text it leaves to TAKE_APART."""

SPLIT_INTO_BLOCKS_OPTION = "--take-apart"
"""Argument of the program: FOLDER is filled, but its text has not been taken apart."""

LISTING_OPTION = "--look"
"""Argument of the program: say what these names elsewhere mean, and read none of them."""


@dataclass(frozen=True, slots=True)
class OpenedTrace:
    """A trace and how it came: close `place` when the trace is no longer looked at."""

    trace: Trace
    cache_entry: CacheEntry | None  # None for several ranks, whose places this process holds until it ends
    cached: bool
    seconds: float


def load_trace(spec: str, report: Report | None = None, cache: bool = True) -> Trace:
    """The trace, decoded in this process or mapped from the cache. Raises TraceError (one clear line)."""
    return load_opened_trace(spec, report, cache).trace


def load_opened_trace(spec: str, report: Report | None = None, cache: bool = True) -> OpenedTrace:
    """As `load`, with what `info` tells about it."""
    began = time.perf_counter()
    place = find_or_create_entry(spec, cache)
    if place.ready:
        trace = try_map_cache_entry(place, spec)
        if trace is not None:
            _split_text_into_blocks(trace)
            return OpenedTrace(trace, place, True, time.perf_counter() - began)
        place = find_or_create_entry(spec, cache)
    try:
        built = decode_and_store(spec, place.folder, report or _ignore_progress, ask=sys.stderr.isatty())
        if not built.kept:
            place.publish(built.identity)
            return OpenedTrace(map_cache_entry(place, spec), place, False, time.perf_counter() - began)
    except BaseException:
        place.discard()
        raise
    place.discard()
    there = find_by_identity(spec, built.identity or "")
    known = None if there is None else try_map_cache_entry(there, spec)
    if there is not None and known is not None:
        return OpenedTrace(known, there, True, time.perf_counter() - began)
    return load_opened_trace(spec, report, cache=False)  # what is kept is of no use


def try_map_cache_entry(cache_entry: CacheEntry, label: str) -> Trace | None:
    """Map columns kept from earlier; None, and the place is discarded, where they cannot be used."""
    try:
        return map_cache_entry(cache_entry, label)
    except Exception:
        # Whatever is wrong with a cache, the answer is the same: build it again.
        cache_entry.discard()
        return None


def map_cache_entry(cache_entry: CacheEntry, label: str) -> Trace:
    """Map the columns that lie there, under the name that the user gave the trace."""
    from torchprof_tui.trace.storage.trace_store import open_trace

    return replace(open_trace(cache_entry.folder), label=label)


@dataclass(frozen=True, slots=True)
class BuildResult:
    """What `build` made. `identity`: under which it may be published, of what is no local file.

    `kept`: the cache has that identity already, and nothing was read.
    """

    identity: str | None = None
    kept: bool = False


def decode_and_store(
    spec: str, folder: Path, report: Report, ask: bool = False, parts: int | None = None, defer_blocks: bool = False
) -> BuildResult:
    """Decode, assemble and store a trace. `ask`: ssh may ask on the terminal. `parts`, `late`: as in `kineto.read`.

    Raises TraceError, OSError, MemoryError.
    """
    from torchprof_tui.trace.build.build_trace import add_row_index, build_trace
    from torchprof_tui.trace.decode.decoder import decode_trace
    from torchprof_tui.trace.sources.open import open_source
    from torchprof_tui.trace.storage.trace_store import TraceWriter

    latest = Progress("reading")
    if is_remote(spec) and not ask:
        report(Progress("connecting"))

    def reading(done: int, total: int | None, events: int) -> None:
        nonlocal latest
        latest = Progress("reading", done, total, events)
        report(latest)

    with disable_garbage_collector():
        source = open_source(spec, ask)
        report(latest)
        if source.identity is not None and is_in_cache_folder(folder) and is_cached(source.identity):
            source.close()
            return BuildResult(source.identity, kept=True)
        decoded = decode_trace(source, folder, reading, process_count=parts, defer_blocks=defer_blocks)
        report(replace(latest, phase="arranging"))
        with TraceWriter(folder) as storing:
            trace = add_row_index(build_trace(decoded, spec, storing.allocate), storing.allocate)
            del decoded
            report(replace(latest, phase="storing"))
            storing.finish(trace)
    return BuildResult(None if source.connection_lost else source.identity)


@contextmanager
def disable_garbage_collector() -> Iterator[None]:
    """Decoding makes millions of short-lived dicts and no cycles: the collector would double its time."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def _ignore_progress(progress: Progress) -> None:
    """Nobody is listening."""


def _create_reporter(out: int) -> Report:
    """Writes progress to a pipe, at most every REPORT_SECONDS in a phase; ends the process where nobody reads it."""
    told = 0.0
    phase = ""

    def report(progress: Progress) -> None:
        nonlocal told, phase
        now = time.monotonic()
        if progress.phase == phase and now - told < REPORT_INTERVAL_SECONDS:
            return
        told, phase = now, progress.phase
        _write_message(out, asdict(progress))

    return report


def _write_message(out: int, message: dict[str, object]) -> None:
    line = json.dumps(message).encode() + b"\n"
    try:
        while line:
            line = line[os.write(out, line) :]
    except BrokenPipeError:
        os._exit(1)  # who asked has gone, and with it the folder


def main(arguments: list[str] | None = None) -> None:
    """The child. Never returns: leaving at once spares the parent the time of freeing what was read."""
    spec, folder, *options = sys.argv[1:] if arguments is None else arguments
    os.nice(DECODER_NICE_LEVEL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to answer
    # What a library prints must not be taken for progress, nor reach the screen.
    out = os.dup(1)
    os.dup2(2, 1)
    if LISTING_OPTION in options:
        _write_listings(json.loads(spec), ASK_OPTION in options, out)
        os._exit(0)
    if SPLIT_INTO_BLOCKS_OPTION in options:
        _split_into_blocks(Path(folder))
        os._exit(0)
    if is_remote(spec):
        _exit_on_hangup(out)
    try:
        built = decode_and_store(
            spec,
            Path(folder),
            _create_reporter(out),
            ASK_OPTION in options,
            defer_blocks=DEFER_BLOCKS_OPTION in options,
        )
        _write_message(out, {"done": True, **asdict(built)})
    except Exception as error:
        detail = traceback.format_exc()[-MAX_DETAIL_BYTES:]
        _write_message(out, {"error": format_error(error), "detail": detail, **_serialize_found_files(error)})
        os._exit(2)
    sys.stderr.flush()
    os._exit(0)


def _split_text_into_blocks(trace: Trace) -> None:
    """What a program that was left early has not done: a command may ask for many args, one by one."""
    from torchprof_tui.trace.text.gzip_text import GzipText

    with contextlib.suppress(OSError, LookupError):
        if isinstance(trace.text, GzipText):
            trace.text.split_into_blocks()


def _split_into_blocks(folder: Path) -> None:
    """Where it cannot be done, args are read from the whole text as before, and say then what is wrong."""
    from torchprof_tui.trace.storage.trace_store import open_trace

    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # by the way that leaves no drafts behind
    os.nice(BACKGROUND_NICE_LEVEL - DECODER_NICE_LEVEL)
    _split_text_into_blocks(open_trace(folder))


def _exit_on_hangup(end: int) -> None:
    """Have this process ended by SIGTERM, and ssh by it, when nobody has the other end of a pipe any more.

    Whoever started it may have been killed while it waits for bytes that never come, and so tells nothing. Only for
    what lies elsewhere: with a second thread a large file here is not read by several processes (`parts.py`).
    """

    def watch() -> None:
        gone = select.poll()
        gone.register(end, 0)  # errors and hang-ups, which are told unasked
        gone.poll()
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, name="end", daemon=True).start()


def _write_listings(names: list[str], ask: bool, out: int) -> None:
    from torchprof_tui.trace.sources.listing import list_remote_traces

    _exit_on_hangup(0)  # whose answers nobody reads any more when connections are held
    if not ask:
        _write_message(out, asdict(Progress("connecting")))
    with ExitStack() as hold:
        try:
            _write_message(out, {"looked": [asdict(each) for each in list_remote_traces(names, ask, hold)]})
        except Exception as error:
            _write_message(out, {"error": format_error(error), "detail": traceback.format_exc()[-MAX_DETAIL_BYTES:]})
        sys.stdin.buffer.read()  # until whoever asked lets go, or is no more


def serve() -> None:
    """A child that decodes one trace after the other, and reads the collectives of each: see `crew.py`."""
    from torchprof_tui.trace.ranks import collective_records
    from torchprof_tui.trace.storage.trace_store import open_trace

    os.nice(DECODER_NICE_LEVEL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    out = os.dup(1)
    os.dup2(2, 1)
    watched = False
    for line in sys.stdin.buffer:
        job = json.loads(line)
        if not watched and is_remote(job["spec"]):
            _exit_on_hangup(out)
            watched = True
        folder = Path(job["folder"])
        try:
            built = decode_and_store(
                job["spec"], folder, _create_reporter(out), parts=1
            )  # the others have the other cores
            if not built.kept:
                collective_records.store_collectives(collective_records.read_collectives(open_trace(folder)), folder)
            _write_message(out, {"done": True, **asdict(built)})
        except Exception as error:
            _write_message(out, {"error": format_error(error), "detail": traceback.format_exc()[-MAX_DETAIL_BYTES:]})
    os._exit(0)


def _serialize_found_files(error: Exception) -> dict[str, object]:
    """What a folder elsewhere has in it, as far as it fits a line."""
    from torchprof_tui.trace.specs.folder_error import FolderError

    if not isinstance(error, FolderError):
        return {}
    found: list[dict[str, object]] = []
    room = MAX_LISTING_BYTES
    for each in error.traces:
        entry = asdict(each)
        room -= len(json.dumps(entry))
        if room < 0:
            break
        found.append(entry)
    return {"found": found}


if __name__ == "__main__":
    main()
