"""Which steps are recorded, in which cycles, and with which flags of the profiler."""

from __future__ import annotations

import os

from tests.profiler_runs.conftest import Start, train


def test_steps_of_an_optimizer(start: Start) -> None:
    run = start(train(12), args=("--lr", "1"))
    assert run.wait() == 0
    assert run.steps() == [3, 4, 5]  # two wait, one warms up, three are recorded
    assert run.out.splitlines() == [f"step {number}" for number in range(5)]  # stopped at the end of the sixth step
    names = run.names()
    assert names.count("Optimizer.step#SGD.step") == 3
    assert names.count("aten::linear") == 3
    # Kineto's log lines do not appear in the program's output.
    assert all(line.startswith("torchprof: ") for line in run.err.splitlines()), run.err
    kept = run.manifest["kept"]
    assert [entry["steps"] for entry in kept] == [[3, 5]]
    assert not kept[0]["partial"]
    assert kept[0]["events"] == len(names)


def test_a_step_holds_its_optimizers_range_whole(start: Start) -> None:
    """The range that torch records around Optimizer.step closes before the step does."""
    run = start(train(12))
    assert run.wait() == 0
    spans = {
        event["name"]: (event["ts"], event["ts"] + event["dur"])
        for event in run.trace()["traceEvents"]
        if event.get("ph") == "X" and event["name"].startswith("ProfilerStep")
    }
    steps = sorted(spans.values())
    for event in run.trace()["traceEvents"]:
        if event["name"] == "Optimizer.step#SGD.step" and event["ph"] == "X":
            begin, end = event["ts"], event["ts"] + event["dur"]
            assert any(first <= begin and end <= last for first, last in steps)


def test_cycles_and_a_program_that_goes_on(start: Start) -> None:
    schedule = ("--wait", "1", "--warmup", "0", "--active", "2", "--repeat", "2", "--then", "finish")
    run = start(train(9), *schedule)
    assert run.wait() == 0
    assert run.out.endswith("end\n")
    assert [run.steps(0), run.steps(1)] == [[1, 2], [4, 5]]
    assert [entry["trace"] for entry in run.manifest["kept"]] == [
        "script.pt.trace.json.gz", "script.cycle2.pt.trace.json.gz",
    ]  # fmt: skip
    assert {"table.txt", "table.cycle2.txt"} <= set(os.listdir(run.run_folder))
    assert run.manifest["ended"] == "finished"


def test_unlimited_cycles(start: Start) -> None:
    run = start(train(8), "--wait", "0", "--warmup", "1", "--active", "1", "--repeat", "0", "--no-table")
    assert run.wait() == 0
    assert run.out.endswith("end\n")
    assert [run.steps(index) for index in range(4)] == [[1], [3], [5], [7]]
    assert len(run.manifest["kept"]) == 4
    assert not list(run.run_folder.glob("table*"))


def test_the_first_step_of_all(start: Start) -> None:
    run = start(train(3), "--wait", "0", "--warmup", "0", "--active", "1")
    assert run.wait() == 0
    assert run.steps() == [0]
    assert run.out == ""


def test_each_flag_of_the_profiler(start: Start) -> None:
    script = train(9)
    flags = ("--record-shapes", "--profile-memory", "--with-stack", "--with-flops", "--with-modules")
    runs = {flag: start(script, flag, "--no-table") for flag in flags}
    for flag, run in runs.items():
        assert run.wait() == 0, run.err
        assert run.trace()[flag[2:].replace("-", "_")] == 1
    shapes = [event.get("args", {}).get("Input Dims") for event in runs["--record-shapes"].trace()["traceEvents"]]
    assert [[2, 4], [4, 4], [4]] in shapes
    assert any(event["name"] == "[memory]" for event in runs["--profile-memory"].trace()["traceEvents"])
    assert any("script.py" in name for name in runs["--with-stack"].names())


THREAD_STARTED_BEFORE = """
import threading, torch
work, done = threading.Semaphore(0), threading.Semaphore(0)
def serve():
    for _ in range(12):
        work.acquire()
        torch.ones(2, 2) @ torch.ones(2, 2)
        done.release()
threading.Thread(target=serve, daemon=True).start()
weight = torch.nn.Parameter(torch.ones(2))
optimizer = torch.optim.SGD([weight], 0.1)
for _ in range(12):
    work.release()
    done.acquire()
    weight.grad = torch.ones(2)
    optimizer.step()
"""


def test_ops_of_all_threads_are_recorded(start: Start) -> None:
    """A thread that runs since before the recording does the work, as in serving programs."""
    run = start(THREAD_STARTED_BEFORE)
    assert run.wait() == 0
    products = [event for event in run.trace()["traceEvents"] if event["name"] == "aten::matmul"]
    steps = [event for event in run.trace()["traceEvents"] if event["name"].startswith("ProfilerStep")]
    assert len(products) == 3
    assert {event["tid"] for event in products}.isdisjoint(event["tid"] for event in steps)


def test_allocations_are_recorded(start: Start) -> None:
    """With the ops of all threads torch would record none (pytorch#192290)."""
    run = start(train(12), "--profile-memory")
    assert run.wait() == 0
    assert any(event["name"] == "[memory]" for event in run.trace()["traceEvents"])
