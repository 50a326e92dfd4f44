"""Test critical paths on literal traces, one kind of dependency each, and on real ones."""

from __future__ import annotations

from dataclasses import replace
from itertools import groupby
from typing import Any

import numpy as np
import pytest

from tests.analysis.critical_path.test_against_simulation import assert_tiled
from tests.helpers.long_run import keep_some
from tests.helpers.paths import SAMPLES, SHARED_TRACES
from tests.helpers.stored_answers import load_dense
from tests.helpers.trace_builder import (
    annotation,
    cpu,
    kernel,
    memcpy,
    overhead,
    python,
    runtime,
    step,
    sync,
    trace,
)
from torchprof_tui.analysis.critical_path import critical_path
from torchprof_tui.analysis.critical_path.build_graph import (
    _WHERE,
    MORE_STEPS_ADVICE,
    SYNC_EVENTS_ADVICE,
    build_graph,
    describe_missing_edges,
)
from torchprof_tui.analysis.critical_path.critical_path import CriticalPath, RankShare, find_critical_path
from torchprof_tui.analysis.critical_path.dependency_graph import EdgeKind
from torchprof_tui.analysis.critical_path.segments import LABELS, Segments
from torchprof_tui.analysis.critical_path.step_window import WindowError, select_step, select_window
from torchprof_tui.api.trace import open as open_trace
from torchprof_tui.trace.core.time_format import format_duration
from torchprof_tui.trace.model.trace import Trace

AUTOGRAD = 200
HTA_CASES = SHARED_TRACES / "public" / "facebookresearch+HolisticTraceAnalysis"


def list_pieces(model: Trace, path: CriticalPath) -> list[tuple[str, str, float]]:
    """List the segments: kind, name of the event, µs."""
    segments = path.segments
    return [
        (
            LABELS[kind],
            model.event(event).name if event >= 0 else "",
            (segments.end[k] - segments.start[k]) / 1000,
        )
        for k, (kind, event) in enumerate(zip(segments.kind.tolist(), segments.event.tolist(), strict=True))
    ]


def follow(*entries: Any, number: int | None = None) -> tuple[Trace, CriticalPath, list[tuple[str, str, float]]]:
    model = trace(*entries)
    path = find_critical_path(model, number)
    assert_tiled(path)
    return model, path, list_pieces(model, path)


def test_without_gpu_the_path_is_what_the_thread_does_at_each_time() -> None:
    _, path, pieces = follow(
        step(1, 0, 100), cpu("aten::linear", 10, 50), cpu("aten::mm", 20, 20), cpu("aten::relu", 60, 10)
    )
    assert pieces == [
        ("host code", "ProfilerStep#1", 10),
        ("dispatch", "aten::linear", 10),
        ("dispatch", "aten::mm", 20),
        ("dispatch", "aten::linear", 20),
        ("dispatch", "aten::relu", 10),
        ("host code", "ProfilerStep#1", 30),
    ]
    assert path.slack_of(2) == 0


def test_a_blocking_call_leads_to_the_kernel_that_it_waits_for() -> None:
    model, path, pieces = follow(
        step(1, 0, 100),
        cpu("aten::mm", 0, 12),
        runtime("cudaLaunchKernel", 4, 6, 1),
        kernel("gemm_kernel", 13, 60, 1),
        runtime("cudaDeviceSynchronize", 20, 56, 2),
    )
    assert pieces == [
        ("dispatch", "aten::mm", 4),
        ("launch", "cudaLaunchKernel", 6),
        ("GPU queue", "cudaLaunchKernel", 3),
        ("kernel", "gemm_kernel", 60),
        ("blocking call", "cudaDeviceSynchronize", 3),
        ("host code", "ProfilerStep#1", 24),
    ]
    assert path.slack_of(int(np.flatnonzero(model.name == model.names.index("gemm_kernel"))[0])) == 0
    assert path.inferred == 0  # the call waits for all streams: nothing needs to say which one


def test_a_copy_that_ended_inside_its_call_blocked_it() -> None:
    _, _, pieces = follow(
        step(1, 0, 50), runtime("cudaMemcpyAsync", 10, 30, 1), memcpy("Memcpy DtoH (Device -> Pageable)", 14, 22, 1)
    )
    assert (
        pieces[1:4]
        == [
            ("launch", "cudaMemcpyAsync", 4),
            ("copy", "Memcpy DtoH (Device -> Pageable)", 22),
            ("blocking call", "cudaMemcpyAsync", 4),
        ]
        or pieces[3][0] == "launch"
    )


def test_work_after_the_cpu_has_finished_belongs_to_the_step() -> None:
    _, path, pieces = follow(
        step(1, 0, 20), runtime("cudaLaunchKernel", 10, 5, 1), kernel("a", 16, 50, 1), kernel("b", 67, 10, 1)
    )
    assert path.duration == 77_000
    assert [name for kind, name, _ in pieces if kind == "kernel"] == ["a", "b"]


def test_a_stream_that_waits_for_an_event_follows_the_other_stream() -> None:
    _, path, pieces = follow(
        step(1, 0, 30),
        runtime("cudaLaunchKernel", 0, 2, 1),
        kernel("first", 3, 80, 1, stream=7),
        runtime("cudaEventRecord", 3, 1, 2),
        runtime("cudaStreamWaitEvent", 5, 1, 3),
        sync("Stream Wait Event", 5, 1, 3, stream=8, wait_on_stream=7, wait_on_cuda_event_record_corr_id=2),
        runtime("cudaLaunchKernel", 8, 2, 4),
        kernel("second", 84, 10, 4, stream=8),
    )
    assert [name for kind, name, _ in pieces if kind == "kernel"] == ["first", "second"]
    assert (path.graph.edge_kind == EdgeKind.EVENT).sum() == 1
    assert path.inferred == 0


def test_without_sync_events_the_order_of_calls_says_which_event() -> None:
    _, path, pieces = follow(
        step(1, 0, 30),
        runtime("cudaLaunchKernel", 0, 2, 1),
        kernel("first", 3, 80, 1, stream=7),
        runtime("cudaEventRecord", 3, 1, 2),
        runtime("cudaStreamWaitEvent", 5, 1, 3),
        runtime("cudaLaunchKernel", 8, 2, 4),
        kernel("second", 84, 10, 4, stream=8),
    )
    assert [name for kind, name, _ in pieces if kind == "kernel"] == ["first", "second"]
    assert path.inferred == 1


def test_the_order_of_calls_says_which_work_waits_where_it_could_have_started_just_before() -> None:
    """The first work of the first stream begins 1 µs after the other stream, and 3 µs after its launch."""
    _, path, pieces = follow(
        step(1, 0, 30),
        runtime("cudaLaunchKernel", 0, 2, 1),
        kernel("first", 3, 9, 1, stream=8),
        runtime("cudaEventRecord", 3, 1, 2),
        runtime("cudaStreamWaitEvent", 5, 1, 3),
        runtime("cudaLaunchKernel", 8, 2, 4),
        kernel("second", 13, 40, 4, stream=7),
    )
    assert [name for kind, name, _ in pieces if kind == "kernel"] == ["first", "second"]
    assert path.inferred == 1


def test_an_event_recorded_long_before_is_found_by_the_time_at_which_the_work_started() -> None:
    """As `work.wait()` of a collective: other launches and records lie between the event and the wait for it."""
    _, path, pieces = follow(
        step(1, 0, 60),
        runtime("cudaLaunchKernel", 0, 2, 1),
        kernel("collective", 3, 90, 1, stream=20),
        runtime("cudaEventRecord", 3, 1, 2),
        runtime("cudaLaunchKernel", 6, 2, 3),
        kernel("overlapped", 9, 20, 3, stream=7),
        runtime("cudaEventRecord", 10, 1, 4),
        runtime("cudaStreamWaitEvent", 12, 1, 5),
        runtime("cudaLaunchKernel", 14, 2, 6),
        kernel("optimizer", 95, 10, 6, stream=7),
    )
    assert [name for kind, name, _ in pieces if kind == "kernel"] == ["collective", "optimizer"]
    assert path.inferred == 1


def test_the_backward_pass_runs_while_the_calling_thread_waits() -> None:
    _, path, pieces = follow(
        step(1, 0, 100),
        cpu("aten::mse_loss", 0, 10),
        python("<built-in method run_backward>", 12, 70),
        cpu("autograd::engine::evaluate_function: MulBackward0", 20, 30, thread=AUTOGRAD),
        cpu("aten::mul", 30, 10, thread=AUTOGRAD),
        cpu("autograd::engine::evaluate_function: AddBackward0", 52, 20, thread=AUTOGRAD),
        cpu("aten::add_", 85, 5),
    )
    assert ("dispatch", "aten::mul", 10) in pieces
    names = [name for _, name, _ in pieces]
    assert names.index("aten::mse_loss") < names.index("aten::mul") < names.index("aten::add_")
    assert not [each for each in pieces if each[0] == "unattributed"]
    assert path.inferred == 2


WITHOUT_STEP = [
    runtime("cudaDeviceSynchronize", 11, 77, 2),
    runtime("cudaLaunchKernel", 90, 2, 3),
    kernel("next", 93, 1, 3, stream=9),
]


@pytest.mark.parametrize("others", [[step(1, 0, 20)], WITHOUT_STEP])
def test_branches_of_a_graph_replay_are_joined_without_recorded_edges(others: list[dict[str, Any]]) -> None:
    """Also where the launch is event 0."""
    _, _, pieces = follow(
        *others,
        runtime("cudaGraphLaunch", 0, 10, 1),
        kernel("root", 12, 10, 1, stream=7),
        kernel("branch", 24, 50, 1, stream=8),
        kernel("join", 76, 10, 1, stream=7),
    )
    assert [name for kind, name, _ in pieces if kind == "kernel"][:3] == ["root", "branch", "join"]


def test_time_in_the_data_loader_is_input_with_the_ops_in_it() -> None:
    _, path, _ = follow(
        step(1, 0, 60),
        annotation("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 5, 40),
        cpu("aten::stack", 10, 20),
    )
    assert {share.label: share.time for share in path.shares} == {"input": 40_000, "host code": 20_000}


def test_a_step_begins_where_the_gpu_work_of_the_step_before_has_ended() -> None:
    model, path, pieces = follow(
        step(1, 0, 20),
        runtime("cudaLaunchKernel", 5, 5, 1),
        kernel("old", 12, 60, 1),
        step(2, 20, 20),
        runtime("cudaLaunchKernel", 25, 5, 2),
        kernel("new", 73, 10, 2),
        number=2,
    )
    assert path.window.start == 20_000
    assert path.window.begin == 72_000
    assert path.duration == 11_000
    assert pieces == [("GPU queue", "new", 1), ("kernel", "new", 10)]
    assert path.sum_off_path(model, 5) == []  # what the step before launched is none of this step's work


def test_a_wait_without_a_reason_is_unattributed_and_says_what_to_record() -> None:
    entries = [
        step(1, 0, 30),
        runtime("cudaLaunchKernel", 0, 2, 1),
        kernel("first", 3, 20, 1),
        runtime("cudaLaunchKernel", 8, 2, 2),
        kernel("late", 500, 10, 2),
    ]
    _, path, pieces = follow(*entries)
    assert [kind for kind, _, time in pieces if time > 400] == ["unattributed"]
    assert path.replay_error < -0.5
    assert not path.is_trusted
    assert "between two works of a stream" in path.missing[0]
    assert path.advice == SYNC_EVENTS_ADVICE
    assert path.find_longest(3)[0].time <= 20_000


@pytest.mark.parametrize(
    ("durations", "chosen"),
    [
        ([7], 0),
        ([9, 5], 1),  # of an even number the shorter one
        ([5, 9], 0),
        ([1, 9, 5], 2),  # of three or more without the first
        ([6, 9, 5, 7], 3),
        ([1, 8, 5, 7, 6], 4),
        ([1, 8, 5, 7, 6, 9], 3),
        ([1, 5, 5, 5], 2),
    ],
)
def test_the_step_of_median_duration_is_chosen(durations: list[int], chosen: int) -> None:
    steps = [step(number, sum(durations[:number]), duration) for number, duration in enumerate(durations)]
    selected = select_step(trace(*steps), None)
    assert selected is not None
    assert selected.number == chosen


@pytest.mark.parametrize(("start", "works"), [(48, [(48, 50), (15, 50)]), (49, [(49, 50), (15, 50)]), (50, [(15, 50)])])
def test_a_step_has_the_work_that_starts_before_its_own_ends(start: int, works: list[tuple[int, int]]) -> None:
    model = trace(
        runtime("cudaLaunchKernel", 0, 2, 1),  # before the step
        step(1, 10, 10),
        runtime("cudaLaunchKernel", 12, 2, 2),
        kernel("own", 15, 35, 2),
        kernel("earlier", start, 9, 1, stream=6),
        ns=True,
    )
    window = select_window(model, select_step(model, 1))
    assert (window.cpu_end, window.end) == (20, 50)
    assert list(zip(window.work.start.tolist(), window.work.end.tolist(), strict=True)) == works


@pytest.mark.parametrize(
    ("start", "follows", "is_taken"), [(19, False, True), (20, False, False), (30, False, False), (30, True, True)]
)
def test_work_without_a_launch_was_launched_before_it_began_and_before_the_next(
    start: int, follows: bool, is_taken: bool
) -> None:
    entries = [
        step(1, 0, 20),
        runtime("cudaLaunchKernel", 2, 2, 1),
        kernel("own", 5, 45, 1),
        kernel("other", start, 3, stream=6),
        runtime("cudaLaunchKernel", 19 if follows else 21, 1, 2),
        kernel("next", 40, 5, 2, stream=6),
    ]
    window = select_window(model := trace(*entries, ns=True), select_step(model, 1))
    names = {model.event(event).name for event in window.work.event.tolist()}
    assert names == {"own", *(["other"] if is_taken else []), *(["next"] if follows else [])}


def test_what_the_graph_lacks_is_counted() -> None:
    model, path, _ = follow(step(1, 0, 30), runtime("cudaLaunchKernel", 0, 2, 1), kernel("first", 3, 20, 1))
    built = build_graph(model, path.window)
    assert describe_missing_edges(model, built, 0)[0] == ()
    graph = replace(built.graph, dropped=4)
    built = replace(built, graph=graph, unknown_waits=1200, unknown_blocks=2, unlaunched=3)
    assert describe_missing_edges(model, built, 5000)[0] == (
        "5.00 µs in which a stream did work from before the recording",
        "1,200 cudaStreamWaitEvent: which event they wait for was not recorded",
        "2 blocking calls: no GPU work that they wait for was recorded",
        "3 works of the GPU: their launch was not recorded",
        "4 dependencies left out: the recorded times contradict them",
    )


def test_what_is_missing_is_said_beyond_the_largest_replay_error(monkeypatch: pytest.MonkeyPatch) -> None:
    first = [step(1, 0, 30), runtime("cudaLaunchKernel", 0, 2, 1), kernel("first", 3, 20, 1)]
    unexplained = [*first, runtime("cudaLaunchKernel", 8, 2, 2), kernel("late", 500, 10, 2)]
    earlier = [*first[:2], kernel("late", 500, 500, 1)]
    for entries, largest in ((unexplained, abs(follow(*unexplained)[1].replay_error)), (earlier, 0.5)):
        monkeypatch.setattr(critical_path, "MAX_REPLAY_ERROR", largest)
        _, path, _ = follow(*entries)
        assert (path.missing, path.advice, path.is_trusted) == ((), "", True)
        monkeypatch.setattr(critical_path, "MAX_REPLAY_ERROR", largest - 0.001)
        _, path, _ = follow(*entries)
        assert len(path.missing) == 1
        assert path.is_trusted == (entries is earlier)


def test_slack_is_known_of_the_events_of_the_window() -> None:
    model, path, _ = follow(
        cpu("aten::mm", 0, 5), step(1, 10, 30), cpu("aten::mm", 12, 5), cpu("aten::mm", 50, 5), number=1
    )
    assert path.event.tolist() == [1, 2]
    assert [path.slack_of(event) for event in range(len(model))] == [None, *path.slack.tolist(), None]


@pytest.mark.parametrize("ranks", [[], [0], [1, 1], [1, 0, 1], [2, 2, 0, 2, 1, 1, 1], [0, -1]])
def test_the_time_of_each_rank_is_summed(ranks: list[int]) -> None:
    _, path, _ = follow(step(1, 0, 30))
    end = np.cumsum(np.arange(1, len(ranks) + 1)) * 1000
    columns = {name: np.zeros(len(ranks), np.int32) for name in ("kind", "kernel_class", "event")}
    segments = Segments(end - np.arange(1, len(ranks) + 1) * 1000, end, **columns, rank=np.array(ranks, np.int32))
    parts = [(rank, len(list(part))) for rank, part in groupby(ranks)]
    times = {rank: sum(int(k + 1) * 1000 for k, each in enumerate(ranks) if each == rank) for rank in set(ranks)}
    expected = [
        RankShare(rank, time, time / 30_000, sum(each == rank for each, _ in parts))
        for rank, time in sorted(times.items(), key=lambda each: (-each[1], each[0]))
    ]
    assert replace(path, segments=segments).rank_shares == tuple([] if -1 in ranks else expected)


def test_waits_that_no_edge_explains_are_summed_by_kind() -> None:
    """Compared with a loop over the edges that decided when their target was reached."""
    seen = 0
    for seed in (1, 5, 7):
        model = load_dense(seed, 200)
        for built in (build_graph(model, select_window(model, each)) for each in (None, *model.steps[1:2])):
            graph, found = built.graph, dict[str, list[int]]()
            for edge, target in enumerate(graph.target.tolist()):
                lasts = int(graph.time[target] - graph.time[graph.source[edge]] - graph.delay[edge])
                where = _WHERE.get(EdgeKind(graph.edge_kind[edge]))
                if graph.binding[target] == edge and graph.time[target] > graph.window.begin and lasts and where:
                    found.setdefault(where, []).append(lasts)
            order = sorted(_WHERE.values(), key=lambda where: -sum(found.get(where, [])))
            expected = [
                f"{format_duration(sum(found[where]))} in {len(found[where])} "
                f"{'wait' if len(found[where]) == 1 else 'waits'} {where}: no recorded dependency"
                for where in dict.fromkeys(order)
                if where in found
            ]
            lines, _ = describe_missing_edges(model, built, 0)
            assert [line for line in lines if line.endswith("no recorded dependency")] == expected
            seen += len(expected) > 1
    assert seen > 2


def test_a_late_first_work_points_to_what_came_before_the_recording() -> None:
    _, path, pieces = follow(step(1, 0, 30), runtime("cudaLaunchKernel", 0, 2, 1), kernel("late", 500, 10, 1))
    assert path.advice == MORE_STEPS_ADVICE
    assert path.missing == ("500.0 µs in which a stream did work from before the recording",)
    assert pieces == [("unattributed", "late", 500), ("kernel", "late", 10)]
    assert path.replay_error == 0


def test_work_from_before_the_recording_is_what_the_gpu_does_and_not_of_the_step() -> None:
    """As `attention_naive`: both kernels were launched before the recording, the second starts after the step."""
    model, path, pieces = follow(
        kernel("running", 0, 50, 1),
        kernel("waiting", 52, 40, 2),
        step(1, 5, 30),
        runtime("cudaLaunchKernel", 10, 2, 3),
        kernel("first", 94, 10, 3),
        kernel("later", 200, 10, 4),  # no launch follows on its stream: it may be of a later step
    )
    assert pieces == [("GPU queue", "first", 2), ("kernel", "first", 10)]  # the step begins when both have ended
    assert not path.missing
    ranged = find_critical_path(model, time_range=(5_000, 104_000))
    assert_tiled(ranged)
    assert list_pieces(model, ranged) == [  # what the GPU does then is on the path of a range
        ("kernel", "running", 45),
        ("GPU queue", "waiting", 2),
        ("kernel", "waiting", 40),
        *pieces,
    ]


def test_a_stream_is_held_by_work_whose_launch_is_from_before_the_recording() -> None:
    """As `attention_math`: of the last step before the recording the trace holds only the kernel that ran into it."""
    _, path, pieces = follow(
        kernel("before", 0, 40, 1),
        step(1, 5, 30),
        runtime("cudaLaunchKernel", 10, 2, 2),
        kernel("first", 300, 10, 2),
        runtime("cudaLaunchKernel", 20, 2, 3),
        kernel("second", 311, 10, 3),
    )
    assert path.replay_error == 0
    assert path.advice == MORE_STEPS_ADVICE
    assert pieces[0] == ("unattributed", "first", 260)


def test_a_call_waits_for_work_from_before_the_recording() -> None:
    """As a Qwen chat: the GPU is 2 µs behind the return of the profiler's own wait, by its clock."""
    work = [kernel(f"old{number}", 1 + 10 * number, 9, number) for number in range(1, 6)]
    entries = [
        *work,
        step(1, 0, 100),
        runtime("cudaDeviceSynchronize", 2, 56, 10),
        runtime("cudaLaunchKernel", 70, 5, 11),
        kernel("new", 78, 10, 11),
    ]
    model, path, _ = follow(*entries)
    assert path.window.begin == 60_000
    assert path.duration == 40_000
    assert {share.label: share.time for share in path.shares} == {"host code": 35_000, "launch": 5_000}
    ranged = find_critical_path(model, time_range=(0, 100_000))
    assert ("blocking call", "cudaDeviceSynchronize", 8) in list_pieces(model, ranged)
    assert [name for kind, name, _ in list_pieces(model, ranged) if kind == "kernel"] == [
        "old1",
        "old2",
        "old3",
        "old4",
    ]


@pytest.mark.parametrize("overlap", [0.032, 0.639, 1.25, 13])
def test_works_of_a_stream_keep_their_order_where_their_times_overlap(overlap: float) -> None:
    """By the resolution of a clock (RTX 3060), or because the second one was let in early (Hopper)."""
    model, path, pieces = follow(
        step(1, 0, 30),
        runtime("cudaGraphLaunch", 2, 8, 1),
        kernel("a", 12, 40, 1),
        kernel("b", 52 - overlap, 30, 1),
        kernel("c", 82 - 2 * overlap, 30, 1),
    )
    assert [(name, pytest.approx(time)) for kind, name, time in pieces if kind == "kernel"] == [
        ("a", 40),
        ("b", 30 - overlap),
        ("c", 30 - overlap),
    ]
    assert path.replay_error == 0
    assert path.sum_off_path(model, 5) == []


def test_work_that_ends_within_another_one_of_its_stream_runs_beside_it() -> None:
    """As branches of a graph that are recorded on one stream."""
    model, path, pieces = follow(
        step(1, 0, 30),
        runtime("cudaGraphLaunch", 2, 8, 1),
        kernel("root", 11, 4, 1),
        kernel("long", 16, 40, 1),
        kernel("short", 20, 10, 1),
        kernel("join", 57, 10, 1),
    )
    assert [name for kind, name, _ in pieces if kind == "kernel"] == ["root", "long", "join"]
    assert [model.names[each.name] for each in path.sum_off_path(model, 5)] == ["short"]


def test_a_wait_that_an_event_explains_is_not_from_before_the_recording() -> None:
    _, path, _ = follow(
        step(1, 0, 60),
        runtime("cudaLaunchKernel", 0, 2, 1),
        kernel("other stream", 3, 80, 1, stream=8),
        runtime("cudaEventRecord", 4, 1, 2),
        runtime("cudaStreamWaitEvent", 6, 1, 3),
        runtime("cudaLaunchKernel", 8, 2, 4),
        kernel("waits", 84, 10, 4, stream=7),
    )
    assert path.missing == ()
    assert path.graph.edge_kind[path.graph.binding[path.graph.work_start]].tolist().count(EdgeKind.EARLIER) == 0


@pytest.mark.parametrize("count", [600, 300])
def test_a_launch_that_waits_for_room_in_a_full_queue_is_no_cpu_time(count: int) -> None:
    """All is launched within 3 ms, works of 10 µs each; the last launch returns when the 50th work has begun."""
    entries = [step(1, 0, 5 * count + 600)]
    for number in range(count):
        entries.append(runtime("cudaLaunchKernel", 5 * number, 2, number + 1))
        entries.append(kernel("work", 5 * count + 11 * number, 10, number + 1))
    entries.append(runtime("cudaLaunchKernel", 5 * count, 551, count + 1))
    entries.append(kernel("last", 5 * count + 11 * count, 10, count + 1))
    _, path, _ = follow(*entries)
    room = np.flatnonzero(path.graph.edge_kind == EdgeKind.ROOM)
    assert len(room) == (count == 600)  # 300 works do not fill a queue: the call was slow
    if len(room):
        assert path.graph.recorded[room[0]] <= 11_000


def test_a_launch_waits_for_room_until_the_first_work_of_the_recording_has_ended() -> None:
    """600 works are launched within 3 ms; of those only the first has begun when the last launch returns."""
    entries = [step(1, 0, 3600)]
    for number in range(601):
        start, duration = (3, 3545) if not number else (3550 + 11 * number, 10)
        entries.append(runtime("cudaLaunchKernel", 5 * number, 551 if number == 600 else 2, number + 1))
        entries.append(kernel("work", start, duration, number + 1))
    _, path, _ = follow(*entries)
    graph = path.graph
    (room,) = np.flatnonzero(graph.edge_kind == EdgeKind.ROOM)
    assert graph.source[room] == graph.work_end[0]
    assert (graph.time[graph.source[room]], graph.time[graph.target[room]]) == (3_548_000, 3_551_000)


def test_dependencies_that_the_times_contradict_are_left_out_and_counted() -> None:
    _, path, _ = follow(step(1, 0, 60), runtime("cudaLaunchKernel", 20, 9, 1), kernel("too early", 10, 5, 1))
    assert path.graph.dropped == 1


def test_slack_of_work_off_the_path() -> None:
    model, path, _ = follow(
        step(1, 0, 100),
        runtime("cudaLaunchKernel", 0, 5, 1),
        kernel("short", 6, 10, 1, stream=7),
        runtime("cudaLaunchKernel", 6, 5, 2),
        kernel("long", 12, 60, 2, stream=8),
        runtime("cudaDeviceSynchronize", 20, 54, 3),
    )
    (off_path,) = path.sum_off_path(model, 5)
    assert model.names[off_path.name] == "short"
    assert off_path.slack == 56_000  # until 72 µs, when "long" ends
    assert (off_path.count, off_path.time) == (1, 10_000)


@pytest.mark.parametrize(
    "entries",
    [
        [step(1, 0, 0)],
        [step(1, 5, 10), kernel("zero", 7, 0, 1)],
        [step(1, 5, 10), overhead("Buffer Flush", 7, 2)],
        [step(1, 5, 10), runtime("cudaDeviceSynchronize", 8, 2, 3), runtime("cudaStreamWaitEvent", 11, 0, 9)],
        [kernel("only", 7, 3, 1)],
        [runtime("cudaLaunchKernel", 0, 9, 1), kernel("a", 3, 5, 1), kernel("overlaps", 4, 5, 1)],
    ],
)
def test_odd_recordings_are_tiled_or_refused_in_one_line(entries: list[Any]) -> None:
    model = trace(*entries)
    if model.span[1] == model.span[0] or not any(lane.kind == "cpu" for lane in model.lanes) or not model.duration[0]:
        with pytest.raises(WindowError, match="nothing to follow"):
            find_critical_path(model)
    else:
        assert_tiled(find_critical_path(model))


def test_a_step_that_is_not_there_is_refused() -> None:
    with pytest.raises(WindowError, match="no step 9: the trace has steps 1 to 1"):
        find_critical_path(trace(step(1, 0, 10)), 9)


@pytest.mark.parametrize(
    "sample", keep_some(sorted(SAMPLES.glob("*.json.gz")), 6), ids=lambda path: path.name.split(".")[0]
)
def test_all_steps_of_the_samples_are_tiled(sample: Any) -> None:
    with open_trace(sample) as opened:
        numbers: list[int | None] = [each.number for each in opened.steps]
        for number in numbers or [None]:
            path = opened.critical_path(step=number)
            assert_tiled(path)
            assert path.replayed <= path.duration
            assert (path.slack >= 0).all()
            assert (np.diff(path.event) > 0).all()  # each event once: work is not listed with its stream again
            assert (path.slack_of_events(path.path_events[0]) >= 0).all()


@pytest.mark.skipif(not HTA_CASES.is_dir(), reason="no shared traces")
@pytest.mark.parametrize(
    ("name", "kernels"),
    [
        (
            "cuda_event_sync_event_sync_trace",
            ["Memcpy DtoH (Device -> Pageable)", "at::cuda::(anonymous namespace)::spin_kernel(long)"],
        ),
        ("cuda_event_sync_multi_stream_event_sync_trace", ["ampere_sgemm_128x64_nn"]),
    ],
)
def test_the_gpu_work_on_the_path_of_public_cases(name: str, kernels: list[str]) -> None:
    """See README.md for the comparison with HolisticTraceAnalysis."""
    with open_trace(HTA_CASES / f"{name}.json.gz") as opened:
        path = opened.critical_path()
        model = opened._model
        found = [text for kind, text, _ in list_pieces(model, path) if kind in ("kernel", "copy")]
        assert found == kernels
        assert path.replay_error == 0
        assert (path.graph.edge_kind == EdgeKind.SYNC).any()


@pytest.mark.skipif(not HTA_CASES.is_dir(), reason="no shared traces")
@pytest.mark.parametrize(
    ("name", "bounds", "works", "said"),
    [
        # simple_add: the GPU had finished 235 µs before the thread asked
        ("benchmark_result_493459_1694039959_trace", (40_898_446_000, 41_141_797_000), 0, "runtime call"),
        # alexnet: HTA counts 505 µs as a gap in which stream 7 waits for three kernels of stream 20
        ("benchmark_result_2869224_1695835535_trace", (43_313_521_000, 43_349_877_000), 34, "runtime call"),
    ],
)
def test_the_annotations_of_the_public_cases(name: str, bounds: tuple[int, int], works: int, said: str) -> None:
    """See README.md for the comparison with HolisticTraceAnalysis."""
    with open_trace(HTA_CASES / f"{name}.json.gz") as opened:
        path = opened.critical_path(start_ns=bounds[0], end_ns=bounds[1])
        found = [text for kind, text, _ in list_pieces(opened._model, path) if kind in ("kernel", "copy")]
        assert len(found) == works
        assert ("ampere_gcgemm_64x64_nt" in found) == bool(works)
        assert path.shares[0].label == said
        assert abs(path.replay_error) < 0.001
        assert_tiled(path)
