"""Names in files of strangers never reach a terminal or a page as orders to it."""

import numpy as np
import pyarrow as pa
import pytest
from typer.testing import CliRunner

import bagwise as bw
from bagwise._printable import printable
from bagwise.cli import app
from bagwise.errors import BagwiseError, BagwiseWarning
from bagwise.rows.table import write_table

ORDERS = "\x1b\x07\x9b\r\u202e\u2066\u2028"
NASTY = f"\x1b[2J\x1b]0;gone\x07{ORDERS}[red]</script><b>"


def test_every_order_is_shown_and_text_is_left_alone():
    plain = "Größe [m²] – 東京 😀 \\x1b"
    assert printable(plain) == plain
    shown = printable("".join(map(chr, (*range(32), 127, *range(128, 160)))) + ORDERS)
    assert shown.isprintable()
    assert printable("a\nb\x1b", keep="\n") == "a\nb\\x1b"


def test_messages_are_shown_without_orders():
    for kind in (BagwiseError, BagwiseWarning):
        assert str(kind(f"column {NASTY}")).isprintable()


@pytest.fixture(scope="module")
def nasty(tmp_path_factory):
    """Names in a table: columns, levels, label, classes, unit and id."""
    rng = np.random.default_rng(0)
    n = 400
    x, level = rng.normal(size=n), rng.integers(3, size=n)
    directory = tmp_path_factory.mktemp("nasty")
    table = pa.table(
        {
            f"x{NASTY}": x,
            f"city{NASTY}": [f"{NASTY} {i}" for i in level],
            f"unit{NASTY}": np.arange(n) // 2,
            f"y{NASTY}": np.clip(5 + x + level + 0.1 * rng.normal(size=n), 0, 10),
            f"kind{NASTY}": [f"{NASTY}{i}" for i in level],
        }
    )
    path = directory / "table.parquet"
    write_table(table, path)
    unit, label, kind = f"unit{NASTY}", f"y{NASTY}", f"kind{NASTY}"
    private = {"epsilon": 2.0, "delta": 1e-5, "bag_size": 8}
    numeric = bw.make_release(
        table, label=label, bounds=(0, 10), unit=unit, exclude=[kind], strategy="random", **private
    )
    classes = bw.make_release(
        table,
        label=kind,
        classes=[f"{NASTY}{i}" for i in range(3)],
        features=[f"x{NASTY}"],
        not_private=True,
        bag_size=8,
        strategy="random",
        bagging=bw.Bagging(seed=0),
    )
    numeric.save(directory / "numeric")
    classes.save(directory / "classes")
    return directory


def run(*words):
    result = CliRunner().invoke(app, [str(word) for word in words])
    shown = result.output + result.stderr
    assert not set(ORDERS) & set(shown), ascii(shown)
    assert "\x1b" not in shown
    return result


@pytest.mark.parametrize("name", ["numeric", "classes"])
def test_no_verb_prints_an_order(nasty, tmp_path, name):
    release, model, table = nasty / name, tmp_path / "model.json", nasty / "table.parquet"
    assert run("verify", release).exit_code == 0
    plot = tmp_path / "plot.html"
    assert run("fit", release, "-o", model, "--plot", plot).exit_code == 0
    assert "</script><b>" not in plot.read_text()
    run("report", release)
    assert run("predict", model, table, "-o", tmp_path / "p.parquet").exit_code == 0
    run("evaluate", model, table)
    run("evaluate", model, table, "--label", NASTY)
    run("verify", release, "--json")
    run("verify", nasty / f"nowhere{NASTY}")


@pytest.mark.filterwarnings("ignore::bagwise.errors.BagwiseWarning")
@pytest.mark.parametrize("name", ["numeric", "classes"])
def test_no_page_holds_an_order(nasty, name):
    release = bw.Release.load(nasty / name)
    model = bw.fit_release(release)
    pages = [release._repr_html_(), model._repr_html_()]
    texts = [*pages, str(model.summary()), release.certificate.text(), repr(release)]
    for text in texts:
        assert not set(ORDERS) & set(text)
    for page in pages:
        assert "<b>" not in page
