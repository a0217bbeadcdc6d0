"""A walk counts every function once, where it is entered first."""

import runpy
import sys

import pytest

from tools import walk


def test_functions_count_once_and_lambdas_not_at_all(tmp_path):
    (tmp_path / "a.py").write_text("def f():\n    return sorted([2, 1], key=lambda x: x)\n")
    (tmp_path / "b.py").write_text("def g(f):\n    return f(), f()\n")
    f = runpy.run_path(str(tmp_path / "a.py"))["f"]
    g = runpy.run_path(str(tmp_path / "b.py"))["g"]
    made = walk.follow(lambda: (g(f), f(), g(f)), package=tmp_path)
    assert made.steps == [("b.py", "g", 1), ("a.py", "f", 1)]
    assert (made.files, made.functions, made.changes) == (2, 2, 1)


def test_functions_elsewhere_are_not_on_the_way(tmp_path):
    assert walk.follow(lambda: sorted([1]), package=tmp_path).steps == []


def test_a_command_that_fails_has_no_figures(capsys):
    assert walk.main(["--", "verify", "nowhere"]) == 1
    assert "files" not in capsys.readouterr().out


def test_the_profile_is_gone_after_an_error(tmp_path):
    with pytest.raises(ZeroDivisionError):
        walk.follow(lambda: 1 / 0, package=tmp_path)
    assert sys.getprofile() is None
