"""Labelling by keyboard in a real browser, against the server that users start."""

import os
import re
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from playwright.sync_api import expect

from bagwise import AnnotationProject

SOURCE = Path(__file__).parents[2] / "src"


@contextmanager
def serving(directory):
    """Yield the link of a page and the process behind it."""
    path = os.pathsep.join([str(SOURCE), os.environ.get("PYTHONPATH", "")])
    process = subprocess.Popen(
        [sys.executable, "-m", "bagwise", "annotate", "serve", str(directory)],
        env={**os.environ, "PYTHONPATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        link = process.stdout.readline().strip()
        assert link.startswith("http://127.0.0.1:"), link + process.stdout.read()
        yield link, process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def start(tmp_path, budget=20, **options):
    area = np.random.default_rng(0).uniform(20, 120, 300).round(2)
    notes = [f"<script>document.title='broken {i}'</script>" for i in range(300)]
    table = pa.table({"area": area, "note": notes})
    return AnnotationProject.start(
        table, tmp_path / "p", budget=budget, exclude=["note"], show=["area", "note"], seed=1,
        design="kmeans", **{"label": "rent", "bounds": (0, 3000), **options},
    )  # fmt: skip


def area_on(page):
    return float(page.locator("#cells td").first.inner_text())


def type_rent(page, value=None):
    """Answer for the row that is shown, by keyboard alone, and wait for the next one."""
    before = page.locator("#row").inner_text()
    rent = 100 + 10 * area_on(page) if value is None else value
    page.keyboard.type(f"{rent:.2f}")
    page.keyboard.press("Enter")
    return before


def labelled(page, number, of=20):
    expect(page.locator("#count")).to_have_text(f"{number} of {of} labels")


def test_twenty_rows_by_keyboard_a_reload_an_undo_a_second_tab_and_a_fit(context, tmp_path):
    project = start(tmp_path)
    with serving(project.directory) as (link, _):
        page = context.new_page()
        page.goto(link)
        assert "token" not in page.url
        labelled(page, 0)
        expect(page.locator("#cells")).to_contain_text("<script>document.title='broken")
        for done in range(8):
            type_rent(page)
            labelled(page, done + 1)
        page.reload()
        labelled(page, 8)

        last = type_rent(page, 999)
        labelled(page, 9)
        page.keyboard.press("Control+z")
        labelled(page, 8)
        expect(page.locator("#row")).to_have_text(last)
        type_rent(page)
        labelled(page, 9)

        skipped = page.locator("#row").inner_text()
        page.keyboard.press("Escape")
        expect(page.locator("#row")).not_to_have_text(skipped)
        page.keyboard.type("-5")
        page.keyboard.press("Enter")
        expect(page.locator("#message")).to_have_text(
            "Not kept: the label is not between 0 and 3000."
        )
        assert page.locator("#value").input_value() == "-5"
        page.locator("#value").fill("")

        other = context.new_page()
        other.goto(page.url)
        labelled(other, 9)
        expect(other.locator("#row")).to_have_text(skipped)
        other.keyboard.press("Escape")
        expect(other.locator("#row")).to_have_text(page.locator("#row").inner_text())
        type_rent(other)  # the row that the first tab still shows
        labelled(other, 10)
        page.keyboard.type("17")
        page.keyboard.press("Enter")
        expect(page.locator("#message")).to_contain_text("in another window")
        labelled(page, 10)
        page.close()  # half-way, and nothing is lost

        for done in range(10, 20):
            type_rent(other)
            labelled(other, done + 1)
        expect(other.locator("#done")).to_be_visible()
        expect(other.locator("#task")).to_be_hidden()
    assert project.status().open == 0
    model = project.fit()
    assert model.coefficients()["area"] == pytest.approx(10, abs=0.01)
    assert model.coefficients()["(intercept)"] == pytest.approx(100, abs=1)


def test_classes_have_keys_of_their_own(page, tmp_path):
    project = start(tmp_path, 12, label="size", classes=["small", "<b>large"], bounds=None)
    with serving(project.directory) as (link, _):
        page.goto(link)
        labelled(page, 0, of=12)
        expect(page.locator("#classes button").nth(1)).to_have_text(re.compile("<b>large 2"))
        for done in range(12):
            page.keyboard.press("2" if area_on(page) > 70 else "1")
            labelled(page, done + 1, of=12)
    areas = dict(zip(project.rows["row_id"].to_pylist(), project.rows["area"], strict=True))
    for key, size in zip(*project.labels().to_pydict().values(), strict=True):
        assert size == ("<b>large" if areas[key].as_py() > 70 else "small")


@pytest.mark.slow
def test_a_server_that_is_gone_is_told_and_what_was_typed_stays(context, tmp_path):
    project = start(tmp_path)
    page = context.new_page()
    with serving(project.directory) as (link, process):
        page.goto(link)
        type_rent(page)
        labelled(page, 1)
        process.kill()
        process.wait()
        page.route("**/api/answer", lambda route: route.abort())  # as a dead server does
        page.keyboard.type("700")
        with page.expect_event("requestfailed"):
            page.keyboard.press("Enter")
        expect(page.locator("#message")).to_contain_text("does not answer")
        assert page.locator("#value").input_value() == "700"
    assert project.status().labelled == 1
    context.clear_cookies()
    with serving(project.directory) as (link, _):
        page.goto(link)
        labelled(page, 1)
