"""Who may talk to the page for labelling: the browser that was given its link, and nobody else.

The server listens on this machine alone, but other programs and web pages can reach it there. So,
in this order:

- the Host must be a name of this machine, or a page elsewhere could point its own name here (DNS
  rebinding);
- the link carries a token of 256 random bits, and is exchanged for a cookie that scripts cannot
  read and that other sites do not send. The cookie has a value of its own: browsers send it to
  every port of this machine, and who listens there must not learn the link;
- what changes something must come from this very page, by Sec-Fetch-Site or by Origin.
"""

import secrets
from dataclasses import dataclass, field
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qs

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

_SAFE = ("GET", "HEAD")


@dataclass(frozen=True)
class Token:
    """A secret that never shows by accident."""

    value: str = field(default_factory=lambda: secrets.token_urlsafe(32), repr=False)

    def equals(self, given: str) -> bool:
        """Compare in a time that tells nothing."""
        return secrets.compare_digest(self.value.encode(), given.encode())


@dataclass(frozen=True)
class Visit:
    """What a request says of where it comes from."""

    method: str
    path: str
    query: str = ""
    headers: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Guard:
    """The rules of one server.

    Attributes
    ----------
    port : int
    token : Token
        Of the link.
    session : Token
        Of the cookie.

    Examples
    --------
    >>> guard = Guard(8000, Token("secret"))
    >>> guard.refusal(Visit("GET", "/", headers={"host": "evil.example:8000"}))
    'this server answers to 127.0.0.1 only'
    """

    port: int
    token: Token = field(default_factory=Token)
    session: Token = field(default_factory=Token)

    @property
    def link(self) -> str:
        """Where to begin."""
        return f"http://127.0.0.1:{self.port}/?token={self.token.value}"

    @property
    def cookie(self) -> str:
        """The name of the cookie; servers on other ports of this machine have others."""
        return f"bagwise-{self.port}"

    def refusal(self, visit: Visit) -> str | None:
        """Return why a request is refused, or None."""
        hosts = [f"{name}:{self.port}" for name in ("127.0.0.1", "localhost")]
        host = visit.headers.get("host", "")
        if host not in hosts:
            return "this server answers to 127.0.0.1 only"
        if not self.is_welcome(visit) and not self._has_cookie(visit):
            return (
                "this page opens by the link that bagwise annotate serve printed; the link "
                "changes each time"
            )
        site, origin = visit.headers.get("sec-fetch-site"), visit.headers.get("origin")
        is_ours = origin == f"http://{host}" if site is None else site == "same-origin"
        if visit.method not in _SAFE and not is_ours:
            return "this request does not come from the page"
        return None

    def is_welcome(self, visit: Visit) -> bool:
        """Tell whether somebody follows the link."""
        given = parse_qs(visit.query).get("token", [""])
        is_link = visit.method == "GET" and visit.path == "/" and len(given) == 1
        return is_link and self.token.equals(given[0])

    def _has_cookie(self, visit: Visit) -> bool:
        cookies: SimpleCookie = SimpleCookie()
        try:
            cookies.load(visit.headers.get("cookie", ""))
        except CookieError:
            return False
        return self.cookie in cookies and self.session.equals(cookies[self.cookie].value)
