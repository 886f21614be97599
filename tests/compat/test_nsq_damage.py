"""Each file of a diskqueue, cut, zeroed and flipped all over: it is read on and accounted for."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from qindex.brokers.reader import Account, open_node, total

from .nsq_files import bodies, record, write_files
from .test_nsq import META, file_name
from .test_rabbitmq_damage import damages

MESSAGES = bodies(600)
READ = 20


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_files(tmp_path, MESSAGES, READ, 16384)
    return tmp_path


def account(path: Path) -> tuple[list[bytes], Account, bool]:
    """What is given, the account, and whether damage was told."""
    with open_node(path) as node:
        found = total(node.queues)
        assert found.adds_up
        given = [message.body for queue in node.queues for message in queue.messages()]
        assert len(given) == found.live
        return given, found, any(finding.severity == "damage" for finding in node.findings)


@pytest.mark.sample(2)
@pytest.mark.parametrize("number", [0, 1, 2, 3])
def test_a_damaged_data_file_costs_what_was_damaged(folder: Path, number: int) -> None:
    file = folder / file_name(number)
    data = file.read_bytes()
    whole = MESSAGES[READ:]
    assert account(folder)[0] == whole
    for what, affected, damaged in damages(data):
        file.write_bytes(damaged)
        given, found, told = account(folder)
        lost = set(whole) - set(given)
        assert told or len(given) >= len(whole), what
        assert len(given) + found.lost["damaged"] >= len(whole), what
        if what != "cut":
            assert len(lost) <= affected // 4 + 3, what
        if not affected:
            assert not lost, what


def test_a_damaged_file_that_nsqd_set_aside_costs_what_was_damaged(folder: Path) -> None:
    file = folder / file_name(2)
    file = file.rename(f"{file}.bad")
    data = file.read_bytes()
    whole = MESSAGES[READ:]
    given, _, _ = account(folder)
    assert sorted(given) == sorted(whole)
    for what, affected, damaged in damages(data):
        file.write_bytes(damaged)
        given, _, told = account(folder)
        lost = set(whole) - set(given)
        # Nothing says how long the file was: one that ends behind a record looks whole.
        assert told or len(given) >= len(whole) or what == "cut", what
        if what != "cut":
            assert len(lost) <= affected // 4 + 3, what


def test_a_flipped_bit_in_a_size_costs_nothing(folder: Path) -> None:
    """Unless it makes other records of one, which no checksum tells."""
    file = folder / file_name(1)
    data = file.read_bytes()
    places = [0]
    while places[-1] < len(data):
        places.append(places[-1] + 4 + int.from_bytes(data[places[-1] : places[-1] + 4], "big"))
    dice = random.Random(5)
    exact = 0
    for place in dice.sample(places[5:-6], 60):
        bit = dice.randrange(32)
        damaged = bytearray(data)
        damaged[place + 3 - bit // 8] ^= 1 << bit % 8
        file.write_bytes(damaged)
        given, found, told = account(folder)
        assert told
        exact += given == MESSAGES[READ:] and not found.lost["damaged"]
    assert exact >= 50


def test_damaged_metadata_cost_no_message(folder: Path) -> None:
    file = folder / META
    for what, _, damaged in damages(file.read_bytes()):
        file.write_bytes(damaged)
        given = account(folder)[0]
        assert given[-500:] == MESSAGES[-500:]
        with open_node(folder) as node:
            assert node.findings or given == MESSAGES[READ:], what


def test_a_body_full_of_other_records_is_one_message(folder: Path) -> None:
    inner = b"".join(map(record, MESSAGES[:50]))
    messages = [*MESSAGES[:30], inner, *MESSAGES[30:60]]
    for file in folder.iterdir():
        file.unlink()
    write_files(folder, messages, 0, 1 << 20)
    assert account(folder)[0] == messages
