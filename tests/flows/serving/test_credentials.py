"""Options of a server for other machines that cannot be used are one line, before a run is opened."""

import datetime
import json
import socket
import ssl
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from serving import computed, served

from flows.cli import serve as command
from flows.cli.serve import listening_socket, serve_search
from flows.deploy.processes import free_port
from flows.serving import addresses, service
from flows.serving.access import Access
from flows.serving.addresses import check_root_path, host_names, is_loopback, is_wildcard
from flows.serving.credentials import new_token, read_token, tls_context
from pipeline.errors import InputError

TOKEN = "correct-horse-battery-staple"
CERTIFICATE, KEY, LOCKED, OTHER = "certificate.pem", "key.pem", "locked.pem", "other.pem"


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A certificate of localhost, its key, the key with a password, and another key."""
    folder = tmp_path_factory.mktemp("certificate")
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    today = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(today - datetime.timedelta(days=1))
        .not_valid_after(today + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    (folder / CERTIFICATE).write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    plain, locked = serialization.NoEncryption(), serialization.BestAvailableEncryption(b"secret")
    for file, one, encryption in (
        (KEY, key, plain),
        (LOCKED, key, locked),
        (OTHER, ec.generate_private_key(ec.SECP256R1()), plain),
    ):
        content = one.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption)
        (folder / file).write_bytes(content)
    (folder / "text").write_text("no certificate\n")
    (folder / "token").write_text(f"{TOKEN}\n")
    (folder / "token").chmod(0o600)
    return folder


def test_a_server_with_a_certificate_answers_over_tls_only(folder, monkeypatch, capfd) -> None:
    monkeypatch.setattr(service, "ask", lambda run, questions, known: computed([(one, None) for one in questions]))

    def visit(port: int) -> tuple[list[int], dict[str, Any], str]:
        trusting = ssl.create_default_context(cafile=folder / CERTIFICATE)
        address = f"https://localhost:{port}"

        def opened(path: str, body: bytes | None = None, **headers: str) -> Any:
            request = urllib.request.Request(address + path, body, headers)
            return urllib.request.urlopen(request, context=trusting, timeout=30)

        statuses = [opened("/healthz").status, opened("/api", Authorization=f"Bearer {TOKEN}").status]
        login = opened("/login", json.dumps({"token": TOKEN}).encode(), Origin=address)
        cookie = login.headers["set-cookie"]
        found = json.load(opened("/api/search?q=zebra&k=1", Cookie=cookie.partition(";")[0]))
        with pytest.raises(ConnectionError):
            urllib.request.urlopen(f"http://localhost:{port}/healthz", timeout=30)
        with pytest.raises(ssl.SSLCertVerificationError):
            ssl.create_default_context().wrap_socket(
                socket.create_connection(("localhost", port)), server_hostname="localhost"
            )
        return statuses, found, cookie

    statuses, found, cookie = served(visit, Access(TOKEN), tls_context(folder / CERTIFICATE, folder / KEY))
    assert statuses == [200, 200]
    assert found["answers"][0]["doc_id"] == "d"
    assert "; Secure" in cookie
    assert "".join(capfd.readouterr()) == ""


RAW: dict[str, tuple[bytes, bytes]] = {
    "a path outside": (b"GET /../../etc/passwd HTTP/1.1\r\nHost: localhost\r\n%s\r\n", b"404"),
    "an address as path": (b"GET http://evil.example/api HTTP/1.1\r\nHost: localhost\r\n%s\r\n", b"200"),
    "two hosts": (b"GET /api HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n%s\r\n", b"200"),
    "no host": (b"GET /api HTTP/1.0\r\n%s\r\n", b"400"),
    "another method": (b"BREW /api HTTP/1.1\r\nHost: localhost\r\n%s\r\n", b"400"),
    "an upgrade": (
        b"GET /x HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n%s\r\n",
        b"404",
    ),
}


@pytest.mark.parametrize("raw", [*RAW.values()], ids=[*RAW])
def test_requests_that_no_client_library_sends(raw, monkeypatch, capfd) -> None:
    request, status = raw

    def sent(port: int) -> list[bytes]:
        answers = []
        for header in (b"", b"Authorization: Bearer wrong\r\n", f"Authorization: Bearer {TOKEN}\r\n".encode()):
            with socket.create_connection(("localhost", port), timeout=30) as connection:
                connection.sendall(request % header)
                answers.append(connection.recv(1 << 16))
        return answers

    none, wrong, correct = served(sent, Access(TOKEN))
    assert correct.split()[1] == status
    for refused in (none, wrong):
        assert refused.split()[1] == (b"401" if b"BREW" not in request else status)
    assert b"root:" not in correct
    assert "".join(capfd.readouterr()) == ""


def test_a_header_that_is_too_long_is_refused_with_every_token(capfd) -> None:
    def sent(port: int) -> list[bytes]:
        answers = []
        for token in ("wrong", TOKEN):
            with socket.create_connection(("localhost", port), timeout=30) as connection:
                head = f"GET /api HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\nX: "
                try:
                    connection.sendall(head.encode() + b"x" * 1_000_000 + b"\r\n\r\n")
                    answers.append(connection.recv(1 << 16))
                except ConnectionError:
                    answers.append(b"")
        with socket.create_connection(("localhost", port), timeout=30) as connection:
            connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
            return [*answers, connection.recv(1 << 16)]

    *refused, health = served(sent, Access(TOKEN))
    assert b" 200 " not in b"".join(refused)
    assert health.startswith(b"HTTP/1.1 200 ")


def refusal_of(**options: Any) -> str:
    """The error of the command, which opens no run before: the store is empty."""
    with pytest.raises(InputError) as refused:
        serve_search(store=Path("no-store"), **options)
    line = str(refused.value)
    assert "\n" not in line
    return line


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (None, "no such file"),
        ("folder", "is a directory"),
        ("", "0 characters"),
        ("short\n", "5 characters"),
        ("x" * 1025, "1,025 characters"),
        ("two words of a token", "without spaces"),
        (f"{TOKEN}\n{TOKEN}\n", "one line"),
        ("ü" * 20, "ASCII"),
    ],
)
def test_a_token_file_that_cannot_be_used_is_one_line(tmp_path, content, line) -> None:
    file = tmp_path / "token"
    if content == "folder":
        file.mkdir()
    elif content is not None:
        file.write_text(content)
    refused = refusal_of(host="127.0.0.1", token_file=file)
    assert refused.startswith(f"--token-file {file}: ")
    assert line in refused


def test_a_token_is_read_without_the_end_of_its_line(folder) -> None:
    assert read_token(folder / "token") == TOKEN


def test_a_new_token_is_long_and_different_each_time(tmp_path) -> None:
    tokens = {new_token() for _ in range(100)}
    assert len(tokens) == 100
    (tmp_path / "token").write_text(tokens.pop())
    assert len(read_token(tmp_path / "token")) >= 43


@pytest.mark.parametrize(("mode", "warned"), [(0o600, False), (0o640, True), (0o604, True), (0o400, False)])
def test_a_token_file_that_others_can_read_gives_a_warning(folder, monkeypatch, mode, warned) -> None:
    warnings: list[str] = []
    monkeypatch.setattr(command, "warn", warnings.append)
    (folder / "token").chmod(mode)
    access = command.read_access("127.0.0.1", 8080, folder / "token", ["search.example.org"], "/search/")
    assert bool(warnings) == warned
    assert (access.token, access.root_path, access.cookie) == (TOKEN, "/search", "cocondenser-8080")
    assert "search.example.org" in access.hosts


@pytest.mark.parametrize(("mode", "warned"), [(0o600, False), (0o640, True), (0o604, True)])
def test_a_key_that_others_can_read_gives_a_warning(folder, monkeypatch, mode, warned) -> None:
    warnings: list[str] = []
    monkeypatch.setattr(command, "warn", warnings.append)
    (folder / KEY).chmod(mode)
    assert command.read_tls(folder / CERTIFICATE, folder / KEY) is not None
    assert [line.startswith(f"{folder / KEY}: other users") for line in warnings] == [True] * warned
    assert command.read_tls(None, None) is None


@pytest.mark.parametrize(
    ("certificate", "key", "line"),
    [
        ("none.pem", KEY, "--certificate FOLDER/none.pem: no such file"),
        (CERTIFICATE, "none.pem", "--key FOLDER/none.pem: no such file"),
        (CERTIFICATE, OTHER, "do not belong together"),
        (CERTIFICATE, LOCKED, "--key FOLDER/locked.pem: has a password"),
        ("text", KEY, "both in PEM"),
        (CERTIFICATE, "text", "both in PEM"),
        (KEY, KEY, "both in PEM"),
    ],
)
def test_a_certificate_that_cannot_be_used_is_one_line(folder, certificate, key, line) -> None:
    refused = refusal_of(host="127.0.0.1", certificate=folder / certificate, key=folder / key)
    assert line.replace("FOLDER", str(folder)) in refused


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ({"token_file": Path("token")}, "--token-file: needs --host"),
        ({"allow_host": ["x"], "root_path": "/x"}, "--allow-host, --root-path: needs --host"),
        ({"certificate": Path("x"), "key": Path("y")}, "--certificate, --key: needs --host"),
        ({"host": ""}, "--host: is empty"),
        ({"host": "0.0.0.0", "key": Path("y")}, "--certificate and --key belong together"),
        ({"host": "0.0.0.0", "allow_host": ["https://x"]}, "--allow-host https://x: "),
        ({"host": "0.0.0.0", "allow_host": ["x:80"]}, "--allow-host x:80: "),
        ({"host": "0.0.0.0", "allow_host": ["*"]}, "--allow-host *: "),
        ({"host": "0.0.0.0", "root_path": "search"}, "--root-path search: "),
        ({"host": "0.0.0.0", "root_path": "/a/../b"}, "--root-path /a/../b: "),
        ({"host": "0.0.0.0", "root_path": "//evil.example"}, "--root-path //evil.example: "),
        ({"host": "0.0.0.0", "root_path": '/"><script>'}, "--root-path "),
    ],
)
def test_options_that_do_not_fit_are_one_line(options, line) -> None:
    assert refusal_of(**options).startswith(line)


@pytest.mark.parametrize("host", ["192.0.2.77", "", "nowhere.invalid", "a" * 70])
def test_an_address_that_this_machine_does_not_have_is_one_line(host) -> None:
    with pytest.raises(InputError, match=f"^--host {host}: "), listening_socket(free_port(), host):
        pass


def test_the_names_of_a_server(monkeypatch) -> None:
    monkeypatch.setattr(addresses.socket, "gethostname", lambda: "machine")
    monkeypatch.setattr(addresses, "interfaces", lambda: ["192.0.2.1", "2001:db8::1"])
    own = ("127.0.0.1", "localhost", "[::1]")
    assert host_names("0.0.0.0", []) == (*own, "machine", "192.0.2.1", "[2001:db8::1]")
    assert host_names("::", ["*.example.org"])[-1] == "*.example.org"
    assert host_names("192.0.2.9", ["[2001:db8::2]", "2001:db8::3"])[3:] == (
        "192.0.2.9",
        "[2001:db8::2]",
        "[2001:db8::3]",
    )
    assert host_names("127.0.0.1", []) == own


@pytest.mark.parametrize(("path", "found"), [("", ""), ("/", ""), ("/a/", "/a"), ("/a.b/c-d", "/a.b/c-d")])
def test_root_paths(path: str, found: str) -> None:
    assert check_root_path(path) == found


def test_addresses_by_kind() -> None:
    assert [is_wildcard(x) for x in ("0.0.0.0", "::", "127.0.0.1", "x")] == [True, True, False, False]
    assert [is_loopback(x) for x in ("127.0.0.2", "::1", "localhost", "0.0.0.0", "x")] == [True] * 3 + [False] * 2


@pytest.mark.parametrize(
    ("host", "encrypted", "page", "warned"),
    [
        ("127.0.0.1", False, "http://127.0.0.1:8080/x", False),
        ("0.0.0.0", False, "http://machine:8080/x", True),
        ("::1", True, "https://[::1]:8080/x", False),
    ],
)
def test_the_printed_address(monkeypatch, host: str, encrypted: bool, page: str, warned: bool) -> None:
    warnings: list[str] = []
    warn: Callable[[str], None] = warnings.append
    monkeypatch.setattr(command, "warn", warn)
    monkeypatch.setattr(command.socket, "gethostname", lambda: "machine")
    assert command.page_address(host, 8080, "/x", encrypted) == page
    assert bool(warnings) == warned
