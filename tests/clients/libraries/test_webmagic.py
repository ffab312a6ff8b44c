"""examples/webmagic, on a site of this test. `scripts/test --only libraries` builds it if Maven can resolve WebMagic."""

import os
import subprocess
import threading
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from server import PATIENCE, Server

EXAMPLE = Path(__file__).parents[3] / "examples" / "webmagic"
INSTALLED = Path(os.environ["BLOOMGATE_CLIENTS"]) / "webmagic"
PAGES = 60


@pytest.fixture
def site():
    """A site in which pages link to each other in cycles, and away. Yields its URL and how often each page was fetched."""
    fetches = Counter()

    class Page(BaseHTTPRequestHandler):
        def do_GET(self):
            fetches[self.path] += 1
            number = int(self.path[1:] or 0)
            links = [f"/{link}" for link in (2 * number + 1, 2 * number + 2, number // 2) if 0 < link < PAGES]
            body = "".join(f'<a href="{link}"></a>' for link in [*links, "#top", "http://127.0.0.1:1/"]).encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Page)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/", fetches
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def server():
    server = Server()
    try:
        yield server.start()
    finally:
        server.end()


def test_spiders_fetch_each_page_once(server, site):
    if not (INSTALLED / "installed").exists():
        pytest.skip("examples/webmagic is not built: Java or WebMagic is missing")
    url, fetches = site
    words = ["java", "-cp", f"{EXAMPLE}/target/classes:{INSTALLED}/lib/*", "com.example.crawler.Crawler"]
    words += [f"redis://127.0.0.1:{server.port}", url]

    def crawl(spiders):
        running = [subprocess.Popen(words, stdout=subprocess.PIPE, text=True) for _ in range(spiders)]
        try:
            printed = "".join(spider.communicate(timeout=PATIENCE)[0] for spider in running)
        finally:
            for spider in running:
                spider.kill()
        assert [spider.returncode for spider in running] == [0] * spiders
        return sorted(line.removeprefix("get page: ") for line in printed.splitlines())

    pages = sorted([url, *(f"{url}{page}" for page in range(1, PAGES))])
    assert crawl(2) == pages
    # The next crawl of the same task finds nothing new.
    assert crawl(1) == []
    assert set(fetches.values()) == {1} and len(fetches) == PAGES
    client = server.client()
    assert client.bf().card("seen_example") == PAGES
    assert client.keys() == [b"seen_example"]
    # Another task.
    client.delete("seen_example")
    assert crawl(1) == pages
