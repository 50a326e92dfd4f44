"""Talk to the agent of this host, which runs on a thread, or to one that is sent to another host over ssh."""

from __future__ import annotations

import base64
import contextlib
import importlib
import importlib.util
import json
import os
import queue
import socket
import subprocess
import threading
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from torchprof_attach.host.agent import Agent

if TYPE_CHECKING:
    from torchprof_tui.trace.sources.ssh_connections import SshConnections

LOCAL = "localhost"
HELLO_SECONDS = 30.0

SENT_MODULES = ("processes", "gpu_use", "fabric", "trace_file", "in_process", "servers", "hang_dump", "agent")
"""Modules of `host` in the order in which they import each other."""

_BOOTSTRAP = (
    "import sys,json,types;"
    'p=types.ModuleType("torchprof_attach");h=types.ModuleType("torchprof_attach.host");'
    'p.__path__=h.__path__=[];p.host=h;sys.modules["torchprof_attach"]=p;sys.modules["torchprof_attach.host"]=h;'
    "f=open(0,'rb',0,closefd=False);n=int(f.readline());b=b'';\n"
    "while len(b)<n:b+=f.read(n-len(b))\n"
    "d=json.loads(b)\n"
    "for k,s in d['modules']:\n"
    " m=types.ModuleType('torchprof_attach.host.'+k);sys.modules[m.__name__]=m;setattr(h,k,m)\n"
    " exec(compile(s,k,'exec'),m.__dict__)\n"
    "sys.modules['torchprof_attach.host.agent'].serve(d['recorder'])\n"
)
"""Loads the modules that come on stdin, after a line with their length."""

_SCRIPT = 'p=$(command -v python3 || command -v python) || {{ echo no-python; exit 9; }}; exec "$p" -u -c "{code}"'

Listener = Callable[["Host", "dict[str, Any]"], None]


class HostError(Exception):
    """A host cannot be used; `str()` is one line."""


class Host:
    """One agent. Events other than those of files go to `listener`, on a thread of their own.

    `clock_offset`: seconds that the host's clock is ahead of ours.
    """

    def __init__(self, name: str, listener: Listener) -> None:
        self.name = name
        self.clock_offset = 0.0
        self.problem = ""
        self.is_local = name == LOCAL
        self._listener = listener
        self._input: Any = None
        self._lock = threading.Lock()
        self._files: dict[str, queue.Queue[dict[str, Any]]] = {}
        self._asked = 0.0
        self._end: Callable[[], object] = lambda: None

    # -- starting ----------------------------------------------------------------------------------------------

    def start_local(self) -> Host:
        """Start the agent of this host on a thread."""
        ours, theirs = socket.socketpair()
        self._input = ours.makefile("wb", buffering=0)
        output, lock = theirs.makefile("wb", buffering=0), threading.Lock()
        ours_file = ours.makefile("rb")

        def send(event: dict[str, Any]) -> None:
            with lock, contextlib.suppress(OSError, ValueError):
                _write_all(output, json.dumps(event).encode() + b"\n")

        def run() -> None:
            with contextlib.suppress(OSError), theirs:
                Agent(send, read_recorder()).run(theirs.recv, theirs.fileno())

        self._close_ours = ours.close
        self._end = lambda: ours.shutdown(socket.SHUT_RDWR)
        self._agent = threading.Thread(target=run, name="attach agent", daemon=True)
        self._agent.start()
        threading.Thread(target=self._read, args=(ours_file,), name="attach events", daemon=True).start()
        return self

    def start_remote(self, connections: SshConnections, allow_prompt: bool) -> Host:
        """Send the agent to another host. Raises HostError."""
        # the rest of this package needs nothing of the program: GPU machines run it with the standard library
        address = importlib.import_module("torchprof_tui.trace.specs.address")
        command = importlib.import_module("torchprof_tui.trace.sources.ssh_command")
        host, _, port = self.name.rpartition(":")
        path = address.SshPath(
            self.name, *((host, int(port)) if host and port.isdecimal() and ":" not in host else (self.name, None)), "/"
        )
        try:
            connections.connect(path, allow_prompt)
        except Exception as error:
            raise HostError(str(error)) from error
        script = _SCRIPT.format(code=f'exec(bytes.fromhex(\\"{_BOOTSTRAP.encode().hex()}\\"))')
        self._process = subprocess.Popen(
            command.build_ssh_command(script, [path], keep_open=True),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            bufsize=0,
            start_new_session=True,
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._input = self._process.stdin
        self._end = lambda: command.end_ssh(self._process)
        hello: queue.Queue[bool] = queue.Queue()
        body = json.dumps({"modules": read_modules(), "recorder": read_recorder()}).encode()
        threading.Thread(
            target=self._read, args=(os.fdopen(os.dup(self._process.stdout.fileno()), "rb"), hello), daemon=True
        ).start()
        try:
            _write_all(self._input, f"{len(body)}\n".encode() + body)
            hello.get(timeout=HELLO_SECONDS)
        except (OSError, queue.Empty):
            self.close()
            raise HostError(f"{self.name}: python3 did not start there (it needs Python 3.8 or later)") from None
        if self.problem:
            raise HostError(f"{self.name}: python3 did not start there (it needs Python 3.8 or later): {self.problem}")
        return self

    # -- asking ------------------------------------------------------------------------------------------------

    def ask(self, **request: Any) -> None:
        """Send a request. Raises HostError where the connection is lost."""
        if request["do"] == "list":
            self._asked = time.time()
        line = json.dumps(request).encode() + b"\n"
        with self._lock:
            try:
                assert self._input is not None
                _write_all(self._input, line)
            except (OSError, ValueError, AssertionError) as error:
                raise HostError(f"{self.name}: the connection is lost") from error

    def fetch(self, path: str, target: str) -> None:
        """Move a file of the agent to `target`, with mode 0600; a copy may stay there. Raises OSError, HostError."""
        partial = f"{target}.part"
        with contextlib.suppress(FileNotFoundError):
            os.unlink(partial)
        if self.is_local:
            try:
                os.replace(path, partial)
            except OSError:  # another file system
                shutil = importlib.import_module("shutil")
                shutil.move(path, partial)
        else:
            self._receive(path, partial)
        os.chmod(partial, 0o600)
        os.replace(partial, target)

    def _receive(self, path: str, target: str) -> None:
        events = self._files[path] = queue.Queue()
        self.ask(do="fetch", path=path)
        with open(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            while True:
                try:
                    event = events.get(timeout=HELLO_SECONDS)
                except queue.Empty:
                    raise HostError(f"{self.name}: the connection is lost") from None
                if event["event"] == "end":
                    break
                file.write(zlib.decompress(base64.b64decode(event["data"])))
        del self._files[path]
        if event.get("reason"):
            raise HostError(f"{self.name}: {event['reason']}")

    def close(self) -> None:
        """End the agent; its sockets are closed when this returns."""
        with contextlib.suppress(OSError, ValueError):
            if self._input is not None:
                self._input.close()
        with contextlib.suppress(OSError):
            self._end()
        if self.is_local and self._input is not None:
            self._agent.join(2.0)
            self._close_ours()

    # -- listening ---------------------------------------------------------------------------------------------

    def _read(self, lines: IO[bytes], hello: queue.Queue[bool] | None = None) -> None:
        is_agent = hello is None
        with contextlib.suppress(OSError, ValueError), lines:
            for line in lines:
                if not is_agent and not line.startswith(b'{"event": "hello"'):
                    self.problem = "" if b"no-python" not in line else "there is no python3 on PATH"
                    continue  # what login scripts print
                event = json.loads(line)
                if event["event"] == "hello":
                    is_agent = True
                    if hello is not None:
                        self.problem = ""
                        hello.put(True)
                elif event["event"] in ("data", "end"):
                    waiting = self._files.get(str(event["path"]))
                    if waiting is not None:
                        waiting.put(event)
                else:
                    if event["event"] == "jobs":
                        ahead = event["clock"] - (self._asked + time.time()) / 2
                        self.clock_offset = 0.0 if self.is_local else ahead
                    self._listener(self, event)
        if hello is not None and not is_agent:
            self.problem = self.problem or "it ended at once"
            hello.put(True)
        self._listener(self, {"event": "closed"})


def read_modules() -> list[tuple[str, str]]:
    """Read the source of the agent."""
    folder = Path(__file__).parent / "host"
    return [(name, (folder / f"{name}.py").read_text("utf-8")) for name in SENT_MODULES]


def read_recorder() -> str:
    """Read the source of the recorder that runs inside of a process; "" where it is not installed."""
    found = importlib.util.find_spec("torchprof_runs")
    path = Path(found.origin).parent / "recorder" / "attached.py" if found is not None and found.origin else None
    return path.read_text("utf-8") if path is not None and path.exists() else ""


def _write_all(file: Any, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[file.write(view) or 0 :]
