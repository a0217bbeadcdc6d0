"""Lower bounds become constraints, and what has no lower bound is refused."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tools.lowest import lowest

ROOT = Path(__file__).parents[2]


def test_every_requirement_of_the_package_has_a_lowest_version():
    pyproject = tomllib.loads((ROOT / "pyproject.toml").read_text())
    listed = pyproject["project"]["dependencies"]
    found = {line.partition("==")[0] for line in lowest(pyproject)}
    assert {requirement.partition(">=")[0] for requirement in listed} <= found
    assert {"numba", "dp-accounting", "altair", "pandas", "polars"} <= found
    assert not {"bagwise", "torch", "ruff"} & found


@pytest.mark.parametrize("requirement", ["numpy", "numpy<3", "numpy>=2,<3", "numpy==2.0"])
def test_a_requirement_without_a_lowest_version_is_refused(requirement):
    with pytest.raises(ValueError, match="has no lowest"):
        lowest({"project": {"name": "us", "dependencies": [requirement]}})


def test_it_prints_what_pip_reads():
    printed = subprocess.run(
        [sys.executable, "-m", "tools.lowest"], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout.splitlines()
    assert printed
    assert all(re.fullmatch(r"[a-z0-9-]+==[0-9.]+", line) for line in printed)
