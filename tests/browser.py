"""A headless Chromium for tests of pages: one process, a fresh tab a page, spoken to over its DevTools pipe.

    with Browser(executable, profile_folder) as browser:
        with browser.tab(width=390, dark=True) as tab:
            tab.open("file:///tmp/page.html")
            tab.run("return document.title")
            tab.picture(Path("page.png"))

Protocol: https://chromedevtools.github.io/devtools-protocol. Messages are JSON that ends in a zero byte.
"""

from __future__ import annotations

import base64
import fcntl
import json
import os
import select
import shutil
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

_SECONDS = 60.0  # for one answer: a loaded machine takes some seconds to start the browser


def executable() -> str | None:
    """The path of an installed Chromium or Chrome, or None."""
    return next((p for n in ("chromium", "chromium-browser", "google-chrome") if (p := shutil.which(n))), None)


class Browser:
    """A running Chromium. Raises TimeoutError where it does not answer within a minute, RuntimeError where it refuses."""

    def __init__(self, path: str, profile: Path):
        to_read, self._out = os.pipe()
        self._in, to_write = os.pipe()
        # It reads commands from file descriptor 3 and answers on 4; copies above those are not written over.
        ends = [fcntl.fcntl(n, fcntl.F_DUPFD_CLOEXEC, 10) for n in (to_read, to_write)]
        words = [path, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-extensions", "--disable-background-networking",
                 "--remote-debugging-pipe", f"--user-data-dir={profile}", "about:blank"]  # fmt: skip
        silent = [(os.POSIX_SPAWN_OPEN, n, os.devnull, os.O_WRONLY, 0) for n in (1, 2)]
        moved = [(os.POSIX_SPAWN_DUP2, end, n) for end, n in zip(ends, (3, 4))]
        self._pid = os.posix_spawn(path, words, os.environ, file_actions=[*silent, *moved])
        for end in (to_read, to_write, *ends):
            os.close(end)
        self._number, self._left, self._events = 0, b"", list[dict[str, Any]]()

    def __enter__(self) -> Browser:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """End the process."""
        for end in (self._out, self._in):
            os.close(end)  # which ends it
        until = time.monotonic() + 5
        while os.waitpid(self._pid, os.WNOHANG)[0] == 0:
            if time.monotonic() > until:
                os.kill(self._pid, signal.SIGKILL)
                os.waitpid(self._pid, 0)
                return
            time.sleep(0.02)

    @contextmanager
    def tab(self, width: int = 1400, height: int = 900, dark: bool = False) -> Iterator[Tab]:
        """A tab of that many CSS pixels, which is closed at the end of the block."""
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        try:
            tab = Tab(self, session)
            for domain in ("Page", "Runtime", "Log"):
                tab.send(f"{domain}.enable")
            tab.send(
                "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False
            )
            scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
            tab.send("Emulation.setEmulatedMedia", features=[scheme])
            yield tab
        finally:
            self.send("Target.closeTarget", targetId=target)

    def send(self, method: str, session: str = "", **given: Any) -> dict[str, Any]:
        """The result of one command of the protocol."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": given}
        if session:
            message["sessionId"] = session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self._out, data) :]
        while True:
            got = self._next(method)
            if got.get("id") != self._number:
                self._events.append(got)
                continue
            if "error" in got:
                raise RuntimeError(f"{method}: {got['error'].get('message')}")
            result: dict[str, Any] = got["result"]
            return result

    def event(self, method: str, session: str) -> dict[str, Any]:
        """The next event of that name, which may have come before."""
        while True:
            for k, e in enumerate(self._events):
                if e.get("method") == method and e.get("sessionId") == session:
                    return self._events.pop(k)
            self._events.append(self._next(method))

    def errors(self, session: str) -> list[str]:
        """What a tab's console said of errors so far."""
        out = []
        for e in (e for e in self._events if e.get("sessionId") == session):
            if e["method"] == "Runtime.exceptionThrown":
                told = e["params"]["exceptionDetails"]
                out.append(told.get("exception", {}).get("description") or told["text"])
            elif e["method"] == "Log.entryAdded" and e["params"]["entry"]["level"] == "error":
                out.append(e["params"]["entry"]["text"])
        return out

    def _next(self, method: str) -> dict[str, Any]:
        until = time.monotonic() + _SECONDS
        while b"\0" not in self._left:
            if not select.select([self._in], [], [], max(0.0, until - time.monotonic()))[0]:
                raise TimeoutError(f"the browser did not answer {method}")
            got = os.read(self._in, 1 << 16)
            if not got:
                raise RuntimeError("the browser ended")
            self._left += got
        head, _, self._left = self._left.partition(b"\0")
        message: dict[str, Any] = json.loads(head)
        return message


class Tab:
    """A tab of a `Browser`."""

    def __init__(self, browser: Browser, session: str):
        self._browser, self._session = browser, session

    def send(self, method: str, **given: Any) -> dict[str, Any]:
        """The result of one command of the protocol."""
        return self._browser.send(method, self._session, **given)

    def open(self, address: str) -> None:
        """Go to an address, and wait until the page has loaded."""
        self.send("Page.navigate", url=address)
        self._browser.event("Page.loadEventFired", self._session)

    def run(self, script: str) -> Any:
        """What `script`, the body of an async function, returns; plain data. RuntimeError with its stack where it throws."""
        got = self.send(
            "Runtime.evaluate", expression=f"(async () => {{{script}}})()", awaitPromise=True, returnByValue=True
        )
        if "exceptionDetails" in got:
            told = got["exceptionDetails"]
            raise RuntimeError(told.get("exception", {}).get("description") or told["text"])
        return got["result"].get("value")

    def errors(self) -> list[str]:
        """What the console said of errors since the tab was made."""
        return self._browser.errors(self._session)

    def picture(self, path: Path, whole: bool = False) -> None:
        """Write a PNG of what the window shows, or of the whole page."""
        data = self.send("Page.captureScreenshot", captureBeyondViewport=whole)["data"]
        path.write_bytes(base64.b64decode(data))
