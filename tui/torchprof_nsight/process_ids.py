"""Take apart the numbers that Nsight Systems gives processes, threads and GPUs."""

from __future__ import annotations

from dataclasses import dataclass

from torchprof_nsight.export_file import ExportFile

_PID_SHIFT, _ID_MASK = 24, (1 << 24) - 1

_CORRELATION_SHIFT = 32
"""CUPTI counts correlations from 1 in each process, in 32 bits; above them comes the number of the process."""


@dataclass(frozen=True, slots=True)
class ProcessIds:
    """Numbers of the processes of one export.

    `processes`: number of each process by its serialized id without the thread. `gpus`: the GPU by pid and CUDA
    device, where the export has it: a process may see GPU 3 as its device 0.
    """

    processes: dict[int, int]
    gpus: dict[tuple[int, int], int]

    def unique_correlation(self, global_id: int, correlation: int) -> int:
        """Return the correlation as a number that no other process of the export uses."""
        return correlation + (self.processes.get(global_id >> _PID_SHIFT, 0) << _CORRELATION_SHIFT)

    def find_gpu(self, global_id: int, device: int) -> int:
        return self.gpus.get((pid_of(global_id), device), device)


def pid_of(global_id: int) -> int:
    """Return the process of a serialized thread or process id."""
    return (global_id >> _PID_SHIFT) & _ID_MASK


def tid_of(global_id: int) -> int:
    """Return the thread of a serialized thread id."""
    return global_id & _ID_MASK


def read_process_ids(export: ExportFile, serialized: set[int]) -> ProcessIds:
    """Number the processes. `serialized`: the ids of all threads that called CUDA."""
    processes = {key: number for number, key in enumerate(sorted({each >> _PID_SHIFT for each in serialized}))}
    gpus = {
        (pid, device): gpu
        for gpu, device, pid in export.read_all("TARGET_INFO_CUDA_DEVICE", ("gpuId", "cudaId", "pid"))
        if isinstance(gpu, int) and isinstance(device, int) and isinstance(pid, int)
    }
    return ProcessIds(processes, gpus)
