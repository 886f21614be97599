"""A tab of a headless browser that shows a broker's page; and what a machine lacks for that."""

from __future__ import annotations

import importlib.util

import pytest
from page_world import chromium

MISSING = [
    what
    for what, is_there in (
        ("Chromium (apt-get install chromium)", chromium()),
        ("Playwright (pip install playwright)", importlib.util.find_spec("playwright")),
    )
    if not is_there
]
IN_BROWSER = [
    pytest.mark.slow,
    pytest.mark.interop,
    pytest.mark.skipif(bool(MISSING), reason=f"no {' and no '.join(MISSING)}"),
]


class Tab:
    """A page of the browser, with what went wrong in it."""

    def __init__(self, page, url):
        self.page = page
        self.url = url
        self.errors = []
        self.elsewhere = []
        self.may_miss = False  # what the server does not know, as the browser notes
        page.set_default_timeout(15_000)
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("console", self._console)
        page.on("request", self._request)

    def _console(self, message):
        if message.type == "error" and not (self.may_miss and "404" in message.text):
            self.errors.append(message.text)

    def _request(self, request):
        if not request.url.startswith(self.url):
            self.elsewhere.append(request.url)

    def log_in(self, user="guest", password="guest"):  # noqa: S107
        self.page.goto(self.url)
        self.page.fill("input[name=user]", user)
        self.page.fill("input[name=password]", password)
        self.page.keyboard.press("Enter")
        self.page.wait_for_selector("nav")

    def go(self, path, text):
        self.page.goto(f"{self.url}#/{path}")
        self.page.get_by_text(text).first.wait_for()

    def confirm(self, button, **fields):
        """Answer the dialog that a button opens."""
        self.page.get_by_role("button", name=button, exact=True).first.click()
        dialog = self.page.locator("dialog")
        for name, value in fields.items():
            dialog.locator(f"[name={name}]").fill(value)
        dialog.locator("button[type=submit]").click()
        dialog.wait_for(state="detached")
