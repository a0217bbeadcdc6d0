"""Pages: every text is escaped, every kind of block has a template, nothing asks a network."""

import re
from html.parser import HTMLParser

import numpy as np
import pytest

from bagwise.errors import MissingExtraError
from bagwise.show import charts, page
from bagwise.show.page import (
    Block,
    Card,
    Cards,
    Facts,
    Figure,
    Grid,
    Headline,
    Notice,
    Page,
    Points,
    Prose,
    Question,
    Questions,
    Section,
    Step,
    Steps,
    render,
)

EVIL = "</style></title><script>alert(1)</script>\"' onload='x' \u202e{{ 7 * 7 }}"

BLOCKS = [
    Prose(EVIL),
    Headline(EVIL, EVIL, EVIL),
    Notice(EVIL),
    Facts([(EVIL, EVIL)]),
    Cards([Card(EVIL, [EVIL])]),
    Points([EVIL]),
    Grid([(EVIL, EVIL), (EVIL, EVIL)], caption=EVIL, folded=EVIL),
    Figure(charts.bars({EVIL: 1.0}, title=EVIL), EVIL, EVIL, numbers=Grid([(EVIL,), (EVIL,)])),
    Steps([Step(EVIL, EVIL)]),
    Questions([Question(EVIL, EVIL, EVIL, EVIL, EVIL)]),
]  # fmt: skip


class Reader(HTMLParser):
    """Collects tags, attributes and ids."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.attributes, self.ids = set(), set(), []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}
        self.ids += [value for name, value in attrs if name == "id"]


def test_every_kind_of_block_is_tried_here():
    assert {type(block) for block in BLOCKS} == set(Block.__subclasses__())


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: block.kind)
def test_no_text_becomes_markup(block):
    html = render(Page(EVIL, EVIL, [Section(EVIL, [block])], top=[block], label=EVIL))
    found = Reader(html)
    assert "script" not in found.tags
    assert not any(name.startswith("on") for name in found.attributes)
    assert "\u202e" not in html
    assert "49" not in re.findall(r"\b49\b", html.split("</style>", 1)[1].replace("&#39;", ""))
    assert len(found.ids) == len(set(found.ids))


def test_a_page_says_that_nothing_may_be_fetched_and_fetches_nothing():
    html = render(Page("a", "b", [Section("c", BLOCKS)]))
    assert "default-src 'none'" in html
    assert not re.search(r"""(src|href)=["'](?!#|data:,)""", html)
    assert "url(" not in html.replace("url(#", "")
    assert "@import" not in html


def test_columns_of_numbers_stand_to_the_right():
    grid = Grid([("", "a", "b", "c"), ("x", "1.5", "≥10", "12 %"), ("y", "-2e-05", "3*", "")])
    assert grid.aligned == [False, True, True, True]
    assert Grid([("", "a"), ("x", "1 to 2")]).aligned == [False, False]
    assert Grid([("only a heading",)]).aligned == []


def test_drawings_of_one_page_do_not_share_names():
    chart = charts.histogram(np.arange(3.0), np.array([1, 2]), title="t")
    html = render(Page("a", "b", [Section("c", [Figure(chart, alt="x"), Figure(chart, alt="y")])]))
    ids = Reader(html).ids
    assert len(ids) == len(set(ids))
    assert html.count("<svg") == 4  # each for a desk and for a phone


def test_options_of_a_command_are_not_broken():
    step = Step("bagwise release a-b.csv --label rent -o out")
    assert step.pieces == ["bagwise release a-b.csv", "--label rent", "-o out"]
    html = render(Page("a", "b", [Section("c", [Steps([step])])]))
    shown = re.search("<code>(.*?)</code>", html)[1]
    assert re.sub("<.*?>", "", shown) == step.command  # what is copied is what is run


def test_without_the_extra_a_page_names_it(monkeypatch):
    page._environment.cache_clear()
    monkeypatch.setitem(__import__("sys").modules, "jinja2", None)
    with pytest.raises(MissingExtraError, match=r"bagwise\[plot\]"):
        render(Page("a", "b", []))
