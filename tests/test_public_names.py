import ast
import dataclasses
import inspect
import subprocess
import sys
from pathlib import Path

import pytest

import bagwise as bw
from bagwise.errors import StrategyError


def run(code):
    return subprocess.run([sys.executable, "-c", code], check=False).returncode


def everyday():
    return {name for names in bw._EVERYDAY.values() for name in names.split()}


def test_every_public_name_exists_and_is_documented():
    for name in bw.__all__:
        thing = getattr(bw, name)
        assert thing.__doc__, f"{name} has no docstring"
    assert set(bw.__all__) <= set(dir(bw))


def test_registered_strategies_are_public_and_nothing_lists_them_twice():
    classes = {strategy.__name__: strategy for strategy in bw.STRATEGIES.values()}
    for name, strategy in classes.items():
        assert getattr(bw, name) is strategy
    assert everyday() | set(classes) | {"__version__"} == set(bw.__all__)
    assert len(bw.__all__) <= 40
    assert not set(bw._HOME_OF) & set(classes)


def test_type_checkers_see_the_same_names():
    tree = ast.parse(Path(bw.__file__).read_text())
    (block,) = (node for node in tree.body if isinstance(node, ast.If))
    seen = {}
    for node in block.body:
        assert isinstance(node, ast.ImportFrom)
        for alias in node.names:
            assert alias.asname == (None if alias.name == "*" else alias.name)
            seen[alias.name] = node.module
    assert seen.pop("*") == bw._HOME_OF["STRATEGIES"]
    assert seen == {name: bw._HOME_OF[name] for name in everyday()}


def test_unknown_names_are_unknown():
    assert not hasattr(bw, "NoBags")
    assert not hasattr(bw, "no_bags")


def test_star_brings_every_name():
    scope = {}
    exec("from bagwise import *", scope)  # noqa: S102
    assert set(bw.__all__) <= set(scope)


def test_help_does_not_wait_for_scikit_learn():
    heavy = "sys.exit(any(name in sys.modules for name in ('sklearn', 'pyarrow', 'scipy')))"
    for modules in ("bagwise", "bagwise.cli", "bagwise; from bagwise import errors"):
        assert run(f"import sys, {modules}; {heavy}") == 0
    slow = ("sklearn", "scipy.stats", "scipy.optimize", "pandas", "pyarrow.dataset", "numba")
    loaded = f"any(sys.modules.get(name) for name in {slow})"  # None: a module that is kept out
    assert run(f"import sys, bagwise.api; sys.exit({loaded})") == 0
    assert run("import sys, bagwise; bagwise.RandomBags; sys.exit('sklearn' in sys.modules)") == 0


def test_no_function_has_more_than_twenty_parameters():
    """But for verbs of the command line, and kernels, whose compiler takes no records."""
    source = Path(bw.__file__).parent
    long = [
        f"{path.relative_to(source)}: {node.name}"
        for path in source.rglob("*.py")
        if not {"cli", "kernels"} & set(path.relative_to(source).parts)
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef)
        and len([*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]) > 20
    ]
    assert long == []
    assert len(inspect.signature(bw.make_release).parameters) <= 20


@pytest.mark.parametrize("verb", [bw.make_release, bw.release_model, bw.plan])
def test_a_setting_that_is_no_argument_says_where_it_belongs(verb):
    with pytest.raises(TypeError, match=r"reading=bw.Reading\(nulls=…\)"):
        verb({"x": [1.0]}, label="y", nulls="error")
    with pytest.raises(TypeError, match="unexpected keyword"):
        verb({"x": [1.0]}, label="y", nulles="error")


def test_settings_that_a_verb_has_no_use_for_are_refused():
    options = {"label": "y", "bounds": (0, 1), "epsilon": 1.0}
    with pytest.raises(StrategyError, match="centre of Privacy is not for a released model"):
        bw.release_model({"x": [1.0]}, privacy=bw.Privacy(centre="none"), **options)
    with pytest.raises(StrategyError, match="seed of Bagging is not for a plan"):
        bw.plan({"x": [1.0]}, bagging=bw.Bagging(seed=1), **options)


def test_every_setting_is_described_in_the_docstring_of_its_record():
    for record in (bw.Bagging, bw.Privacy, bw.Reading, bw.Engine):
        for one in dataclasses.fields(record):
            assert f"{one.name} : " in record.__doc__
            assert one.metadata["help"] in record.__doc__
