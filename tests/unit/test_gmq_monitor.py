"""The JSON of gmq's web monitor, below /gmq/."""

from __future__ import annotations

import json
import time

import pytest
from gmq_client import Client
from http_api import Api, run

from qindex.broker.users import Permission


async def asked(api, path, **options):
    status, _, raw = await api.raw("GET", f"/gmq/{path}", **options)
    return status, json.loads(raw)


async def data(api, path):
    status, found = await asked(api, path)
    assert (status, found["code"], found["msg"]) == (200, 0, "")
    return found["data"]


def with_jobs(test, directory):
    async def body():
        async with Api(directory) as api:
            port = await api.server.listen_gmq("127.0.0.1", 0)
            client = await Client.connect(port)
            await client.push("now", "mail", "<b>", ttr="60")
            await client.push("taken", "mail", ttr="90")
            await client.push("soon", "mail", delay="3665", ttr="5")
            await client.push("sooner", "mail", delay="61")
            await client.push("other", "report", delay="7200")
            assert (await client.call("Pop", ["mail"]))[0]["id"] == "now"
            await test(api)
            await client.close()

    run(body())


def when(text):
    return time.mktime(time.strptime(text, "%Y-%m-%d %H:%M:%S"))


def test_ready_queues_buckets_and_ttr_buckets_are_counted(directory):
    async def test(api):
        queues = await data(api, "getReadyQueueStat")
        assert queues == [
            {"id": 1, "queue_name": "gmq:readyqueue:mail", "job_num": 1},
            {"id": 2, "queue_name": "gmq:readyqueue:report", "job_num": 0},
        ]
        mail, report = await data(api, "getBucketStat")
        assert (mail["bucket_name"], mail["job_num"], mail["id"]) == ("gmq:bucket:mail", 2, 1)
        assert when(mail["next_time"]) == pytest.approx(time.time() + 61, abs=10)
        assert (report["job_num"], report["bucket_name"]) == (1, "gmq:bucket:report")
        mail, report = await data(api, "getTTRBucketStat")
        assert (mail["job_num"], mail["bucket_name"]) == (1, "gmq:ttrbucket:mail")
        assert when(mail["next_time"]) == pytest.approx(time.time() + 60, abs=10)
        assert (report["job_num"], report["next_time"]) == (0, "")

    with_jobs(test, directory)


def test_jobs_of_a_bucket_and_one_job_are_shown(directory):
    async def test(api):
        rows = await data(api, "getJobsByBucketKey?bucketKey=gmq:bucket:mail")
        assert [row["id"] for row in rows] == ["sooner", "soon"]
        row = rows[1]
        assert when(row.pop("runtime")) == pytest.approx(time.time() + 3665, abs=10)
        assert row == {
            "id": "soon",
            "job_key": "gmq:jobpool:soon",
            "ttr": "5",
            "delay_time": "1h1m5s",
            "topic": "mail",
            "status": "delay",
        }
        assert len(await data(api, "getJobsByBucketKey?bucketKey=gmq:bucket:mail&limit=1")) == 1
        (row,) = await data(api, "getJobsByBucketKey?bucketKey=gmq:ttrbucket:mail")
        assert (row["id"], row["status"]) == ("now", "reserved")
        assert await data(api, "jobDetail?jobId=now") == {
            "id": "now",
            "job_key": "gmq:jobpool:now",
            "topic": "mail",
            "body": "<b>",
            "delay": "0s",
            "TTR": "60",
            "status": "3",
            "consume_num": "1",
        }
        ready, delayed = [
            await data(api, f"jobDetail?jobId={each}") for each in ("taken", "sooner")
        ]
        assert (ready["status"], ready["consume_num"]) == ("2", "0")
        assert (delayed["status"], delayed["delay"]) == ("1", "1m1s")

    with_jobs(test, directory)


def test_what_is_not_there_is_said_and_nobody_sees_more_than_it_may(directory):
    async def test(api):
        for key in ("", "gmq:bucket:nothing", "gmq:bucket:", "mail"):
            status, found = await asked(api, f"getJobsByBucketKey?bucketKey={key}")
            assert (status, found["code"], found["data"]) == (400, 1, None)
        assert (await asked(api, "getJobsByBucketKey?bucketKey=gmq:bucket:mail&limit=x"))[0] == 400
        assert (await asked(api, "jobDetail?jobId=nobody"))[0] == 404
        users = api.server.node.users
        for name, permission in (("eye", None), ("clerk", Permission("", "", "^report$"))):
            users.add(name, "p")
            users.set_tags(name, ["monitoring"])
            if permission:
                users.set_permissions("/", name, permission)
            login = {"login": (name, "p")}
            assert (await asked(api, "getBucketStat", **login))[0] == 200
            path = "getJobsByBucketKey?bucketKey=gmq:bucket:"
            assert (await asked(api, f"{path}mail", **login))[0] == 401
            assert (await asked(api, f"{path}report", **login))[0] == (200 if permission else 401)
            assert (await asked(api, "jobDetail?jobId=now", **login))[0] == 401
            assert (await asked(api, "jobDetail?jobId=taken", **login))[0] == 401
        assert (await asked(api, "getBucketStat", login=("nobody", "x")))[0] == 401

    with_jobs(test, directory)


def test_without_gmqs_port_there_is_nothing():
    async def test():
        async with Api() as api:
            assert (await asked(api, "getBucketStat"))[0] == 404

    run(test())
