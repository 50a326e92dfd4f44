"""The app's answers reach the recorder."""

from __future__ import annotations

import os

from torchprof_runs.recorder.size_question import SizeQuestion, find_answerer
from torchprof_runs.recorder.status_messages import Reporter
from torchprof_tui.runs.recording_process import AnswerPipe

QUESTION = SizeQuestion(steps=3, bytes=3 * 10**9, fewer=1, fewer_bytes=10**9)


def test_an_answer_reaches_the_recorder_and_odd_characters_are_skipped() -> None:
    pipe = AnswerPipe()
    try:
        ask = find_answerer(pipe.environment, Reporter())
        assert ask is not None
        for character in "xf":
            pipe.send(character)
        assert ask(QUESTION) == "f"
    finally:
        pipe.close()


def test_without_the_app_there_is_no_answer() -> None:
    pipe = AnswerPipe()
    environment = pipe.environment
    pipe.close()
    assert not os.path.exists(next(iter(environment.values())))
    ask = find_answerer(environment, Reporter())
    assert ask is not None
    assert ask(QUESTION) is None
