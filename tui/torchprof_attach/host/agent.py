"""Record processes of this host as requests say: JSON lines in, JSON lines out, on pipes of the program or of ssh.

| request | answer |
|---|---|
| `list` | `jobs`: processes with their ways in, GPUs, problems; the clock of this host |
| `record` (`id`, `pid`, `start` and what to record) | `phase`s, then `done` with the files, or `failed` with a line |
| `progress` (`jobs`: pairs of `pid` and `start`) | `progress`: of those that run, since when they make none |
| `dump` (`id`, `pid`, `start`) | `done` with the files of what it waits for, or `failed` with a line |
| `cancel` (`id`) | `failed` |
| `fetch` (`path`) | `data` in base64, then `end` |
| `forget` (`path`) | nothing: the file is deleted |

The end of the input ends the agent: sockets and its folders are removed, and no job has noticed anything.
"""

from __future__ import annotations

import base64
import contextlib
import functools
import glob
import json
import os
import re
import selectors
import shutil
import socket
import sys
import tempfile
import threading
import time
import zlib
from collections.abc import Callable
from typing import Any

from torchprof_attach.host import fabric, hang_dump, in_process, servers
from torchprof_attach.host.gpu_use import GpuReader
from torchprof_attach.host.processes import (
    KINETO_VARIABLE,
    UNLOAD_VARIABLE,
    Process,
    describe,
    is_running,
    list_processes,
    read_process,
)
from torchprof_attach.host.trace_file import add_origin, scan

TICK_SECONDS = 0.05
IDLE_SECONDS = 1.0
ASK_SECONDS = 25.0  # a profiler asks every 5 s; one that found no daemon waits up to 10 s more between its tries
BEHIND_SECONDS = 4.0  # less than the time between two questions of a profiler
STALLED_SECONDS = 3.0  # a file that has not grown for so long on a full disk will not be completed

FETCH_BYTES = 1 << 20
SAFE_FOLDER = re.compile(r"/[\w./+-]*")
"""Folders that Kineto's configuration can name: it splits lines at `=` and blanks."""


class Recording:
    """A request that is being met. `folder`: a private one for its files. `lines`: what Kineto was or will be told."""

    def __init__(self, request: dict[str, Any], process: Process, folder: str) -> None:
        self.request, self.process, self.folder = request, process, folder
        self.id = str(request["id"])
        self.path = os.path.join(folder, "trace.json")
        self.way = ""
        self.begun = time.monotonic()
        self.given: float | None = None  # when the process got the request
        self.size, self.grown = -1, time.monotonic()
        self.was_skipped = False
        self.cancelled = False
        self.finishing = False

    def is_behind(self) -> bool:
        """Tell whether the process may have taken an earlier answer for the one to its question, and reads ours now.

        Then it gets no answer once, so that none is left for the next time.
        """
        waits = self.given is not None and time.monotonic() - self.given > BEHIND_SECONDS
        return waits and not self.was_skipped and self.size <= 0 and (self.request.get("multiple") or 1) == 1


class Agent:
    """Takes requests, answers through `send`. `recorder`: source of `recorder/attached.py`, or ""."""

    def __init__(self, send: Callable[[dict[str, Any]], None], recorder: str = "") -> None:
        self._send = send
        self._recorder = recorder
        self._fabrics: dict[str, fabric.Fabric] = {}  # by folder
        self._selector = selectors.DefaultSelector()
        self._active: dict[str, Recording] = {}
        self._pending: dict[int, int] = {}  # start by pid, of processes that never did what they were asked
        self._fragile: dict[int, int] = {}  # start by pid, of processes that another recording would end
        self._folders: set[str] = set()
        self._progress = hang_dump.ProgressReader(lambda: self._create_folder(None))
        self._lock = threading.Lock()

    # -- the loop ----------------------------------------------------------------------------------------------

    def run(self, read: Callable[[int], bytes], descriptor: int) -> None:
        """Serve until the input ends."""
        self._selector.register(descriptor, selectors.EVENT_READ)
        text = b""
        try:
            while True:
                for key, _ in self._selector.select(TICK_SECONDS if self._active else IDLE_SECONDS):
                    if key.fd != descriptor:
                        while key.data.receive() is not None:
                            pass
                        continue
                    part = read(1 << 16)
                    if not part:
                        return
                    *lines, text = (text + part).split(b"\n")
                    for line in lines:
                        self._handle(json.loads(line))
                self._check_recordings()
        finally:
            self.close()

    def close(self) -> None:
        """Close the sockets and remove the folders."""
        for each in self._fabrics.values():
            each.close()
        self._fabrics.clear()
        for recording in list(self._active.values()):
            recording.cancelled = True
        for folder in self._folders:
            shutil.rmtree(folder, ignore_errors=True)
        self._selector.close()

    def _handle(self, request: dict[str, Any]) -> None:
        handlers = {"list": self._list, "record": self._record, "cancel": self._cancel}
        handlers.update(fetch=self._fetch, forget=self._forget, progress=self._read_progress, dump=self._dump)
        handler = handlers.get(str(request.get("do")))
        try:
            if handler is not None:
                handler(request)
        except (OSError, ValueError, KeyError) as error:
            self._send({"event": "failed", "id": request.get("id"), "reason": _format(error)})

    # -- listing -----------------------------------------------------------------------------------------------

    @functools.cached_property
    def _gpus(self) -> GpuReader:
        return GpuReader()

    def _list(self, request: dict[str, Any]) -> None:
        use, jobs = self._gpus.read(), []
        for process in list_processes():
            way, why = self.find_way(process, bool(request.get("inject")))
            gpu = use.get(process.pid)
            job = {**describe(process), "way": way, "why": why}
            if gpu is not None:
                job.update(gpus=gpu.gpus, gpu_memory_bytes=gpu.memory_bytes, gpu_load_share=gpu.load_share)
            job["state"] = next((each.way for each in self._active.values() if each.process.pid == process.pid), "")
            jobs.append(job)
        self._send({"event": "jobs", "jobs": jobs, "clock": time.time(), "host": socket.gethostname()})

    def find_way(self, process: Process, inject: bool) -> tuple[str, str]:
        """Find the first way to record a process, and one line: what is told about it, or what to set next time."""
        if process.problem:
            return "", process.problem
        kineto = f"it was started without {KINETO_VARIABLE}=1"
        if KINETO_VARIABLE in process.environment:
            kineto = "its profiler has not registered (yet)"
        if process.socket:
            try:
                if process.socket_dir not in self._fabrics:
                    fabric.check_free(process.socket_dir)
                return "kineto", ""
            except OSError as error:
                if isinstance(error, fabric.SocketTakenError) and "dynolog" in error.command.split(" ")[0]:
                    return "dynolog", f"dynolog runs here (pid {error.pid}): asked by its command dyno"
                kineto = str(error)
        remote = in_process.find_remote_exec_problem(process)
        if not remote and inject and self._recorder:
            return "remote_exec", "a script is run inside of the process, as asked (--inject)"
        if process.server:
            return "server", f"by the endpoint /start_profile of {process.server}"
        if process.marker:
            return "signal", "SIGUSR2: torchprof_runs is installed in it"
        hint = "; or --inject, which runs a script inside of the process" if not remote else ""
        return "", f"{kineto}{hint}"

    # -- hangs -------------------------------------------------------------------------------------------------

    def _read_progress(self, request: dict[str, Any]) -> None:
        use, found = self._gpus.read(), []
        for pid, start in request["jobs"]:
            with contextlib.suppress(OSError, ValueError, KeyError):  # it has ended
                found.append(self._progress.read(_find_process(pid, start), pid in use))
        self._send({"event": "progress", "jobs": found})

    def _dump(self, request: dict[str, Any]) -> None:
        process = _find_process(int(request["pid"]), request["start"])
        dump = Recording(request, process, self._create_folder(request.get("folder")))
        dump.way = "dump"
        self._active[dump.id] = dump
        threading.Thread(target=self._take_dump, args=(dump,), daemon=True).start()

    def _take_dump(self, dump: Recording) -> None:
        """Take what a process waits for. Runs on a thread."""
        try:
            files, notes = hang_dump.take_dump(dump.process, dump.folder, lambda: dump.cancelled)
        except (OSError, ValueError) as error:
            self._fail(dump, _format(error))
            return
        done = {"event": "done", "id": dump.id, "way": dump.way, "notes": notes}
        self._end(dump, {**done, "files": [{"path": path} for path in files]})

    # -- recording ---------------------------------------------------------------------------------------------

    def _record(self, request: dict[str, Any]) -> None:
        process = _find_process(int(request["pid"]), request.get("start"))
        if any(each.process.pid == process.pid for each in self._active.values()):
            raise OSError("it is being recorded; this request was left out")
        if self._pending.get(process.pid) == process.start:
            raise OSError("it was asked before and has not begun: no iteration ended since, the job may hang")
        if self._fragile.get(process.pid) == process.start:
            raise OSError("it replays CUDA graphs and has TEARDOWN_CUPTI=1: a second recording ends such a job")
        way, why = self.find_way(process, bool(request.get("inject")))
        if not way:
            raise OSError(why)
        folder = process.socket_dir
        if way == "kineto" and folder not in self._fabrics:
            opened = self._fabrics[folder] = fabric.Fabric(folder, self._give)
            self._selector.register(opened.socket, selectors.EVENT_READ, opened)
        recording = Recording(request, process, self._create_folder(request.get("folder")))
        recording.way = way
        self._active[recording.id] = recording
        self._send({"event": "phase", "id": recording.id, "phase": "asked", "way": way, "text": why})
        if way != "kineto":
            threading.Thread(target=self._use_way, args=(recording,), daemon=True).start()

    def _create_folder(self, parent: str | None) -> str:
        """Create a private folder for a recording: beside the file that is asked for, so that a rename completes it."""
        safe = parent if parent and SAFE_FOLDER.fullmatch(parent) and os.access(parent, os.W_OK) else None
        folder = tempfile.mkdtemp(prefix=".torchprof-attach-", dir=safe)
        self._folders.add(folder)
        return folder

    def _give(self, pid: int, free: bool) -> str | None:
        """Give a profiler its request, once. None: it gets no answer."""
        for each in list(self._active.values()):
            if each.process.pid == pid and each.is_behind():
                each.was_skipped = True
                return None
            is_due = free and each.given is None and time.time() >= float(each.request.get("not_before") or 0)
            if each.process.pid == pid and each.way == "kineto" and is_due:
                each.given = time.monotonic()
                self._send({"event": "phase", "id": each.id, "phase": "given", "way": each.way, "text": ""})
                return fabric.format_config(each.path, each.request)
        return ""

    def _use_way(self, recording: Recording) -> None:
        """Use a way that is not Kineto's socket. Runs on a thread."""
        request, process = recording.request, recording.process
        try:
            if recording.way == "server":
                files = servers.record_server(process, request, recording.folder, lambda: recording.cancelled)
                self._complete(recording, files)
                return
            recording.given = time.monotonic()
            if recording.way == "dynolog":
                servers.record_dynolog(process, request, recording.path)
                return
            asked = {key: request.get(key) for key in ("steps", "window_ms", "multiple", "options")}
            asked["path"] = recording.path
            remote = functools.partial(in_process.run_remotely, recorder=self._recorder)
            use = in_process.send_signal if recording.way == "signal" else remote
            use(process, asked)
            if request.get("window_ms"):
                time.sleep(float(request["window_ms"]) / 1000)
                use(process, {"stop": True, "path": recording.path})
        except (OSError, servers.WayError, ValueError) as error:
            self._fail(recording, _format(error))

    def _check_recordings(self) -> None:
        """Look whether files were completed, or never will be."""
        now = time.monotonic()
        for each in list(self._active.values()):
            if each.finishing or each.way in ("server", "dump"):
                continue
            paths = sorted(glob.glob(glob.escape(each.folder) + "/trace*.json"))  # Kineto writes .tmp and renames it
            if paths:
                each.finishing = True
                threading.Thread(target=self._complete, args=(each, paths[:1]), daemon=True).start()
            else:
                reason = self._find_failure(each, now)
                if reason:
                    self._fail(each, reason)

    def _find_failure(self, each: Recording, now: float) -> str:
        """Say why a file will not come; "" while it may."""
        with contextlib.suppress(OSError), open(f"{each.path}.error", encoding="utf-8", errors="replace") as file:
            return file.read(500) or "it failed"
        partial = glob.glob(glob.escape(each.folder) + "/*.tmp*")
        size = sum(os.stat(path).st_size for path in partial if os.path.exists(path))
        if size != each.size:
            each.size, each.grown = size, now
        if not is_running(each.process.pid, each.process.start):
            return "the process has ended" + (" while the trace was written" if partial else " before it was recorded")
        if partial and now - each.grown > STALLED_SECONDS and shutil.disk_usage(each.folder).free < 4096:
            return f"the disk of {os.path.dirname(each.folder)} is full: the trace was not written, and the job goes on"
        late = max(float(each.request.get("not_before") or 0) - time.time(), 0.0)
        if each.given is None and not late and now - each.begun > ASK_SECONDS + float(each.request.get("delay") or 0):
            return f"its profiler has not asked for {ASK_SECONDS:.0f} s, although it registered"
        timeout = float(each.request.get("timeout") or 300)
        if each.given is not None and now - max(each.given, each.grown if partial else 0) > timeout:
            self._note_pending(each)
            return f"asked, and no trace came for {timeout:.0f} s: no iteration has ended, the job may hang"
        return ""

    def _note_pending(self, each: Recording) -> None:
        """Note that a process still has a request; the recorder in a process is told to forget it."""
        if each.way == "signal":
            with contextlib.suppress(OSError):
                in_process.send_signal(each.process, {"stop": True, "path": each.path})
        else:
            self._pending[each.process.pid] = each.process.start

    def _complete(self, recording: Recording, paths: list[str]) -> None:
        """Describe the files of a recording and report it. Runs on a thread."""
        files = []
        try:
            for path in paths:
                with contextlib.suppress(OSError):  # a server's own file may be another mode on purpose
                    os.chmod(path, 0o600)
                file: dict[str, Any] = {"path": path}
                if not path.endswith(".gz"):
                    content = scan(path)
                    first = content.first_step
                    if first is None:
                        counted = f"{recording.path}.step"
                        with contextlib.suppress(OSError, ValueError), open(counted, encoding="ascii") as number:
                            first = int(number.read(20))
                    origin = {**describe(recording.process), "host": socket.gethostname(), "way": recording.way}
                    add_origin(path, {**origin, "step": first, "time": time.time()})
                    unloads = recording.process.environment.get(UNLOAD_VARIABLE) == "1"
                    if unloads and content.launches[1]:
                        self._fragile[recording.process.pid] = recording.process.start
                    file.update(content._asdict(), first_step=first, is_empty=content.is_empty, unloads=unloads)
                files.append(file)
        except (OSError, ValueError) as error:
            self._fail(recording, _format(error))
            return
        self._end(recording, {"event": "done", "id": recording.id, "way": recording.way, "files": files})

    def _fail(self, recording: Recording, reason: str) -> None:
        shutil.rmtree(recording.folder, ignore_errors=True)
        self._end(recording, {"event": "failed", "id": recording.id, "reason": reason})

    def _end(self, recording: Recording, event: dict[str, Any]) -> None:
        with self._lock:
            if self._active.pop(recording.id, None) is None:
                return
        self._send(event)

    def _cancel(self, request: dict[str, Any]) -> None:
        recording = self._active.get(str(request["id"]))
        if recording is not None:
            recording.cancelled = True
            if recording.given is not None:
                self._note_pending(recording)
            self._fail(recording, "cancelled")

    # -- files -------------------------------------------------------------------------------------------------

    def _fetch(self, request: dict[str, Any]) -> None:
        threading.Thread(target=self._send_file, args=(str(request["path"]),), daemon=True).start()

    def _send_file(self, path: str) -> None:
        try:
            with open(path, "rb") as file:
                while True:
                    block = file.read(FETCH_BYTES)
                    if not block:
                        break
                    data = base64.b64encode(zlib.compress(block, 1)).decode()
                    self._send({"event": "data", "path": path, "data": data})
            self._send({"event": "end", "path": path})
        except OSError as error:
            self._send({"event": "end", "path": path, "reason": _format(error)})

    def _forget(self, request: dict[str, Any]) -> None:
        path = str(request["path"])
        folder = os.path.dirname(path)
        if folder not in self._folders:
            raise OSError(f"{path}: not a file of a recording")
        self._folders.discard(folder)
        shutil.rmtree(folder, ignore_errors=True)


def _find_process(pid: int, start: int | None) -> Process:
    """Find a process by its number, and where that is known by its start. Raises OSError."""
    process = read_process(pid)
    if process is None or (start and process.start != start):
        raise OSError("no such process of yours that uses torch")
    return process


def _format(error: BaseException) -> str:
    if isinstance(error, OSError) and error.strerror and not isinstance(error, fabric.SocketTakenError):
        name = f"{error.filename}: " if isinstance(error.filename, str) else ""
        return f"{name}{error.strerror}"
    return " ".join(str(error).split()) or type(error).__name__


def serve(recorder: str = "") -> None:
    """Serve on stdin and stdout: how the agent runs on another host."""
    lock, output = threading.Lock(), sys.stdout.buffer

    def send(event: dict[str, Any]) -> None:
        with lock:
            output.write(json.dumps(event).encode() + b"\n")
            output.flush()

    with contextlib.suppress(BrokenPipeError, KeyboardInterrupt):
        send({"event": "hello", "python": list(sys.version_info[:2])})
        Agent(send, recorder).run(lambda size: os.read(0, size), 0)
