"""The ways of encoding that are compared give this program's vectors."""

import json

import numpy as np
import pytest
import torch
from ready import POOLING, WORDS, sentence

from benchmarks import encoding_ways
from benchmarks.encoding_ways import OURS, WAYS, encoding


@pytest.mark.parametrize(
    "way", ["sentence-transformers, float32", "sentence-transformers, bfloat16", "ONNX Runtime, int8", OURS]
)
def test_a_step_compares_the_vectors_of_a_way_with_the_expected_ones(monkeypatch, tmp_path, way):
    pytest.importorskip("onnxruntime", reason="an extra")
    monkeypatch.setattr(torch, "set_num_threads", lambda number: None)  # it would hold for all later tests
    folder = sentence(tmp_path / "model", ("Transformer", "Pooling", "Normalize"), pooling=POOLING)
    rng = np.random.default_rng(0)
    texts = [" ".join(rng.choice(WORDS, number)) for number in rng.integers(1, 60, 40)]
    (tmp_path / "texts.json").write_text(json.dumps(texts))
    np.save(tmp_path / "expected.npy", WAYS[OURS](folder)(texts))
    lowest = encoding(way=way, model=str(folder), place=str(tmp_path))(0)["lowest"]
    assert lowest > (0.999999 if "float32" in way else 0.98)


def test_only_this_programs_processes_have_its_environment_and_precision(tmp_path):
    ways = {way: encoding_ways._process(way, tmp_path, "place") for way in WAYS}
    assert {way for way, one in ways.items() if one.tuned} == {OURS, "this program, bfloat16"}
    assert {way for way, one in ways.items() if one.precision == "bfloat16"} == {"this program, bfloat16"}
