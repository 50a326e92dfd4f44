"""The ways beside Kineto's socket: servers that answer as documented, a fake `dyno`, and the recorder in a process."""

from __future__ import annotations

import importlib
import json
import os
import stat
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from torchprof_attach.host import in_process, processes, servers
from torchprof_attach.host.agent import Agent
from torchprof_attach.host.fabric import SocketTakenError
from torchprof_attach.host.processes import Process
from torchprof_attach.hosts import read_modules, read_recorder


def make_process(*command: str, python: tuple[int, int] = (3, 12), **environment: str) -> Process:
    """Make the process of a command line, with this process's number."""
    start, parent = processes.read_start(os.getpid())
    return Process(os.getpid(), start, parent, list(command), environment, "", "", False, False, python, "")


@contextmanager
def serving(trace: Path, folder: Path, status: int = 200) -> Iterator[tuple[int, list[tuple[str, Any]]]]:
    """Serve /start_profile and /stop_profile as vLLM (a folder of its own) and SGLang (the body's) document them."""
    requests: list[tuple[str, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            asked = json.loads(body) if body else None
            requests.append((self.path, asked))
            if asked:  # SGLang stops by itself after so many steps
                threading.Timer(0.1, self._write, [Path(asked["output_dir"]) / "1-TP-0.trace.json"]).start()
            elif self.path == "/stop_profile":
                self._write(folder / "worker_rank0.pt.trace.json")
            self.send_response(status)
            self.end_headers()
            self.wfile.write(b"no\n" if status >= 400 else b"")

        def _write(self, path: Path) -> None:
            path.write_bytes(trace.read_bytes())

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server.server_address[1], requests
    finally:
        server.shutdown()
        server.server_close()


@pytest.fixture(autouse=True)
def _settle_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(servers, "SETTLE_SECONDS", 0.15)


def test_vllm_is_started_and_stopped(trace: Path, tmp_path: Path) -> None:
    (tmp_path / "old.json").write_text("{}")
    with serving(trace, tmp_path) as (port, requests):
        process = make_process("vllm", "serve", "model", "--port", str(port), VLLM_TORCH_PROFILER_DIR=str(tmp_path))
        assert process.server == "vllm"
        request = {"window_ms": 20, "steps": 5, "timeout": 10}
        assert servers.record_server(process, request, "", lambda: False) == [f"{tmp_path}/worker_rank0.pt.trace.json"]
    assert [path for path, _ in requests] == ["/start_profile", "/stop_profile"]


def test_sglang_gets_steps_options_and_a_private_folder(trace: Path, tmp_path: Path) -> None:
    with serving(trace, tmp_path) as (port, requests):
        process = make_process("python", "-m", "sglang.launch_server", f"--port={port}")
        request = {"steps": 7, "options": ["stacks"], "timeout": 10}
        files = servers.record_server(process, request, str(tmp_path), lambda: False)
    assert [Path(file).name for file in files] == ["1-TP-0.trace.json"]
    ((path, body),) = requests
    assert path == "/start_profile"
    assert (body["num_steps"], body["with_stack"], body["record_shapes"]) == (7, True, False)


@pytest.mark.parametrize(
    ("status", "line"), [(404, "started without its profiler"), (401, "HTTP 401 no"), (500, "HTTP 500 no")]
)
def test_a_server_that_refuses_is_told(trace: Path, tmp_path: Path, status: int, line: str) -> None:
    with serving(trace, tmp_path, status) as (port, _):
        process = make_process("vllm", "serve", "--port", str(port), VLLM_TORCH_PROFILER_DIR=str(tmp_path))
        with pytest.raises(servers.WayError, match=line):
            servers.record_server(process, {"window_ms": 1, "steps": 1, "timeout": 1}, "", lambda: False)


def test_the_folder_of_vllm_is_found_in_its_arguments() -> None:
    for words in (
        ["--profiler-config", '{"torch_profiler_dir": "/x/y"}'],
        ["--profiler-config.torch_profiler_dir=/x/y"],
    ):
        assert servers.find_trace_folder(make_process("vllm", "serve", *words)) == "/x/y"
    assert servers.find_trace_folder(make_process("vllm", "serve")) == ""
    assert servers.find_address(make_process("vllm", "serve", "--host", "0.0.0.0")) == ("127.0.0.1", 8000)


def test_dynolog_is_asked_by_its_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dyno = tmp_path / "dyno"
    dyno.write_text('#!/bin/sh\necho "$@" > "$0.asked"\necho "Matched ${MATCHED:-1} processes"\n')
    dyno.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    process = make_process("python", "train.py")
    request = {"steps": 5, "multiple": 40, "options": ["shapes"]}
    servers.record_dynolog(process, request, "/x/trace.json")
    assert (tmp_path / "dyno.asked").read_text().split() == [
        *f"gputrace --pids {os.getpid()} --log-file /x/trace.json --iterations 5".split(),
        *["--profile-start-iteration-roundup", "40", "--record-shapes"],
    ]
    monkeypatch.setenv("MATCHED", "0")
    with pytest.raises(servers.WayError, match="did not reach the process: Matched 0"):
        servers.record_dynolog(process, request, "/x/trace.json")


def test_the_ways_are_tried_in_order_and_told(monkeypatch: pytest.MonkeyPatch) -> None:
    agent = Agent(lambda event: None, "a recorder")
    free: list[BaseException] = []

    def check(folder: str) -> None:
        if free:
            raise free[0]

    monkeypatch.setattr("torchprof_attach.host.fabric.check_free", check)
    plain = make_process("python", "train.py")
    registered = plain._replace(socket="@dynoconfigclient-1")
    assert agent.find_way(registered, False) == ("kineto", "")
    free.append(SocketTakenError(77, "/usr/bin/dynolog --enable_ipc_monitor"))
    assert agent.find_way(registered, False)[0] == "dynolog"
    free[0] = SocketTakenError(78, "python attach")
    assert agent.find_way(registered, False) == ("", "Kineto's socket is held by pid 78: python attach")
    assert agent.find_way(registered._replace(marker=True), False)[0] == "signal"
    assert agent.find_way(make_process("vllm", "serve")._replace(marker=True), False)[0] == "server"
    assert agent.find_way(plain, False) == ("", "it was started without KINETO_USE_DAEMON=1")
    assert agent.find_way(plain._replace(problem="in a container"), True) == ("", "in a container")
    # nothing is injected without being asked
    monkeypatch.setattr(sys, "remote_exec", lambda pid, path: None, raising=False)
    monkeypatch.setattr(in_process, "REMOTE_EXEC_PYTHON", sys.version_info[:2])
    same = plain._replace(python=sys.version_info[:2])
    assert agent.find_way(same, True)[0] == "remote_exec"
    way, why = agent.find_way(same, False)
    assert way == ""
    assert "--inject" in why


class FakeProfiler:
    """Stands for torch.profiler.profile. `active`: how many record."""

    active = 0

    def __init__(self, **options: bool) -> None:
        self.options = options

    def start(self) -> None:
        FakeProfiler.active += 1

    def stop(self) -> None:
        FakeProfiler.active -= 1

    def export_chrome_trace(self, path: str) -> None:
        Path(path).write_text(
            json.dumps({"traceEvents": [], "options": sorted(k for k, v in self.options.items() if v)})
        )


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Any]:
    """The recorder of `torchprof_runs`, with a torch of a few lines; `step()` of it is an optimizer's."""
    hooks: list[Any] = []
    torch: Any = ModuleType("torch")
    torch._C = SimpleNamespace(_autograd=SimpleNamespace(_profiler_enabled=lambda: FakeProfiler.active > 0))
    profiler: Any = ModuleType("torch.profiler")
    profiler.profile = FakeProfiler
    optimizer: Any = ModuleType("torch.optim.optimizer")
    optimizer.register_optimizer_step_post_hook = hooks.append
    for name, module in (("torch", torch), ("torch.profiler", profiler), ("torch.optim.optimizer", optimizer)):
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr(processes, "scratch_folder", lambda: str(tmp_path / "scratch"))
    monkeypatch.setattr(in_process, "scratch_folder", lambda: str(tmp_path / "scratch"))
    module: Any = importlib.reload(importlib.import_module("torchprof_runs.recorder.attached"))
    module.step = lambda: [hook(None, (), {}) for hook in hooks]
    yield module
    FakeProfiler.active = 0


def write_request(folder: Path, **request: Any) -> str:
    path = folder / "request"
    path.write_text(json.dumps({"path": str(folder / "trace.json"), **request}))
    path.chmod(0o600)
    return str(path)


def test_the_recorder_waits_for_a_multiple_and_counts_steps(recorder: Any, tmp_path: Path) -> None:
    recorder.handle_request(write_request(tmp_path, steps=2, multiple=4, options=["stacks"]))
    active = []
    for _ in range(7):
        recorder.step()
        active.append(FakeProfiler.active)
    assert active == [0, 0, 0, 1, 1, 0, 0]
    assert json.loads((tmp_path / "trace.json").read_text())["options"] == ["with_stack"]
    assert (tmp_path / "trace.json.step").read_text() == "4"
    assert not recorder.is_busy()


def test_a_second_request_and_a_foreign_profiler_are_refused(recorder: Any, tmp_path: Path) -> None:
    recorder.handle_request(write_request(tmp_path, steps=2))
    recorder.handle_request(write_request(tmp_path, steps=9))
    assert (tmp_path / "trace.json.error").read_text() == "it is being recorded"
    for _ in range(3):
        recorder.step()
    FakeProfiler.active = 1
    recorder.handle_request(write_request(tmp_path, steps=2))
    assert (tmp_path / "trace.json.error").read_text() == "another profiler is active in it"


def test_a_request_that_others_could_write_is_refused(recorder: Any, tmp_path: Path) -> None:
    path = write_request(tmp_path, steps=2)
    os.chmod(path, 0o644)
    recorder.handle_request(path)
    for _ in range(3):
        recorder.step()
    assert not (tmp_path / "trace.json").exists()


def test_a_failing_export_does_not_reach_the_program(
    recorder: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        FakeProfiler, "export_chrome_trace", lambda self, path: (_ for _ in ()).throw(OSError(28, "full"))
    )
    recorder.handle_request(write_request(tmp_path, steps=1))
    for _ in range(3):
        recorder.step()
    assert "full" in (tmp_path / "trace.json.error").read_text()
    assert not recorder.is_busy()


def test_remote_exec_runs_the_recorder_with_a_request(
    recorder: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python 3.14 runs the script in the other process; here it is run in this one, whose torch is the fake."""
    ran: list[str] = []
    monkeypatch.setattr(sys, "remote_exec", lambda pid, path: ran.append(path), raising=False)
    process = make_process("python", "train.py")
    in_process.run_remotely(process, {"window_ms": 5, "path": str(tmp_path / "t.json")}, read_recorder())
    (script,) = ran
    assert stat.S_IMODE(os.stat(script).st_mode) == 0o600
    exec(compile(Path(script).read_text(), script, "exec"), {})
    assert FakeProfiler.active == 1


def test_what_is_sent_to_hosts_is_python_3_8() -> None:
    ast = importlib.import_module("ast")
    for name, source in [*read_modules(), ("recorder", read_recorder())]:
        assert source, name
        ast.parse(source, feature_version=(3, 8))
