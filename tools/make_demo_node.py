"""Make cli/demo/demo_node.tar.xz and .json: a dead RabbitMQ node, cut to what a reader needs.

    python tools/make_demo_node.py ../shared/fixtures/rabbitmq

Takes the fixture a_v1_clean (see its README) and keeps the indexes, the persistent message store,
the names, and the log with the queues' definitions; of the truth it keeps what a node gave back.
The same input makes the same bytes.
"""

import gzip
import io
import json
import lzma
import re
import sys
import tarfile
from pathlib import Path

FIXTURE = "a_v1_clean"
KEPT = re.compile(
    r"[^/]+/(LATEST\.LOG|msg_stores/vhosts/[0-9A-Z]+/"
    r"(\.vhost|\.config|recovery\.dets|msg_store_persistent/\d+\.rdq"
    r"|queues/[0-9A-Z]+/(\.queue_name|journal\.jif|\d+\.idx)))"
)
OUT = Path(__file__).resolve().parents[1] / "qindex" / "cli" / "demo"


def cut_archive(source: Path) -> bytes:
    with tarfile.open(source) as whole:
        members = [m for m in whole.getmembers() if m.isfile()]
        files = {m.name.removeprefix("./"): whole.extractfile(m).read() for m in members}
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w", format=tarfile.PAX_FORMAT) as cut:
        for name in sorted(filter(KEPT.fullmatch, files)):
            member = tarfile.TarInfo(name)
            member.size = len(files[name])
            cut.addfile(member, io.BytesIO(files[name]))
    return lzma.compress(made.getvalue(), preset=9 | lzma.PRESET_EXTREME)


def cut_truth(source: Path) -> dict:
    with gzip.open(source) as file:
        truth = json.load(file)
    published = {row[0]: dict(zip(truth["fields"], row, strict=True)) for row in truth["messages"]}
    told = {(q["vhost"], q["name"]): q for q in truth["rabbitmq_recovers"]["queues"]}
    queues = []
    for queue in truth["queues"]:
        key = (queue["vhost"], queue["name"])
        if key not in told:
            continue  # not durable: the node forgot it
        given = {row[0]: row for row in told[key]["messages"]}
        rows = list(given.values())
        if told[key]["count_reported"] != len(given):
            # What had expired when the node was booted still stands in its files.
            rows = [given.get(n) or [n, 0, 1, "", queue["name"]] for n in queue["messages"]]
        queues.append(
            {
                "vhost": queue["vhost"],
                "name": queue["name"],
                "arguments": queue["arguments"],
                "messages": [
                    [n, redelivered, exchange, key, published[n]["size"], published[n]["sha256_32"]]
                    for n, redelivered, _, exchange, key, *_ in rows
                ],
            }
        )
    return {
        "rabbitmq": truth["rabbitmq"],
        "node": truth["nodename"],
        "fields": ["n", "redelivered", "exchange", "routing_key", "size", "sha256_32"],
        "queues": queues,
    }


def main() -> None:
    fixtures = Path(sys.argv[1])
    (OUT / "demo_node.tar.xz").write_bytes(cut_archive(fixtures / f"{FIXTURE}.tar.xz"))
    truth = json.dumps(cut_truth(fixtures / f"{FIXTURE}.json.gz"), ensure_ascii=False)
    (OUT / "demo_node.json").write_text(truth + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
