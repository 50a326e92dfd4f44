"""Every way in which a program can end: the recording is saved, and the exit status is the program's own."""

from __future__ import annotations

import os
import signal
import time

import pytest

from tests.profiler_runs.conftest import Start, train

# Record from the first step on, for more steps than any test takes.
ENDLESS = ("--wait", "0", "--warmup", "0", "--active", "1000000")
SLEEP = "for _ in range(1000):\n    time.sleep(0.1)"  # an interrupt just before a sleep does not end it
SLOW = train(100_000, "import time; time.sleep(0.005)")


@pytest.mark.parametrize(
    ("statement", "status", "ended", "says"),
    [
        ("sys.exit()", 0, "sys.exit", ""),
        ("sys.exit(3)", 3, "sys.exit", ""),
        ("sys.exit(259)", 3, "sys.exit", ""),
        ("sys.exit('that went wrong')", 1, "sys.exit", "that went wrong"),
        ("raise SystemExit(None)", 0, "sys.exit", ""),
        ("raise ValueError('own mistake')", 1, "exception", "ValueError: own mistake"),
        ("raise KeyboardInterrupt", -signal.SIGINT, "interrupted", "KeyboardInterrupt"),
        ("import os; os._exit(5)", 5, "os._exit", ""),
        ("import os; os.abort()", -signal.SIGABRT, "os.abort", ""),
        ("import os; os.execvp('sh', ['sh', '-c', 'echo replaced; exit 9'])", 9, "os.execve", ""),
        ("import os, signal; os.kill(os.getpid(), signal.SIGTERM)", -signal.SIGTERM, "SIGTERM", ""),
        ("import os, signal; os.kill(os.getpid(), signal.SIGHUP)", -signal.SIGHUP, "SIGHUP", ""),
    ],
)
def test_from_inside(start: Start, statement: str, status: int, ended: str, says: str) -> None:
    run = start(train(9, f"if step == 3: {statement}"), *ENDLESS)
    assert run.wait() == status
    assert run.steps() == [0, 1, 2, 3, 4]  # four, and the beginning of a fifth
    facts = run.manifest
    assert facts["ended"].startswith(ended[:7])
    assert facts["kept"][0]["partial"]
    assert facts["exit_status"] == (None if "exec" in ended else status)
    assert says in run.err
    assert f"kept steps 0 to 4, cut off: {facts['kept'][0]['events']} events in {run.run_folder}" in run.err
    assert ("replaced" in run.out) == ("exec" in ended)


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_from_outside(start: Start, signum: signal.Signals) -> None:
    run = start(SLOW, *ENDLESS)
    run.wait_for("step 5")
    os.killpg(run.pid, signum)
    assert run.wait() == -signum
    assert run.steps()[:6] == [0, 1, 2, 3, 4, 5]
    assert run.manifest["exit_status"] == -signum
    assert run.manifest["ended"] == ("interrupted" if signum == signal.SIGINT else signum.name)
    assert run.statuses[-1]["phase"] == "done"


def test_sigkill_keeps_earlier_cycles(start: Start) -> None:
    """Nothing can be saved after SIGKILL: the traces of earlier cycles stay, and the manifest says "running"."""
    schedule = ("--wait", "0", "--warmup", "1", "--active", "1", "--repeat", "0", "--no-table")
    run = start(SLOW, *schedule)
    run.wait_for("step 6")
    run.kill(signal.SIGKILL)
    assert run.wait() == -signal.SIGKILL
    assert run.manifest["state"] == "running"
    assert len(run.manifest["kept"]) >= 2
    assert run.steps() == [1]


def test_a_program_that_catches_ctrl_c(start: Start) -> None:
    script = """
import sys, time, torch
optimizer = torch.optim.SGD([torch.ones(1, requires_grad=True)], lr=0.1)
try:
    for step in range(100_000): optimizer.step(); print("step", step); time.sleep(0.005)
except KeyboardInterrupt:
    print("checkpoint")
    sys.exit(7)
"""
    run = start(script, *ENDLESS)
    run.wait_for("step 3")
    run.kill(signal.SIGINT)
    assert run.wait() == 7, run.err
    assert "checkpoint" in run.out
    assert run.steps()[:4] == [0, 1, 2, 3]


def test_a_program_with_handlers_of_its_own(start: Start) -> None:
    script = "import signal, sys\nsignal.signal(signal.SIGTERM, lambda *_: sys.exit(12))\n" + SLOW
    run = start(script, *ENDLESS)
    run.wait_for("step 3")
    run.kill(signal.SIGTERM)
    assert run.wait() == 12
    assert run.steps()[:4] == [0, 1, 2, 3]


def test_a_parent_that_ignores_hangups(start: Start) -> None:
    """As under nohup: an ignored signal stays ignored."""
    run = start(train(9, "import os, signal; os.kill(os.getpid(), signal.SIGHUP)"), *ENDLESS, ignore=signal.SIGHUP)
    assert run.wait() == 0
    assert run.out.endswith("end\n")
    assert run.manifest["ended"] == "finished"


def slow_call(owner: str, name: str) -> str:
    """Build the source that makes a method of torch's profiler say "called" and take a long time."""
    return f"""
import torch, time
import torch.autograd.profiler
original = {owner}.{name}
def slow(*args, **kwargs):
    print("called", flush=True)
    end = time.monotonic() + 20
    while time.monotonic() < end: time.sleep(0.01)
    return original(*args, **kwargs)
{owner}.{name} = slow
"""


def test_ctrl_c_while_torch_makes_its_table_skips_only_the_table(start: Start) -> None:
    run = start(slow_call("torch.autograd.profiler.profile", "key_averages") + train(3), *ENDLESS)
    run.wait_for("called")
    run.kill(signal.SIGINT)
    assert run.wait() == 0
    assert "skipped torch's table; the trace is kept" in run.err
    (kept,) = run.manifest["kept"]
    assert (run.run_folder / kept["trace"]).exists()
    assert kept["table"] is None
    assert run.manifest["ended"] == "finished"


def test_ctrl_c_while_saving_waits_and_a_second_gives_up(start: Start) -> None:
    run = start(slow_call("torch.profiler.profile", "export_chrome_trace") + train(3), *ENDLESS)
    run.wait_for("called")
    run.kill(signal.SIGINT)
    run.wait_for("ctrl+c again stops without saving")
    begin = time.monotonic()
    run.kill(signal.SIGINT)
    assert run.wait() == 0  # the program itself had ended
    assert time.monotonic() - begin < 15
    assert "stopped without saving" in run.err
    assert not list(run.run_folder.glob(".*"))  # no part of a file is left
    assert run.statuses[-1]["phase"] == "done"


def test_ctrl_c_that_the_program_ignores(start: Start) -> None:
    """A background job ignores it from the start; the recorder then ignores it too, also while it saves."""
    script = """
import os, signal, torch
import torch.autograd.profiler as backend
original = backend.profile.key_averages
def pressed(*args, **kwargs):
    print("pressed", flush=True)
    for _ in range(2): os.kill(os.getpid(), signal.SIGINT)
    return original(*args, **kwargs)
backend.profile.key_averages = pressed
""" + train(5)
    run = start(script, "--wait", "0", "--active", "2", "--then", "finish", ignore=signal.SIGINT)
    assert run.wait() == 0, run.err
    assert run.out.count("pressed") == 1
    assert run.out.endswith("end\n")
    assert "saving what was recorded" not in run.err
    assert "stopped without saving" not in run.err
    assert run.steps() == [1, 2]


def test_stopping_a_program_that_does_not_want_to(start: Start) -> None:
    script = """
import torch
optimizer = torch.optim.SGD([torch.ones(1, requires_grad=True)], lr=0.1)
while True:
    try: optimizer.step()
    except BaseException: print("caught")
"""
    run = start(script)
    assert run.wait() == 0
    assert run.out.splitlines() == ["caught"] * 3
    assert run.manifest["ended"] == "stopped"
    assert "the program ignored all requests to stop" in run.err


def test_stopping_runs_what_must_be_cleaned_up(start: Start) -> None:
    script = """
import atexit, torch
atexit.register(print, "at exit")
optimizer = torch.optim.SGD([torch.ones(1, requires_grad=True)], lr=0.1)
try:
    while True: optimizer.step()
finally:
    print("finally")
"""
    run = start(script)
    assert run.wait() == 0
    assert run.out.splitlines() == ["finally", "at exit"]


def test_work_that_goes_on_in_threads_after_the_last_line(start: Start) -> None:
    script = """
import threading, time, torch
def work():
    time.sleep(0.3)
    print("thread ends", flush=True)
threading.Thread(target=work).start()
from concurrent.futures import ThreadPoolExecutor
ThreadPoolExecutor(1).submit(torch.ones, 1).result()  # its thread idles until Python ends
torch.ones(2).exp()
print("last line", flush=True)
"""
    run = start(script, "--step", "none", tear_down=True)
    assert run.wait() == 0
    assert run.out.splitlines() == ["last line", "thread ends"]
    assert "aten::exp" in run.names()
    assert run.manifest["kept"][0]["seconds"] >= 0.25


def test_steps_in_another_thread_than_the_main_one(start: Start) -> None:
    script = "import threading\ndef train():\n" + "".join(f"    {line}\n" for line in train(12).splitlines())
    script += "thread = threading.Thread(target=train); thread.start(); thread.join(); print('joined')\n"
    goes_on = start(script, "--then", "finish", "--step", "optimizer")
    stopped = start(script, "--step", "optimizer")
    assert goes_on.wait() == 0, goes_on.err
    assert goes_on.steps() == [3, 4, 5]
    assert goes_on.out.endswith("joined\n")
    assert stopped.wait() == 0, stopped.err
    assert stopped.steps() == [3, 4, 5]
    assert stopped.manifest["ended"] == "stopped"


CHILDREN = """
import multiprocessing, os, subprocess, sys, time, torch
def child(number):
    optimizer = torch.optim.SGD([torch.ones(1, requires_grad=True)], lr=0.1)
    for _ in range(20): optimizer.step()  # its own steps count nowhere
    sys.exit(number)
if __name__ == "__main__":
    optimizer = torch.optim.SGD([torch.ones(1, requires_grad=True)], lr=0.1)
    for _ in range(4): optimizer.step()
    children = [multiprocessing.get_context("fork").Process(target=child, args=(number,)) for number in (3, 4)]
    for each in children: each.start()
    for each in children: each.join()
    print([each.exitcode for each in children])
    forked = os.fork()
    if forked == 0:
        raise SystemExit(6)  # through our own frames
    print(os.waitstatus_to_exitcode(os.waitpid(forked, 0)[1]))
    print(subprocess.run(["sh", "-c", "kill -TERM $$"]).returncode)
    waiting = multiprocessing.get_context("fork").Process(target=time.sleep, args=(60,))
    waiting.start(); waiting.terminate(); waiting.join(); print(waiting.exitcode)
    for _ in range(2): optimizer.step()
    print("end", flush=True)
    sys.exit(8)
"""


def test_children_are_not_touched(start: Start) -> None:
    run = start(CHILDREN, "--wait", "3", "--active", "100", tear_down=True)
    assert run.wait() == 8, run.err
    assert run.out.splitlines() == ["[3, 4]", "6", "-15", "-15", "end"]
    assert run.steps() == [4, 5, 6]
    assert run.err.count("kept in") == 1
    assert len([line for line in run.statuses if line.get("phase") == "done"]) == 1


def test_a_child_that_is_spawned_finds_the_programs_main(start: Start) -> None:
    script = """
import multiprocessing, sys
def child(queue): queue.put((__name__, sys.argv[1:], "torch" in sys.modules))
if __name__ == "__main__":
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    process = context.Process(target=child, args=(queue,))
    process.start(); print(queue.get()); process.join(); print(process.exitcode)
"""
    run = start(script, args=("-a",))
    assert run.wait() == 0, run.err
    assert run.out.splitlines() == ["('__mp_main__', ['-a'], False)", "0"]


def test_a_worker_that_dies_while_a_trace_is_saved(start: Start) -> None:
    """A handler that raises (as DataLoader's for SIGCHLD does) runs only after the trace is written."""
    script = """
import os, signal, time, torch
def died(*_): raise RuntimeError("a worker died")
signal.signal(signal.SIGCHLD, died)
import torch.autograd.profiler as backend
original = backend.profile.key_averages
def slow(*args, **kwargs):
    os.kill(os.getpid(), signal.SIGCHLD); time.sleep(0.05); print("still here", flush=True)
    return original(*args, **kwargs)
backend.profile.key_averages = slow
""" + train(12)
    run = start(script, "--then", "finish")
    assert run.wait() == 1
    assert "still here" in run.out
    assert "RuntimeError: a worker died" in run.err
    assert run.manifest["kept"][0]["table"] == "table.txt"


def test_closed_and_redirected_streams(start: Start) -> None:
    close = "import os, sys\nsys.stdout.close(); os.close(2); os.closerange(3, 100)\n"
    printing = start(close + train(3), *ENDLESS)
    silent = start(close + train(3).replace("print(", "(lambda *_, **__: None)("), *ENDLESS)
    assert printing.wait() == 1  # print fails in the program, with or without the recorder
    assert silent.wait() == 0
    assert printing.steps() == [0, 1]
    assert silent.steps() == [0, 1, 2, 3]
    for run in (printing, silent):
        assert "kept in" in run.err  # log lines go to the stderr of the start
        assert run.statuses[-1]["phase"] == "done"


def test_a_disk_that_is_full(start: Start) -> None:
    """A limit on the size of files has the effect of a quota: torch reports no error, the JSON just ends."""
    steps = train(400)
    run = start(steps, *ENDLESS, limit=300_000)
    assert run.wait() == 0, run.err
    assert run.out.endswith("end\n")
    assert "cut short: the file is larger than the limit (ulimit -f)" in run.err
    assert "the disk is full" not in run.err  # freeing space would not help
    assert run.manifest["kept"][0]["partial"]
    assert run.run_folder.joinpath(run.manifest["kept"][0]["trace"]).stat().st_size > 1_000
    assert not list(run.run_folder.glob(".*json"))


def test_a_program_that_lives_on_after_sigterm(start: Start) -> None:
    """A program that saves a checkpoint on SIGTERM is not taken for one that hangs."""
    script = """
import signal, sys, time, torch
torch.ones(1)
exit_handlers = sys.modules["_torchprof_runs.recorder.exit_handlers"]
exit_handlers.UNBLOCK_AFTER_SECONDS, exit_handlers.STUCK_AFTER_SECONDS = 0.05, 0.1
asked = []
signal.signal(signal.SIGTERM, lambda *_: asked.append(1))
print("ready", flush=True)
while not asked: time.sleep(0.01)
import ctypes; ctypes.CDLL(None).usleep(500_000)
print("checkpoint", flush=True)
"""
    run = start(script, "--step", "none")
    run.wait_for("ready")
    run.kill(signal.SIGTERM)
    assert run.wait() == 0, run.err
    assert run.out.endswith("checkpoint\n")


def test_a_child_that_gets_sigterm_as_soon_as_it_is_forked(start: Start) -> None:
    script = """
import multiprocessing, sys, time, torch
exit_handlers = sys.modules["_torchprof_runs.recorder.exit_handlers"]
exit_handlers.UNBLOCK_AFTER_SECONDS, exit_handlers.STUCK_AFTER_SECONDS = 0.05, 0.1
codes = []
for _ in range(30):
    child = multiprocessing.get_context("fork").Process(target=time.sleep, args=(60,))
    child.start(); child.terminate(); child.join(); codes.append(child.exitcode)
import ctypes; ctypes.CDLL(None).usleep(500_000)
print(set(codes))
"""
    run = start(script, "--step", "none")
    assert run.wait() == 0, run.err
    assert run.out == "{-15}\n"


def test_native_code_that_never_returns(start: Start) -> None:
    """SIGTERM ends a program whose main thread never returns to Python, after STUCK_AFTER_SECONDS."""
    script = """
import ctypes, torch
optimizer = torch.optim.SGD([torch.ones(1, requires_grad=True)], lr=0.1)
optimizer.step()
import sys
exit_handlers = sys.modules["_torchprof_runs.recorder.exit_handlers"]
exit_handlers.UNBLOCK_AFTER_SECONDS, exit_handlers.STUCK_AFTER_SECONDS = 0.1, 0.3
print("stuck", flush=True)
libc, mutex = ctypes.CDLL(None), ctypes.create_string_buffer(64)
libc.pthread_mutex_lock(mutex)
libc.pthread_mutex_lock(mutex)  # deadlock
"""
    run = start(script, *ENDLESS)
    run.wait_for("stuck")
    time.sleep(0.1)
    run.kill(signal.SIGTERM)
    assert run.wait() == -signal.SIGKILL
    assert "hangs in native code" in run.err
    assert run.manifest["state"] == "running"


def test_an_interrupt_before_the_first_step_ends_in_one_line(start: Start) -> None:
    run = start("import time\nprint('ready', flush=True)\n" + SLEEP)
    run.wait_for("ready")
    run.kill(signal.SIGINT)
    assert run.wait() == -signal.SIGINT
    assert "Traceback" not in run.err
    assert run.err.splitlines()[-1].endswith("interrupted before the first step; nothing was recorded")
    assert "nothing was recorded:" not in run.err
    assert run.manifest["kept"] == []


def test_an_interrupted_program_without_steps_keeps_its_ops(start: Start) -> None:
    run = start("import time, torch\ntorch.ones(2).sin()\nprint('ready', flush=True)\n" + SLEEP)
    run.wait_for("ready")
    run.kill(signal.SIGINT)
    assert run.wait() == -signal.SIGINT
    assert "KeyboardInterrupt" in run.err
    assert "aten::sin" in run.names()
