"""Pages are short enough to be read: long ones are split, and an overview links the parts."""

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parent.parent / "docs"
MOST_WORDS = 1600
GENERATED = ("_generated", "results")  # the reference, and tables of measurements
PAGES = [page for page in DOCS.rglob("*.md") if not set(page.parts) & set(GENERATED)]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(DOCS).as_posix())
def test_a_page_is_not_too_long(page):
    words = len(page.read_text(encoding="utf-8").split())
    assert words <= MOST_WORDS, f"{page.name} has {words} words: split it, as docs/privacy.md is"


def test_every_part_is_linked_from_its_overview():
    folders = {page.parent for page in PAGES if page.parent.with_suffix(".md").exists()}
    assert len(folders) > 5
    for folder in folders:
        overview = folder.with_suffix(".md").read_text(encoding="utf-8")
        linked = set(re.findall(rf"\]\({folder.name}/([\w-]+\.md)[#)]", overview))
        assert linked == {part.name for part in folder.glob("*.md")}
