"""Record occupancy as computed by NVIDIA's tools, as fixtures for tests/analysis/kernel/test_occupancy.py.

    python tools/record_occupancy.py gpu -o tests/fixtures/occupancy_h200.json
    python tools/record_occupancy.py calculator -o tests/fixtures/occupancy_calculator.json

`gpu` needs a CUDA GPU, nvcc, and torch for the real kernels. It queries the CUDA runtime
(`cudaOccupancyMaxActiveBlocksPerMultiprocessor`) for kernels that this script compiles, over a sweep of registers,
block sizes and shared memory. It also measures the PyTorch kernels of `occupancy_workload.py` with Nsight Compute
(`ncu`, skipped if it is not installed), next to the values that torch.profiler writes for the same launches.

`calculator` needs only the CUDA toolkit and a C++ compiler: it runs the toolkit's `cuda_occupancy.h`, which takes
device properties as numbers, for compute capabilities for which we have no GPU.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

WORKLOAD = Path(__file__).with_name("occupancy_workload.py")

REGISTERS = (24, 32, 40, 48, 56, 64, 72, 80, 88, 96, 104, 112, 120, 128, 144, 160, 168, 184, 200, 208, 224, 240, 255)
STATIC = (0, 1000, 20000, 49152)
BLOCKS = (32, 33, 64, 96, 100, 128, 160, 192, 224, 256, 288, 320, 384, 416, 512, 576, 640, 768, 896, 1000, 1024)
DYNAMIC = (0, 1, 1000, 1024, 4096, 7168, 10000, 16384, 24576, 32768, 37000, 49152, 56000, 65536, 75000, 98304, 114688)
DYNAMIC_LARGE = (115712, 131072, 163840, 196608, 212000, 232448)

SWEEP = r"""
#include <cstdio>
#include <cstdlib>
#include <cuda_runtime.h>

// Holds as many values live as it may use registers, so that the compiler uses them all.
template <int kRegisters, int kStatic>
__global__ void __maxnreg__(kRegisters) held(const float* in, float* out, int n) {
  extern __shared__ float dynamic[];
  float x[kRegisters];
#pragma unroll
  for (int i = 0; i < kRegisters; ++i) x[i] = in[i * n + threadIdx.x];
#pragma unroll 1
  for (int k = 0; k < n; ++k) {
#pragma unroll
    for (int i = 0; i < kRegisters; ++i) x[i] = x[i] * x[(i + 7) % kRegisters] + in[k];
  }
  if constexpr (kStatic > 0) {
    __shared__ char fixed[kStatic];
    fixed[(threadIdx.x * n) % kStatic] = (char)x[3];
    __syncthreads();
    x[5] += fixed[(threadIdx.x + n) % kStatic];
  }
  if (n < 0) x[9] += dynamic[threadIdx.x];
  float sum = 0;
#pragma unroll
  for (int i = 0; i < kRegisters; ++i) sum += x[i];
  out[threadIdx.x] = sum;
}

template <int kRegisters, int kStatic>
void sweep(int optin) {
  auto kernel = held<kRegisters, kStatic>;
  cudaFuncAttributes a;
  if (cudaFuncGetAttributes(&a, kernel) != cudaSuccess) return;
  // What the compiler made of kStatic (1000 becomes 1008): asking for more than is left would be refused as a whole.
  int left = optin - (int)a.sharedSizeBytes;
  if (cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, left) != cudaSuccess) exit(2);
  static const int blocks[] = {BLOCKS};
  static const int dynamics[] = {DYNAMICS};
  for (int block : blocks) {
    int j = 0;
    for (int dynamic : dynamics) {
      // Every register count without shared memory, and a thinned-out mixture of the rest.
      bool mixed = kRegisters == 32 || kRegisters == 96 || (block / 32 + j++ + kRegisters / 8) % 9 == 0;
      if ((dynamic && !mixed) || dynamic > left) continue;
      int n = -1, carved = -1;
      cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout, cudaSharedmemCarveoutDefault);
      if (cudaOccupancyMaxActiveBlocksPerMultiprocessor(&n, kernel, block, dynamic) != cudaSuccess) n = -1;
      cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout, cudaSharedmemCarveoutMaxShared);
      if (cudaOccupancyMaxActiveBlocksPerMultiprocessor(&carved, kernel, block, dynamic) != cudaSuccess) carved = -1;
      printf("%d %d %d %d %d %d\n", a.numRegs, (int)a.sharedSizeBytes, block, dynamic, n, carved);
    }
  }
}

int main() {
  cudaDeviceProp p;
  if (cudaGetDeviceProperties(&p, 0) != cudaSuccess) return 1;
  printf("{\"name\": \"%s\", \"computeMajor\": %d, \"computeMinor\": %d, \"maxThreadsPerBlock\": %d, "
         "\"maxThreadsPerMultiprocessor\": %d, \"regsPerBlock\": %d, \"regsPerMultiprocessor\": %d, \"warpSize\": %d, "
         "\"sharedMemPerBlock\": %zu, \"sharedMemPerBlockOptin\": %zu, \"sharedMemPerMultiprocessor\": %zu, "
         "\"reservedSharedMemPerBlock\": %zu, \"maxBlocksPerMultiProcessor\": %d, \"numSms\": %d, "
         "\"memoryBusWidth\": %d}\n",
         p.name, p.major, p.minor, p.maxThreadsPerBlock, p.maxThreadsPerMultiProcessor, p.regsPerBlock,
         p.regsPerMultiprocessor, p.warpSize, p.sharedMemPerBlock, p.sharedMemPerBlockOptin,
         p.sharedMemPerMultiprocessor, p.reservedSharedMemPerBlock, p.maxBlocksPerMultiProcessor,
         p.multiProcessorCount, p.memoryBusWidth);
  int optin = (int)p.sharedMemPerBlockOptin;
CALLS
  return 0;
}
"""

CALCULATOR = r"""
#include <climits>
#include <cstdio>
#include <cstring>
#include <cuda_occupancy.h>

int main() {
  // major minor threads/SM regs/SM smem/SM optin reserved regs static block dynamic
  int major, minor, threads, regs, smem, optin, reserved, r, s, b, d;
  while (scanf("%d %d %d %d %d %d %d %d %d %d %d", &major, &minor, &threads, &regs, &smem, &optin, &reserved, &r, &s,
               &b, &d) == 11) {
    cudaOccDeviceProp p;
    p.computeMajor = major, p.computeMinor = minor, p.maxThreadsPerBlock = 1024, p.warpSize = 32;
    p.maxThreadsPerMultiprocessor = threads, p.regsPerBlock = 65536, p.regsPerMultiprocessor = regs;
    p.sharedMemPerBlock = 49152, p.sharedMemPerMultiprocessor = smem, p.numSms = 100;
    p.sharedMemPerBlockOptin = optin, p.reservedSharedMemPerBlock = reserved;
    cudaOccFuncAttributes f;
    f.maxThreadsPerBlock = INT_MAX, f.numRegs = r, f.sharedSizeBytes = s;
    f.partitionedGCConfig = PARTITIONED_GC_OFF, f.shmemLimitConfig = FUNC_SHMEM_LIMIT_OPTIN;
    f.maxDynamicSharedSizeBytes = optin - s, f.numBlockBarriers = 0;
    cudaOccDeviceState state;
    cudaOccResult out;
    int failed = cudaOccMaxActiveBlocksPerMultiprocessor(&out, &p, &f, &state, b, d);
    int active = failed ? -1 : out.activeBlocksPerMultiprocessor;
    printf("%d %d %d %d %d %d %d %d %d %d %d\n", major, minor, r, s, b, d, active, out.blockLimitWarps,
           out.blockLimitRegs, out.blockLimitSharedMem, out.blockLimitBlocks);
  }
  return 0;
}
"""

# major, minor: threads/SM, registers/SM, shared memory/SM, opt-in shared memory/block, reserved shared memory/block.
# CUDA C++ Programming Guide, "Technical Specifications per Compute Capability".
CAPABILITIES = {
    (6, 0): (2048, 65536, 65536, 49152, 0),
    (6, 1): (2048, 65536, 98304, 49152, 0),
    (7, 0): (2048, 65536, 98304, 98304, 0),
    (7, 5): (1024, 65536, 65536, 65536, 0),
    (8, 0): (2048, 65536, 167936, 166912, 1024),
    (8, 6): (1536, 65536, 102400, 101376, 1024),
    (8, 9): (1536, 65536, 102400, 101376, 1024),
    (9, 0): (2048, 65536, 233472, 232448, 1024),
    (10, 0): (2048, 65536, 233472, 232448, 1024),
    (12, 0): (1536, 65536, 102400, 101376, 1024),
}


def build(source: str, folder: Path, name: str, command: list[str]) -> Path:
    """Compile `source` (the last suffix of `name` names the language) and return the program."""
    path = folder / name
    path.write_text(source)
    program = path.with_suffix("")
    subprocess.run([*command, "-o", str(program), str(path)], check=True)
    return program


def sweep_launches(folder: Path) -> dict[str, object]:
    """Query the CUDA runtime for compiled kernels on GPU 0."""
    calls = [f"  sweep<{r}, 0>(optin);" for r in REGISTERS]
    calls += [f"  sweep<{r}, {s}>(optin);" for r in (32, 64, 128) for s in STATIC[1:]]
    source = SWEEP.replace("{BLOCKS}", "{" + ", ".join(map(str, BLOCKS)) + "}")
    source = source.replace("{DYNAMICS}", "{" + ", ".join(map(str, DYNAMIC + DYNAMIC_LARGE)) + "}")
    source = source.replace("CALLS", "\n".join(calls))
    program = build(
        source, folder, "sweep.cu", ["nvcc", "-std=c++17", "-arch=native", "-split-compile=0", "-diag-suppress=39,179"]
    )
    lines = subprocess.run([str(program)], check=True, capture_output=True, text=True).stdout.splitlines()
    rows = [[int(x) for x in line.split()] for line in lines[1:]]
    return {
        "device": json.loads(lines[0]),
        "answers_that_the_carveout_changes": sum(row[4] != row[5] for row in rows),
        "sweep_columns": ["registers", "static", "block", "dynamic", "blocks"],
        "sweep": [row[:5] for row in rows],
    }


def profile_workload(folder: Path) -> list[dict[str, object]]:
    """Record the workload with torch.profiler and return its kernels in launch order."""
    trace = folder / "workload.json"
    process = subprocess.run([sys.executable, str(WORKLOAD), "--trace", str(trace)], timeout=100)
    if process.returncode:
        return []
    kernels = [e for e in json.loads(trace.read_text())["traceEvents"] if e.get("cat") == "kernel"]
    kernels.sort(key=lambda e: e["args"]["correlation"])
    keep = ("registers per thread", "shared memory", "grid", "block", "est. achieved occupancy %", "blocks per SM")
    return [{"name": e["name"], **{k: e["args"].get(k) for k in keep}} for e in kernels]


def measure_workload() -> list[dict[str, str]]:
    """Measure the same kernels with Nsight Compute, by raw metric name, in launch order."""
    if not shutil.which("ncu"):
        return []
    command = ["ncu", "--clock-control", "none", "--section", "LaunchStats", "--section", "Occupancy"]
    command += ["--csv", "--page", "raw", "--print-units", "base", sys.executable, str(WORKLOAD)]
    try:
        process = subprocess.run(command, capture_output=True, text=True, timeout=160)
    except subprocess.TimeoutExpired as error:
        print("ncu took too long:", str(error.stdout)[-2000:], file=sys.stderr)
        return []
    start = process.stdout.find('"ID"')
    if start < 0:
        print("ncu gave no table:", process.stdout[-2000:], process.stderr[-2000:], file=sys.stderr)
        return []
    return list(csv.DictReader(io.StringIO(process.stdout[start:])))[1:]  # the first row names the units


MEASURED = {
    # column                   raw metric of ncu
    "registers": "launch__registers_per_thread",
    "static": "launch__shared_mem_per_block_static",
    "dynamic": "launch__shared_mem_per_block_dynamic",
    "driver": "launch__shared_mem_per_block_driver",
    "allocated": "launch__shared_mem_per_block_allocated",
    "cluster": "launch__cluster_size",
    "warps_limit": "launch__occupancy_limit_warps",
    "registers_limit": "launch__occupancy_limit_registers",
    "shared_memory_limit": "launch__occupancy_limit_shared_mem",
    "blocks_limit": "launch__occupancy_limit_blocks",
    "barriers_limit": "launch__occupancy_limit_barriers",
    "waves": "launch__waves_per_multiprocessor",
    "theoretical_percent": "sm__maximum_warps_per_active_cycle_pct",
}
PROFILED = {
    "profiler_registers": "registers per thread",
    "profiler_shared_memory": "shared memory",
    "profiler_blocks_per_sm": "blocks per SM",
    "profiler_occupancy": "est. achieved occupancy %",
}


def join_kernels(profiled: list[dict[str, object]], measured: list[dict[str, str]]) -> dict[str, object]:
    """Join both records of each launch, without duplicates; {} if the numbers of launches differ."""
    if len(profiled) != len(measured):
        print(f"{len(profiled)} kernels profiled, {len(measured)} measured: left out", file=sys.stderr)
        return {}
    rows: dict[str, list[object]] = {}
    for kernel, metrics in zip(profiled, measured, strict=True):
        shape = [[int(x) for x in metrics[key].strip("()").split(",")] for key in ("Block Size", "Grid Size")]
        if shape != [kernel["block"], kernel["grid"]]:
            print(f"{kernel['name']} and {metrics['Kernel Name']} differ in shape: left out", file=sys.stderr)
            continue
        values = [float(metrics[metric].replace(",", "") or 0) for metric in MEASURED.values()]
        row = [kernel["name"], *shape, *(int(v) if v.is_integer() else v for v in values)]
        row += [kernel[key] for key in PROFILED.values()]
        rows.setdefault(json.dumps(row), row)
    return {"kernel_columns": ["name", "block", "grid", *MEASURED, *PROFILED], "kernels": list(rows.values())}


def run_calculator(folder: Path) -> dict[str, object]:
    """Run the CUDA toolkit's calculator for each capability of the table above."""
    program = build(CALCULATOR, folder, "calculator.cpp", ["nvcc"])
    launches = []
    for index, ((major, minor), device) in enumerate(CAPABILITIES.items()):
        for i, registers in enumerate((16, *REGISTERS)):
            for j, block in enumerate(BLOCKS):
                for k, shared in enumerate((0, 100, 1024, 5000, 16384, 33000, 49152, 65536, 90000, 101376, 160000)):
                    # Thinned out: all register counts and block sizes without shared memory, else one in eleven.
                    if (shared and (index + i + 3 * j + 5 * k) % 11) or shared > device[3]:
                        continue
                    static = 1000 if shared > 1024 and k % 2 else 0
                    row = (major, minor, *device, registers, static, block, shared - static)
                    launches.append(" ".join(map(str, row)))
    process = subprocess.run([str(program)], input="\n".join(launches), check=True, capture_output=True, text=True)
    rows = [[int(x) for x in line.split()] for line in process.stdout.splitlines()]
    columns = ["major", "minor", "registers", "static", "block", "dynamic", "blocks"]
    columns += ["warps_limit", "registers_limit", "shared_memory_limit", "blocks_limit"]
    capabilities = {f"{a}.{b}": list(device) for (a, b), device in CAPABILITIES.items()}
    return {"capabilities": capabilities, "columns": columns, "rows": rows}


def format_compact(document: dict[str, object]) -> str:
    """Format as JSON with one line per row, so that diffs of a fixture are readable."""
    parts = []
    for key, value in document.items():
        if isinstance(value, list) and value and isinstance(value[0], list | dict):
            rows = ",\n".join(json.dumps(row, separators=(",", ":")) for row in value)
            parts.append(f"{json.dumps(key)}: [\n{rows}\n]")
        else:
            parts.append(f"{json.dumps(key)}: {json.dumps(value)}")
    return "{\n" + ",\n".join(parts) + "\n}\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("gpu", "calculator"))
    parser.add_argument("-o", "--out", type=Path, required=True)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if options.what == "calculator":
            document = run_calculator(folder)
        else:
            document = sweep_launches(folder)
            document |= join_kernels(profile_workload(folder), measure_workload())
        options.out.write_text(format_compact(document))


if __name__ == "__main__":
    main()
