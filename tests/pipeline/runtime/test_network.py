import http.server
import os
import socket
import sys
import threading
import time
import urllib.request

import httpx
import pytest

from pipeline.errors import InputError
from pipeline.runtime import hub, network
from pipeline.runtime.network import answers
from tasks.api import healthy


def test_a_host_is_reachable_only_while_it_answers(monkeypatch):
    monkeypatch.delenv("HTTPS_PROXY", raising=False)
    monkeypatch.delenv("https_proxy", raising=False)
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"http://127.0.0.1:{server.getsockname()[1]}"
        assert answers(address, 5)
        monkeypatch.setenv("https_proxy", address)
        assert answers("https://nowhere.invalid", 5)
    assert not answers(address, 5)


def test_a_slow_name_service_causes_no_wait(monkeypatch):
    slow = threading.Event()

    def connect(*_):
        slow.wait(30)
        raise OSError

    monkeypatch.setattr(socket, "create_connection", connect)
    started = time.monotonic()
    assert not answers("https://slow.invalid", 0.05)
    assert time.monotonic() - started < 5
    slow.set()


class Answering(http.server.BaseHTTPRequestHandler):
    """A server, or a proxy that answers for another host."""

    def do_GET(self):
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_):
        pass


@pytest.fixture
def answering():
    with http.server.HTTPServer(("127.0.0.1", 0), Answering) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))  # seconds until it notices its end
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.fixture(autouse=True)
def no_proxies(monkeypatch):
    for name in [name for name in os.environ if name.lower().endswith("_proxy")]:
        monkeypatch.delenv(name)
    monkeypatch.delenv(network.UNUSABLE, raising=False)


DEAD = "http://127.0.0.1:9"


@pytest.mark.parametrize("proxy", ["HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy", "HTTPS_PROXY"])
@pytest.mark.parametrize("spared", [None, "localhost,10.0.0.0/8,::1", " [::1], é.com ,::1/128,fe80::/10", "*"])
def test_this_machine_is_queried_without_a_proxy(monkeypatch, answering, proxy, spared):
    monkeypatch.setenv(proxy, DEAD)
    if spared is not None:
        monkeypatch.setenv("NO_PROXY", spared)
    assert healthy(answering)
    network.without_proxy(os.environ)
    assert httpx.get(answering).status_code == 200
    assert urllib.request.urlopen(answering).status == 200
    assert urllib.request.proxy_bypass("127.0.0.1:4200")


@pytest.mark.parametrize("spared", ["*", " *", "*,"])
def test_a_machine_without_any_proxy_gets_none(monkeypatch, spared):
    monkeypatch.setenv("http_proxy", DEAD)
    monkeypatch.setenv("no_proxy", spared)
    network.without_proxy(os.environ)
    assert urllib.request.proxy_bypass("huggingface.co")
    assert urllib.request.proxy_bypass("127.0.0.1:4200")


@pytest.mark.parametrize("spared", ["", "localhost,10.0.0.0/8", "intern.example"])
def test_other_machines_keep_their_proxy(monkeypatch, answering, spared):
    monkeypatch.setenv("http_proxy", answering)
    monkeypatch.setenv("no_proxy", spared)
    network.without_proxy(os.environ)
    assert httpx.get("http://far.invalid/x").status_code == 200
    assert healthy("http://far.invalid/api")
    assert set(filter(None, spared.split(","))) < set(os.environ["NO_PROXY"].split(","))


@pytest.mark.parametrize(
    ("proxy", "value", "reason"),
    [
        ("ALL_PROXY", "socks5://name:secret@127.0.0.1:9", "a SOCKS proxy"),
        ("all_proxy", "socks5h://127.0.0.1:9", "a SOCKS proxy"),
        ("all_proxy", "socks://127.0.0.1:1080/", "not a proxy address"),
        ("HTTPS_PROXY", "http://proxy:port", "not a proxy address"),
    ],
)
def test_a_proxy_that_no_client_can_use_is_ignored_until_it_is_needed(monkeypatch, answering, proxy, value, reason):
    monkeypatch.setitem(sys.modules, "socksio", None)
    monkeypatch.setenv(proxy, value)
    with pytest.raises(InputError, match=f"^Prefect's server X cannot be reached: {proxy}: {reason}"):
        network.check_usable("Prefect's server X")
    network.without_proxy(os.environ)
    assert httpx.get(answering).status_code == 200
    with pytest.raises(InputError, match=f"^model a/b cannot be reached: {proxy}: {reason}") as refused:
        hub.fetch("a/b", "main", [], ["config.json"])
    assert "secret" not in str(refused.value)


def test_only_loopback_addresses_are_this_machine():
    for here in ("http://127.0.0.1:4200/api", "http://localhost/api", "http://[::1]:4200/api", "http://127.0.1.1/"):
        assert network.is_loopback(here)
    for elsewhere in ("http://prefect.example/api", "http://10.0.0.1:4200/api", "https://localhost.example", "nothing"):
        assert not network.is_loopback(elsewhere)


@pytest.mark.parametrize("proxy", ["proxy.invalid:3128", "http://proxy.invalid:port"])
def test_a_proxy_that_does_not_answer_counts_as_no_answer(monkeypatch, proxy):
    monkeypatch.setenv("https_proxy", proxy)
    assert not network.answers("https://127.0.0.2:1", 0.2)
