"""Import packages of the program's extras, with an error that says how to install them."""

from __future__ import annotations

import importlib
from typing import Any

from torchprof_tui.trace.core.errors import TraceError


class MissingExtraError(TraceError, ImportError):
    """A package that this question needs is not installed; `str()` is one line that says what to install."""


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
