"""Drives a headless Chromium over a pipe by its DevTools protocol, without a Python package or a port.

The pipe is file descriptor 3 (to the browser) and 4 (from it); messages are JSON, each ends with a zero byte.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome", "headless_shell")
SECONDS = 60  # for one answer: two busy cores are slow

# Without these the browser itself asks the network for updates, or shows first-run pages.
_QUIET = (
    *("--headless=new", "--disable-background-networking", "--disable-component-update", "--disable-sync"),
    *("--disable-default-apps", "--disable-extensions", "--no-first-run", "--no-default-browser-check"),
    *("--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars", "--force-device-scale-factor=1"),
    "--no-sandbox",  # containers and root have no user namespaces for it; the only page is our own file
)
# The descriptors of the pipe may be 3 and 4 themselves, the other way round: both are moved away first.
_LAUNCH = (
    "import fcntl, os, sys;"
    "r, w = (fcntl.fcntl(int(n), fcntl.F_DUPFD, 10) for n in sys.argv[1:3]);"
    "os.dup2(r, 3); os.dup2(w, 4); os.execv(sys.argv[3], sys.argv[3:])"
)


def find() -> str | None:
    """Returns the browser's path; $CHARLM_BROWSER may name it."""
    named = os.environ.get("CHARLM_BROWSER", "")
    names = NAMES if named in ("", "required") else (named,)
    return next((path for name in names if (path := shutil.which(name))), None)


class Browser:
    """One page of a browser.

    Attributes:
      events: all that the browser reported, in order.
    """

    def __init__(self, to_browser: int, from_browser: int) -> None:
        self._to, self._from = to_browser, from_browser
        self._buffer, self._number, self._session = b"", 0, ""
        self.events: list[dict[str, Any]] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Sends a command and returns its result."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while True:
            found = self._next()
            if found.get("id") == self._number:
                assert "error" not in found, f"{method}: {found['error']}"
                return found["result"]

    def open(self, url: str, width: int, dark: bool = False, media: str = "screen") -> None:
        """Shows a page at a width, and waits until it has loaded."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", media=media, features=[scheme])
        self.events.clear()
        assert "errorText" not in self.call("Page.navigate", url=url), f"{url} cannot be opened"
        while not any(event["method"] == "Page.loadEventFired" for event in self.events):
            self._next()
        self.value("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(1))))")

    def value(self, expression: str) -> Any:
        """Returns the value of JavaScript; this is the debugger's, which the page's own policy does not stop."""
        found = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def screenshot(self, path: Path) -> None:
        """Writes a picture of the whole page."""
        picture = self.call("Page.captureScreenshot", captureBeyondViewport=True)["data"]
        path.write_bytes(base64.b64decode(picture))

    def requests(self) -> list[str]:
        """Returns the addresses that the page asked for."""
        sent = [event for event in self.events if event["method"] == "Network.requestWillBeSent"]
        return [event["params"]["request"]["url"] for event in sent]

    def complaints(self) -> list[str]:
        """Returns what stands in the console: errors, warnings, exceptions, violations of the page's policy."""
        names = ("Log.entryAdded", "Runtime.consoleAPICalled", "Runtime.exceptionThrown")
        return [json.dumps(event["params"]) for event in self.events if event["method"] in names]

    def _next(self) -> dict[str, Any]:
        """Returns the next message; events are kept."""
        until = time.monotonic() + SECONDS
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._from], [], [], max(0.0, until - time.monotonic()))
            assert ready, f"the browser did not answer in {SECONDS} s"
            read = os.read(self._from, 1 << 20)
            assert read, "the browser ended"
            self._buffer += read
        message, self._buffer = self._buffer.split(b"\0", 1)
        found = json.loads(message)
        if "method" in found:
            self.events.append(found)
        return found


@contextlib.contextmanager
def running(path: str, profile: Path) -> Iterator[Browser]:
    """Starts a browser with an empty profile, and ends it."""
    (ours_in, theirs_out), (theirs_in, ours_out) = os.pipe(), os.pipe()
    command = [path, *_QUIET, "--remote-debugging-pipe", f"--user-data-dir={profile}", "about:blank"]
    with open(profile / "stderr", "wb") as errors:
        process = subprocess.Popen(
            [sys.executable, "-c", _LAUNCH, str(theirs_in), str(theirs_out), *command],
            pass_fds=(theirs_in, theirs_out),
            stdout=errors,
            stderr=errors,
        )
    os.close(theirs_in)
    os.close(theirs_out)
    try:
        browser = Browser(ours_out, ours_in)
        yield browser
        with contextlib.suppress(AssertionError, OSError):
            browser._session = ""
            browser.call("Browser.close")
    finally:
        os.close(ours_in)
        os.close(ours_out)
        try:
            process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
