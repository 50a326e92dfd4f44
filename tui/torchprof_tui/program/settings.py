"""The settings of the configuration file: their types, defaults and reading. The only place that reads TOML.

A value of the wrong type is one line that names the file, the key and what is allowed; the default is used instead.
"""

from __future__ import annotations

import difflib
import importlib
import os
import stat
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from torchprof_tui.program.config_file import VARIABLES
from torchprof_tui.trace.core.errors import UnreadableFileError
from torchprof_tui.trace.core.printable import clean
from torchprof_tui.trace.core.process_state import MAX_JOBS
from torchprof_tui.trace.core.records import record
from torchprof_tui.trace.core.typed_json import Path as PathText
from torchprof_tui.trace.core.typed_json import read_small_file
from torchprof_tui.trace.storage.disk_cache import parse_byte_size

MAX_BYTES = 64 << 10
MAX_DOTS = 200  # dots in one line: the parser takes time in proportion to the square of a dotted key's parts
MAX_KEYS = 500  # remapped keys, at most: there are some 200 bindings

ByteSize = Annotated[str, Meta(max_length=20, pattern=r"^[0-9]{1,9}(\.[0-9]{1,3})? ?(MB|GB|TB)\Z")]
KeyNames = Annotated[str, Meta(min_length=1, max_length=100, pattern=r"^\S+\Z")]
BindingId = Annotated[str, Meta(max_length=60, pattern=r"^[a-z0-9]+(-[a-z0-9]+)*\.[a-z0-9]+(-[a-z0-9]+)*\Z")]


@record
class Setting:
    """One setting: its dotted key, msgspec type, default as shown, what is allowed, and a sentence for `--init`."""

    key: str
    kind: Any
    default: str
    allowed: str
    help: str
    example: str
    variables: tuple[str, ...] = ()
    """Environment variables that win over the file, the strongest first."""


SETTINGS = (
    Setting("theme", Literal["dark", "light"], "dark", '"dark" or "light"', "colours of the screen", '"light"'),
    Setting(
        "colors",
        Literal["auto", "truecolor", "256", "16", "none"],
        "auto",
        '"auto", "truecolor", "256", "16" or "none"',
        "colours that the terminal can show; auto asks the terminal",
        '"256"',
        ("NO_COLOR", "TEXTUAL_COLOR_SYSTEM"),
    ),
    Setting(
        "pictures",
        Literal["auto", "kitty", "blocks"],
        "auto",
        '"auto", "kitty" or "blocks"',
        "pictures where the terminal says that it draws them; blocks: characters everywhere",
        '"blocks"',
        (VARIABLES["pictures"],),
    ),
    Setting("mouse", bool, "true", "true or false", "false leaves the mouse to the terminal, to select text", "false"),
    Setting(
        "interpreter",
        PathText,
        "found",
        "a path",
        "Python with torch for `torchprof-tui run`, where no environment is active",
        '"~/venv/bin/python"',
        ("VIRTUAL_ENV", "CONDA_PREFIX", VARIABLES["interpreter"]),
    ),
    Setting(
        "jobs",
        Annotated[int, Meta(ge=1, le=MAX_JOBS)],
        "all cores",
        f"a number from 1 to {MAX_JOBS}",
        "processes and threads that read a trace, at most",
        "4",
        (VARIABLES["jobs"],),
    ),
    Setting(
        "cache.folder",
        PathText,
        "~/.cache/torchprof-tui",
        "an absolute path, or one that begins with ~",
        "where decoded traces are kept",
        '"/scratch/torchprof-tui"',
        (VARIABLES["cache.folder"],),
    ),
    Setting(
        "cache.limit",
        ByteSize,
        "4.3 GB",
        'a size such as "500 MB" or "20 GB"',
        "decoded traces on disk at most; the oldest are removed first",
        '"20 GB"',
        (VARIABLES["cache.limit"],),
    ),
)

KEYS_HELP = 'keys by the id of their binding (torchprof-tui config --keys lists the ids), such as "time.fit" = "z"'


@record
class Problem:
    """What is wrong with one key of the file, as one line; `key` is "" where the whole file cannot be read."""

    key: str
    line: str


@record
class Configuration:
    """The file's valid values by dotted key, its remapped keys by binding id, and what is wrong with the rest."""

    path: Path
    values: Mapping[str, Any]
    keys: Mapping[str, str]
    problems: tuple[Problem, ...]


def read_configuration(file: str | os.PathLike[str]) -> Configuration:
    """Read the file. Never raises: what is wrong is in `problems`."""
    path = Path(file)
    shown = shorten_home(path)
    if _may_others_write(path):
        line = f"{shown}: others may write to it or its folder, so defaults are used; chmod o-w both to use it"
        return Configuration(path, {}, {}, (Problem("", line),))
    try:
        document = parse_toml(read_small_file(path, MAX_BYTES))
    except OSError as error:
        return Configuration(path, {}, {}, (Problem("", f"{shown}: {error.strerror or error}"),))
    except UnreadableFileError as error:
        reason = str(error).removeprefix(f"{path.name}: ")
        return Configuration(path, {}, {}, (Problem("", f"{shown}: {reason}; defaults are used"),))
    values: dict[str, Any] = {}
    problems = [Problem(key, f"{shown}: {line}") for key, line in _find_unknown_keys(document)]
    for setting in SETTINGS:
        section, _, name = setting.key.rpartition(".")
        table = document.get(section) if section else document
        value = table.get(name) if isinstance(table, dict) else None
        if value is None:
            continue
        try:
            values[setting.key] = _convert(setting, value)
        except (msgspec.ValidationError, ValueError, OverflowError):
            line = f"{shown}: {setting.key}: must be {setting.allowed}, not {_show_value(value)}"
            problems.append(Problem(setting.key, line))
    keys, key_problems = _read_keys(document.get("keys"), shown)
    return Configuration(path, values, keys, (*problems, *key_problems))


def _may_others_write(path: Path) -> bool:
    """Return whether any user may change the file, or replace it: it names the interpreter that `run` starts."""
    try:
        folder = path.parent.stat().st_mode
        return bool(path.stat().st_mode & stat.S_IWOTH or (folder & stat.S_IWOTH and not folder & stat.S_ISVTX))
    except OSError:
        return False  # reading it says why


def shorten_home(path: Path) -> str:
    """Return the path for messages, escaped, with ~ for the home folder."""
    home = os.path.expanduser("~")
    text = str(path)
    return clean(f"~{text[len(home) :]}" if len(home) > 1 and text.startswith(f"{home}/") else text)


def write_commented_file(path: Path) -> None:
    """Write a file in which every setting is commented out. Raises FileExistsError where one exists, OSError."""
    lines = ["# Settings of torchprof-tui. `torchprof-tui config` shows what is in force and where it comes from.", ""]
    table = ""
    for setting in SETTINGS:
        section, _, name = setting.key.rpartition(".")
        if section != table:
            lines += [f"[{section}]"]
            table = section
        lines += [f"# {setting.help}: {setting.allowed}", f"# {name} = {setting.example}", ""]
    lines += ["[keys]", f"# {KEYS_HELP}", '# "time.fit" = "z"', '# "panels.cheatsheet" = "c,f2"', ""]
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "x", encoding="utf-8") as file:
        file.write("\n".join(lines))


def parse_toml(data: bytes) -> dict[str, Any]:
    """Parse a small TOML file. Raises UnreadableFileError, one line without the name of the file."""
    # Python 3.10 has no tomllib; tomli is the same parser.
    parser = importlib.import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
    for number, line in enumerate(data.splitlines(), 1):
        if line.count(b".") > MAX_DOTS and not line.lstrip().startswith(b"#"):
            raise UnreadableFileError(f"line {number} has more than {MAX_DOTS} dots")
    try:
        document: dict[str, Any] = parser.loads(data.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise UnreadableFileError("not UTF-8 text") from error
    except RecursionError as error:
        raise UnreadableFileError("nested too deeply") from error
    except ValueError as error:
        raise UnreadableFileError(f"not TOML: {clean(' '.join(str(error).split())[:200])}") from error
    return document


def _convert(setting: Setting, value: object) -> object:
    if setting.key == "colors" and type(value) is int:
        value = str(value)  # 256 is as clear as "256"
    converted = msgspec.convert(value, type=setting.kind)
    if setting.key == "cache.limit":
        return parse_byte_size(str(converted))
    if setting.kind is PathText:
        path = os.path.expanduser(str(converted))
        if setting.key == "cache.folder" and not os.path.isabs(path):
            raise ValueError("not an absolute path")
        return path
    return converted


def _find_unknown_keys(document: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    known = [setting.key for setting in SETTINGS]
    sections = {key.rpartition(".")[0] for key in known} - {""}
    for name, value in document.items():
        if name == "keys":
            continue
        if name in sections and not isinstance(value, dict):
            yield name, f"{name}: must be a table: [{name}]"
            continue
        nested = [f"{name}.{inner}" for inner in value] if name in sections else [name]
        for key in nested:
            if key not in known:
                close = difflib.get_close_matches(key, [*known, "keys"], n=1)
                hint = f"did you mean {close[0]}?" if close else f"known are {', '.join(known)} and the table keys"
                yield key, f"{clean(key[:60])}: no such setting; {hint}"


def _read_keys(table: object, shown: str) -> tuple[dict[str, str], list[Problem]]:
    if table is None:
        return {}, []
    if not isinstance(table, dict) or len(table) > MAX_KEYS:
        return {}, [Problem("keys", f"{shown}: keys: must be a table of at most {MAX_KEYS} keys by binding id")]
    keys: dict[str, str] = {}
    problems = []
    for name, value in table.items():
        key = f'keys."{clean(str(name)[:60])}"'
        try:
            keys[msgspec.convert(name, type=BindingId)] = msgspec.convert(value, type=KeyNames)
        except msgspec.ValidationError:
            allowed = 'a key such as "z" or "ctrl+b", several separated by commas, for an id such as "time.fit"'
            problems.append(Problem(key, f"{shown}: {key}: must be {allowed}, not {_show_value(value)}"))
    return keys, problems


def _show_value(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict | list):
        return "a table" if isinstance(value, dict) else "a list"
    return clean(f'"{value[:60]}"' if isinstance(value, str) else str(value)[:60])
