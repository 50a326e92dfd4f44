"""A process that imports torch once and forks for each run of a test.

Importing torch takes seconds, forking a process that has imported it takes milliseconds. Each line on stdin is a JSON
object: ``{"argv", "module", "cwd", "env", "out", "err", "limit", "ignore", "tear_down"}`` starts the harness in a new
session (by its path, or as ``python -m`` if `module` is the folder that it is installed in) and is answered with its
pid; ``{"poll": pid}`` is answered with the exit status as subprocess counts it, or null while the process runs.

A child ends as Python does, except that it does not destroy torch's modules: that takes longer than most runs and
executes no code of the program. With `tear_down` it does that, too.
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
from collections.abc import Callable
from functools import partial
from typing import Any


def serve() -> dict[str, Any]:
    """Answer requests. Returns the request in each child that is forked for it."""
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


def apply_request(request: dict[str, Any]) -> None:
    """Set up this process as a shell would: session, folder, files, environment, limits, arguments."""
    os.setsid()
    os.chdir(request["cwd"])
    for descriptor, (path, flags) in enumerate(
        [("/dev/null", os.O_RDONLY), *((request[name], os.O_WRONLY | os.O_CREAT) for name in ("out", "err"))]
    ):
        source = os.open(path, flags, 0o644)
        os.dup2(source, descriptor)
        os.close(source)
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
    """Run the harness."""
    if request["module"]:
        runpy.run_module("torchprof_runs.harness", run_name="__main__", alter_sys=True)
    else:
        runpy.run_path(request["argv"][0], run_name="__main__")


def run_and_leave(run: Callable[[], object]) -> None:
    """Run a program, then do what Python does at its end, in the same order."""
    leave, status = os._exit, 0  # before the recorder wraps os._exit
    try:
        run()
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


def import_torch() -> None:
    for name in ("torch._inductor.standalone_compile", "torch.profiler"):  # the first is imported by each profiler
        importlib.import_module(name)


if __name__ == "__main__":
    import_torch()
    gc.collect()
    gc.freeze()  # otherwise the garbage collector of each child would traverse all of torch at its end
    del sys.path[0]
    request = serve()
    apply_request(request)
    if request["tear_down"]:
        run(request)
    else:
        run_and_leave(partial(run, request))
