"""Provoke hangs and keep their dumps: `python -m tools.hang_faults FOLDER [FAULT…]`; `--pack FOLDER`: as fixtures."""

from __future__ import annotations

import argparse
import io
import lzma
import os
import signal
import socket
import subprocess
import sys
import tarfile
import time
from pathlib import Path

from tools.hang_faults.registry import FAULTS, PROGRAM, Fault

SECONDS = 2.0
LIMIT_SECONDS = 90.0
REPOSITORY = Path(__file__).resolve().parents[2]


def provoke(name: str, folder: Path, seconds: float = SECONDS) -> None:
    """Run a job with a fault until its ranks have dumped, and end it."""
    fault = FAULTS[name]
    folder.mkdir(parents=True)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    shared = {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "WORLD_SIZE": str(fault.ranks),
        "OMP_NUM_THREADS": "1",
    }
    command = [sys.executable, str(PROGRAM), name, str(folder), f"{seconds:g}"]
    processes = []
    for rank in range(fault.ranks):
        with open(folder / f"log_rank_{rank}.txt", "wb") as log:
            variables = {**os.environ, **shared, "RANK": str(rank)}
            processes.append(subprocess.Popen(command, env=variables, stdout=log, stderr=log, start_new_session=True))
    try:
        _wait(processes, folder, fault)
    finally:
        for process in processes:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
        for process in processes:
            process.wait()


def _wait(processes: list[subprocess.Popen[bytes]], folder: Path, fault: Fault) -> None:
    until = time.monotonic() + LIMIT_SECONDS
    while time.monotonic() < until:
        time.sleep(0.2)
        waits = [
            rank
            for rank, process in enumerate(processes)
            if process.poll() is None and not (folder / f"stacks_rank_{rank}.json").exists()  # written last
        ]
        has_dumped = not waits or (waits == [fault.rank] and fault.cause == "dead rank")
        goes_on = folder.name == "slow_healthy" and any(process.poll() is None for process in processes)
        if has_dumped and not goes_on:
            return


def pack(folder: Path, target: Path) -> None:
    """Pack dumps into a small archive that names no path of this machine and has the same bytes for the same dumps."""
    import torch

    roots = [str(REPOSITORY), str(Path(torch.__file__).parents[1]), sys.prefix, sys.base_prefix]
    with lzma.open(target, "wb", preset=9) as stream, tarfile.open(fileobj=stream, mode="w") as archive:
        for file in sorted(folder.iterdir()):
            data = file.read_bytes().replace(socket.gethostname().encode(), b"node1")
            for root, label in zip(roots, ("train", "torch", "venv", "python"), strict=True):
                disguise = f"/srv/{label}".ljust(len(root), "_")[: len(root)]  # texts in a pickle keep their length
                data = data.replace(root.encode(), disguise.encode())
            entry = tarfile.TarInfo(file.name)
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("faults", nargs="*", default=[], metavar="FAULT", help=f"of {', '.join(FAULTS)}")
    parser.add_argument("--pack", type=Path, metavar="FOLDER", help="also pack each into FOLDER/FAULT.tar.xz")
    options = parser.parse_args()
    for name in options.faults or FAULTS:
        provoke(name, options.folder / name)
        if options.pack is not None:
            pack(options.folder / name, options.pack / f"{name}.tar.xz")
        print(name, *sorted(path.name for path in (options.folder / name).iterdir()))


if __name__ == "__main__":
    main()
