"""One file, served to one web page, from this machine to itself."""

import sys
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from shutil import copyfileobj
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote

from tracekit.analyzers.errors import TracekitError

HOST = "127.0.0.1"
PORT = 9001


class FileServer:
    """Serves `file` under its name, and nothing else, to pages of `origin`, on loopback."""

    def __init__(self, file: Path, origin: str, port: int) -> None:
        try:
            self._server = _Server((HOST, port), _Handler)
        except OSError as error:
            raise TracekitError(
                f"Port {port} of this machine is taken.",
                f"{error.strerror}. Perfetto's UI reads from no other.",
                "End what listens there: another tracekit open, or Perfetto's trace_processor.",
            ) from error
        self._server.file, self._server.origin = file, origin
        self.port = self._server.server_port

    def serve(self) -> None:
        """Until the file was fetched once."""
        while not self._server.fetched:
            self._server.handle_request()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._server.server_close()


class _Server(HTTPServer):
    file: Path
    origin: str
    fetched = False

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A browser that goes away may come back."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    timeout = 30

    def do_GET(self) -> None:
        if not self._allowed():
            return
        with self.server.file.open("rb") as file:
            self.send_response(200)
            self._say_who_may_read()
            self.send_header("Content-Type", "application/octet-stream")
            self.send_header("Content-Length", str(self.server.file.stat().st_size))
            self.send_header("Cache-Control", "no-store")
            self.end_headers()
            copyfileobj(file, self.wfile)
        self.server.fetched = True

    def do_OPTIONS(self) -> None:
        """Browsers ask before a page of the internet reads from this machine."""
        if self._allowed():
            self.send_response(204)
            self._say_who_may_read()
            self.send_header("Access-Control-Allow-Methods", "GET")
            self.send_header("Access-Control-Allow-Private-Network", "true")
            self.end_headers()

    def _allowed(self) -> bool:
        """Another host name means that a page had a name of its own resolved to this machine."""
        here = (f"{HOST}:{self.server.server_port}", f"localhost:{self.server.server_port}")
        known = self.headers.get("Host") in here and self.headers.get("Origin") in (None, self.server.origin)
        if not known:
            self.send_error(403)
        elif self.path != f"/{quote(self.server.file.name)}":
            self.send_error(404)
            return False
        return known

    def _say_who_may_read(self) -> None:
        self.send_header("Access-Control-Allow-Origin", self.server.origin)
        self.send_header("Vary", "Origin")

    def log_message(self, format: str, *args: object) -> None:
        """Nothing is printed."""
