# SPDX-License-Identifier: Apache-2.0
"""A real headless Chromium for tests of pages, driven through its DevTools protocol."""

from __future__ import annotations

import asyncio
import base64
import json
import shutil
import subprocess
import tarfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from patience import SECONDS

ROOT = Path(__file__).resolve().parents[1]
AXE = "4.11.0"
"""The version of axe-core, which finds what keeps people from using a page."""
GRAVE = """(async () => {
  const found = await axe.run(document, {runOnly: ["wcag2a", "wcag2aa", "wcag21aa", "best-practice"]});
  return found.violations.filter((each) => ["serious", "critical"].includes(each.impact))
    .map((each) => `${each.id}: ${each.nodes.map((node) => node.html).join(" ")}`);
})()"""
"""An expression with what axe-core finds grave on a page."""


class Tab:
    """A tab of a browser."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._numbers = 0
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._session, self._socket = self._run(self._connect())
        self.ask("Page.enable")
        self.ask("Runtime.enable")

    async def _connect(self) -> tuple[aiohttp.ClientSession, Any]:
        session = aiohttp.ClientSession()
        return session, await session.ws_connect(self._url, max_msg_size=0)

    def _run(self, coroutine: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(SECONDS)

    def ask(self, method: str, **parameters: Any) -> Any:
        """Send a command of the protocol; return its result."""
        return self._run(self._ask(method, parameters))

    async def _ask(self, method: str, parameters: Any) -> Any:
        self._numbers += 1
        await self._socket.send_json({"id": self._numbers, "method": method, "params": parameters})
        while True:
            answer = json.loads((await self._socket.receive()).data)
            if answer.get("id") == self._numbers:
                assert "error" not in answer, answer
                return answer["result"]

    def value(self, expression: str) -> Any:
        """Return the value of an expression of JavaScript, which may be a promise."""
        found = self.ask(
            "Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True
        )
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def open(self, url: str, *, dark: bool = False) -> None:
        """Open a page, in light or dark colours."""
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.ask("Emulation.setEmulatedMedia", features=[scheme])
        self.ask(
            "Emulation.setDeviceMetricsOverride",
            width=1300,
            height=1000,
            deviceScaleFactor=1,
            mobile=False,
        )
        self.ask("Page.navigate", url=url)

    def screenshot(self, path: Path) -> None:
        """Write a picture of the whole page."""
        found = self.ask("Page.captureScreenshot", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(found["data"]))

    def close(self) -> None:
        """Close the connection to the tab."""

        async def close() -> None:
            await self._socket.close()
            await self._session.close()

        self._run(close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


@contextmanager
def browser(folder: Path) -> Iterator[Tab]:
    """Start Chromium, with a new profile; skip the test if there is none."""
    program = next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), None)
    if program is None:
        pytest.skip("there is no chromium: apt-get install chromium")
    command = [program, "--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run"]
    command += ["--disable-dev-shm-usage", "--remote-debugging-port=0", "--remote-allow-origins=*"]
    command += [f"--user-data-dir={folder / 'profile'}", "about:blank"]
    process = subprocess.Popen(
        command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
    )
    assert process.stderr is not None
    try:
        line = next(each for each in process.stderr if "DevTools listening on" in each)
        drain = threading.Thread(target=process.stderr.read, daemon=True)
        drain.start()
        port = line.rpartition("ws://")[2].partition("/")[0]
        tab = Tab(asyncio.run(_page_url(port)))
        try:
            yield tab
        finally:
            tab.close()
    finally:
        process.kill()
        process.wait()
        drain.join()
        process.stderr.close()


async def _page_url(port: str) -> str:
    async with aiohttp.ClientSession() as session, session.get(f"http://{port}/json") as answer:
        targets = await answer.json()
    return str(next(each for each in targets if each["type"] == "page")["webSocketDebuggerUrl"])


def axe() -> str:
    """Return the source of axe-core, from npm; skip the test if it cannot be had."""
    file = ROOT / "build" / f"axe-{AXE}.js"
    if not file.exists():
        npm = shutil.which("npm")
        if npm is None:
            pytest.skip("there is no npm, which would fetch axe-core")
        file.parent.mkdir(exist_ok=True)
        packed = subprocess.run(
            [npm, "pack", f"axe-core@{AXE}"],
            cwd=file.parent,
            capture_output=True,
            text=True,
            check=False,
        )
        if packed.returncode:
            pytest.skip(f"axe-core cannot be fetched: {packed.stderr[-500:]}")
        archive = file.parent / packed.stdout.split()[-1]
        with tarfile.open(archive) as content:
            member = content.extractfile("package/axe.min.js")
            assert member is not None
            file.write_bytes(member.read())
        archive.unlink()
    return file.read_text("utf-8")
