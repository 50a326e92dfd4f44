"""Answers to the questions of a run that the app shows: a named pipe, in which each answer is one character.

`torchprof_runs.recorder.status_messages` describes the questions.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile

ANSWERS_VARIABLE = "TORCHPROF_ANSWERS"


class AnswerPipe:
    """The pipe of one run. Start the run with `environment`; call `send` when it asks."""

    def __init__(self) -> None:
        self._folder = tempfile.mkdtemp(prefix="torchprof-tui-answers-")
        self._path = os.path.join(self._folder, "answers")
        os.mkfifo(self._path, 0o600)
        # A reader in this process, so that the pipe can be opened for writing before the run opens it.
        self._read_fd = os.open(self._path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        self._write_fd = os.open(self._path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)

    @property
    def environment(self) -> dict[str, str]:
        """Environment variables to add for the run, which then asks the app and not the terminal."""
        return {ANSWERS_VARIABLE: self._path}

    def send(self, answer: str) -> None:
        """Send one character; it is dropped if the pipe is full."""
        with contextlib.suppress(BlockingIOError):
            os.write(self._write_fd, answer.encode("ascii"))

    def close(self) -> None:
        for descriptor in (self._read_fd, self._write_fd):
            os.close(descriptor)
        shutil.rmtree(self._folder, ignore_errors=True)
