"""Record all fault programs, each in a process of its own, and write down where the traces come from."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from typing import Any

from .registry import FAULTS, VARIANTS

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
TIMEOUT_SECONDS = 120.0
"""Of one program; only one that hangs takes longer."""

_QUERY_ENVIRONMENT = """
import json, sys, torch
gpus = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
versions = {"torch": torch.__version__, "cuda": torch.version.cuda, "python": sys.version.split()[0]}
print(json.dumps({**versions, "gpus": gpus}))
"""


@dataclass(frozen=True, slots=True)
class Result:
    """What became of one program: `status` is "recorded", "skipped" or "failed"; `files` maps file names to bytes."""

    program: str
    variant: str
    status: str
    seconds: float
    files: dict[str, int]
    notes: tuple[str, ...]


def query_environment() -> dict[str, Any]:
    """Read versions and GPUs in another process, which keeps torch out of this one."""
    output = subprocess.run([sys.executable, "-c", _QUERY_ENVIRONMENT], capture_output=True, text=True, check=True)
    environment: dict[str, Any] = json.loads(output.stdout)
    try:
        command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
        drivers = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    except (OSError, subprocess.CalledProcessError):
        drivers = []
    return {**environment, "driver": drivers[0] if drivers else None}


def record_program(name: str, variant: str, folder: str, device: str, gpu: int | None = None) -> Result:
    """Record one program into `folder` on `device`, on the GPU of index `gpu` alone if that is given."""
    stem = f"{name}.{variant}"
    output = os.path.join(folder, f"{stem}.json.gz")
    command = [sys.executable, "-m", "tools.fault_programs", name, variant, "-o", output, "--device", device]
    environment = dict(os.environ)
    if gpu is not None:
        # Where a list of GPUs is set already, its entry is passed on: indices count within that list.
        listed = environment.get("CUDA_VISIBLE_DEVICES", "").split(",")
        environment["CUDA_VISIBLE_DEVICES"] = listed[gpu] if gpu < len(listed) and listed[gpu] else str(gpu)
    start = time.perf_counter()
    # A session of its own, so that a timeout also ends the ranks and workers that the program has started.
    process = subprocess.Popen(
        command,
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        stdout, stderr = process.communicate(timeout=TIMEOUT_SECONDS)
        status = "recorded" if process.returncode == 0 else "failed"
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        stdout, stderr = process.communicate()
        status, stderr = "failed", f"{stderr}\nno end after {TIMEOUT_SECONDS:.0f} s"
    lines, errors = stdout.splitlines(), stderr.strip().splitlines()
    notes = [line.removeprefix("note: ") for line in lines if line.startswith("note: ")]
    files = {
        file: os.path.getsize(os.path.join(folder, file))
        for file in sorted(os.listdir(folder))
        if file.startswith(stem)
    }
    if status == "recorded" and len(files) != FAULTS[name].ranks:
        status, errors = "failed", [f"{len(files)} traces, {FAULTS[name].ranks} expected"]
    if status == "failed":
        notes += errors[-12:]
    return Result(name, variant, status, round(time.perf_counter() - start, 1), files, tuple(notes))


def record_all(folder: str, device: str, jobs: int | None = None) -> list[Result]:
    """Record every program and its twin into `folder`, and write origin.json there. Print a line for each.

    Programs of one rank run side by side, each on a GPU of its own: `jobs` of them, by default one per GPU. Those of
    several ranks run one after the other, and are skipped where GPUs are missing.
    """
    folder = os.path.abspath(folder)
    os.makedirs(folder, exist_ok=True)
    date, start = datetime.now(timezone.utc), time.perf_counter()
    environment = query_environment()
    gpus = len(environment["gpus"]) if device == "cuda" else 0
    jobs = jobs or max(gpus, 1)
    results: list[Result] = []

    def report(result: Result) -> None:
        size = sum(result.files.values()) // 1000
        notes = " · ".join(result.notes) if result.status != "failed" else "\n  ".join(("", *result.notes))
        print(f"{result.program} {result.variant}: {result.status}, {result.seconds} s, {size} kB {notes}", flush=True)
        results.append(result)

    def record_share(worker: int) -> None:
        for name, variant in single[worker::jobs]:
            report(record_program(name, variant, folder, device, worker % gpus if gpus else None))

    single = [(name, variant) for name, fault in FAULTS.items() if fault.ranks == 1 for variant in VARIANTS]
    with ThreadPoolExecutor(jobs) as workers:
        list(workers.map(record_share, range(jobs)))
    for name, fault in FAULTS.items():
        for variant in VARIANTS if fault.ranks > 1 else ():
            if device == "cuda" and gpus < fault.ranks:
                report(Result(name, variant, "skipped", 0.0, {}, (f"needs {fault.ranks} GPUs, {gpus} found",)))
            else:
                report(record_program(name, variant, folder, device))
    origin = {
        **environment,
        "command": " ".join(["python -m tools.fault_programs", *sys.argv[1:]]),
        "date": date.isoformat(timespec="seconds"),
        "seconds": round(time.perf_counter() - start, 1),
        "programs": [asdict(result) for result in results],
    }
    with open(os.path.join(folder, "origin.json"), "w", encoding="utf-8") as file:
        json.dump(origin, file, indent=1)
        file.write("\n")
    return results
