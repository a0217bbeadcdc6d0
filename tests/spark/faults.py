"""Faults that tests put into tasks; workers import this module."""

import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bagwise.rows.spark.tasks import Cluster

SECRET_WORDS = "label 4.25"


def attempt():
    from pyspark import TaskContext

    return TaskContext.get().attemptNumber()


@dataclass
class TwiceAndFailing:
    """Every task does its work twice, as a speculative copy would; its first attempt fails then."""

    work: Callable[..., Any]

    def __call__(self, *arguments):
        first = self.work(*arguments)
        if hasattr(first, "__next__"):
            list(first)
        if attempt() == 0:
            raise OSError(SECRET_WORDS)
        return self.work(*arguments)


@dataclass
class Once:
    """One task of all, the first to come, meets with an accident, having done its work."""

    work: Callable[..., Any]
    marker: str
    accident: Callable[[], None]

    def __call__(self, *arguments):
        found = self.work(*arguments)
        try:
            os.close(os.open(self.marker, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return found
        self.accident()
        return found


def kill_the_executor():
    """Kill the process of Spark that this worker belongs to: the parent of its daemon."""
    daemon = os.getppid()
    status = Path(f"/proc/{daemon}/status").read_text()
    parent = int(status.partition("PPid:")[2].split()[0])
    command = Path(f"/proc/{parent}/cmdline").read_bytes()
    if b"CoarseGrainedExecutorBackend" not in command:
        raise AssertionError("not an executor")
    os.kill(parent, signal.SIGKILL)
    time.sleep(60)


def sleep_long():
    time.sleep(120)


def put_into(cluster_method, fault):
    """Return a method of `Cluster` whose tasks have the fault."""
    original = getattr(Cluster, cluster_method)

    def faulty(self, first, *works):
        return original(self, first, *(fault(work) if callable(work) else work for work in works))

    return faulty
