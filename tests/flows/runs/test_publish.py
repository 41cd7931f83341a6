"""`cocondenser export --push`: what the hub's own client sends to a small server of its routes."""

import base64
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from encoders import ENCODER
from exported import Kind, make_run, make_store
from typer.testing import CliRunner

from artifacts.store import Store
from flows.cli.main import app
from pipeline.errors import InputError

TOKEN = "hf_secret_of_the_test"


@pytest.fixture(scope="module")
def nodes(tmp_path_factory) -> dict[str, Path]:
    return make_run(tmp_path_factory.mktemp("run") / "run", Kind())


@pytest.fixture
def store(nodes, tmp_path) -> Store:
    return make_store(nodes, tmp_path / "store", ENCODER)


@pytest.fixture
def hub(monkeypatch) -> Iterator[SimpleNamespace]:
    """A hub of the user `me`: its models' `files` and `private`, and {part of a route: status code} to `fail` with."""
    state = SimpleNamespace(files={}, private={}, fail={}, endpoint="")

    class Routes(BaseHTTPRequestHandler):
        def log_message(self, *arguments: Any) -> None:
            pass

        def answer(self, status: int, value: Any) -> None:
            data = json.dumps(value).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            if status == 404:
                self.send_header("X-Error-Code", "RepoNotFound")
            self.end_headers()
            self.wfile.write(data)

        def do_GET(self) -> None:
            self.handle_route(b"")

        def do_POST(self) -> None:
            self.handle_route(self.rfile.read(int(self.headers["Content-Length"])))

        def handle_route(self, body: bytes) -> None:
            path = self.path.partition("?")[0]
            failing = next((status for part, status in state.fail.items() if part in path), None)
            if self.headers["Authorization"] != f"Bearer {TOKEN}":
                failing = 401
            if failing:
                self.answer(failing, {"error": "refused"})
            elif path == "/api/whoami-v2":
                self.answer(200, {"name": "me", "type": "user"})
            elif path == "/api/validate-yaml":
                self.answer(200, {"warnings": [], "errors": []})
            elif path == "/api/repos/create":
                fields = json.loads(body)
                name = f"{fields.get('organization') or 'me'}/{fields['name']}"
                known = name in state.private
                state.private.setdefault(name, fields.get("private", fields.get("visibility") != "public"))
                state.files.setdefault(name, {})
                self.answer(409 if known else 200, {"url": f"{state.endpoint}/{name}", "error": "exists"})
            else:
                self.answer_model(*path.removeprefix("/api/models/").split("/", 2), body)

        def answer_model(self, user: str, model: str, *rest: Any) -> None:
            name, route, body = f"{user}/{model}", rest[0] if len(rest) > 1 else "", rest[-1]
            if name not in state.private:
                self.answer(404, {"error": "Repository not found"})
            elif route.startswith("preupload"):
                files = json.loads(body)["files"]
                self.answer(
                    200, {"files": [{"path": f["path"], "uploadMode": "regular", "shouldIgnore": False} for f in files]}
                )
            elif route.startswith("commit"):
                for line in map(json.loads, body.splitlines()):
                    if line["key"] == "file":
                        state.files[name][line["value"]["path"]] = base64.b64decode(line["value"]["content"])
                    elif line["key"] == "deletedFile":
                        del state.files[name][line["value"]["path"]]
                self.answer(200, {"commitUrl": f"{state.endpoint}/{name}/commit/1", "commitOid": "1" * 40})
            elif route.startswith("tree"):
                files = state.files[name].items()
                self.answer(200, [{"type": "file", "path": p, "size": len(d), "oid": "0"} for p, d in files])
            else:
                siblings = [{"rfilename": path} for path in state.files[name]]
                fields = {"id": name, "private": state.private[name], "sha": "1" * 40, "siblings": siblings}
                self.answer(200, fields)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Routes)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    state.endpoint = f"http://127.0.0.1:{server.server_port}"
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", state.endpoint)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.setattr("huggingface_hub.hf_api.is_xet_available", lambda: False)
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    yield state
    server.shutdown()
    server.server_close()


def export(store: Store, out: Path, *options: str) -> Any:
    return CliRunner().invoke(app, ["export", str(out), "--store", str(store.root), *options])


def refused(store: Store, out: Path, *options: str) -> str:
    result = export(store, out, *options)
    assert isinstance(result.exception, InputError), result.output
    assert "\n" not in str(result.exception)
    assert TOKEN not in str(result.exception)
    return str(result.exception)


def test_a_private_model_has_the_files_of_the_export(store, hub, tmp_path):
    result = export(store, tmp_path / "out", "--only", "model", "--push", "hub:mine", "--json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["address"] == f"{hub.endpoint}/me/mine"
    assert hub.private == {"me/mine": True}
    files = {path for path in (tmp_path / "out").rglob("*") if path.is_file()}
    assert hub.files["me/mine"] == {str(path.relative_to(tmp_path / "out")): path.read_bytes() for path in files}
    card = hub.files["me/mine"]["README.md"].decode()
    assert card.startswith("---\nlibrary_name: sentence-transformers")
    assert "nDCG@10" in card
    assert TOKEN not in result.output
    assert TOKEN.encode() not in b"".join(hub.files["me/mine"].values())


def test_public_only_on_request(store, hub, tmp_path):
    assert export(store, tmp_path / "out", "--only", "run", "--push", "hub:team/open", "--public").exit_code == 0
    assert hub.private == {"team/open": False}
    line = refused(store, tmp_path / "out", "--push", "hub:team/open")
    assert line == "--push hub:team/open: exists and is public; --public sends to it, or change it on the hub"
    hub.private["team/open"] = True
    assert "is private; leave out --public" in refused(store, tmp_path / "out", "--push", "hub:team/open", "--public")


def test_an_interrupted_push_is_completed_by_the_same_command(store, hub, tmp_path):
    hub.fail["commit"] = 500
    command = ("--only", "run", "--push", "hub:mine")
    assert "--push hub:me/mine: " in refused(store, tmp_path / "out", *command)
    hub.fail.clear()
    (tmp_path / "out/notes.txt").write_text("mine alone")
    before = (tmp_path / "out/README.md").stat().st_mtime_ns
    result = export(store, tmp_path / "out", *command)
    assert "sent to http" in result.output
    assert (tmp_path / "out/README.md").stat().st_mtime_ns == before
    assert "notes.txt" not in hub.files["me/mine"]
    assert {*hub.files["me/mine"]} == {*json.loads((tmp_path / "out/export.json").read_text())["files"]}


def test_a_new_export_replaces_the_parts_of_the_earlier_one(store, hub, tmp_path):
    assert export(store, tmp_path / "out", "--only", "run", "--push", "hub:mine").exit_code == 0
    hub.files["me/mine"]["LICENSE"] = b"mine"
    assert "an export with another --only, run; --overwrite" in refused(
        store, tmp_path / "out", "--only", "index", "--push", "hub:mine"
    )
    assert export(store, tmp_path / "out", "--only", "index", "--overwrite", "--push", "hub:mine").exit_code == 0
    assert {name.partition("/")[0] for name in hub.files["me/mine"]} == {
        *("LICENSE", "README.md", "export.json", "index")
    }


def test_a_model_of_another_origin_is_refused(store, hub, tmp_path):
    hub.private["me/mine"] = True
    hub.files["me/mine"] = {".gitattributes": b"", "README.md": b"mine", "model/weights": b"mine"}
    line = refused(store, tmp_path / "out", "--only", "run", "--push", "hub:mine")
    assert line == "--push hub:mine: has files but no export.json, so it is not an earlier export; choose another name"
    assert not (tmp_path / "out").exists()
    assert hub.files["me/mine"]["README.md"] == b"mine"
    hub.files["me/mine"] = {".gitattributes": b""}
    assert export(store, tmp_path / "out", "--only", "run", "--push", "hub:mine").exit_code == 0
    assert "export.json" in hub.files["me/mine"]


def test_an_earlier_export_is_sent_only_with_vectors_of_the_given_type(store, hub, tmp_path):
    out, push = tmp_path / "out", ("--push", "hub:mine")
    assert export(store, out, "--only", "vectors").exit_code == 0
    line = refused(store, out, "--float16", *push)
    assert line == f"{out}: an export without vectors of float16 (--float16); --overwrite replaces it"
    assert hub.private == {}
    assert export(store, out, "--only", "vectors", "--float16", "--overwrite").exit_code == 0
    assert export(store, out, "--only", "vectors", "--float16", *push).exit_code == 0
    assert export(store, out, *push).exit_code == 0
    assert export(store, out, "--only", "run", "--overwrite").exit_code == 0
    assert "without vectors of float16" in refused(store, out, "--float16", *push)


def test_other_folders_are_refused(store, hub, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/notes.txt").write_text("mine alone")
    assert "mine: not an export (it has no valid export.json)" in refused(
        store, tmp_path / "mine", "--push", "hub:mine"
    )
    assert "notes.txt: not an export" in refused(store, tmp_path / "mine/notes.txt", "--push", "hub:mine")
    (tmp_path / "mine/export.json").write_text(
        json.dumps({"recipe": "one", "model": "stage1", "parts": [], "files": ["../store/format.json"]})
    )
    assert "not an export: export.json names a file outside, ../store/format.json" in refused(
        store, tmp_path / "mine", "--push", "hub:mine"
    )
    for field, value in (("recipe", 5), ("model", None), ("parts", 7), ("parts", [1, "model"])):
        fields = {"recipe": "one", "model": "stage1", "parts": [], "files": ["export.json"], field: value}
        (tmp_path / "mine/export.json").write_text(json.dumps(fields))
        assert "it has no valid export.json" in refused(store, tmp_path / "mine", "--push", "hub:mine")
    assert hub.private == {}


@pytest.mark.parametrize(
    ("fail", "line"),
    [
        ({"whoami": 401}, "--push hub:mine: the hub does not accept the token: `hf auth login`, or set HF_TOKEN"),
        ({"create": 403}, "--push hub:me/mine: the token gives no right to write there"),
        ({"commit": 403}, "--push hub:me/mine: the token gives no right to write there"),
    ],
)
def test_faults_of_the_hub_are_one_line(store, hub, tmp_path, fail, line):
    hub.fail.update(fail)
    assert refused(store, tmp_path / "out", "--only", "run", "--push", "hub:mine") == line
    assert (tmp_path / "out").exists() == ("whoami" not in fail)


def test_wrong_options_are_refused_before_the_export(store, hub, tmp_path, monkeypatch):
    out = tmp_path / "out"
    assert "--public: only --push has this option" in refused(store, out, "--public")
    assert "--push mine: use hub:NAME" in refused(store, out, "--push", "mine")
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "http://127.0.0.1:9")
    assert refused(store, out, "--push", "hub:mine") == "--push hub:mine: http://127.0.0.1:9 accepts no connection"
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    assert refused(store, out, "--push", "hub:mine") == "--push hub:mine: HF_HUB_OFFLINE is set"
    monkeypatch.setenv("HF_TOKEN", f"{TOKEN}É")
    expected = "--push hub:mine: the token (HF_TOKEN, or of `hf auth login`) has invalid characters"
    assert refused(store, out, "--push", "hub:mine") == expected
    monkeypatch.setattr("huggingface_hub.get_token", lambda: None)
    for name in ("a/b/c", "../x", "a..b", "-a", ""):
        assert f"hub:{name}: not the name of a model" in refused(store, out, "--push", f"hub:{name}")
    assert "hub:mine: no token: `hf auth login`" in refused(store, out, "--push", "hub:mine")
    assert not out.exists()
