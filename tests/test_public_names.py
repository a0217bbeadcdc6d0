import subprocess
import sys

import bagwise as bw


def test_every_public_name_exists_and_is_documented():
    for name in bw.__all__:
        thing = getattr(bw, name)
        assert thing.__doc__, f"{name} has no docstring"
    assert set(bw._HOME_OF) | {"__version__"} == set(bw.__all__)
    assert set(bw.__all__) <= set(dir(bw))


def test_registered_strategies_are_public():
    for strategy in bw.STRATEGIES.values():
        assert getattr(bw, strategy.__name__) is strategy


def test_help_does_not_wait_for_scikit_learn():
    code = "import sys, bagwise.cli; sys.exit('sklearn' in sys.modules or 'pyarrow' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
