"""What /metrics counts, and that the dashboard and the alert rules name nothing else."""

from __future__ import annotations

import asyncio
import json
import re
from dataclasses import replace
from pathlib import Path

import pika
import promql_parser
import pytest
import yaml
from http_api import Api, run
from prometheus_client.parser import text_string_to_metric_families

from qindex import Store
from qindex.broker.message import Message
from qindex.broker.timers import now_us

EXAMPLES = Path(__file__).parents[2] / "docs/examples"
OPTIONS = {"auto_delete": False, "owner": None, "user": None}
G = "rabbitmq_global_messages_"
NAME = re.compile(r"\b(?:rabbitmq|qindex)_[a-z0-9_]+")


async def samples(api, path="/metrics"):
    status, _, raw = await api.raw("GET", path)
    assert status == 200
    return [
        sample
        for family in text_string_to_metric_families(raw.decode())
        for sample in family.samples
    ]


async def scraped(api, path="/metrics"):
    return {
        each.name + each.labels.get("queue", ""): each.value for each in await samples(api, path)
    }


def client(port):
    """Publishes 4 (one is returned, one lost), gets 3, of these one again, acks 1, rejects 1."""
    connection = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", port))
    channel = connection.channel()
    channel.queue_declare("dead", durable=True)
    arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
    channel.queue_declare("q", durable=True, arguments=arguments)
    channel.confirm_delivery()
    persistent = pika.BasicProperties(delivery_mode=2)
    for _ in range(2):
        channel.basic_publish("", "q", b"x", persistent)
    channel.basic_publish("", "nowhere", b"x")
    with pytest.raises(pika.exceptions.UnroutableError):
        channel.basic_publish("", "nowhere", b"x", mandatory=True)
    method, _, _ = channel.basic_get("q")
    channel.basic_nack(method.delivery_tag, requeue=True)
    method, _, _ = channel.basic_get("q")
    assert method.redelivered
    channel.basic_ack(method.delivery_tag)
    method, _, _ = channel.basic_get("q")
    channel.basic_nack(method.delivery_tag, requeue=False)
    channel.queue_purge("dead")
    connection.close()


@pytest.mark.parametrize("place", ["store", "memory"])
def test_messages_are_counted_from_publish_to_ack(tmp_path, place):
    async def test():
        async with Api(tmp_path / "data" if place == "store" else None) as api:
            await asyncio.to_thread(client, api.amqp)
            found = await scraped(api)
            counts = {
                name: found[f"{G}{name}_total"]
                for name in (
                    *("received", "confirmed", "routed", "delivered", "redelivered"),
                    *("acknowledged", "unroutable_dropped", "unroutable_returned"),
                    *("dead_lettered_rejected", "dead_lettered_expired"),
                )
            }
            assert counts == {
                "received": 4,
                "confirmed": 4,
                "routed": 3,  # and the dead letter
                "delivered": 3,
                "redelivered": 1,
                "acknowledged": 1,
                "unroutable_dropped": 1,
                "unroutable_returned": 1,
                "dead_lettered_rejected": 1,
                "dead_lettered_expired": 0,
            }
            await api.ask("DELETE", "queues/%2F/q")  # what it counted stays
            assert (await scraped(api))[f"{G}redelivered_total"] == 1

    run(test())


def test_syncs_journals_flushes_and_ages_are_shown(tmp_path):
    async def test():
        async with Api(tmp_path / "data") as api:
            vhost = api.server.node.vhost("/")
            queue = vhost.declare_queue("q", durable=True, arguments={}, **OPTIONS)
            vhost.declare_queue("empty", durable=True, arguments={}, **OPTIONS)
            message = Message("", ["q"], b"\0\0", b"x" * 1000, persistent=True)
            queue.publish(message, now_us())
            before = await scraped(api)
            assert before["qindex_queue_journal_bytes"] > 1000
            assert before["qindex_queue_oldest_age_seconds"] < 5
            assert before["qindex_flushes_total"] == 0
            queue.publish(Message("", ["q"], b"\0\0", b"y" * 100_000, persistent=True), now_us())
            await asyncio.sleep(1.1)
            queue.backlog._queue.flush()
            found = await scraped(api)
            assert found["qindex_flushes_total"] == 1
            assert 1 <= found["qindex_queue_oldest_age_seconds"] < 30
            assert found["qindex_message_file_live_bytes"] >= 100_000
            assert found["rabbitmq_disk_space_available_bytes"] > 0
            by_queue = await scraped(api, "/metrics/per-object")
            assert by_queue["qindex_queue_oldest_age_secondsq"] >= 1
            assert "qindex_queue_oldest_age_secondsempty" not in by_queue
            buckets = [
                (float(each.labels["le"]), each.value)
                for each in await samples(api)
                if each.name == "qindex_sync_seconds_bucket"
            ]
            counts = [count for _, count in sorted(buckets)]
            assert counts == sorted(counts)
            assert counts[-1] >= found["qindex_sync_seconds_count"] >= 1
            assert 0 < found["qindex_sync_seconds_sum"] < 60

    run(test())


# What RabbitMQ's own dashboard, RabbitMQ-Overview (10991 at Grafana's), asks for: that of its
# versions 3.10.8, 3.13.0 and 4.0.5, and of its main branch in August 2026.
OF_RABBITMQS_DASHBOARD = {
    *(f"rabbitmq_global_messages_{name}_total" for name in (
        "acknowledged", "confirmed", "delivered", "delivered_consume_auto_ack",
        "delivered_consume_manual_ack", "delivered_get_auto_ack", "delivered_get_manual_ack",
        "get_empty", "received", "received_confirm", "redelivered", "routed",
        "unroutable_dropped", "unroutable_returned",
    )),
    *(f"rabbitmq_{name}" for name in (
        "build_info", "channel_consumers", "channels", "channels_closed_total",
        "channels_opened_total", "connections", "connections_closed_total",
        "connections_opened_total", "consumers", "disk_space_available_bytes",
        "disk_space_available_limit_bytes", "erlang_uptime_seconds", "global_consumers",
        "global_publishers", "identity_info", "process_max_fds", "process_max_tcp_sockets",
        "process_open_fds", "process_open_tcp_sockets", "process_resident_memory_bytes",
        "queue_messages_ready", "queue_messages_unacked", "queues", "queues_created_total",
        "queues_declared_total", "queues_deleted_total", "resident_memory_limit_bytes",
    )),
}  # fmt: skip
# Only on its main branch: sizes are not counted here (docs/guide/http.rst says so).
NOT_THERE = {f"rabbitmq_message_size_bytes_{name}" for name in ("bucket", "count", "sum")}


def test_the_queries_of_rabbitmqs_own_dashboard_are_answered(tmp_path):
    async def test():
        async with Api(tmp_path / "data") as api:
            await asyncio.to_thread(client, api.amqp)
            for path, endpoint in (("", "aggregated"), ("/per-object", "per-object")):
                found = await samples(api, "/metrics" + path)
                there = {each.name for each in found}
                assert there >= OF_RABBITMQS_DASHBOARD, OF_RABBITMQS_DASHBOARD - there
                assert not there & NOT_THERE
                (identity,) = [each for each in found if each.name == "rabbitmq_identity_info"]
                # The queries join their metrics with these labels.
                assert set(identity.labels) == {
                    "rabbitmq_node",
                    "rabbitmq_cluster",
                    "rabbitmq_endpoint",
                }
                assert identity.labels["rabbitmq_endpoint"] == endpoint

    run(test())


def consume(port, *, auto_ack):
    connection = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", port))
    channel = connection.channel()
    channel.queue_declare("c", durable=True)
    for _ in range(5):
        channel.basic_publish("", "c", b"x")
    taken = channel.consume("c", auto_ack=auto_ack)
    for _ in range(5):
        method, _, _ = next(taken)
        if not auto_ack:
            channel.basic_ack(method.delivery_tag)
    return connection


def test_what_clients_do_is_counted_by_how_they_do_it(tmp_path):
    async def test():
        async with Api(tmp_path / "data") as api:
            await asyncio.to_thread(client, api.amqp)
            for auto_ack in (True, False, False):
                connection = await asyncio.to_thread(consume, api.amqp, auto_ack=auto_ack)
                if auto_ack:
                    await asyncio.to_thread(connection.close)
                else:
                    found = await scraped(api)
                    assert found["rabbitmq_global_publishers"] == 1
                    assert found["rabbitmq_global_consumers"] == 1
                    await asyncio.to_thread(connection.close)
            parameters = pika.ConnectionParameters("127.0.0.1", api.amqp)
            empty = await asyncio.to_thread(pika.BlockingConnection, parameters)
            await asyncio.to_thread(lambda: empty.channel().basic_get("c", auto_ack=True))
            await asyncio.to_thread(lambda: empty.channel().queue_delete("c"))
            found = await scraped(api)
            of = {name.removeprefix(G).removesuffix("_total"): found[name] for name in found}
            assert of["delivered_consume_auto_ack"] == 5
            assert of["delivered_consume_manual_ack"] == 10
            assert of["delivered_get_manual_ack"] == 3  # of client()
            assert of["delivered_get_auto_ack"] == 0
            assert of["get_empty"] == 1
            assert of["received_confirm"] == 4
            assert of["received"] == 19
            lives = [found[f"rabbitmq_queues_{what}_total"] for what in DONE_WITH_QUEUES]
            assert lives == [5, 3, 1]
            opened = {what: found[f"rabbitmq_{what}_opened_total"] for what in OPENED}
            closed = {what: found[f"rabbitmq_{what}_closed_total"] for what in OPENED}
            assert opened == {"connections": 5, "channels": 6}
            assert closed == {"connections": 4, "channels": 4}
            await asyncio.to_thread(empty.close)

    run(test())


DONE_WITH_QUEUES = ("declared", "created", "deleted")
OPENED = ("connections", "channels")


def test_compactions_are_shown_by_virtual_host(tmp_path, monkeypatch):
    stats_of = Store.stats
    done = {"compactions": 3, "compacted_bytes": 500}
    monkeypatch.setattr(Store, "stats", lambda store: replace(stats_of(store), **done))

    async def test():
        async with Api(tmp_path / "data") as api:
            vhost = api.server.node.vhost("/")
            vhost.declare_queue("q", durable=True, arguments={}, **OPTIONS)
            found = {each.name: each for each in await samples(api)}
            for name, value in done.items():
                sample = found[f"qindex_{name}_total"]
                assert (sample.value, sample.labels) == (value, {"vhost": "/"})

    run(test())


def of_dashboard():
    board = json.loads((EXAMPLES / "grafana.json").read_text())
    return [target["expr"] for panel in board["panels"] for target in panel["targets"]]


def of_alerts():
    groups = yaml.safe_load((EXAMPLES / "alerts.yml").read_text())["groups"]
    rules = [rule for group in groups for rule in group["rules"]]
    for rule in rules:
        assert {"alert", "expr", "labels", "annotations"} == set(rule) - {"for"}
    return [rule["expr"] for rule in rules]


def named_in(expressions):
    """The metrics, without the labels that results are grouped by."""
    labels = re.compile(r"\b(?:by|on|group_left) \([^)]*\)")
    return {name for each in expressions for name in NAME.findall(labels.sub("", each))}


def test_dashboard_and_alert_rules_name_metrics_that_are_there(tmp_path):
    async def test():
        async with Api(tmp_path / "data") as api:
            vhost = api.server.node.vhost("/")
            queue = vhost.declare_queue("q", durable=True, arguments={}, **OPTIONS)
            queue.publish(Message("", ["q"], b"\0\0", b"x", persistent=True), now_us())
            there = {
                each.name
                for path in ("", "/per-object")
                for each in await samples(api, "/metrics" + path)
            }
            for expressions in (of_dashboard(), of_alerts()):
                assert len(named_in(expressions)) > 10
                assert named_in(expressions) <= there, named_in(expressions) - there

    run(test())


def test_each_expression_is_promql():
    found = [*of_dashboard(), *of_alerts()]
    assert len(found) > 40
    for expression in found:  # Grafana fills these in
        filled = expression.replace("$__rate_interval", "5m").replace("$instance", ".*")
        promql_parser.parse(filled)
    with pytest.raises(ValueError, match="paren"):
        promql_parser.parse("sum by (instance) (rate(up[5m])")
