"""Copies of artifacts elsewhere."""

import pytest

from artifacts.errors import StoreError
from artifacts.remote import pull, push


@pytest.fixture(params=["file", "memory"])
def url(request, tmp_path):
    return f"file://{tmp_path}/remote" if request.param == "file" else f"memory://{tmp_path.name}/remote"


def test_there_and_back(store, other, key, writes, never, url):
    ref = store.build(key(), writes("model", loss=1.5), node="a", identity="key").ref
    push(store, ref.key, url)
    push(store, ref.key, url)
    pulled = pull(other, ref.key, url)
    assert (pulled.digest, pulled.identity, pulled.metrics) == (ref.digest, ref.identity, {"loss": 1.5})
    assert other.lookup(key()) == pulled
    assert other.whole(pulled.digest) is None
    assert other.build(key(), never, node="a").hit
    assert other.record(ref.key) == store.record(ref.key)
    assert pull(other, ref.key, url) == pulled
    assert list(other.work.iterdir()) == []


def test_what_is_not_there_is_none(other, key, url):
    assert pull(other, key().hex, url) is None


def test_only_whole_artifacts_are_sent(store, key, writes, url):
    with pytest.raises(StoreError, match=f"no artifact {key().hex[:12]}"):
        push(store, key().hex, url)
    ref = store.build(key(), writes(), node="a").ref
    (ref.path / "model.bin").unlink()
    with pytest.raises(StoreError, match=r"model\.bin is missing"):
        push(store, ref.key, url)


def test_damage_on_the_way_is_refused(store, other, key, writes, tmp_path):
    ref = store.build(key(), writes(), node="a").ref
    url = f"file://{tmp_path}/remote"
    push(store, ref.key, url)
    (tmp_path / "remote/objects" / ref.digest / "model.bin").write_text("mudel")
    with pytest.raises(StoreError, match=r"model\.bin was changed"):
        pull(other, ref.key, url)
    manifest = tmp_path / "remote/objects" / ref.digest / "manifest.json"
    manifest.write_text(manifest.read_text().replace("model.bin", "../../../escaped"))
    with pytest.raises(StoreError, match=r"names \.\./\.\./\.\./escaped"):
        pull(other, ref.key, url)
    assert other.lookup(key()) is None
    assert list(other.objects.iterdir()) == list(other.work.iterdir()) == []
    assert not list(tmp_path.rglob("escaped"))
    record = tmp_path / "remote/keys" / f"{ref.key}.json"
    record.write_text(record.read_text().replace(ref.digest, "../" * 10))
    with pytest.raises(StoreError, match="is no record of this key"):
        pull(other, ref.key, url)


def test_a_place_that_does_not_exist_is_named(store, key, writes):
    ref = store.build(key(), writes(), node="a").ref
    with pytest.raises(StoreError, match=r"^nosuch://x: "):
        push(store, ref.key, "nosuch://x")
