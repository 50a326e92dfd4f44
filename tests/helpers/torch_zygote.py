"""A process that has imported torch once and forks for each run that a test asks for.

Importing torch takes seconds, a fork of a process that has done so milliseconds. Each line on stdin is a JSON object:
``{"argv", "module", "cwd", "env", "out", "err", "limit", "ignore", "tear_down"}`` starts the harness in a new session
(by its path, or as ``python -m`` where `module` names the folder that it is installed in) and answers with its pid,
``{"poll": pid}`` answers with its exit status as subprocess counts it, or null while it runs.

A child ends as Python does, but for taking all of torch's modules apart, which costs more than most runs and which no
code of the program's takes part in; with `tear_down` it does that too.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import json
import os
import resource
import runpy
import signal
import sys
import threading
from typing import Any


def serve() -> dict[str, Any]:
    """Answer requests; returns one in each child that is forked for it."""
    for line in sys.stdin:
        request: dict[str, Any] = json.loads(line)
        if "poll" in request:
            pid, status = os.waitpid(request["poll"], os.WNOHANG)
            answer = None if pid == 0 else os.waitstatus_to_exitcode(status)
        else:
            answer = os.fork()
            if answer == 0:
                return request
        print(json.dumps(answer), flush=True)
    os._exit(0)


def become(request: dict[str, Any]) -> None:
    """Make this process what a shell would have started."""
    os.setsid()
    os.chdir(request["cwd"])
    for descriptor, (path, flags) in enumerate(
        [("/dev/null", os.O_RDONLY), *((request[name], os.O_WRONLY | os.O_CREAT) for name in ("out", "err"))]
    ):
        opened = os.open(path, flags, 0o644)
        os.dup2(opened, descriptor)
        os.close(opened)
    os.environ.clear()
    os.environ.update(request["env"])
    if request["limit"]:
        resource.setrlimit(resource.RLIMIT_FSIZE, (request["limit"], request["limit"]))
    if request["ignore"]:
        signal.signal(request["ignore"], signal.SIG_IGN)
    sys.argv[:] = request["argv"]
    if request["module"]:
        sys.path[:0] = [request["cwd"], request["module"]]  # as `PYTHONPATH=… python -m` does
    else:
        sys.path.insert(0, os.path.dirname(request["argv"][0]))  # as `python harness.py` does


def run(request: dict[str, Any]) -> None:
    """The harness."""
    if request["module"]:
        runpy.run_module("torchprof_runs.harness", run_name="__main__", alter_sys=True)
    else:
        runpy.run_path(request["argv"][0], run_name="__main__")


def run_and_leave(request: dict[str, Any]) -> None:
    """`run`, then what Python does as it ends, in its order."""
    leave, status = os._exit, 0
    try:
        run(request)
    except SystemExit as error:
        status = error.code & 0xFF if isinstance(error.code, int) else 0 if error.code is None else 1
        if status and not isinstance(error.code, int):
            print(error.code, file=sys.stderr)
    except BaseException as error:
        sys.excepthook(type(error), error, error.__traceback__)
        status = -signal.SIGINT if isinstance(error, KeyboardInterrupt) else 1
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        if not stream.closed:
            stream.flush()
    if status < 0:
        signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    leave(status)


if __name__ == "__main__":
    for name in ("torch._inductor.standalone_compile", "torch.profiler"):  # the first is imported by each profiler
        importlib.import_module(name)

    gc.collect()
    gc.freeze()  # else each child, as it ends, looks at all of torch once more
    del sys.path[0]
    job = serve()
    become(job)
    (run if job["tear_down"] else run_and_leave)(job)
