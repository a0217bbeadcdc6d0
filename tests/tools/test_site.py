"""The reference lists every public name and every verb once; start pages say what is true."""

import ast
import inspect
import re
from pathlib import Path

import pytest

import bagwise as bw
from tests.console_pages import steps_of
from tools.site import (
    api_pages,
    changelog,
    command_pages,
    names_by_group,
    names_by_room,
    with_contents,
    without_links_outside,
    write_reference,
)

DOCS = Path(__file__).parents[2] / "docs"
STARTS = sorted((DOCS / "start").glob("*.md"))


def test_every_public_name_is_documented_once():
    contents, *pages = api_pages().values()
    page = "\n".join(pages)
    named = re.findall(r"^\.\. (?:auto\w+|py:data):: bagwise\.(\w+)$", page, re.MULTILINE)
    assert sorted(named) == sorted({*bw.__all__, *bw._HOME_OF} - {"__version__"})
    assert "Other names" in names_by_group()  # registries, which know no home
    listed = re.findall(r"^\| \{py:obj\}`~bagwise\.(\w+)` \| \S", contents, re.MULTILINE)
    assert sorted(listed) == sorted(named)
    further = re.findall(r"^\.\. (?:auto\w+|py:data):: bagwise\.(\w+\.\w+)$", page, re.MULTILINE)
    assert {"theory.exact_risk", "privacy.gaussian_delta"} <= set(further)
    assert sorted(further) == sorted(name for names in names_by_room().values() for name in names)


def test_every_verb_and_every_option_is_documented_once():
    contents, *pages = command_pages().values()
    page = "\n".join(pages)
    headings = re.findall("^#+ bagwise (.*)$", page, re.MULTILINE)
    verbs = [
        "demo",
        "plan",
        "release",
        "release-model",
        "verify",
        "fit",
        "predict",
        "evaluate",
        "report",
        "audit",
    ]
    ledgers = [f"ledger {name}" for name in ("init", "show", "check", "key")]
    projects = [
        f"annotate {name}" for name in ("start", "import", "status", "fit", "next", "serve")
    ]
    assert headings == [*verbs, "ledger", *ledgers, "annotate", *projects]
    for verb in (*verbs, "ledger", "annotate"):
        assert f"| [`bagwise {verb}`](command-line/{verb}.md) | " in contents
    section = command_pages()["command-line/report.md"]
    assert section.count("| `--audit` |") == 1
    assert "`bagwise report out -o release.html`" in section
    assert "[bold]" not in page
    assert "{strategies}" not in page


def test_links_out_of_the_site_become_names():
    outside, inside = "[a](../src/x.py) [b](b.md)", "[a](../privacy.md)"
    found = without_links_outside(outside, folder=DOCS, site=DOCS)
    assert found == "a (`src/x.py`) [b](b.md)"
    assert without_links_outside(inside, folder=DOCS / "start", site=DOCS) == inside
    assert without_links_outside(inside, folder=DOCS, site=DOCS) == "a (`privacy.md`)"
    assert "](CONTRIBUTING.md)" not in changelog()


def test_an_overview_has_the_pages_of_its_folder_in_the_order_of_its_links():
    page = "[b](privacy/b.md#x) [a](privacy/a.md) [b](privacy/b.md) [c](other/c.md) [d](d.md)"
    found = with_contents(page, name="privacy").splitlines()
    assert found[-3:] == ["privacy/b", "privacy/a", "```"]
    assert "other/c" not in found
    nested = with_contents("[a](api/a.md)", name="_generated/api").splitlines()
    assert nested[-2:] == ["api/a", "```"]


def test_pages_of_earlier_versions_go_and_others_keep_their_time(tmp_path):
    write_reference(tmp_path)
    old = tmp_path / "command-line" / "gone.md"
    old.write_text("# bagwise gone\n")
    page = tmp_path / "command-line" / "fit.md"
    before = page.stat().st_mtime_ns
    write_reference(tmp_path)
    assert not old.exists()
    assert page.stat().st_mtime_ns == before


def test_there_is_a_start_page_for_each_user():
    index = (DOCS / "index.md").read_text()
    assert len(STARTS) == 6
    for path in STARTS:
        assert f"start/{path.name}" in index
        assert len(path.read_text().split()) < 400


def check_options(command, reference):
    """Check that a command and the options that follow it are in the reference."""
    words = command.split()
    section = reference[f"command-line/{words[1]}.md"]
    if words[1] in ("ledger", "annotate"):
        heading = f"## bagwise {words[1]} {words[2]}\n"
        section = section.partition(heading)[2].partition("\n## ")[0]
    for option in (word for word in words if word.startswith("-")):
        assert re.search(rf"`[^`]*{option}[^`]*`", section), f"{command}: {option}"


def test_commands_for_schedulers_exist_with_their_options():
    page = (DOCS / "schedule.md").read_text()
    (flow,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    strings = [node for node in ast.walk(ast.parse(flow)) if isinstance(node, ast.JoinedStr)]
    parts = [
        "".join(
            getattr(part, "value", "x") if isinstance(part, ast.Constant) else "x"
            for part in text.values
        )
        for text in strings
    ]
    (shell,) = re.findall(r"```sh\n(.*?)```", page, re.DOTALL)
    lines = [*parts, *shell.replace("\\\n", " ").splitlines()]
    commands = [line for line in lines if line.startswith("bagwise")]
    assert len(commands) == 4
    for command in commands:
        check_options(re.sub(r"\"[^\"]*\"", "x", command), command_pages())


@pytest.mark.parametrize("path", [*STARTS, DOCS / "pages.md"], ids=lambda path: path.stem)
def test_commands_on_start_pages_exist_with_their_options(path):
    reference = command_pages()
    blocks = re.findall(r"```sh\n(.*?)```", path.read_text(), re.DOTALL)
    lines = [line for block in blocks for line in block.replace("\\\n", " ").splitlines()]
    commands = [line.strip() for line in lines]
    commands = [text for line in commands if (text := line.partition("#")[0])]
    assert commands
    commands = [line for line in commands if not line.startswith("python -m reproduction")]
    assert all(line.startswith("bagwise") for line in commands)
    for command in commands:
        check_options(command, reference)
    assert list(steps_of(path.read_text())) == []  # blocks with output would have to be run


_SECTIONS = re.compile(r"^(\w+)\n-+$", re.MULTILINE)
_ENTRY = re.compile(r"[\w*][\w*, ]*( : .*)?")


def documented():
    """Yield the name and docstring of everything public."""
    for name in sorted({*bw.__all__, *bw._HOME_OF}):
        thing = getattr(bw, name)
        yield name, inspect.getdoc(thing) or ""
        for member, value in vars(thing).items() if inspect.isclass(thing) else ():
            if not member.startswith("_") and callable(value):
                yield f"{name}.{member}", inspect.getdoc(value) or ""


def misread(text):
    """Return lines of a docstring that the reference would take for names of parameters."""
    _, *parts = _SECTIONS.split(text)
    lines = [
        line
        for heading, body in zip(parts[::2], parts[1::2], strict=True)
        if heading in ("Parameters", "Attributes")
        for line in body.splitlines()
    ]
    return [line for line in lines if line.strip() == line and line and not _ENTRY.fullmatch(line)]


def test_sentences_are_not_taken_for_parameters():
    found = {name: lines for name, text in documented() if (lines := misread(text))}
    assert found == {}
    assert misread("A.\n\nParameters\n----------\nx : int\n    An x.\n\nIt is small.") == [
        "It is small."
    ]
