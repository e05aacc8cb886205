"""`tracekit open`, with a fake browser that fetches the trace."""

import contextlib
import gzip
import http.client
import json
import socket
import threading
import urllib.error
import urllib.request
import webbrowser
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from click.testing import CliRunner

from tracekit.analyzers.core import TracekitError
from tracekit.analyzers.trace import load
from tracekit.cli import _perfetto, main
from tracekit.cli._perfetto import UI, FileServer, show_trace
from tracekit.run import silent

EXAMPLES = Path(__file__).parents[1] / "examples"
SAMPLE = EXAMPLES / "traces" / "h200_gpt2_prefill.json.gz"
CONTENT = b"\x1f\x8b not really" * 1000


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "my trace.json.gz"
    path.write_bytes(CONTENT)
    return path


class Browser(threading.Thread):
    """A browser that fetches what Perfetto's UI is asked to open."""

    def __init__(self, address: str, origin: str = UI) -> None:
        super().__init__()
        self.page, _, self.url = address.partition("/#!/?url=")
        self._request = urllib.request.Request(self.url, headers={"Origin": origin})
        self.start()

    def run(self) -> None:
        with urllib.request.urlopen(self._request, timeout=10) as answer:
            self.headers, self.content = answer.headers, answer.read()


@contextlib.contextmanager
def served(trace: Path) -> Iterator[FileServer]:
    """Serve a trace on another thread."""
    with FileServer(trace, UI, 0) as server:
        serving = threading.Thread(target=server.serve)
        serving.start()
        try:
            yield server
        finally:
            server._server.fetched.set()
            serving.join()
    assert not server._serving.is_alive()


def answer_of(server: FileServer, path: str, method: str = "GET", **headers: str) -> tuple[int, dict[str, str], bytes]:
    """Return the server's answer to a request."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
    connection.request(method, path, headers=headers)
    answer = connection.getresponse()
    told = answer.status, dict(answer.getheaders()), answer.read()
    connection.close()
    return told


def test_perfetto_fetches_the_trace_and_the_server_ends(trace: Path) -> None:
    browsers: list[Browser] = []
    show_trace(trace, lambda address: browsers.append(Browser(address)), silent, port=0)
    browser = browsers[0]
    browser.join()
    assert browser.page == "https://ui.perfetto.dev"
    assert urlsplit(browser.url).hostname == "127.0.0.1"
    assert unquote(urlsplit(browser.url).path) == "/my trace.json.gz"
    assert browser.content == CONTENT
    assert browser.headers["Access-Control-Allow-Origin"] == UI
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(browser.url, timeout=5)


def test_of_a_folder_the_trace_is_served(tmp_path: Path) -> None:
    (tmp_path / "trace.json.gz").write_bytes(CONTENT)
    browsers: list[Browser] = []
    show_trace(tmp_path, lambda address: browsers.append(Browser(address)), silent, port=0)
    browsers[0].join()
    assert browsers[0].content == CONTENT


@pytest.mark.parametrize(
    "sample", ["traces/plain/h100_encoder.json.gz", "proton/h100_trace_shadow_eager.chrome_trace.gz"]
)
def test_an_imported_trace_is_served_with_findings(sample: str) -> None:
    browsers: list[Browser] = []
    show_trace(EXAMPLES / sample, lambda address: browsers.append(Browser(address)), silent, port=0)
    browsers[0].join()
    document = json.loads(gzip.decompress(browsers[0].content))
    events = document if isinstance(document, list) else document["traceEvents"]
    assert {"tracekit", "kernel"} <= {each.get("cat") for each in events}
    assert (
        sum(each.get("cat") == "kernel" for each in events)
        == (load(EXAMPLES / sample).device["category"] == "kernel").sum()
    )
    assert browsers[0].url.endswith(".json.gz")


def test_a_trace_that_cannot_be_analyzed_is_served_as_it_is(trace: Path) -> None:
    said: list[str] = []
    browsers: list[Browser] = []
    show_trace(trace, lambda address: browsers.append(Browser(address)), said.append, port=0)
    browsers[0].join()
    assert browsers[0].content == CONTENT
    assert "without findings" in said[0]


def test_without_a_browser_the_trace_is_served_until_it_is_fetched(
    trace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    browsers: list[Browser] = []
    monkeypatch.setattr(_perfetto, "FileServer", lambda file, origin, _: FileServer(file, origin, 0))
    monkeypatch.setattr(webbrowser, "open", lambda address: browsers.append(Browser(address)))
    result = CliRunner().invoke(main, ["open", str(trace), "--perfetto"])
    assert result.exit_code == 0
    assert result.stdout.startswith("https://ui.perfetto.dev/#!/?url=http://127.0.0.1:")
    browsers[0].join()
    assert browsers[0].content == CONTENT


@pytest.mark.parametrize(
    ("path", "headers", "status"),
    [
        ("/", {"Origin": UI}, 404),
        ("/other.json", {"Origin": UI}, 404),
        ("/../my%20trace.json.gz", {"Origin": UI}, 404),
        ("/my%20trace.json.gz", {}, 403),
        ("/my%20trace.json.gz", {"Origin": "https://evil.example"}, 403),
        ("/my%20trace.json.gz", {"Host": "evil.example:9001"}, 403),
        ("/my%20trace.json.gz", {"Origin": "null"}, 403),
    ],
)
def test_nothing_else_is_served_to_nobody_else(trace: Path, path: str, headers: dict[str, str], status: int) -> None:
    with served(trace) as server:
        answered, sent, body = answer_of(server, path, **headers)
        assert answered == status
        assert CONTENT[:10] not in body
        assert "Access-Control-Allow-Origin" not in sent
        assert not server._server.fetched.is_set()


def test_a_browser_may_ask_first(trace: Path) -> None:
    with served(trace) as server:
        status, sent, _ = answer_of(server, "/my%20trace.json.gz", "OPTIONS", Origin=UI)
        assert (status, sent["Access-Control-Allow-Origin"]) == (204, UI)
        assert sent["Access-Control-Allow-Private-Network"] == "true"
        assert answer_of(server, "/my%20trace.json.gz", "POST")[0] == 501
        assert not server._server.fetched.is_set()


def test_it_listens_on_loopback_only(trace: Path) -> None:
    with FileServer(trace, UI, 0) as server:
        assert server._server.server_address[0] == "127.0.0.1"


def test_a_taken_port_is_explained(trace: Path) -> None:
    with FileServer(trace, UI, 0) as server, pytest.raises(TracekitError, match="is in use"):
        FileServer(trace, UI, server.port)


def test_the_report_is_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "report.html").write_text("<!doctype html>")
    opened: list[str] = []
    monkeypatch.setattr(webbrowser, "open", lambda url: opened.append(url) or True)
    result = CliRunner().invoke(main, ["open", str(tmp_path)])
    assert (result.exit_code, result.output) == (0, "")
    assert opened == [(tmp_path / "report.html").as_uri()]
    CliRunner().invoke(main, ["open", str(tmp_path / "report.html")])
    assert opened[1:] == opened[:1]


def test_without_a_browser_the_address_is_printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "report.html").write_text("")
    address = (tmp_path / "report.html").as_uri()
    result = CliRunner().invoke(main, ["open", str(tmp_path), "--no-browser"])
    assert (result.exit_code, result.stdout) == (0, f"{address}\n")
    monkeypatch.setattr(webbrowser, "open", lambda _: False)
    result = CliRunner().invoke(main, ["open", str(tmp_path)])
    assert result.exit_code == 1
    assert address in result.stderr


def test_a_report_that_is_not_there_is_written(tmp_path: Path) -> None:
    trace = tmp_path / "mine.json.gz"
    trace.write_bytes(SAMPLE.read_bytes())
    result = CliRunner().invoke(main, ["open", str(trace), "--no-browser"])
    assert result.stdout == f"{(tmp_path / 'mine.html').as_uri()}\n"
    assert (tmp_path / "mine.html").read_text("utf-8").startswith("<!doctype html>")


@pytest.mark.parametrize("options", [[], ["--perfetto"]])
def test_what_does_not_exist_is_said(tmp_path: Path, options: list[str]) -> None:
    result = CliRunner().invoke(main, ["open", str(tmp_path / "absent"), *options])
    assert result.exit_code == 1
    assert "does not exist." in result.stderr


def test_a_request_without_an_origin_does_not_end_the_server(trace: Path) -> None:
    with served(trace) as server:
        assert answer_of(server, "/my%20trace.json.gz")[0] == 403
        status, _, body = answer_of(server, "/my%20trace.json.gz", Origin=UI)
        assert (status, body) == (200, CONTENT)


def test_an_idle_connection_does_not_block_the_server(trace: Path) -> None:
    with FileServer(trace, UI, 0) as server, contextlib.ExitStack() as idle:
        serving = threading.Thread(target=server.serve, daemon=True)
        serving.start()
        for begun in (b"", b"GET /my%20trace", b"GET /my%20trace.json.gz HTTP/1.1\r\nHost: "):
            connection = idle.enter_context(socket.create_connection(("127.0.0.1", server.port)))
            connection.sendall(begun)
        browser = Browser(f"{UI}/#!/?url=http://127.0.0.1:{server.port}/my%20trace.json.gz")
        browser.join(timeout=10)
        assert browser.content == CONTENT
        serving.join(timeout=10)
        assert not serving.is_alive()


def test_a_fetch_that_breaks_off_does_not_end_the_server(tmp_path: Path) -> None:
    trace = tmp_path / "big.json"
    trace.write_bytes(bytes(64 << 20))
    with served(trace) as server:
        with socket.create_connection(("127.0.0.1", server.port)) as connection:
            asked = f"GET /big.json HTTP/1.0\r\nHost: 127.0.0.1:{server.port}\r\nOrigin: {UI}\r\n\r\n"
            connection.sendall(asked.encode())
            connection.recv(100)
        assert not server._server.fetched.wait(timeout=1)
