"""Make a release on a cluster on which one task meets with an accident; see `test_faults`."""

import functools
import json
import sys
from pathlib import Path

import bagwise as bw
from bagwise.release import bags_in_parts
from bagwise.rows.spark.tasks import Cluster
from tests.spark import faults
from tests.spark.conftest import PRIVATE


def main(asked):
    folder = Path(asked["folder"])
    bags_in_parts.BUCKET = 1000
    fault = functools.partial(
        faults.Once, marker=str(folder / "marker"), accident=getattr(faults, asked["accident"])
    )
    setattr(Cluster, asked["method"], faults.put_into(asked["method"], fault))
    made = bw.make_release(
        asked["files"],
        engine=bw.Engine(name="spark", spill=folder, spark=asked["settings"]),
        strategy="random",
        privacy=bw.Privacy(tighten="none"),
        **PRIVATE,
    )
    made.save(folder / "out")
    made.save(folder / "again")


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
