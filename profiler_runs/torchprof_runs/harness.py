"""Profile a PyTorch program, unchanged: ``python …/torchprof_runs/harness.py [options] script.py args…``

The program may also be ``-m module``, a built-in workload (``matmul_add --size 64``) or ``torchrun … script.py``.
``--trial SPEC.json`` measures steps without the profiler, for `torchprof-tui try`.
Run it with the interpreter that runs the program; that interpreter needs torch, but not this package::

    /path/to/venv/bin/python /path/to/torchprof_runs/harness.py --active 5 train.py --lr 1e-4

The program sees what it would see without the harness: it is ``__main__``, ``sys.argv`` and ``sys.path[0]`` are its
own, and its exit status is the command's. Started by path, this package is never on ``sys.path``: it is loaded under a
private name, so that none of its modules can shadow a module of the program. ``python -m torchprof_runs.harness`` does
the same where the package is installed.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys

PRIVATE_NAME = "_torchprof_runs"


def _load_package() -> str:
    """Make the package importable, remove its folder from sys.path, and return the name it is imported by."""
    isolated = sys.flags.isolated or getattr(sys.flags, "safe_path", False)  # then Python added no folder
    if not isolated and sys.path:
        del sys.path[0]
    if __package__:
        return __package__
    folder = os.path.dirname(os.path.realpath(__file__))
    spec = importlib.util.spec_from_file_location(
        PRIVATE_NAME, os.path.join(folder, "__init__.py"), submodule_search_locations=[folder]
    )
    if spec is None or spec.loader is None:
        raise ImportError(f"cannot load {folder}")
    package = importlib.util.module_from_spec(spec)
    sys.modules[PRIVATE_NAME] = package
    spec.loader.exec_module(package)
    return PRIVATE_NAME


def main() -> int:
    """Run the command line in sys.argv. Returns the exit status, unless the program ends the process itself."""
    if sys.version_info < (3, 10):  # noqa: UP036 - the user's interpreter may be older than the viewer's
        version = "{}.{}".format(*sys.version_info)
        sys.stderr.write(f"torchprof: {sys.executable} is Python {version}; recording needs 3.10 or newer\n")
        return 2
    is_trial = sys.argv[1:2] == ["--trial"]
    name, argv = ("trial", sys.argv[2:]) if is_trial else ("recording_session", sys.argv[1:])
    try:
        session = importlib.import_module(f".recorder.{name}", _load_package())
    except KeyboardInterrupt:
        sys.stderr.write("torchprof: interrupted before the program began; nothing was recorded\n")
        return 130
    status: int = session.main(argv)
    return status


if __name__ == "__main__":
    sys.exit(main())
