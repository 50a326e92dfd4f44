"""Test what counts as environment variables and secrets, and that a copy without them keeps everything else."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchprof_tui.analysis.completeness.private_metadata import (
    PrivateKind,
    describe_private_values,
    find_private_values,
    remove_private_values,
)

ENVIRONMENT = {"PATH": "/bin", "HOME": "/root", "USER": "me", "WANDB_API_KEY": "topsecret"}
TOKEN = "hf_" + "Ab1" * 10


def find(header: dict[str, Any]) -> list[tuple[str, str, int]]:
    return [(each.path, each.kind.name, each.count) for each in find_private_values(header)]


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ({"metadata": {"system": {"env": ENVIRONMENT}}}, [("metadata.system.env", "ENVIRONMENT", 4)]),
        ({"anything": ENVIRONMENT}, [("anything", "ENVIRONMENT", 4)]),  # known by its variables
        ({"os.environ": {"MY_VAR": "1"}}, [("os.environ", "ENVIRONMENT", 1)]),  # known by its name
        ({"env": [f"{key}={value}" for key, value in ENVIRONMENT.items()]}, [("env", "ENVIRONMENT", 4)]),
        ({"x": ["HOME=/root\nPATH=/bin\nUSER=me\n"]}, [("x.0", "ENVIRONMENT", 3)]),
        ({"environ": "A=1\0B=2\0"}, [("environ", "ENVIRONMENT", 2)]),
        ({"config": {"apiKey": "abcdefgh"}}, [("config.apiKey", "SECRET", 1)]),
        ({"a": {"HF-TOKEN": "abcdefgh", "n": 1}}, [("a.HF-TOKEN", "SECRET", 1)]),
        ({"a": [{"db_password": "hunter22"}]}, [("a.0.db_password", "SECRET", 1)]),
        ({"note": f"run with {TOKEN} please"}, [("note", "SECRET", 1)]),
        ({"urls": ["https://example.org/x", "https://me:hunter22@example.org"]}, [("urls.1", "SECRET", 1)]),
        ({"key": "-----BEGIN OPENSSH PRIVATE KEY-----\nabc"}, [("key", "SECRET", 1)]),
        ({"aws": "AKIAABCDEFGHIJKLMNOP"}, [("aws", "SECRET", 1)]),
    ],
)
def test_found(header: dict[str, Any], expected: list[tuple[str, str, int]]) -> None:
    assert find(header) == expected
    text = describe_private_values(find_private_values(header))
    assert not any(value in text for value in ("topsecret", "hunter22", "abcdefgh", TOKEN, "/root"))
    assert find(remove_private_values(header, find_private_values(header))) == []


@pytest.mark.parametrize(
    "header",
    [
        {},
        {"deviceProperties": [{"id": 0, "name": "NVIDIA H200", "totalGlobalMem": 150e9}], "with_stack": 1},
        {"distributedInfo": {"rank": 0, "pg_config": [{"pg_name": "0"}]}, "traceName": "/home/me/trace.json"},
        {"num_tokens": "12345678", "pad_token": "<|endoftext|>", "eos_token_id": "abcdefgh", "tokenizer": "gpt2-large"},
        {"env": "removed", "environment": {"name": "production"}, "token": "***", "password": "<redacted>"},
        {"password": 12345678, "secret": None, "api_key": ""},
        {"os_release": {"NAME": "Ubuntu", "VERSION": "22.04", "HOME_URL": "https://www.ubuntu.com/"}},
        {"INFO": ["INFO:2024-02-08 10:38:45 948300:948300 CuptiActivityProfiler.cpp:835] Enabling GPU tracing"]},
        {"pip_packages": ["numpy==2.0", "A=1"], "url": "https://example.org:8080/a@b"},
    ],
)
def test_not_found(header: dict[str, Any]) -> None:
    assert find(header) == []


def test_only_private_values_are_removed() -> None:
    header = {
        "schemaVersion": 1,
        "metadata": {"system": {"env": ENVIRONMENT, "node": "x"}, "secret": "hunter22"},
        "list": ["a", TOKEN, "b"],
    }
    before = copy.deepcopy(header)
    private = find_private_values(header)
    assert [each.kind for each in private] == [PrivateKind.ENVIRONMENT, PrivateKind.SECRET, PrivateKind.SECRET]
    assert remove_private_values(header, private) == {
        "schemaVersion": 1,
        "metadata": {"system": {"node": "x"}},
        "list": ["a", "removed", "b"],
    }
    assert header == before  # that of the trace itself
    assert describe_private_values(private) == (
        "metadata.system.env (4 environment variables), metadata.secret (looks like a secret), "
        "list.1 (looks like a secret)"
    )


def test_a_key_is_escaped() -> None:
    (found,) = find_private_values({"a\x1b[2J": {"env": {"HOME": "/root"}}})
    assert "\x1b" not in str(found)
    assert str(found).endswith("(1 environment variable)")


def test_deep_and_long_values_are_searched_quickly() -> None:
    deep: Any = {"env": {"A": "1"}}
    for _ in range(1000):
        deep = {"a": [deep]}
    many = {"tokens": [TOKEN] * 3000}
    assert len(find_private_values({"deep": deep, "many": many})) == 3001
    cleaned = remove_private_values(many, find_private_values(many))
    assert cleaned == {"tokens": ["removed"] * 3000}


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | st.sampled_from([TOKEN, "A=1\nPATH=x\nHOME=y\nUSER=z"]),
    lambda below: (
        st.lists(below, max_size=4)
        | st.dictionaries(st.sampled_from(["env", "PATH", "HOME", "USER", "password", "x", ""]), below, max_size=4)
    ),
    max_leaves=20,
)


@given(st.dictionaries(st.sampled_from(["env", "PATH", "metadata", "token"]), JSON, max_size=3))
def test_nothing_private_remains(header: dict[str, Any]) -> None:
    before = json.dumps(header)
    private = find_private_values(header)
    cleaned = remove_private_values(header, private)
    assert json.dumps(header) == before
    assert find_private_values(cleaned) == []
    assert TOKEN not in json.dumps(cleaned)
    if not private:
        assert cleaned == header
