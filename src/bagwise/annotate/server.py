"""The page for labelling by hand, as a small web application.

Everything that it knows is in the store: requests share nothing, so that a page can be closed,
reloaded or opened twice. An answer is on the disk before the page is told so.
"""

import json
import math
import re
from importlib.resources import files
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.datastructures import Headers, MutableHeaders
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from bagwise._printable import printable
from bagwise.annotate.guard import HEADERS, Guard, Visit
from bagwise.annotate.project import AnnotationProject
from bagwise.annotate.store import ConflictError, Task
from bagwise.errors import BagwiseError, LabelError

PAGE = "page"
"""What the store calls labels that came from here."""

_TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript"}
_PLACE = re.compile(r"-?[0-9]{1,18}")
_LARGEST = 2**16  # bytes of a request: an id and a label
_ELSEWHERE = "This row got another label in another window, and keeps it. Here is the next one."


class Application:
    """Answers the requests of a page about one project."""

    def __init__(self, project: AnnotationProject) -> None:
        self.project = project

    def routes(self) -> list[Route]:
        """Return which path does what."""
        return [
            Route("/", _file("index.html")),
            Route("/page.js", _file("page.js")),
            Route("/page.css", _file("page.css")),
            Route("/api/state", self.state),
            Route("/api/answer", self.answer, methods=["POST"]),
            Route("/api/undo", self.undo, methods=["POST"]),
        ]

    async def state(self, request: Request) -> Response:
        """Return a row that is open, the first one after a place, and how far the project is."""
        text = request.query_params.get("after", "0")
        return JSONResponse(self._state(int(text) if _PLACE.fullmatch(text) else 0))

    async def answer(self, request: Request) -> Response:
        """Keep a label, and return the next row."""
        content = await _json_of(request)
        key, value = content.get("id"), content.get("value")
        task = next((task for task in self.project.store.tasks() if task.id == key), None)
        if task is None or not isinstance(value, str):
            return JSONResponse({"error": "No row of this project has this id."}, 422)
        try:
            label = self.project.kind.read(value.strip())
            self.project.store.add_answers([(task.id, label)], source=PAGE)
        except LabelError as problem:
            return JSONResponse({"error": f"Not kept: {problem}."}, 422)
        except ConflictError:
            return JSONResponse({**self._state(task.place), "error": _ELSEWHERE}, 409)
        return JSONResponse(self._state(task.place))

    async def undo(self, _request: Request) -> Response:
        """Take back the last label that was given here, and return its row."""
        key = self.project.store.take_back(source=PAGE)
        task = next((task for task in self.project.store.tasks() if task.id == key), None)
        after = 0 if task is None else task.place - 1
        return JSONResponse({**self._state(after), "undone": key is not None})

    def _state(self, after: int) -> dict[str, Any]:
        tasks, still = self.project.store.tasks(), self.project.store.open_tasks()
        # Later rows first; then those that were left for later.
        task = next((task for task in still if task.place > after), still[0] if still else None)
        kind = self.project.kind
        return {
            "label": printable(kind.name),
            "describe": printable(kind.describe()),
            "classes": None if kind.classes is None else list(kind.classes),
            "asked": len(tasks),
            "labelled": len(tasks) - len(still),
            "task": None if task is None else self._shown(task),
        }

    def _shown(self, task: Task) -> dict[str, Any]:
        cells = self.project.shown(task).items()
        return {
            "id": task.id,
            "place": task.place,
            "cells": [[printable(name), _spelt(value)] for name, value in cells],
        }


def make_app(project: AnnotationProject, guard: Guard) -> Starlette:
    """Return the application, with everything that stands before it."""
    return Starlette(
        routes=Application(project).routes(),
        middleware=[Middleware(Guarded, guard=guard)],
        exception_handlers={BagwiseError: _refused},
    )


class Guarded:
    """Lets no request through that the guard refuses."""

    def __init__(self, app: ASGIApp, guard: Guard) -> None:
        self.app, self.guard = app, guard

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse, welcome, or pass on; every answer gets its headers."""
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        response = self._answer(scope)
        await (response or self.app)(scope, receive, with_headers)

    def _answer(self, scope: Scope) -> Response | None:
        if scope["type"] != "http":
            return JSONResponse({"error": "Only pages are served here."}, 403)
        visit = Visit(
            scope["method"],
            scope["path"],
            scope["query_string"].decode("latin-1"),
            dict(Headers(scope=scope)),
        )
        wrong = self.guard.refusal(visit)
        if wrong is not None:
            return JSONResponse({"error": f"{wrong[0].upper()}{wrong[1:]}."}, 403)
        if not self.guard.is_welcome(visit):
            return None
        # To an address without the token: it would stay in the history of the browser.
        welcome = RedirectResponse("/", 303)
        welcome.set_cookie(
            self.guard.cookie, self.guard.session.value, httponly=True, samesite="strict"
        )
        return welcome


def _file(name: str) -> Any:
    content = files("bagwise.annotate").joinpath("page", name).read_bytes()
    kind = _TYPES[Path(name).suffix]

    async def serve(_request: Request) -> Response:
        return Response(content, media_type=kind)

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
