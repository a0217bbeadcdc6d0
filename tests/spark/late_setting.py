"""Ask whether a session is safe that was told so when it was too late; see `test_connect`."""

import os
import sys

from pyspark.sql import SparkSession

from bagwise.errors import EngineError
from bagwise.rows.spark.session import ENCRYPTED, check, open_session, prepare_java


def is_refused(action):
    try:
        action()
    except EngineError as error:
        return ENCRYPTED in str(error)
    return False


def main():
    prepare_java(os.environ)
    builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    builder.getOrCreate()
    late = SparkSession.builder.config(ENCRYPTED, "true").getOrCreate()
    found = late.conf.get(ENCRYPTED), is_refused(lambda: check(late)), is_refused(open_session)
    sys.stdout.write(" ".join(map(str, found)))


if __name__ == "__main__":
    main()
