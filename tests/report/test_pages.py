"""Pages of releases, models and ledgers: what they must say, and what they must never show."""

import json
import re
from fractions import Fraction
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from typer.testing import CliRunner

import bagwise as bw
from bagwise.cli import app
from bagwise.errors import ReleaseError
from bagwise.ledger.ledger import Totals
from bagwise.models.model import TrainedOn
from bagwise.models.trees import Levels, Member, Tree, TreeModel
from bagwise.privacy.promise import chance_of_guessing, odds_in_fractions
from bagwise.privacy.queries import QUERIES
from bagwise.report import errors_by_group, report_on
from bagwise.report import release_page as release_page_module
from bagwise.report.model_page import fit_of_bags, model_page
from bagwise.report.pages import ledger_page, tone_of_ledger
from bagwise.report.release_page import explain_or_say_why, release_page
from bagwise.show.page import render
from tests.golden.make import HERE

RELEASES = [
    HERE / "release-2" / name
    for name in ("means", "picks", "classes", "class-picks", "open", "open-by-labels", "units",
                 "by-noisy-labels", "found-bounds", "tightened-and-centred")
]  # fmt: skip
HOSTILE = "<script>alert('x')</script>"
ASKED = {"label": "y", "bounds": (0, 6), "bag_size": 8, "strategy": "random",
         "privacy": bw.Privacy(tighten="none")}  # fmt: skip


def page_of(path, **parts):
    release = bw.Release.load(path)
    why = explain_or_say_why(release)
    return release_page(release, path=path, report=report_on(release), explanation=why, **parts)


def text_of(html):
    body = re.sub("<style>.*?</style>", "", html, flags=re.DOTALL)
    return re.sub(r"\s+", " ", re.sub("<[^>]+>", " ", body))


@pytest.mark.parametrize("path", RELEASES, ids=lambda path: path.name)
def test_every_golden_release_has_a_page(path):
    page = page_of(path)
    private = bw.Release.load(path).certificate.is_private
    html = render(page)
    shown = re.search('class="figure">(.*?)<', html)[1]
    assert shown.startswith("≤" if private else "NOT PRIVATE")
    said = re.findall('class="chart wide" role="img" aria-label="([^"]*)"', html)
    assert all(len(words) > 30 for words in said)
    assert len(said) >= (2 if private else 1)


def test_whatever_looks_at_labels_is_named_in_words():
    assert {name.replace("-", " ") for name in QUERIES} - {"range counts"} == set(
        release_page_module._HIDDEN
    ) - {"bounds", "range", "limit"}


def test_a_page_says_the_promise_first_and_then_what_it_rests_on():
    text = text_of(render(page_of(HERE / "release-2" / "planned")))
    order = [
        "From one chance in two to at most nine in ten", "made on",
        "Not published", "Every published column", "kept of what true labels would give",
        "All private queries on the labels", "NIST SP 800-226 asks", "bagwise fit",
        "share of the expected squared error",
    ]  # fmt: skip
    places = [text.rindex(words) for words in order]
    assert places == sorted(places)
    assert "No column looks like names, free text, ids or dates." in text
    assert text.count("The custodian must answer.") == 5


@pytest.mark.parametrize("delta", [0.0, 1e-6, 0.01])
def test_odds_are_never_understated(delta):
    for epsilon in np.linspace(0.01, 9, 300):
        true = Fraction(chance_of_guessing(epsilon, delta))
        said = odds_in_fractions(epsilon, delta).replace(",", "")
        if said.endswith("certainty"):
            assert true > Fraction(998, 1000)
            continue
        words = {"three": "3", "four": "4", "nine": "9", "ten": "10"}
        several, parts = (
            int(words.get(w, w)) for w in re.search(r"most (\w+) in (\w+)", said).groups()
        )
        assert true <= Fraction(several, parts) < 1
        assert 1 - Fraction(several, parts) >= Fraction(1, 2) * (1 - true)  # not much overstated


def hostile_table(n=400):
    rng = np.random.default_rng(3)
    x = rng.normal(size=n)
    return pa.table(
        {HOSTILE: x, "z": rng.normal(size=n), "y": 7_310_000 + 52_711 * x + rng.normal(size=n)}
    )


def test_no_label_is_on_any_page_even_where_every_row_is_a_bag(tmp_path):
    table = hostile_table(60)
    with pytest.warns(bw.BagwiseWarning):
        release = bw.make_release(table, label="y", bag_size=1, strategy="random", not_private=True)
    release.save(tmp_path / "out")
    model = bw.fit_release(release)
    loaded = bw.Release.load(tmp_path / "out")
    pages = [
        render(page_of(tmp_path / "out")),
        render(model_page(model, path=Path("m.json"), release=loaded)),
    ]
    for html in pages:
        assert "<script" not in html
        assert "&lt;script&gt;" in html
        numbers = {float(n.replace(",", "")) for n in re.findall(r"\d[\d,]*\.?\d*", html)}
        for label in table["y"].to_pylist():
            assert not any(f"{label:.{digits}g}" in html for digits in range(5, 17))
            assert not any(abs(number - label) < 1 for number in numbers)


def test_the_fit_of_bags_is_what_loops_find():
    table = hostile_table()
    release = bw.make_release(table, label="y", bag_size=4, strategy="random", not_private=True)
    model = bw.fit_release(release)
    found = fit_of_bags(model, release)
    predicted, observed = [], []
    rows = model.predict(release.instances)
    for bag in range(release.bags.n_bags):
        predicted.append(np.mean([rows[i] for i in np.flatnonzero(release.bags.index == bag)]))
        observed.append(release.labels[bag])
    order = np.argsort(predicted)
    first = order[: found.groups[0]["bags"]]
    assert sum(row["bags"] for row in found.groups) == 100
    assert min(row["bags"] for row in found.groups) >= 10
    assert found.groups[0]["predicted"] == pytest.approx(np.mean(np.array(predicted)[first]))
    assert found.groups[0]["observed"] == pytest.approx(np.mean(np.array(observed)[first]))
    reach = 1.96 * np.std(np.array(observed)[first], ddof=1) / np.sqrt(first.size)
    assert found.groups[0]["high"] - found.groups[0]["observed"] == pytest.approx(reach)
    assert found.counts.sum() == 100


def test_few_bags_are_not_shown_one_by_one():
    table = hostile_table(60)
    release = bw.make_release(table, label="y", bag_size=4, strategy="random", not_private=True)
    model = bw.fit_release(release)
    assert fit_of_bags(model, release).groups == []
    page = model_page(model, path=Path("m.json"), release=release)
    assert not page.values["calibrated"]
    assert not page.values["residuals"]
    assert "single bags are not shown" in text_of(render(page))
    with pytest.raises(ReleaseError, match="lacks the model's feature"):
        fit_of_bags(bw.fit_release(bw.Release.load(HERE / "release-2" / "open")), release)


def test_each_kind_of_model_brings_its_own_sections():
    names = sorted(p.name for p in (HERE / "model-4").glob("*.json"))
    for name in set(names) - {"expected.json", "rows-to-predict.json"}:
        page = model_page(bw.RowModel.load(HERE / "model-4" / name), path=Path(name))
        assert "coefficients" in render(page)
        assert len(page.values["table"].rows) > 1


def test_trees_show_where_they_look(tmp_path):
    tree = Tree((0,), (0.5,), (False,), (-1,), (-2,), (1.0, 2.0))
    release = bw.make_release(
        hostile_table(), label="y", bag_size=4, strategy="random", not_private=True
    )
    model = TreeModel(
        family="gaussian",
        link="identity",
        label="y",
        encoder=release.encoder,
        levels=Levels(((0, 1), (1, 2))),
        members=(Member(1.0, ((0.0, 3.0),), (7e6,), (-1e9,), (1e9,), ((tree, tree, tree),)),),
        trained_on=TrainedOn(n_rows=400, privacy="NOT PRIVATE"),
    )
    page = model_page(model, path=Path("m.json"), release=release)
    html = render(page)
    assert "<script" not in html
    assert "in 100% of all splits" in html
    assert "Calibration" in html
    model.save(tmp_path / "trees.json")
    shown = run(tmp_path / "trees.json")
    assert shown.exit_code == 0, shown.output
    assert "3 boosted trees" in shown.output
    values = json.loads(run(tmp_path / "trees.json", "--json").output)
    assert values["asked_about"] == {HOSTILE: 1.0, "z": 0.0}


@pytest.fixture
def ledger(tmp_path):
    made = bw.Ledger.create(tmp_path / "rents.ledger", epsilon_total=2.0, dataset=HOSTILE)
    table = pa.table({"x": np.arange(400.0), "y": np.arange(400.0) % 7})
    for epsilon in (0.5, 0.75):
        release = bw.make_release(table, **ASKED, epsilon=epsilon, ledger=made)
        release.save(tmp_path / f"out-{epsilon}")
    return made


def test_a_ledger_page_adds_up_what_was_spent(ledger):
    course = ledger.course()
    assert [one.alone for one in course] == pytest.approx([0.5, 0.75], rel=1e-3)
    assert [one.total for one in course] == pytest.approx([0.5, 1.25], rel=1e-3)
    assert course[-1].total == ledger.totals().filtered
    assert [one.charge for one in ledger.course(most=1)] == [ledger.charges()[1]]
    page = ledger_page(ledger)
    html = render(page)
    assert '<p class="figure">62 %' in html  # 1.25 of 2, rounded to even
    assert "<script" not in html
    assert "epsilon 1.25 of 2" in html


@pytest.mark.parametrize(
    ("budget", "spent", "tone"),
    [(4, 0.5, "good"), (2, 1.66, "warn"), (2, 2, "bad"), (20, 1, "bad")],
)
def test_the_colour_of_a_ledger_follows_the_promise_and_what_is_left(budget, spent, tone):
    totals = Totals(1, budget, 0.0, spent, spent, 0.0, 0.0)
    assert tone_of_ledger(totals) == tone


def test_who_approves_sees_which_release_it_is(ledger, tmp_path):
    path = tmp_path / "out-0.75"
    release = bw.Release.load(path)
    said = report_on(release, answers={"publisher": "City office", "recipient": "A lab"})
    text = text_of(
        render(release_page(release, path=path, report=said, explanation="why", ledger=ledger))
    )
    mark = release.certificate.mark
    for shown in (mark.date, mark.id[:8], "City office", "A lab", release.digest, "1.25 of 2"):
        assert shown in text
    assert "signed no" in text


def test_an_empty_ledger_has_a_page(tmp_path):
    made = bw.Ledger.create(tmp_path / "rents.ledger", epsilon_total=2.0)
    assert "Nothing has been charged yet." in text_of(render(ledger_page(made)))


# --- the command ---------------------------------------------------------------------------------


def run(*arguments):
    return CliRunner(env={"COLUMNS": "100"}).invoke(app, ["report", *map(str, arguments)])


def test_the_command_writes_a_page_of_each_kind(ledger, tmp_path):
    out = tmp_path / "out-0.75"
    bw.fit_release(bw.Release.load(out)).save(tmp_path / "model.json")
    audit = CliRunner().invoke(app, ["audit", str(out), "--draws", "2000", "--json"])
    (tmp_path / "audit.json").write_text(audit.stdout)
    answers = tmp_path / "answers.json"
    answers.write_text(json.dumps({"custody": f"A vault {HOSTILE}"}))
    done = run(
        out, "--audit", tmp_path / "audit.json", "--ledger", ledger.path, "--answers", answers,
        "-o", tmp_path / "r.html",
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    html = (tmp_path / "r.html").read_text()
    assert len(html) < 2_000_000
    assert "A vault &lt;script&gt;" in html
    assert "not refuted" in html
    assert "1.25 of 2" in html
    done = run(tmp_path / "model.json", "--release", out, "-o", tmp_path / "m.html")
    assert done.exit_code == 0, done.output
    assert "Calibration" in (tmp_path / "m.html").read_text()
    done = run(ledger.path, "-o", tmp_path / "l.html")
    assert done.exit_code == 0, done.output
    assert run(ledger.path).exit_code == 0
    assert "estimate" in run(tmp_path / "model.json").output
    again = run(ledger.path, "-o", tmp_path / "l.html")
    assert again.exit_code == 2
    assert "--force" in again.output
    other = run(tmp_path / "out-0.5", "--audit", tmp_path / "audit.json", "-o", tmp_path / "x.html")
    assert other.exit_code == 2
    assert "audit of another release" in other.output.replace("\n", " ")


def test_figures_from_labels_are_said_to_be(tmp_path):
    table = pa.table({"x": np.arange(400.0), "city": ["a", "b"] * 200, "y": np.arange(400.0) % 7})
    release = bw.make_release(table, **ASKED, epsilon=1.0)
    model = bw.fit_release(release)
    for labels in (table, None):
        said = report_on(release, groups=errors_by_group(release, model, "city", labels=labels))
        page = release_page(release, path=Path("out"), report=said, explanation="not explained")
        assert page.values["tells_of_labels"] == (labels is not None)
        assert ("keep the page as confidential as the labels" in text_of(render(page))) == (
            labels is not None
        )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--release", "x"], "cannot be used with a release"),
        (["-o", "page.pdf"], "print the page from a browser"),
        (["--audit", "x"], "add -o"),
        (["--model", "x"], "add --group"),
    ],
)
def test_options_that_do_not_fit_are_refused(arguments, message):
    done = run(HERE / "release-2" / "means", *arguments)
    assert done.exit_code == 2
    assert message in done.output.replace("\n", " ")


def test_a_model_takes_no_questions():
    done = run(HERE / "model-4" / "fitted.json", "--group", "x")
    assert done.exit_code == 2
    assert "--group: cannot be used with a model" in done.output.replace("\n", " ")
