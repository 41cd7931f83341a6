"""The report's pictures, on the page and as files."""

import json
import shutil

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from reported import CONFIG, WHOLE, elements, work

from pipeline.report.build import report


def test_the_entropy_of_attention_is_a_picture_of_the_analyses(inputs, page, tmp_path):
    attention = tmp_path / ("e1" * 32)
    attention.mkdir()
    columns = {"model": ["pretrained", "stage2"], "layer": [1, 1], "entropy": [3.0, 2.0]}
    pq.write_table(pa.table(columns), attention / "attention.parquet")
    report(CONFIG, **inputs, attention=attention, **WHOLE, work=work(tmp_path / "out"))
    shown = (tmp_path / "out" / "report.html").read_text()
    assert elements(shown).count("svg") == elements(page).count("svg") + 1
    assert (tmp_path / "out" / "pictures" / "attention.png").is_file()
    for part in ("Entropy of [CLS]'s attention", "entropy (nats)", "pre-trained"):
        assert part in shown.split('<section id="analyses">')[1].split("</section>")[0]
        assert part not in page


def test_neighbours_have_a_line_for_each_pair_and_n(inputs, tmp_path):
    evaluation = tmp_path / "metrics"
    shutil.copytree(inputs["evaluate"], evaluation)
    metrics = json.loads((evaluation / "metrics.json").read_text())
    rows = [
        {"earlier": "bm25", "later": "stage2", "n": n, "questions": 2, "k": [10, 100, 1000], "recall": [0.1, 0.5, 0.9]}
        for n in (50, 100)
    ]
    metrics["splits"]["test"]["neighbours"] = rows
    (evaluation / "metrics.json").write_text(json.dumps(metrics))
    report(CONFIG, **{**inputs, "evaluate": evaluation}, **WHOLE, work=work(tmp_path / "out"))
    picture = next(
        svg for svg in (tmp_path / "out" / "report.html").read_text().split("<figure>") if "Neighbours" in svg
    )
    for text in ("stage 2's first 50 in BM25", "stage 2's first 100 in BM25", "1,000"):
        assert text in picture


def test_a_picture_of_seven_thousand_questions_is_small():
    from pipeline.report.analyses import gains_picture

    picture = gains_picture("questions", np.linspace(1, -0.5, 6980), "stage 2 against BM25", "difference in 1 / rank")
    assert len(picture.svg) < 40_000
    assert "4,653 better" in picture.svg
    assert "2,327 worse" in picture.svg


def test_pictures_are_also_coloured_files(inputs, tmp_path):
    from matplotlib.image import imread

    report(CONFIG, **inputs, **WHOLE, work=work(tmp_path / "out"))
    names = [path.stem for path in sorted((tmp_path / "out" / "pictures").iterdir())]
    assert names == [
        *("ladder-ndcg-10", "ladder-r-100", "ladder-rr-10", "questions", "training-cocondenser", "training-stage2")
    ]
    pixels = (255 * imread(tmp_path / "out" / "pictures" / "ladder-rr-10.png")[..., :3]).round().astype(int)
    shades = {tuple(shade) for shade in np.unique(pixels.reshape(-1, 3), axis=0).tolist()}
    assert {(255, 255, 255), (0x14, 0x50, 0x8C), (0x8A, 0x92, 0x9B)} <= shades  # paper, stage 2, BM25
    assert not {shade for shade in shades if max(shade) < 10}  # no placeholder colour is left


def test_rounds_and_other_systems_have_a_colour():
    from pipeline.report.figures import colour_of, ladder

    names = ["bm25", "stage2", "stage2-2", "rerank", "GAR-2", "stage2 + GAR-2", "fusion"]
    assert [*map(colour_of, names)] == ["bm25", "stage2", "stage2", "rerank", "quiet", "quiet", "fusion"]
    assert colour_of("model") != colour_of("adapted") != "quiet"
    figures = {name: {"mean": 0.5, "low": 0.4, "high": 0.6} for name in names}
    picture = ladder("ladder", figures, {n: n for n in names}, "MRR@10").svg
    assert "stage2 + GAR-2" in picture
    assert "var(--quiet)" in picture
