"""Over HTTP nobody may do more than over AMQP."""

from __future__ import annotations

import asyncio
from urllib.parse import quote

from http_api import Api, run

from qindex.broker.users import Permission


def test_http_asks_for_the_rights_that_amqp_asks_for():
    async def test():
        async with Api() as api:
            users = api.server.node.users
            users.add("clerk", "p")
            users.set_tags("clerk", ["management"])
            users.set_permissions("/", "clerk", Permission("^c", "^c", "^c"))
            users.add("seer", "p")
            users.set_tags("seer", ["monitoring"])
            clerk, seer = {"login": ("clerk", "p")}, {"login": ("seer", "p")}
            dead = {"arguments": {"x-dead-letter-exchange": "amq.fanout"}}
            assert (await api.ask("PUT", "queues/%2F/c1", dead, **clerk))[0] == 401
            other = {"arguments": {"alternate-exchange": "amq.fanout"}}
            assert (await api.ask("PUT", "exchanges/%2F/cx", other, **clerk))[0] == 401
            assert (await api.ask("PUT", "exchanges/%2F/cx", {}, **clerk))[0] == 201
            assert "c1" not in api.server.node.vhost("/").queues
            for wrong in ({"user_id": "guest"}, {"expiration": "9" * 30}):
                message = {"routing_key": "", "payload": "", "properties": wrong}
                status, _ = await api.ask("POST", "exchanges/%2F/cx/publish", message, **clerk)
                assert status == 400
            _, writer = await asyncio.open_connection("127.0.0.1", api.amqp)
            while not api.server.sessions:
                await asyncio.sleep(0.01)
            name = quote(api.server.sessions[0].peer, safe="")
            assert (await api.ask("DELETE", f"connections/{name}", **seer))[0] == 401
            assert (await api.ask("DELETE", f"connections/{name}"))[0] == 204
            writer.close()

    run(test())


def test_what_one_user_has_said_rightly_is_no_login_of_another():
    async def test():
        async with Api() as api:
            users = api.server.node.users
            for name, password in (("ann", "bob\0c"), ("ann\0bob", "secret")):
                users.add(name, password)
                users.set_tags(name, ["management"])
            assert (await api.ask("GET", "whoami", login=("ann", "bob\0c")))[0] == 200
            assert (await api.ask("GET", "whoami", login=("ann\0bob", "c")))[0] == 401

    run(test())
