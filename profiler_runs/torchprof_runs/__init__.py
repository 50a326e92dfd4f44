"""Profiling runs: record what a PyTorch program does, and keep it whatever happens to the program.

Needs torch alone and imports nothing of the viewer, so it runs under the interpreter that the user names.

`harness.py` is the way in: ``python …/profiler_runs/harness.py [options] script.py args…``. Behind it:

===============  ======================================================================================
`options`        the command line → `Options`
`target`         what is run: a script, a module, a built-in workload; run unchanged as ``__main__``
`session`        one recorded process from start to end: puts all that follows together
`schedule`       which step waits, warms up, is recorded
`stepping`       what counts as a step: an optimizer's step, a function's call
`window`         recording between two points in time, and calling into the main thread
`recording`      the profiler, driven through the schedule
`exporting`      what was recorded → files, also on a full disk
`preflight`      how big a trace gets, and the memory that it may take
`selfprofile`    a script that uses torch.profiler itself is left alone
`endings`        Ctrl-C, SIGTERM, os._exit …: every way to end, saving first
`outcome`        how the program ended, as Python would say it
`files`          files written whole or not at all
`modes`          steps, a window of time, the whole run: what begins and ends a recording
`devices`        what torch reports, and one line for each thing that is missing
`folder`         the run's folder, made fresh
`manifest`       what ran, how, how it ended, what was kept
`status`         log lines and the channel that tells an app which phase the run is in
`ranks`          which rank this process is
`launcher`       several ranks: --nproc, torchrun
===============  ======================================================================================

The other modules are the built-in workloads (`matmul_add`, `linear`, `mlp`, `attention`, `train_gpt`, `recompiles`,
`streams`, `graph_replay`), each a script on its own, and `record_samples`, which records the sample traces with them.
"""
