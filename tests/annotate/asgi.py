"""A visitor for an ASGI application in this process: requests go in, answers come out."""

import asyncio
import json
from dataclasses import dataclass
from http.cookies import SimpleCookie
from urllib.parse import urlencode


@dataclass
class Answer:
    """What came back."""

    status_code: int
    headers: dict
    content: bytes

    @property
    def text(self):
        return self.content.decode()

    def json(self):
        return json.loads(self.content)


class Visitor:
    """Sends requests to an application, with the cookies that it was given."""

    def __init__(self, app, host, **headers):
        self.app, self.headers, self.cookies = app, {"host": host, **headers}, {}

    def get(self, path, **params):
        """Ask for a page; a link may be whole."""
        path = path.removeprefix(f"http://{self.headers['host']}")
        return self.request("GET", f"{path}?{urlencode(params)}" if params else path)

    def post(self, path, content):
        """Send JSON, or bytes as they are."""
        sent = content if isinstance(content, bytes) else json.dumps(content).encode()
        return self.request("POST", path, sent)

    def request(self, method, path, content=b"", kind="http"):
        path, _, query = path.partition("?")
        headers = dict(self.headers)
        if self.cookies:
            headers["cookie"] = "; ".join(f"{key}={value}" for key, value in self.cookies.items())
        scope = {
            "type": kind, "asgi": {"version": "3.0"}, "http_version": "1.1", "method": method,
            "scheme": "http", "path": path, "raw_path": path.encode(), "root_path": "",
            "query_string": query.encode(), "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 2),
            "headers": [(k.encode(), v.encode("latin-1")) for k, v in headers.items()],
        }  # fmt: skip
        messages = asyncio.run(self._talk(scope, content))
        begun = messages[0]
        found = {k.decode().lower(): v.decode() for k, v in begun["headers"]}
        for name, morsel in SimpleCookie(found.get("set-cookie", "")).items():
            self.cookies[name] = morsel.value
        body = b"".join(message.get("body", b"") for message in messages[1:])
        return Answer(begun["status"], found, body)

    async def _talk(self, scope, content):
        messages = []

        async def receive():
            return {"type": "http.request", "body": content, "more_body": False}

        async def send(message):
            messages.append(message)

        await self.app(scope, receive, send)
        return messages
