"""Pair sends with receives, and find the one whose peer does something else."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torchprof_hang.analysis.records import RankRecord, find_place
from torchprof_tui.trace.core.records import record

PEERS = ("dst", "src", "group_dst", "group_src")
NAMES = ("send", "recv", "isend", "irecv")


@record
class Transfer:
    """A send or receive that a rank waits in. `peer`: the other rank, -1: not recorded."""

    rank: int
    name: str
    peer: int
    place: str

    @property
    def shown(self) -> str:
        partner = f" {'to' if self.name == 'send' else 'from'} rank {self.peer}" if self.peer >= 0 else ""
        return f"{self.name}{partner}{f' at {self.place}' if self.place else ''}"

    def is_answered_by(self, other: Transfer) -> bool:
        return (self.peer, other.peer) == (other.rank, self.rank) and self.name != other.name


def find_transfer(record: RankRecord) -> Transfer | None:
    """Find the send or receive that a rank waits in: as recorded by NCCL, or in its stack, as gloo records none."""
    pending = next((each for each in record.operations if each.is_p2p and each.is_pending), None)
    if pending is not None:
        return Transfer(record.rank, pending.name, pending.peer, find_place(pending.frames))
    frame = next((each for each in record.stack if each.name in NAMES and "distributed_c10d" in each.file), None)
    if frame is None:
        return None
    peer = next((frame.peers[name] for name in PEERS if name in frame.peers), -1)
    return Transfer(record.rank, frame.name.lstrip("i"), peer, find_place(record.stack))


def explain_transfers(
    transfers: Sequence[Transfer], describe: Callable[[int], str]
) -> tuple[str, Transfer, tuple[int, ...], tuple[int, ...]] | None:
    """Explain transfers that wait. `describe`: says where a rank is that does none.

    Returns a sentence, the transfer that it is about, the ranks at fault, and those that wait; None: all are answered.
    """
    by_rank = {each.rank: each for each in transfers}
    unanswered = [each for each in transfers if each.peer not in by_rank or not each.is_answered_by(by_rank[each.peer])]
    if not unanswered:
        return None
    # At fault is who waits for one rank while another one waits for it.
    asked = [each for each in unanswered if _find_asker(each, unanswered) is not None]
    if len(asked) == len(transfers) > 1 and len({each.name for each in asked}) == 1:
        text = f"{', '.join(f'rank {each.rank}' for each in asked)} all {asked[0].name} first: {asked[0].shown}"
        return text, asked[0], tuple(each.rank for each in asked), ()
    wrong = (asked or unanswered)[0]
    peer, asker = by_rank.get(wrong.peer), _find_asker(wrong, unanswered)
    where = f"which is in {peer.shown}" if peer is not None else describe(wrong.peer)
    more = "" if asker is None else f"; rank {asker.rank} waits in {asker.shown}"
    text = f"rank {wrong.rank} waits in {wrong.shown}, {where}{more}"
    if not asked and wrong.peer >= 0:
        return text, wrong, (wrong.peer,), (wrong.rank,)
    return text, wrong, (wrong.rank,), tuple(each.rank for each in transfers if each is not wrong)


def _find_asker(transfer: Transfer, others: Sequence[Transfer]) -> Transfer | None:
    return next((each for each in others if each.peer == transfer.rank and each is not transfer), None)
