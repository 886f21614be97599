"""What is measured: the rows of the table with their targets, and the steps of a round."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from systems import System
from works import FLOORS, FLUSH_BATCH

SMALL, LARGE = 100, 1024  # body sizes in bytes
RATE, MS, MB, BYTES, TIMES, NUMBER = "/s", "ms", "MB", "B", "x", ""
QUEUE_COUNTS = (1000, 10_000, 100_000)
DIRTY_QUEUES = 10_000


@dataclass(frozen=True)
class Row:
    """One line of the table. The target is for 100 B bodies unless it holds for any size."""

    figure: str
    label: str
    unit: str
    target: float | None = None
    best_known: str = ""  # measured earlier elsewhere, not by this command
    any_size: bool = False

    @property
    def more_is_better(self) -> bool:
        return self.unit == RATE or self.figure == "sync_share"

    def passes(self, value: float) -> bool | None:
        if self.target is None:
            return None
        return value >= self.target if self.more_is_better else value <= self.target


# How many queues is chosen on the command line: the rows are of the first, second ... number.
QUEUES_ROWS = tuple(
    Row(f"queues_{figure}_q{place}", f"{{q{place}}} queues, 256 open files: {label}", unit, target)
    for place in range(1, len(QUEUE_COUNTS) + 1)
    for figure, label, unit, target in (
        ("create", "create_queues, durable", RATE, 2000),
        ("publish", "publish to each in turn", RATE, 20_000),
        ("get", "get + ack one of each", RATE, None),
        ("memory", "memory of a queue in use", BYTES, None),
        ("descriptors", "descriptors of the process", NUMBER, None),
        ("close_ms", "close", MS, None),
        ("reopen_ms", "open", MS, None),
        ("first_use", "first get + ack after it", RATE, None),
        ("close_again_ms", "close after that", MS, None),
        ("killed_open_ms", "open after kill -9", MS, None),
        ("killed_first_use", "first get + ack after kill -9", RATE, None),
    )
)

# How many queues share a sync; and what else stores of format 2 add.
FORMAT_2_ROWS = (
    *(
        Row(
            f"spread_{count}{rest}", f"format 2, durable, 1000 per sync, {count:,} queues{of}", unit
        )
        for count in (1, 10, 100, 1000, 10_000)
        for rest, of, unit in (("", "", RATE), ("_ms", ": a sync()", MS))
    ),
    Row("transactions", "format 2, transactions of 2 publishes and an ack", RATE),
    Row("moves", "format 2, get + move, one by one", RATE),
    Row("moves_100", "format 2, get + move, 100 at a time", RATE),
    Row("mixed", "unlike messages to 100 queues, 1000 a call", RATE),
    Row("mixed_each", "the same, a call for each", RATE),
    Row("aio_confirm", "asyncio: a message at a time, confirmed", RATE),
    Row("aio_confirm_share", "the same: its share of the raw fdatasync rate", TIMES),
    Row("created", "format 2, Store.queue() of new queues, 64 threads, durable", RATE, 2000),
    Row("created_alone", "format 2, the same, one thread", RATE),
    Row("dirty_create", "format 2, create_queues of {dirty} queues, durable", RATE, 2000),
    Row("dirty_open_ms", "format 2, open after kill -9, {dirty} queues dirty", MS, 100),
    Row("dirty_first_ms", "format 2, the same, to the first message", MS),
)

ROWS = (
    Row("publish", "publish, one call each", RATE, 2.5e6, "0.38 M/s go-diskqueue"),
    Row("get_ack", "get + ack, one call each", RATE, 1.5e6, "1.4 M/s go-diskqueue"),
    Row("cycle", "publish + get + ack at depth 1000", RATE, 1.0e6, "0.28 M/s go-diskqueue"),
    Row("batch_publish", "batches of 100: publish", RATE, 8e6, "2.2 M/s LMDB"),
    Row("batch_get_ack", "batches of 100: get + ack", RATE, 4e6, "1.8 M/s LMDB"),
    Row("memory_batch_publish", "the same, files in memory: publish", RATE),
    Row("memory_batch_get_ack", "the same, files in memory: get + ack", RATE),
    Row(
        "index_bulk",
        "index alone, bulk: publish + deliver + ack",
        RATE,
        15e6,
        "0.14 M/s RabbitMQ v1, 0.48 M/s v2",
    ),
    Row("index_bulk_deep", "the same, all published first", RATE),
    Row("sync_each", "durable, one sync per message", RATE),
    Row("sync_share", "its share of the raw fdatasync rate", TIMES, 0.9),
    Row("sync_batch", "durable, one sync per 1000", RATE, 1e6),
    Row(
        "reopen_ms_1m",
        "reopen after kill -9, {1m} waiting, to first message",
        MS,
        10,
        "560-2900 ms RabbitMQ v1",
    ),
    Row("reopen_ms_10m", "reopen after kill -9, {10m} waiting, to first message", MS, 50),
    Row("rss_filled_mb_10m", "resident memory, {10m} waiting, published", MB, 64),
    Row("rss_reopened_mb_10m", "resident memory, {10m} waiting, reopened", MB, 64),
    Row("disk_per_message_1m", "disk per message, {1m} waiting", BYTES, 150),
    Row("disk_per_message_10m", "disk per message, {10m} waiting", BYTES, 150),
    Row("delay_publish", "delayed within an hour: publish", RATE, 1e6, "0.026 M/s bbolt"),
    Row("delay_get_ack", "delayed: get in due order + ack", RATE, 0.8e6, "0.045 M/s bbolt"),
    Row("priority_publish", "8 priorities: publish", RATE),
    Row("priority_get_ack", "8 priorities: get + ack", RATE),
    Row("lease_get_ack", "get(lease=30) + ack", RATE),
    Row("dead_reject", "dead letters: get + nack(requeue=False)", RATE),
    Row("dead_redrive", "dead letters: redrive", RATE),
    Row("aio_cycle", "asyncio: publish + get + ack, each awaited", RATE),
    Row("disk_after_compaction", "disk after compaction / live bytes", TIMES, 1.5, any_size=True),
    *QUEUES_ROWS,
    *FORMAT_2_ROWS,
)


def is_any(key: str, system: type[System] | None) -> bool:
    return system is not None


def is_qindex(key: str, system: type[System] | None) -> bool:
    return key == "qindex"


def is_any_or_floor(key: str, system: type[System] | None) -> bool:
    return True


def is_plain_floor(key: str, system: type[System] | None) -> bool:
    return key == "floor"


def is_any_or_plain_floor(key: str, system: type[System] | None) -> bool:
    return key == "floor" or system is not None


def is_durable_or_floor(key: str, system: type[System] | None) -> bool:
    return key == "floor" or (system is not None and system.can_be_durable)


def sorts(key: str, system: type[System] | None) -> bool:
    return system is not None and system.sorts


def fills_fast(key: str, system: type[System] | None) -> bool:
    return system is not None and system.fills_fast


@dataclass(frozen=True)
class Step:
    """Works run one after the other in one directory, each in its own process."""

    works: tuple[str, ...]
    takes: Callable[[str, type[System] | None], bool]
    counts: dict[int, int] = field(default_factory=dict)  # messages by body size
    suffix: str = ""  # appended to the figures' names
    seconds_max: float = 1.0
    rounds_max: int = 1000
    count_min: int = 2000

    def smaller(self, divisor: int) -> "Step":
        counts = {
            size: max(count // divisor, self.count_min) for size, count in self.counts.items()
        }
        return replace(self, counts=counts, seconds_max=self.seconds_max / 20, rounds_max=1)


STEPS = (
    Step(("single",), is_any_or_floor, {SMALL: 1_000_000, LARGE: 400_000}),
    Step(("cycle",), is_any_or_floor, {SMALL: 500_000, LARGE: 200_000}),
    Step(("batches",), is_any_or_plain_floor, {SMALL: 2_000_000, LARGE: 400_000}),
    Step(("batches_in_memory",), is_qindex, {SMALL: 2_000_000}),
    Step(("index_alone",), is_qindex, {SMALL: 5_000_000}),
    Step(("durable",), is_durable_or_floor, {SMALL: 1_000_000, LARGE: 1_000_000}),
    Step(("kill9_fill", "kill9_read"), is_any, {SMALL: 200_000}, rounds_max=1),
    Step(
        ("waiting_fill", "waiting_reopen"),
        fills_fast,
        {SMALL: 1_000_000},
        suffix="_1m",
        seconds_max=20,
    ),
    Step(("reopen_floor",), is_plain_floor, {SMALL: FLUSH_BATCH}),
    Step(
        ("waiting_fill", "waiting_reopen"),
        is_qindex,
        {LARGE: 1_000_000},
        suffix="_1m",
        seconds_max=60,
        rounds_max=3,
    ),
    Step(
        ("waiting_fill", "waiting_reopen"),
        is_qindex,
        {SMALL: 10_000_000},
        suffix="_10m",
        seconds_max=120,
        rounds_max=3,
    ),
    Step(
        ("compaction",),
        is_qindex,
        {SMALL: 2_000_000, LARGE: 400_000},
        seconds_max=60,
        rounds_max=3,
    ),
    Step(("delay_fill", "delay_drain"), sorts, {SMALL: 1_000_000}, seconds_max=60, rounds_max=3),
    Step(("priority",), sorts, {SMALL: 400_000}),
    Step(("lease",), is_qindex, {SMALL: 400_000}),
    Step(("dead_letters",), is_qindex, {SMALL: 400_000}),
    Step(("aio",), is_qindex, {SMALL: 400_000}),
    Step(("spread",), is_qindex, {SMALL: 200_000}, seconds_max=5, rounds_max=3),
    Step(("transactions",), is_qindex, {SMALL: 50_000}),
    Step(("moves",), is_qindex, {SMALL: 50_000}),
    Step(("mixed",), is_qindex, {SMALL: 200_000}),
    Step(("aio_confirm",), is_qindex, {SMALL: 10_000}),
    Step(("created",), is_qindex, {SMALL: 3200}, rounds_max=3, count_min=64),
    Step(
        ("dirty_kill", "dirty_open"), is_qindex, {SMALL: DIRTY_QUEUES}, rounds_max=3, count_min=20
    ),
)
QUICK_DIVISOR = 50


def queues_steps(queue_counts: Sequence[int]) -> tuple[Step, ...]:
    """One for each number of queues."""
    works = ("queues_fill", "queues_reopen", "queues_kill", "queues_after_kill")
    return tuple(
        Step(works, is_qindex, {SMALL: count}, suffix=f"_q{place}", rounds_max=1, count_min=20)
        for place, count in enumerate(queue_counts, 1)
    )


def steps(*, quick: bool, queue_counts: Sequence[int] = QUEUE_COUNTS) -> tuple[Step, ...]:
    chosen = (*STEPS, *queues_steps(queue_counts))
    return tuple(step.smaller(QUICK_DIVISOR) for step in chosen) if quick else chosen


def waiting_counts(chosen: tuple[Step, ...]) -> dict[str, str]:
    """The counts that the rows' labels name, as "1 M"."""
    counts = {step.suffix.strip("_"): min(step.counts.values()) for step in chosen if step.suffix}
    return {name: count_text(count) for name, count in counts.items()}


def dirty_count(chosen: tuple[Step, ...]) -> str:
    counts = [min(step.counts.values()) for step in chosen if "dirty_kill" in step.works]
    return f"{counts[0]:,}" if counts else "-"


def count_text(count: float) -> str:
    for size, unit in ((1_000_000, " M"), (1000, " k")):
        if count >= size:
            return f"{count / size:g}{unit}"
    return f"{count:g}"


def labels(chosen: tuple[Step, ...]) -> dict[str, str]:
    places = {f"q{place}": "-" for place in range(1, len(QUEUE_COUNTS) + 1)}
    counts = {**places, **waiting_counts(chosen), "dirty": dirty_count(chosen)}
    return {row.figure: row.label.format(**counts) for row in ROWS}


FLOOR_NAMES = dict(zip(FLOORS, ("raw floor in C", "raw floor, pages reused"), strict=True))
