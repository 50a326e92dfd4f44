"""Kineto's IPC fabric: messages by their bytes, who may send them, and the files of the sockets."""

from __future__ import annotations

import os
import socket
import stat
import struct
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchprof_attach.host import fabric
from torchprof_attach.host.fabric import Fabric, Message, SocketTakenError, check_free, format_config

# What torch 2.13 sent: kinds 3, two pids of which the first is its own, no job.
QUESTION = struct.pack("<Q32siiqii", 24, b"req", 3, 2, 0, 71022, 71000)
REGISTRATION = struct.pack("<Q32siiq", 16, b"ctxt", 0, 71022, 0)


@pytest.fixture
def folder() -> Iterator[str]:
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="tt") as name:  # a socket's path may have 107 bytes
        yield name


@pytest.fixture
def client(folder: str) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as each:
        each.bind(f"{folder}/client")
        each.settimeout(0.2)
        yield each


def receive(opened: Fabric) -> list[Message]:
    return list(iter(opened.receive, None))


def is_unanswered(client: socket.socket) -> bool:
    try:
        client.recv(1000)
    except OSError:
        return True
    return False


def test_a_question_is_answered_with_what_to_record(folder: str, client: socket.socket) -> None:
    asked = []

    def give(pid: int, free: bool) -> str:
        asked.append((pid, free))
        return "ACTIVITIES_ITERATIONS=5\n"

    opened = Fabric(folder, give)
    client.sendto(QUESTION, f"{folder}/dynolog")
    # the kernel's word for who asked, not the message's
    assert receive(opened) == [Message(os.getpid(), "req", True)]
    assert asked == [(os.getpid(), True)]
    assert client.recv(1000) == struct.pack("<Q32s", 24, b"req") + b"ACTIVITIES_ITERATIONS=5\n"
    opened.close()


def test_a_busy_profiler_and_a_registration_are_known(folder: str, client: socket.socket) -> None:
    opened = Fabric(folder, lambda pid, free: "")
    client.sendto(struct.pack("<Q32siiqi", 20, b"req", 1, 1, 0, 7), f"{folder}/dynolog")
    client.sendto(REGISTRATION, f"{folder}/dynolog")
    assert [(each.kind, each.free) for each in receive(opened)] == [("req", False), ("ctxt", False)]
    assert client.recv(1000) == struct.pack("<Q32s", 0, b"req")
    assert client.recv(1000) == struct.pack("<Q32si", 4, b"ctxt", 1)
    opened.close()


def test_a_late_question_gets_no_answer(folder: str, client: socket.socket) -> None:
    """The profiler takes it for the answer to its next question, and would be one behind for ever."""
    opened = Fabric(folder, lambda pid, free: pytest.fail("it must not be given"))
    client.sendto(QUESTION, f"{folder}/dynolog")
    time.sleep(fabric.LATE_SECONDS * 2)
    assert len(receive(opened)) == 1
    assert is_unanswered(client)
    opened.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can send as another user")
def test_datagrams_of_other_users_are_dropped(folder: str) -> None:
    os.chmod(folder, 0o755)
    opened = Fabric(folder, lambda pid, free: pytest.fail("another user's process got a request"))
    os.chmod(f"{folder}/dynolog", 0o666)  # as if nothing protected it, like an abstract name
    pid = os.fork()
    if pid == 0:
        os.setuid(65534)
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as stranger:
            stranger.bind("")
            stranger.sendto(QUESTION, f"{folder}/dynolog")
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
    assert receive(opened) == []
    assert opened.refused == 1
    opened.close()


@given(st.binary(max_size=120) | st.binary(max_size=60).map(lambda tail: QUESTION[:40] + tail))
def test_whatever_is_sent_is_either_the_protocol_or_dropped(data: bytes) -> None:
    message = Fabric._parse(1, data)
    if message is not None:
        size, kind = struct.unpack_from("<Q32s", data)
        assert size == len(data) - 40
        assert kind.split(b"\0")[0] in (b"req", b"ctxt")


def test_the_socket_is_private(folder: str) -> None:
    opened = Fabric(folder, lambda pid, free: "")
    assert stat.S_IMODE(os.stat(f"{folder}/dynolog").st_mode) == 0o600
    opened.close()
    assert os.listdir(folder) == []


@pytest.mark.parametrize("mode", [0o777, 0o775, 0o722])
def test_a_folder_that_others_can_write_to_is_not_used(folder: str, mode: int) -> None:
    os.chmod(folder, mode)
    with pytest.raises(OSError, match="only you can write to"):
        Fabric(folder, lambda pid, free: "")


def test_a_link_to_a_private_folder_is_not_used(folder: str, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(folder)
    with pytest.raises(OSError, match="only you can write to"):
        Fabric(str(tmp_path / "link"), lambda pid, free: "")


def test_a_taken_socket_names_its_holder(folder: str) -> None:
    opened = Fabric(folder, lambda pid, free: "")
    for attempt in (lambda: Fabric(folder, lambda pid, free: ""), lambda: check_free(folder)):
        with pytest.raises(SocketTakenError, match=f"held by pid {os.getpid()}: "):
            attempt()
    opened.close()
    check_free(folder)


def test_an_abstract_name_is_taken_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fabric, "NAME", f"dynolog-test-{os.getpid()}")  # the true one may be in use
    opened = Fabric("", lambda pid, free: "")
    with pytest.raises(SocketTakenError, match=f"held by pid {os.getpid()}: "):
        Fabric("", lambda pid, free: "")
    opened.close()
    check_free("")


def test_the_file_of_a_killed_daemon_is_replaced(folder: str) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as killed:
        killed.bind(f"{folder}/dynolog")
    assert os.path.exists(f"{folder}/dynolog")
    Fabric(folder, lambda pid, free: "").close()


def test_the_configuration_is_kinetos() -> None:
    request = {"steps": 5, "multiple": 40, "options": ["shapes", "stacks"]}
    assert format_config("/run/x/trace.json", request).splitlines() == [
        "ACTIVITIES_LOG_FILE=/run/x/trace.json",
        "PROFILE_START_ITERATION=0",
        "PROFILE_START_ITERATION_ROUNDUP=40",
        "ACTIVITIES_ITERATIONS=5",
        "PROFILE_REPORT_INPUT_SHAPES=true",
        "PROFILE_PROFILE_MEMORY=false",
        "PROFILE_WITH_STACK=true",
        "PROFILE_WITH_FLOPS=false",
        "PROFILE_WITH_MODULES=false",
    ]
    assert "ACTIVITIES_DURATION_MSECS=300" in format_config("/x.json", {"window_ms": 300}).splitlines()
