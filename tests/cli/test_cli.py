import json
import re
import shlex

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import typer
from typer.testing import CliRunner

import bagwise as bw
from bagwise.cli import app
from bagwise.learn import LOSSES

PRIVATE = ["--epsilon", "1", "--delta", "1e-5", "--bounds", "-10", "20"]


def bagwise(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture
def rents(table, tmp_path):
    path = tmp_path / "rents.parquet"
    pq.write_table(table, path)
    return path


def release(path, out, *more):
    return bagwise("release", path, "--label", "y", "--bag-size", "5", "-o", out, *more)


def test_the_whole_way(rents, tmp_path):
    out, model, predictions = tmp_path / "out", tmp_path / "model.json", tmp_path / "p.csv"
    made = release(rents, out, *PRIVATE)
    assert made.exit_code == 0, made.output
    assert "(1, 0)-label-DP" in made.output
    assert "Asked for was epsilon 1 with delta 1e-05" in " ".join(made.output.split())
    assert "Next: bagwise verify" in made.output
    checked = bagwise("verify", out)
    assert checked.exit_code == 0
    assert "digest" in checked.output
    assert "damage, not authorship" in " ".join(checked.output.split())
    fitted = bagwise("fit", out, "-o", model)
    assert fitted.exit_code == 0, fitted.output
    assert "city=Pune" in fitted.output
    assert bagwise("predict", model, rents, "-o", predictions).exit_code == 0
    assert len(predictions.read_text().splitlines()) == 61
    for data in (rents, out):
        scored = bagwise("evaluate", model, data)
        assert scored.exit_code == 0, scored.output
        assert "rmse" in scored.output


def test_machines_get_json_and_nothing_else(rents, tmp_path):
    out, model = tmp_path / "out", tmp_path / "model.json"
    made = release(rents, out, "--not-private", "--json", "--strategy", "random")
    assert json.loads(made.stdout)["bags"] == 12
    assert json.loads(bagwise("verify", out, "--json").stdout)["headline"] == "NOT PRIVATE"
    assert "coefficients" in json.loads(bagwise("fit", out, "-o", model, "--json").stdout)
    assert json.loads(bagwise("evaluate", model, out, "--json").stdout)["n_bags"] == 12
    assert json.loads(bagwise("evaluate", model, rents, "--json").stdout)["n_rows"] == 60
    predicted = bagwise("predict", model, rents, "-o", tmp_path / "p.parquet", "--json")
    assert json.loads(predicted.stdout)["rows"] == 60


def test_quiet_prints_nothing(rents, tmp_path):
    made = release(rents, tmp_path / "out", "--not-private", "--strategy", "sorted", "--quiet")
    assert made.exit_code == 0
    assert made.output == ""


def test_the_summary_says_what_the_bags_keep(rents, tmp_path):
    out = tmp_path / "out"
    named = ["--strategy", "kmeans"]  # of bags that the planner chose, it says what they keep
    shown = release(rents, out, *PRIVATE, *named, "--seed", "1").output
    found = bw.Release.load(out).quality()
    assert all(
        f" {name} " in shown and f" {text} " in shown for name, text in found.headlines().items()
    )
    assert "times, with exact bag means" in shown
    told = json.loads(release(rents, out, *PRIVATE, *named, "--force", "--json").stdout)["quality"]
    assert told == bw.Release.load(out).quality().to_dict()
    # The ratio is one of bags that were formed without the labels.
    by_label = release(rents, tmp_path / "s", "--not-private", "--strategy", "sorted").output
    assert "not known: bags follow scores" in by_label
    assert "exact bag means" not in by_label


def test_one_bag_determines_no_coefficients(rents, tmp_path):
    arguments = ["--not-private", "--bag-size", "60", "--strategy", "random"]
    assert "not determined by these bags" in release(rents, tmp_path / "a", *arguments).output
    told = json.loads(release(rents, tmp_path / "b", *arguments, "--json").stdout)["quality"]
    assert told["error_ratio"] is told["prediction_ratio"] is None
    assert told["sse_ratio"] == pytest.approx(1)


@pytest.mark.parametrize("column", [["Bonn"] * 20, [0.1] * 20])
def test_rows_that_do_not_differ_have_no_quality(tmp_path, column):
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table({"x": column, "y": np.arange(20.0)}), path)
    made = release(path, tmp_path / "a", "--not-private")
    assert made.exit_code == 0, made.output
    assert "SSE ratio" not in made.output
    told = json.loads(release(path, tmp_path / "b", "--not-private", "--json").stdout)
    assert told["quality"] is None


def test_strategy_parameters_and_columns(rents, tmp_path):
    out = tmp_path / "out"
    halves = ["--strategy", "super", "--set", "half=true", "--exclude", "city"]
    made = release(rents, out, "--not-private", *halves)
    assert made.exit_code == 0, made.output
    loaded = bw.Release.load(out)
    assert loaded.provenance.strategy_parameters == {"order": "random", "half": True}
    assert loaded.instances.column_names == ["x"]
    assert release(rents, tmp_path / "b", "--not-private", "--features", "x").exit_code == 0


def test_warnings_name_the_next_step(rents, tmp_path):
    out = tmp_path / "out"
    made = release(rents, out, "--not-private", "--strategy", "sorted")
    assert "Warning: bags are formed by sorting the labels" in made.stderr
    fitted = bagwise("fit", out, "--loss", "bag", "-o", tmp_path / "m.json")
    assert "--loss instance" in fitted.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "state how private"),
        (["--not-private", *PRIVATE], "not both"),
        (["--epsilon", "1"], "needs bounds"),
        (["--delta", "1e-5", "--bounds", "0", "1"], "delta alone"),
        (["--noise", "loud", *PRIVATE], "unknown noise"),
        (["--noise", "laplace", "--not-private"], "belongs to a promise"),
        (["--epsilon", "1", "--delta", "1e-5"], "needs bounds"),
        (["--epsilon", "-1", "--delta", "1e-5", "--bounds", "0", "1"], "epsilon must be"),
        (["--not-private", "--bounds", "1", "0"], "lo < hi"),
        (["--not-private", "--set", "half"], "NAME=VALUE"),
        (["--not-private", "--set", "half=true"], "name one instead"),
        (["--not-private", "--strategy", "cubist"], "unknown strategy"),
        (["--not-private", "--nulls", "maybe"], "unknown nulls 'maybe'"),
        (["--not-private", "--bag-size", "500"], "cannot fill one bag"),
        (["--not-private", "--exclude", "nope"], "is not a column"),
    ],
)
def test_bad_requests_end_with_two_and_one_line(rents, tmp_path, arguments, message):
    failed = release(rents, tmp_path / "out", *arguments)
    assert failed.exit_code == 2
    assert message in failed.stderr
    assert "Traceback" not in failed.output
    assert len(failed.stderr.strip().splitlines()) == 1
    assert not (tmp_path / "out").exists()


def test_bad_files_end_with_two(rents, tmp_path):
    cases = [
        release(tmp_path / "nowhere.parquet", tmp_path / "out", "--not-private"),
        bagwise("verify", tmp_path),
        bagwise("fit", tmp_path / "nowhere"),
        bagwise("predict", rents, rents, "-o", tmp_path / "p.csv"),
        bagwise("evaluate", tmp_path / "no.json", rents),
    ]
    for case in cases:
        assert case.exit_code == 2
        assert "Traceback" not in case.output
        assert case.stderr.startswith("Error: ")


def test_models_and_predictions_are_not_overwritten_by_accident(rents, tmp_path):
    out, model = tmp_path / "out", tmp_path / "m.json"
    release(rents, out, "--not-private")
    assert bagwise("fit", out, "-o", model).exit_code == 0
    assert bagwise("fit", out, "-o", model).exit_code == 2
    assert bagwise("fit", out, "-o", model, "--force").exit_code == 0
    before = rents.read_bytes()
    failed = bagwise("predict", model, rents, "-o", rents)
    assert failed.exit_code == 2
    assert "already exists" in failed.stderr
    assert rents.read_bytes() == before


def test_help_names_everything_that_is_registered():
    text = bagwise("release", "--help").output
    assert all(name in text for name in bw.STRATEGIES)
    text = bagwise("fit", "--help").output
    assert all(name in text for name in (*LOSSES, *bw.FAMILIES))


def test_private_bounds_and_a_private_model(tmp_path):
    rng = np.random.default_rng(0)
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table({"x": rng.normal(size=4000), "y": rng.normal(5, 2, size=4000)}), path)
    budget = ["--epsilon", "2", "--delta", "1e-6"]
    made = release(path, tmp_path / "out", *budget, "--bounds", "auto", "--strategy", "sorted")
    assert made.exit_code == 0, made.output
    assert "bounds were chosen privately" in " ".join(made.output.split())
    limits = ["--max-epsilon", "2", "--max-delta", "1e-6"]
    assert bagwise("verify", tmp_path / "out", *limits).exit_code == 0
    for words in (["wide"], ["0", "wide"], ["auto", "1"]):
        assert release(path, tmp_path / "b", *budget, "--bounds", *words).exit_code == 2
    arguments = ["release-model", path, "--label", "y", "--bounds", "-5", "15", *budget]
    model = bagwise(*arguments, "-o", tmp_path / "m.json")
    assert model.exit_code == 0, model.output
    assert bagwise("evaluate", tmp_path / "m.json", path).exit_code == 0
    again = bagwise(*arguments, "-o", tmp_path / "n.json", "--json")
    assert json.loads(again.stdout)["privacy"] == "(2, 0)-label-DP"


def test_classes_from_table_to_scores(tmp_path):
    rng = np.random.default_rng(0)
    path, out, model = tmp_path / "t.csv", tmp_path / "out", tmp_path / "m.json"
    ways = rng.choice(["bus", "car"], size=300)
    path.write_text(
        "x,way\n" + "\n".join(f"{x},{w}" for x, w in zip(rng.normal(size=300), ways, strict=True))
    )
    arguments = ["release", path, "--label", "way", "--classes", "bus,car", "--bag-size", "5"]
    made = bagwise(*arguments, "--epsilon", "1", "--delta", "1e-5", "-o", out)
    assert made.exit_code == 0, made.output
    assert "--target" not in made.output  # a fit without it has all classes, on the right scale
    assert bagwise("fit", out, "--family", "gaussian", "-o", model).exit_code == 2
    for target in (["--target", "bus"], []):
        fitted = bagwise("fit", out, *target, "-o", model, "--force")
        assert fitted.exit_code == 0, fitted.output
        assert ("way=bus: gaussian" in " ".join(fitted.output.split())) == bool(target)
        for data in (path, out):
            assert bagwise("evaluate", model, data).exit_code == 0
    assert "car: x" in fitted.output
    predicted = tmp_path / "p.csv"
    assert bagwise("predict", model, path, "-o", predicted).exit_code == 0
    assert predicted.read_text().splitlines()[0] == '"prediction=bus","prediction=car"'
    scores = json.loads(bagwise("evaluate", model, path, "--json").stdout)
    assert 0.3 < scores["accuracy"] < 0.7


def test_evaluate_refuses_a_label_for_a_release(rents, tmp_path):
    out, model = tmp_path / "out", tmp_path / "m.json"
    release(rents, out, "--not-private")
    bagwise("fit", out, "-o", model)
    failed = bagwise("evaluate", model, out, "--label", "y")
    assert failed.exit_code == 2
    assert "only bag labels" in failed.stderr


@pytest.fixture
def model(rents, tmp_path):
    path = tmp_path / "m.json"
    arguments = ["--label", "y", "--bounds", "-10", "20", "--epsilon", "2", "--delta", "1e-6"]
    made = bagwise("release-model", rents, *arguments, "-o", path)
    assert made.exit_code == 0, made.output
    return path


SECRETLY = ["--bounds", "-10", "20", "--epsilon", "0.5"]


def test_scores_of_secret_labels_say_what_they_promise_and_cost(model, rents, tmp_path):
    scores = tmp_path / "scores.json"
    shown = bagwise("evaluate", model, rents, *SECRETLY, "-o", scores)
    assert shown.exit_code == 0, shown.output
    text = " ".join(shown.output.split())
    assert "(0.5, 0)-label-DP" in text
    assert "mean squared loss" in text
    assert "for the privacy noise only" in text
    assert "spends its epsilon anew" in text
    assert "what it spent, epsilon 2 and delta 0, is added" in text
    content = json.loads(scores.read_text())
    assert bw.Certificate.from_json(content["certificate"]).epsilon == 0.5
    told = bagwise("evaluate", model, rents, *SECRETLY, "--loss", "absolute", "--json")
    assert json.loads(told.stdout)["loss"] == "absolute"
    clipped = bagwise("evaluate", model, rents, *SECRETLY, "--clip", "4", "--json")
    assert json.loads(clipped.stdout)["largest_loss"] == 4.0
    silent = bagwise("evaluate", model, rents, *SECRETLY, "--quiet", "-o", scores, "--force")
    assert silent.output == ""
    assert json.loads(scores.read_text())["mean_loss"] != content["mean_loss"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--epsilon", "0.5"], "needs bounds"),
        (["--epsilon", "0", "--bounds", "0", "1"], "epsilon must be"),
        (["--bounds", "0", "1"], "--bounds: only for a private evaluation"),
        (["--clip", "2", "--unit", "x"], "--clip, --unit: only for a private evaluation"),
        (["-o", "scores.json"], "--output: only for a private evaluation"),
        (["--loss", "squared"], "--loss: only for a private evaluation"),
        ([*SECRETLY, "--loss", "cubic"], "unknown loss 'cubic'"),
        ([*SECRETLY, "--clip", "-3"], "above 0"),
        ([*SECRETLY, "--label", "x"], "is a feature of the model"),
        ([*SECRETLY, "--unit", "z"], "is not a column"),
        (["--epsilon", "0.01", "--bounds", "auto"], "too few to find bounds privately"),
    ],
)
def test_bad_private_evaluations_end_with_two_and_one_line(model, rents, arguments, message):
    failed = bagwise("evaluate", model, rents, *arguments)
    assert failed.exit_code == 2
    assert message in failed.stderr
    assert len(failed.stderr.strip().splitlines()) == 1


def test_scores_are_not_overwritten_and_a_release_costs_nothing(model, rents, tmp_path):
    scores = tmp_path / "scores.json"
    assert bagwise("evaluate", model, rents, *SECRETLY, "-o", scores).exit_code == 0
    before = scores.read_bytes()
    # Refused before the table is read: a second look at the labels would have been spent.
    failed = bagwise("evaluate", model, tmp_path / "nowhere.csv", *SECRETLY, "-o", scores)
    assert failed.exit_code == 2
    assert "--force" in failed.stderr
    assert scores.read_bytes() == before
    release(rents, tmp_path / "out", "--not-private")
    open_labels = bagwise("evaluate", model, tmp_path / "out", "--epsilon", "1")
    assert open_labels.exit_code == 2
    assert "leave out --epsilon" in open_labels.stderr


def test_private_bounds_serve_an_evaluation(tmp_path):
    rng = np.random.default_rng(0)
    path, model = tmp_path / "t.parquet", tmp_path / "m.json"
    pq.write_table(pa.table({"x": rng.normal(size=4000), "y": rng.normal(5, 2, size=4000)}), path)
    budget = ["--bounds", "-5", "15", "--epsilon", "2", "--delta", "1e-6"]
    bagwise("release-model", path, "--label", "y", *budget, "-o", model)
    told = bagwise("evaluate", model, path, "--bounds", "auto", "--epsilon", "1", "--json")
    assert told.exit_code == 0, told.output
    events = json.loads(told.stdout)["certificate"]["events"]
    kinds = [event["query"]["kind"] for event in events]
    assert kinds == ["range-counts", "mean-loss"]


def test_an_existing_output_is_refused_before_the_table_is_read(rents, tmp_path):
    out = tmp_path / "out"
    release(rents, out, "--not-private")
    failed = release(tmp_path / "nowhere.parquet", out, "--not-private")
    assert failed.exit_code == 2
    assert "--force" in failed.stderr
    replaced = release(rents, out, *PRIVATE, "--force")
    assert replaced.exit_code == 0
    assert "spends epsilon again" in " ".join(replaced.output.split())


@pytest.mark.parametrize(
    ("limits", "code"),
    [
        ([], 0),
        (["--max-epsilon", "1", "--max-delta", "1e-5"], 0),
        (["--max-epsilon", "0.5"], 3),
        (["--max-delta", "1e-9"], 0),  # no delta was needed
        (["--max-epsilon", "0.5", "--max-delta", "1e-5"], 3),
        (["--max-epsilon", "nan", "--max-delta", "0"], 2),
        (["--max-epsilon", "nan"], 2),
        (["--max-delta", "nan"], 2),
        (["--max-epsilon", "inf"], 2),
        (["--max-delta", "-1"], 2),
    ],
)
def test_limits_set_the_exit_code(rents, tmp_path, limits, code):
    release(rents, tmp_path / "out", *PRIVATE)
    assert bagwise("verify", tmp_path / "out", *limits).exit_code == code
    release(rents, tmp_path / "open", "--not-private")
    assert bagwise("verify", tmp_path / "open", *limits).exit_code == (code or 3 if limits else 0)


def test_an_edited_release_is_refused_by_every_verb(rents, tmp_path):
    out, model = tmp_path / "out", tmp_path / "m.json"
    release(rents, out, *PRIVATE)
    bagwise("fit", out, "-o", model)
    certificate = out / "certificate.json"
    certificate.write_text(certificate.read_text().replace("1e-05", "1e-06"))
    for arguments in (["verify", out], ["fit", out], ["evaluate", model, out]):
        failed = bagwise(*arguments)
        assert failed.exit_code == 2
        assert "certificate.json was changed" in failed.stderr


def test_help_has_an_example_for_every_verb():
    for verb in ("release", "verify", "fit", "release-model", "predict", "evaluate", "demo"):
        text = bagwise(verb, "--help").output
        assert f"Example: bagwise {verb}" in " ".join(text.split())
    assert bw.__version__ in bagwise("--version").output


def test_paragraphs_of_the_help_fill_the_terminal(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")  # the docstring's lines are longer
    lines = [line.strip() for line in bagwise("report", "--help").output.splitlines()]
    first = next(i for i, line in enumerate(lines) if line.startswith("A page is self-contained"))
    paragraph = lines[first : lines.index("", first)]
    assert len(paragraph) == 3
    assert all(len(line) > 60 for line in paragraph)


def test_the_demo_is_the_main_job(tmp_path):
    shown = bagwise("demo", "-o", tmp_path / "demo", "--rows", "2000")
    assert shown.exit_code == 0, shown.output
    for verb in ("release", "verify", "fit", "predict", "evaluate", "report"):
        assert f"$ bagwise {verb} " in shown.output
    assert "of what true labels give" in shown.output
    assert (tmp_path / "demo" / "release.html").read_text().startswith("<!DOCTYPE html>")
    assert bagwise("demo", "-o", tmp_path / "demo", "--rows", "2000").exit_code == 2
    again = bagwise("demo", "-o", tmp_path / "demo", "--rows", "2000", "--force", "--json")
    found = json.loads(again.stdout)
    assert 0.8 < found["kept"] < 1.05
    assert found["typical_error"]["bags"] < found["typical_error"]["mean"]


def commands_in(text):
    """Return the commands that a text shows: to the end of a line, or up to the next mark."""
    lines = [line for line in text.splitlines() if "bagwise " in line]
    found = [part for line in lines for part in re.split(r"(?=bagwise [a-z-]+ )|·", line)]
    return [part.strip() for part in found if re.match(r"bagwise [a-z-]+ ", part)]


def test_every_command_that_is_printed_runs_as_printed(rents, tmp_path, monkeypatch):
    """Names and paths have blanks; what stands in capitals is for the reader to fill in."""
    monkeypatch.chdir(tmp_path)
    place = tmp_path / "my tables"
    place.mkdir()
    table = pq.read_table(rents)
    names = ["the label" if name == "y" else name for name in table.column_names]
    pq.write_table(table.rename_columns(names), place / "of rents.parquet")
    asked = [place / "of rents.parquet", "--label", "the label", *PRIVATE]
    ledger = bagwise("ledger", "init", place / "a ledger", "--epsilon-total", 50)
    printed = [ledger.output]
    for words in (["plan", *asked], ["release", *asked, "-o", place / "out", "--ledger",
                                     place / "a ledger"]):  # fmt: skip
        run = bagwise(*words)
        assert run.exit_code == 0, run.output
        printed.append(run.output)
    typed = [command for text in printed for command in commands_in(text)]
    assert {shlex.split(one)[1] for one in typed} >= {"release", "verify", "fit", "ledger"}
    for command in typed:
        if not re.search(r"\b[A-Z]{2,}\b", command):
            (tmp_path / "model.json").unlink(missing_ok=True)  # of another command
            run = bagwise(*shlex.split(command)[1:])
            assert run.exit_code == 0, (command, run.output)


def test_what_people_type_for_numbers_is_understood_or_answered_by_an_example(rents, tmp_path):
    words = ["release", rents, "--label", "y", "--epsilon", "1", "--bag-size", "20"]
    assert bagwise(*words, "--bounds", "-12,12", "-o", tmp_path / "a").exit_code == 0
    for option, value in (("--epsilon", "50%"), ("--delta", "tiny")):
        run = bagwise(*words, "--bounds", "-12", "12", option, value, "-o", tmp_path / "b")
        assert run.exit_code == 2
        assert f"For example: {option}" in run.stderr


def test_errors_are_json_where_json_was_asked_for(rents, tmp_path):
    run = bagwise("release", rents, "--label", "z", *PRIVATE, "-o", tmp_path / "a", "--json")
    error = json.loads(run.stderr)["error"]
    assert (run.exit_code, error["code"], error["kind"]) == (2, 2, "ColumnError")
    assert "'z'" in error["message"]
    run = bagwise("release", rents, "--epsilom", "1", "--json")
    error = json.loads(run.stderr)["error"]
    assert (run.exit_code, error["code"], error["kind"]) == (2, 2, "UsageError")
    assert "--epsilon" in error["message"]


def test_help_begins_with_everyday_options_and_has_panels():
    text = bagwise("release", "--help").output
    order = [text.index(f"{name} ") for name in ("--label", "--bounds", "--epsilon", "--delta")]
    assert order == sorted(order)
    assert all(panel in text for panel in ("Privacy", "Bags", "Columns"))
    assert "LO HI" in text
    assert not [line for line in text.splitlines() if "<bool>" in line and "--help" not in line]


def test_label_bounds_and_epsilon_are_enough(rents, tmp_path):
    asked = ["--label", "y", *PRIVATE]
    made = bagwise("release", rents, *asked, "--min-bag-size", "15", "--json", "-o", tmp_path / "a")
    assert made.exit_code == 0, made.output
    shown = json.loads(made.stdout)
    assert "the safest choice" in shown["chosen_because"]
    assert bw.Release.load(tmp_path / "a").provenance.bag_size >= 15
    missing = bagwise("release", rents, "--label", "y", "--not-private", "-o", tmp_path / "c")
    assert missing.exit_code == 2
    assert "needs a bag size" in missing.output


def test_a_plan_finds_the_smallest_epsilon_for_an_error(rents):
    asked = ["plan", rents, "--label", "y", "--bounds", "0", "10"]
    found = bagwise(*asked, "--error", "1.5")
    assert found.exit_code == 0, found.output
    epsilon = re.search(r"smallest epsilon with an error of at most 1.5: (\S+)", found.stdout)[1]
    assert f"--epsilon {epsilon} " in found.stdout
    assert bagwise(*asked, "--error", "1.5", "--epsilon", "1").exit_code == 2
    none = bagwise(*asked, "--error", "0.01")
    assert none.exit_code == 2
    assert "no epsilon up to 20" in none.output


def test_the_choice_of_the_planner_is_told_with_its_bag_size(rents, tmp_path):
    asked = ["--label", "y", "--bounds", "0", "10", "--epsilon", "1", "--bag-size", "20"]
    made = bagwise("release", rents, *asked, "-o", tmp_path / "a")
    assert made.exit_code == 0, made.output
    strategy = bw.Release.load(tmp_path / "a").provenance.strategy
    assert f"Chosen: {strategy}, bags of 20: " in made.stdout
    refused = bagwise("verify", tmp_path / "a", "--max-epsilon", "0.5")
    assert refused.exit_code == 3
    assert f"{tmp_path / 'a'} is valid, but (1, 0)-label-DP is less private" in refused.output
    assert "Epsilon for several rows together: 2 for 2, 5 for 5, 10 for 10." in refused.output


def test_a_release_that_can_teach_nothing_says_so(rents, tmp_path):
    asked = ["--label", "y", "--bounds", "0", "10", "--bag-size", "20", "--centre", "none"]
    made = {
        epsilon: bagwise("release", rents, *asked, "--epsilon", epsilon, "-o", tmp_path / epsilon)
        for epsilon in ("0.3", "40")
    }
    assert "Note: no bags are expected to predict much better" in made["0.3"].stdout
    assert made["40"].exit_code == 0
    assert "no bags are expected" not in made["40"].stdout


def test_a_label_without_bounds_may_have_classes(rents, tmp_path):
    refused = bagwise("release", rents, "--label", "city", "--epsilon", "1", "-o", tmp_path / "a")
    assert refused.exit_code == 2
    assert "(--bounds LO HI)" in refused.output
    assert "(--classes)" in refused.output


def test_numbers_with_marks_are_warned_of_once(tmp_path):
    table = tmp_path / "t.csv"
    cells = (f"{i % 50}.5%,{i % 7},{i % 11}" for i in range(600))
    table.write_text("share,x,y\n" + "\n".join(cells))
    made = bagwise("release", table, "--label", "y", "--bounds", 0, 10, "--epsilon", 5, "-o",
                   tmp_path / "out")  # fmt: skip
    assert made.exit_code == 0, made.output
    assert made.output.count("column 'share' is text, though its cells look like numbers") == 1


def test_a_path_with_spaces_is_one_word_of_the_next_command(rents, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    made = release(rents, "my out", *PRIVATE)
    assert "Next: bagwise verify 'my out' · bagwise fit 'my out'" in made.output
    fitted = bagwise("fit", "my out", "-o", "my model.json")
    assert "bagwise predict 'my model.json' TABLE" in " ".join(fitted.output.split())


def options(command, name="bagwise"):
    """Yield every option of a command and those below it, with the names before it."""
    for one in command.params:
        if one.param_type_name == "option":
            yield name, one
    for word, below in getattr(command, "commands", {}).items():
        yield from options(below, f"{name} {word}")


def test_there_are_few_options_and_each_value_has_a_word():
    found = list(options(typer.main.get_command(app)))
    assert len(found) <= 150
    unnamed = [
        (command, one.opts)
        for command, one in found
        if not (one.is_flag or one.metavar or "completion" in one.opts[0])
    ]
    assert unnamed == []


def test_shared_options_may_stand_anywhere_and_are_refused_where_they_mean_nothing(rents, tmp_path):
    release(rents, tmp_path / "out", "--not-private")
    for words in (["--json", "verify", tmp_path / "out"], ["verify", "--json", tmp_path / "out"]):
        assert json.loads(bagwise(*words).stdout)["headline"] == "NOT PRIVATE"
    refused = bagwise("verify", tmp_path / "out", "--query", "SELECT 1")
    assert refused.exit_code == 2
    assert "--query is not for verify" in refused.stderr
    refused = bagwise("fit", tmp_path / "out", "--spark", "spark.master=local")
    assert "--spark works only with --engine spark" in refused.stderr
    assert "Also: --quiet, --json" in bagwise("verify", "--help").output
