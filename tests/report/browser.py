"""Headless Chromium, driven over a pair of pipes with the DevTools protocol: no port, no other package."""

import base64
import fcntl
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

_NAMES = ("chromium", "chromium-browser", "google-chrome")
CHROMIUM = next((path for name in _NAMES if (path := shutil.which(name))), None)

# The protocol's pipes are the descriptors 3 (commands) and 4 (answers) of the browser.
_START = """
import os, sys
for number, end in enumerate(sys.argv[1:3], start=3):
    os.dup2(int(end), number)
os.execv(sys.argv[3], sys.argv[3:])
"""
_PATIENCE = 60  # seconds for an answer
_FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--no-first-run",
    "--remote-debugging-pipe",
)


class Browser:
    """A browser with one page; `requests` and `errors` note what the page did since it was opened."""

    def __init__(self) -> None:
        assert CHROMIUM is not None
        self.requests: list[str] = []
        self.errors: list[str] = []
        self._number = 0
        self._pending = b""
        self._session: str | None = None
        self._home = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        commands, self._commands = _pipe()
        self._answers, answers = _pipe()
        start = [sys.executable, "-c", _START, str(commands), str(answers), CHROMIUM]
        self._process = subprocess.Popen(
            [*start, *_FLAGS, f"--user-data-dir={self._home.name}", "about:blank"],
            pass_fds=(commands, answers),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        os.close(commands)
        os.close(answers)
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, type_: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        try:
            self._session = None
            self.call("Browser.close")
            self._process.wait(10)
        except (OSError, EOFError, TimeoutError, subprocess.TimeoutExpired):
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        os.close(self._commands)
        os.close(self._answers)
        self._home.cleanup()

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """The answer to a command; events that come before it are noted."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._commands, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                found: dict[str, Any] = answer["result"]
                return found

    def open(self, page: Path, width: int = 1280, height: int = 900, dark: bool = False) -> None:
        """Load a file and wait until it has loaded; what was noted before is forgotten."""
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )
        scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.call("Emulation.setEmulatedMedia", features=scheme)
        self.requests.clear()
        self.errors.clear()
        self.call("Page.navigate", url=page.as_uri())
        while self.evaluate("document.readyState") != "complete" or self.evaluate("location.href") == "about:blank":
            time.sleep(0.02)

    def evaluate(self, script: str) -> Any:
        """The value of an expression in the page."""
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(json.dumps(answer["exceptionDetails"]))
        return answer["result"].get("value")

    def screenshot(self, path: Path, whole: bool = False) -> None:
        """The page as a PNG, as far as it is in view or the whole of it."""
        answer = self.call("Page.captureScreenshot", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(answer["data"]))

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._pending:
            if not select.select([self._answers], [], [], _PATIENCE)[0]:
                raise TimeoutError(f"the browser has not answered for {_PATIENCE} seconds")
            part = os.read(self._answers, 1 << 16)
            if not part:
                raise EOFError("the browser has gone")
            self._pending += part
        line, _, self._pending = self._pending.partition(b"\0")
        message: dict[str, Any] = json.loads(line)
        event, parameters = message.get("method"), message.get("params", {})
        if event == "Network.requestWillBeSent":
            self.requests.append(parameters["request"]["url"])
        elif event == "Runtime.exceptionThrown":
            self.errors.append(json.dumps(parameters["exceptionDetails"]))
        elif event == "Log.entryAdded" and parameters["entry"]["level"] == "error":
            self.errors.append(parameters["entry"]["text"])
        return message


def _pipe() -> list[int]:
    """A pipe whose descriptors are above 10, so that making 3 and 4 of the browser overwrites neither."""
    ends = []
    for end in os.pipe():
        ends.append(fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10))
        os.close(end)
    return ends
