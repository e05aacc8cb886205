"""Serves a trace with its findings to Perfetto's UI, which loads it from this machine."""

import sys
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from shutil import copyfileobj
from tempfile import TemporaryDirectory
from threading import Event, Thread
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote

from tracekit.analyzers.core import TracekitError
from tracekit.cli._options import existing
from tracekit.run import TRACE

UI = "https://ui.perfetto.dev"

Show = Callable[[str], None]

HOST = "127.0.0.1"
PORT = 9001


class FileServer:
    """An HTTP server on loopback that serves only `file`, under its name, to pages of `origin`.

    Raises TracekitError if the port is in use.
    """

    def __init__(self, file: Path, origin: str, port: int) -> None:
        try:
            self._server = _Server((HOST, port), _Handler)
        except OSError as error:
            raise TracekitError(
                f"Port {port} of this machine is in use.",
                f"{error.strerror}. Perfetto's UI reads from no other port.",
                "Stop the program that uses it: another tracekit open, or Perfetto's trace_processor.",
            ) from error
        self._server.file, self._server.origin = file, origin
        self.port = self._server.server_port
        self._serving = Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.1}, daemon=True)

    def serve(self) -> None:
        """Answer requests until a page of `origin` has fetched the whole file."""
        self._serving.start()
        self._server.fetched.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._serving.is_alive():
            self._server.shutdown()
            self._serving.join()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    """A server with a thread for each connection, so that an idle connection does not block the others."""

    daemon_threads = True
    file: Path
    origin: str

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        super().__init__(address, handler)
        self.fetched = Event()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore connections that a browser closes; it may connect again."""
        if not isinstance(sys.exception(), ConnectionError | TimeoutError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    timeout = 30

    def do_GET(self) -> None:
        if not self._allowed():
            return
        with self.server.file.open("rb") as file:
            self.send_response(200)
            self._send_origin()
            self.send_header("Content-Type", "application/octet-stream")
            self.send_header("Content-Length", str(self.server.file.stat().st_size))
            self.send_header("Cache-Control", "no-store")
            self.end_headers()
            copyfileobj(file, self.wfile)
        self.server.fetched.set()

    def do_OPTIONS(self) -> None:
        """Answer the preflight request of a browser, before a page of the internet reads from this machine."""
        if self._allowed():
            self.send_response(204)
            self._send_origin()
            self.send_header("Access-Control-Allow-Methods", "GET")
            self.send_header("Access-Control-Allow-Private-Network", "true")
            self.end_headers()

    def _allowed(self) -> bool:
        """Return whether a page of the origin requests the file. Any other request is answered with an error.

        Browsers send the origin with every request to another site. A host name other than this machine's means that
        a page's own host name was resolved to this machine (DNS rebinding).
        """
        here = (f"{HOST}:{self.server.server_port}", f"localhost:{self.server.server_port}")
        known = self.headers.get("Host") in here and self.headers.get("Origin") == self.server.origin
        if not known:
            self.send_error(403)
        elif self.path != f"/{quote(self.server.file.name)}":
            self.send_error(404)
            return False
        return known

    def _send_origin(self) -> None:
        self.send_header("Access-Control-Allow-Origin", self.server.origin)
        self.send_header("Vary", "Origin")

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing."""


def show_trace(run: Path, show: Show, say: Show, port: int = PORT) -> None:
    """Serve the trace on loopback, `show` the address of Perfetto's UI that loads it, and return once it is fetched.

    A trace without findings is served as a copy with them. Perfetto's UI may fetch only from port 9001 of this machine.
    """
    trace = existing(run / TRACE if run.is_dir() else run)
    with TemporaryDirectory() as folder:
        try:
            served = _with_findings(trace, Path(folder))
        except TracekitError as error:
            say(f"The trace is served without findings. {error}")
            served = trace
        with FileServer(served, UI, port) as server:
            show(f"{UI}/#!/?url=http://{HOST}:{server.port}/{quote(served.name)}")
            server.serve()


def _with_findings(trace: Path, folder: Path) -> Path:
    from tracekit.analyzers.trace import cache
    from tracekit.answer import analyze
    from tracekit.reports.viewer import annotate, has_findings, write_timeline

    if has_findings(trace):
        return trace
    analysis, copy = analyze(trace), folder / f"{trace.name.split('.')[0]}.json.gz"
    if analysis.source.format == "kineto":
        annotate(trace, copy, analysis, keep_metadata=True)
    else:
        write_timeline(cache.load(trace), copy, analysis)
    return copy
