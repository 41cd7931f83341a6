"""OpenVINO's encoding gives this program's vectors."""

import numpy as np
import pytest
from ready import POOLING, WORDS, sentence

from benchmarks.encode import encode_texts
from pipeline.modeling.biencoder import load_encoders
from pipeline.tokenization.tokenizer import read_tokenizer

pytest.importorskip("openvino", reason="an extra of the benchmarks")

CLS = {**POOLING, "pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}


@pytest.mark.parametrize(("kinds", "pooling"), [
    (("Transformer", "Pooling"), CLS), (("Transformer", "Pooling", "Dense", "Normalize"), POOLING),
], ids=["cls", "mean, projected, normalised"])  # fmt: skip
def test_the_vectors_are_this_programs(monkeypatch, tmp_path, kinds, pooling):
    monkeypatch.setenv("CI", "true")  # `load` sets it
    from benchmarks.openvino_bf16 import cosines, load

    folder = sentence(tmp_path / "model", kinds, pooling=pooling)
    rng = np.random.default_rng(0)
    texts = [" ".join(rng.choice(WORDS, number)) for number in rng.integers(1, 60, 70)]  # three batches
    ours_NE = encode_texts(load_encoders(folder)[1], read_tokenizer(folder), texts)
    theirs_NE = load(folder, "f32")(texts)
    assert theirs_NE.dtype == np.float32
    np.testing.assert_allclose(theirs_NE, ours_NE, rtol=1e-4, atol=1e-5)
    assert cosines(ours_NE, load(folder)(texts)).min() > 0.99
