"""`bagwise report`: every question is answered, or left to the custodian by name."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import bagwise as bw
from bagwise.cli import app
from bagwise.errors import ReleaseError
from bagwise.report import report_on
from bagwise.report.questions import ASK, QUESTIONS
from tests.golden.make import HERE

ASKED_BY_NIST = {
    "strength", "delta", "variant", "unit", "adjacency", "algorithm", "utility", "bias", "budget",
    "trust", "implementation", "side_channels", "custody",
}  # fmt: skip
RELEASES = [
    HERE / "release-2" / name for name in ("means", "picks", "classes", "open", "units", "planned")
]


@pytest.mark.parametrize("path", RELEASES, ids=lambda path: path.name)
def test_every_question_has_an_answer_or_is_open(path):
    found = report_on(bw.Release.load(path))
    assert {one.id for one in found.answers} == ASKED_BY_NIST
    for one in found.answers:
        assert one.answer or one.is_open
    assert set(found.to_json()["open"]) == {"bias", "budget", "trust", "side_channels", "custody"}


def test_a_release_that_promises_nothing_says_so():
    release = bw.Release.load(HERE / "release-2" / "open")
    answers = {one.id: one.answer for one in report_on(release).answers}
    for name in ("strength", "delta", "variant", "unit", "adjacency", "budget"):
        assert answers[name].startswith("NOT PRIVATE")


def test_the_strength_is_the_chance_of_being_right():
    release = bw.Release.load(HERE / "release-2" / "laplace")
    answer = report_on(release).answers[0].answer
    assert release.certificate.epsilon == 0.5
    assert f"{np.exp(0.5) / (1 + np.exp(0.5)):.3g}" in answer


def test_answers_close_questions_and_do_not_replace_what_is_known(tmp_path):
    release = bw.Release.load(HERE / "release-2" / "means")
    path = tmp_path / "answers.json"
    path.write_text('{"custody": "A vault.", "strength": "Small."}')
    found = {one.id: one for one in report_on(release, answers=path).answers}
    assert found["custody"].custodian == "A vault."
    assert not found["custody"].is_open
    assert found["strength"].answer.startswith("It is 2. ")
    assert found["strength"].custodian == "Small."


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"custodi": "x"}', "Did you mean 'custody'"),
        ('{"custody": 3}', "not text"),
        ('{"custody": " "}', "not text"),
        ("[1]", "not a JSON object"),
        ("{", "not a JSON object"),
        ("[" * 100_000, "not a JSON object"),
    ],
)
def test_bad_answers_are_refused(tmp_path, content, message):
    path = tmp_path / "answers.json"
    path.write_text(content)
    with pytest.raises(ReleaseError, match=message):
        report_on(bw.Release.load(HERE / "release-2" / "means"), answers=path)


def test_ids_are_stable():
    assert set(QUESTIONS) == ASKED_BY_NIST


@pytest.fixture
def place(tmp_path):
    rng = np.random.default_rng(0)
    city = rng.choice(["Bonn", "Pune"], size=300)
    table = pa.table({"city": city.tolist(), "x": rng.normal(size=300), "y": rng.random(300)})
    pq.write_table(table, tmp_path / "table.parquet")
    bw.make_release(
        table, label="y", bag_size=6, strategy="random", bounds=(0, 1), epsilon=2.0
    ).save(tmp_path / "release")
    return tmp_path


def run(*arguments):
    return CliRunner().invoke(app, ["report", *map(str, arguments)])


def test_people_and_machines_get_the_same(place):
    text = run(place / "release", "--group", "city")
    assert text.exit_code == 0, text.output
    assert text.output.count(ASK) == 4
    assert "Errors by city" in text.output
    found = json.loads(run(place / "release", "--group", "city", "--json").output)
    assert [group["group"] for group in found["groups"]["groups"]] == ["Bonn", "Pune"]
    assert found["groups"]["from_labels"] is False
    assert len(found["answers"]) == 13


def test_exact_errors_say_that_nothing_covers_them(place):
    found = run(place / "release", "--group", "city", "--labels", place / "table.parquet")
    assert "no certificate covers" in found.output
    labels = pq.read_table(place / "table.parquet")["y"].to_pylist()
    assert not any(f"{label:.6f}" in found.output for label in labels)
    assert run(place / "release", "--labels", place / "table.parquet").exit_code == 2
