"""Pages of HTML: foreign text is text wherever it stands, and nothing is loaded."""

from __future__ import annotations

from html.parser import HTMLParser

from qindex.look import html

FOREIGN = "<script>alert('1')</script>&\x1b[2J\udcff\""


class Page(HTMLParser):
    def __init__(self, data: bytes) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: list[tuple[str, str | None]] = []
        self.feed(data.decode())

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes += attributes


def test_foreign_text_is_text_wherever_it_stands() -> None:
    data = html.page(
        FOREIGN,
        [
            html.verdict(FOREIGN, good=False),
            html.table(["queue", ">n", "@file"], [[html.text(FOREIGN), "1", html.text(FOREIGN)]]),
            html.severity(FOREIGN),
            html.share([(1, "live", FOREIGN)], 2),
            html.plot(FOREIGN, [(FOREIGN, [("bar", 1.0)], FOREIGN)]),
        ],
    )
    page = Page(data)
    assert "script" not in page.tags
    assert b"\x1b" not in data
    assert data.count(b"&lt;script&gt;") == 12
    assert ("title", "<script>alert('1')</script>&\\x1b[2J\\x{ff}\"") in page.attributes


def test_a_page_may_load_nothing_and_run_nothing() -> None:
    page = Page(html.page("t", ["<p>x</p>", ""]))
    policy = ("content", "default-src 'none'; style-src 'unsafe-inline'")
    assert policy in page.attributes
    assert not {"src", "href"} & {name for name, _ in page.attributes}


def test_a_table_has_its_numbers_right_its_places_and_its_total() -> None:
    told = html.table(["<queue", ">live", "@file"], [["a", "1", "x"], ["all", "1", ""]])
    assert '<th>queue</th><th class="n">live</th><th class="where">file</th>' in told
    assert '<tr><td>a</td><td class="n">1</td><td class="where">x</td></tr>' in told
    assert "total" not in told
    assert '<tr class="total"><td>a' in html.table(["q"], [["a"]], last_is_total=True)


def test_what_has_no_rows_is_no_plot_and_a_part_of_nothing_no_bar() -> None:
    assert html.plot("t", []) == ""
    assert html.share([(0, "lost", "lost"), (3, "live", "live")], 3).count("<i ") == 1
    assert "width:100.00%" in html.share([(3, "live", "live")], 3)
