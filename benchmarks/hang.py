"""`hang` on 1,024 synthetic ranks, and beside torch's own analyser on the dumps of twenty provoked faults.

    python -m benchmarks.hang [--peer]

The synthetic ranks have 20 collectives with ten frames each; one of them skips the last. torch's analyser gets the
dumps as gloo writes them, and mended: with the names and members of all groups, and states as NCCL's.
"""

from __future__ import annotations

import argparse
import io
import pickle
import resource
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.hang.literals import call, dump, write
from tools.hang_faults.registry import FAULTS
from torchprof_hang.command.main import explain_hang

FIXTURES = Path(__file__).resolve().parent.parent / "tests" / "fixtures" / "hang"
RANKS, CALLS, LATE = 1024, 20, 700
NAMES = ("all_reduce", "all_gather", "broadcast")
GROUPS = {"group_wrong": {"1": [2, 3]}, "order_of_groups": {"1": [0, 1]}}
GROUPS["group_of_half"] = {"1": [0, 1, 2, 3], "2": [4, 5, 6, 7]}
"""Members of the groups beside the default one."""

REMARKS = ("culprit", "mismatch", "missing", "error type", "not all ranks")


def write_ranks(folder: Path) -> None:
    """Write the dumps of a job in which one rank skips the last collective."""
    outer = [{"name": f"call{depth}", "filename": f"/opt/loop{depth}.py", "line": depth} for depth in range(8)]
    for rank in range(RANKS):
        entries = []
        for number in range(1, CALLS + 1):
            is_last = number == CALLS
            name = NAMES[(number - 1 + (is_last and rank == LATE)) % 3]
            entry = call(number, name, state="started" if is_last else "completed")
            entries.append(entry | {"frames": entry["frames"] + outer})
        (folder / f"nccl_trace_rank_{rank}").write_bytes(write(dump(entries, RANKS)))


def measure_ranks() -> None:
    """Measure the whole command, as a process."""
    with tempfile.TemporaryDirectory() as folder:
        write_ranks(Path(folder))
        for _ in range(3):
            before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
            command = [sys.executable, "-m", "torchprof_tui", "hang", folder, "--json"]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            after, seconds = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter() - start
            cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
            found = f"rank {LATE} skipped" in done.stdout
            print(f"{RANKS:,} ranks, {CALLS} collectives each: {seconds:.2f} s, {cpu:.2f} s of CPU, found: {found}")


def ask_torch(files: dict[str, bytes]) -> str:
    """Run torch's analyser on dumps, and return its first remark."""
    with tempfile.TemporaryDirectory() as folder:
        for name, data in files.items():
            Path(folder, name).write_bytes(data)
        command = [sys.executable, "-m", "torch.distributed.flight_recorder.fr_trace", folder]
        done = subprocess.run([*command, "--prefix", "comm_trace_rank_"], capture_output=True, text=True, check=False)
    lines = [line.strip() for line in (done.stdout + done.stderr).splitlines() if line.strip()]
    if done.returncode:
        return f"ends with {lines[-1] if lines else done.returncode}"
    return next((line for line in lines if any(each in line.lower() for each in REMARKS)), "no remark")


def read_dumps(name: str) -> Iterator[tuple[str, bytes]]:
    with tarfile.open(FIXTURES / f"{name}.tar.xz") as archive:
        for each in archive:
            file = archive.extractfile(each)
            if each.name.startswith("comm_trace") and file is not None:
                yield each.name, file.read()


def mend(name: str, data: bytes) -> bytes:
    """Add what gloo leaves out. Only for dumps that this repository recorded: they are unpickled as they are."""
    content: dict[str, Any] = pickle.load(io.BytesIO(data))
    groups = {"0": list(range(FAULTS[name].ranks))} | GROUPS.get(name, {})
    labels = {group: "default_pg" if group == "0" else "undefined" for group in groups}
    content["pg_config"] = {
        group: {"name": group, "desc": labels[group], "ranks": str(ranks)} for group, ranks in groups.items()
    }
    for entry in content["entries"]:
        entry["state"] = "completed" if entry["retired"] else "started"
    return pickle.dumps(content)


def compare() -> None:
    """Print what each says, as a table in Markdown."""
    print("| fault | torch's analyser | the same, dumps mended | `hang` |\n|---|---|---|---|")
    for name in FAULTS:
        files = dict(read_dumps(name))
        plain = ask_torch(files)
        mended = ask_torch({file: mend(name, data) for file, data in files.items()})
        ours = explain_hang([str(FIXTURES / f"{name}.tar.xz")]).sentence
        cells = (text.replace("|", "¦")[:160] for text in (plain, mended, ours))
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peer", action="store_true", help="compare with torch's analyser (three minutes)")
    measure_ranks()
    if parser.parse_args().peer:
        compare()


if __name__ == "__main__":
    main()
