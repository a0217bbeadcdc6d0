"""Make every stage fail on a recognisable label, and look for it in everything that comes out."""

import io
import logging
import traceback

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import bagwise as bw
from bagwise.cli import app
from bagwise.errors import BagwiseError
from bagwise.release import files

SENTINEL = 918273645.125
TRACES = ("918273645", "9.18273645e", "9.182736e")

STAGES = [
    "build.read_rows",
    "tables.LocalTable.checked",
    "tables.LocalTable.matrix",
    "build.ask_labels",
    "tables.assign_bags",
    "tables.LocalBags.leaving",
    "tables.LocalBags.release",
]


def leaks(text):
    return any(trace in text for trace in TRACES)


@pytest.fixture
def table():
    return pa.table({"x": np.arange(20) / 7, "y": np.full(20, SENTINEL)})


@pytest.fixture
def logs():
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    logging.getLogger().addHandler(handler)
    yield stream
    logging.getLogger().removeHandler(handler)


def choke(*_args, **_kwargs):
    raise ValueError(f"could not convert {SENTINEL!r}")


@pytest.mark.parametrize("stage", STAGES)
def test_a_failing_stage_shows_no_label(stage, table, tmp_path, monkeypatch, logs):
    path = tmp_path / "t.parquet"
    pq.write_table(table, path)
    monkeypatch.setattr(f"bagwise.release.{stage}", choke)
    with pytest.raises(BagwiseError) as caught:
        bw.make_release(table, label="y", bag_size=5, not_private=True)
    assert not leaks("".join(traceback.format_exception(caught.value)))
    assert caught.value.__context__ is None
    assert caught.value.__cause__ is None
    arguments = ["release", str(path), "--label", "y", "--bag-size", "5", "--not-private"]
    run = CliRunner().invoke(app, [*arguments, "-o", str(tmp_path / "out")])
    assert run.exit_code == 1
    assert "withheld" in run.output
    assert not leaks(run.output)
    assert not leaks(logs.getvalue())
    assert [file.name for file in tmp_path.iterdir()] == ["t.parquet"]


def test_a_failing_writer_shows_no_label_and_leaves_no_file(table, tmp_path, monkeypatch):
    path = tmp_path / "t.parquet"
    pq.write_table(table, path)
    monkeypatch.setattr(files, "write_json", choke)
    arguments = ["release", str(path), "--label", "y", "--bag-size", "5", "--not-private"]
    run = CliRunner().invoke(app, [*arguments, "-o", str(tmp_path / "out")])
    assert run.exit_code == 1
    assert not leaks(run.output)
    assert [file.name for file in tmp_path.iterdir()] == ["t.parquet"]


BAD_LABELS = {
    "text": lambda n: [str(SENTINEL)] * n,
    "mixed": lambda n: pd.Series([SENTINEL] * (n - 1) + [f"no {SENTINEL}"], dtype=object),
    "null": lambda n: [SENTINEL] * (n - 1) + [None],
    "nan": lambda n: [SENTINEL] * (n - 1) + [float("nan")],
    "infinite": lambda n: [SENTINEL] * (n - 1) + [float("inf")],
    "list": lambda n: [[SENTINEL]] * n,
}


@pytest.mark.parametrize("bad", BAD_LABELS.values(), ids=BAD_LABELS)
def test_bad_labels_are_not_quoted(bad):
    frame = pd.DataFrame({"x": np.arange(20) / 7})
    frame["y"] = bad(20)
    with pytest.raises(BagwiseError) as caught:
        bw.make_release(frame, label="y", bag_size=5, not_private=True)
    assert not leaks("".join(traceback.format_exception(caught.value)))
    assert caught.value.__context__ is None


@pytest.mark.parametrize(
    "content",
    [
        f"x,y\n1,{SENTINEL},3\n",
        f"x,y\n1,{SENTINEL}\n2,text {SENTINEL}\n",
        f'x,y\n1,"{SENTINEL}\n',
        f"x,y\n1,\xff{SENTINEL}\n",
        "x,y\n1\n",
    ],
)
def test_bad_csv_files_are_not_quoted(content, tmp_path):
    path = tmp_path / "t.csv"
    path.write_bytes(content.encode("latin-1"))
    arguments = ["release", str(path), "--label", "y", "--bag-size", "1", "--not-private"]
    run = CliRunner().invoke(app, [*arguments, "-o", str(tmp_path / "out")])
    assert run.exit_code == 2
    assert not leaks(run.output)


def test_a_private_release_holds_no_label(table, tmp_path):
    """Labels far outside the bounds are clipped, and nothing says so."""
    run_output = bw.make_release(
        table, label="y", bag_size=5, epsilon=1.0, delta=1e-6, bounds=(0, 1)
    )
    out = run_output.save(tmp_path / "out")
    for file in out.iterdir():
        content = file.read_bytes()
        assert not leaks(content.decode("latin-1"))
        assert np.float64(SENTINEL).tobytes() not in content
    assert not leaks(repr(run_output) + run_output._repr_html_())


HEADERLESS = {
    "integers": "3,918273645\n4,5\n",
    "floats": "3.1,918273645.125\n4.5,5.5\n",
    "exponents": "1e5,9.18273645e8\n2e5,3e5\n",
    "quoted": '"3.1","918273645"\n"4.5","5"\n',
    "decimal commas": '"-3,5";x\n'.replace(";x", ',"918273645,125"') + '"4,5","5,5"\n',
    "text and numbers": "12.5,red,918273645\n3.5,blue,4\n",
    "a secret among words": "12,Bonn,red918273645\n13,Pune,blue\n",
    "doubled": "918273645,918273645\n1,2\n",
    "doubled words": "red918273645,red918273645\nred918273645,blue\n",
    "classes": "Bonn,no918273645\nPune,yes\nBonn,no918273645\n",
    "a close name": "y1,yy918273645\ny2,b\ny1,yy918273645\n",
    "missing": "nan,918273645\n1,2\n",
    "in order": "1,2,3,4,918273645\n5,6,7,8,9\n",
    "dates": "2024-01-05,red918273645\n2024-01-06,blue\n",
    "money": "$12,€918273645\n$13,€2\n",
}


@pytest.mark.parametrize("label", ["y", "yy91827364", "918273646"])
@pytest.mark.parametrize("content", HEADERLESS.values(), ids=HEADERLESS)
def test_a_first_line_of_data_is_not_quoted(content, label, tmp_path, logs):
    """Without a header line the first row becomes the names of the columns."""
    path = tmp_path / "t.csv"
    path.write_text(content)
    made = ["--bag-size", "1", "--not-private", "-o", str(tmp_path / "out")]
    verbs = {
        "release": [*made],
        "plan": ["--not-private"],
        "release-model": ["--bounds", "auto", "--epsilon", "1", "-o", str(tmp_path / "m.json")],
    }
    for verb, options in verbs.items():
        run = CliRunner().invoke(app, [verb, str(path), "--label", label, *options])
        assert run.exit_code == 2, run.output
        assert "918273645" not in run.output.replace(label, "")
        assert "red" not in run.output.replace("covered", "")
        assert "header line" in " ".join(run.output.split())
    assert not leaks(logs.getvalue())


def test_a_first_line_of_data_in_a_frame_is_not_quoted(tmp_path):
    (tmp_path / "t.csv").write_text("12.5,red,918273645\n3.5,blue,4\n")
    frame = pd.read_csv(tmp_path / "t.csv")
    for source in (frame, pa.Table.from_pandas(frame)):
        with pytest.raises(BagwiseError, match="seem to be data") as caught:
            bw.make_release(source, label="y", bag_size=1, not_private=True)
        assert not leaks(str(caught.value))
        assert "red" not in str(caught.value)
