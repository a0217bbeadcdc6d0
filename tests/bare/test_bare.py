"""What works without any extra, and what says which extra it needs.

`make test-bare` runs this in an environment that has no extra. Elsewhere they are hidden, so that
`make test` notices first.
"""

import json
import subprocess
import sys
import textwrap

EXTRAS = (
    "altair", "vl_convert", "torch", "dp_accounting", "adbc_driver_sqlite",
    "adbc_driver_postgresql", "cryptography", "lightgbm", "starlette", "uvicorn",
)  # fmt: skip

HIDDEN = f"""
import sys
class Hiding:  # None in sys.modules would not do: scipy looks there for torch
    def __init__(self, finder):
        self.finder = finder
    def find_spec(self, name, path=None, target=None):
        hidden = name.partition(".")[0] in {EXTRAS}
        return None if hidden else self.finder.find_spec(name, path, target)
    def __getattr__(self, name):
        return getattr(self.finder, name)
sys.meta_path[:] = map(Hiding, sys.meta_path)
"""

TABLE = """
import numpy as np
import pyarrow as pa
rng = np.random.default_rng(0)
x = rng.normal(size=600)
table = pa.table({"x": x, "city": rng.choice(["Bonn", "Pune"], 600), "y": 5 + x})
"""


def run(code, cwd):
    """Run code in a Python without extras, and return what it prints as JSON."""
    program = HIDDEN + textwrap.dedent(code)
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=cwd, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_every_public_name_is_there(tmp_path):
    found = run(
        """
        import json
        import bagwise
        from bagwise import *
        print(json.dumps([name for name in bagwise.__all__ if name not in globals()]))
        """,
        tmp_path,
    )
    assert found == []


def test_the_command_line_helps_with_every_verb(tmp_path):
    codes = run(
        """
        import json
        from typer.main import get_command
        from typer.testing import CliRunner
        from bagwise.cli import app
        verbs = [[], *([name] for name in get_command(app).commands)]
        codes = {" ".join(verb): CliRunner().invoke(app, [*verb, "--help"]).exit_code
                 for verb in verbs}
        print(json.dumps(codes))
        """,
        tmp_path,
    )
    assert {"release", "fit", "verify"} <= codes.keys()
    assert set(codes.values()) == {0}


def test_a_table_becomes_a_release_and_a_model(tmp_path):
    found = run(
        TABLE
        + """
import json
import bagwise as bw
private = {"bounds": (0, 10), "epsilon": 2.0, "delta": 1e-5}
release = bw.make_release(table, label="y", bag_size=10, strategy="random", **private)
release.save("release")
kept, _ = bw.verify("release")
model = bw.fit_release(bw.Release.load("release"))
model.save("model.json")
predicted = bw.RowModel.load("model.json").predict(table)
by_model = bw.make_release(table, label="y", bag_size=10, strategy="sorted", **private)
print(json.dumps([kept.headline, len(predicted), by_model.provenance.scores]))
""",
        tmp_path,
    )
    assert found == ["(2, 0)-label-DP", 600, "model"]


def test_the_command_line_goes_from_a_table_to_a_model(tmp_path):
    table = tmp_path / "table.csv"
    table.write_text("x,y\n" + "".join(f"{i % 17},{i % 5}\n" for i in range(200)))
    lines = [
        "release table.csv --label y --bag-size 10 --strategy random --bounds 0 4 "
        "--epsilon 2 --delta 1e-5 -o out",
        "verify out",
        "fit out -o model.json",
        "predict model.json table.csv -o predicted.csv",
    ]
    found = run(
        f"""
        import json
        from typer.testing import CliRunner
        from bagwise.cli import app
        done = [CliRunner().invoke(app, line.split()) for line in {lines}]
        print(json.dumps([(one.exit_code, one.output) for one in done]))
        """,
        tmp_path,
    )
    assert [code for code, _ in found] == [0] * len(lines), found


def test_a_labelling_budget_is_spent(tmp_path):
    found = run(
        TABLE
        + """
import json
import bagwise as bw
project = bw.AnnotationProject.start(
    table, "project", label="y", budget=40, design="random", seed=1
)
asked = project.to_label()
answers = {"row_id": asked["row_id"], "y": 5 + asked["x"].to_numpy()}
project.import_labels(pa.table(answers))
print(json.dumps(round(project.fit().coefficients()["x"], 3)))
""",
        tmp_path,
    )
    assert found == 1.0


def test_what_needs_an_extra_names_it(tmp_path):
    calls = {
        "torch": "bw.BagMeanLoss",
        "sql": "bw.Query(__import__('sys').executable, 'SELECT 1')",
        "boost": "bw.BaggedBooster().fit(np.c_[x], x, bags=np.arange(600) // 10)",
        "accounting": "release.certificate.dp_events()",
        "plot": "bw.fit_release(release).summary().plot()",
        "sign": "release.save('out', sign='key.pem')",
        "serve": "__import__('bagwise.annotate.page').annotate.page.serve("
        "bw.AnnotationProject.start(table, 'p', label='y', budget=9, design='random'), "
        "on_ready=print)",
    }
    said = run(
        TABLE
        + f"""
import json
import bagwise as bw
release = bw.make_release(
    table, label="y", bag_size=10, strategy="random", bounds=(0, 10), epsilon=2.0, delta=1e-5
)
said = {{}}
for extra, call in {calls}.items():
    try:
        eval(call)
    except bw.BagwiseError as error:
        said[extra] = str(error)
print(json.dumps(said))
""",
        tmp_path,
    )
    assert {extra for extra in calls if f"bagwise[{extra}]" in said[extra]} == calls.keys()


def test_results_show_themselves_and_charts_and_pages_name_their_extra(tmp_path):
    found = run(
        TABLE
        + """
import json
import bagwise as bw
from typer.testing import CliRunner
from bagwise.cli import app
release = bw.make_release(table, label="y", bag_size=10, strategy="random", bounds=(0, 10),
                          epsilon=2.0)
release.save("out")
shown = release.certificate._repr_html_()
try:
    release.certificate.plot()
except bw.BagwiseError as error:
    drawn = str(error)
page = CliRunner().invoke(app, ["report", "out", "-o", "out.html"])
text = CliRunner().invoke(app, ["report", "out"])
demo = CliRunner().invoke(app, ["demo", "--rows", "1000", "-o", "demo"])
print(json.dumps([shown, drawn, page.exit_code, page.output, text.exit_code, demo.exit_code,
                  demo.output]))
""",
        tmp_path,
    )
    shown, drawn, page, refused, text, demo, said = found
    assert "label-DP" in shown
    assert "bagwise[plot]" in drawn
    assert (page, text, demo) == (2, 0, 0)
    assert "bagwise[plot]" in refused
    assert "pip install 'bagwise[plot]'" in said
    assert not (tmp_path / "out.html").exists()
