"""Read configuration files: good ones, wrong ones, and hostile ones; environment and options win."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.helpers.command_line import call_main, read_error_line, run_program
from tests.helpers.paths import ROOT
from torchprof_samples import find
from torchprof_tui.commands.common.parsers import build_parser
from torchprof_tui.program.config_file import apply_configuration, find_config_file, load_configuration
from torchprof_tui.program.settings import MAX_BYTES, SETTINGS, read_configuration
from torchprof_tui.runs.recording_request import describe_python_search, find_default_python
from torchprof_tui.trace.storage import disk_cache
from torchprof_tui.trace.storage.disk_cache import parse_byte_size

SAMPLE = find("matmul_add_64_cold_eager").path

GOOD = """
theme = "light"
colors = 256
pictures = "blocks"
mouse = false
interpreter = "~/venv/bin/python"
jobs = 4
[cache]
folder = "/scratch/traces"
limit = "20 GB"
[keys]
"time.fit" = "z"
"panels.cheatsheet" = "c,f2"
"""


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the path of the configuration file, in a folder of the test; there is none yet."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    for name in ("NO_COLOR", "TEXTUAL_COLOR_SYSTEM", "VIRTUAL_ENV", "CONDA_PREFIX"):
        monkeypatch.delenv(name, raising=False)
    for name in ("TORCHPROF_TUI_CACHE", "TORCHPROF_TUI_CACHE_LIMIT", "TORCHPROF_TUI_PYTHON", "TORCHPROF_TUI_JOBS"):
        monkeypatch.setenv(name, "")  # registers the name, so that what the program sets is removed after the test
        monkeypatch.delenv(name)
    found = find_config_file()
    assert found is not None
    path = Path(found)
    path.parent.mkdir(parents=True)
    return path


def read_lines(config: Path, text: str) -> list[str]:
    config.write_text(text, encoding="utf-8")
    configuration = load_configuration()
    assert configuration is not None
    return [problem.line.removeprefix(f"{config}: ") for problem in configuration.problems]


def test_no_file_is_no_configuration(config: Path) -> None:
    assert load_configuration() is None


def test_every_setting_is_read(config: Path) -> None:
    assert read_lines(config, GOOD) == []
    configuration = read_configuration(config)
    assert configuration.values == {
        "theme": "light",
        "colors": "256",
        "pictures": "blocks",
        "mouse": False,
        "interpreter": os.path.expanduser("~/venv/bin/python"),
        "jobs": 4,
        "cache.folder": "/scratch/traces",
        "cache.limit": 20 * 10**9,
    }
    assert set(configuration.values) == {setting.key for setting in SETTINGS}
    assert configuration.keys == {"time.fit": "z", "panels.cheatsheet": "c,f2"}


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ('theme = "blue"', 'theme: must be "dark" or "light", not "blue"'),
        ("mouse = 1", "mouse: must be true or false, not 1"),
        ("colors = true", 'colors: must be "auto", "truecolor", "256", "16" or "none", not true'),
        ("jobs = 0", "jobs: must be a number from 1 to 1024, not 0"),
        ("interpreter = []", "interpreter: must be a path, not a list"),
        ('[cache]\nlimit = "much"', 'cache.limit: must be a size such as "500 MB" or "20 GB", not "much"'),
        ('[cache]\nfolder = "a"', 'cache.folder: must be an absolute path, or one that begins with ~, not "a"'),
        ("cache = 3", "cache: must be a table: [cache]"),
        ("colours = 256", "colours: no such setting; did you mean colors?"),
        ("keys = 1", "keys: must be a table of at most 500 keys by binding id"),
        (
            "[keys]\nfit = 3",
            'keys."fit": must be a key such as "z" or "ctrl+b", several separated by commas, for an id ',
        ),
        ('theme = "\\u001b[31m"', 'theme: must be "dark" or "light", not "·[31m"'),
        ("theme", "not TOML: "),
        ("a = " + "[" * 5000, "nested too deeply"),
        ("a." * 20_000 + "b = 1", "line 1 has more than 200 dots"),
        ("#" * MAX_BYTES + "##", "larger than 64 KiB"),
    ],
)
def test_a_wrong_value_is_one_line_with_what_is_allowed(config: Path, text: str, line: str) -> None:
    (shown,) = read_lines(config, text)
    assert shown.startswith(line)
    assert shown.isprintable()
    assert load_configuration().values == {}  # type: ignore[union-attr]


def test_a_wrong_value_leaves_the_others(config: Path) -> None:
    assert len(read_lines(config, 'theme = "blue"\nmouse = false')) == 1
    assert read_configuration(config).values == {"mouse": False}


@pytest.mark.parametrize("name", ["file", "folder"])
def test_a_file_that_others_may_change_is_not_used(config: Path, name: str) -> None:
    """It names the interpreter that `run` starts."""
    config.write_text('interpreter = "/tmp/theirs/python"', encoding="utf-8")
    path = config if name == "file" else config.parent
    path.chmod(path.stat().st_mode | 0o002)
    found = read_configuration(config)
    assert found.values == {}
    assert [problem.key for problem in found.problems] == [""]
    assert "others may write to it or its folder, so defaults are used; chmod o-w" in found.problems[0].line
    path.chmod(path.stat().st_mode & ~0o002)
    assert read_configuration(config).problems == ()


@pytest.mark.parametrize("make", ["folder", "pipe", "not UTF-8"])
def test_what_is_no_text_file_is_one_line(config: Path, make: str) -> None:
    if make == "folder":
        config.mkdir()
    elif make == "pipe":
        os.mkfifo(config)
    else:
        config.write_bytes(b"theme = '\xff'")
    (problem,) = read_configuration(config).problems
    assert problem.key == ""
    assert str(config) in problem.line


def parse(*words: str) -> argparse.Namespace:
    parser = build_parser("open")
    configuration = load_configuration()
    assert configuration is not None
    apply_configuration(configuration, parser)
    return parser.parse_args(words)


def test_the_file_gives_defaults_and_options_win(config: Path) -> None:
    config.write_text(GOOD, encoding="utf-8")
    options = parse()
    assert (options.theme, options.color, options.no_mouse) == ("light", "256", True)
    options = parse("--theme", "dark", "--color", "none", "--mouse")
    assert (options.theme, options.color, options.no_mouse) == ("dark", "none", False)
    assert str(disk_cache.cache_folder()) == "/scratch/traces"
    assert disk_cache.cache_limit() == 20 * 10**9


def test_variables_win_over_the_file(config: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    config.write_text(GOOD, encoding="utf-8")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("TORCHPROF_TUI_CACHE", str(tmp_path))
    monkeypatch.setenv("TORCHPROF_TUI_CACHE_LIMIT", "1 GB")
    assert parse().color == "auto"
    assert disk_cache.cache_folder() == tmp_path
    assert disk_cache.cache_limit() == 10**9


def test_config_prints_where_a_value_comes_from(
    config: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    config.write_text(GOOD, encoding="utf-8")
    monkeypatch.setenv("NO_COLOR", "1")
    status, out, err = call_main(capsys, "config")
    assert (status, err) == (0, "")
    rows = [line.split() for line in out.splitlines()[3:]]
    assert ["theme", "light", "file"] in rows
    assert ["colors", "none", "environment:", "NO_COLOR"] in rows
    assert ["cache.folder", "/scratch/traces", "file"] in rows
    assert ["cache.limit", "20", "GB", "file"] in rows
    assert ['keys."time.fit"', "z", "file"] in rows
    config.unlink()
    monkeypatch.delenv("TORCHPROF_TUI_CACHE")
    _, out, _ = call_main(capsys, "config")
    assert "theme" in out
    assert "config --init" in out.splitlines()[0]


def test_init_writes_a_valid_file_and_never_replaces_one(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call_main(capsys, "config", "--init")[0] == 0
    text = config.read_text(encoding="utf-8")
    assert read_lines(config, text) == []
    uncommented = "\n".join(
        line.removeprefix("# ") if " = " in line and not line.startswith("# keys by") else line
        for line in text.splitlines()
    )
    assert read_lines(config, uncommented) == []
    assert {setting.key for setting in SETTINGS} == set(read_configuration(config).values)
    before = config.read_text(encoding="utf-8")
    assert "exists already" in read_error_line(capsys, "config", "--init")
    assert config.read_text(encoding="utf-8") == before


def test_check_tells_mistakes_unknown_ids_and_conflicts(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config.write_text('theme = "x"\n[keys]\n"time.fit" = "t"\n"time.fits" = "z"\n', encoding="utf-8")
    status, out, err = call_main(capsys, "config", "--check")
    assert (status, out) == (2, "")
    theme, unknown, conflict = err.splitlines()
    assert "theme: must be" in theme
    assert 'keys."time.fits": no binding has this id' in unknown
    assert 'keys."time.fit": t is also the key of screens.table (explorer' in conflict
    config.write_text('[keys]\n"time.fit" = "t"\n"screens.table" = "f"\n', encoding="utf-8")
    assert call_main(capsys, "config", "--check")[0] == 0  # swapped: no conflict


def test_commands_continue_with_the_default(config: Path) -> None:
    config.write_text('theme = "x"\n[cache]\nlimit = "x"\n', encoding="utf-8")
    environment = {**os.environ, "TORCHPROF_TUI_CACHE": str(config.parent / "cache")}
    result = run_program("info", SAMPLE, env=environment)
    assert result.returncode == 0
    (line,) = result.stderr.splitlines()  # the theme has no use here
    assert "cache.limit" in line


def test_the_document_names_every_setting_and_variable() -> None:
    text = (ROOT / "docs" / "config.md").read_text(encoding="utf-8")
    for setting in SETTINGS:
        assert f"`{setting.key}`" in text
        for variable in setting.variables:
            assert f"`{variable}`" in text


def test_no_file_imports_nothing() -> None:
    """Every command looks for the file, so a missing one must cost no more than the look."""
    code = (
        "import sys, torchprof_tui.cli; before = set(sys.modules); "
        "assert torchprof_tui.program.config_file.load_configuration() is None; print(set(sys.modules) - before, "
        "{'msgspec', 'tomllib', 'difflib', 'traceback', 'importlib.metadata'} & set(sys.modules))"
    )
    environment = {**os.environ, "XDG_CONFIG_HOME": "/nonexistent"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == "set() set()\n"


def test_the_configured_interpreter_is_used_where_no_environment_is_active(tmp_path: Path) -> None:
    python = tmp_path / "env" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.symlink_to(sys.executable)
    configured = {"TORCHPROF_TUI_PYTHON": str(tmp_path / "env"), "PATH": ""}
    assert find_default_python(configured) == str(python)
    assert "the configured interpreter" in describe_python_search(configured)
    active = tmp_path / "active" / "bin" / "python"
    active.parent.mkdir(parents=True)
    active.symlink_to(sys.executable)
    assert find_default_python({**configured, "VIRTUAL_ENV": str(tmp_path / "active")}) == str(active)
    missing = {"TORCHPROF_TUI_PYTHON": str(tmp_path / "gone"), "PATH": ""}
    assert find_default_python(missing) != str(tmp_path / "gone")
    assert f"no {tmp_path / 'gone'}" in describe_python_search(missing)


@pytest.mark.parametrize(
    ("text", "size"), [("20 GB", 20 * 10**9), ("1.5TB", 15 * 10**11), ("500 MB", 5 * 10**8), ("7", 7)]
)
def test_sizes(text: str, size: int) -> None:
    assert parse_byte_size(text) == size


@pytest.mark.parametrize("text", ["", "GB", "1 KB", "-1 GB", "1e9", "１ GB", "1 GB\n", "1" * 30])
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(ValueError, match="is not a size"):
        parse_byte_size(text)


@given(
    st.one_of(
        st.binary(max_size=200),
        st.text(max_size=200).map(lambda text: text.encode("utf-8", "replace")),
        st.builds(
            lambda key, value: f"{key} = {value}".encode("utf-8", "replace"),
            st.sampled_from([*(setting.key for setting in SETTINGS), "keys", 'keys."time.fit"', "cache.x", "x"]),
            st.sampled_from(
                [
                    "nan",
                    "-inf",
                    "1979-05-27T07:32:00Z",
                    "[[[]]]",
                    "{a={b=1}}",
                    '"\\u0000"',
                    "9" * 500,
                    '""',
                    "0x7f",
                    "07:32:00",
                ]
            ),
        ),
    )
)
def test_no_file_can_raise(data: bytes) -> None:
    with tempfile.NamedTemporaryFile(suffix=".toml") as file:
        file.write(data)
        file.flush()
        configuration = read_configuration(file.name)
    assert all(problem.line.isprintable() for problem in configuration.problems)
    assert set(configuration.values) <= {setting.key for setting in SETTINGS}
