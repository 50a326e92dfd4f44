"""Diagnose what the GPU waits for most: input, a sync, cold calls, other ranks, host code, or the launching itself."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from torchprof_tui.analysis.collectives.communication_card import CommunicationCard
from torchprof_tui.analysis.patterns.engine import thresholds
from torchprof_tui.analysis.patterns.engine.idle_causes import IdleCause
from torchprof_tui.analysis.patterns.engine.scope_view import ScopeView, format_percent
from torchprof_tui.analysis.patterns.rules.communication import (
    BUCKET_REMEDY,
    build_card_of_view,
    describe_unbucketed_reduces,
    find_slow_rate,
    measure_reduce_section,
)
from torchprof_tui.analysis.patterns.rules.host_code import measure_cpu_work
from torchprof_tui.analysis.patterns.rules.multi_gpu import exposed_waiting_time, find_late_rank
from torchprof_tui.analysis.patterns.verdict.diagnosis import Diagnosis, Evidence, diagnose_finding
from torchprof_tui.analysis.patterns.verdict.launching import diagnose_launching
from torchprof_tui.analysis.patterns.verdict.tree_model import EXPOSED
from torchprof_tui.analysis.time.intervals import NO_INTERVALS
from torchprof_tui.trace.core.arrays import sorted_unique
from torchprof_tui.trace.core.time_format import format_duration
from torchprof_tui.trace.model.event_kind import Kind


def measure_turn_taking(view: ScopeView) -> float:
    """Return the share of the device time in which a GPU waits for its turn, 0 where the GPUs take none.

    They take turns where they hardly work at the same time, and most of the time in which launched work does not start
    is time in which another GPU works: a model that was divided over GPUs layer by layer.
    """
    devices = view.tables.devices
    if len(devices) < 2 or not view.device_time:
        return 0.0
    busy = {device: view.tables.busy_intervals(device).clip(*view.window) for device in devices}
    together, total = NO_INTERVALS, sum(part.total for part in busy.values())
    for part in busy.values():
        together = together | part
    if total - together.total > thresholds.TURNS_OVERLAP.value * total:
        return 0.0
    gaps = view.gaps
    held, elsewhere = 0, 0
    for device in devices:
        waiting = view.gap_finder.list_cause_intervals(gaps, IdleCause.QUEUED, device)
        held += waiting.total
        elsewhere += (waiting & (together - busy[device])).total
    return elsewhere / view.device_time if elsewhere >= thresholds.TURNS_SHARE.value * held else 0.0


def find_waiting_events(view: ScopeView) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Return the work that waited for its turn, int64[k]."""
    events = view.gaps.next_event[view.gaps.time[:, IdleCause.QUEUED] > thresholds.PROMPT_START.value]
    return events[events >= 0]


def diagnose_waiting(evidence: Evidence) -> Diagnosis | None:
    """Diagnose the largest wait of the GPUs; None where they hardly wait."""
    candidates = [
        diagnose(evidence)
        for diagnose in (
            _diagnose_input,
            _diagnose_communication,
            _diagnose_cold_calls,
            _diagnose_cpu_work,
            _diagnose_sync,
            _diagnose_pause,
            diagnose_launching,
            _diagnose_queue,
        )
    ]
    found = [candidate for candidate in candidates if candidate is not None]
    worst = max(found, key=lambda candidate: candidate.own_share, default=None)
    return worst if worst is not None and worst.share >= thresholds.WAIT_WORTH_A_WORD.value else None


def _diagnose_input(evidence: Evidence) -> Diagnosis | None:
    share = evidence.shares.input
    if not share:
        return None
    finding = evidence.fired.get("input-starved")
    waits = evidence.view.select_in_scope(evidence.view.gap_finder.input_waits)
    has_loader = len(evidence.view.gap_finder.loader_calls) > 0
    source = "for the data loader" if has_loader else "at the start of steps, where no op runs"
    remedy = finding.remedy.action if finding else "load in worker processes, ahead of the step, into pinned memory"
    why = finding.answer.seen if finding else ""
    return Diagnosis(
        IdleCause.INPUT.id, share, f"the GPU waits {format_percent(share)} of the time {source}", remedy, why, waits.row
    )


def _diagnose_communication(evidence: Evidence) -> Diagnosis | None:
    """Diagnose communication that no computation hides: a late peer, or transfers that could overlap."""
    view, share = evidence.view, evidence.shares.communication
    if not share:
        return None
    card = build_card_of_view(view)
    waiting_time = exposed_waiting_time(view) if view.tables.rank_context is not None else card.exposed_waiting
    is_waiting = waiting_time > thresholds.WAITING_SHARE_OF_EXPOSED.value * card.exposed
    finding = evidence.fired.get("exposed-comm")
    events = finding.answer.events if finding else view.work.events.row[view.work.kind == Kind.COLLECTIVE]
    what = f"{_name_collectives(card)} takes {format_percent(share)} of the time while no kernel computes"
    late_rank, late_text = find_late_rank(view)
    if late_text and is_waiting:
        return replace(_diagnose_late_rank(evidence, late_rank, late_text), share=share, events=events)
    reduces = describe_unbucketed_reduces(view, card)
    if reduces and (view.tables.rank_context is None or not is_waiting):
        section = max(share, measure_reduce_section(view) / evidence.device_time)
        what = f"{reduces}, take {format_percent(section)} of the time with nothing computed beside, gaps included"
        return Diagnosis(EXPOSED, section, what, BUCKET_REMEDY.action, card.describe(), events)
    if is_waiting:
        what += f", {format_percent(min(waiting_time / max(card.exposed, 1), 1.0))} of it in a wait for a late rank"
        return Diagnosis(EXPOSED, share, what, "open the traces of all ranks together", card.describe(), events)
    if view.tables.rank_context is None and (rate := find_slow_rate(card)):
        what += f", at {rate:.2g} GB/s (a late rank, or a slow network)"
        return Diagnosis(EXPOSED, share, what, "open the traces of all ranks together", card.describe(), events)
    remedy = finding.remedy.action if finding else "overlap them with compute"
    return Diagnosis(EXPOSED, share, what, remedy, card.describe(), events)


def _diagnose_late_rank(evidence: Evidence, late_rank: int | None, text: str) -> Diagnosis:
    """Diagnose whom the ranks wait for, and why if it is known: a slow host, or a pause at one place."""
    straggler, slow_host = evidence.fired.get("straggler"), evidence.fired.get("slow-host")
    remedy = "check what they do before them" if late_rank is None else "check what it does before them"
    why = straggler.answer.seen if straggler else ""
    rank_context = evidence.view.tables.rank_context
    if rank_context is not None and late_rank is not None:
        speed = rank_context.arrivals.host_speed
        stalls = [stall for stall in rank_context.arrivals.host_stalls if stall.rank_index == late_rank]
        waiting = straggler.answer.at_stake if straggler else 0
        is_slow = slow_host is not None and speed.slowest == late_rank
        if is_slow and slow_host is not None and 4 * slow_host.answer.at_stake >= waiting:
            remedy = f"its host is slow, aten ops take {speed.slowest_factor:.2f}× as long as on the fastest rank"
            return Diagnosis(EXPOSED, 0.0, text, remedy, why)
        if stalls:
            stall = stalls[0]
            remedy = f"it pauses {format_duration(stall.excess)} before {stall.operator} in each step"
            return Diagnosis(EXPOSED, 0.0, text, remedy, why)
    return Diagnosis(EXPOSED, 0.0, text, remedy, why, late_rank=late_rank)


def _name_collectives(card: CommunicationCard) -> str:
    """Name the kind of collective that takes most of the time, "communication" where no kind takes most of it."""
    total = sum(row.time for row in card.rows)
    longest = max(card.rows, key=lambda row: row.time, default=None)
    return "communication" if longest is None or 2 * longest.time < total else longest.operation.value


def _diagnose_cold_calls(evidence: Evidence) -> Diagnosis | None:
    share = evidence.idle(IdleCause.COLD_CALL)
    if not share:
        return None
    compiling = evidence.op_compilation
    if 2 * compiling >= share:
        return diagnose_finding(evidence.fired["op-compilation"], IdleCause.COLD_CALL.id, compiling)
    view, share = evidence.view, share - compiling
    calls = view.select_in_scope(view.gap_finder.cold_calls)
    longest = ""
    if len(calls):
        row = int(calls.row[view.time_in_scope(calls).argmax()])
        longest = f"{view.tables.name(row)} takes {format_duration(int(view.trace.duration[row]))}"
    return Diagnosis(
        IdleCause.COLD_CALL.id,
        share,
        f"not warmed up: cold calls take {format_percent(share)} of the time" + (f" ({longest})" if longest else ""),
        "run some steps before you record; such calls happen once",
        "",
        calls.row,
        is_recording_fault=True,
    )


def _diagnose_cpu_work(evidence: Evidence) -> Diagnosis | None:
    """Diagnose ops that compute on the CPU while the GPU has nothing to do."""
    share, finding = evidence.idle(IdleCause.CPU_COMPUTE), evidence.fired.get("cpu-work")
    if finding is None or not share:
        return None
    work = evidence.view.compute_once(measure_cpu_work)
    before = ", before its first kernel" if work.is_setup else ""
    return Diagnosis(
        IdleCause.CPU_COMPUTE.id,
        share,
        f"the GPU waits {format_percent(share)} of the time for ops that compute on the CPU ({work.text}){before}",
        finding.remedy.action,
        "",
        finding.answer.events,
        is_recording_fault=work.is_setup,
    )


def _diagnose_sync(evidence: Evidence) -> Diagnosis | None:
    """Diagnose calls that wait for the GPU: the idle time during them, and what they delay."""
    share = evidence.idle(IdleCause.SYNC)
    finding = evidence.fired.get("sync-in-step")
    if finding is None:
        if not share:
            return None
        calls = evidence.view.select_in_scope(evidence.view.gap_finder.sync_calls)
        what = f"calls that wait for the GPU leave it idle {format_percent(share)} of the time"
        return Diagnosis(IdleCause.SYNC.id, share, what, "keep values on the GPU", "", calls.row)
    after_tokens = evidence.fired.get("token-sync")
    if after_tokens is not None and 2 * after_tokens.answer.at_stake >= finding.answer.at_stake:
        finding = after_tokens  # says when it waits, and what for
    delayed = finding.answer.at_stake * len(evidence.view.tables.devices) / evidence.device_time
    return diagnose_finding(finding, IdleCause.SYNC.id, max(share, min(delayed, 1 - evidence.shares.busy)))


def _diagnose_pause(evidence: Evidence) -> Diagnosis | None:
    """Diagnose long stretches of host code: a pause, not the code between two ops."""
    pause = evidence.pause
    if pause is None:
        return None
    share = pause.time / evidence.device_time
    if finding := evidence.fired.get("gc-pause"):
        collecting = finding.answer.at_stake * len(evidence.view.tables.devices)
        if 2 * collecting >= pause.time:  # else another pause is the larger one
            largest = max(share, evidence.idle(IdleCause.HOST))
            return diagnose_finding(finding, IdleCause.HOST.id, min(collecting / evidence.device_time, largest))
    if finding := evidence.fired.get("scheduler-bound"):
        between = finding.answer.at_stake * len(evidence.view.tables.devices)
        if 2 * between >= pause.time:
            return diagnose_finding(finding, IdleCause.HOST.id, max(share, between / evidence.device_time))
    line = evidence.view.tables.line_finder.find_gap_line(*pause.longest)
    remedy = (
        "move it out of the step, or launch GPU work before it"
        if line is not None or len(evidence.practices.python_frames)
        else "record with stacks (with_stack=True) to see which code it is"
    )
    place = f"in {line.text}" if line is not None else f"outside any op, {pause.place}"
    often = f"{pause.count:,}× {format_duration(pause.typical)}"
    steps = len(evidence.view.steps)
    if pause.steps == 1 and steps > 1:
        often += f", in one step of {steps}"
        stacks = "" if line is not None else ", with stacks (with_stack=True)"
        remedy = f"record more steps{stacks}: a checkpoint, an evaluation or the garbage collector comes now and then"
    what = f"the GPU waits {format_percent(share)} of the time for host code {place} ({often})"
    return Diagnosis(IdleCause.HOST.id, share, what, remedy, "", pause.events, pause)


def _diagnose_queue(evidence: Evidence) -> Diagnosis | None:
    """Diagnose work that had been launched and did not start: nothing that the CPU does."""
    view = evidence.view
    if turns := measure_turn_taking(view):
        what = f"the GPUs take turns: each waits {format_percent(turns)} of the time while another one computes"
        remedy = "split the batch into micro-batches (a pipeline), or keep the model on one GPU"
        return Diagnosis(IdleCause.QUEUED.id, turns, what, remedy, "", find_waiting_events(view))
    is_long = view.gaps.time[:, IdleCause.QUEUED] > thresholds.PROMPT_START.value
    time = int(view.gaps.time[is_long, IdleCause.QUEUED].sum())
    if not time:
        return None
    share = time / evidence.device_time
    waits = view.select_in_scope(
        view.tables.event_table(
            sorted_unique(np.concatenate([view.gap_finder.sync_calls.row, view.gap_finder.blocking_copies.row]))
        )
    )
    held = ""
    if len(waits):
        longest = int(view.time_in_scope(waits).argmax())
        held = (
            f"; at that time the CPU is in {view.tables.name(int(waits.row[longest]))} for "
            f"{format_duration(int(view.time_in_scope(waits)[longest]))}"
        )
    what = (
        f"for {format_percent(share)} of the time the next work is launched but does not start{held}; the reason "
        "was not recorded"
    )
    events = view.gaps.next_event[is_long]
    remedy = "record a longer window, with the work before it, and look for waits between streams"
    return Diagnosis(IdleCause.QUEUED.id, share, what, remedy, "", events[events >= 0])
