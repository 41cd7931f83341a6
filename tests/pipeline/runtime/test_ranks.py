"""The process group of ranks."""

import pytest
import torch.distributed as dist

from pipeline.runtime import ranks


def test_a_rank_that_fails_does_not_wait_for_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """NCCL's end waits for ranks that wait for this one."""
    left: list[str] = []
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setattr(ranks, "_store", None)
    monkeypatch.setattr(dist, "rendezvous", lambda url, timeout: iter([("store", 1, 2)]))
    monkeypatch.setattr(dist, "init_process_group", lambda *arguments, **named: None)
    monkeypatch.setattr(dist, "destroy_process_group", lambda: left.append("left"))
    with pytest.raises(ValueError, match="bad"), ranks.process_group("cpu"):
        raise ValueError("bad")
    assert left == []
    with ranks.process_group("cpu"):
        assert left == []
    assert left == ["left"]
