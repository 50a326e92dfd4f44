"""The program that runs in a worker process.

    python -m torchprof_tui.trace.loading.worker_main decode SPEC FOLDER [--defer-blocks] [--early]
    python -m torchprof_tui.trace.loading.worker_main serve
    python -m torchprof_tui.trace.loading.worker_main list NAMES
    python -m torchprof_tui.trace.loading.worker_main split FOLDER

`decode` fills FOLDER with the columns of one trace. `serve` does that for one job after the other, and stores the
collectives as well; a job is a line on stdin, `{"spec": …, "folder": …}`. `list` resolves the remote names of a JSON
list and holds shared connections open until stdin ends. `split` writes the text blocks that `decode --defer-blocks`
left out.

Messages go to stdout, a JSON object a line. Progress is `{"phase": …, "bytes": …, "total": …, "events": …}`. A job ends
with `{"done": true, "identity": …, "already_cached": …}`, with `{"listings": […]}`, or with `{"error": "one line",
"detail": "a traceback, for --debug", "storage_full": …}`, which has `"listed_files"` for a remote folder. `split` sends
none. With `--early`, `{"early": "name of a folder", "share": …, "end": …}` announces the beginning of a large file.
`worker_process.py` is the other end.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import threading
import time
import traceback
from contextlib import ExitStack
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import NoReturn

from torchprof_tui.trace.core.errors import TraceError, format_error
from torchprof_tui.trace.core.process_state import DECODER_NICE_LEVEL, JOBS, lower_priority
from torchprof_tui.trace.loading.decode_and_store import EarlyBuild, decode_and_store
from torchprof_tui.trace.loading.load_in_process import split_into_blocks
from torchprof_tui.trace.loading.progress import REPORT_INTERVAL_SECONDS, Phase, Progress, Report, StorageFullError
from torchprof_tui.trace.loading.worker_process import DEFER_BLOCKS_OPTION, EARLY_OPTION, MAX_MESSAGE_BYTES, Task
from torchprof_tui.trace.ranks.collective_matching import read_collectives, store_collectives
from torchprof_tui.trace.specs.address import is_remote
from torchprof_tui.trace.specs.runs_by_name import FolderError
from torchprof_tui.trace.storage.trace_store import open_trace

BACKGROUND_NICE_LEVEL = 15  # `nice` level of `split`, whose result is not needed soon


_MAX_DETAIL_BYTES = 20_000  # bytes of a traceback that are sent, from its end
_MAX_LISTING_BYTES = MAX_MESSAGE_BYTES // 2  # bytes of the listed files in an error message


def main(arguments: list[str] | None = None) -> NoReturn:
    """Run one task. Exits at once when it is done, which spares the time of freeing its memory."""
    task, *operands = sys.argv[1:] if arguments is None else arguments
    lower_priority()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C
    # What a library prints goes to stderr: it is no message, and must not reach the screen.
    out = os.dup(1)
    os.dup2(2, 1)
    succeeded = True
    if task == Task.DECODE:
        succeeded = _decode(operands[0], Path(operands[1]), operands[2:], out)
    elif task == Task.SERVE:
        _serve(out)
    elif task == Task.LIST:
        _list_names(json.loads(operands[0]), out)
    elif task == Task.SPLIT:
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # an exit that runs `finally` removes unfinished files
        os.nice(BACKGROUND_NICE_LEVEL - DECODER_NICE_LEVEL)
        split_into_blocks(open_trace(Path(operands[0])))
    else:
        raise SystemExit(f"no such task: {task}")
    sys.stderr.flush()
    os._exit(0 if succeeded else 2)


def _decode(spec: str, folder: Path, options: list[str], out: int) -> bool:
    """Decode one trace; return whether that succeeded."""
    if is_remote(spec):
        _exit_on_hangup(out)
    early = EarlyBuild(spec, folder, partial(_write_message, out), None if EARLY_OPTION in options else [])
    try:
        try:
            result = decode_and_store(spec, folder, _create_reporter(out), defer_blocks=DEFER_BLOCKS_OPTION in options)
        finally:
            early.stop()  # the whole trace is there, or never will be
    except Exception as error:
        _write_error(out, error)
        return False
    _write_message(out, {"done": True, **asdict(result)})
    return True


def _serve(out: int) -> None:
    """Decode the traces of a run one after the other, and store the collectives of each, until stdin ends."""
    os.environ[JOBS] = "1"  # the other workers of the pool use the other cores
    exits_on_hangup = False
    for line in sys.stdin.buffer:
        job = json.loads(line)
        if not exits_on_hangup and is_remote(job["spec"]):
            _exit_on_hangup(out)
            exits_on_hangup = True
        folder = Path(job["folder"])
        try:
            result = decode_and_store(job["spec"], folder, _create_reporter(out), process_count=1)
            if not result.already_cached:
                store_collectives(read_collectives(open_trace(folder)), folder)
            _write_message(out, {"done": True, **asdict(result)})
        except Exception as error:
            _write_error(out, error)


def _list_names(names: list[str], out: int) -> None:
    """Resolve remote names, then hold the shared connections until stdin ends."""
    from torchprof_tui.trace.sources.listing import list_remote_traces  # deferred: only `list` needs ssh and URLs

    _exit_on_hangup(0)  # the parent has ended: the connections are of no use
    _write_message(out, asdict(Progress(Phase.CONNECTING)))
    with ExitStack() as connections:
        try:
            listings = list_remote_traces(names, connections)
            message: dict[str, object] = {"listings": [asdict(listing) for listing in listings]}
            if len(json.dumps(message)) >= MAX_MESSAGE_BYTES:
                raise TraceError(f"{names[0]}: the names of these traces are too long to list; name fewer")
            _write_message(out, message)
        except Exception as error:
            _write_error(out, error)
        sys.stdin.buffer.read()


def _create_reporter(out: int) -> Report:
    """Create a function that writes progress to a pipe, at most every REPORT_INTERVAL_SECONDS in a phase."""
    written_at = 0.0
    phase: Phase | None = None

    def report(progress: Progress) -> None:
        nonlocal written_at, phase
        now = time.monotonic()
        if progress.phase == phase and now - written_at < REPORT_INTERVAL_SECONDS:
            return
        written_at, phase = now, progress.phase
        _write_message(out, asdict(progress))

    return report


def _write_error(out: int, error: Exception) -> None:
    """Write the error that is being handled, with its traceback and the files of a remote folder."""
    detail = traceback.format_exc()[-_MAX_DETAIL_BYTES:]
    storage_full = isinstance(error, StorageFullError)
    fields: dict[str, object] = {"error": format_error(error), "detail": detail, "storage_full": storage_full}
    if isinstance(error, FolderError):
        listed: list[dict[str, object]] = []  # as many as fit in a message
        free_bytes = _MAX_LISTING_BYTES
        for trace in error.traces:
            values = asdict(trace)
            free_bytes -= len(json.dumps(values))
            if free_bytes < 0:
                break
            listed.append(values)
        fields["listed_files"] = listed
    _write_message(out, fields)


def _write_message(out: int, message: dict[str, object]) -> None:
    """Write a message to a pipe; exit where the parent has closed it, because it has removed the folder as well."""
    line = json.dumps(message).encode() + b"\n"
    try:
        while line:
            line = line[os.write(out, line) :]
    except BrokenPipeError:
        os._exit(1)


def _exit_on_hangup(descriptor: int) -> None:
    """End this process, and ssh with it, by SIGTERM when the other end of a pipe is closed.

    The parent may be killed while this process waits for bytes that never come, and so has nothing to write that fails.
    Only for remote traces: with a second thread, a large local file is not read by several processes (`parallel.py`).
    """

    def watch() -> None:
        poll = select.poll()
        poll.register(descriptor, 0)  # errors and hang-ups are always reported
        poll.poll()
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, name="hangup", daemon=True).start()


if __name__ == "__main__":
    main()
