"""Tests of the lines that explain what ssh printed when it failed."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from torchprof_tui.trace.core.errors import TraceError
from torchprof_tui.trace.sources import ssh_command
from torchprof_tui.trace.sources.ssh_command import LoginNeededError, SshConfig, create_connection_error
from torchprof_tui.trace.specs.address import SshPath

BOX = SshPath("me@gpu-box:a.json", "me@gpu-box", None, "a.json")


@pytest.fixture
def identity_files(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The private keys that the user's configuration names."""
    files: list[str] = []
    monkeypatch.setattr(ssh_command, "read_ssh_config", lambda _: SshConfig(identity_files=tuple(files)))
    return files


@pytest.mark.parametrize(
    ("printed", "line", "asking_helps"),
    [
        ("me@gpu-box: Permission denied (publickey).", "gpu-box refused the login (publickey only)", False),
        (
            "me@gpu-box: Permission denied (publickey,password).",
            "ssh needs a password for gpu-box: open it in a terminal, or load a key into ssh-agent",
            True,
        ),
        (
            "me@gpu-box: Permission denied (keyboard-interactive).",
            "ssh needs a password for gpu-box: open it in a terminal, or load a key into ssh-agent",
            True,
        ),
        (
            "me@gpu-box: Permission denied (publickey,hostbased).",
            "gpu-box refused the login (publickey or hostbased only)",
            False,
        ),
        ("Received disconnect: Too many authentication failures", "gpu-box refused the login", False),
        ("me@gpu-box: Permission denied (\x1b[31m,x).", "gpu-box refused the login", False),
        (
            "Host key verification failed.",
            "the host key of gpu-box is not known yet; run ssh me@gpu-box in a terminal to accept it",
            True,
        ),
        ("kex_exchange: \x1b]0;x\x07 closed", "ssh could not connect to gpu-box: kex_exchange:  ]0;x  closed", False),
        ("", "ssh could not connect to gpu-box: no reason given", False),
    ],
)
def test_what_ssh_printed_becomes_a_line(
    identity_files: list[str], printed: str, line: str, asking_helps: bool
) -> None:
    error = create_connection_error(BOX, printed)
    assert (str(error), type(error)) == (f"{BOX.spec}: {line}", LoginNeededError if asking_helps else TraceError)


@pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="needs OpenSSH's client")
@pytest.mark.parametrize("form", ["RFC4716", "PEM", "PKCS8"])
def test_keys_with_a_passphrase_are_recognised(identity_files: list[str], form: str, tmp_path: Path) -> None:
    denied = "me@gpu-box: Permission denied (publickey)."
    for name, passphrase in (("plain", ""), ("locked", "open sesame")):
        key = ["-t", "ecdsa", "-m", form, "-N", passphrase, "-f", str(tmp_path / name)]
        subprocess.run(["ssh-keygen", "-q", *key], check=True)
    (tmp_path / "junk").write_bytes(b"-----BEGIN OPENSSH PRIVATE KEY-----\n\xff=\n")
    identity_files[:] = [str(tmp_path / name) for name in ("plain", "none", "junk", "nul\0")]
    assert "refused the login" in str(create_connection_error(BOX, denied))
    identity_files.append(str(tmp_path / "locked"))
    error = create_connection_error(BOX, denied)
    assert str(error) == f"{BOX.spec}: ssh needs a passphrase: load the key into ssh-agent"
    assert isinstance(error, LoginNeededError)
