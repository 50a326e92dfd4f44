"""Hold one connection to each ssh host for the whole session, so that ssh asks for a passphrase at most once.

A connection is made by `ssh -N` with a control socket in a private folder; listings, ranks and files use it. ssh first
tries without asking anything, which also tells why a host cannot be reached; only where asking may help it is started
once more, on the terminal. Connections that the user shares by configuration (ControlMaster) are used in place of ours.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Sequence
from typing import IO

from torchprof_tui.trace.core.errors import TraceError
from torchprof_tui.trace.core.late_regex import compile_later
from torchprof_tui.trace.sources.ssh_command import (
    NO_CLIENT,
    SOCKET_FOLDER,
    LoginNeededError,
    SshConfig,
    build_login_command,
    build_master_command,
    create_connection_error,
    describe_refusal,
    end_ssh,
    has_open_connection,
    read_ssh_config,
    shared_socket,
    socket_name,
)
from torchprof_tui.trace.specs.address import SshPath

_POLL_SECONDS = 0.02  # interval at which a starting connection is checked; ssh reports it by creating the socket
_MAX_STDERR_BYTES = 1 << 16

_USABLE_FOLDER = compile_later(r"/[\w./-]{0,60}")
"""Folders for sockets: ssh expands `%` and splits at blanks, and a socket's path may have about 100 bytes."""

_RUN_WATCHED = r"""
exec 3<&0 </dev/null
{ trap "" HUP; read -r line <&3 || { kill $$; rm -f "$0"/*; rmdir "$0"; }; } >/dev/null 2>&1 &
exec "$@" 3<&-
"""
"""Shell script that becomes ssh and leaves a watcher: when stdin ends without a line, which only happens when this
program was killed, the watcher ends ssh and removes the folder of sockets."""


class SshConnections:
    """The connections of one session; a context manager that closes them. Methods may be called on any thread."""

    def __init__(self) -> None:
        self._folder: str | None = None
        self._masters: dict[str, _Master] = {}  # by the name of the socket
        self._starting: set[subprocess.Popen[bytes]] = set()
        self._closed = False
        self._lock = threading.Lock()  # guards the attributes above
        self._connecting = threading.Lock()  # held while a host is connected: ssh asks about one at a time

    def __enter__(self) -> SshConnections:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def connect(self, path: SshPath, allow_prompt: bool) -> None:
        """Connect to the host of a path, unless that is done already. Blocks.

        `allow_prompt`: the terminal is free, ssh may ask on it. Raises LoginNeededError where it would have to and must
        not, TraceError (one line) where the host cannot be reached or refuses the login.
        """
        with self._connecting:
            if self._is_connected(path):
                return
            if shutil.which("ssh") is None:
                raise TraceError(f"{path.spec}: {NO_CLIENT}")
            config = read_ssh_config(path)
            if config.has_control_path and has_open_connection(path):
                return
            status, stderr = self._open(path, config, allow_prompt=False)
            if status is None:
                return
            if status != 255:
                raise TraceError(f"{path.spec}: ssh ended before the connection was open (exit status {status})")
            error = create_connection_error(path, stderr)
            if not allow_prompt or not isinstance(error, LoginNeededError):
                raise error
            if self._open(path, config, allow_prompt=True)[0] is not None:
                raise TraceError(f"{path.spec}: {describe_refusal(path, stderr)}")

    def connect_all(self, paths: Sequence[SshPath], allow_prompt: bool) -> None:
        """Connect to several hosts in turn, as `connect` does.

        Raises the first LoginNeededError after the last host. Of several hosts, one that fails otherwise raises
        nothing: its traces are reported as lost.
        """
        errors = []
        for path in paths:
            try:
                self.connect(path, allow_prompt)
            except TraceError as error:
                if len(paths) == 1 or isinstance(error, LoginNeededError):
                    errors.append(error)
        if errors:
            raise errors[0]

    def stop_connecting(self) -> None:
        """End the attempts to connect that are in progress on other threads; they raise TraceError."""
        for process in list(self._starting):
            end_ssh(process)

    def close(self) -> None:
        """Close all connections and remove their folder. May be called again; `connect` then raises TraceError."""
        with self._lock:
            self._closed = True
        self.stop_connecting()
        masters, self._masters = self._masters, {}
        for master in masters.values():
            master.close()
        self._remove_unused_folder()

    def _is_connected(self, path: SshPath) -> bool:
        master = self._masters.get(socket_name(path))
        has_socket = shared_socket(path) is not None  # not where something cleans the folder of temporary files
        if master is None or (master.is_running() and has_socket):
            return has_socket  # without a master, a parent process holds it
        with self._lock:
            del self._masters[socket_name(path)]
        master.close()
        return False

    def _open(self, path: SshPath, config: SshConfig, allow_prompt: bool) -> tuple[int | None, str]:
        """Open a connection: None and "", or ssh's exit status and what it printed where that was not shown."""
        folder = None if config.persists_connection else self._create_folder()
        socket = None
        if folder is None:
            command = build_login_command(path, config, allow_prompt)
        else:
            socket = f"{folder}/{socket_name(path)}"
            with contextlib.suppress(OSError):
                os.unlink(socket)  # of a connection that was lost
            command = build_master_command(path, socket, config, allow_prompt)
        with self._lock:
            if self._closed:
                raise TraceError(f"{path.spec}: cancelled")
            try:
                master = _Master(command, folder, allow_prompt)
            except OSError as error:
                raise TraceError(f"{path.spec}: ssh cannot be started: {error.strerror}") from error
            self._starting.add(master.process)
        try:
            while master.is_running() and not (socket and os.path.exists(socket)):
                time.sleep(_POLL_SECONDS)
            if socket is not None and master.is_running():
                with self._lock:
                    if self._closed:
                        raise TraceError(f"{path.spec}: cancelled")
                    self._masters[socket_name(path)] = master
                return None, ""
            status, stderr = master.read_exit()
        except BaseException:
            master.close()
            self._remove_unused_folder()
            raise
        finally:
            self._starting.discard(master.process)
        master.close()
        self._remove_unused_folder()
        is_connected = socket is None and 0 <= status < 255  # otherwise the status of the command that was run there
        return (None, "") if is_connected else (status, stderr)

    def _remove_unused_folder(self) -> None:
        """Remove the folder where no connection is held: its watcher would remove it if this program were killed."""
        with self._lock:
            if self._folder is None or self._masters:
                return
            folder, self._folder = self._folder, None
        shutil.rmtree(folder, ignore_errors=True)
        if os.environ.get(SOCKET_FOLDER) == folder:
            del os.environ[SOCKET_FOLDER]

    def _create_folder(self) -> str | None:
        """Create the private folder of the sockets once; None where there is no place for one."""
        with self._lock:
            is_missing = self._folder is None or not os.path.isdir(self._folder)
            if is_missing and not self._closed:
                for parent in (tempfile.gettempdir(), "/tmp"):
                    if _USABLE_FOLDER.fullmatch(parent):
                        with contextlib.suppress(OSError):
                            self._folder = tempfile.mkdtemp(prefix="torchprof-tui-ssh-", dir=parent)
                            os.environ[SOCKET_FOLDER] = self._folder
                            break
            return self._folder


class _Master:
    """An ssh process that holds a connection. `folder`: of its socket, None where it opens one that ssh keeps.

    `allow_prompt`: it asks on the terminal and prints there; else it has no terminal, and its stderr is kept.
    """

    def __init__(self, command: Sequence[str], folder: str | None, allow_prompt: bool) -> None:
        self._stderr: IO[bytes] | None = None
        if not allow_prompt:
            self._stderr = tempfile.TemporaryFile(prefix="torchprof-tui-")  # noqa: SIM115  (open as long as ssh runs)
        watched = ["sh", "-c", _RUN_WATCHED, folder, *command] if folder else command
        try:
            self.process = subprocess.Popen(
                watched,
                stdin=subprocess.PIPE if folder else subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=self._stderr,
                start_new_session=not allow_prompt,
            )
        except OSError:
            self._close_stderr()
            raise

    def is_running(self) -> bool:
        return self.process.poll() is None

    def read_exit(self) -> tuple[int, str]:
        """Return the exit status of a process that has ended, and what it printed."""
        if self._stderr is None:
            return self.process.wait(), ""
        self._stderr.seek(0)
        return self.process.wait(), self._stderr.read(_MAX_STDERR_BYTES).decode(errors="replace")

    def close(self) -> None:
        """End ssh, which removes its socket, and the watcher."""
        end_ssh(self.process)
        stdin, self.process.stdin = self.process.stdin, None
        if stdin is not None:
            with contextlib.suppress(OSError):
                stdin.write(b"closed\n")
                stdin.close()
        self._close_stderr()

    def _close_stderr(self) -> None:
        if self._stderr is not None:
            self._stderr.close()
