"""What the page's server answers, and to whom."""

import pytest
from starlette.responses import PlainTextResponse

from bagwise.annotate.page import HEADERS, Guard, make_app
from tests.annotate.asgi import Visitor

PORT = 8123
HOST = f"127.0.0.1:{PORT}"
HERE = {"sec-fetch-site": "same-origin"}


@pytest.fixture
def guard(started):
    return Guard(make_app(started), PORT)


@pytest.fixture
def visitor(guard):
    """A browser that has followed the link."""
    client = Visitor(guard, HOST, **HERE)
    assert client.get(guard.link).status_code == 303
    return client


def answer(method, path="/", **headers):
    """Return what a page says whose link and cookie are known."""
    guard = Guard(PlainTextResponse("welcome"), PORT, "secret", "secret")
    return Visitor(guard, **{"host": HOST, **headers}).request(method, path)


def state(visitor, after=0):
    return visitor.get("/api/state", after=after).json()


def test_rows_come_one_after_the_other_and_then_those_left_for_later(visitor, started):
    first = state(visitor)
    assert first["asked"] == 40
    assert [name for name, _ in first["task"]["cells"]] == ["area", "note"]
    second = state(visitor, first["task"]["place"])
    assert second["task"]["place"] == first["task"]["place"] + 1
    assert state(visitor, 40)["task"] == first["task"]
    for nowhere in ("x", "--5", "-", "", "9" * 5000):
        assert state(visitor, nowhere)["task"] == first["task"]
    answered = visitor.post("/api/answer", {"id": second["task"]["id"], "value": " 700 "})
    assert answered.json()["labelled"] == 1
    assert answered.json()["task"]["place"] == 3
    assert started.labels().to_pydict()["rent"] == [700.0]


def test_what_cannot_be_kept_is_refused_without_a_label_in_the_answer(visitor, started):
    key = state(visitor)["task"]["id"]
    for value in ("much 918273", "918273", ""):
        refused = visitor.post("/api/answer", {"id": key, "value": value})
        assert refused.status_code == 422
        assert "918273" not in refused.text
    for content in (
        {"id": "nobody", "value": "5"}, {"id": key, "value": 5}, {"id": key}, {}, [], "x"
    ):  # fmt: skip
        assert visitor.post("/api/answer", content).status_code == 422
    assert visitor.post("/api/answer", b"{").status_code == 422
    for depth in (60_000, 10**6):
        assert visitor.post("/api/answer", b"[" * depth).status_code == 422
    assert started.labels().num_rows == 0


def test_another_window_cannot_overwrite_and_undo_goes_back(visitor, started):
    key = state(visitor)["task"]["id"]
    visitor.post("/api/answer", {"id": key, "value": "700"})
    assert visitor.post("/api/answer", {"id": key, "value": "700.0"}).status_code == 200
    clash = visitor.post("/api/answer", {"id": key, "value": "701"})
    assert clash.status_code == 409
    assert "another window" in clash.json()["error"]
    undone = visitor.post("/api/undo", {}).json()
    assert undone["undone"]
    assert undone["task"]["id"] == key
    assert not visitor.post("/api/undo", {}).json()["undone"]
    assert started.labels().num_rows == 0


def test_labels_of_a_file_are_not_undone_on_the_page(visitor, started):
    started.answer(state(visitor)["task"]["id"], 500.0, source="file")
    assert not visitor.post("/api/undo", {}).json()["undone"]


def test_the_page_takes_everything_from_here_and_is_not_kept(visitor):
    for path in ("/", "/page.js", "/page.css", "/api/state"):
        found = visitor.get(path)
        assert found.status_code == 200
        assert {name: found.headers[name.lower()] for name in HEADERS} == HEADERS
        assert "http://" not in found.text
        assert "https://" not in found.text
    assert "<script src" in visitor.get("/").text


def test_the_link_is_exchanged_for_a_cookie_that_scripts_do_not_see(guard):
    client = Visitor(guard, HOST)
    welcome = client.get(guard.link)
    assert welcome.status_code == 303
    assert welcome.headers["location"] == "/"
    cookie = welcome.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    for secret in (guard.token, guard.session):
        assert secret not in repr(guard)


def test_a_cookie_is_not_the_link(guard):
    """Browsers send it to every port of this machine: who listens there cannot open the page."""
    client = Visitor(guard, HOST)
    client.get(guard.link)
    (sent,) = client.cookies.values()
    other = Visitor(guard, HOST)
    assert other.get(f"/?token={sent}").status_code == 403
    other.cookies = {guard.cookie: guard.token}
    assert other.get("/").status_code == 403


def test_nobody_gets_in_without_the_link(guard):
    client = Visitor(guard, HOST, **HERE)
    for path in ("/", "/page.js", "/api/state", "/?token=", "/?token=wrong", "/nothing"):
        refused = client.get(path)
        assert refused.status_code == 403
        assert {name: refused.headers[name.lower()] for name in HEADERS} == HEADERS
    assert client.post("/api/undo", {}).status_code == 403
    assert client.post(f"/?token={guard.token}", {}).status_code == 403
    assert client.get(f"/api/state?token={guard.token}").status_code == 403
    assert client.request("GET", "/", kind="websocket").status_code == 403


COOKIE = {"cookie": f"bagwise-{PORT}=secret"}


@pytest.mark.parametrize(
    "host",
    ["evil.example", f"evil.example:{PORT}", "127.0.0.1", f"127.0.0.1.evil.example:{PORT}",
     f"127.0.0.1:{PORT + 1}", "", f"[::1]:{PORT}", f"localhost.:{PORT}", f"0.0.0.0:{PORT}"],
)  # fmt: skip
def test_names_of_elsewhere_are_refused_before_anything_else(host):
    assert "127.0.0.1 only" in answer("GET", "/?token=secret", host=host, **COOKIE).text


@pytest.mark.parametrize(
    ("headers", "allowed"),
    [
        ({"sec-fetch-site": "same-origin"}, True),
        ({"origin": f"http://{HOST}"}, True),
        ({"sec-fetch-site": "same-origin", "origin": "http://evil.example"}, True),
        ({"sec-fetch-site": "same-site"}, False),
        ({"sec-fetch-site": "cross-site", "origin": f"http://{HOST}"}, False),
        ({"sec-fetch-site": "none"}, False),
        ({"sec-fetch-site": ""}, False),
        ({"sec-fetch-site": "Same-Origin"}, False),
        ({"origin": "null"}, False),
        ({"origin": f"https://{HOST}"}, False),
        ({"origin": f"http://{HOST}/"}, False),
        ({"origin": f"http://{HOST}.evil.example"}, False),
        ({"origin": "http://127.0.0.1"}, False),
        ({"referer": f"http://{HOST}/"}, False),
        ({}, False),
    ],
)
def test_changes_come_from_the_page_itself(headers, allowed):
    assert (answer("POST", **COOKIE, **headers).text == "welcome") == allowed


@pytest.mark.parametrize(
    "cookie",
    ["", "bagwise-8123=", "bagwise-8123=wrong", "bagwise-8124=secret", "secret", "\x00;=;;",
     'bagwise-8123="secret', "bagwise-8123=secret2", "bagwise-8123=Secret"],
)  # fmt: skip
def test_other_cookies_open_nothing(cookie):
    assert answer("GET", cookie=cookie).status_code == 403
