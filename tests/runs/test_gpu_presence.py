"""Whether this machine has a GPU, and which workloads need one."""

from __future__ import annotations

from pathlib import Path

import pytest

from torchprof_tui.runs import recording_request
from torchprof_tui.runs.recording_request import WORKLOADS, WORKLOADS_FOR_GPUS, is_gpu_present, workload_flags


def test_a_gpu_is_a_device_file_that_is_not_hidden(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recording_request, "_DEVICE_FILES", (str(tmp_path / "nvidia[0-9]*"),))
    (tmp_path / "nvidiactl").touch()
    assert not is_gpu_present({})
    (tmp_path / "nvidia3").touch()
    assert is_gpu_present({})
    assert is_gpu_present({"CUDA_VISIBLE_DEVICES": "3"})
    assert not is_gpu_present({"CUDA_VISIBLE_DEVICES": ""})
    assert not is_gpu_present({"CUDA_VISIBLE_DEVICES": "-1"})


def test_the_workloads_and_their_arguments_exist() -> None:
    for name, argument in WORKLOADS_FOR_GPUS.items():
        assert name in WORKLOADS
        assert not argument or argument in workload_flags(name)
