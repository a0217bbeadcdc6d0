"""The engine for tables too large for one machine: Spark, with Arrow and NumPy in its tasks.

Nothing here knows about privacy. A table is a list of splits, pieces of Parquet files that a task
reads by itself (`opening`); work goes to splits, or from splits to other tasks by way of Spark's
shuffle (`tasks`). What a step makes is written before the next one reads it, so that a task that
fails, runs twice or is lost changes nothing but time:

- a task writes under a name of its own, and only the names that Spark reports back count;
- what is random is a function of a secret key and the number of a row (`keys`), never of a task.

Modules that import PySpark do so when they are called: nobody else waits for it, or needs it.
"""
