"""Programs that use torch.profiler themselves are left alone."""

from __future__ import annotations

import gzip
import json

from tests.profiler_runs.conftest import Start

OWN = """
import torch
from torch.profiler import profile, schedule
model = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
{before}
def ready(prof):
    prof.export_chrome_trace("own.json.gz")
    print("ready", prof.step_num, flush=True)
with profile(schedule=schedule(wait=5, warmup=1, active=2, repeat=1), on_trace_ready=ready) as prof:
    for _ in range(10):
        model(torch.ones(2, 4)).sum().backward()
        optimizer.step()
        prof.step()
print("end", flush=True)
"""


def test_its_own_profiler_runs_to_its_end(start: Start) -> None:
    # The recorder's own plan would be complete, and stop the program, before that profiler's first recorded step.
    run = start(OWN.format(before=""))
    assert run.wait() == 0, run.err
    assert run.out.splitlines() == ["ready 8", "end"]
    with gzip.open(run.folder / "own.json.gz") as file:
        names = [event.get("name") for event in json.load(file)["traceEvents"]]
    assert {"ProfilerStep#6", "ProfilerStep#7"} <= set(names)
    facts = run.manifest
    assert facts["script_profiles_itself"]
    assert facts["script_traces"] == [str(run.folder / "own.json.gz")]
    assert facts["ended"] == "finished"
    assert "the program uses torch.profiler itself" in run.err
    assert run.err.count("own.json.gz") == 1
    assert run.statuses[-1]["kept"] == facts["script_traces"]


def test_what_was_recorded_before_is_kept_or_dropped(start: Start) -> None:
    before = "torch.ones(1).exp()"
    whole = start(OWN.format(before=before), "--step", "none")
    without = OWN.replace("optimizer = torch.optim.SGD(model.parameters(), lr=0.1)", "").replace("optimizer.step()", "")
    undecided = start(without.format(before=before))
    assert whole.wait() == 0
    assert whole.names().count("aten::exp") == 1  # requested with --step none, so it is kept up to this point
    assert undecided.wait() == 0
    assert undecided.manifest["kept"] == []
    for run in (whole, undecided):
        assert run.out.splitlines() == ["ready 8", "end"]


def test_the_older_interface(start: Start) -> None:
    script = """
import torch
torch.ones(1).exp()
with torch.autograd.profiler.profile() as prof:
    torch.ones(1).log()
print(sorted(row.key for row in prof.key_averages())[-1])
"""
    run = start(script, "--step", "none")
    assert run.wait() == 0, run.err
    assert run.out == "aten::ones\n"
    assert "other code started torch's profiler" in run.err
    assert "aten::log" not in run.names()


def test_a_profiler_that_is_created_and_never_started(start: Start) -> None:
    run = start("import torch\nprof = torch.profiler.profile()\nprint(type(prof).__name__)\n", "--step", "none")
    assert run.wait() == 0
    assert run.out == "profile\n"
    assert run.manifest["script_profiles_itself"]


LISTING = """
import torch
from torch.profiler import profile, ProfilerActivity, schedule
def infer():
    with profile(activities=[ProfilerActivity.CPU]{options}) as prof:
        torch.ones(2, 4).tanh()
    print(len(prof.key_averages()) > 0)
infer()
"""


def test_a_profiler_whose_trace_nobody_writes_is_kept(start: Start) -> None:
    """The first listing of most introductions prints a table, and exports nothing."""
    run = start(LISTING.format(options=""))
    assert run.wait() == 0, run.err
    assert run.out == "True\n"
    (path,) = run.manifest["script_traces"]
    with gzip.open(path) as file:
        assert "aten::tanh" in {event.get("name") for event in json.load(file)["traceEvents"]}
    assert str(run.run_folder) in path
    assert "aten::tanh" in (run.run_folder / "table.txt").read_text()
    assert "the program's profiler wrote no trace: what it recorded was written to" in run.err
    assert "no traces kept" not in run.err
    assert run.statuses[-1]["kept"] == [path]


def test_a_profiler_that_never_recorded_is_told_what_to_add(start: Start) -> None:
    run = start("import torch\nprof = torch.profiler.profile()\nprint(type(prof).__name__)\n")
    assert run.wait() == 0
    assert "the program's profiler left no trace: add prof.export_chrome_trace(" in run.err
    assert run.manifest["script_traces"] == []
