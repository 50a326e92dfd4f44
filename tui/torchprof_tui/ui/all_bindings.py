"""All bindings of the program with their ids: found by importing every screen, so only for `config` and for checks."""

from __future__ import annotations

import contextlib
import importlib
import inspect
import pkgutil
from collections.abc import Iterator, Mapping
from types import ModuleType

from textual.app import App
from textual.binding import Binding
from textual.dom import DOMNode
from textual.screen import Screen

from torchprof_tui import ui
from torchprof_tui.trace.core.extensions import list_commands
from torchprof_tui.ui.common.bindings import (
    find_keymap_problems,
    find_remappable_ids,
    format_key_name,
    list_bindings,
    normalize_keys,
)


def find_bindings() -> dict[str, list[Binding]]:
    """Return the bindings of every screen and widget that has some of its own, by the name of its class."""
    found: dict[str, list[Binding]] = {}
    for module in _import_modules():
        for name, owner in inspect.getmembers(module, inspect.isclass):
            if owner.__module__ != module.__name__ or "BINDINGS" not in vars(owner) or not issubclass(owner, DOMNode):
                continue
            if not issubclass(owner, App):
                title = name.removesuffix("Screen").lower() if issubclass(owner, Screen) else name
                found[title] = list_bindings(owner)
    return found


def _import_modules() -> Iterator[ModuleType]:
    """Import the modules of all screens, of the program and of extensions; without those that cannot be imported."""
    yield from _import_package(ui)
    for command in list_commands()[0].values():
        if command.screens:
            with contextlib.suppress(ImportError):
                yield from _import_package(importlib.import_module(command.screens))


def _import_package(package: ModuleType) -> Iterator[ModuleType]:
    for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        yield importlib.import_module(module.name)


def check_keymap(app: type[App[None]], keymap: Mapping[str, str]) -> list[str]:
    """Return what is wrong with remapped keys, one line each."""
    return find_keymap_problems(keymap, find_bindings(), list_bindings(app))


def list_remappable_keys(app: type[App[None]], keymap: Mapping[str, str]) -> list[tuple[str, str, str]]:
    """Return (id, its keys now, what it does) of every binding that can be remapped, by id."""
    keys: dict[str, dict[str, None]] = {}
    sentences: dict[str, str] = {}
    owners = [*find_bindings().values(), list_bindings(app)]
    known = find_remappable_ids(owners)
    for bindings in owners:
        for binding in bindings:
            if binding.id in known:
                names = normalize_keys(keymap[binding.id]) if binding.id in keymap else [binding.key]
                keys.setdefault(binding.id, {}).update(dict.fromkeys(map(format_key_name, names)))
                sentences.setdefault(binding.id, binding.tooltip or binding.description)
    return [(name, " ".join(keys[name]), sentences[name]) for name in sorted(keys)]
