"""Pages as people see them: drawn, readable in light and dark, on a desk, a phone and on paper.

Screenshots of all of them are left under build/pages, for whoever wants to look.
"""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import bagwise as bw
from bagwise.planner.ranking import make_page
from bagwise.report import report_on
from bagwise.report.model_page import model_page
from bagwise.report.pages import ledger_page
from bagwise.report.release_page import explain_or_say_why, release_page
from bagwise.show.page import render

SHOTS = Path(__file__).parents[2] / "build" / "pages"
NAMES = ["release", "model", "ledger", "plan"]
WIDTHS = {"desk": 1280, "phone": 390}

# The ratio of WCAG 2.2, 1.4.3, for every element that shows text of its own.
CONTRASTS = """() => {
  const canvas = document.createElement("canvas").getContext("2d", {willReadFrequently: true});
  const rgb = colour => {
    canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data];
  };
  const light = ([r, g, b]) => [r, g, b].map(v => v / 255)
    .map(v => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const behind = element => {
    for (let e = element; e; e = e.parentElement) {
      const colour = rgb(getComputedStyle(e).backgroundColor);
      if (colour[3] === 255) return colour;
    }
    return [255, 255, 255, 255];
  };
  const found = [];
  for (const e of document.body.querySelectorAll("*")) {
    const own = [...e.childNodes].some(n => n.nodeType === 3 && n.textContent.trim());
    if (!own || !e.checkVisibility()) continue;
    const style = getComputedStyle(e);
    const paint = e instanceof SVGElement ? style.fill : style.color;
    const [a, b] = [light(rgb(paint)), light(behind(e))];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    found.push([ratio, e.textContent.trim().slice(0, 40)]);
  }
  return found;
}"""


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pages")
    rng = np.random.default_rng(0)
    n = 1500
    area, floor = rng.uniform(20, 120, n), rng.integers(0, 9, n)
    district = rng.choice(["North", "Harbour", "Old town"], n)
    rent = 150 + 11 * area + 100 * (district == "Harbour") + rng.normal(0, 80, n)
    table = pa.table({"area": area, "floor": floor, "district": district, "rent": rent})
    ledger = bw.Ledger.create(folder / "rents.ledger", epsilon_total=4.0, dataset="City rents")
    release = bw.make_release(
        table, label="rent", bounds=(0, 2000), epsilon=1.0, bag_size=15, strategy="sorted",
        ledger=ledger,
    )  # fmt: skip
    model = bw.fit_release(release)
    plan = bw.plan(table, label="rent", bounds=(0, 2000), epsilon=1.0, bag_sizes=[10, 20, 40])
    explained = explain_or_say_why(release)
    about = release_page(
        release, path=Path("out"), report=report_on(release), explanation=explained, ledger=ledger
    )
    made = {
        "release": render(about),
        "model": render(model_page(model, path=Path("model.json"), release=release)),
        "ledger": render(ledger_page(ledger)),
        "plan": make_page(plan),
    }
    for name, html in made.items():
        (folder / f"{name}.html").write_text(html, encoding="utf-8")
    return folder


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("place", WIDTHS)
def test_charts_are_drawn_and_fit_the_screen(page, pages, name, place):
    page.set_viewport_size({"width": WIDTHS[place], "height": 900})
    page.goto((pages / f"{name}.html").as_uri())
    charts = page.locator("figure .chart:visible svg")
    assert charts.count() == page.locator("figure").count() > 0
    for i in range(charts.count()):
        box = charts.nth(i).bounding_box()
        assert box["width"] > 200
        assert box["height"] > 60
        marks = charts.nth(i).locator("[class*=mark-]:not([class*=role-]), .role-mark")
        assert marks.count() > 0
    assert page.evaluate("document.documentElement.scrollWidth") <= WIDTHS[place]
    SHOTS.mkdir(parents=True, exist_ok=True)
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        page.screenshot(path=SHOTS / f"{name}-{WIDTHS[place]}-{scheme}.png", full_page=True)


@pytest.mark.parametrize("name", NAMES)
def test_everything_can_be_read_in_light_and_in_dark(page, pages, name):
    page.goto((pages / f"{name}.html").as_uri())
    seen = {}
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        for fold in page.locator("details").all():
            fold.evaluate("fold => fold.open = true")
        found = page.evaluate(CONTRASTS)
        assert len(found) > 20
        assert [text for ratio, text in found if ratio < 4.5] == []
        seen[scheme] = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert seen["light"] != seen["dark"]


@pytest.mark.parametrize("name", NAMES)
def test_charts_have_words_and_the_keyboard_reaches_everything_in_order(page, pages, name):
    page.goto((pages / f"{name}.html").as_uri())
    for picture in page.locator("[role=img]").all():
        assert len(picture.get_attribute("aria-label")) > 30
    assert page.locator("h1").count() == 1
    names = page.locator("main section").evaluate_all(
        "all => all.map(s => document.getElementById(s.getAttribute('aria-labelledby')).innerText)"
    )
    assert names == page.locator("h2").all_inner_texts()
    reachable = page.evaluate(
        "[...document.querySelectorAll('a, summary, [tabindex=\"0\"]')]"
        ".filter(e => e.checkVisibility()).length"
    )
    places = []
    for _ in range(reachable):
        page.keyboard.press("Tab")
        place, outlined = page.evaluate(
            "[[...document.querySelectorAll('*')].indexOf(document.activeElement),"
            " getComputedStyle(document.activeElement).outlineStyle]"
        )
        places.append(place)
        assert outlined != "none"
    assert places == sorted(set(places))


def test_paper_is_white_whatever_the_screen_is(page, pages):
    page.emulate_media(media="print", color_scheme="dark")
    page.goto((pages / "release.html").as_uri())
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert [text for ratio, text in page.evaluate(CONTRASTS) if ratio < 4.5] == []
    assert not page.locator("nav").is_visible()


def test_the_check_of_contrast_sees_what_is_too_pale(page, tmp_path):
    pale = "<body style='background: #fff'><p style='color: #999'>pale</p><p>black</p></body>"
    (tmp_path / "pale.html").write_text(pale)
    page.goto((tmp_path / "pale.html").as_uri())
    assert [text for ratio, text in page.evaluate(CONTRASTS) if ratio < 4.5] == ["pale"]
