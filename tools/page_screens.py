"""Takes the pictures of the page that docs/guide/page.rst and the README show.

    python tools/page_screens.py            docs/guide/pictures/page-*.webp
    python tools/page_screens.py --to DIR   somewhere else, to look at first

Needs Chromium, and `pip install playwright pillow`. A broker with something in each view is started
for it (tests/page_world.py) and messages go on being published while pictures are taken.
"""

import argparse
import io
import itertools
import math
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from page_world import World

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))
WIDE, NARROW = {"width": 1000, "height": 560}, {"width": 360, "height": 700}
VIEWS = {
    "overview": ("overview", WIDE, "light"),
    "overview-dark": ("overview", WIDE, "dark"),
    "queues": ("queues?sort=ready&reverse=true", WIDE, "light"),
    "queue": ("queue/%2F/invoices", WIDE, "light"),
    "queue-narrow": ("queue/%2F/invoices", NARROW, "dark"),
    "message": ("queue/%2F/invoices/0", WIDE, "light"),
    "dead": ("dead", WIDE, "light"),
    "delayed": ("delayed", WIDE, "light"),
    "clients": ("clients/consumers", WIDE, "light"),
    "gmq": ("gmq", WIDE, "light"),
    "disk": ("disk", WIDE, "light"),
    "health": ("health", WIDE, "light"),
}
SECONDS = 90  # that the overview is watched before its picture is taken


def main() -> None:
    from page_world import World, browser

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--to", type=Path, default=ROOT / "docs/guide/pictures")
    options = parser.parse_args()
    options.to.mkdir(exist_ok=True)
    with (
        tempfile.TemporaryDirectory() as folder,
        World(Path(folder, "data")) as world,
        browser() as chrome,
    ):
        over = threading.Event()
        load = threading.Thread(target=_load, args=(world, over))
        load.start()
        time.sleep(SECONDS)
        for name, (path, size, scheme) in VIEWS.items():
            page = chrome.new_context(viewport=size, color_scheme=scheme).new_page()
            page.goto(world.url)
            page.fill("input[name=user]", "guest")
            page.fill("input[name=password]", "guest")
            page.keyboard.press("Enter")
            page.wait_for_selector("nav")
            page.goto(f"{world.url}#/{path}")
            page.wait_for_timeout(3000)
            keep(page.screenshot(), options.to / f"page-{name}.webp")
            page.context.close()
        over.set()
        load.join()


def _load(world: "World", over: threading.Event) -> None:
    """Publish and consume, at a pace that changes."""
    for step in itertools.count():
        if over.wait(0.1):
            return
        world.publish(int(6 + 4 * math.sin(step / 60) + world.dice.random() * 3))
        world.connection.process_data_events(0.01)
        world.settle()


def keep(png: bytes, file: Path) -> None:
    from PIL import Image

    Image.open(io.BytesIO(png)).convert("RGB").save(file, lossless=False, quality=82, method=6)
    print(f"{file.stat().st_size:8,} {file}")


if __name__ == "__main__":
    main()
