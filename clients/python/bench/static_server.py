"""A static HTTP server for the crawl: `static_server.py FOLDER` prints its port and serves until it is killed. Files are
read once."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import ClassVar
from urllib.parse import unquote, urlsplit


class Server(asyncio.Protocol):
    root: Path
    files: ClassVar[dict[str, bytes]] = {}

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.buffer = b""

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        while b"\r\n\r\n" in self.buffer:
            head, self.buffer = self.buffer.split(b"\r\n\r\n", 1)
            target = head.split(b" ", 2)[1].decode("latin-1")
            self.transport.write(self.answer(target))

    def answer(self, target: str) -> bytes:
        path = unquote(urlsplit(target).path).lstrip("/")
        if path not in self.files:
            file = (self.root / path).resolve()
            if file.is_dir() and not target.endswith("/"):
                return b"HTTP/1.1 301 Moved\r\nLocation: " + target.encode() + b"/\r\nContent-Length: 0\r\n\r\n"
            file = file / "index.html" if file.is_dir() else file
            if not file.is_relative_to(self.root) or not file.is_file():
                return b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"
            kind = b"text/html; charset=utf-8" if file.suffix == ".html" else b"application/octet-stream"
            body = file.read_bytes()
            self.files[path] = b"HTTP/1.1 200 OK\r\nContent-Type: %b\r\nContent-Length: %d\r\n\r\n%b" % (kind, len(body), body)
        return self.files[path]


async def serve(folder: str) -> None:
    Server.root = Path(folder).resolve()
    server = await asyncio.get_running_loop().create_server(Server, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1]))
