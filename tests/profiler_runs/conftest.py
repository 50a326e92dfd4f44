"""Fixtures that run the harness, forked from a process that has imported torch already."""

from __future__ import annotations

import gzip
import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.paths import ROOT

HARNESS = ROOT / "profiler_runs/torchprof_runs/harness.py"
TIMEOUT_SECONDS = 300.0  # only a run that hangs takes longer

# A minimal training loop; each step prints its number.
TRAIN = """
import sys, torch
model = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range({steps}):
    optimizer.zero_grad()
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()
    print("step", step, flush=True)
    {after_step}
print("end", flush=True)
"""


def train(steps: int = 12, after_step: str = "") -> str:
    """Build the source of a training script; `after_step` is a statement at the end of its loop."""
    return TRAIN.format(steps=steps, after_step=after_step)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the tests first that import torch themselves: one worker does them, and imports it once, in 4 s."""
    items.sort(key=lambda item: item.get_closest_marker("torch") is None)


class Run:
    """One run of the harness: its process, its output, and the files that it wrote."""

    def __init__(self, send_request: Callable[[dict[str, Any]], Any], folder: Path, pid: int) -> None:
        self._send_request, self.folder, self.pid = send_request, folder, pid
        self._status: int | None = None

    def wait(self) -> int:
        """Wait for the end. Returns the exit status, or minus the number of the signal that ended the run."""
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while self._status is None:
            self._status = self._send_request({"poll": self.pid})
            if self._status is None:
                if time.monotonic() > deadline:
                    os.kill(self.pid, signal.SIGKILL)
                    raise AssertionError(f"the run does not end:\n{self.out}\n{self.err}")
                time.sleep(0.02)
        return self._status

    def wait_for(self, text: str) -> None:
        """Wait until `text` was printed or logged."""
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while text not in self.out + self.err + self.status_text:
            if time.monotonic() > deadline:
                os.kill(self.pid, signal.SIGKILL)
                raise AssertionError(f"never said {text!r}:\n{self.out}\n{self.err}\n{self.status_text}")
            time.sleep(0.01)

    def kill(self, signum: int) -> None:
        os.kill(self.pid, signum)

    @property
    def out(self) -> str:
        return (self.folder / "out").read_text(errors="replace")

    @property
    def err(self) -> str:
        return (self.folder / "err").read_text(errors="replace")

    @property
    def status_text(self) -> str:
        path = self.folder / "status"
        return path.read_text() if path.exists() else ""

    @property
    def statuses(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.status_text.splitlines()]

    @property
    def run_folder(self) -> Path:
        """The folder that the run created."""
        (path,) = (self.folder / "runs").iterdir()
        return path

    @property
    def manifest(self) -> dict[str, Any]:
        facts: dict[str, Any] = json.loads((self.run_folder / "manifest.json").read_text())
        return facts

    def trace(self, index: int = 0) -> dict[str, Any]:
        """Read a saved trace."""
        path = self.run_folder / self.manifest["kept"][index]["trace"]
        text = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        document: dict[str, Any] = json.loads(text)
        return document

    def names(self, index: int = 0) -> list[str]:
        """List the names of the complete events of a saved trace, without the GPU's copies of the CPU's ranges."""
        events = self.trace(index)["traceEvents"]
        return [event["name"] for event in events if event.get("ph") == "X" and event["cat"] != "gpu_user_annotation"]

    def steps(self, index: int = 0) -> list[int]:
        """List the numbers of the steps that are marked in a saved trace."""
        return sorted(int(name.split("#")[1]) for name in self.names(index) if name.startswith("ProfilerStep#"))


Start = Callable[..., Run]


@pytest.fixture(scope="session")
def zygote() -> Iterator[Callable[[dict[str, Any]], Any]]:
    """Start the process of `torch_zygote.py`. Yields a function that sends it a request and returns the answer."""
    if importlib.util.find_spec("torch") is None:
        pytest.skip("needs torch")
    process = subprocess.Popen(
        [sys.executable, str(ROOT / "tests/helpers/torch_zygote.py")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"},
    )
    assert process.stdin is not None
    assert process.stdout is not None
    requests, answers = process.stdin, process.stdout

    def send_request(request: dict[str, Any]) -> Any:
        requests.write(json.dumps(request) + "\n")
        requests.flush()
        return json.loads(answers.readline())

    yield send_request
    requests.close()
    process.wait(TIMEOUT_SECONDS)


@pytest.fixture
def start(zygote: Callable[[dict[str, Any]], Any], tmp_path: Path) -> Start:
    """start(script, *options, args=…): run `script` (source code, or a command) under the harness; does not wait."""
    count = 0

    def start(
        script: str | list[str],
        *options: str,
        args: tuple[str, ...] = (),
        name: str = "script.py",
        env: dict[str, str] | None = None,
        limit: int | None = None,
        runs: Path | None = None,
        ignore: int = 0,
        cwd: Path | None = None,
        module: Path | None = None,
        tear_down: bool = False,
    ) -> Run:
        nonlocal count
        count += 1
        folder = tmp_path / f"run{count}"
        folder.mkdir()
        if isinstance(script, str):
            (folder / name).write_text(script)
            command = [name, *args]
        else:
            command = script
        for stream in ("out", "err"):
            (folder / stream).touch()
        # The tests' programs run on the CPU on every machine; tests of the workloads set the variable themselves.
        variables = {"TORCHPROF_STATUS": str(folder / "status"), "CUDA_VISIBLE_DEVICES": "-1"}
        request = {
            "argv": [str(HARNESS), "-o", str(runs or folder / "runs"), *options, *command],
            "cwd": str(cwd or folder),
            "env": {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1", **variables, **(env or {})},
            "out": str(folder / "out"),
            "err": str(folder / "err"),
            "limit": limit,
            "ignore": int(ignore),
            "module": str(module or ""),
            "tear_down": tear_down,
        }
        return Run(zygote, folder, zygote(request))

    return start
