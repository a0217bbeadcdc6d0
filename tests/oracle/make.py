"""Keep today's figures of fits and releases, and say which of them are others than before.

    python -m tests.oracle.make            # all of them
    python -m tests.oracle.make "shrunk"   # those whose name has it

A change that is meant is seen in the output and in the difference of `oracle.json`; one that is not
is a mistake.
"""

import json
import sys

from tests.oracle.cases import all_cases
from tests.oracle.compare import KEPT, differences, load, run


def main(part: str = "") -> None:
    """Write the file."""
    kept, cases = load(), all_cases()
    now = {name: run(case) if part in name else kept[name] for name, case in cases.items()}
    for name in sorted({*kept, *now}):
        for line in differences(kept.get(name), now.get(name)) if name in kept else ["new"]:
            print(f"{name}: {line}")  # noqa: T201
    entries = (f"{json.dumps(name)}: {json.dumps(figures)}" for name, figures in now.items())
    KEPT.write_text("{\n" + ",\n".join(entries) + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
