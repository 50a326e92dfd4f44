"""Record iterations of a running program when SIGUSR2 asks for it: `torchprof-tui attach` sends the signal.

    import torchprof_runs
    torchprof_runs.install()

`install` sets a handler of SIGUSR2, a hook after optimizer steps that counts them, and a thread that waits to be asked
what a job that hangs waits for (`hang_requests`). A request is a file with mode 0600 in the user's private folder.
Nothing in here raises into the program. The same file is run by `sys.remote_exec` in programs of Python 3.14 that have
not called `install`.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib
import json
import os
import signal
import stat
from typing import Any

MAX_REQUEST_BYTES = 1 << 16

_state: dict[str, Any] = {"count": 0, "hook": None, "job": None, "handler": None, "watch": None}
"""`count`: optimizer steps since `install`. `job`: the recording that is going on. `watch`: notes when steps end."""


class RefusedError(Exception):
    """A request that cannot be met; `str()` is one line."""


def install() -> bool:
    """Let `torchprof-tui attach` record this process on SIGUSR2. Returns False where that is not possible."""
    if not hasattr(signal, "SIGUSR2") or signal.getsignal(signal.SIGUSR2) is not signal.SIG_DFL:
        return False  # the program, or its scheduler, uses the signal for something else
    try:
        _hook_optimizers()
        _state["handler"] = _handle_signal
        signal.signal(signal.SIGUSR2, _handle_signal)
        descriptor = os.open(_name_file("installed"), os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        os.close(descriptor)
        atexit.register(_withdraw)
        _state["watch"] = _create_watch()
    except (OSError, ValueError, ImportError):  # ValueError: not the main thread
        return False
    return True


def _create_watch() -> Any:
    """Answer questions about a hang; None where the watch of `run --watch-hang` does."""
    # what `sys.remote_exec` runs is this file alone
    modules = [importlib.import_module(f".{name}", __package__) for name in ("hang_watch", "rank_environment")]
    rank = modules[1].identify_rank(os.environ)
    watch = modules[0].HangWatch("", rank.rank if rank else 0, rank.world_size if rank else 1, 0.0, lambda _: None)
    return watch if listen(watch) else None


def listen(watch: Any) -> bool:
    """Let `attach --watch-hang` ask a watch of hangs, unless it can ask another one already."""
    path = _name_file("pipe")
    if not importlib.import_module(".hang_requests", __package__).listen(path, watch):
        return False
    atexit.register(_remove, path)
    return True


def _handle_signal(*_: object) -> None:
    handle_request(_name_file("request"))


def _withdraw() -> None:
    """Take back the word that SIGUSR2 is handled: the program has set a handler of its own."""
    _state["handler"] = None
    _remove(_name_file("installed"))


def _remove(path: str) -> None:
    with contextlib.suppress(OSError):
        os.unlink(path)


def is_busy() -> bool:
    """Tell whether a request is being met: what uses torch's profiler is not the program."""
    return _state["job"] is not None


def handle_request(path: str) -> None:
    """Do what a request file says. Errors are written beside the trace that was asked for."""
    request: dict[str, Any] = {}
    try:
        request = _read_request(path)
        if request.get("stop"):
            _finish()
        else:
            _hook_optimizers()
            _prepare(request)
    except Exception as error:  # the program must not notice
        _report(request, error)


def _read_request(path: str) -> dict[str, Any]:
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    with open(descriptor, "rb") as file:
        state = os.fstat(descriptor)
        if state.st_uid != os.geteuid() or state.st_mode & 0o077 or not stat.S_ISREG(state.st_mode):
            raise RefusedError("the request is not this user's private file")
        request = json.loads(file.read(MAX_REQUEST_BYTES))
    os.unlink(path)
    return dict(request)


def _prepare(request: dict[str, Any]) -> None:
    torch = importlib.import_module("torch")
    if _state["job"] is not None:
        raise RefusedError("it is being recorded")
    if torch._C._autograd._profiler_enabled():
        raise RefusedError("another profiler is active in it")
    job = {"request": request, "profiler": None, "left": int(request.get("steps") or 0), "first": 0}
    _state["job"] = job
    if request.get("window_ms"):
        _start(job)


def _start(job: dict[str, Any]) -> None:
    module = importlib.import_module("torch.profiler")
    options = job["request"].get("options") or ()
    profiler = module.profile(
        record_shapes="shapes" in options,
        profile_memory="memory" in options,
        with_stack="stacks" in options,
        with_flops="flops" in options,
        with_modules="modules" in options,
    )
    profiler.start()
    job["profiler"], job["first"] = profiler, _state["count"]


def _after_step(*_: object) -> None:
    """Count a step, and begin or end the recording that was asked for."""
    _state["count"] += 1
    if _state["watch"] is not None:
        _state["watch"].note_step()
    if _state["handler"] is not None and signal.getsignal(signal.SIGUSR2) is not _state["handler"]:
        _withdraw()
    job = _state["job"]
    if job is None or job["request"].get("window_ms"):
        return
    try:
        if job["profiler"] is None:
            if _state["count"] % max(int(job["request"].get("multiple") or 1), 1) == 0:
                _start(job)
            return
        job["left"] -= 1
        if job["left"] <= 0:
            _finish()
    except Exception as error:  # the program must not notice
        _state["job"] = None
        _report(job["request"], error)


def _finish() -> None:
    job = _state["job"]
    if job is None:
        return
    try:
        if job["profiler"] is None:
            raise RefusedError("no optimizer step was seen: nothing counts iterations")
        job["profiler"].stop()
        path = str(job["request"]["path"])
        job["profiler"].export_chrome_trace(f"{path}.tmp.json")
        with open(f"{path}.step", "w") as file:
            file.write(str(job["first"]))
        os.replace(f"{path}.tmp.json", path)
    except Exception as error:
        _report(job["request"], error)
    finally:
        _state["job"] = None


def _hook_optimizers() -> None:
    """Call `_after_step` after each optimizer step, once in a process."""
    owner = importlib.import_module("torch.optim.optimizer")
    if _state["hook"] is None:
        _state["hook"] = owner.register_optimizer_step_post_hook(_after_step)


def _report(request: dict[str, Any], error: BaseException) -> None:
    with contextlib.suppress(OSError, KeyError, ValueError):
        line = str(error) if isinstance(error, (RefusedError, OSError)) else f"{type(error).__name__}: {error}"
        with open(f"{request['path']}.error", "w") as file:
            file.write(" ".join(line.split())[:500])


def _make_folder() -> str:
    folder = f"/tmp/torchprof-attach-{os.geteuid()}"  # not TMPDIR: both sides must name the same
    try:
        os.mkdir(folder, 0o700)
    except FileExistsError:
        state = os.lstat(folder)
        if state.st_uid != os.geteuid() or state.st_mode & 0o022 or not stat.S_ISDIR(state.st_mode):
            raise PermissionError(f"{folder} is not a private folder of this user") from None
    return folder


def _name_file(suffix: str) -> str:
    with open("/proc/self/stat", "rb") as file:
        start = file.read().rpartition(b")")[2].split()[19].decode()
    return f"{_make_folder()}/{os.getpid()}-{start}.{suffix}"
