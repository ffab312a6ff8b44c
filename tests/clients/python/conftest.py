"""Fixtures: servers, and the clients in each protocol."""

from contextlib import contextmanager

import pytest

from server import Server


@contextmanager
def servers_of_a_test():
    """Yields a function that starts servers with lines of configuration, and stops all of them at the end."""
    servers = []

    def start(*lines):
        server = Server(*lines)
        servers.append(server)
        return server.start()

    try:
        yield start
    finally:
        troubles = []
        for server in servers:
            try:
                server.end()
            except AssertionError as trouble:
                troubles.append(str(trouble))
        assert not troubles, "\n".join(troubles)


@pytest.fixture
def start():
    """Starts servers, with lines of configuration: `start("appendonly yes")`."""
    with servers_of_a_test() as start:
        yield start


@pytest.fixture(scope="module")
def start_for_all():
    """As `start`, for all tests of a file, if setup takes seconds."""
    with servers_of_a_test() as start:
        yield start


@pytest.fixture
def server(start):
    """A server with the module and default settings."""
    return start()


@pytest.fixture(params=[2, 3], ids=["resp2", "resp3"])
def protocol(request):
    """Each protocol in turn."""
    return request.param


@pytest.fixture
def client(server, protocol):
    """A client of redis-py's in each protocol."""
    return server.client(protocol)
