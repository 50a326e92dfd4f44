"""Show, check or create the configuration file: `torchprof-tui config`."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torchprof_tui.commands.common.errors import UsageError
from torchprof_tui.commands.config import ConfigOptions
from torchprof_tui.program.config_file import VARIABLES, find_config_file
from torchprof_tui.program.settings import SETTINGS, Configuration, Setting, shorten_home, write_commented_file
from torchprof_tui.trace.core.printable import clean
from torchprof_tui.trace.storage.disk_cache import cache_folder, cache_limit


def run(options: ConfigOptions) -> int:
    file = find_config_file()
    configuration: Configuration | None = options.configuration
    if options.keys:
        rows = _ask_all_bindings("list_remappable_keys", {} if configuration is None else configuration.keys)
        width, key_width = (max(len(row[column]) for row in rows) for column in (0, 1))
        for name, keys, sentence in rows:
            print(f"{name:<{width}}  {keys:<{key_width}}  {sentence}".rstrip())
        return 0
    if file is None:
        raise UsageError("no home folder, so no configuration file; XDG_CONFIG_HOME can name a folder for it")
    path = Path(file)
    if options.init:
        try:
            write_commented_file(path)
        except FileExistsError:
            raise UsageError(f"{shorten_home(path)}: exists already, and is left as it is") from None
        except OSError as error:
            raise UsageError(f"{shorten_home(path)}: {error.strerror or error}") from error
        print(shorten_home(path))
        return 0
    if options.check:
        return _check(configuration, path)
    for problem in () if configuration is None else configuration.problems:
        print(f"torchprof-tui: {problem.line}", file=sys.stderr)
    _print_settings(configuration, path)
    return 0


def _check(configuration: Configuration | None, path: Path) -> int:
    if configuration is None:
        print(f"{shorten_home(path)}: there is no such file, so every setting has its default")
        return 0
    lines = [problem.line for problem in configuration.problems]
    if configuration.keys:
        lines += [f"{shorten_home(path)}: {line}" for line in _ask_all_bindings("check_keymap", configuration.keys)]
    for line in lines:
        print(f"torchprof-tui: {line}", file=sys.stderr)
    if not lines:
        print(f"{shorten_home(path)}: no problems")
    return 2 if lines else 0


def _print_settings(configuration: Configuration | None, path: Path) -> None:
    state = "" if configuration is not None else " (not there; torchprof-tui config --init writes one)"
    print(f"{shorten_home(path)}{state}\n")
    rows = [("setting", "value", "from")]
    rows += [(setting.key, *_find_value(setting, configuration)) for setting in SETTINGS]
    keys = {} if configuration is None else configuration.keys
    rows += [(f'keys."{name}"', clean(key), "file") for name, key in keys.items()]
    widths = [max(len(row[column]) for row in rows) for column in (0, 1)]
    for name, value, origin in rows:
        print(f"{name:<{widths[0]}}  {value:<{widths[1]}}  {origin}")


def _find_value(setting: Setting, configuration: Configuration | None) -> tuple[str, str]:
    values = {} if configuration is None else configuration.values
    in_file = setting.key in values
    origin = "file" if in_file else "default"
    for variable in setting.variables:
        # The file's own values were put into some of these variables when the program started.
        is_from_file = in_file and os.environ.get(variable) == str(values[setting.key])
        if os.environ.get(variable) and not (variable in VARIABLES.values() and is_from_file):
            origin = f"environment: {variable}"
            break
    return _format_value(setting, origin, values.get(setting.key)), origin


def _format_value(setting: Setting, origin: str, value: object) -> str:
    if setting.key == "cache.folder":
        return shorten_home(cache_folder())
    if setting.key == "cache.limit":
        return f"{cache_limit() / 1e9:.3g} GB"
    if origin == "default":
        return "where it is found" if setting.key == "interpreter" else setting.default
    if origin == "file":
        return str(value).lower() if isinstance(value, bool) else clean(str(value))
    variable = origin.partition(": ")[2]
    return "none" if variable == "NO_COLOR" else clean(os.environ[variable][:200])


def _ask_all_bindings(function: str, keys: Mapping[str, str]) -> Any:
    """Call a function of the catalog of keys, imported by name: other answers need neither the app nor its screens."""
    app = importlib.import_module("torchprof_tui.app").TorchprofApp
    return getattr(importlib.import_module("torchprof_tui.ui.all_bindings"), function)(app, keys)
