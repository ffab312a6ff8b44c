"""A service in front of the table `users` of docs/feed.md. It writes with SQLAlchemy, without the guard, and reads through the
guard. README.md in this folder describes how to run it."""

from __future__ import annotations

import json
import os
import re
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from sqlalchemy import BigInteger, create_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column, sessionmaker

import bloomgate
from bloomgate import Guard, Json


class Base(DeclarativeBase):
    pass


class User(Base):
    __tablename__ = "users"

    id: Mapped[int] = mapped_column(BigInteger, primary_key=True)
    name: Mapped[str | None]


class Users:
    """The rows of the table, as dictionaries."""

    def __init__(self, database_url: str, redis_url: str) -> None:
        self.sessions = sessionmaker(create_engine(database_url))
        # The arguments match users.toml: `filter`, and the prefix of `cache-key` (here the default).
        self.guard: Guard[dict[str, Any]] = Guard(bloomgate.connect(redis_url), "{users}", codec=Json(), feed=True)

    def get(self, id: int) -> dict[str, Any] | None:
        return self.guard.get(id, self.load)

    def load(self, id: int) -> dict[str, Any] | None:
        """Queries the database, in a transaction that begins now."""
        with self.sessions() as session:
            user = session.get(User, id)
            return None if user is None else {"id": user.id, "name": user.name}

    def save(self, id: int, name: str) -> None:
        with self.sessions.begin() as session:
            session.merge(User(id=id, name=name))

    def delete(self, id: int) -> None:
        with self.sessions.begin() as session:
            if (user := session.get(User, id)) is not None:
                session.delete(user)


class Handler(BaseHTTPRequestHandler):
    """`GET`, `PUT` and `DELETE /users/17`; `GET /counts` shows the events of the guard."""

    users: Users

    def do_GET(self) -> None:
        if self.path == "/counts":
            self.answer(200, self.users.guard.counts)
        elif (id := self.id()) is not None:
            row = self.users.get(id)
            self.answer(404 if row is None else 200, row)

    def do_PUT(self) -> None:
        if (id := self.id()) is not None:
            match self.body():
                case {"name": str(name)}:
                    self.users.save(id, name)
                    self.answer(204)
                case _:
                    self.answer(400)

    def do_DELETE(self) -> None:
        if (id := self.id()) is not None:
            self.users.delete(id)
            self.answer(204)

    def id(self) -> int | None:
        """Returns the id in the path. Answers 404 if there is none."""
        if found := re.fullmatch(r"/users/([0-9]{1,18})", self.path):
            return int(found[1])
        self.answer(404)
        return None

    def body(self) -> Any:
        try:
            return json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))))
        except ValueError:
            return None

    def answer(self, status: int, body: Any = None) -> None:
        data = b"" if body is None else json.dumps(body).encode() + b"\n"
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        if status != 204:
            self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


if __name__ == "__main__":
    Handler.users = Users(os.environ["DATABASE_URL"], os.environ.get("REDIS_URL", "redis://127.0.0.1:6379"))
    server = ThreadingHTTPServer(("127.0.0.1", int(os.environ.get("PORT", "8000"))), Handler)
    print(f"http://127.0.0.1:{server.server_port}/users/1", flush=True)
    server.serve_forever()
