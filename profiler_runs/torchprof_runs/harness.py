"""Profile a PyTorch program, unchanged: ``python …/profiler_runs/harness.py [options] script.py args…``

The program may also be ``-m module``, a built-in workload (``matmul_add --size 64``) or ``torchrun … script.py``.
Run it with the interpreter that runs the program; that interpreter needs torch and nothing of ours installed::

    /path/to/venv/bin/python /path/to/profiler_runs/harness.py --active 5 train.py --lr 1e-4

The program sees what it would see without us: it is ``__main__``, ``sys.argv`` and ``sys.path[0]`` are its own, and
its exit status is the command's. Started by path, this package is never on ``sys.path``: it is loaded under a
private name, so no module of the program's can be shadowed by one of ours. ``python -m torchprof_runs.harness`` does
the same where the package is installed.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys

PRIVATE_NAME = "_torchprof_runs"


def _load_package() -> str:
    """Make the package's modules importable, take what Python put on sys.path for us off it, and return its name."""
    isolated = sys.flags.isolated or getattr(sys.flags, "safe_path", False)  # then Python put nothing there
    if not isolated and sys.path:
        del sys.path[0]
    if __package__:
        return __package__
    here = os.path.dirname(os.path.realpath(__file__))
    spec = importlib.util.spec_from_file_location(
        PRIVATE_NAME, os.path.join(here, "__init__.py"), submodule_search_locations=[here]
    )
    if spec is None or spec.loader is None:
        raise ImportError(f"cannot load {here}")
    package = importlib.util.module_from_spec(spec)
    sys.modules[PRIVATE_NAME] = package
    spec.loader.exec_module(package)
    return PRIVATE_NAME


def main() -> int:
    """Run the command line in sys.argv; returns an exit status where the program does not end the process itself."""
    if sys.version_info < (3, 10):  # noqa: UP036 - the user's interpreter may be older than ours
        version = "{}.{}".format(*sys.version_info)
        sys.stderr.write(f"torchprof: {sys.executable} is Python {version}; recording needs 3.10 or newer\n")
        return 2
    session = importlib.import_module(".recorder.recording_session", _load_package())
    status: int = session.main(sys.argv[1:])
    return status


if __name__ == "__main__":
    sys.exit(main())
