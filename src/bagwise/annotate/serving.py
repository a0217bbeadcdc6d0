"""Start the page for labelling: on this machine alone, until somebody stops it."""

import socket
from collections.abc import Callable
from importlib.util import find_spec

from bagwise.annotate.guard import Guard
from bagwise.annotate.project import AnnotationProject
from bagwise.errors import MissingExtraError, OutputError

HOST = "127.0.0.1"


def serve(project: AnnotationProject, *, port: int = 0, on_ready: Callable[[str], None]) -> None:
    """Serve the page of a project until Ctrl-C.

    Parameters
    ----------
    port : int
        0 takes one that is free.
    on_ready : callable
        Called with the link, once the page can be opened.
    """
    if any(find_spec(name) is None for name in ("starlette", "uvicorn")):
        raise MissingExtraError("the page for labelling", "serve")
    # Optional, so they are imported only here.
    import uvicorn

    from bagwise.annotate.server import make_app

    project.status()  # reads all rows, and refuses a damaged project, before anybody connects
    with _listening(port) as listener:
        guard = Guard(listener.getsockname()[1])
        config = uvicorn.Config(
            make_app(project, guard), log_level="warning", access_log=False, lifespan="off",
            server_header=False, ws="none",
        )  # fmt: skip
        on_ready(guard.link)
        uvicorn.Server(config).run(sockets=[listener])


def _listening(port: int) -> socket.socket:
    failure = None
    try:
        return socket.create_server((HOST, port))
    except (OSError, OverflowError):
        failure = OutputError(
            f"port {port} of this machine is taken, or may not be used. Leave out --port for one "
            "that is free."
        )
    raise failure
