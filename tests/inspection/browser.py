"""A headless Chromium, driven through a pipe by its DevTools protocol: no package is needed."""

import base64
import json
import os
import shutil
import subprocess
import tempfile
import time

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
CHROMIUM = next((path for path in map(shutil.which, NAMES) if path), None)


class Browser:
    """One page.

    ```python
    with Browser(width=1280, height=900) as page:
        page.open(path)
        page.evaluate("document.title")
    ```
    """

    def __init__(self, width=1280, height=900, phone=False, dark=False):
        self.size, self.phone, self.dark = (width, height), phone, dark
        self.number, self.session, self.errors = 0, None, []

    def __enter__(self):
        self.folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        (self.to_read, write), (read, self.to_write) = os.pipe(), os.pipe()

        def descriptors():  # 3 and 4 are where Chromium looks for its pipe
            high = [os.dup(end) for end in (read, write)]
            for end, place in zip(high, (3, 4)):
                os.dup2(end, place)

        command = [
            CHROMIUM, "--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run",
            "--disable-dev-shm-usage", "--disable-background-networking", "--hide-scrollbars",
            "--remote-debugging-pipe", f"--user-data-dir={self.folder.name}", "about:blank",
        ]  # fmt: skip
        self.process = subprocess.Popen(
            command, close_fds=False, preexec_fn=descriptors, stderr=subprocess.DEVNULL
        )
        os.close(read)
        os.close(write)
        self.buffer = b""
        target = self("Target.createTarget", url="about:blank")["targetId"]
        self.session = self("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self("Runtime.enable")
        self("Network.enable")
        self("Log.enable")
        scheme = {"name": "prefers-color-scheme", "value": "dark" if self.dark else "light"}
        self("Emulation.setEmulatedMedia", features=[scheme])
        self("Emulation.setTouchEmulationEnabled", enabled=self.phone)
        width, height = self.size
        screen = {"width": width, "height": height, "mobile": self.phone}
        self("Emulation.setDeviceMetricsOverride", deviceScaleFactor=1, **screen)
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        os.close(self.to_read)
        os.close(self.to_write)
        self.folder.cleanup()

    def __call__(self, method, **parameters):
        """Sends a command and returns its result."""
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.to_write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive()
            if _is_error(answer):
                self.errors.append(answer["params"])
            if answer.get("id") == self.number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]

    def _receive(self):
        while b"\0" not in self.buffer:
            part = os.read(self.to_read, 1 << 20)
            if not part:
                raise RuntimeError("Chromium has ended.")
            self.buffer += part
        message, _, self.buffer = self.buffer.partition(b"\0")
        return json.loads(message)

    def open(self, path, until="document.body?.dataset.ready !== undefined"):
        """Opens a file without a network, and waits for it."""
        self("Network.emulateNetworkConditions", offline=True, latency=0,
             downloadThroughput=-1, uploadThroughput=-1)  # fmt: skip
        self("Page.navigate", url="about:blank")
        self("Page.navigate", url=path.resolve().as_uri())
        self.wait(until)

    def wait(self, condition, seconds=30):
        end = time.monotonic() + seconds
        while not self.evaluate(condition):
            if time.monotonic() > end:
                said = self.evaluate("document.body.innerText.slice(0, 400)")
                raise RuntimeError(f"Never so: {condition}; {self.errors}; {said}")
            time.sleep(0.05)

    def evaluate(self, expression):
        """The value of JavaScript."""
        options = {"returnByValue": True, "awaitPromise": True}
        result = self("Runtime.evaluate", expression=expression, **options)
        if "exceptionDetails" in result:
            raise RuntimeError(result["exceptionDetails"])
        return result["result"].get("value")

    def click(self, x, y):
        """A real click of the mouse at a place of the window, in CSS pixels."""
        for kind in ("mouseMoved", "mousePressed", "mouseReleased"):
            button = {} if kind == "mouseMoved" else {"button": "left", "clickCount": 1}
            self("Input.dispatchMouseEvent", type=kind, x=x, y=y, **button)

    def tap(self, x, y):
        """A finger that touches and leaves."""
        for kind, points in (("touchStart", [{"x": x, "y": y}]), ("touchEnd", [])):
            self("Input.dispatchTouchEvent", type=kind, touchPoints=points)

    def move(self, x, y):
        self("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def press(self, key):
        code = {"windowsVirtualKeyCode": 27} if key == "Escape" else {}  # it closes dialogs
        text = {"text": key} if len(key) == 1 else {}
        self("Input.dispatchKeyEvent", type="keyDown", key=key, **code, **text)
        self("Input.dispatchKeyEvent", type="keyUp", key=key, **code)

    def screenshot(self, path, full=True):
        data = self("Page.captureScreenshot", format="png", captureBeyondViewport=full)["data"]
        path.write_bytes(base64.b64decode(data))


def _is_error(message):
    """Whether it tells of an exception, a request that failed, or an error in the console."""
    method, found = message.get("method"), message.get("params", {})
    return (
        method in ("Runtime.exceptionThrown", "Network.loadingFailed")
        or (method == "Runtime.consoleAPICalled" and found["type"] in ("error", "assert"))
        or (method == "Log.entryAdded" and found["entry"]["level"] == "error")
    )
