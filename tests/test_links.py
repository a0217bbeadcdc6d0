"""Links between pages lead somewhere."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = [
    *ROOT.glob("*.md"),
    *(page for page in (ROOT / "docs").rglob("*.md") if "_generated" not in page.parts),
]
LINK = re.compile(r"\]\(([^()\s]+)\)")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


def anchors(text):
    """Return the anchors that headings get, as GitHub makes them."""
    found = set()
    for heading in HEADING.findall(text):
        words = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading)
        found.add(re.sub(r"[^\w\- ]", "", words.lower()).replace(" ", "-"))
    return found


def dead(page):
    for link in LINK.findall(page.read_text(encoding="utf-8")):
        if re.match(r"[a-z]+:", link) or "_generated/" in link:
            continue  # the reference is written by Sphinx, which checks links to it
        path, _, anchor = link.partition("#")
        target = page if not path else (page.parent / path).resolve()
        known = target.exists()
        if known and anchor and target.suffix == ".md":
            known = anchor in anchors(target.read_text(encoding="utf-8"))
        if not known:
            yield link


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_link_leads_somewhere(page):
    assert list(dead(page)) == []


def test_a_dead_link_is_noticed(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("# One\n[here](#one) [there](#two) [gone](gone.md) [out](https://a.b)\n")
    assert list(dead(page)) == ["#two", "gone.md"]
