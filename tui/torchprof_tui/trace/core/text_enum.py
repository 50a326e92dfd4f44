"""Define enumerations whose members are texts, in every version of Python printed as such."""

from __future__ import annotations

from enum import Enum


class TextEnum(str, Enum):
    """An enumeration of texts: `str`, `format` and JSON give the value, not the name of the member."""

    __str__ = str.__str__

    def __format__(self, format_spec: str) -> str:
        return str.__format__(self, format_spec)
