"""Find environment variables and secrets in the top-level metadata of a file, and remove them from a copy.

Programs add metadata to their traces, some of them the whole environment of the process, in which tokens and passwords
are common. Only keys and numbers of variables are reported, never a value. Names and args of events are not searched.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from torchprof_tui.trace.core.problems import excerpt


class PrivateKind(str, Enum):
    """What a private value is."""

    ENVIRONMENT = "environment variables"
    SECRET = "secret"


@dataclass(frozen=True, slots=True)
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
        return excerpt(".".join(str(key) for key in self.keys))

    def __str__(self) -> str:
        if self.kind is PrivateKind.SECRET:
            return f"{self.path} (looks like a secret)"
        return f"{self.path} ({self.count} environment variable{'' if self.count == 1 else 's'})"


_ENVIRONMENT_KEYS = frozenset(
    ("env", "envs", "environ", "osenviron", "environment", "envvars", "envvariables", "environmentvariables")
)
"""Names of keys, without separators, whose value is the environment if it is a mapping or a list of NAME=value."""

_USUAL_VARIABLES = frozenset(
    (
        *("PATH", "HOME", "USER", "PWD", "OLDPWD", "SHELL", "SHLVL", "LOGNAME", "HOSTNAME", "TERM", "LANG", "TMPDIR"),
        *("LD_LIBRARY_PATH", "PYTHONPATH", "VIRTUAL_ENV", "CONDA_PREFIX", "CUDA_VISIBLE_DEVICES", "CUDA_HOME"),
        *("SSH_CONNECTION", "SSH_CLIENT", "SLURM_JOB_ID", "KUBERNETES_SERVICE_HOST", "MASTER_ADDR", "LOCAL_RANK"),
    )
)

_MIN_USUAL_VARIABLES = 3
"""So many usual variables side by side are an environment, whatever the key above them is called."""

_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]{0,200})=")

_SECRET_KEY = re.compile(
    r"(^|_)(password|passwd|passphrase|pwd|secret|secrets|credential|credentials|authorization|cookie|apikey|"
    r"(api|access|private|secret|account|signing|ssh|encryption)_key|"
    r"(access|auth|api|hf|hub|huggingface|github|gitlab|bearer|session|refresh|id|bot|wandb|personal)_token)($|_id$)"
    r"|^token$"
)
"""Names of secrets, in lower case with `_` between words; of tokens only those that no tokenizer has."""

_SECRET_VALUE = re.compile(
    r"\b(hf_[A-Za-z0-9]{20,}|gh[pousr]_[A-Za-z0-9]{30,}|github_pat_[A-Za-z0-9_]{30,}|glpat-[A-Za-z0-9_-]{20,}|"
    r"sk-[A-Za-z0-9_-]{20,}|(AKIA|ASIA)[0-9A-Z]{16}|xox[abeoprs]-[A-Za-z0-9-]{10,}|AIza[A-Za-z0-9_-]{35}|"
    r"eyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,})"
    r"|-----BEGIN [A-Z ]{0,30}PRIVATE KEY-----"
    r"|\b[a-z][a-z0-9+.-]{1,20}://[^/\s:@]{1,100}:[^/\s:@]{3,200}@"
)
"""Forms of the tokens of well-known services, private keys, and passwords in URLs."""

_MIN_SECRET_LENGTH = 6
_REMOVED_VALUE = re.compile(r"[*x.•]+|[<\[(]?(removed|redacted|hidden|masked|none|null|unset)[>\])]?", re.IGNORECASE)
"""Values that say that a secret was removed before."""

_MAX_TEXT = 1 << 20
"""Characters of one text that are searched."""

_REPLACEMENT = "removed"


def find_private_values(values: Mapping[str, Any]) -> list[PrivateValue]:
    """Find the private values below the top-level keys of a file, in its order; nothing inside of one found."""
    return [*_walk(values)]


def _walk(values: Mapping[str, Any]) -> Iterator[PrivateValue]:
    # A stack, because a hostile file nests deeper than Python recurses.
    stack: list[tuple[tuple[str | int, ...], Any]] = [((key,), value) for key, value in reversed([*values.items()])]
    while stack:
        keys, value = stack.pop()
        variables = _count_variables(keys[-1], value)
        if variables:
            yield PrivateValue(keys, PrivateKind.ENVIRONMENT, variables)
        elif isinstance(value, str):
            if _is_secret(keys[-1], value):
                yield PrivateValue(keys, PrivateKind.SECRET, 1)
        elif isinstance(value, dict):
            stack += [((*keys, key), below) for key, below in reversed(value.items())]
        elif isinstance(value, list):
            stack += [((*keys, place), below) for place, below in reversed([*enumerate(value)])]


def _count_variables(key: str | int, value: Any) -> int:
    """Count the variables of a value that is an environment, 0 for any other value."""
    if not isinstance(value, (dict, list, str)) or not value:
        return 0
    names = _list_variables(value)
    is_named = isinstance(key, str) and re.sub(r"[^a-z]", "", key.lower()) in _ENVIRONMENT_KEYS
    if (is_named and any(map(str.isupper, names))) or len(_USUAL_VARIABLES.intersection(names)) >= _MIN_USUAL_VARIABLES:
        return len(names)
    return 0


def _list_variables(value: dict[str, Any] | list[Any] | str) -> list[str]:
    """List the names of a mapping of texts, or of a list or text of NAME=value."""
    if isinstance(value, dict):
        return [name for name, text in value.items() if not isinstance(text, (dict, list))]
    lines: Iterable[Any] = re.split(r"[\n\0]", value[:_MAX_TEXT]) if isinstance(value, str) else value
    matches = [_ASSIGNMENT.match(line) for line in lines if isinstance(line, str)]
    return [match[1] for match in matches if match is not None]


def _is_secret(key: str | int, value: str) -> bool:
    if len(value) < _MIN_SECRET_LENGTH or _REMOVED_VALUE.fullmatch(value):
        return False
    if isinstance(key, str) and _SECRET_KEY.search(_split_words(key)):
        return True
    return _SECRET_VALUE.search(value[:_MAX_TEXT]) is not None


def _split_words(key: str) -> str:
    """Return a key in lower case with `_` between words: "apiKey" is "api_key"."""
    return re.sub(r"[^a-z0-9]+", "_", re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", key[:200]).lower())


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
