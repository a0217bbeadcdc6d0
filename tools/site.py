"""What the site has that nobody writes: the reference of names and of the command line.

Both come from the package itself, so that nothing is listed twice and nothing is forgotten.
"""

import inspect
import re
from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import typer.main

import bagwise
from bagwise.cli import app
from bagwise.cli.options import registered

GROUPS: Mapping[str, tuple[str, ...]] = {
    "Bags and releases": ("bagging", "cluster", "release", "api"),
    "Learning": ("learn", "models", "families"),
    "Privacy, budgets and audits": ("privacy", "ledger", "auditor", "verifier"),
    "Planning and evaluation": ("planner", "scoring", "learner"),
    "Tables": ("rows",),
    "Errors": ("errors",),
}
"""Headings of the reference, and the parts of the package below each."""

REST = "Other names"

ROOMS: Mapping[str, str] = {
    "theory": "Theory: expected errors",
    "privacy": "Privacy curves and totals",
    "learn": "Learning: further names",
    "models": "Models: further names",
    "families": "Families: further names",
    "bagging": "Bagging: further names",
    "rows": "Tables: further names",
    "scoring": "Evaluation: further names",
    "planner": "Planning: further names",
    "ledger": "Ledgers: further names",
    "auditor": "Audits: further names",
    "report": "Reports",
}
"""Parts of the package whose other names are imported from there, and the titles of their pages."""

CHANGELOG = Path(__file__).parent.parent / "CHANGELOG.md"

_BESIDE = re.compile(r"\[([^\]]*)\]\(([A-Z]+\.md)(?:#[^)]*)?\)")
_MARKUP = re.compile(r"\[/?[a-z ]*\]")
_OUTSIDE = re.compile(r"\[([^\]]*)\]\(\.\./([^)#]*)(?:#[^)]*)?\)")


def write_reference(folder: Path) -> None:
    """Write the pages of the reference and the changelog into a folder."""
    pages = {"changelog.md": changelog(), **api_pages(), **command_pages()}
    for known in folder.rglob("*.md"):
        if known.relative_to(folder).as_posix() not in pages:
            known.unlink()  # of an earlier version; nobody links to it now
    for name, content in pages.items():
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        # A page that has not changed keeps its time, so that it is not built again.
        if not target.exists() or target.read_text(encoding="utf-8") != content + "\n":
            target.write_text(content + "\n", encoding="utf-8")


def names_by_group() -> dict[str, list[str]]:
    """Return every public name under the heading of the part that it comes from."""
    found: dict[str, list[str]] = {title: [] for title in (*GROUPS, REST)}
    for name in sorted({*bagwise.__all__, *bagwise._HOME_OF} - {"__version__"}):
        home = getattr(getattr(bagwise, name), "__module__", "")
        part = home.removeprefix("bagwise.").partition(".")[0]
        title = next((title for title, parts in GROUPS.items() if part in parts), REST)
        found[title].append(name)
    return {title: names for title, names in found.items() if names}


def names_by_room() -> dict[str, list[str]]:
    """Return the names that are imported from a part of the package and not from its top."""
    found = {}
    for room in ROOMS:
        names = set(getattr(import_module(f"bagwise.{room}"), "__all__", ()))
        if rest := sorted(names - {*bagwise.__all__, *bagwise._HOME_OF}):
            found[room] = [f"{room}.{name}" for name in rest]
    return found


def changelog() -> str:
    """Return the changelog with the links of a page of the site."""
    text = CHANGELOG.read_text(encoding="utf-8").replace("](docs/", "](../")
    return _BESIDE.sub(r"\1 (`\2`)", text)


def api_pages() -> dict[str, str]:
    """Return a page for each part of the public names and one that lists them, by file name."""
    contents = [
        "# Python reference",
        "",
        "Everyday names are in `bagwise`: `import bagwise as bw`.",
    ]
    contents += ["Further names are imported from their part, such as `bagwise.theory`."]
    pages = {}
    groups = [(title, f"api/{_slug(title)}.md", names) for title, names in names_by_group().items()]
    rooms = [(ROOMS[room], f"api/{room}.md", names) for room, names in names_by_room().items()]
    for title, page, names in (*groups, *rooms):
        contents += [f"\n## [{title}]({page})\n", "| name | what it is |", "|---|---|"]
        contents += [f"| {{py:obj}}`~bagwise.{name}` | {_first_sentence(name)} |" for name in names]
        lines = [f"# {title}", "", *(line for name in names for line in _documented(name))]
        pages[page] = "\n".join(lines)
    return {"api.md": "\n".join(contents), **pages}


def _slug(title: str) -> str:
    return re.sub(r"[^a-z]+", "-", title.lower()).strip("-")


def _first_sentence(name: str) -> str:
    thing = _thing(name)
    if isinstance(thing, Mapping):
        return "A registry, by name."
    paragraph = (inspect.getdoc(thing) or "").partition("\n\n")[0]
    return _cell(" ".join(paragraph.split()))


def _thing(name: str) -> Any:
    room, _, rest = name.rpartition(".")
    return getattr(import_module(f"bagwise.{room}") if room else bagwise, rest)


def _documented(name: str) -> Iterator[str]:
    thing = _thing(name)
    yield "```{eval-rst}"
    if inspect.isclass(thing):
        yield f".. autoclass:: bagwise.{name}"
        if not issubclass(thing, Exception):
            yield "   :members:"
    elif callable(thing):
        yield f".. autofunction:: bagwise.{name}"
    else:  # a registry, by name
        yield f".. py:data:: bagwise.{name}"
        yield f"\n   By name: {', '.join(f'``{key}``' for key in thing)}."
    yield "```"
    yield ""


def command_pages() -> dict[str, str]:
    """Return a page for each verb of the command line, and one that lists them, by file name."""
    contents = ["# Command line reference", "", "`bagwise VERB --help` prints the same.", ""]
    contents += ["| verb | what it does |", "|---|---|"]
    pages = {}
    root: Any = typer.main.get_command(app)
    for name, command in root.commands.items():
        page = f"command-line/{name}.md"
        help_text = next(_help(command))
        contents.append(f"| [`bagwise {name}`]({page}) | {_cell(help_text)} |")
        pages[page] = "\n".join(_verb(name, command))
    contents += ["", "Options of all commands that have a use for them, typed anywhere:", ""]
    contents += _options(root, "bagwise VERB")
    return {"command-line.md": "\n".join(contents), **pages}


def _verb(name: str, command: Any) -> Iterator[str]:
    yield f"# bagwise {name}"
    yield ""
    yield from _help(command)
    if not hasattr(command, "commands"):
        yield from _options(command, f"bagwise {name}")
        return
    for path, part in _commands(command, f"bagwise {name}"):
        yield f"\n## {path}\n"
        yield from _help(part)
        yield from _options(part, path)


def _commands(group: Any, path: str) -> Iterator[tuple[str, Any]]:
    for name, command in group.commands.items():
        here = f"{path} {name}"
        if hasattr(command, "commands"):
            yield from _commands(command, here)
        else:
            yield here, command


def _help(command: Any) -> Iterator[str]:
    for paragraph in inspect.cleandoc(command.help or "").split("\n\n"):
        text = " ".join(paragraph.split())
        # An example in bold on the terminal is code on a page.
        text = re.sub(r"\[bold\](.*?)\[/\]", r"`\1`", text)
        yield _MARKUP.sub("", text)
        yield ""


def _options(command: Any, path: str) -> Iterator[str]:
    arguments = [p for p in command.params if p.param_type_name == "argument"]
    usage = " ".join(str(p.name).upper() for p in arguments)
    yield f"```text\n{path} {usage} [OPTIONS]\n```\n"
    yield "| option | what it does |\n|---|---|"
    for one in command.params:
        names = str(one.name).upper() if one in arguments else ", ".join(one.opts)
        if names == "--help":
            continue
        yield f"| `{names}` | {_cell(_spelled(one.help or '') + _default(one))} |"
    if shared := getattr(command, "shared", None):
        listed = ", ".join(f"`{name}`" for name in shared)
        yield f"\nAlso {listed}, of the [options of all commands](../command-line.md)."
    yield ""


def _default(option: Any) -> str:
    if option.required:
        return " **Required.**"
    plain = option.default in (None, (), False, ...) or "Default" in (option.help or "")
    return "" if plain else f" Default: {option.default}."


def _spelled(text: str) -> str:
    return text.format_map(registered()) if "{" in text else text


def _cell(text: str) -> str:
    return _MARKUP.sub("", text).replace("|", "\\|").replace("\n", " ")


def without_links_outside(text: str, *, folder: Path, site: Path) -> str:
    """Return a page in a folder of the site; links to files outside become names of those files.

    >>> docs = Path(__file__).parent.parent / "docs"
    >>> page = "See [the readme](../README.md#limits) and [x](privacy.md)."
    >>> without_links_outside(page, folder=docs, site=docs)
    'See the readme (`README.md`) and [x](privacy.md).'
    """

    def replace(found: re.Match[str]) -> str:
        target = (folder / ".." / found[2]).resolve()
        inside = target.is_relative_to(site.resolve())
        name = re.sub(r"^(\.\./)+", "", found[2])
        return found[0] if inside else f"{found[1]} (`{name}`)"

    return _OUTSIDE.sub(replace, text)


def with_contents(text: str, *, name: str) -> str:
    """Return an overview page with its folder in the table of contents, in the order of its links.

    Pages beside `privacy.md` in the folder `privacy` belong to it. On a page that people read
    without the site a directive would only be noise, so it is added here.

    >>> print(with_contents("See [x](privacy/x.md#a), [y](privacy/y.md).", name="privacy"))
    See [x](privacy/x.md#a), [y](privacy/y.md).
    <BLANKLINE>
    ```{toctree}
    :hidden:
    <BLANKLINE>
    privacy/x
    privacy/y
    ```
    <BLANKLINE>
    >>> with_contents("See [x](x.md).", name="privacy")
    'See [x](x.md).'
    """
    folder = re.escape(name.rpartition("/")[2])
    pages = dict.fromkeys(re.findall(rf"\]\(({folder}/[\w-]+)\.md(?:#[^)]*)?\)", text))
    if not pages:
        return text
    return "\n".join([text, "", "```{toctree}", ":hidden:", "", *pages, "```", ""])
