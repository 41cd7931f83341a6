"""What Prefect's page is given."""

import re

from tasks import page


def test_keys_of_any_node_are_what_prefect_takes() -> None:
    assert page.key("metrics", "cross_encoder-2") == "metrics-cross-encoder-2"
    key = page.key("loss", "stage1 (Condenser continued, 1,000 questions, seed 2)")
    assert key == "loss-stage1-condenser-continued-1-000-questions-seed-2"
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", key)
