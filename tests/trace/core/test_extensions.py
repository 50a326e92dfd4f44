"""Extensions of other packages: the one that docs/architecture.md shows, and broken ones."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.command_line import call_main, read_error_line, read_json_answer, run_program
from tests.helpers.long_run import keep_some
from tests.helpers.paths import ROOT, SAMPLES

SAMPLE = SAMPLES / "matmul_add_64_cold_eager.pt.trace.json.gz"
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8").split("## Write an extension")[1]
CODE, ENTRY_POINTS = re.findall(r"```(?:python|toml)\n(.*?)```", PAGE, re.DOTALL)[:2]
LONGEST = "nvjet_sm90_tst_64x8_64x16_1x4_h_bz_NNT\n"
TABLE = "name,start_us,duration_us\nsmall_kernel,10,5\nlarge_kernel,20,12.5\n"


def install(folder: Path, name: str, code: str, entry_points: str) -> None:
    """Install a package as pip would, in a folder of `sys.path`."""
    metadata = folder / f"{name}-1.0.dist-info"
    metadata.mkdir()
    declared = re.sub(r'\[project\.entry-points\."(.*)"\]', r"[\1]", entry_points).replace('"', "")
    (metadata / "entry_points.txt").write_text(declared, encoding="utf-8")
    (folder / f"{name}.py").write_text(code, encoding="utf-8")


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder at the end of `sys.path`, of this process and of those that it starts."""
    folder = tmp_path / "packages"
    folder.mkdir()
    monkeypatch.delitem(sys.modules, "torchprof_ktimes", raising=False)
    monkeypatch.syspath_prepend(folder)
    monkeypatch.setenv("PYTHONPATH", str(folder))
    monkeypatch.setenv("TORCHPROF_TUI_CACHE", str(tmp_path / "cache"))
    return folder


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "gpu.ktimes"
    path.write_text(TABLE, encoding="utf-8")
    return path


def test_the_command_of_the_page_is_listed_and_runs(packages: Path, capsys: pytest.CaptureFixture[str]) -> None:
    install(packages, "torchprof_ktimes", CODE, ENTRY_POINTS)
    assert call_main(capsys, "longest", SAMPLE) == (0, LONGEST, "")
    with pytest.raises(SystemExit):
        call_main(capsys, "--help")
    assert "  longest       print the longest kernel of a trace" in capsys.readouterr().out
    status, script, _ = call_main(capsys, "completion", "bash")
    assert status == 0
    assert "longest) candidates=" in script
    assert "--unpack-all" in script.partition("longest) candidates=")[2].partition(";;")[0]


def test_the_source_of_the_page_opens_a_file_in_any_command(
    packages: Path, table: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    install(packages, "torchprof_ktimes", CODE, ENTRY_POINTS)
    info = read_json_answer(capsys, "info", table, "--json")
    assert (info["format"], info["events"]) == ("ktimes", 2)
    assert "table of kernel times" in call_main(capsys, "info", table)[1]  # from the cache
    assert call_main(capsys, "longest", table.parent)[1] == "large_kernel\n"  # listed by its suffix


def run_broken(packages: Path, code: str) -> subprocess.CompletedProcess[str]:
    install(packages, "torchprof_ktimes", code, ENTRY_POINTS)
    return run_program("longest", SAMPLE)


@pytest.mark.parametrize(
    ("code", "reason"),
    keep_some(
        [
            ("import no_such_module", "ModuleNotFoundError: No module named 'no_such_module'"),
            ("syntax error", "SyntaxError: "),
            ("raise SystemExit('bye\\x1b[2J')", "SystemExit: bye"),
            ("SOURCE = COMMAND = 5", "torchprof_ktimes:COMMAND is no CommandExtension"),
            ("SOURCE = 5", "AttributeError: module 'torchprof_ktimes' has no attribute 'COMMAND'"),
            (CODE.replace(":print_longest", ":no_function"), "has no attribute 'no_function'"),
            (CODE.replace('"torchprof_ktimes:print_longest"', '"print_longest"'), "'print_longest' is not module:name"),
            (
                CODE.replace("is_positional=True", 'short="-h"'),
                "cannot be used: argument -h/--trace: conflicting option",
            ),
            (
                CODE.replace("Options(TraceOptions)", "Options"),
                "torchprof_ktimes:LongestOptions is no subclass of Options",
            ),
            (CODE.replace("trace: str", "trace: NoType"), "cannot be used: NameError: name 'NoType' is not defined"),
            (
                CODE.replace("def print_longest", "    def __post_init__(self):\n        1 / 0\n\n\ndef print_longest"),
                "failed: ZeroDivisionError",
            ),
            (CODE.replace("import torchprof_tui  #", "1 / 0  #"), "failed: ZeroDivisionError: "),
        ],
        3,
    ),
)
def test_a_broken_command_is_one_line(packages: Path, code: str, reason: str) -> None:
    done = run_broken(packages, code)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert done.stderr.startswith("torchprof-tui: command longest of torchprof_ktimes 1.0 ")
    assert reason in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stderr[:-1].isprintable()


def test_a_broken_extension_does_not_break_the_program(
    packages: Path, table: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    install(packages, "torchprof_ktimes", "import no_such_module", ENTRY_POINTS)
    assert call_main(capsys, "info", SAMPLE)[::2] == (0, "")
    with pytest.raises(SystemExit):
        call_main(capsys, "--help")
    out, err = capsys.readouterr()
    assert "  fleet " in out
    assert "  longest " not in out
    assert err.count("\n") == 1
    assert err.startswith("torchprof-tui: command longest of torchprof_ktimes 1.0 cannot be used: ModuleNotFoundError")
    refused = read_error_line(capsys, "info", table)
    assert "gpu.ktimes: not a trace" in refused
    assert "source ktimes of torchprof_ktimes 1.0 cannot be used: ModuleNotFoundError" in refused


def test_a_source_that_fails_is_one_line(packages: Path, table: Path, capsys: pytest.CaptureFixture[str]) -> None:
    install(packages, "torchprof_ktimes", CODE.replace('row["name"]', 'row["nothing"]'), ENTRY_POINTS)
    assert "source ktimes of torchprof_ktimes 1.0 failed: KeyError: 'nothing'" in read_error_line(capsys, "info", table)


def test_a_command_of_the_program_is_not_replaced(packages: Path, capsys: pytest.CaptureFixture[str]) -> None:
    entry_points = "[torchprof_tui.commands]\ninfo = torchprof_ktimes:COMMAND\nLONG est = torchprof_ktimes:COMMAND\n"
    install(packages, "torchprof_ktimes", CODE, entry_points)
    status, out, err = call_main(capsys, "info", SAMPLE, "--json")
    assert (status, err, json.loads(out)["format"]) == (0, "", "kineto")
    with pytest.raises(SystemExit):
        call_main(capsys, "--help")
    assert "longest kernel" not in capsys.readouterr().out
