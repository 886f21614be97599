"""Which queue a member is of: by its configuration, by its log, by its own name."""

from __future__ import annotations

from pathlib import Path

import pytest
from ra_files import Wal, put, term

from qindex.brokers.rabbitmq.erlang import Atom, Opaque
from qindex.brokers.rabbitmq.quorum.names import name_of, server_name_of
from qindex.brokers.rabbitmq.ra.config import TextError, read_term
from qindex.brokers.rabbitmq.ra.system import Server, open_system
from qindex.brokers.tree import Findings, Tree

CONFIG = """#{cluster_name => '%%2F_q',id => {'%%2F_q',a@b},
  machine =>
      {module,rabbit_fifo,
          #{created => 1,queue_resource => {resource,<<%s>>,
             queue,<<%s>>},single_active_consumer_on => false}},
  tick_timeout => 5000,uid => <<"2F_Q">>}."""


def server(path: Path, config: str | None, wal: bytes = b"RAWA\x01") -> Server:
    files = {"1/2F_Q/config": config.encode("latin-1")} if config is not None else {}
    (path / "1" / "2F_Q").mkdir(parents=True, exist_ok=True)
    findings = Findings()
    tree = Tree(put(path, {"1/00000001.wal": wal, **files}), findings)
    return open_system(tree, "1", findings).servers["2F_Q"]


@pytest.mark.parametrize(
    ("vhost", "name", "told"),
    [
        ('"/"', '"a" "b"', (b"/", b"ab")),
        ('"v\\"h"', '"tab\\tq"', (b'v"h', b"tab\tq")),
        ('"/"', "208,190,226,152,131", (b"/", "\N{CYRILLIC SMALL LETTER O}☃".encode())),
        ('"vh\xc3\xbc"', '"\xc3\xbc"', ("vhü".encode(), "ü".encode())),
        ('"/"', '"a\\nb\\x{41}\\101"', (b"/", b"a\nbAA")),
    ],
)
def test_a_config_names_the_queue_however_erlang_writes_it(
    tmp_path: Path, vhost: str, name: str, told: tuple[bytes, bytes]
) -> None:
    assert name_of(server(tmp_path, CONFIG % (vhost, name)), ()) == told


def test_without_a_config_the_log_names_the_queue(tmp_path: Path) -> None:
    resource = (Atom("resource"), b"vh", Atom("queue"), b"orders")
    handler = (Atom("rabbit_quorum_queue"), Atom("become_leader"), [resource])
    command = (Atom("update_config"), {Atom("become_leader_handler"): handler})
    wal = Wal()
    wal.add("2F_Q", 0, term(Atom("undefined")), 0)
    wal.add("2F_Q", 1, term((Atom("noop"), {Atom("ts"): 1}, 2)))
    entry = (Atom("$usr"), {Atom("ts"): 1}, command, Atom("noreply"))
    wal.add("2F_Q", 2, term(entry))
    assert name_of(server(tmp_path, None, wal.data), ()) == (b"vh", b"orders")


def test_a_server_s_name_tells_the_queue_only_if_one_fits(tmp_path: Path) -> None:
    """ "a_b" in "c" and "b" in "c_a" are both "c_a_b"."""
    member = server(tmp_path, None)
    member.name = "c_a_b"
    assert name_of(member, [(b"c", b"a_b"), (b"c", b"b")]) == (b"c", b"a_b")
    assert name_of(member, [(b"c", b"a_b"), (b"c_a", b"b")]) is None
    assert name_of(member, []) is None
    assert server_name_of(b"/", b"q") == "%2F_q"
    assert server_name_of(b"vh/x", b"q") == "vh/x_q"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (b"[].", []),
        (b"{1,-2,3.5,'a b',<<>>,\"ab\"}.", (1, -2, 3.5, Atom("a b"), b"", [97, 98])),
        (b'#{[1,2] => {x}, "a"\n "b" => y}.', {(1, 2): (Atom("x"),), (97, 98): Atom("y")}),
        (b"% a comment\n<0.1.2>.", Opaque(0, b"<0.1.2>")),
    ],
)
def test_terms_as_text(text: bytes, value: object) -> None:
    assert read_term(text) == value


@pytest.mark.parametrize(
    "text",
    [b"", b"a", b"{a", b"{a].", b"#{a}.", b"<<300>>.", b"a b", b"[" * 5000, b"'", b"#{[[]] => 1}."],
)
def test_other_text_is_an_error(text: bytes) -> None:
    with pytest.raises(TextError):
        read_term(text)
