"""A small table of flats, a project about it, and somebody who knows all rents."""

import numpy as np
import pyarrow as pa
import pytest

from bagwise import AnnotationProject


@pytest.fixture
def flats():
    """400 flats with numbers and text."""
    rng = np.random.default_rng(3)
    area = rng.uniform(20, 120, 400).round(1)
    city = rng.choice(["Bonn", "Oslo", "Pune"], 400)
    return pa.table({"area": area, "city": city, "note": [f"flat, no {i}" for i in range(400)]})


@pytest.fixture
def started(flats, tmp_path):
    """A project with 40 flats to label."""
    return AnnotationProject.start(
        flats, tmp_path / "flats", label="rent", budget=40, design="kmeans",
        bounds=(0, 3000), exclude=["note"], show=["area", "note"], seed=1,
    )  # fmt: skip


def rents(table):
    """Return what an annotator would answer, from what the list shows."""
    return 100 + 10 * table["area"].to_numpy() + np.sin(np.arange(table.num_rows))


def answered(project, number=None):
    """Return the open rows with their labels."""
    asked = project.to_label(number)
    return asked.select([project.id_name]).append_column("rent", pa.array(rents(asked)))
