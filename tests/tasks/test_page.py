"""What Prefect's page is given."""

import re

from tasks import page


def test_keys_of_any_node_are_what_prefect_takes() -> None:
    assert page.key("metrics", "cross_encoder-2") == "metrics-cross-encoder-2"
    key = page.key("loss", "stage1 (Condenser continued, 1,000 questions, seed 2)")
    assert key == "loss-stage1-condenser-continued-1-000-questions-seed-2"
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", key)


def test_keys_tell_the_letters_of_any_script() -> None:
    assert page.key("loss", "stage1 (模型)") == "loss-stage1-6a21-578b"
    one, other = (page.key("loss", f"stage1 ({label})") for label in ("größe", "gräße"))
    assert one == page.key("loss", "stage1 (GRÖßE)") != other
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", one)
