"""Record the sample traces on this machine: ``python -m tools.record_samples [-o FOLDER] [NAME…]``

Each is a built-in workload under the harness, with the options below. Beside every trace go torch's own table and its
aggregates, which the viewer's table is checked against. Meant for a GPU, two for `train_gpt_2ranks`; without one it
records the CPU's side of those that do without. `train_images_cpu` and `train_images_cpu_workers` are recorded on a CPU
everywhere.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from typing import Any

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
HARNESS = os.path.join(ROOT, "profiler_runs", "torchprof_runs", "harness.py")


@dataclass(frozen=True)
class Recording:
    """One sample trace: the harness's options, and the workload with its options.

    `threads`: OMP_NUM_THREADS, where worker processes need the other cores.
    A recording with `rehearsed` runs once before. Otherwise the benchmarks by which Inductor chooses its code, whose
    results it then keeps on disk, would fill the trace with thousands of kernels.
    """

    name: str
    options: str
    command: str
    rehearsed: bool = False
    threads: int | None = None


RECORDINGS = (
    Recording("matmul_add_64_cold_eager", "", "matmul_add --size 64 --bias row"),
    Recording("matmul_add_64_sched0_active3", "--wait 0 --warmup 0", "matmul_add --size 64 --bias row"),
    Recording("matmul_add_64_bmm8", "", "matmul_add --size 64 --batch 8 --warmup 10 --bias row"),
    Recording("matmul_add_4096_warm_eager", "", "matmul_add --size 4096 --warmup 10 --bias row"),
    Recording("matmul_add_4096_warm_compile", "", "matmul_add --size 4096 --warmup 10 --compile --bias row"),
    Recording("linear_eager", "", "linear"),
    Recording("geglu_mlp_eager", "", "mlp"),
    Recording("geglu_mlp_compile", "", "mlp --compile"),
    Recording("attention_naive", "", "attention --backend naive"),
    Recording("attention_flash", "", "attention --backend flash"),
    Recording("attention_cudnn", "", "attention --backend cudnn"),
    Recording("compile_recompiles", "", "recompiles", rehearsed=True),
    Recording("multi_stream_overlap", "", "streams"),
    Recording("cuda_graph_replay", "", "graph_replay --active 5"),
    Recording("generate_eager", "", "generate --mode eager --active 9"),
    Recording("generate_compile", "", "generate --mode compile --active 9", rehearsed=True),
    Recording("generate_graph", "", "generate --mode graph --active 9"),
    Recording("train_gpt_starved", "", "train_gpt --starve"),
    Recording("train_gpt_eager", "", "train_gpt"),
    Recording("train_gpt_compile", "", "train_gpt --compile", rehearsed=True),
    Recording("train_gpt_stack_memory", "--with-stack --profile-memory --record-shapes", "train_gpt --item --active 2"),
    Recording("train_gpt_2ranks", "--nproc 2", "train_gpt --late-rank 1 --layers 2 --active 2"),
    Recording("article_64_cold", "", "matmul_add --size 64"),
    Recording("article_64_warm", "", "matmul_add --size 64 --warmup 10"),
    Recording("article_4096_cold", "", "matmul_add --size 4096"),
    Recording("article_4096_active20", "--wait 0 --warmup 0 --active 20", "matmul_add --size 4096"),
    Recording("article_4096_compile", "", "matmul_add --size 4096 --warmup 10 --compile"),
    Recording("article_4096_addmm", "", "matmul_add --size 4096 --warmup 10 --op addmm"),
    Recording("article_4096_reduce", "", "matmul_add --size 4096 --warmup 10 --mode reduce-overhead"),
    Recording("article_4096_autotune", "", "matmul_add --size 4096 --warmup 10 --mode max-autotune", rehearsed=True),
    Recording("infer_resnet", "", "infer_resnet"),
    Recording("infer_resnet_one_image", "", "infer_resnet --batch 1"),
    Recording("infer_resnet_features", "", "infer_resnet --keep-features"),
    Recording("infer_resnet_empty_cache", "", "infer_resnet --empty-cache"),
    Recording("streams_pageable", "", "streams --pageable"),
    Recording("train_images_cpu", "", "train_images --device cpu"),
    Recording(
        "train_images_cpu_workers", "", "train_images --device cpu --edge 32 --workers 2 --prefetch 4", threads=1
    ),
)
"""In the order in which a beginner should read them; `torchprof_samples` describes what to look at in each."""

# What torch writes about the recording machine: the folder of the file, and since 2.13 the machine's name.
_TRACE_FOLDER = re.compile(r'(?<="traceName": ")[^"]*/')
_HOST_NAME = re.compile(r'(?<="host_name": ")[^"]*')
_SUFFIXES = {"trace": "pt.trace.json.gz", "table": "table.txt", "key_averages": "key_averages.json"}


def record(recording: Recording, folder: str) -> str:
    """Record one sample into `folder` and describe it in one line. Raises RuntimeError if the run failed.

    The traces of several ranks go into a folder of their own, with files that are named by rank.
    """
    with tempfile.TemporaryDirectory() as rehearsal_runs, tempfile.TemporaryDirectory() as runs:
        words = [*recording.options.split(), *recording.command.split()]
        if recording.rehearsed:
            subprocess.run([sys.executable, HARNESS, "-o", rehearsal_runs, *words], capture_output=True, check=False)
        argv = [sys.executable, HARNESS, "-o", runs, *words]
        environment = (
            {**os.environ} if recording.threads is None else {**os.environ, "OMP_NUM_THREADS": str(recording.threads)}
        )
        process = subprocess.run(argv, env=environment, capture_output=True, text=True, check=False)
        (name,) = os.listdir(runs) or [""]
        run_folder = os.path.join(runs, name)
        try:
            manifests = _read_manifests(run_folder)
            for rank, manifest in manifests:
                _copy_files(manifest, run_folder, os.path.join(folder, recording.name), rank)
        except (OSError, ValueError, KeyError) as error:
            raise RuntimeError(
                f"{recording.name}: exit status {process.returncode}: {process.stderr.strip()}"
            ) from error
    manifest = manifests[0][1]
    trace, environment = manifest["kept"][0], manifest["environment"]
    device = ", ".join(device["name"] for device in environment["devices"]) or "CPU"
    return (
        f"{recording.name}: {recording.command} {recording.options}".rstrip()
        + f" · {trace['events']} events, {trace['gpu_events']} on the GPU, {trace['bytes']} bytes"
        + f" · {device}, torch {environment['torch']}, Python {environment['python']}"
    )


def _read_manifests(run_folder: str) -> list[tuple[int | None, dict[str, Any]]]:
    """Read (rank, manifest) of each process that recorded; the rank is None if there was only one."""

    def read(name: str) -> dict[str, Any]:
        with open(os.path.join(run_folder, name), encoding="utf-8") as file:
            manifest: dict[str, Any] = json.load(file)
            return manifest

    run_manifest = read("manifest.json")
    if "ranks" not in run_manifest:
        return [(None, run_manifest)]
    return [(entry["rank"], read(f"manifest.rank{entry['rank']}.json")) for entry in run_manifest["ranks"]]


def _copy_files(manifest: dict[str, Any], run_folder: str, path: str, rank: int | None) -> None:
    """Copy the trace, torch's table and its averages to `path` plus a suffix; those of a rank into folder `path`."""
    (trace,) = manifest["kept"]
    if rank is not None:
        os.makedirs(path, exist_ok=True)
        path = os.path.join(path, f"rank{rank}")
    for key, suffix in _SUFFIXES.items():
        if trace[key]:
            shutil.copy(os.path.join(run_folder, trace[key]), f"{path}.{suffix}")
    remove_machine_names(f"{path}.{_SUFFIXES['trace']}")


def remove_machine_names(path: str) -> None:
    """Remove the folders of the file and of the program and the name of the machine from the trace at `path`."""
    with gzip.open(path, "rt", encoding="utf-8") as file:
        text = file.read()
    text = _HOST_NAME.sub("", _TRACE_FOLDER.sub("", text)).replace(f"{ROOT}/", "/repo/")
    with gzip.GzipFile(path, "wb", mtime=0) as file:
        file.write(text.encode())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", default="recorded_samples", help="folder to write into")
    parser.add_argument("names", nargs="*", help="which; all of them if none is named")
    args = parser.parse_args()
    unknown = set(args.names) - {recording.name for recording in RECORDINGS}
    if unknown:
        parser.error(f"no sample {', '.join(sorted(unknown))}: {', '.join(recording.name for recording in RECORDINGS)}")
    os.makedirs(args.output, exist_ok=True)
    failed = 0
    for recording in RECORDINGS:
        if not args.names or recording.name in args.names:
            try:
                print(record(recording, args.output), flush=True)
            except RuntimeError as error:
                print(error, file=sys.stderr, flush=True)
                failed += 1
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
