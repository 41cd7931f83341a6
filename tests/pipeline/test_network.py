import socket
import threading
import time

from pipeline.network import answers


def test_a_host_that_answers_and_one_that_does_not(monkeypatch):
    monkeypatch.delenv("HTTPS_PROXY", raising=False)
    monkeypatch.delenv("https_proxy", raising=False)
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"http://127.0.0.1:{server.getsockname()[1]}"
        assert answers(address, 5)
        monkeypatch.setenv("https_proxy", address)
        assert answers("https://nowhere.invalid", 5)
    assert not answers(address, 5)


def test_a_slow_name_service_is_not_waited_for(monkeypatch):
    slow = threading.Event()

    def connect(*_):
        slow.wait(30)
        raise OSError

    monkeypatch.setattr(socket, "create_connection", connect)
    begun = time.monotonic()
    assert not answers("https://slow.invalid", 0.05)
    assert time.monotonic() - begun < 5
    slow.set()
