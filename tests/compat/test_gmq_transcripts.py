"""What gmq's own servers answered, byte for byte, but for the differences that the guide lists.

`gmq_transcripts.py` says how the conversations were recorded.
"""

from __future__ import annotations

import re
from pathlib import Path

import gmq_transcripts
import pytest
from broker_process import BrokerProcess

GUIDE = Path(__file__).parents[2] / "docs" / "guide" / "gmq.rst"
NAMES = ("version-1", "clients-1", "version-2", "clients-2", "version-2-http")
FILES = {name: gmq_transcripts.load(name) for name in NAMES}
CONVERSATIONS = [
    pytest.param(name, conversation, id=f"{name}: {conversation['name']}")
    for name, file in FILES.items()
    for conversation in file["conversations"]
]


@pytest.fixture(scope="module")
def addresses(tmp_path_factory):
    """Where a server speaks each of the protocols."""
    directory = str(tmp_path_factory.mktemp("gmq"))
    broker = BrokerProcess(
        "--gmq", "127.0.0.1:0", "--gmq-http", "127.0.0.1:0", "--log", "error", directory
    )
    with broker:
        lines = [broker.process.stdout.readline() for _ in range(2)]
        tcp, http = (("127.0.0.1", int(re.search(r":(\d+)/?$", line)[1])) for line in lines)
        yield {"lines": tcp, "frames": tcp, "http": http}


@pytest.mark.parametrize(("name", "conversation"), CONVERSATIONS)
def test_the_answers_are_gmqs_or_a_difference_that_the_guide_names(name, conversation, addresses):
    guide = " ".join(GUIDE.read_text().split())
    protocol = FILES[name]["protocol"]
    player = gmq_transcripts.Player(protocol, addresses[protocol], hurry=0.5)
    for step in conversation["steps"]:
        answers = player.step(step)
        assert answers == step.get("qindex", step["gmq"]), step["send"]
        if "qindex" in step:
            assert step["qindex"] != step["gmq"]
            assert step["why"] in guide
    player.close()
