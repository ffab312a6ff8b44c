"""A small site with difficult cases for crawlers, and a log of the fetched pages."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

PAGES = 120
MIDWAY = 20


def links(path: str) -> list[str]:
    """Returns the links of a page, many of which are also on other pages."""
    if path == "/":
        hard = ["/moved", "/moved-again", "/self", "/broken", "/raises", "/a?x=1&y=2", "/a?y=2&x=1", "/a?x=1&y=2#part"]
        return [*hard, *hard, *(f"/page/{number}" for number in range(30))]
    if path.startswith("/page/"):
        number = int(path.rpartition("/")[2])
        near = [f"/page/{(number * 7 + step) % PAGES}" for step in range(12)]
        return [*near, "/", "/moved", path, path]
    if path.startswith("/after"):
        return ["/page/1", "/"]
    return ["/page/1", "/after" + path.split("?")[0]]


class Site:
    """`midway` is called once, before the twentieth request is answered."""

    def __init__(self) -> None:
        self.fetched: Counter[str] = Counter()
        self.midway: Callable[[], None] = lambda: None
        lock = threading.Lock()
        site = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                with lock:
                    site.fetched[self.path] += 1
                    is_midway = site.fetched.total() == MIDWAY
                if is_midway:
                    site.midway()
                if self.path in ("/moved", "/moved-again"):
                    return self.answer(302, Location="/page/5" if self.path == "/moved" else "/target")
                if self.path == "/self":
                    return self.answer(302, Location="/self")
                if self.path == "/broken" and site.fetched[self.path] == 1:
                    return self.answer(503)
                return self.answer(200)

            def answer(self, status: int, **headers: str) -> None:
                body = "".join(f'<a href="{link}">.</a>' for link in links(self.path)).encode()
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Type", "text/html")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None: ...

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
