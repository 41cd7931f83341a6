"""A real browser, driven by its keyboard through Chromium's DevTools protocol. Used by several test files."""

import base64
import json
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from websockets.sync.client import ClientConnection, connect

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
OPTIONS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars")
NAVIGATED = "Inspected target navigated or closed"
CODES = {"Enter": 13, "Escape": 27, "ArrowUp": 38, "ArrowDown": 40, "Tab": 9}


class Page:
    """An open page."""

    def __init__(self, connection: ClientConnection) -> None:
        self._connection = connection
        self._numbers = count(1)

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        number = next(self._numbers)
        self._connection.send(json.dumps({"id": number, "method": method, "params": parameters}))
        while True:
            answer = json.loads(self._connection.recv(60))
            if answer.get("id") == number:
                assert "error" not in answer, answer
                return answer["result"]

    def value(self, script: str) -> Any:
        """What a JavaScript expression gives, also a promise."""
        found = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def wait(self, script: str, seconds: float = 30) -> None:
        """Waits until a JavaScript expression is true, on this page or on one that replaces it."""
        end = time.monotonic() + seconds
        while not self._holds(script):
            assert time.monotonic() < end, f"{script}: {self.value('document.body.innerText')}"
            time.sleep(0.02)

    def leave_for(self, address: str) -> None:
        """Follows a link to the address."""
        # The timer lets the browser answer before it leaves the page.
        self.value(f"void setTimeout(() => location.assign({json.dumps(address)}))")

    def _holds(self, script: str) -> bool:
        try:
            return bool(self.value(f"Boolean({script})"))
        except AssertionError as failed:
            if NAVIGATED not in str(failed):
                raise
            return False

    def press(self, key: str) -> None:
        """Presses and releases a key, as a person does."""
        code = {"windowsVirtualKeyCode": CODES.get(key, ord(key[0].upper()))}
        text = {"text": "\r" if key == "Enter" else key} if len(key) == 1 or key == "Enter" else {}
        self.call("Input.dispatchKeyEvent", type="keyDown", key=key, **code, **text)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key, **code)

    def type(self, text: str) -> None:
        for key in text:
            self.press(key)

    def screenshot(self, path: Path) -> None:
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot")["data"]))


@contextmanager
def open_page(address: str, folder: Path, width: int = 1000, height: int = 800) -> Iterator[Page]:
    """Opens the address in a browser of its own, whose profile is in `folder`."""
    profile = folder / "profile"
    size = f"--window-size={width},{height}"
    command = [str(CHROMIUM), *OPTIONS, size, f"--user-data-dir={profile}", "--remote-debugging-port=0", address]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as browser:
        try:
            with connect(_debugger(profile), max_size=None) as connection:
                yield Page(connection)
        finally:
            browser.kill()


def _debugger(profile: Path, seconds: float = 60) -> str:
    """The address of the page's debugger, once the browser has one."""
    end, file = time.monotonic() + seconds, profile / "DevToolsActivePort"
    while time.monotonic() < end:
        if file.exists() and (lines := file.read_text().split()):
            with urlopen(f"http://127.0.0.1:{lines[0]}/json") as answer:
                pages = [one for one in json.load(answer) if one["type"] == "page"]
            if pages:
                return str(pages[0]["webSocketDebuggerUrl"])
        time.sleep(0.1)
    raise TimeoutError("the browser has no page")
