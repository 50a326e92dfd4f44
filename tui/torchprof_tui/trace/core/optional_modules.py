"""Import packages of the program's extras, with an error that says how to install them."""

from __future__ import annotations

import importlib
import importlib.util
from typing import Any

from torchprof_tui.trace.core.errors import TraceError


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
