"""A queue's life, record by record: its state behind any of them, forwards and back.

    replay = Replay(log)          # of native/log.py or brokers/rabbitmq/log.py
    replay.go_to(1000)            # the state behind the first 1000 records
    replay.go_to(999)             # from a checkpoint, not from the start

A step is one record of a journal, or one frame that holds none (manifest, session, mark, purge,
close). Step 0 is what the segments say before the first of them. Three bits per ReqId, published,
delivered and acked, are only ever set (H3); a message is live if it is published and not acked.

Segments are read when a record touches one. Going back costs at most `interval` records; a
checkpoint costs the segments that changed since the one before.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Final, NamedTuple, Protocol, TypeAlias

from sortedcontainers import SortedDict

from qindex.native.frames import COUNT_MASK, Fields, Purge, fields_of, uncounted_of

# Where a record stands: number of the file, offset of its frame there, offset inside the frame.
Place: TypeAlias = tuple[int, int, int]
# A segment's slots: the bits below, and above them how often it was delivered.
Slots: TypeAlias = "array[int]"

PUBLISHED, DELIVERED, ACKED, TRANSIENT = 1, 2, 4, 8
DELIVERY: Final = 16  # one delivery, in the number of them
DELIVERIES_MAX: Final = 65535
PIECE: Final = 64
LIVE_MASK: Final = PUBLISHED | ACKED
_TRANSIENT_MASK: Final = LIVE_MASK | TRANSIENT

INTERVAL: Final = 4096
CHECKPOINTS_MAX: Final = 128


class Record(NamedTuple):
    """`req_id` is -1 if it is about no single message; `data` is what stands behind the ReqId."""

    place: Place
    offset: int
    verb: str  # publish, deliver, ack, time, purge, session, manifest, mark, lanes, close
    req_id: int
    data: bytes
    transient: bool = False
    published_us: int = 0  # of a publish, as the journal says; 0: not known


class Segment(NamedTuple):
    """How many messages are live in a segment."""

    live: int
    transient: int  # of these


class Log(Protocol):
    """What is replayed. `slots` is the number of ReqIds in a segment."""

    slots: int
    floor: int  # at step 0
    segments: dict[int, Segment]  # at step 0, by number, without reading them
    uncounted: dict[int, int]  # of segments that were read: deliveries that do not count, by ReqId

    def records(self, place: Place) -> Iterator[Record]:
        """From that place on; (0, 0, 0) is the start."""
        ...

    def read_segment(self, number: int) -> Slots:
        """A segment at step 0; all zeros if there is none."""
        ...

    def file_of(self, record: Record) -> str:
        """The name of its file, relative to the directory that is read."""
        ...

    def purge_of(self, record: Record) -> Purge: ...

    def floor_of(self, record: Record) -> int:
        """Of a session: ReqIds whose count is below lived through an unclean end."""
        ...

    def embedded_of(self, record: Record) -> bytes:
        """The payload that stands in a publish; empty if it is elsewhere."""
        ...

    def publishes_of(self, number: int) -> Iterator[tuple[int, Fields, bytes, int]]:
        """(ReqId, fields, embedded payload, when) of what a segment held at step 0."""
        ...


class Live(NamedTuple):
    """A live message in some state."""

    req_id: int
    transient: bool
    delivered: bool  # and that counts
    deliveries: int
    redelivered: bool  # delivered in any way, or it lived through an unclean end


class Publish(NamedTuple):
    """What was said when a message was published. `step` is 0 if a segment said so."""

    step: int
    fields: Fields
    embedded: bytes
    published_us: int = 0  # 0: not known


class State:
    """A queue behind some number of records.

    Memory follows what the records touch, in pieces of 64 slots: a record may name any ReqId.
    """

    def __init__(self, log: Log) -> None:
        self._log = log
        self._pieces_per_segment = -(-log.slots // PIECE)
        self._pieces: dict[int, Slots] = {}
        self._own: set[int] = set()  # pieces that no checkpoint shares
        self._read: set[int] = set()  # segments whose files are in the pieces
        self._uncounted: dict[int, int] = {}  # by ReqId: deliveries that do not count
        # Of segments with live messages, how many.
        self._counts = SortedDict({n: told.live for n, told in log.segments.items() if told.live})
        self.live = sum(self._counts.values())
        self.floor = log.floor
        self.orphans = 0  # deliveries and acks of what was never published

    def copy(self) -> State:
        """Shares all slots with this one, until either writes."""
        copy = State.__new__(State)
        copy.__dict__.update(self.__dict__)
        copy._pieces, copy._read = dict(self._pieces), set(self._read)
        copy._counts, copy._uncounted = self._counts.copy(), self._uncounted.copy()
        self._own, copy._own = set(), set()
        return copy

    def apply(self, record: Record) -> None:
        """What the record says; the same again changes nothing, but deliveries add up."""
        verb = record.verb
        if verb in _BITS:
            self._set(record.req_id, _BITS[verb], record)
        elif verb == "purge":
            self._purge(self._log.purge_of(record))
        elif verb == "side" and (less := uncounted_of(record.data)) is not None:
            self._uncounted[record.req_id] = less
        elif verb == "session":
            self._raise_floor(self._log.floor_of(record))

    def _set(self, req_id: int, bits: int, record: Record) -> None:
        number, slot = divmod(req_id, self._log.slots)
        if number not in self._read:
            self._read_segment(number)
        piece = self._piece_to_write(number * self._pieces_per_segment + slot // PIECE)
        before = piece[slot % PIECE]
        if bits == PUBLISHED:
            if before & PUBLISHED:
                return
            if record.transient:
                bits |= TRANSIENT
                if (
                    req_id & COUNT_MASK < self.floor
                ):  # it died at an end that a later record tells of
                    bits |= ACKED
        else:
            if not before & PUBLISHED:
                self.orphans += 1
            if before & ACKED:
                return
            if bits == DELIVERED and before < DELIVERIES_MAX * DELIVERY:
                before += DELIVERY
        piece[slot % PIECE] = after = before | bits
        change = (after & LIVE_MASK == PUBLISHED) - (before & LIVE_MASK == PUBLISHED)
        if change:
            self._count(number, change)

    def _count(self, number: int, change: int) -> None:
        self.live += change
        live = self._counts.get(number, 0) + change
        if live:
            self._counts[number] = live
        else:
            self._counts.pop(number, None)

    def _read_segment(self, number: int) -> None:
        """Before the first change: what the segment's file says."""
        self._read.add(number)
        if number not in self._log.segments:
            return
        slots = self._log.read_segment(number)
        first = number * self._pieces_per_segment
        for key, start in enumerate(range(0, len(slots), PIECE), first):
            piece = slots[start : start + PIECE]
            if any(piece):
                self._pieces[key] = piece
                self._own.add(key)
        self._count(number, live_in(slots) - self._counts.get(number, 0))

    def _piece_to_write(self, key: int) -> Slots:
        if key in self._own:
            return self._pieces[key]
        piece = self._pieces.get(key)
        self._own.add(key)
        self._pieces[key] = piece = array("I", bytes(4 * PIECE)) if piece is None else piece[:]
        return piece

    def _slots_of(self, number: int) -> Iterator[tuple[int, int, Slots]]:
        """(key, first slot, slots) of the pieces of a segment that was read."""
        first = number * self._pieces_per_segment
        for key in range(first, first + self._pieces_per_segment):
            piece = self._pieces.get(key)
            if piece is not None:
                yield key, (key - first) * PIECE, piece

    def _ack_where(self, number: int, goes: Callable[[int, int], bool]) -> None:
        """Of the live messages of a segment those that (ReqId, bits) say."""
        if number not in self._read:
            self._read_segment(number)
        acked = 0
        for key, start, piece in self._slots_of(number):
            base = number * self._log.slots + start
            gone = [i for i, bits in enumerate(piece)
                    if bits & LIVE_MASK == PUBLISHED and goes(base + i, bits)]  # fmt: skip
            for i in gone:
                self._piece_to_write(key)[i] |= ACKED
            acked += len(gone)
        self._count(number, -acked)

    def _first_count(self, number: int) -> int:
        """A segment lies in one lane."""
        return number * self._log.slots & COUNT_MASK

    def _purge(self, purge: Purge) -> None:
        for number in [n for n in self._counts if self._first_count(n) < purge.below]:
            self._ack_where(number, lambda req_id, _: purge.takes(req_id))

    def _raise_floor(self, floor: int) -> None:
        """Transient messages below it died with the process that held them."""
        if floor <= self.floor:
            return
        for number in [n for n in self._counts if self._first_count(n) < floor]:
            told = self._log.segments.get(number)
            if number in self._read or (told is not None and told.transient):
                self._ack_where(
                    number, lambda r, bits: bool(bits & TRANSIENT) and r & COUNT_MASK < floor
                )
        self.floor = floor

    def numbers(self) -> list[int]:
        """The segments with live messages, sorted."""
        return list(self._counts)

    def count_of(self, number: int) -> Segment:
        """What is live in a segment, without reading it."""
        if number not in self._read:
            return self._log.segments.get(number, Segment(0, 0))
        transient = sum(_transient_in(piece) for _, _, piece in self._slots_of(number))
        return Segment(self._counts.get(number, 0), transient)

    def is_live(self, req_id: int) -> bool:
        """Of a message whose segment a record touched."""
        number, slot = divmod(req_id, self._log.slots)
        piece = self._pieces.get(number * self._pieces_per_segment + slot // PIECE)
        return piece is not None and piece[slot % PIECE] & LIVE_MASK == PUBLISHED

    def messages_of(self, number: int) -> Iterator[Live]:
        """The live messages of a segment, in order. Reads it if no record touched it."""
        if number in self._read:
            pieces = [(start, piece) for _, start, piece in self._slots_of(number)]
        else:
            pieces = [(0, self._log.read_segment(number))] if self._counts.get(number) else []
        for start, piece in pieces:
            for req_id, bits in enumerate(piece, number * self._log.slots + start):
                if bits & LIVE_MASK == PUBLISHED:
                    transient, was_out = bool(bits & TRANSIENT), bool(bits & DELIVERED)
                    redelivered = was_out or req_id & COUNT_MASK < self.floor
                    less = self._uncounted.get(req_id, self._log.uncounted.get(req_id, 0))
                    times = max(0, bits // DELIVERY - less)
                    delivered = was_out and (times > 0 or not less)
                    yield Live(req_id, transient, delivered, times, redelivered)

    def messages(self) -> Iterator[Live]:
        """All live messages, in order. Cost: reads all segments."""
        for number in self.numbers():
            yield from self.messages_of(number)


_BITS: Final = {"publish": PUBLISHED, "deliver": DELIVERED, "ack": ACKED}


def live_in(slots: Slots) -> int:
    return sum(bits & LIVE_MASK == PUBLISHED for bits in slots)


def _transient_in(slots: Slots) -> int:
    return sum(bits & _TRANSIENT_MASK == PUBLISHED | TRANSIENT for bits in slots)


@dataclass(slots=True)
class Replay:
    """A state that goes to any step of a log. `record` is the last that it took in."""

    log: Log
    interval: int = INTERVAL
    number: int = field(default=0, init=False)
    record: Record | None = field(default=None, init=False)
    state: State = field(init=False)
    _checkpoints: dict[int, tuple[Place, State, Record | None]] = field(init=False)
    _rest: Iterator[Record] = field(init=False)

    def __post_init__(self) -> None:
        self.state = State(self.log)
        self._checkpoints = {0: ((0, 0, 0), self.state.copy(), None)}
        self._rest = self.log.records((0, 0, 0))

    def forward(self) -> Record | None:
        """Takes in the next record and returns it; None at the end."""
        record = next(self._rest, None)
        if record is None:
            self._rest = iter(())
            return None
        if self.number % self.interval == 0 and self.number not in self._checkpoints:
            self._checkpoints[self.number] = (record.place, self.state.copy(), self.record)
            self._thin_out()
        self.state.apply(record)
        self.number += 1
        self.record = record
        return record

    def _thin_out(self) -> None:
        """However long the log, the number of checkpoints has a bound."""
        if len(self._checkpoints) > CHECKPOINTS_MAX:
            self.interval *= 2
            for number in [n for n in self._checkpoints if n % self.interval]:
                del self._checkpoints[number]

    def go_to(self, number: int) -> bool:
        """To the state behind so many records; False if there are not so many: at the end then."""
        nearest = max(n for n in self._checkpoints if n <= max(0, number))
        if number < self.number or nearest > self.number:
            place, state, self.record = self._checkpoints[nearest]
            self.number, self.state = nearest, state.copy()
            self._rest = self.log.records(place)
        while self.number < number:
            if self.forward() is None:
                return False
        return True

    def go_to_end(self) -> None:
        while self.forward() is not None:
            pass

    def find(self, req_id: int, verb: str | None = None) -> bool:
        """Forward to behind the next record about a message; False, at the end, if none comes.

        With a `verb` only one that says so counts. A purge counts as an ack of what it acks.
        """
        while (record := self.forward()) is not None:
            if record.req_id == req_id and verb in (None, record.verb):
                return True
            is_purge = record.verb == "purge" and verb in (None, "ack")
            if is_purge and self.log.purge_of(record).takes(req_id):
                return True
        return False


def publishes(replay: Replay) -> Iterator[tuple[Live, Publish | None]]:
    """Each live message of the state, in order, with its publish; None: damage took that.

    Reads the records up to here once more, and all segments. In memory are the live messages that
    the journals published, without their payloads, and of the others a segment at a time.
    """
    log, state = replay.log, replay.state
    born: dict[int, tuple[int, Record]] = {}
    for step, record in enumerate(islice(log.records((0, 0, 0)), replay.number), 1):
        if record.verb == "publish" and state.is_live(record.req_id):
            born.setdefault(record.req_id, (step, record))
    for number in state.numbers():
        live = {message.req_id: message for message in state.messages_of(number)}
        before = {
            req_id: Publish(0, fields, embedded, when)
            for req_id, fields, embedded, when in (log.publishes_of(number) if live else ())
            if req_id in live
        }
        for req_id, message in live.items():
            publish = before.get(req_id)
            if publish is None and req_id in born:
                step, record = born[req_id]
                said = fields_of(record.data), log.embedded_of(record), record.published_us
                publish = Publish(step, *said)
            yield message, publish
