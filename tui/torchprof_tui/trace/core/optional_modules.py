"""Import packages of the program's extras, with an error that says how to install them."""

from __future__ import annotations

import importlib
from typing import Any

from torchprof_tui.trace.core.errors import TraceError


class MissingExtraError(TraceError, ImportError):
    """A package that this question needs is not installed; `str()` is one line that names the extra."""


def import_extra(module: str, extra: str) -> Any:
    """Import a package (or a module of it) that belongs to an extra. Raises MissingExtraError."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        if isinstance(error, ModuleNotFoundError) and error.name == package:
            reason = f"{package} is not installed"
        else:
            reason = f"{package} cannot be imported ({error})"
        raise MissingExtraError(f"{reason}: pip install 'torchprof-tui[{extra}]'", name=package) from error
