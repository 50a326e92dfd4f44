"""Record a PyTorch program with torch.profiler, and save the trace however the program ends.

This package needs only torch and imports nothing of the viewer, so it runs under the interpreter that the user names.

`harness.py` is the entry point: ``python …/torchprof_runs/harness.py [options] script.py args…``. It runs `recorder/`:

=====================  ================================================================================
`options`              parse the command line into `Options`
`target_program`       find the program (script, module, built-in workload) and run it as ``__main__``
`recording_session`    record one process from its start to its end; combines the modules below
`recording_modes`      decide when a recording begins and ends: steps, a window of time, the whole run
`schedule`             plan which steps wait, warm up and are recorded
`step_detection`       count steps: an optimizer's step, or the call of a function
`time_window`          record between two points in time; call functions in the main thread
`attached`             record a program that runs on, when `torchprof-tui attach` asks by SIGUSR2
`hang_watch`           write what a rank waits for when no step ends
`hang_requests`        write it when `torchprof-tui attach --watch-hang` asks for it
`profiler_cycles`      start and stop torch.profiler as the plan says, and save each cycle
`graph_captures`       record the capture of each CUDA graph, for the ops of its replays
`trace_export`         write the trace, the profiler's table and its averages, also on a full disk
`own_frames`           remove the recorder's own Python frames from the trace
`size_estimate`        estimate a trace's size from one step, and limit the memory of a recording
`size_preflight`       measure one step, and settle how many are recorded where the trace would be large
`size_question`        ask the user about that, in the terminal or through the app
`profiler_conflict`    detect programs that use torch.profiler themselves, and leave them alone
`child_processes`      count the processes that the program starts, which are not recorded
`exit_handlers`        save before the process ends by Ctrl-C, SIGTERM, os._exit, …
`program_outcome`      exit status and traceback of the program, as Python would show them
`torch_capabilities`   report what torch can record here, and explain what is missing
`run_folder`           create the folder of a run and name its files
`atomic_files`         write files completely or not at all
`manifest`             manifest.json: what ran, how it ended, which traces were kept
`status_messages`      log lines for people, and JSON status lines for the app
`rank_environment`     identify the rank of this process
`rank_launcher`        start several ranks: --nproc, torchrun
=====================  ================================================================================

`workloads/` holds the built-in programs (`matmul_add`, `linear`, `mlp`, `attention`, `train_gpt`, `recompiles`,
`streams`, `graph_replay`, `generate`, `train_images`, `infer_resnet`). Each is a script on its own and says in its
docstring what to expect in its trace.
"""

from __future__ import annotations

import importlib


def install() -> bool:
    """Let `torchprof-tui attach` record this process on SIGUSR2, and ask what it waits for when it hangs.

    Returns False where that is not possible.
    """
    installed: bool = importlib.import_module(".recorder.attached", __name__).install()
    return installed
