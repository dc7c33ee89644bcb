"""Headless Chromium over its debugging pipe: opens a page, hears its errors and requests, presses keys."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome", "headless_shell")


def find_browser() -> str | None:
    """Return the path of a Chromium; ``ROUTELAB_CHROMIUM`` names another one."""
    named = os.environ.get("ROUTELAB_CHROMIUM")
    return named or next(filter(None, map(shutil.which, NAMES)), None)


class Browser:
    """One browser process; one tab at a time."""

    def __init__(self, path: str, profile: Path) -> None:
        commands, answers = os.pipe(), os.pipe()

        def descriptors() -> None:
            # The browser reads commands from 3 and answers on 4. Copies first: an end may itself be 3 or 4.
            read, write = os.dup(commands[0]), os.dup(answers[1])
            os.dup2(read, 103), os.dup2(write, 104)
            os.dup2(103, 3), os.dup2(104, 4)

        flags = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars"]
        self.process = subprocess.Popen(
            [path, *flags, f"--user-data-dir={profile}", "--remote-debugging-pipe", "--no-first-run", "about:blank"],
            preexec_fn=descriptors,
            close_fds=False,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(commands[0])
        os.close(answers[1])
        self.commands, self.answers = commands[1], answers[0]
        self.rest, self.count, self.session = b"", 0, ""
        self.events: list[dict[str, Any]] = []

    def open(self, page: Path, width: int = 1200, *, dark: bool = False) -> None:
        """Open a file in a new tab of this width and wait until it is loaded."""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self.events.clear()
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=width < 600
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.call("Page.navigate", url=page.resolve().as_uri())
        self.wait(lambda: any(each["method"] == "Page.loadEventFired" for each in self.events))

    def complaints(self) -> list[str]:
        """Return what the page wrote to the console or threw."""
        found = []
        for each in self.events:
            if each["method"] in ("Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded"):
                found.append(json.dumps(each["params"])[:400])
        return found

    def requests(self) -> list[str]:
        """Return the addresses that the page asked for, its own aside."""
        urls = [e["params"]["request"]["url"] for e in self.events if e["method"] == "Network.requestWillBeSent"]
        return [url for url in urls[1:] if not url.startswith("data:")]

    def evaluate(self, expression: str) -> Any:
        """Return the value of a JavaScript expression on the page."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def press(self, key: str, code: int) -> None:
        """Press and let go of a key."""
        text = {"text": "\r"} if key == "Enter" else {}
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code, **text)

    def screenshot(self, path: Path) -> None:
        """Write the whole page as PNG."""
        data = self.call("Page.captureScreenshot", captureBeyondViewport=True)["data"]
        path.write_bytes(base64.b64decode(data))

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Send a command and return its answer; what arrives in between is kept as events."""
        self.count += 1
        message: dict[str, Any] = {"id": self.count, "method": method, "params": params}
        if self.session and not method.startswith("Target."):
            message["sessionId"] = self.session
        os.write(self.commands, json.dumps(message).encode() + b"\0")
        while True:
            answer = self.read()
            if answer.get("id") == self.count:
                assert "error" not in answer, answer
                return dict(answer["result"])
            self.events.append(answer)

    def wait(self, done: Any, seconds: float = 60) -> None:
        """Read events until ``done()``."""
        until = time.monotonic() + seconds
        while not done():
            assert time.monotonic() < until, "the page did not load"
            self.events.append(self.read())

    def read(self) -> dict[str, Any]:
        while b"\0" not in self.rest:
            more = os.read(self.answers, 1 << 16)
            assert more, "the browser ended"
            self.rest += more
        message, _, self.rest = self.rest.partition(b"\0")
        return dict(json.loads(message))

    def close(self) -> None:
        with contextlib.suppress(AssertionError, OSError):
            self.session = ""
            self.call("Browser.close")
        self.process.wait(20)
        os.close(self.commands)
        os.close(self.answers)


@contextlib.contextmanager
def running(path: str, profile: Path) -> Iterator[Browser]:
    """A browser that is closed at the end."""
    browser = Browser(path, profile)
    try:
        yield browser
    finally:
        browser.close()
