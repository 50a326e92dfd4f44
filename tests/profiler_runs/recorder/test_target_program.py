"""The program runs unchanged, as Python itself would run it: a script, a module, a folder, an archive."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

from tests.profiler_runs.conftest import Start


def test_the_program_is_run_unchanged(start: Start) -> None:
    script = """
import json, os, pickle, sys
import options, schedule  # the program's own; the recorder has modules of these names
class Thing: pass
pickle.loads(pickle.dumps(Thing()))
print(json.dumps([sys.argv, sys.path[0], __name__, __file__, __spec__, __package__, options.value, schedule.value,
    sorted({"TORCHPROF_STATUS", "TORCHPROF_RUN_FOLDER", "KINETO_LOG_LEVEL"} & {*os.environ}),
    sys.modules["__main__"].Thing.__module__,
    [path for path in sys.path if "torchprof_runs" in path], "annotations" in globals(), 1 / 2]))
def f(x: undefined_name_is_an_error): pass
f.__annotations__  # where Python 3.14 evaluates them
"""
    (folder := Path(start("", name="empty.py").folder.parent) / "program").mkdir()
    (folder / "options.py").write_text("value = 1\n")
    (folder / "schedule.py").write_text("value = 2\n")
    (folder / "main.py").write_text(script)
    run = start([str(folder / "main.py"), "-x", "--active", "2"])
    assert run.wait() == 1
    main = str(folder / "main.py")
    assert json.loads(run.out.splitlines()[0]) == [
        [main, "-x", "--active", "2"], str(folder), "__main__", main, None, None, 1, 2, [], "__main__", [], False, 0.5,
    ]  # fmt: skip
    # The traceback contains no frames of the recorder.
    assert "NameError: name 'undefined_name_is_an_error'" in run.err
    assert "torchprof_runs" not in run.err.replace(str(run.folder), "").split("NameError")[0].split("Traceback")[1]


def test_modules_folders_and_archives(start: Start) -> None:
    empty = start("", name="empty.py")
    base = empty.folder
    empty.wait()
    package = base / "package"
    package.mkdir()
    (package / "__init__.py").touch()
    body = (
        "import sys, torch\ntorch.ones(1).exp()\nprint(sys.argv, sys.path[0], __name__, __package__, bool(__spec__))\n"
    )
    (package / "__main__.py").write_text(body)
    (package / "inner.py").write_text("from . import __name__ as parent\n" + body)
    with zipfile.ZipFile(base / "app.pyz", "w") as archive:
        archive.writestr("__main__.py", body)
    bare = base / "bare"
    bare.mkdir()
    for command, says in (
        (["-m", "package", "-a"], f"['{package}/__main__.py', '-a'] {base} __main__ package True"),
        (["-m", "package.inner"], f"['{package}/inner.py'] {base} __main__ package True"),
        ([str(package)], f"['{package}'] {package} __main__  False"),
        ([str(base / "app.pyz")], f"['{base}/app.pyz'] {base}/app.pyz __main__  False"),
    ):
        run = start(command, cwd=base)
        assert run.wait() == 0, run.err
        assert run.out.strip() == says, command
        assert "aten::exp" in run.names()
    for command, says in (
        ([str(bare)], "folder without a __main__.py"),
        (["-m", "no_such_module_at_all"], "no module no_such_module_at_all"),
        (["nothing.py"], "no file nothing.py"),
    ):
        run = start(command)
        assert run.wait() == 2
        assert run.err.startswith("torchprof: ")
        assert says in run.err
        assert len(run.err.splitlines()) == 1


def test_a_script_that_is_no_python(start: Start) -> None:
    broken = start("def f(:\n")
    assert broken.wait() == 2
    assert "is not Python: invalid syntax" in broken.err
    assert len(broken.err.splitlines()) == 1
