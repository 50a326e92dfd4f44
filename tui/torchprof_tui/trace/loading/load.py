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

from torchprof_tui.trace.core.errors import describe
from torchprof_tui.trace.loading.progress import REPORT_SECONDS, Progress, Report
from torchprof_tui.trace.specs.address import elsewhere
from torchprof_tui.trace.storage.disk_cache import Place, find, find_identity, kept, shared

if TYPE_CHECKING:
    from torchprof_tui.trace.model.trace import Trace


POLITE = 4
"""How nice a decoding child is: where cores are few, the screen and whatever trains here go first."""

LEISURELY = 15
"""How nice a child is whose work nobody waits for."""

DETAIL_BYTES = 20_000
"""Of a traceback: more than anybody reads."""

FOUND_BYTES = 4 << 20
"""Of a folder's listing: the parent reads lines of at most twice as much."""

ASK = "--ask"
"""Argument of the program: ssh may ask for a password on the terminal."""

LATE = "--late"
"""Argument of the program: what it can do later to the text it leaves to TAKE_APART."""

TAKE_APART = "--take-apart"
"""Argument of the program: FOLDER is filled, but its text has not been taken apart."""

LOOK = "--look"
"""Argument of the program: say what these names elsewhere mean, and read none of them."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """A trace and how it came: close `place` when the trace is no longer looked at."""

    trace: Trace
    place: Place | None  # None for several ranks, whose places this process holds until it ends
    cached: bool
    seconds: float


def load(spec: str, progress: Report | None = None, cache: bool = True) -> Trace:
    """The trace, decoded in this process or mapped from the cache. Raises TraceError (one clear line)."""
    return load_place(spec, progress, cache).trace


def load_place(spec: str, progress: Report | None = None, cache: bool = True) -> Loaded:
    """As `load`, with what `info` tells about it."""
    began = time.perf_counter()
    place = find(spec, cache)
    if place.ready:
        trace = open_place(place, spec)
        if trace is not None:
            _finish(trace)
            return Loaded(trace, place, True, time.perf_counter() - began)
        place = find(spec, cache)
    try:
        built = build(spec, place.folder, progress or _silent, ask=sys.stderr.isatty())
        if not built.kept:
            place.publish(built.identity)
            return Loaded(map_place(place, spec), place, False, time.perf_counter() - began)
    except BaseException:
        place.discard()
        raise
    place.discard()
    there = find_identity(spec, built.identity or "")
    known = None if there is None else open_place(there, spec)
    if there is not None and known is not None:
        return Loaded(known, there, True, time.perf_counter() - began)
    return load_place(spec, progress, cache=False)  # what is kept is of no use


def open_place(place: Place, label: str) -> Trace | None:
    """Map columns kept from earlier; None, and the place is discarded, where they cannot be used."""
    try:
        return map_place(place, label)
    except Exception:
        # Whatever is wrong with a cache, the answer is the same: build it again.
        place.discard()
        return None


def map_place(place: Place, label: str) -> Trace:
    """Map the columns that lie there, under the name that the user gave the trace."""
    from torchprof_tui.trace.storage.trace_store import open_trace

    return replace(open_trace(place.folder), label=label)


@dataclass(frozen=True, slots=True)
class Built:
    """What `build` made. `identity`: under which it may be published, of what is no local file.

    `kept`: the cache has that identity already, and nothing was read.
    """

    identity: str | None = None
    kept: bool = False


def build(
    spec: str, folder: Path, report: Report, ask: bool = False, parts: int | None = None, late: bool = False
) -> Built:
    """Decode, assemble and store a trace. `ask`: ssh may ask on the terminal. `parts`, `late`: as in `kineto.read`.

    Raises TraceError, OSError, MemoryError.
    """
    from torchprof_tui.trace.build.build_trace import assemble, with_index
    from torchprof_tui.trace.decode.decoder import read
    from torchprof_tui.trace.sources.open import open_source
    from torchprof_tui.trace.storage.trace_store import Storing

    latest = Progress("reading")
    if elsewhere(spec) and not ask:
        report(Progress("connecting"))

    def reading(done: int, total: int | None, events: int) -> None:
        nonlocal latest
        latest = Progress("reading", done, total, events)
        report(latest)

    with collector_off():
        source = open_source(spec, ask)
        report(latest)
        if source.identity is not None and shared(folder) and kept(source.identity):
            source.close()
            return Built(source.identity, kept=True)
        decoded = read(source, folder, reading, parts=parts, late=late)
        report(replace(latest, phase="arranging"))
        with Storing(folder) as storing:
            trace = with_index(assemble(decoded, spec, storing.room), storing.room)
            del decoded
            report(replace(latest, phase="storing"))
            storing.finish(trace)
    return Built(None if source.cut else source.identity)


@contextmanager
def collector_off() -> Iterator[None]:
    """Decoding makes millions of short-lived dicts and no cycles: the collector would double its time."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def _silent(progress: Progress) -> None:
    """Nobody is listening."""


def _reporter(out: int) -> Report:
    """Writes progress to a pipe, at most every REPORT_SECONDS in a phase; ends the process where nobody reads it."""
    told = 0.0
    phase = ""

    def report(progress: Progress) -> None:
        nonlocal told, phase
        now = time.monotonic()
        if progress.phase == phase and now - told < REPORT_SECONDS:
            return
        told, phase = now, progress.phase
        _say(out, asdict(progress))

    return report


def _say(out: int, message: dict[str, object]) -> None:
    line = json.dumps(message).encode() + b"\n"
    try:
        while line:
            line = line[os.write(out, line) :]
    except BrokenPipeError:
        os._exit(1)  # who asked has gone, and with it the folder


def main(arguments: list[str] | None = None) -> None:
    """The child. Never returns: leaving at once spares the parent the time of freeing what was read."""
    spec, folder, *options = sys.argv[1:] if arguments is None else arguments
    os.nice(POLITE)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to answer
    # What a library prints must not be taken for progress, nor reach the screen.
    out = os.dup(1)
    os.dup2(2, 1)
    if LOOK in options:
        _look(json.loads(spec), ASK in options, out)
        os._exit(0)
    if TAKE_APART in options:
        _take_apart(Path(folder))
        os._exit(0)
    if elsewhere(spec):
        _end_without(out)
    try:
        built = build(spec, Path(folder), _reporter(out), ASK in options, late=LATE in options)
        _say(out, {"done": True, **asdict(built)})
    except Exception as error:
        detail = traceback.format_exc()[-DETAIL_BYTES:]
        _say(out, {"error": describe(error), "detail": detail, **_found(error)})
        os._exit(2)
    sys.stderr.flush()
    os._exit(0)


def _finish(trace: Trace) -> None:
    """What a program that was left early has not done: a command may ask for many args, one by one."""
    from torchprof_tui.trace.text.text_index import TextIndex

    with contextlib.suppress(OSError, LookupError):
        if isinstance(trace.text, TextIndex):
            trace.text.take_apart()


def _take_apart(folder: Path) -> None:
    """Where it cannot be done, args are read from the whole text as before, and say then what is wrong."""
    from torchprof_tui.trace.storage.trace_store import open_trace

    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # by the way that leaves no drafts behind
    os.nice(LEISURELY - POLITE)
    _finish(open_trace(folder))


def _end_without(end: int) -> None:
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


def _look(names: list[str], ask: bool, out: int) -> None:
    from torchprof_tui.trace.sources.listing import look

    _end_without(0)  # whose answers nobody reads any more when connections are held
    if not ask:
        _say(out, asdict(Progress("connecting")))
    with ExitStack() as hold:
        try:
            _say(out, {"looked": [asdict(each) for each in look(names, ask, hold)]})
        except Exception as error:
            _say(out, {"error": describe(error), "detail": traceback.format_exc()[-DETAIL_BYTES:]})
        sys.stdin.buffer.read()  # until whoever asked lets go, or is no more


def serve() -> None:
    """A child that decodes one trace after the other, and reads the collectives of each: see `crew.py`."""
    from torchprof_tui.trace.ranks import collective_records
    from torchprof_tui.trace.storage.trace_store import open_trace

    os.nice(POLITE)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    out = os.dup(1)
    os.dup2(2, 1)
    watched = False
    for line in sys.stdin.buffer:
        job = json.loads(line)
        if not watched and elsewhere(job["spec"]):
            _end_without(out)
            watched = True
        folder = Path(job["folder"])
        try:
            built = build(job["spec"], folder, _reporter(out), parts=1)  # the others have the other cores
            if not built.kept:
                collective_records.keep(collective_records.read(open_trace(folder)), folder)
            _say(out, {"done": True, **asdict(built)})
        except Exception as error:
            _say(out, {"error": describe(error), "detail": traceback.format_exc()[-DETAIL_BYTES:]})
    os._exit(0)


def _found(error: Exception) -> dict[str, object]:
    """What a folder elsewhere has in it, as far as it fits a line."""
    from torchprof_tui.trace.specs.folder_error import FolderError

    if not isinstance(error, FolderError):
        return {}
    found: list[dict[str, object]] = []
    room = FOUND_BYTES
    for each in error.found:
        entry = asdict(each)
        room -= len(json.dumps(entry))
        if room < 0:
            break
        found.append(entry)
    return {"found": found}


if __name__ == "__main__":
    main()
