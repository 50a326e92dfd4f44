"""Record a running job: `torchprof-tui attach`."""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from torchprof_attach.command import AttachOptions, parse_seconds
from torchprof_attach.hang_watch import Dumped, HangWatch, choose_ranks
from torchprof_attach.hosts import LOCAL
from torchprof_attach.session import Job, Recorded, Session, name_output
from torchprof_tui.commands.common.errors import UsageError
from torchprof_tui.commands.common.terminal import find_terminal_problem, show_screen
from torchprof_tui.trace.core.printable import clean
from torchprof_tui.trace.sources.ssh_connections import SshConnections

FOLDER = "attached"  # below the current folder: where traces go that got no name

NEXT_TIME = (
    "next time, set KINETO_USE_DAEMON=1 at its start — shell: KINETO_USE_DAEMON=1 python train.py; "
    "Slurm: sbatch --export=ALL,KINETO_USE_DAEMON=1 …; Kubernetes: env: [{name: KINETO_USE_DAEMON, value: '1'}]; "
    "torchrun: KINETO_USE_DAEMON=1 torchrun … (its ranks inherit it)"
)
"""What to do where there is no way in; docs/tasks/attach.md says more."""

NEXT_TIME_HANG = (
    "next time, one of: torchprof-tui run --watch-hang SECONDS; torchprof_runs.install() in the program; for NCCL "
    "TORCH_NCCL_DEBUG_INFO_PIPE_FILE=/tmp/dump_rank_ and TORCH_FR_BUFFER_SIZE=2000 (before torch 2.9 "
    "TORCH_NCCL_TRACE_BUFFER_SIZE) at its start; pip install py-spy, also now"
)
"""What to do where nothing could be taken of a job that hangs."""


def run(options: AttachOptions) -> int:
    if sys.platform != "linux" and not options.hosts:
        raise UsageError("attach needs Linux, here or on a host that is named")
    shows_screen = not (options.list or options.records or options.json) and not find_terminal_problem()
    with SshConnections() as connections, Session(options.hosts or (LOCAL,)) as session:
        if shows_screen:
            return show_screen(options, session, connections)
        session.connect(connections, allow_prompt=sys.stderr.isatty())
        if not session.hosts:
            raise UsageError("; ".join(session.problems.values()))
        jobs = session.list_jobs(options.inject)
        if not options.records and options.watch_hang is None:
            _print(options, session, jobs, ())
            return 0
        stop = threading.Event()
        try:
            if options.watch_hang is None:
                return _record(options, session, choose_jobs(jobs, options))
            watched = choose_watched(jobs, options)
            if options.every is None:
                return _watch(options, session, watched, stop)
            chosen = choose_jobs(jobs, options)
            threading.Thread(target=_watch, args=(options, session, watched, stop), daemon=True).start()
            return _record(options, session, chosen)
        except KeyboardInterrupt:
            session.cancel()
            return 130
        finally:
            stop.set()


def _watch(options: AttachOptions, session: Session, watched: Sequence[Job], stop: threading.Event) -> int:
    """Dump the job when it hangs, until it has ended. Returns the exit status: 1 where nothing could be taken."""
    assert options.watch_hang is not None
    folder = Path(FOLDER if options.output is None or options.every else options.output).expanduser()
    _say(f"watching {len(watched)} process{'es'[: 2 * (len(watched) > 1)]} of {watched[0].program}; ctrl+c ends it")
    status = 0
    for dumped in HangWatch(session, options.watch_hang, folder, _say).watch(lambda: watched, stop):
        _print(options, session, (), (), [dumped])
        status = max(status, int(not dumped.has_files))
    if not stop.is_set():
        lost = [session.problems[job.host] for job in watched if job.host in session.problems]
        _say(lost[0] if lost else "the job has ended")
    return status


def _record(options: AttachOptions, session: Session, chosen: Sequence[Job]) -> int:
    status, kept, rounds = 0, [], 0
    period = None if options.every is None else parse_seconds(options.every)
    while True:
        begin, rounds = time.monotonic(), rounds + 1
        out = _name_target(options, chosen, rounds if period else 0)
        done = session.record(chosen, options.wish, out, _say)
        _print(options, session, session.list_jobs(options.inject) if options.json else (), done)
        status = max(status, int(any(each.problem for each in done)))
        if period is None:
            return status
        if written := [path for each in done for path in each.paths]:  # a recording that failed replaces none
            kept.append(written)
        while len(kept) > options.keep:
            _delete(kept.pop(0))
        if not any(job.key in {each.key for each in session.list_jobs()} for job in chosen):
            _say("the job has ended")
            return status
        time.sleep(max(period - (time.monotonic() - begin), 0.0))


def choose_watched(jobs: Sequence[Job], options: AttachOptions) -> list[Job]:
    """Choose what to watch: all ranks of the jobs of the named pids, else those of the only job. Raises UsageError."""
    named = _choose_named(jobs, options) or _choose_only_job(choose_ranks(jobs))
    groups = {job.group for job in named}
    if not named:
        raise UsageError("no process of yours is a rank of a job here (attach --list shows them); name a pid")
    return [job for job in jobs if job.group in groups and (not job.launcher or job in named)]


def choose_jobs(jobs: Sequence[Job], options: AttachOptions) -> list[Job]:
    """Choose what to record: the named pids, or with --all the ranks of the only job. Raises UsageError."""
    if options.pids:
        chosen = _choose_named(jobs, options)
        if options.all:
            chosen += _list_ranks(jobs, chosen[0], chosen)
    else:
        only = _choose_only_job([job for job in jobs if job.way and not job.launcher])
        chosen = _list_ranks(jobs, only[0], ()) if only else []
    unreachable = [job for job in chosen if not job.way]
    if unreachable or not chosen:
        why = f"{unreachable[0].label}: {unreachable[0].why}" if unreachable else "no job of yours can be recorded"
        raise UsageError(f"{clean(why)}; {NEXT_TIME}")
    return chosen


def _choose_named(jobs: Sequence[Job], options: AttachOptions) -> list[Job]:
    chosen = [job for job in jobs if job.pid in options.pids]
    missing = sorted(set(options.pids) - {job.pid for job in chosen})
    if missing:
        raise UsageError(f"{missing[0]}: no such process of yours that uses torch (attach --list shows them)")
    if len(chosen) > len(options.pids):
        raise UsageError(f"{options.pids[0]}: several hosts have a process with this number; name one host")
    return chosen


def _choose_only_job(jobs: Sequence[Job]) -> list[Job]:
    groups = {job.group: job for job in jobs}
    if len(groups) > 1:
        named = ", ".join(f"{job.program} ({job.label})" for job in list(groups.values())[:4])
        raise UsageError(f"--all: several jobs run: {clean(named)}; name a pid of one of them")
    return list(groups.values())


def _list_ranks(jobs: Sequence[Job], of: Job, without: Sequence[Job]) -> list[Job]:
    return [job for job in jobs if job.group == of.group and not job.launcher and job not in without]


def _name_target(options: AttachOptions, chosen: Sequence[Job], number: int) -> Path:
    if options.output is None:
        return name_output(chosen, Path(FOLDER))
    path = Path(options.output).expanduser()
    if len(chosen) == 1 and path.is_dir():
        return path / name_output(chosen, Path()).name
    if len(chosen) == 1 and not path.name.endswith(".json"):
        raise UsageError(f"-o: {path.name}: the name of a trace must end in .json")
    if len(chosen) > 1 and path.exists() and not path.is_dir():
        raise UsageError(f"-o: {path}: several ranks need a folder")
    if not number:
        return path
    stem = f"{path.name.removesuffix('.json')}-{number:04}"
    return path.with_name(f"{stem}.json") if len(chosen) == 1 else path / stem


def _delete(paths: Sequence[str]) -> None:
    """Delete the traces of a recording, and their folder where nothing else is in it."""
    for path in paths:
        with contextlib.suppress(OSError):
            os.unlink(path)
    for folder in {os.path.dirname(path) for path in paths}:
        with contextlib.suppress(OSError):
            os.rmdir(folder)


def _say(line: str) -> None:
    print(clean(line), file=sys.stderr, flush=True)


def _print(
    options: AttachOptions,
    session: Session,
    jobs: Sequence[Job],
    done: Sequence[Recorded],
    hangs: Sequence[Dumped] = (),
) -> None:
    # imports msgspec, which the screen does not need before its first frame
    answer = importlib.import_module("torchprof_attach.answers").build_attach(jobs, done, session.problems, hangs)
    if options.json:
        importlib.import_module("torchprof_tui.commands.common.output").print_answer(answer)
    else:
        # imports rich, which JSON does not need
        next_time = NEXT_TIME_HANG if hangs else NEXT_TIME
        importlib.import_module("torchprof_attach.command.text").print_attach(answer, next_time)
