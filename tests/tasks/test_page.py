"""What is shown on Prefect's page."""

import re

from artifacts.records import Ref
from pipeline.notices import noticed
from tasks import page


def test_keys_of_any_node_are_accepted_by_prefect() -> None:
    assert page.key("metrics", "cross_encoder-2") == "metrics-cross-encoder-2"
    key = page.key("loss", "stage1 (Condenser continued, 1,000 questions, seed 2)")
    assert key == "loss-stage1-condenser-continued-1-000-questions-seed-2"
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", key)


def test_keys_distinguish_the_letters_of_any_script() -> None:
    assert page.key("loss", "stage1 (模型)") == "loss-stage1-6a21-578b"
    one, other = (page.key("loss", f"stage1 ({label})") for label in ("größe", "gräße"))
    assert one == page.key("loss", "stage1 (GRÖßE)") != other
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", one)


def test_each_notice_has_its_own_row(monkeypatch, tmp_path) -> None:
    shown: list[str] = []
    monkeypatch.setattr("prefect.artifacts.create_markdown_artifact", lambda text, **_: shown.append(text))
    metrics = {"files": 2, **noticed(["files left out: 1 (first: a|b.md)", "questions cut: 3"])}
    page.show_metrics("ingest", Ref("ingest", "0" * 64, "1" * 64, "1" * 64, tmp_path, metrics), "built", 0.0)
    assert "| notice | files left out: 1 (first: a\\|b.md) |\n| notice | questions cut: 3 |\n" in shown[0]
