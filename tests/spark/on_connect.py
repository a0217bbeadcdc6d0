"""Make a release of a DataFrame of Spark Connect, and fit it; see `test_connect`."""

import sys
from pathlib import Path

import bagwise as bw
from bagwise.rows.spark.session import open_session
from tests.spark.conftest import PRIVATE, some_table


def main(folder):
    session = open_session(
        {
            "spark.remote": "local[2]",
            "spark.driver.memory": "1g",
            "spark.sql.shuffle.partitions": "4",
        }
    )
    frame = session.createDataFrame(some_table().to_pandas())
    made = bw.make_release(frame, strategy="random", engine=bw.Engine(spill=folder), **PRIVATE)
    made.save(folder / "out")
    bw.fit_on_spark(folder / "out").save(folder / "model.json")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
