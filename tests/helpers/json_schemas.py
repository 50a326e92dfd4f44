"""Check JSON answers against the shipped schemas, so that a field without a description fails."""

from __future__ import annotations

import copy
from functools import cache
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import best_match

from tools.answer_schemas import find_version, read_schema


def forbid_unknown_fields(schema: Any) -> Any:
    """Return a schema whose objects have no other fields than those that it describes."""
    if isinstance(schema, list):
        return [forbid_unknown_fields(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    closed = {key: forbid_unknown_fields(each) for key, each in schema.items()}
    if isinstance(schema.get("properties"), dict) and schema.get("type") == "object":
        closed["additionalProperties"] = False
    return closed


@cache
def _create_validator(command: str, definition: str) -> Draft202012Validator:
    schema = forbid_unknown_fields(copy.deepcopy(read_schema(command)))
    if definition:
        schema.pop("anyOf", None)
        schema["$ref"] = f"#/$defs/{definition}"
    return Draft202012Validator(schema)


def find_violation(answer: Any, definition: str = "") -> str:
    """Find the first way in which an answer differs from the schema that it names, "" for none.

    `definition`: which of the command's documents it must be; any without one. Undescribed fields are a difference.
    """
    command = answer["schema"].split("/")[1]
    error = best_match(_create_validator(command, definition).iter_errors(answer))
    return "" if error is None else f"{error.json_path}: {error.message[:500]}"


def check_answer(answer: Any, command: str, definition: str = "") -> None:
    """Check that an answer is of the schema of its command, which is its first field."""
    assert next(iter(answer.items())) == ("schema", f"torchprof-tui/{command}/{find_version(command)}")
    assert find_violation(answer, definition) == ""
