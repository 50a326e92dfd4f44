"""Find environment variables and secrets in the top-level metadata of a file, and remove them from a copy.

Programs add metadata to their traces, some of them the whole environment of the process, in which tokens and passwords
are common. Only keys and numbers of variables are reported, never a value. Names and args of events are not searched.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import Enum
from typing import Any

import orjson

from torchprof_tui.analysis.completeness.data_loss import SLICE_KEY
from torchprof_tui.analysis.privacy.secret_shapes import (
    SecretName,
    has_known_form,
    has_secret,
    holds_secret,
    rate_name,
    split_words,
)
from torchprof_tui.trace.core.late_regex import compile_later
from torchprof_tui.trace.core.problems import excerpt
from torchprof_tui.trace.core.records import record

_SECRET_KEY = "(a key)"  # shown in place of a key that is itself a secret


class PrivateKind(str, Enum):
    """What a private value is."""

    ENVIRONMENT = "environment variables"
    SECRET = "secret"


@record
class PrivateValue:
    """A value that should not be shared. `keys`: the way to it from the top level; integers are places in a list.

    `count`: number of environment variables, 1 for a secret.
    """

    keys: tuple[str | int, ...]
    kind: PrivateKind
    count: int

    @property
    def path(self) -> str:
        """ "metadata.system.env", escaped and cut to be shown."""
        shown = [_SECRET_KEY if isinstance(key, str) and has_known_form(key) else str(key) for key in self.keys]
        return excerpt(".".join(shown))

    def __str__(self) -> str:
        if self.kind is PrivateKind.SECRET:
            return f"{self.path} (looks like a secret)"
        return f"{self.path} ({self.count} environment variable{'' if self.count == 1 else 's'})"


KNOWN_KEYS = frozenset(
    (
        *("schemaVersion", "displayTimeUnit", "baseTimeNanoseconds", "traceName", "trace_id", "group_trace_id"),
        *(
            "deviceProperties",
            "distributedInfo",
            "host_name",
            "traceEvents",
            "systemTraceEvents",
            "stackFrames",
            "samples",
        ),
        *("record_shapes", "profile_memory", "with_stack", "with_modules", "with_flops", "viztracer_metadata"),
        *("cuda_runtime_version", "cuda_driver_version", "cupti_version", "roctracer_version", "rocprofiler_version"),
        *("hip_runtime_version", "hip_driver_version", "pytorch_version", "torch_version", "nccl_version"),
        *("INFO", "WARNING", "ERROR", SLICE_KEY, "torchprof_tui_ranks"),
    )
)
"""Top-level keys that Kineto, torch, Chrome's writers and this program write: their own names are no secrets."""

_USUAL_VARIABLES = frozenset(
    (
        *("PATH", "HOME", "USER", "PWD", "OLDPWD", "SHELL", "SHLVL", "LOGNAME", "HOSTNAME", "TERM", "LANG", "TMPDIR"),
        *("LD_LIBRARY_PATH", "PYTHONPATH", "VIRTUAL_ENV", "CONDA_PREFIX", "CUDA_VISIBLE_DEVICES", "CUDA_HOME"),
        *("SSH_CONNECTION", "SSH_CLIENT", "SLURM_JOB_ID", "KUBERNETES_SERVICE_HOST", "MASTER_ADDR", "LOCAL_RANK"),
    )
)

_MIN_USUAL_VARIABLES = 3
"""So many usual variables side by side are an environment, whatever the key above them is called."""

_MIN_LOWER_VARIABLES = 4  # the same for names that are not all in upper case, as `user` and `path` are usual keys too

_ASSIGNMENT = compile_later(r"""(?<![\w.])([A-Za-z_]\w{0,100})["']?\s{0,2}=""")
_USUAL_NAME = compile_later(rf"""(?<![\w.])({"|".join(sorted(_USUAL_VARIABLES))})["']?\s{{0,2}}[=:]""", re.IGNORECASE)
_ENVIRONMENT_KEY = compile_later(r"^env|environ|(^|_)envs?$|_env_?vars?$")
_NAME_KEYS = ("name", "key", "variable", "var", "k", "n")
_VALUE_KEYS = ("value", "val", "v", "valueFrom", "value_from")

_MAX_JSON_DEPTH = 3  # JSON texts within JSON texts that are searched

_REPLACEMENT = "removed"


def find_private_values(values: Mapping[str, Any]) -> list[PrivateValue]:
    """Find the private values below the top-level keys of a file, in its order; nothing inside of one found.

    Where a program wrote its environment to the top level, keys in capitals are variables.
    """
    is_environment = len(_USUAL_VARIABLES.intersection(values)) >= _MIN_USUAL_VARIABLES
    found: list[PrivateValue] = []
    for key, value in values.items():
        if is_environment and key not in KNOWN_KEYS and key.isupper() and isinstance(value, str):
            found.append(PrivateValue((key,), PrivateKind.ENVIRONMENT, 1))
        else:
            found += _walk(key, value)
    return found


def list_unknown_keys(values: Iterable[str]) -> list[str]:
    """List the top-level keys that no known writer writes: they were searched, and may still hold a secret."""
    return [key for key in values if key not in KNOWN_KEYS]


def _walk(top: str, values: Any, depth: int = 0) -> Iterator[PrivateValue]:
    # A stack, because a hostile file nests deeper than Python recurses.
    stack: list[tuple[tuple[str | int, ...], Any]] = [((top,), values)]
    while stack:
        keys, value = stack.pop()
        key = keys[-1]
        variables = _count_variables(key, value)
        if variables:
            yield PrivateValue(keys, PrivateKind.ENVIRONMENT, variables)
        elif _is_secret(keys, value, depth):
            yield PrivateValue(keys, PrivateKind.SECRET, 1)
        elif isinstance(value, dict):
            named = _find_named_value(value)
            if named is not None:
                yield PrivateValue((*keys, named), PrivateKind.SECRET, 1)
            stack += [((*keys, key), below) for key, below in reversed(value.items()) if key != named]
        elif isinstance(value, list):
            named_places = {place for place in range(1, len(value)) if _is_value_of_name(value, place)}
            yield from (PrivateValue((*keys, place), PrivateKind.SECRET, 1) for place in sorted(named_places))
            below = [((*keys, place), each) for place, each in enumerate(value) if isinstance(each, (str, dict, list))]
            stack += (each for each in reversed(below) if each[0][-1] not in named_places)


def _count_variables(key: str | int, value: Any) -> int:
    """Count the variables of a value that is an environment, 0 for any other value."""
    if not isinstance(value, (dict, list, str)) or not value:
        return 0
    is_named = isinstance(key, str) and "env" in key.lower() and bool(_ENVIRONMENT_KEY.search(split_words(key)))
    if isinstance(value, str) and not is_named and not _may_be_environment(value):
        return 0
    names = _list_variables(value)
    usual = len(_USUAL_VARIABLES.intersection(map(str.upper, names)))
    exact = len(_USUAL_VARIABLES.intersection(names))
    if (
        (is_named and (usual or any(map(str.isupper, names))))
        or exact >= _MIN_USUAL_VARIABLES
        or usual >= _MIN_LOWER_VARIABLES
    ):
        return len(names)
    return 0


def _may_be_environment(text: str) -> bool:
    """Tell, quickly, whether a text may name enough usual variables."""
    if text.count("=") + text.count(":") < _MIN_USUAL_VARIABLES and not text.lstrip().startswith("["):
        return False
    upper = text.upper()
    return sum(name in upper for name in _USUAL_VARIABLES) >= _MIN_USUAL_VARIABLES


def _list_variables(value: dict[str, Any] | list[Any] | str) -> list[str]:
    """List the names of a mapping of texts, of pairs, of objects with a name and a value, or of NAME=value."""
    if isinstance(value, dict):
        return [name for name, text in value.items() if not isinstance(text, (dict, list))]
    if isinstance(value, str):
        return _list_variables_of_text(value)
    names: list[str] = []
    for each in value:
        if isinstance(each, str):
            match = _ASSIGNMENT.match(each)
            names += [match[1]] if match is not None else []
        elif isinstance(each, dict):
            named = next((each[key] for key in _NAME_KEYS if isinstance(each.get(key), str)), None)
            names += [named] if named is not None and not each.keys().isdisjoint(_VALUE_KEYS) else []
        elif isinstance(each, list) and len(each) == 2 and isinstance(each[0], str):
            names.append(each[0])
    return names


def _list_variables_of_text(text: str) -> list[str]:
    """List the variables that a text assigns, in the form of a shell, of Python or of JSON."""
    parsed = _parse_json(text)
    if isinstance(parsed, (dict, list)):
        return _list_variables(parsed)
    assigned = _ASSIGNMENT.findall(text) if "=" in text else []
    known = {*assigned}
    return assigned + [name for name in _USUAL_NAME.findall(text) if name not in known] if ":" in text else assigned


def _find_named_value(value: dict[str, Any]) -> str | None:
    """Find the key of the value in an object such as {"name": "API_KEY", "value": …}; None where it is no secret."""
    name = next((value[key] for key in _NAME_KEYS if isinstance(value.get(key), str)), None)
    rating = SecretName.NONE if name is None else rate_name(name)
    return next((key for key in _VALUE_KEYS if rating and key in value and holds_secret(value[key], rating)), None)


def _parse_json(text: str) -> Any:
    """Parse a text that is a JSON object or list; None for any other."""
    if text.lstrip()[:1] not in ("{", "["):
        return None
    try:
        return orjson.loads(text)
    except ValueError:
        return None


def _is_secret(keys: tuple[str | int, ...], value: Any, depth: int) -> bool:
    """Tell whether a value is a secret by its key, by its own form, or by what the JSON in a text holds."""
    key = keys[-1]
    if isinstance(key, str):
        if has_known_form(key):
            return True
        name = rate_name(key) if isinstance(value, (str, int, dict, list)) else SecretName.NONE
        if name and holds_secret(value, name):
            return True
    if not isinstance(value, str):
        return False
    if depth < _MAX_JSON_DEPTH:
        parsed = _parse_json(value)
        if isinstance(parsed, (dict, list)):
            return next(_walk("", parsed, depth + 1), None) is not None
    return has_secret(value)


def _is_value_of_name(values: list[Any], place: int) -> bool:
    """Tell whether an item is the secret of the item before it: of an option, or of the name in a pair."""
    name = values[place - 1]
    if not isinstance(name, str) or not (name.startswith("-") or len(values) == 2):
        return False
    rating = rate_name(name)
    return bool(rating) and not str(values[place]).startswith("-") and holds_secret(values[place], rating)


def remove_private_values(values: Mapping[str, Any], private: Sequence[PrivateValue]) -> dict[str, Any]:
    """Return a copy of the top-level keys without these values; in a list, "removed" takes their place."""
    copy = dict(values)
    copied: set[tuple[str | int, ...]] = set()
    for each in private:
        below: Any = copy
        for depth, key in enumerate(each.keys[:-1], 1):
            if each.keys[:depth] not in copied:  # the values of the trace itself stay as they are
                copied.add(each.keys[:depth])
                below[key] = below[key].copy()
            below = below[key]
        if isinstance(below, dict):
            below.pop(each.keys[-1], None)
        else:
            below[each.keys[-1]] = _REPLACEMENT
    return copy


def describe_private_values(private: Sequence[PrivateValue]) -> str:
    """Name these values in one line, with numbers and without any value; "" for none."""
    return ", ".join(map(str, private))
