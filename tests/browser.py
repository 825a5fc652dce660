"""Opens a page in a headless Chromium, over its remote-debugging pipe: needs only Python."""

import base64
import contextlib
import json
import os
import shutil
import subprocess
from pathlib import Path

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
CHROMIUM = next(filter(None, map(shutil.which, NAMES)), None)
OPTIONS = (  # --no-sandbox: root may not have one
    "--headless --no-sandbox --disable-gpu --disable-dev-shm-usage --no-first-run "
    "--disable-background-networking --disable-component-update --remote-debugging-pipe"
).split()


class Page:
    """One open page: sends the browser commands, and keeps what it requested."""

    def __init__(self, to_browser, from_browser):
        self.to_browser, self.from_browser = to_browser, from_browser
        self.session, self.sent, self.events = None, 0, []
        target = self.command("Target.createTarget", url="about:blank")["targetId"]
        attached = self.command("Target.attachToTarget", targetId=target, flatten=True)
        self.session = attached["sessionId"]
        self.command("Network.enable")
        self.command("Page.enable")

    def command(self, method, **params):
        self.sent += 1
        message = {"id": self.sent, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        self.to_browser.write(json.dumps(message).encode() + b"\0")
        self.to_browser.flush()
        while True:
            answer = self._receive()
            if answer.get("id") == self.sent:
                assert "error" not in answer, f"{method}: {answer['error']}"
                return answer["result"]

    def _receive(self):
        text = bytearray()
        while not text.endswith(b"\0"):
            byte = self.from_browser.read(1)
            assert byte, "the browser has ended"
            text += byte
        message = json.loads(text[:-1])
        if "method" in message:
            self.events.append(message)
        return message

    def open(self, path, width, dark=False, height=900):
        """Loads a file, or an address, in a window `width` pixels wide, and waits for it."""
        self.command("Emulation.setDeviceMetricsOverride", width=width, height=height,
                     deviceScaleFactor=1, mobile=width < 600)
        self.command("Emulation.setEmulatedMedia", features=[
            {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])
        self.events.clear()
        url = path if str(path).startswith("http://") else Path(path).resolve().as_uri()
        self.command("Page.navigate", url=url)
        while not any(event["method"] == "Page.loadEventFired" for event in self.events):
            self._receive()

    def requested(self):
        """The addresses that the page asked for, itself included."""
        return [event["params"]["request"]["url"] for event in self.events
                if event["method"] == "Network.requestWillBeSent"]

    def evaluate(self, expression):
        """The value of a JavaScript expression."""
        result = self.command("Runtime.evaluate", expression=expression, returnByValue=True,
                              awaitPromise=True)
        assert "exceptionDetails" not in result, result["exceptionDetails"]
        return result["result"].get("value")

    def pdf(self, **options):
        return base64.b64decode(self.command("Page.printToPDF", **options)["data"])


@contextlib.contextmanager
def page(profile):
    """A Page of a browser that ends with the block. `profile`: an empty folder for its files."""
    to_read, to_write = os.pipe()
    from_read, from_write = os.pipe()
    command = f'exec "$@" 3<&{to_read} 4>&{from_write}'  # Chromium talks over these two numbers
    process = subprocess.Popen(
        ["bash", "-c", command, "bash", CHROMIUM, *OPTIONS, f"--user-data-dir={profile}"],
        pass_fds=(to_read, from_write), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        stdin=subprocess.DEVNULL)
    os.close(to_read)
    os.close(from_write)
    try:
        with os.fdopen(to_write, "wb") as to_browser, os.fdopen(from_read, "rb") as from_browser:
            yield Page(to_browser, from_browser)
    finally:  # with its pipe closed, the browser ends
        try:
            process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
