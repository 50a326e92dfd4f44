"""A process that has imported torch once and forks for each run that a test asks for.

Importing torch takes seconds, a fork of a process that has done so milliseconds. Each line on stdin is a JSON object:
``{"argv", "cwd", "env", "out", "err", "limit", "ignore"}`` starts the harness in a new session and answers with its
pid, ``{"poll": pid}`` answers with its exit status as subprocess counts it, or null while it runs.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import resource
import runpy
import signal
import sys
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
    sys.path.insert(0, os.path.dirname(request["argv"][0]))  # as `python harness.py` does


if __name__ == "__main__":
    for name in ("torch._inductor.standalone_compile", "torch.profiler"):  # the first is imported by each profiler
        importlib.import_module(name)

    gc.collect()
    gc.freeze()  # else each child, as it ends, looks at all of torch once more
    del sys.path[0]
    job = serve()
    become(job)
    runpy.run_path(job["argv"][0], run_name="__main__")
