"""Pages: every text is escaped, every part has a macro, nothing asks a network."""

import re
from html.parser import HTMLParser

import numpy as np
import pytest

from bagwise.errors import MissingExtraError
from bagwise.show import charts, page
from bagwise.show.page import Figure, Grid, Page, render

EVIL = "</style></title><script>alert(1)</script>\"' onload='x' \u202e{{ 7 * 7 }}"
GRID = Grid([(EVIL, EVIL), (EVIL, EVIL)], caption=EVIL, folded=EVIL)
PARTS = """
{% extends "page.html" %}
{% import "parts.html" as p with context %}
{% block body %}
{% call p.section(evil) %}
{{ p.headline(evil, evil, evil, "bad") }}{{ p.notice(evil) }}{{ p.paragraphs([evil]) }}
{{ p.points([evil]) }}{{ p.facts([(evil, evil)]) }}{{ p.card(evil, [evil]) }}{{ p.grid(grid) }}
{{ p.figure(figure) }}{{ p.chart(figure.chart, evil, evil) }}{{ p.steps([(evil, evil)]) }}
{{ p.promise({"epsilon": 1, "unit": evil, "headline": evil}, {"chance": evil, "words": evil, "tone": "bad"}) }}
{% endcall %}
{% endblock %}
"""  # noqa: E501


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


@pytest.fixture
def written(monkeypatch):
    """Return a function that renders a template given as text."""
    import jinja2

    def write(template, **values):
        environment = page._environment()
        loaders = [jinja2.DictLoader({"test.html": template}), environment.loader]
        monkeypatch.setattr(environment, "loader", jinja2.ChoiceLoader(loaders))
        environment.cache.clear()
        return render(Page("test.html", EVIL, EVIL, values))

    yield write
    page._environment.cache_clear()


@pytest.fixture
def everything(written):
    figure = Figure(charts.bars({EVIL: 1.0}, title=EVIL), EVIL, EVIL, numbers=GRID)
    return written(PARTS, evil=EVIL, grid=GRID, figure=figure)


def test_every_kind_of_part_is_tried_here():
    loader = page._environment().loader
    source = loader.get_source(page._environment(), "parts.html")[0]
    macros = set(re.findall(r"macro ([a-z]\w*)", source))
    assert macros == set(re.findall(r"p\.(\w+)\(", PARTS))


def test_no_text_becomes_markup(everything):
    found = Reader(everything)
    assert "script" not in found.tags
    assert not any(name.startswith("on") for name in found.attributes)
    assert "\u202e" not in everything
    assert not re.findall(r"\b49\b", everything.split("</style>", 1)[1].replace("&#39;", ""))
    assert len(found.ids) == len(set(found.ids))


def test_a_page_says_that_nothing_may_be_fetched_and_fetches_nothing(everything):
    assert "default-src 'none'" in everything
    assert not re.search(r"""(src|href)=["'](?!#|data:,)""", everything)
    assert "url(" not in everything.replace("url(#", "")
    assert "@import" not in everything


def test_columns_of_numbers_stand_to_the_right():
    grid = Grid([("", "a", "b", "c"), ("x", "1.5", "≥10", "12 %"), ("y", "-2e-05", "3*", "")])
    assert grid.aligned == [False, True, True, True]
    assert Grid([("", "a"), ("x", "1 to 2")]).aligned == [False, False]
    assert Grid([("only a heading",)]).aligned == []


TWICE = PARTS[: PARTS.index("{% call")] + "{{ p.figure(one) }}{{ p.figure(one) }}{% endblock %}"


def test_drawings_of_one_page_do_not_share_names(written):
    chart = charts.histogram(np.arange(3.0), np.array([1, 2]), title="t")
    html = written(TWICE, one=Figure(chart, alt="x"))
    ids = Reader(html).ids
    assert len(ids) == len(set(ids))
    assert html.count("<svg") == 4  # each for a desk and for a phone


STEPS = PARTS[: PARTS.index("{% call")] + "{{ p.steps([(command, '')]) }}{% endblock %}"


def test_options_of_a_command_are_not_broken(written):
    command = "bagwise release a-b.csv --label rent -o out"
    shown = re.search("<code>(.*?)</code>", written(STEPS, command=command))[1]
    pieces = re.findall("<span>(.*?)</span>", shown)
    assert pieces == ["bagwise release a-b.csv", "--label rent", "-o out"]
    assert re.sub("<.*?>", "", shown) == command  # what is copied is what is run


def test_without_the_extra_a_page_names_it(monkeypatch):
    page._environment.cache_clear()
    monkeypatch.setitem(__import__("sys").modules, "jinja2", None)
    with pytest.raises(MissingExtraError, match=r"bagwise\[plot\]"):
        render(Page("page.html", "a", "b"))
