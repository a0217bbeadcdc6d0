"""Print the lowest versions that pyproject.toml allows, as constraints for pip.

    python -m tools.lowest > constraints.txt

Every requirement of the package and of its extras that says ``>=`` becomes one that says ``==``. So
do those of the frames that people bring along: an old scikit-learn does not know a new polars.
Other peers and tools of the developers are left alone, since nobody who uses the package installs
them. So is PyTorch, whose old builds bring gigabytes of CUDA packages; the Makefile names the one
to test with.
"""

import re
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

LEFT_ALONE = {"torch"}
FRAMES = ("pandas", "polars")
_REQUIREMENT = re.compile(r"([A-Za-z0-9._-]+)>=([0-9][0-9a-z.]*)")


def lowest(pyproject: Mapping[str, Any]) -> list[str]:
    """Return one constraint for each requirement in the tables of a pyproject.toml.

    >>> project = {"name": "us", "dependencies": ["numpy>=2.0"],
    ...            "optional-dependencies": {"sign": ["cryptography>=42"], "all": ["us[sign]"]}}
    >>> lowest({"project": project, "dependency-groups": {"dev": ["polars>=1.0", "ruff"]}})
    ['cryptography==42', 'numpy==2.0', 'polars==1.0']
    """
    project = pyproject["project"]
    tools = pyproject.get("dependency-groups", {}).get("dev", [])
    frames = [tool for tool in tools if isinstance(tool, str) and tool.startswith(FRAMES)]
    listed = [*project["dependencies"], *frames]
    for extra in project.get("optional-dependencies", {}).values():
        listed.extend(extra)
    found = set()
    for requirement in listed:
        if requirement.startswith(f"{project['name']}["):
            continue
        parts = _REQUIREMENT.fullmatch(requirement)
        if parts is None:
            raise ValueError(f"{requirement!r} does not say name>=version, so it has no lowest.")
        if parts[1] not in LEFT_ALONE:
            found.add(f"{parts[1]}=={parts[2]}")
    return sorted(found)


def main() -> None:
    """Print the constraints of this checkout."""
    pyproject = Path(__file__).parents[1] / "pyproject.toml"
    tables = tomllib.loads(pyproject.read_text(encoding="utf-8"))
    sys.stdout.write("\n".join(lowest(tables)) + "\n")


if __name__ == "__main__":
    main()
