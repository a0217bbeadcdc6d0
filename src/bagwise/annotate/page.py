"""The page for labelling rows: a small web application that only this machine can reach.

All state is in the store, and requests share nothing, so a page can be closed, reloaded or opened
twice. An answer is on disk before the page is notified.

The server listens only on this machine, but other local programs and web pages can reach it there.
Only the browser that opened the link may use it. The checks are, in this order:

- the Host must be a name of this machine, or a page elsewhere could point its own name here (DNS
  rebinding);
- the link carries a token of 256 random bits, and is exchanged for a cookie that scripts cannot
  read and that other sites do not send. The cookie has a value of its own: browsers send it to
  every port of this machine, and who listens there must not learn the link;
- what changes something must come from this very page, by Sec-Fetch-Site or by Origin.
"""

import json
import math
import re
import secrets
import socket
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any

from bagwise._printable import printable
from bagwise.annotate.project import AnnotationProject
from bagwise.annotate.store import ConflictError, Task
from bagwise.errors import BagwiseError, LabelError, MissingExtraError

try:
    import uvicorn
    from starlette.applications import Starlette
    from starlette.datastructures import MutableHeaders
    from starlette.requests import Request
    from starlette.responses import JSONResponse, RedirectResponse, Response
    from starlette.routing import Route
    from starlette.types import ASGIApp, Message, Receive, Scope, Send
except ImportError:
    raise MissingExtraError("the page for labelling", "serve") from None

HOST = "127.0.0.1"
PAGE = "page"
"""What the store calls labels that came from here."""

HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
        "form-action 'none'; frame-ancestors 'none'; base-uri 'none'"
    ),
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
"""What every answer says: nothing is cached, framed, guessed or loaded from elsewhere."""

_TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript"}
_PLACE = re.compile(r"-?[0-9]{1,18}")
_LARGEST = 2**16  # bytes of a request: an id and a label
_ELSEWHERE = "This row got another label in another window, and keeps it. Here is the next one."


def serve(project: AnnotationProject, *, on_ready: Callable[[str], None]) -> None:
    """Serve the page of a project until Ctrl-C, on a port that is free.

    `on_ready` is called with the link, once the page can be opened.
    """
    project.status()  # reads all rows, and refuses a damaged project, before anybody connects
    with socket.create_server((HOST, 0)) as listener:
        guard = Guard(make_app(project), listener.getsockname()[1])
        config = uvicorn.Config(
            guard, log_level="warning", access_log=False, lifespan="off", server_header=False,
            ws="none",
        )  # fmt: skip
        on_ready(guard.link)
        uvicorn.Server(config).run(sockets=[listener])


@dataclass(frozen=True)
class Guard:
    """A guard before an application, which only admits requests that came by the link.

    Attributes
    ----------
    app : ASGI application
    port : int
    token, session : str
        Of the link, and of the cookie; they do not show by accident.
    """

    app: ASGIApp = field(repr=False)
    port: int
    token: str = field(default_factory=lambda: secrets.token_urlsafe(32), repr=False)
    session: str = field(default_factory=lambda: secrets.token_urlsafe(32), repr=False)

    @property
    def link(self) -> str:
        """The link to the first page."""
        return f"http://{HOST}:{self.port}/?token={self.token}"

    @property
    def cookie(self) -> str:
        """The name of the cookie; servers on other ports of this machine have others."""
        return f"bagwise-{self.port}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse, welcome, or pass on; every answer gets its headers."""

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        response = self._answer(scope)
        await (response or self.app)(scope, receive, with_headers)

    def _answer(self, scope: Scope) -> Response | None:
        """Return a refusal or a welcome; None if the application may answer."""
        if scope["type"] != "http":
            return JSONResponse({"error": "Only pages are served here."}, 403)
        visit = Request(scope)
        given = visit.query_params.getlist("token")
        follows_link = visit.method == "GET" and scope["path"] == "/" and len(given) == 1
        is_welcome = follows_link and _equal(self.token, given[0])
        refusal = self._refusal(visit, is_welcome=is_welcome)
        if refusal is not None:
            return JSONResponse({"error": refusal}, 403)
        if not is_welcome:
            return None
        # To an address without the token: it would stay in the history of the browser.
        welcome = RedirectResponse("/", 303)
        welcome.set_cookie(self.cookie, self.session, httponly=True, samesite="strict")
        return welcome

    def _refusal(self, visit: Request, *, is_welcome: bool) -> str | None:
        host = visit.headers.get("host", "")
        if host not in (f"{name}:{self.port}" for name in (HOST, "localhost")):
            return f"This server answers to {HOST} only."
        if not is_welcome and not _equal(self.session, visit.cookies.get(self.cookie, "")):
            return (
                "This page opens by the link that bagwise annotate serve printed; the link changes "
                "each time."
            )
        site, origin = visit.headers.get("sec-fetch-site"), visit.headers.get("origin")
        is_ours = origin == f"http://{host}" if site is None else site == "same-origin"
        if visit.method not in ("GET", "HEAD") and not is_ours:
            return "This request does not come from the page."
        return None


def _equal(secret: str, given: str) -> bool:
    """Compare in constant time, which reveals nothing."""
    return secrets.compare_digest(secret.encode(), given.encode("utf-8", "replace"))


def make_app(project: AnnotationProject) -> Starlette:
    """Return the application; whoever serves it puts a guard before it."""
    store, kind = project.store, project.kind

    def next_after(place: int) -> dict[str, Any]:
        """Return the first open row after a position, and the progress of the project."""
        tasks, still = store.tasks(), store.open_tasks()
        # Later rows first; then those that were left for later.
        task = next((task for task in still if task.place > place), still[0] if still else None)
        cells = {} if task is None else project.shown(task)
        shown = [[printable(name), _spelt(value)] for name, value in cells.items()]
        return {
            "label": printable(kind.name),
            "describe": printable(kind.describe()),
            "classes": None if kind.classes is None else list(kind.classes),
            "asked": len(tasks),
            "labelled": len(tasks) - len(still),
            "task": task and {"id": task.id, "place": task.place, "cells": shown},
        }

    def find(key: object) -> Task | None:
        return next((task for task in store.tasks() if task.id == key), None)

    async def state(request: Request) -> Response:
        text = request.query_params.get("after", "0")
        return JSONResponse(next_after(int(text) if _PLACE.fullmatch(text) else 0))

    async def answer(request: Request) -> Response:
        """Store a label, and return the next row."""
        content = await _json_of(request)
        task, value = find(content.get("id")), content.get("value")
        if task is None or not isinstance(value, str):
            return JSONResponse({"error": "No row of this project has this id."}, 422)
        try:
            store.add_answers([(task.id, kind.read(value.strip()))], source=PAGE)
        except LabelError as problem:
            return JSONResponse({"error": f"Not kept: {problem}."}, 422)
        except ConflictError:
            return JSONResponse({**next_after(task.place), "error": _ELSEWHERE}, 409)
        return JSONResponse(next_after(task.place))

    async def undo(_request: Request) -> Response:
        """Take back the last label given on this page, and return its row."""
        key = store.take_back(source=PAGE)
        task = find(key)
        after = 0 if task is None else task.place - 1
        return JSONResponse({**next_after(after), "undone": key is not None})

    routes = [
        Route("/", _file("index.html")),
        Route("/page.js", _file("page.js")),
        Route("/page.css", _file("page.css")),
        Route("/api/state", state),
        Route("/api/answer", answer, methods=["POST"]),
        Route("/api/undo", undo, methods=["POST"]),
    ]
    return Starlette(routes=routes, exception_handlers={BagwiseError: _refused})


def _file(name: str) -> Any:
    content = files("bagwise.annotate").joinpath("page", name).read_bytes()

    async def serve(_request: Request) -> Response:
        return Response(content, media_type=_TYPES[Path(name).suffix])

    return serve


async def _json_of(request: Request) -> dict[str, Any]:
    content = b""
    async for part in request.stream():
        content += part
        if len(content) > _LARGEST:
            return {}
    try:
        values = json.loads(content)
    except (ValueError, RecursionError):
        return {}
    return values if isinstance(values, dict) else {}


async def _refused(_request: Request, problem: Exception) -> Response:
    return JSONResponse({"error": str(problem)}, 500)


def _spelt(value: Any) -> str:
    """Return a cell as an annotator reads it."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return "(missing)"
    return printable(f"{value:.15g}" if isinstance(value, float) else str(value), keep="\n\t")
