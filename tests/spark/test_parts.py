"""The backend of `Parts` that is Spark keeps the contract of all (tests/contracts/parts.py)."""

import pyarrow.parquet as pq
import pytest

from bagwise.files.spill import SpillDirectory
from bagwise.rows.spark.opening import open_files
from bagwise.rows.spark.tasks import Cluster
from tests.contracts.parts import CHECKS, run, some_rows


@pytest.mark.parametrize("check", CHECKS, ids=[check.__name__ for check in CHECKS])
def test_spark_keeps_the_contract(check, spark, tmp_path):
    source = tmp_path / "source"
    source.mkdir()
    pq.write_table(some_rows(), source / "a.parquet", row_group_size=110)
    run(check, open_files(source, Cluster(spark, SpillDirectory(tmp_path / "private"))), tmp_path)
