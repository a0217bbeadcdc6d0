"""What the command line shows while it works."""

import io
import logging

import pytest
from rich.console import Console

from bagwise.cli import console
from bagwise.cli.console import show_progress
from bagwise.show.stages import report_progress


@pytest.fixture
def terminal(monkeypatch):
    console.talk(quiet=False, as_json=False)
    screen = io.StringIO()
    monkeypatch.setattr(console, "err", Console(file=screen, force_terminal=True, width=100))
    return screen


def test_a_long_stage_shows_how_far_it_is(terminal):
    with show_progress(steps=2) as on_stage:
        on_stage("forming bags")
        report_progress("exchanging rows", 0.42)
    assert "forming bags: exchanging rows 42%" in terminal.getvalue()


def test_the_clock_goes_on_when_there_are_more_stages_than_steps(terminal):
    with show_progress(steps=2) as on_stage:
        for name in ("reading", "forming bags", "writing", "measuring"):
            on_stage(name)
            (task,) = console._progress.get().tasks
            assert not task.finished, "rich stops the clock of a task that is done"


@pytest.mark.parametrize("patience", [0.0, 1000.0])
def test_without_a_terminal_the_stages_of_a_long_run_are_lines_of_a_log(
    capsys, monkeypatch, patience
):
    console.talk(quiet=False, as_json=False)
    monkeypatch.setattr(console, "PATIENCE", patience)
    monkeypatch.setattr(console, "err", Console(file=io.StringIO(), force_terminal=False))
    with show_progress(steps=2) as on_stage:
        on_stage("reading the table")
        on_stage("forming bags")
    lines = capsys.readouterr().err.splitlines()
    named = {"reading the table", "forming bags"}
    assert {line[20:] for line in lines} >= named if patience == 0 else not lines
    assert all(line[4] + line[13] == "-:" for line in lines)


def test_quiet_shows_nothing_and_keeps_notices_back(terminal):
    console.talk(quiet=True, as_json=False)
    with show_progress(steps=2) as on_stage:
        on_stage("forming bags")
        report_progress("exchanging rows", 0.42)
        assert not logging.getLogger("bagwise").isEnabledFor(logging.WARNING)
    assert terminal.getvalue() == ""
    assert logging.getLogger("bagwise").isEnabledFor(logging.WARNING)


def test_nobody_hears_progress_after_the_end(terminal):
    with show_progress(steps=1):
        pass
    shown = terminal.getvalue()
    report_progress("exchanging rows", 0.5)
    assert terminal.getvalue() == shown


HEADING = ("", "estimate", "unshrunk", "std. error", "p", "95 % interval")
ROW = ("district=old town", "-404.81", "-404.86", "9.03", "<0.0001", "-422.8 to -386.9")


@pytest.mark.parametrize("width", [80, 50])
def test_a_grid_cuts_nothing_off(monkeypatch, width):
    screen = io.StringIO()
    monkeypatch.setattr(console, "out", Console(file=screen, width=width))
    console.print_grid("Model", [HEADING, ROW])
    shown = screen.getvalue()
    assert "…" not in shown
    assert max(map(len, shown.splitlines())) <= width
    assert (" ".join(ROW) in " ".join(shown.split())) == (width == 80)


def test_a_title_is_wider_than_its_table_if_it_must(monkeypatch):
    screen = io.StringIO()
    monkeypatch.setattr(console, "out", Console(file=screen, width=80))
    title = "Model in direct.json: (1, 1e-06)-label-DP"
    console.print_pairs(title, {"area": "11"})
    console.print_grid(title, [("", "estimate"), ("area", "11")])
    assert screen.getvalue().count(title) == 2
    console.print_pairs("a" * 100, {"area": "11"})
    assert max(map(len, screen.getvalue().splitlines())) <= 80
