"""Users, permissions, virtual hosts and definitions over HTTP, with rabbitmqadmin and without."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import shutil
import subprocess
import sys

import pytest
from http_api import Api, run

from qindex.broker.users import Permission

EVERYTHING = {"configure": ".*", "write": ".*", "read": ".*"}
RABBITMQS = base64.b64encode(b"salt" + hashlib.sha256(b"saltsecret").digest()).decode()


def test_a_virtual_host_and_a_user_come_and_go():
    async def test():
        async with Api() as api:
            ann = {"login": ("ann", "p")}
            assert (await api.ask("PUT", "vhosts/work", {}))[0] == 201
            assert (await api.ask("PUT", "vhosts/work", {}))[0] == 204
            assert (await api.ask("PUT", "queues/work/q", {}))[0] == 201  # its maker may
            given = {"password": "p", "tags": "management, monitoring"}
            assert (await api.ask("PUT", "users/ann", given))[0] == 201
            assert (await api.ask("GET", "whoami", **ann))[1]["tags"] == [
                "management",
                "monitoring",
            ]
            assert (await api.ask("DELETE", "queues/work/q", **ann))[0] == 401
            path = "permissions/work/ann"
            assert (await api.ask("GET", path))[0] == 404
            assert (await api.ask("PUT", path, {**EVERYTHING, "configure": "["}))[0] == 400
            assert (await api.ask("PUT", path, EVERYTHING))[0] == 201
            row = {"user": "ann", "vhost": "work", **EVERYTHING}
            assert await api.ask("GET", path) == (200, row)
            for listing in ("users/ann/permissions", "vhosts/work/permissions", "permissions"):
                assert row in (await api.ask("GET", listing))[1]
            assert (await api.ask("DELETE", "queues/work/q", **ann))[0] == 204
            assert (await api.ask("DELETE", path))[0] == 204
            assert (await api.ask("DELETE", path))[0] == 404
            assert (await api.ask("DELETE", "vhosts/work"))[0] == 204
            assert (await api.ask("DELETE", "vhosts/work"))[0] == 404
            assert (await api.ask("DELETE", "users/ann"))[0] == 204
            assert (await api.ask("GET", "whoami", **ann))[0] == 401
            assert api.server.node.vhosts == ["/"]

    run(test())


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("PUT", "vhosts/new", {}),
        ("DELETE", "vhosts/%2F", None),
        ("GET", "users", None),
        ("GET", "users/guest", None),
        ("PUT", "users/new", {"password": "p", "tags": "administrator"}),
        ("PUT", "users/eye", {"password": "eye", "tags": "administrator"}),
        ("DELETE", "users/guest", None),
        ("GET", "permissions", None),
        ("PUT", "permissions/%2F/eye", EVERYTHING),
        ("DELETE", "permissions/%2F/guest", None),
        ("GET", "users/guest/permissions", None),
        ("GET", "vhosts/%2F/permissions", None),
        ("GET", "definitions", None),
        ("GET", "definitions/%2F", None),
        ("POST", "definitions", {"users": []}),
        ("POST", "definitions/%2F", {"queues": []}),
    ],
)
def test_only_administrators_see_and_change_accounts(method, path, body):
    async def test():
        async with Api() as api:
            users = api.server.node.users
            users.add("eye", "eye")
            users.set_tags("eye", ["monitoring", "policymaker"])
            users.set_permissions("/", "eye", Permission(".*", ".*", ".*"))
            before = dict(api.server.node.entries)
            status, error = await api.ask(method, path, body, login=("eye", "eye"))
            assert (status, error["error"]) == (401, "not_authorised")
            assert api.server.node.entries == before

    run(test())


def test_what_one_node_exports_another_one_takes_in(tmp_path):
    async def test():
        async with Api(tmp_path / "one") as one, Api(tmp_path / "two") as two:
            one.server.node.users.add("ann", "secret")
            one.server.node.users.set_tags("ann", ["management"])
            await one.ask("PUT", "vhosts/work", {})
            given = {"password_hash": RABBITMQS, "tags": ["management"]}
            await one.ask("PUT", "users/ben", given)
            await one.ask("PUT", "permissions/work/ann", EVERYTHING)
            await one.ask("PUT", "exchanges/work/x", {"type": "topic"})
            await one.ask("PUT", "queues/work/q", {"arguments": {"x-max-length": 5}})
            await one.ask("PUT", "queues/work/passing", {"durable": False})
            await one.ask("POST", "bindings/work/e/x/q/q", {"routing_key": "a.#"})
            await one.ask("POST", "bindings/work/e/x/q/passing", {"routing_key": "b"})
            _, found = await one.ask("GET", "definitions")
            assert [each["name"] for each in found["queues"]] == ["q"]
            assert [each["routing_key"] for each in found["bindings"]] == ["a.#"]
            for _ in range(2):  # again: it is all there
                assert await two.ask("POST", "definitions", found) == (204, b"")
                assert (await two.ask("GET", "definitions"))[1] == found
            for login in (("ann", "secret"), ("ben", "secret")):
                assert (await two.ask("GET", "whoami", login=login))[0] == 200
                assert (await two.ask("GET", "whoami", login=(login[0], "wrong")))[0] == 401
            _, part = await two.ask("GET", "definitions/work")
            assert "users" not in part
            assert "vhost" not in part["queues"][0]
            assert (await two.ask("POST", "definitions/%2F", part))[0] == 204
            assert list(two.server.node.vhost("/").queues) == ["q"]

    run(test())


@pytest.mark.parametrize(
    ("part", "given", "text"),
    [
        ("policies", [{"name": "p"}], "policies, which are not there"),
        ("topic_permissions", [{}], "topic_permissions, which are not there"),
        ("users", [{"name": "x"}], "user 'x' needs a password"),
        ("users", [{"name": "", "password": "x"}], "a user needs a name"),
        ("users", [{"name": "x", "password_hash": "?"}], "password_hash of user 'x'"),
        (
            "users",
            [{"name": "x", "password_hash": RABBITMQS, "hashing_algorithm": "rot13"}],
            "no such algorithm is known: 'rot13'",
        ),
        ("users", [{"name": "x", "password": "x", "tags": [1]}], "tags of user 'x'"),
        ("permissions", [{"user": "no", "vhost": "/", **EVERYTHING}], 'permissions of "no"'),
        ("permissions", [{"user": "guest", "vhost": "/", **EVERYTHING, "read": "["}], "regular"),
        ("queues", [{"name": "q2", "vhost": "nowhere"}], '"nowhere" does not exist'),
        ("queues", [{"name": "q2"}], "vhost is a text"),
        ("queues", [{"name": "q2", "vhost": "/", "durable": 1}], "durable is true or false"),
        ("exchanges", [{"name": "x", "vhost": "/"}], "type is a text"),
        (
            "bindings",
            [{"source": "x", "vhost": "/", "destination": "q", "routing_key": ""}],
            "destination_type is a text",
        ),
        ("vhosts", {"name": "w"}, "vhosts is a list of objects"),
    ],
)
def test_definitions_of_which_a_part_cannot_be_change_nothing(part, given, text):
    async def test():
        async with Api() as api:
            before = dict(api.server.node.entries)
            good = {
                "vhosts": [{"name": "w"}],
                "users": [{"name": "ann", "password": "p"}],
                "queues": [{"name": "q1", "vhost": "/"}],
            }
            status, error = await api.ask("POST", "definitions", {**good, part: given})
            assert status == 400
            assert text in error["reason"]
            assert api.server.node.entries == before
            assert not api.server.node.vhost("/").queues

    run(test())


@pytest.mark.parametrize(
    ("part", "given", "text"),
    [
        ("queues", {"name": "there", "durable": False}, "inequivalent arg 'durable' for queue"),
        ("exchanges", {"name": "x", "type": "fanout"}, "inequivalent arg 'type' for exchange"),
        (
            "bindings",
            {"source": "x", "destination": "no", "destination_type": "queue", "routing_key": ""},
            "bindings: no queue 'no' in vhost '/'",
        ),
        (
            "bindings",
            {"source": "no", "destination": "q1", "destination_type": "queue", "routing_key": ""},
            "bindings: no exchange 'no' in vhost '/'",
        ),
    ],
)
def test_definitions_that_conflict_with_what_is_there_change_nothing(part, given, text):
    async def test():
        async with Api() as api:
            there = [{"name": "there", "vhost": "/"}], [{"name": "x", "vhost": "/"}]
            there[1][0]["type"] = "direct"
            first = {"queues": there[0], "exchanges": there[1]}
            assert await api.ask("POST", "definitions", first) == (204, b"")
            before = dict(api.server.node.entries)
            new = {
                "users": [{"name": "ann", "password": "p"}],
                "vhosts": [{"name": "w"}],
                "queues": [{"name": "q1", "vhost": "/"}],
            }
            new[part] = [*new.get(part, []), {"vhost": "/", **given}]
            status, error = await api.ask("POST", "definitions", new)
            assert status == 400
            assert text in error["reason"]
            assert api.server.node.entries == before
            assert set(api.server.node.vhost("/").queues) == {"there"}
            good = {**new, part: new[part][:-1]}
            assert await api.ask("POST", "definitions", good) == (204, b"")

    run(test())


def test_an_import_that_ends_in_the_middle_says_how_much_of_it_is_there():
    async def test():
        async with Api() as api:
            queues = [{"name": name, "vhost": "/"} for name in ("q1", "q2", "q3")]
            queues[1]["arguments"] = {"x-max-length": "many"}
            status, error = await api.ask("POST", "definitions", {"queues": queues})
            assert status == 400
            assert "queues: 'q2' in vhost '/': " in error["reason"]
            assert "1 of 3 exchanges, queues and bindings were imported" in error["reason"]
            assert set(api.server.node.vhost("/").queues) == {"q1"}

    run(test())


@pytest.mark.parametrize(
    "path", ["policies", "operator-policies", "parameters", "vhost-limits", "topic-permissions"]
)
def test_what_is_not_there_is_listed_as_none_and_refused_in_words(path):
    async def test():
        async with Api() as api:
            assert await api.ask("GET", path) == (200, [])
            assert await api.ask("GET", f"{path}/%2F") == (200, [])
            status, error = await api.ask("PUT", f"{path}/%2F/name", {})
            assert (status, error["reason"].split(":")[0]) == (400, f"{path} are not there")
            status, error = await api.ask("DELETE", f"{path}/%2F/name")
            if "-" in path and path != "operator-policies":  # as in RabbitMQ: none from now on
                assert status == 204
            else:
                assert (status, error["reason"].split(":")[0]) == (400, f"{path} are not there")

    run(test())


@pytest.mark.interop
@pytest.mark.skipif(shutil.which("rabbitmqadmin") is None, reason="no rabbitmqadmin here")
@pytest.mark.slow
def test_each_command_of_rabbitmqadmin_is_carried_out_or_refused_in_words(tmp_path):
    """The script prints a traceback for each status that it does not know."""

    async def admin(api, words, code=0):
        run = [sys.executable, shutil.which("rabbitmqadmin")]
        run += ["-P", str(api.port), "-H", "127.0.0.1", "-f", "tsv", *words.split()]
        found = await asyncio.to_thread(subprocess.run, run, capture_output=True, text=True)
        assert "Traceback" not in found.stderr, (words, found.stderr)
        assert found.returncode == code, (words, found.stdout, found.stderr)
        return found.stdout if code == 0 else found.stderr

    async def test():
        async with Api(tmp_path / "data") as api:
            await admin(api, "declare vhost name=work")
            await admin(api, "declare user name=ann password=p tags=administrator")
            await admin(api, "declare permission vhost=work user=ann configure=.* write=.* read=.*")
            await admin(api, "-V work -u ann -p p declare queue name=q queue_type=quorum")
            for what in ("parameters", "policies", "operator_policies", "vhost_limits"):
                await admin(api, f"list {what}")
            file = tmp_path / "definitions.json"
            await admin(api, f"export {file}")
            assert {"q"} == {each["name"] for each in json.loads(file.read_text())["queues"]}
            await admin(api, "-V work delete queue name=q")
            await admin(api, f"import {file}")
            await admin(api, f"-V work export {file}")
            await admin(api, f"-V work import {file}")
            assert "q\t0" in await admin(api, "-V work list queues name messages")
            for words in (
                "policy name=p pattern=x definition={}",
                "operator_policy name=p pattern=x definition={}",
                "parameter component=c name=n value={}",
                "vhost_limit vhost=work name=max-queues value=1",
            ):
                text = await admin(api, f"declare {words}", 1)
                assert "are not there" in text
            assert "are not there" in await admin(api, "delete policy name=p", 1)
            await admin(api, "delete vhost_limit vhost=work name=max-queues")
            assert "Not found" in await admin(api, "delete vhost name=nowhere", 1)
            assert "Not found" in await admin(api, "close connection name=nobody", 1)
            await admin(api, "delete permission vhost=work user=ann")
            await admin(api, "delete user name=ann")
            await admin(api, "delete vhost name=work")
            assert api.server.node.vhosts == ["/"]
            assert api.server.node.users.names() == ["guest"]

    run(test())
