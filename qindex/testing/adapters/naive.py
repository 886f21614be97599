"""Everybody's first queue, as the documentation's example: it breaks."""

import json
from pathlib import Path

from qindex.testing import Adapter, Promise


class Naive(Adapter):
    """A list in a JSON file, written anew at each change."""

    promise = Promise(kill="returned", power="nothing")

    def open(self, directory: str) -> None:
        self.file = Path(directory, "queue.json")
        self.bodies = json.loads(self.file.read_text()) if self.file.exists() else []

    def publish(self, body: bytes) -> None:
        self.bodies.append(body.hex())
        self.file.write_text(json.dumps(self.bodies))

    def get(self) -> bytes | None:
        body = self.bodies.pop(0) if self.bodies else None
        self.file.write_text(json.dumps(self.bodies))
        return None if body is None else bytes.fromhex(body)

    def close(self) -> None:
        self.file.write_text(json.dumps(self.bodies))
