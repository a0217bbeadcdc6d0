"""The tables in README and docs say what the registries say."""

import pytest

from tools.tables import MARKED, TABLES, pages, renewed


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.name)
def test_tables_are_as_the_registries_have_them(page):
    text = page.read_text(encoding="utf-8")
    assert text == renewed(text), f"{page.name} is out of date: run `make tables`"
    assert text.count("<!-- table: ") == len(MARKED.findall(text))


def test_every_table_is_somewhere():
    found = {name for page in pages() for _, name, _, _ in MARKED.findall(page.read_text("utf-8"))}
    assert found == set(TABLES)


def test_a_table_that_was_edited_by_hand_is_noticed():
    page = "<!-- table: families -->\n| family |\n<!-- end of table -->\n"
    assert renewed(page) != page
    assert renewed(renewed(page)) == renewed(page)
