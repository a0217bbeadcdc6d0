"""Notes about labels reach a terminal, and nothing else."""

import io
import json
import logging
import warnings

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rich.console import Console
from typer.testing import CliRunner

import bagwise as bw
from bagwise.cli import app, console
from bagwise.rows import labels as label_copies
from bagwise.show.operator_notes import operator_notes_to, tell_operator

TRACES = ("no noise", "kept nowhere", "predicts the label", "certain of", "labels' spread")


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def copied(tmp_path):
    """A table whose release without noise has both notes, and with noise one."""
    rng = np.random.default_rng(0)
    y = rng.normal(size=400)
    table = pa.table({"x": rng.normal(size=400), "twice": 2 * y + 1, "y": y})
    pq.write_table(table, tmp_path / "t.parquet")
    return tmp_path / "t.parquet"


def command(path, out, *more):
    made = ["release", str(path), "--label", "y", "--bag-size", "10", "--strategy", "random"]
    return [*made, "-o", str(out), *more]


def is_silent(text):
    return not any(trace in " ".join(text.split()) for trace in TRACES)


def test_without_a_listener_only_a_terminal_shows_a_note(monkeypatch):
    for screen, shown in ((Terminal(), "Note: hello\n"), (io.StringIO(), "")):
        monkeypatch.setattr("sys.stderr", screen)
        tell_operator("hello")
        assert screen.getvalue() == shown
    monkeypatch.setattr("sys.stderr", None)  # as under pythonw
    tell_operator("hello")


def test_a_listener_hears_what_is_told_inside(monkeypatch):
    screen, heard = Terminal(), []
    monkeypatch.setattr("sys.stderr", screen)
    with pytest.raises(KeyError), operator_notes_to(heard.append):
        tell_operator("inside")
        raise KeyError
    assert heard == ["inside"]
    assert screen.getvalue() == ""
    tell_operator("outside")
    assert "outside" in screen.getvalue()


@pytest.mark.parametrize(
    ("screen", "options", "shown"),
    [
        (Terminal(), [], True),
        (Terminal(), ["--json"], True),
        (Terminal(), ["--quiet"], False),
        (io.StringIO(), [], False),  # FORCE_COLOR makes rich call a log a terminal
    ],
)
def test_the_command_line_shows_notes_on_a_terminal_only(
    screen, options, shown, copied, tmp_path, monkeypatch
):
    shown_on = Console(file=screen, force_terminal=True, width=1000)
    monkeypatch.setattr(console, "err", shown_on)
    run = CliRunner().invoke(app, command(copied, tmp_path / "out", "--not-private", *options))
    assert run.exit_code == 0, run.output
    assert ("predicts the label" in screen.getvalue()) is shown
    assert ("this release has no noise" in screen.getvalue()) is shown
    assert is_silent(run.output)


@pytest.mark.parametrize(
    "privacy", [["--not-private"], ["--epsilon", "1", "--delta", "1e-6", "--bounds", "-5", "5"]]
)
def test_notes_enter_no_file_no_output_no_log_and_no_warning(
    privacy, copied, tmp_path, monkeypatch
):
    log = io.StringIO()
    handler = logging.StreamHandler(log)
    logging.getLogger().addHandler(handler)
    monkeypatch.setattr(logging.getLogger(), "level", logging.DEBUG)
    logging.captureWarnings(True)
    monkeypatch.setattr(console, "err", Console(file=Terminal(), force_terminal=True))
    try:
        out = tmp_path / "out"
        run = CliRunner().invoke(app, command(copied, out, "--json", *privacy))
    finally:
        logging.captureWarnings(False)
        logging.getLogger().removeHandler(handler)
    assert run.exit_code == 0, run.output
    assert is_silent(run.stdout)
    assert is_silent(json.dumps(json.loads(run.stdout)))
    assert is_silent(log.getvalue())
    for file in out.iterdir():
        assert is_silent(file.read_bytes().decode("latin-1"))
    loaded = bw.Release.load(out)
    assert is_silent(repr(loaded) + str(vars(loaded)) + loaded._repr_html_())


def test_notes_are_no_part_of_the_release_object_or_of_warnings(copied):
    heard = []
    with operator_notes_to(heard.append), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        made = bw.make_release(copied, label="y", bag_size=2, not_private=True, strategy="random")
    assert len(heard) == 2
    assert caught  # of bags of two
    assert all(is_silent(str(warning.message)) for warning in caught)
    assert is_silent(repr(made) + str(vars(made)) + str(made.summary()))


def test_a_check_that_fails_stops_no_release(copied, monkeypatch):
    def choke(*_args, **_kwargs):
        raise ValueError("918273645")

    monkeypatch.setattr(label_copies, "_telling_columns", choke)
    bw.make_release(copied, label="y", bag_size=10, not_private=True, strategy="random")
