"""A headless Chromium that a test drives: over a pipe, with the Chrome DevTools protocol.

    with Browser(width=1200, height=900) as b:
        b.open(url)
        b.wait("document.querySelector('h1')")
        b.click("#send")

RADISH_CHROMIUM names the program; else chromium, chromium-browser or google-chrome of the PATH.
"""
import base64
import contextlib
import json
import os
import select
import shutil
import signal
import subprocess
import tempfile
import time

HANG = 120  # seconds for one answer, however busy the machine is


def find():
    """The program, or None."""
    named = os.environ.get("RADISH_CHROMIUM")
    if named:
        return named
    return next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


class BrowserError(Exception):
    pass


class Browser:
    def __init__(self, width=1280, height=900, dark=False, scale=1):
        self.size, self.dark, self.scale = (width, height), dark, scale
        self.rest, self.last, self.events = b"", 0, []

    def __enter__(self):
        self.home = tempfile.mkdtemp(prefix="radish-browser-")
        there, self.out = os.pipe()
        self.into, back = os.pipe()

        def pipes():  # it reads from 3 and writes to 4
            a, b = os.dup(there), os.dup(back)
            os.dup2(a, 3)
            os.dup2(b, 4)

        self.process = subprocess.Popen(
            [find(), "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
             "--remote-debugging-pipe", f"--user-data-dir={self.home}", "--no-first-run",
             "--disable-background-networking", "--disable-component-update", "--disable-sync",
             "--no-proxy-server", "--hide-scrollbars", "about:blank"],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            preexec_fn=pipes, close_fds=False, start_new_session=True,
            env={**os.environ, "HOME": self.home, "DBUS_SESSION_BUS_ADDRESS": "disabled:"})
        os.close(there)
        os.close(back)
        try:
            target = self.ask("Target.createTarget", url="about:blank")["targetId"]
            self.session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
            for domain in ("Page", "Runtime", "Network", "Log"):
                self.ask(domain + ".enable")
            self.resize(*self.size)
            self.theme(self.dark)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *why):
        self.close()

    def close(self):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        os.close(self.out)
        os.close(self.into)
        shutil.rmtree(self.home, ignore_errors=True)

    def read(self):
        until = time.monotonic() + HANG
        while b"\0" not in self.rest:
            if not select.select([self.into], [], [], max(0, until - time.monotonic()))[0]:
                raise BrowserError("the browser does not answer")
            data = os.read(self.into, 1 << 20)
            if not data:
                raise BrowserError("the browser has ended")
            self.rest += data
        message, _, self.rest = self.rest.partition(b"\0")
        return json.loads(message)

    def ask(self, method, **params):
        self.last += 1
        message = {"id": self.last, "method": method, "params": params}
        if hasattr(self, "session"):
            message["sessionId"] = self.session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self.out, data):]
        while True:
            told = self.read()
            if told.get("id") == self.last:
                if "error" in told:
                    raise BrowserError(f"{method}: {told['error']}")
                return told["result"]
            if "method" in told:
                self.events.append(told)

    def resize(self, width, height):
        self.ask("Emulation.setDeviceMetricsOverride", width=width, height=height,
                 deviceScaleFactor=self.scale, mobile=False)

    def theme(self, dark):
        self.ask("Emulation.setEmulatedMedia",
                 features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])

    def open(self, url):
        self.ask("Page.navigate", url=url)
        self.wait("document.readyState === 'complete' && location.href !== 'about:blank'")

    def run(self, script):
        """The value of an expression; promises are waited for."""
        told = self.ask("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in told:
            raise BrowserError(f"{script}: {told['exceptionDetails']}")
        return told["result"].get("value")

    def wait(self, script):
        """Until the expression is true."""
        until = time.monotonic() + HANG
        while not self.run(f"!!({script})"):
            if time.monotonic() > until:
                raise BrowserError(f"never true: {script}\n{self.run('document.body.innerText')[:2000]}")
            self.run("new Promise((done) => setTimeout(done, 30))")

    def mouse(self, x, y, clicks=1):
        self.ask("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)
        for kind in ("mousePressed", "mouseReleased") if clicks else ():
            self.ask("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=clicks)

    def click(self, selector):
        box = self.run(f"(() => {{ const e = document.querySelector({json.dumps(selector)}); e.scrollIntoView({{block: 'center'}});"
                       " const r = e.getBoundingClientRect(); return [r.x + r.width / 2, r.y + r.height / 2]; })()")
        self.mouse(*box)

    def type(self, selector, text):
        self.run(f"document.querySelector({json.dumps(selector)}).focus()")
        self.ask("Input.insertText", text=text)

    def key(self, name, code=0):
        for kind in ("keyDown", "keyUp"):
            self.ask("Input.dispatchKeyEvent", type=kind, key=name, code=name, windowsVirtualKeyCode=code,
                     **({"text": "\r"} if name == "Enter" and kind == "keyDown" else {}))

    def shot(self, path, whole=True):
        more = {}
        if whole:
            size = self.ask("Page.getLayoutMetrics")["cssContentSize"]
            more = {"captureBeyondViewport": True,
                    "clip": {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}}
        with open(path, "wb") as f:
            f.write(base64.b64decode(self.ask("Page.captureScreenshot", format="png", **more)["data"]))

    def seen(self, method):
        """The events of that name so far."""
        self.run("0")
        return [e["params"] for e in self.events if e["method"] == method]
