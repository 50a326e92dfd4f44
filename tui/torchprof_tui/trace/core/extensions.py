"""Find the sources and commands that installed packages add to the program, declared as entry points.

A package declares them as it does scripts, fleet and Nsight in this project's own pyproject.toml:

    [project.entry-points."torchprof_tui.commands"]
    fleet = "torchprof_fleet.extension:COMMAND"

A command is imported where it is named, a source where a file is neither JSON nor a Perfetto trace; of one name the
first on `sys.path` counts, and commands of the program itself before all. Standard library only, because a folder is
listed before the first frame; so the files that declare entry points are read here, in 3 ms, where `importlib.metadata`
takes 28 ms.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import field, replace
from functools import lru_cache
from typing import Any, ClassVar, TypeVar

from torchprof_tui.trace.core.errors import ExtensionError, TraceError, is_expected
from torchprof_tui.trace.core.records import record

COMMANDS_GROUP = "torchprof_tui.commands"
SOURCES_GROUP = "torchprof_tui.sources"

OWN_PACKAGE = "torchprof_tui"  # the distribution of the program, whose bugs are its own

_MAX_REASON = 200

Extension = TypeVar("Extension", "CommandExtension", "SourceExtension")


@record
class CommandExtension:
    """A command. Texts `module:name` name what is imported where it is needed.

    `help`: one line. `options`: a subclass of `commands.common.options.Options`, of `TraceOptions` if it reads traces;
    `run`: a function that takes one of these, and returns the exit status.
    `answers`: a tuple of the records that its `--json` prints (`answers.record.Answer`). `tools`: a mapping of names to
    MCP tools (`commands.mcp.answers.ToolEntry`). `screens`: the package of its screens, whose keys can be remapped.
    `findings`: ids of those of `check` that it acts on, where the run of the trace can be repeated; `open_finding`: a
    function that takes the path of such a trace and one of these ids ("" for all), and returns a screen.
    """

    help: str
    options: str
    run: str
    answers: str = ""
    tools: str = ""
    screens: str = ""
    findings: tuple[str, ...] = ()
    open_finding: str = ""
    name: str = ""
    package: str = ""
    kind: ClassVar[str] = "command"


@record
class SourceExtension:
    """A kind of files that is no JSON and no Perfetto trace.

    `label`: what such a file is. `suffixes`: of its names, so that folders list them. `recognizes`: tells by the
    first bytes of its text, some hundred at least. `open`: `module:name` of a function that takes a `Source` of such a
    file and returns a `Source` of a Kineto trace's text. `problems`: (meaning, action) of the kinds of problems that
    only this source reports.
    """

    label: str
    suffixes: tuple[str, ...]
    recognizes: Callable[[bytes], bool]
    open: str
    problems: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    name: str = ""
    package: str = ""
    kind: ClassVar[str] = "source"


@record
class _EntryPoint:
    """`target`: `module:name`. `package`: its distribution and version, as its folder is named."""

    name: str
    target: str
    package: str


def list_command_names() -> list[str]:
    """List the names of all declared commands, without importing them."""
    return list(_find_entry_points(COMMANDS_GROUP))


def find_command(name: str) -> CommandExtension | None:
    """Find a command by name; None where no package declares it. Raises ExtensionError where it cannot be used."""
    entry = _find_entry_points(COMMANDS_GROUP).get(name)
    return None if entry is None else _load_extension(entry, CommandExtension)


def list_commands() -> tuple[dict[str, CommandExtension], list[str]]:
    """Import the declarations of all commands; also returns a line for each that cannot be used."""
    return _load_all(COMMANDS_GROUP, CommandExtension)


def list_sources() -> tuple[dict[str, SourceExtension], list[str]]:
    """Import the declarations of all sources; also returns a line for each that cannot be used."""
    return _load_all(SOURCES_GROUP, SourceExtension)


def find_source(head: bytes) -> SourceExtension | None:
    """Find the source that recognises a file by its beginning; None for none."""
    for source in list_sources()[0].values():
        with contextlib.suppress(Exception):  # another source may know it
            if source.recognizes(head):
                return source
    return None


def find_source_named(name: str) -> SourceExtension | None:
    """Find the source that made a trace by the trace's format; None where it is not installed, or was none."""
    return None if name in ("kineto", "chrome") else list_sources()[0].get(name)


def import_target(extension: CommandExtension | SourceExtension, target: str) -> Any:
    """Import what `module:name` names for an extension. Raises ExtensionError."""
    return _import(_EntryPoint(extension.name, target, extension.package), extension.kind)


def guard_function(
    extension: CommandExtension | SourceExtension, target: str | Callable[..., Any], *allowed: type[Exception]
) -> Callable[..., Any]:
    """Guard a function of an extension, or one named `module:name`, which is imported. Of another package than the
    program's own, what it raises is ExtensionError, but for errors about the input and those that are `allowed`.
    """
    function: Callable[..., Any] = import_target(extension, target) if isinstance(target, str) else target
    if extension.package.partition(" ")[0] == OWN_PACKAGE:
        return function

    def call(*arguments: Any) -> Any:
        try:
            return function(*arguments)
        except allowed:
            raise
        except Exception as error:
            if is_expected(error):
                raise
            raise ExtensionError(
                f"{extension.kind} {extension.name} of {extension.package} failed: {_format_reason(error)}"
            ) from error

    return call


def _load_all(group: str, expected: type[Extension]) -> tuple[dict[str, Extension], list[str]]:
    loaded: dict[str, Extension] = {}
    unusable = []
    for name, entry in _find_entry_points(group).items():
        try:
            loaded[name] = _load_extension(entry, expected)
        except ExtensionError as error:
            unusable.append(str(error))
    return loaded, unusable


def _load_extension(entry: _EntryPoint, expected: type[Extension]) -> Extension:
    found = _import(entry, expected.kind)
    if not isinstance(found, expected):
        raise _refuse(entry, expected.kind, f"{entry.target} is no {expected.__name__}")
    return replace(found, name=entry.name, package=entry.package)


def _import(entry: _EntryPoint, kind: str) -> Any:
    module, colon, name = entry.target.partition(":")
    if not (module and colon and name):
        raise _refuse(entry, kind, f"{entry.target!r} is not module:name")
    try:
        return getattr(importlib.import_module(module), name)
    except (Exception, SystemExit) as error:
        raise _refuse(entry, kind, _format_reason(error)) from error


def _refuse(entry: _EntryPoint, kind: str, reason: str) -> ExtensionError:
    return ExtensionError(f"{kind} {entry.name} of {entry.package} cannot be used: {reason}")


def _format_reason(error: BaseException) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:_MAX_REASON]}"


def _find_entry_points(group: str) -> dict[str, _EntryPoint]:
    return _read_groups(tuple(sys.path)).get(group, {})


@lru_cache(maxsize=4)
def _read_groups(folders: tuple[str, ...]) -> dict[str, dict[str, _EntryPoint]]:
    """Read the entry points of the program's groups that the distributions in some folders declare."""
    groups: dict[str, dict[str, _EntryPoint]] = {COMMANDS_GROUP: {}, SOURCES_GROUP: {}}
    for folder in folders:
        try:
            names = sorted(name for name in os.listdir(folder or ".") if name.endswith((".dist-info", ".egg-info")))
        except OSError:  # also a zip archive, which no installer leaves on the path
            continue
        for name in names:
            try:
                with open(os.path.join(folder, name, "entry_points.txt"), encoding="utf-8", errors="replace") as file:
                    text = file.read()
            except OSError:
                continue
            if "[torchprof_tui." in text:
                _add_entry_points(groups, text, name.rpartition(".")[0].replace("-", " "))
    return groups


def _add_entry_points(groups: dict[str, dict[str, _EntryPoint]], text: str, package: str) -> None:
    group: dict[str, _EntryPoint] = {}
    for line in map(str.strip, text.splitlines()):
        if line.startswith("["):
            group = groups.get(line.strip("[]"), {})
        name, equals, target = (part.strip() for part in line.partition("="))
        if equals and is_command_name(name):
            group.setdefault(name, _EntryPoint(name, target.partition("[")[0].strip(), package))


def is_command_name(word: str) -> bool:
    """Tell whether a word can name an extension: lower-case letters, digits and `-`."""
    plain = word.replace("-", "")
    return word[:1].isalpha() and plain.isascii() and plain.isalnum() and word == word.lower()


class MissingExtraError(TraceError, ImportError):
    """A package that this question needs is not installed; `str()` is one line that says what to install."""


SYSTEM_MODULES = ("fcntl", "termios")
"""Modules of Python on Linux and macOS without which neither the cache nor the app works."""


def explain_unsupported_system() -> str:
    """Explain in one line that this system is not supported; "" where it is."""
    missing = [name for name in SYSTEM_MODULES if importlib.util.find_spec(name) is None]
    return f"needs Linux or macOS (no {missing[0]} here); on Windows run it inside WSL" if missing else ""


def import_extra(module: str, extra: str = "") -> Any:
    """Import a package (or a module of it) of an extra, or one that no extra has. Raises MissingExtraError."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        if isinstance(error, ModuleNotFoundError) and error.name == package:
            reason = f"{package} is not installed"
        else:
            reason = f"{package} cannot be imported ({error})"
        wanted = f"'torchprof-tui[{extra}]'" if extra else package
        raise MissingExtraError(f"{reason}: pip install {wanted}") from error
