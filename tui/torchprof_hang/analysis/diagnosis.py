"""Name the cause of a hang: the rank that is at fault, its operation and line, and who waits for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from enum import Enum

from torchprof_hang.analysis.alignment import Group, align_groups, find_mismatches, format_ranks
from torchprof_hang.analysis.evidence import Evidence
from torchprof_hang.analysis.mismatch import explain_mismatch, find_own_change, predict_next
from torchprof_hang.analysis.records import (
    ENGINE_CALLS,
    Frame,
    Operation,
    RankRecord,
    State,
    find_collective,
    find_engine_call,
    find_place,
)
from torchprof_hang.analysis.transfers import explain_transfers, find_transfer
from torchprof_tui.trace.core.records import record


class Cause(Enum):
    """Why a job hangs, and what to do. The value is shown, and is in the answer."""

    action: str

    def __new__(cls, value: str, action: str) -> Cause:
        member = object.__new__(cls)
        member._value_, member.action = value, action
        return member

    SKIPPED = "skipped", "call the collective on every rank, also where a branch or a last batch leaves nothing to do"
    ORDER = "wrong order", "call the collectives of all groups in the same order on every rank"
    SIZE = "wrong size", "bring tensors of the same size on every rank: pad the last batch, or drop it"
    DTYPE = "wrong dtype", "bring tensors of the same dtype on every rank"
    GROUP = "wrong group", "pass the same process group on every rank"
    DEAD = (
        "dead rank",
        "read the end of that rank's log and the kernel's (dmesg: out of memory); is the process stopped?",
    )
    FAILED = "failed rank", "mend the exception of that rank; the others only wait for it"
    ENDED = "ended rank", "give every rank the same number of steps: join(), or a sampler that drops the rest"
    SLOW = "slow rank", "let the others wait longer, or find out what that rank computes: record it, compare with fleet"
    LOADER = (
        "data loader",
        "look at that rank's data: the storage, the workers of the loader, a sample that takes for ever",
    )
    P2P = "point-to-point", "pair each send with a receive of the same peer, in the same order on both sides"
    NETWORK = "network", "test the links between these hosts (nccl-tests), NCCL_SOCKET_IFNAME, and the firewall"
    GPU = (
        "busy GPU",
        "look at what that GPU runs before it: a long kernel, or a collective of another group (record a trace)",
    )
    BEHIND = "rank behind", "take the stacks of that rank (hang --live, py-spy dump) to see what it does"
    NONE = "no hang", "nothing waits in these files: take the dumps while the job hangs"


_CAUSES = {each.value: each for each in Cause}


@record
class Diagnosis:
    """The cause. `ranks`: at fault, () for the network; `waiting`: those that wait. Times in ns, 0: unknown.

    `operation`, `group`, `number`: what is waited for, or done wrongly; `place`: file:line of the fault. `frames`: of
    the rank at fault. `since`: when the others began to wait; `waited`: how long, until the dump; 0: unknown.
    """

    cause: Cause
    sentence: str
    ranks: tuple[int, ...] = ()
    waiting: tuple[int, ...] = ()
    operation: str = ""
    group: str = ""
    number: int = 0
    place: str = ""
    frames: tuple[Frame, ...] = ()
    since: int = 0
    waited: int = 0


@record
class Wait:
    """Ranks that wait in a collective of a group for others. `call`: as most ranks called it."""

    group: Group
    number: int
    call: Operation
    waiting: tuple[int, ...]
    absent: tuple[int, ...]

    @property
    def at(self) -> str:
        return f"#{self.number} of {self.group.label}"

    def build(
        self,
        cause: Cause,
        sentence: str,
        ranks: tuple[int, ...],
        waiting: tuple[int, ...],
        call: Operation | None = None,
        place: str = "",
        frames: tuple[Frame, ...] = (),
    ) -> Diagnosis:
        """Build the diagnosis of a call in this collective, of the usual one by default."""
        call = call or self.call
        names = call.label, self.group.label, self.number
        return Diagnosis(cause, sentence, ranks, waiting, *names, place or call.place, frames)


def diagnose(evidence: Evidence, groups: dict[str, Group] | None = None) -> Diagnosis:
    """Find the cause of the hang in the evidence."""
    return _Diagnoser(evidence, align_groups(evidence) if groups is None else groups).find()


class _Diagnoser:
    def __init__(self, evidence: Evidence, groups: dict[str, Group]) -> None:
        self._evidence, self._groups, self._records = evidence, groups, evidence.records
        self._waits = [wait for group in groups.values() if (wait := self._find_wait(group)) is not None]

    def find(self) -> Diagnosis:
        """Try the causes in turn: what is wrong for certain first, what is only slow or not known last."""
        causes = (self._find_mismatch, self._find_refused_size, self._find_stray, self._find_absent, self._find_p2p)
        for find in (*causes, self._find_network, self._find_stuck, self._find_resumed, self._find_ras):
            found = find()
            if found is not None:
                return self._add_times(found)
        return Diagnosis(Cause.NONE, f"no rank of {len(self._records):,} waits for an operation of the others")

    # --- who waits -----------------------------------------------------------------------------------------------

    def _find_wait(self, group: Group) -> Wait | None:
        """Find who waits in a group: in the first collective that is pending, or that some have not called."""
        top = max(group.last.values())
        pending = [number for number, row in group.rows.items() if any(each.is_pending for each in row.values())]
        behind = [group.last.get(rank, 0) for rank in group.members if group.last.get(rank, 0) < top]
        if not pending and not (behind and any(self._is_ended_dump(rank) for rank in group.members)):
            return None
        number = min([min(pending, default=top), *(last + 1 for last in behind if last)])
        number = min(each for each in group.rows if each >= number)  # the ring buffers no longer have all
        usual = group.find_usual(number)
        assert usual is not None
        absent = tuple(rank for rank in group.members if group.last.get(rank, 0) < number)
        waiting = tuple(rank for rank in sorted(group.rows[number]) if rank not in absent)
        return Wait(group, number, usual, waiting, absent)

    def _is_ended_dump(self, rank: int) -> bool:
        """Tell whether a rank left no dump, or one after its end, where gloo's failed operations look completed."""
        record = self._records.get(rank)
        return record is None or not record.has_recorder or bool(record.error) or not record.reason

    # --- the calls of ranks differ -------------------------------------------------------------------------------

    def _find_mismatch(self) -> Diagnosis | None:
        found = list(find_mismatches(self._groups.values()))
        if not found:
            return None
        times = [min(each.created for each in group.rows[number].values()) for group, number in found]
        group, number = found[times.index(min(times))]
        each = explain_mismatch(group, number)
        wrong, right = each.wrong, each.right
        others, who, cause = format_ranks(each.right_ranks), format_ranks(each.wrong_ranks), _CAUSES[each.kind]
        wait = Wait(group, number, right if cause is Cause.SKIPPED else wrong, each.right_ranks, ())
        if cause is Cause.SKIPPED:
            now = f"{who} {'is' if len(each.wrong_ranks) == 1 else 'are'} in {wrong.shown}"
            text = f"{who} skipped {right.shown}: {others} wait{_s(each.right_ranks)} in {wait.at}, {now}"
        elif cause is Cause.ORDER:
            text = f"{who} called {wrong.shown} where {others} called {right.shown}: {wait.at}"
        elif cause is Cause.SIZE:
            text = f"{who} brought {wrong.shown}, {others} {right.label.partition(' ')[2]}: {wait.at}"
        else:
            brought = f"{who} brought {' '.join(wrong.dtypes)} to {wrong.shown}"
            text = f"{brought}, {others} {' '.join(right.dtypes)}: {wait.at}"
        frames = self._find_stack(each.wrong_ranks[0])
        return wait.build(cause, text, each.wrong_ranks, each.right_ranks, frames=frames)

    def _find_refused_size(self) -> Diagnosis | None:
        """Find a rank that died in gloo because the data of another one had the wrong size, from its log."""
        died = next((each for each in self._records.values() if each.size_refused and not each.has_recorder), None)
        if died is None or died.size_refused is None or not self._waits:
            return None
        wait = self._waits[0]
        end = f"got {died.size_refused[0]:,} bytes instead of {died.size_refused[1]:,} in {wait.at}, and died"
        for rank in wait.waiting:
            change = find_own_change(wait.group, wait.number, rank)
            if change is not None:
                now, before = change
                is_size = now.sizes != before.sizes
                mine, was = now.shown, before.label
                if not is_size:
                    mine, was = f"{' '.join(now.dtypes)} to {mine}", " ".join(before.dtypes)
                text = f"rank {rank} brought {mine}, and {was} before: rank {died.rank} {end}"
                cause = Cause.SIZE if is_size else Cause.DTYPE
                frames = self._find_stack(rank)
                return wait.build(cause, text, (rank,), (died.rank,), now, frames=frames)
        place, others = find_place(died.stack) or wait.call.place, format_ranks(wait.waiting)
        text = f"rank {died.rank} brought another size to {wait.call.label}{_at(place)} than {others}: it {end}"
        return wait.build(Cause.SIZE, text, (died.rank,), wait.waiting, place=place, frames=died.stack)

    def _find_stray(self) -> Diagnosis | None:
        """Find ranks that are in another group than those that wait for them."""
        for wait in self._waits:
            for other in self._waits:
                is_apart = other.group.is_listed and not set(wait.waiting) & set(other.group.members)
                if other is wait or is_apart:
                    continue
                for rank in wait.absent:
                    found = self._explain_stray(rank, wait, other) if _is_pending(rank, other) else None
                    if found is not None:
                        return found
        return None

    def _explain_stray(self, rank: int, wait: Wait, other: Wait) -> Diagnosis | None:
        """Explain a rank that is in one group while others wait for it in another one: None where it is right."""
        record, mine = self._records[rank], other.group.rows[other.number][rank]
        wanted, expected = wait.call, predict_next(record.operations, mine)
        if expected is not None and (expected.group, expected.key) == (mine.group, mine.key):
            return None  # it does as in earlier steps: the others differ
        earlier = [each for each in record.operations if each is not mine]
        is_known = any((each.group, each.key) == (mine.group, mine.key) for each in earlier)
        serves_both = any(each.group == wait.group.name and each.place == mine.place for each in earlier)
        others = f"{format_ranks(wait.waiting)} wait{_s(wait.waiting)} in {wait.at}"
        frames = record.stack or mine.frames
        within = f"{mine.shown} in {other.group.label}"
        if mine.key == wanted.key and mine.place == wanted.place and not is_known:
            text = f"rank {rank} called {within}: {others}"
            return other.build(Cause.GROUP, text, (rank,), wait.waiting, mine, frames=frames)
        if expected is not None and is_known and not serves_both:
            text = f"rank {rank} skipped {wanted.shown}: {others}, rank {rank} is in {within}"
            return wait.build(Cause.SKIPPED, text, (rank,), wait.waiting, frames=frames)
        text = f"rank {rank} called {within} first, where {others}{_at(wanted.place)}"
        return other.build(Cause.ORDER, text, (rank,), wait.waiting, mine, frames=frames)

    # --- a rank has not come -------------------------------------------------------------------------------------

    def _find_absent(self) -> Diagnosis | None:
        """Find the ranks that others wait for and that wait for nobody in a collective."""
        found: dict[Cause, tuple[Wait, list[int]]] = {}
        for wait in self._waits:
            for rank in wait.absent:
                is_elsewhere = any(_is_pending(rank, other) for other in self._waits if other is not wait)
                cause = None if is_elsewhere else self._find_activity(rank)
                if cause is not None:
                    found.setdefault(cause, (wait, []))[1].append(rank)
        for cause in (Cause.DEAD, Cause.FAILED, Cause.ENDED, Cause.LOADER, Cause.SLOW, Cause.BEHIND):
            if cause in found:
                wait, ranks = found[cause]
                return self._describe_absent(cause, wait, tuple(dict.fromkeys(ranks)))
        return None

    def _find_activity(self, rank: int) -> Cause | None:
        """Find what a rank does that did not come; None: it sends or receives, which is another question."""
        record = self._records.get(rank)
        if record is None or record.is_empty:
            return Cause.DEAD
        if record.error and not record.reason.startswith("no step"):
            if not record.has_recorder and not record.error_frames:
                return Cause.DEAD
            return None if record.stack and "distributed" in record.stack[0].file else Cause.FAILED
        if record.reason == "finished":
            return Cause.ENDED
        if find_transfer(record) is not None:
            return None
        if any("torch/utils/data/" in each.file.replace("\\", "/") for each in record.stack):
            return Cause.LOADER
        return Cause.SLOW if record.threads else Cause.BEHIND

    def _describe_absent(self, cause: Cause, wait: Wait, ranks: tuple[int, ...]) -> Diagnosis:
        record = self._records.get(ranks[0]) or RankRecord(ranks[0])
        who, place = format_ranks(ranks), find_place(record.stack)
        waits = f"{format_ranks(wait.waiting)} wait{_s(wait.waiting)} in {wait.call.shown}, {wait.at}"
        if cause is Cause.DEAD:
            end = f"died: {record.error}" if record.error else "left no dump: dead, stopped, or its dump is missing"
            text = f"{who} {end}: {waits}"
        elif cause is Cause.FAILED:
            text = f"{who} failed{_at(place)}: {record.error}; {waits}"
        elif cause is Cause.ENDED:
            text = f"{who} ended after {record.steps or 0:,} steps, before the others: {waits}"
        elif cause is Cause.LOADER:
            text = f"{who} wait{_s(ranks)} for the data loader{_at(place)}: {waits}"
        elif cause is Cause.SLOW:
            went_on = f"; it went on after {record.resumed_after:.3g} s" if record.resumed_after else ""
            text = f"{who} {'is' if len(ranks) == 1 else 'are'} slow, still in compute{_at(place)}: {waits}{went_on}"
        else:
            last = record.operations[-1:]
            after = f", its last call was {last[0].shown}" if last else ""
            text = f"{who} did not come to {wait.call.shown}{after}: {waits}"
        return wait.build(cause, text, ranks, wait.waiting, place=place, frames=record.stack)

    def _find_p2p(self) -> Diagnosis | None:
        """Find a send or receive whose peer does something else."""
        transfers = [each for _, record in sorted(self._records.items()) if (each := find_transfer(record)) is not None]
        found = explain_transfers(transfers, self._describe_rank)
        if found is None:
            return None
        text, transfer, ranks, waiting = found
        place = (
            transfer.place if transfer.rank == ranks[0] else find_place(self._find_stack(ranks[0])) or transfer.place
        )
        frames = self._find_stack(ranks[0])
        return Diagnosis(Cause.P2P, text, ranks, waiting, transfer.name, place=place, frames=frames)

    def _describe_rank(self, rank: int) -> str:
        """Describe where a rank is that neither sends nor receives."""
        record = self._records.get(rank)
        if record is None:
            return "which left no dump" if rank >= 0 else "whose peer is not recorded"
        last = next((each for each in reversed(record.operations) if each.is_pending), None)
        if last is not None:
            return f"which is in {last.shown}"
        return f"which is elsewhere{_at(find_place(record.stack))}"

    # --- all have come, or nobody waits --------------------------------------------------------------------------

    def _find_network(self) -> Diagnosis | None:
        for wait in self._waits:
            row = wait.group.rows[wait.number]
            pending = tuple(rank for rank, each in sorted(row.items()) if each.is_pending)
            if wait.absent or not pending or not (wait.group.is_listed or len(row) > 1):
                continue
            at, all_ranks = f"{wait.call.shown}, {wait.at}", format_ranks(row)
            done = sorted(set(row) - set(pending))
            started = tuple(rank for rank in pending if row[rank].state is State.STARTED)
            late = tuple(rank for rank in pending if rank not in started)
            cause, ranks, waiting = Cause.NETWORK, pending[:0], pending
            if late and (started or any(self._records[rank].knows_starts for rank in late)):
                cause, ranks, waiting = Cause.GPU, late, started
                text = f"{format_ranks(late)} called {at}, and did not start it: busy with what came before on the GPU"
                text += f"; {format_ranks(started)} wait{_s(started)} in it" if started else ""
            elif done:
                text = f"{format_ranks(done)} completed {at}, {format_ranks(pending)} did not: the network, or a GPU"
            elif late:
                text = (
                    f"{all_ranks} called {at}, and none completed it: the network, or a GPU busy with what came before"
                )
            else:
                text = f"{all_ranks} all started {at}, and none completed it: the network"
            return wait.build(cause, text, ranks, waiting, frames=wait.call.frames)
        return None

    def _find_stuck(self) -> Diagnosis | None:
        """Name who is elsewhere by the stacks alone, where no flight recorder has an operation that waits."""
        stacks = {rank: each.stack for rank, each in sorted(self._records.items()) if each.stack}
        return self._compare_stacks({rank: each for rank, each in stacks.items() if self._find_activity(rank)}, "")

    def _find_resumed(self) -> Diagnosis | None:
        """Name who was slow in a job that went on, by the stacks of its first dump."""
        stacks = {rank: each.resumed_frames for rank, each in sorted(self._records.items()) if each.resumed_frames}
        longest = max((each.resumed_after or 0 for each in self._records.values()), default=0)
        return self._compare_stacks(stacks, f"; the job went on after {longest:.3g} s")

    def _compare_stacks(self, stacks: dict[int, tuple[Frame, ...]], end: str) -> Diagnosis | None:
        calls = self._group_by_call(stacks)
        away = calls.pop(("", ""), [])
        usual = max(calls, key=lambda call: (len(calls[call]), call[0].endswith(tuple(ENGINE_CALLS))), default=None)
        others = [] if usual is None else calls[usual]
        waits = f"{format_ranks(others)} wait{_s(others)} in {usual[0]}{_at(usual[1])}" if usual else "no rank waits"
        if not away and len(calls) > 1 and usual is not None:
            name, place = min((call for call in calls if call != usual), key=lambda call: len(calls[call]))
            ranks = tuple(calls[name, place])
            text = f"{format_ranks(ranks)}: in {name}{_at(place)}, {waits}: skipped, or called in another order{end}"
            return Diagnosis(Cause.ORDER, text, ranks, tuple(others), name, place=place, frames=stacks[ranks[0]])
        if not away and usual is not None and not end:
            return self._describe_same_call(tuple(others), usual, waits)
        doing = {rank: Cause.SLOW if end else self._find_activity(rank) for rank in away}
        for cause in (Cause.FAILED, Cause.LOADER):
            ranks = tuple(rank for rank, each in doing.items() if each is cause)
            if ranks:
                place, record = find_place(stacks[ranks[0]]), self._records[ranks[0]]
                is_failed = cause is Cause.FAILED
                what = f"failed{_at(place)}: {record.error}" if is_failed else f"in the data loader{_at(place)}"
                text, name = f"{format_ranks(ranks)}: {what}: {waits}{end}", self._find_label(others, usual)
                return Diagnosis(cause, text, ranks, tuple(others), name, place=place, frames=stacks[ranks[0]])
        return self._describe_away([rank for rank in away if doing[rank] is Cause.SLOW], stacks, usual, others, end)

    def _group_by_call(self, stacks: dict[int, tuple[Frame, ...]]) -> dict[tuple[str, str], list[int]]:
        """Group ranks by the collective that their stack is in and its place; ("", "") for none."""
        calls: dict[tuple[str, str], list[int]] = {}
        for rank, stack in stacks.items():
            name, record = find_collective(stack), self._records[rank]
            if not name and (engine := find_engine_call(stack)):
                # C++ waits for the collective of a hook, which may run on a thread of autograd.
                inside = (find_collective(each.frames) for each in record.threads if not each.is_main)
                name = next((f"{each} of {engine}" for each in inside if each), engine if record.is_idle else "")
            calls.setdefault((name, find_place(stack) if name else ""), []).append(rank)
        return calls

    def _describe_same_call(self, ranks: tuple[int, ...], call: tuple[str, str], waits: str) -> Diagnosis | None:
        """Describe stacks that are all in one call; None where flight recorders say that nothing waits."""
        if any(each.has_recorder for each in self._records.values()):
            return None
        missing = tuple(sorted(set(range(self._evidence.world_size)) - set(ranks)))
        frames = self._records[ranks[0]].stack
        if missing:
            text = f"{format_ranks(missing)} left no stack: dead, or on a host that was not asked: {waits}"
            return Diagnosis(Cause.DEAD, text, missing, ranks, call[0], place=call[1], frames=frames)
        text = f"{waits}, and no other rank is known: the network, or a rank that left no stack"
        return Diagnosis(Cause.NETWORK, text, (), ranks, call[0], place=call[1], frames=frames)

    def _describe_away(
        self,
        away: list[int],
        stacks: dict[int, tuple[Frame, ...]],
        usual: tuple[str, str] | None,
        others: list[int],
        end: str,
    ) -> Diagnosis | None:
        """Describe ranks that are in no collective: where most are at one line, those that are at another one."""
        places: dict[str, list[int]] = {}
        for rank in away:
            places.setdefault(find_place(stacks[rank]), []).append(rank)
        if not places:
            return None
        fewest = min(map(len, places.values()))
        accused = {place: ranks for place, ranks in places.items() if len(ranks) == fewest}
        rest = [f"{format_ranks(ranks)}{_at(place)}" for place, ranks in places.items() if place not in accused]
        if usual is not None:
            rest.insert(0, f"{format_ranks(others)} wait{_s(others)} in {usual[0]}{_at(usual[1])}")
        ranks = tuple(rank for each in accused.values() for rank in each)
        is_idle = all(self._records[rank].is_idle for rank in ranks) and not end
        what = f"wait{_s(ranks)} outside of collectives" if is_idle else "slow, in compute"
        (place, first), *more = accused.items()
        where = "".join(f", {format_ranks(each)}{_at(at)}" for at, each in more[:3])
        who = f"{format_ranks(first)}: {what}{_at(place)}{where}"
        text = f"{who}: {', '.join(rest[:3]) or 'no rank waits'}{end}"
        name = self._find_label(others, usual)
        return Diagnosis(Cause.SLOW, text, ranks, tuple(others), name, place=place, frames=stacks[ranks[0]])

    def _find_label(self, ranks: list[int], call: tuple[str, str] | None) -> str:
        """Find the recorded operation of a call in a stack, for its sizes."""
        operations = self._records[ranks[0]].operations if ranks else []
        found = (each.label for each in reversed(operations) if call == (each.name, each.place))
        return next(found, "" if call is None else call[0])

    def _find_ras(self) -> Diagnosis | None:
        for group in self._evidence.ras:
            if group.missing:
                ranks = tuple(rank for rank, _ in group.missing)
                text = f"{format_ranks(ranks)} of communicator {group.name} did not answer NCCL: {group.missing[0][1]}"
                return Diagnosis(Cause.DEAD, text, ranks, (), group.operation, group.name)
        for group in self._evidence.ras:
            if len(group.counts) > 1:
                low, high = min(group.counts), max(group.counts)
                behind, ahead = ([rank for rank, _ in group.listed.get(count, [])] for count in (low, high))
                who = format_ranks(behind) if behind else f"all but {format_ranks(ahead)}"
                where = f" ({group.listed[low][0][1]})" if behind else ""
                text = f"{who}{where} launched {group.operation} up to {low:,}, others up to {high:,}: {group.name}"
                return Diagnosis(Cause.BEHIND, text, tuple(behind), tuple(ahead), group.operation, group.name, low + 1)
        return None

    # --- parts of the answer -------------------------------------------------------------------------------------

    def _find_stack(self, rank: int) -> tuple[Frame, ...]:
        record = self._records.get(rank)
        if record is None:
            return ()
        pending = next((each for each in record.operations if each.is_pending), None)
        return record.stack or (() if pending is None else pending.frames)

    def _add_times(self, found: Diagnosis) -> Diagnosis:
        """Add since when the others wait, and until when that is known."""
        records = [self._records[rank] for rank in found.waiting or found.ranks if rank in self._records]
        times = [each.operations[-1].created for each in records if each.operations and each.operations[-1].created]
        if not times:
            return found
        ends = [each.dumped for each in self._records.values() if each.dumped]
        if ends:
            return replace(found, since=min(times), waited=max(max(ends) - min(times), 0))
        watched = max((each.since_step or 0 for each in records), default=0)  # of the watchdog's line in a log
        return replace(found, since=min(times), waited=round(watched * 1e9))


def _is_pending(rank: int, wait: Wait) -> bool:
    operation = wait.group.rows[wait.number].get(rank)
    return operation is not None and operation.is_pending


def _at(place: str) -> str:
    return f" at {place}" if place else ""


def _s(ranks: Sequence[int]) -> str:
    return "s" if len(ranks) == 1 else ""
