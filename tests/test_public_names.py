import ast
import subprocess
import sys
from pathlib import Path

import bagwise as bw


def run(code):
    return subprocess.run([sys.executable, "-c", code], check=False).returncode


def test_every_public_name_exists_and_is_documented():
    for name in bw.__all__:
        thing = getattr(bw, name)
        assert thing.__doc__, f"{name} has no docstring"
    assert set(bw.__all__) <= set(dir(bw))


def test_registered_strategies_are_public_and_nothing_lists_them_twice():
    classes = {strategy.__name__: strategy for strategy in bw.STRATEGIES.values()}
    for name, strategy in classes.items():
        assert getattr(bw, name) is strategy
    assert set(bw._EVERYDAY.split()) | set(classes) | {"__version__"} == set(bw.__all__)
    assert set(bw._HOME_OF) >= set(bw._EVERYDAY.split())
    assert len(bw.__all__) <= 36
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
    assert seen == {name: home for name, home in bw._HOME_OF.items() if name != "STRATEGIES"}


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
