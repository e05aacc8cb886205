"""Drives Chromium over its DevTools pipe with the standard library alone."""

import atexit
import json
import os
import shutil
import subprocess
import tempfile
import time
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Any, Self

FLAGS = [
    "--headless",
    "--no-sandbox",
    "--no-first-run",
    "--disable-gpu",
    "--disable-quic",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--remote-debugging-pipe",
]


def chromium() -> str | None:
    return shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


class Browser:
    """A process of Chromium that all pages share. Messages from closed pages are dropped."""

    def __init__(self) -> None:
        self._profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        self._process, self._write, self._read = _start(Path(self._profile.name))
        self._buffer, self._number = b"", 0
        self.pages: dict[str, Page] = {}
        """Messages by session."""
        atexit.register(self.close)

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._write)
        os.close(self._read)
        self._profile.cleanup()

    def send(self, method: str, session: str = "", **params: Any) -> dict[str, Any]:
        self._number += 1
        message = {"id": self._number, "method": method, "params": params}
        if session:
            message["sessionId"] = session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive()
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                return answer["result"]

    def _receive(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            piece = os.read(self._read, 1 << 20)
            assert piece, "Chromium is missing, or ended"
            self._buffer += piece
        message, self._buffer = self._buffer.split(b"\0", 1)
        event = json.loads(message)
        page = self.pages.get(event.get("sessionId", ""))
        if page:
            page.note(event.get("method"), event.get("params", {}))
        return event


@cache
def browser() -> Browser:
    return Browser()


class Page:
    """A page with its own profile; `console` holds all its messages, errors and policy violations."""

    def __init__(self, path: Path, *, fragment: str = "", width: int = 1400, height: int = 1000) -> None:
        self.console: list[str] = []
        self._profile = browser().send("Target.createBrowserContext")["browserContextId"]
        target = browser().send("Target.createTarget", url="about:blank", browserContextId=self._profile)["targetId"]
        self._session = browser().send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        browser().pages[self._session] = self
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.send(f"{domain}.enable")
        self.resize(width, height)
        self.send("Page.navigate", url=f"{path.as_uri()}#{fragment}")
        self.wait_for("location.protocol === 'file:' && document.readyState === 'complete'")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        del browser().pages[self._session]
        browser().send("Target.disposeBrowserContext", browserContextId=self._profile)

    def resize(self, width: int, height: int) -> None:
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self.send("Emulation.setDeviceMetricsOverride", **size)

    def prefer(self, scheme: str) -> None:
        self.send("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def evaluate(self, script: str) -> Any:
        answer = self.send("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise AssertionError(answer["exceptionDetails"])
        return answer["result"].get("value")

    def wait_for(self, script: str, seconds: float = 30) -> None:
        deadline = time.monotonic() + seconds
        while not self.evaluate(script):
            assert time.monotonic() < deadline, f"never became true: {script}; console: {self.console}"
            time.sleep(0.05)

    def send(self, method: str, **params: Any) -> dict[str, Any]:
        return browser().send(method, self._session, **params)

    def note(self, method: str | None, params: dict[str, Any]) -> None:
        if method == "Runtime.consoleAPICalled":
            self.console.append(" ".join(str(each.get("value")) for each in params["args"]))
        elif method == "Runtime.exceptionThrown":
            self.console.append(params["exceptionDetails"]["exception"].get("description", "exception"))
        elif method == "Log.entryAdded":
            self.console.append(params["entry"]["text"])
        elif method == "Network.requestWillBeSent" and params["request"]["url"].startswith("http"):
            self.console.append(f"network: {params['request']['url']}")


def _start(profile: Path) -> tuple[subprocess.Popen[bytes], int, int]:
    """Chromium reads commands from descriptor 3 and answers on 4."""
    theirs_in, ours_out = os.pipe()
    ours_in, theirs_out = os.pipe()
    moved = [os.dup(theirs_in), os.dup(theirs_out)]
    high = [os.dup2(moved[0], 200), os.dup2(moved[1], 201)]
    command = f'exec "$0" "$@" 3<&{high[0]} 4>&{high[1]}'
    process = subprocess.Popen(
        ["bash", "-c", command, str(chromium()), *FLAGS, f"--user-data-dir={profile}"],
        pass_fds=high,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    for descriptor in (theirs_in, theirs_out, *moved, *high):
        os.close(descriptor)
    return process, ours_out, ours_in
