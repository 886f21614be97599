"""The table of the suites of AMQP clients is made of the rows that are kept."""

from __future__ import annotations

import client_suites
import pytest

# What a suite has to reach. Celery's has 44 with RabbitMQ 3.10.8: one is a race in the test.
WANTED = {
    "amqp": 44,
    "kombu": 41,
    "pika": 500,
    "celery": 43,
    "aio-pika": 700,
    "aiormq": 290,
    "amqplib": 300,
}


def test_the_table_is_made_of_the_rows():
    assert client_suites.TARGET.read_text(encoding="utf-8") == client_suites.shown(
        client_suites.kept()
    )


@pytest.mark.parametrize("row", client_suites.kept(), ids=lambda row: row["suite"])
def test_a_suite_passes_as_it_has_to_and_each_miss_has_a_reason(row):
    (suite,) = [each for each in client_suites.SUITES if each.name == row["suite"]]
    assert row["version"] == suite.version
    assert row["passed"] >= WANTED[suite.name]
    assert client_suites.NOT_EXPLAINED not in row["failed"]
    assert all(suite.reason(test) == why for why in row["failed"] for test in row["failed"][why])
