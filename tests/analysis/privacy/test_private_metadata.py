"""Test what counts as environment variables and secrets, and that a copy without them keeps everything else."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchprof_tui.analysis.privacy.private_metadata import (
    PrivateKind,
    _may_be_environment,
    describe_private_values,
    find_private_values,
    list_unknown_keys,
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
        {"password": 123, "secret": None, "api_key": "", "secrets": {"enabled": True}, "auth": {"type": "basic"}},
        {
            "maxTokens": "12345678",
            "pad_tokens": ["<pad>", "padding"],
            "image_token": "a_long_text",
            "tokens": ["abcdefgh"],
        },
        {"token_dispatcher": "alltoall", "tokenizers": ["abcdefgh"], "TOKENIZERS_PARALLELISM": "disabled"},
        {"attention_key": "abcdefgh", "sort_key": "self_gpu", "key_averages": "abcdefgh", "External id": "abcdefgh"},
        {
            "Author": "Somebody",
            "forward_pass": "abcdefgh",
            "monkey": "abcdefgh",
            "Ev Idx": "abcdefgh",
            "Keyset": "abcdef",
        },
        {"commit": "da39a3ee5e6b4b0d3255bfef95601890afd80709", "trace_id": "52980315856F4E148C002A4059D59A20"},
        {"argv": ["train.py", "--max-tokens", "4096", "--tokenizer=gpt2", "--key-bits", "abcdefgh", "-p", "8080"]},
        {"note": "the next token: prediction; password=$PASSWORD, api_key=<your key>, secret: null"},
        {"code": "def f(authkey: bytes):\n    self.authkey = authkey\n    cookie = make(cookie)\n"},
        {"secretary": "abcdefgh", "code": "REGISTRY_KEY = ('Software')\nregistry_key = cls.REGISTRY_KEY_DEBUG\n"},
        {"requirements": "google-auth==2.40.3\nkeyring==1.0", "shape": {"user": 1, "path": 2}},
        {"os_release": {"NAME": "Ubuntu", "VERSION": "22.04", "HOME_URL": "https://www.ubuntu.com/"}},
        {"INFO": ["INFO:2024-02-08 10:38:45 948300:948300 CuptiActivityProfiler.cpp:835] Enabling GPU tracing"]},
        {"env": [{"name": "PATH"}, {"value": "/bin"}]},
        {"pip_packages": ["numpy==2.0", "A=1"], "url": "https://example.org:8080/a@b"},
    ],
)
def test_not_found(header: dict[str, Any]) -> None:
    assert find(header) == []


VALUE = "Kx81hdy2Qmz"
KUBERNETES = [{"name": "PATH", "value": "/bin"}, {"name": "API", "valueFrom": {"fieldRef": VALUE}}]


@pytest.mark.parametrize(
    ("header", "path"),
    [
        ({"env2": KUBERNETES}, "env2"),
        (
            {"pod": {"spec": [*KUBERNETES, {"name": "HOME", "value": VALUE}, {"name": "USER", "value": ""}]}},
            "pod.spec",
        ),
        ({"workerEnv": [["PATH", "/bin"], ["A", VALUE]]}, "workerEnv"),
        ({"environment_dump": json.dumps({"PATH": "/bin", "A": VALUE})}, "environment_dump"),
        ({"note": json.dumps({**ENVIRONMENT, "A": VALUE})}, "note"),
        ({"note": json.dumps(json.dumps({"api_key": VALUE}))}, "note"),
        ({"note": f"environ({ {**ENVIRONMENT, 'A': VALUE} })"}, "note"),
        ({"note": f"declare -x HOME=/\ndeclare -x PATH=/bin\ndeclare -x USER=me\nA={VALUE}"}, "note"),
        ({"note": f"HOME=/\nPATH=/bin\nUSER={VALUE}"}, "note"),  # no variable beside the least that tell
        ({"env": {"path": "/bin", "a": VALUE}}, "env"),
        ({"x": {"path": "/bin", "home": "/", "user": "me", "shell": "sh", "a": VALUE}}, "x"),
        *(({name: VALUE}, name) for name in ("DB_PASS", "PGPASSWORD", "SLACK_TOKEN", "VAULT_TOKEN", "REDIS_AUTH")),
        *(({name: VALUE}, name) for name in ("access_tokens", "apikeys", "API_KEY_2", "GH_PAT", "npm_config__auth")),
        *(({name: VALUE}, name) for name in ("KAGGLE_KEY", "LDAP_BIND_PW", "KRB5_KEYTAB")),
        # Without the splitting of words none of these is found.
        *(({name: VALUE}, name) for name in ("hfToken", "dbPass", "redisAuth", "HFToken", "proxyPwd", "sessionCookie")),
        *(({name: VALUE}, name) for name in ("clientSecret", "accessToken", "dbPassword", "privateKey", "awsCreds")),
        ({"api_key": {"value": VALUE}}, "api_key"),
        ({"passwords": [{"of": [VALUE]}]}, "passwords"),
        ({"password": 12345678}, "password"),
        ({"a": [{"name": "WANDB_API_KEY", "value": VALUE}]}, "a.0.value"),
        ({"a": [["WANDB_API_KEY", VALUE]]}, "a.0.1"),
        ({"argv": ["train.py", "--api-key", VALUE, "--lr", "1"]}, "argv.2"),
        ({"argv": ["train.py", f"--password={VALUE}"]}, "argv.1"),
        ({"command": f"python train.py --lr 1 --password={VALUE} --x"}, "command"),
        ({"command": f"python train.py --hf-token '{VALUE}' --x"}, "command"),
        ({"command": f"DB_PASS={VALUE} python train.py"}, "command"),
        ({"text": "x" * (1 << 20) + f" {TOKEN}"}, "text"),
        ({"text": "x" * (2 << 20) + f" password={VALUE}"}, "text"),
        ({"url": f"redis://:{VALUE}@host"}, "url"),
        ({"text": "key " * 20_000 + "-"}, "text"),  # more mentions than are searched
    ],
)
def test_shapes_of_environments_and_secrets(header: dict[str, Any], path: str) -> None:
    found = find_private_values(header)
    assert [each.path for each in found] == [path]
    assert VALUE not in json.dumps(remove_private_values(header, found))
    assert VALUE not in describe_private_values(found)


def test_an_environment_at_the_top_level_is_left_out() -> None:
    header = {"schemaVersion": 1, **ENVIRONMENT, "A": "b", "traceName": "x"}
    assert remove_private_values(header, find_private_values(header)) == {"schemaVersion": 1, "traceName": "x"}


def test_a_key_that_is_a_secret_is_not_shown() -> None:
    (found,) = find_private_values({"a": {TOKEN: 1}})
    assert found.path == "a.(a key)"
    assert TOKEN not in str(remove_private_values({"a": {TOKEN: 1}}, [found]))


@pytest.mark.parametrize(
    "piece",
    [
        *("a", "key ", "key=", "://a:", "eyJ", "PATH:", '["a",', "basic ", "A=", "-----BEGIN "),
        "eyJ" + "a" * 3000,
        "basic " + "a" * 400,
    ],
)
def test_hostile_text_is_searched_in_linear_time(piece: str) -> None:
    text = piece * ((1 << 18) // len(piece))  # minutes, where the time is quadratic
    find_private_values({"x": text, "env": text})


def test_an_environment_in_a_text_is_counted() -> None:
    pairs = [["HOME", "/"], ["PATH", "/bin"], ["USER", VALUE]]
    for values in (pairs, dict(pairs)):
        (found,) = find_private_values({"note": " " + json.dumps(values)})
        assert str(found) == "note (3 environment variables)"


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


def test_keys_that_no_known_writer_writes_are_listed() -> None:
    assert list_unknown_keys(["traceEvents", "notes", "INFO", "info", "Notes"]) == ["notes", "info", "Notes"]


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


FORMS: dict[str, Callable[[dict[str, str]], Any]] = {
    "mapping": dict,
    "mapping with an object in it": lambda variables: {**variables, "more": {}},
    "assignments": lambda variables: [f"{name}={value}" for name, value in variables.items()],
    "pairs": lambda variables: [[name, value] for name, value in variables.items()],
    "longer lists": lambda variables: [[name, value, 1] for name, value in variables.items()],
    "objects": lambda variables: [{"name": name, "value": value} for name, value in variables.items()],
    "objects of Kubernetes": lambda variables: [{"n": name, "value_from": value} for name, value in variables.items()],
    "pairs with a number": lambda variables: [[name, 1] for name in variables],
    "pairs without a name": lambda variables: [[1, name] for name in variables],
    "objects without a value": lambda variables: [{"name": name, "of": value} for name, value in variables.items()],
    "shell": lambda variables: "\n".join(f"export {name}={value}" for name, value in variables.items()),
    "json": json.dumps,
    "python": str,
}
COUNTED = {form: "longer" not in form and "without" not in form for form in FORMS}


@pytest.mark.parametrize("form", FORMS)
def test_an_environment_is_known_by_its_key_or_by_its_variables(form: str) -> None:
    usual = ("PATH", "HOME", "USER", "SHELL", "LANG")
    for key in ("env", "x"):
        for count in range(6):
            for change in (str.upper, str.lower):
                for others in ([], ["other"], ["OTHER"], ["one", "two"]):
                    names = [*map(change, usual[:count]), *others]
                    found = find({"top": {key: FORMS[form](dict.fromkeys(names, "1"))}})
                    is_environment = count >= (3 if change is str.upper else 4)
                    is_environment |= key == "env" and (count > 0 or "OTHER" in others)
                    if not COUNTED[form]:
                        is_environment = False
                    elif form == "python":  # in text, only well-known names are recognised
                        names = names[:count]
                        is_environment &= key == "x" or count > 0
                    expected = [(f"top.{key}", "ENVIRONMENT", len(names))] if is_environment else []
                    assert found == expected, (key, names)


@pytest.mark.parametrize(
    ("text", "is_searched"),
    [
        ("PATH=1 HOME=2 USER=3", True),
        ("path: 1, home: 2, user=3", True),
        ("PATH=1 HOME=2 count=3", False),
        ("PATH HOME USER = 3:", False),
        (' ["PATH", "HOME", "USER"]', True),
        ("a=1 b=2 c=3", False),
        ("", False),
    ],
)
def test_only_texts_that_may_be_an_environment_are_searched(text: str, is_searched: bool) -> None:
    assert _may_be_environment(text) == is_searched


def test_the_value_of_a_named_secret_is_found_in_each_form() -> None:
    for name in ("API_KEY", "password", "count"):
        secret = name != "count"
        for value in ("hunter22xyz", "", "-x"):
            is_found = secret and value == "hunter22xyz"
            for name_key in ("name", "key", "variable", "var", "k", "n"):
                for value_key in ("value", "val", "v"):
                    header = {"a": [{name_key: name, value_key: value, "z": 1}, 5]}
                    assert find(header) == ([(f"a.0.{value_key}", "SECRET", 1)] if is_found else []), header
            assert find({"a": [f"--{name}", value]}) == ([("a.1", "SECRET", 1)] if is_found else [])
            assert find({"a": ["run", f"--{name}", value]}) == ([("a.2", "SECRET", 1)] if is_found else [])
            assert find({"a": [name, value]}) == ([("a.1", "SECRET", 1)] if is_found else [])
            assert find({"a": ["run", name, value]}) == []


def test_the_value_of_an_option_is_found_once_and_the_others_of_its_list_too() -> None:
    assert find({"a": ["--password", TOKEN]}) == [("a.1", "SECRET", 1)]
    assert find({"a": [0, ["--password", TOKEN, TOKEN]]}) == [("a.1.1", "SECRET", 1), ("a.1.2", "SECRET", 1)]


def test_json_in_texts_is_searched_to_a_depth_of_three() -> None:
    text: Any = {"name": "API_KEY", "value": "hunter22xyz"}  # a secret in its parsed form alone
    for depth in range(6):
        text = json.dumps({"a": text})
        assert bool(find({"log": text})) == (depth < 3), text
