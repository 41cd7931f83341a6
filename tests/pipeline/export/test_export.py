"""Exported files give the project's own vectors, lists and measures in the packages that they are for."""

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from encoders import ENCODER
from exported import Kind, encoder_of, make_run, source_of
from searched import write_collection

from pipeline.data.collection import at_rows, passage_ids, read_queries
from pipeline.data.parquet import parquet_file, read_parquet
from pipeline.dense.index_files import open_index
from pipeline.dense.search import top_k
from pipeline.errors import InputError
from pipeline.export import onnx_files
from pipeline.export.files import write_index, write_runs
from pipeline.export.graph import write_graph
from pipeline.export.model import differing_inputs, write_model
from pipeline.export.onnx_files import checked, padded, quantise, session, write_onnx
from pipeline.export.page import write_page
from pipeline.export.source import Sample, Source, cut_encoders, read_sample, spread
from pipeline.export.vectors import column_names, write_vectors
from pipeline.modeling.biencoder import encode_rows, load_encoders
from pipeline.runtime.work import silent

EVERY = 10_000
PARTS = ("model", "onnx", "run", "index", "vectors")
PREFIXES = {"question_prefix": "query:", "passage_prefix": "Tau"}
KINDS = {
    "bert": Kind(),
    "all": Kind(
        pooling="mean",
        normalise=True,
        projection=6,
        encoder=ENCODER.model_copy(update={**PREFIXES, "title_separator": "space", "title_tokens": 6}),
    ),
    "cut": Kind(normalise=True, dimension=6),
    "cut projection": Kind(tied=False, projection=8, dimension=5),
    "roberta": Kind(architecture="roberta", tied=False, projection=5),
}


@dataclass(frozen=True)
class Export:
    source: Source
    folder: Path
    reading: dict[str, int]
    figures: dict[str, Any]

    @property
    def blocks(self) -> list[str]:
        return blocks(self.folder)


def blocks(folder: Path) -> list[str]:
    """The code blocks of the page."""
    return re.findall(r"```python\n(.*?)```", (folder / "README.md").read_text(), flags=re.DOTALL)


@pytest.fixture(scope="module")
def exported(tmp_path_factory) -> Callable[[str], Export]:
    """The export of a kind, built when a test needs it."""

    @cache
    def exported(name: str) -> Export:
        kind, folder = KINDS[name], tmp_path_factory.mktemp(name)
        source = source_of(make_run(folder / "run", kind), encoder_of(kind), kind.dimension)
        out = folder / "out"
        write_model(source.checkpoint, out / "model", source.encoder, source.passage_tokens, source.dimension)
        reading = differing_inputs(source, out / "model", read_sample(source, EVERY), silent)
        figures = write_onnx(source, out / "onnx", silent).figures
        write_runs(source, out / "run", silent)
        write_index(source, out / "index", silent)
        write_vectors(source.served_collection, source.served, out / "vectors", "float32", silent)
        write_page(source, out, PARTS, reading, figures)
        return Export(source, out, reading, figures)

    return exported


@pytest.fixture(
    params=[
        "bert",
        "cut",
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("cut projection", "all", "roberta")),
    ]
)
def export(request, exported) -> Export:
    return exported(request.param)


@pytest.fixture
def bert(exported) -> Export:
    return exported("bert")


def page_inputs(source: Source, texts: Sample) -> tuple[list[str], list]:
    """Questions and passages in the form that the page describes."""
    queries = read_queries(source.collection)
    rows = at_rows(source.collection / "passages.parquet", texts.passages, ["title", "text"]).to_pylist()
    passages = [(row["title"], row["text"]) if row["title"] else row["text"] for row in rows]
    return [queries[n].text for n in texts.questions], passages


def without_the_long_title(texts: Sample) -> Sample:
    mask = [place // 2 != 10 for place in texts.passages]
    rows = [row for row, keep in zip(texts.passage_rows, mask, strict=True) if keep]
    return replace(texts, passages=texts.passages[mask], passage_rows=rows)


def assert_close(actual, expected) -> None:
    np.testing.assert_allclose(actual, expected, atol=2e-5)


# The model


def test_sentence_transformers_gives_our_vectors(export):
    from sentence_transformers import SentenceTransformer

    source = export.source
    texts = without_the_long_title(read_sample(source, EVERY))
    assert max(map(len, texts.question_rows)) == source.encoder.question_tokens  # one is cut
    assert max(map(len, texts.passage_rows)) == source.passage_tokens
    theirs = SentenceTransformer(str(export.folder / "model"), device="cpu")
    assert theirs.similarity_fn_name == "dot"
    ours, (questions, passages) = cut_encoders(source.checkpoint, source.dimension), page_inputs(source, texts)
    assert_close(theirs.encode_query(questions), encode_rows(ours[0], texts.question_rows, 999))
    assert_close(theirs.encode_document(passages), encode_rows(ours[1], texts.passage_rows, 999))


@pytest.mark.slow
def test_one_side_of_an_untied_model_loads_alone(exported):
    from sentence_transformers import SentenceTransformer

    folder, text = exported("roberta").folder / "model", ["alpha beta"]
    whole, query = (SentenceTransformer(str(folder / side), device="cpu") for side in ("", "query"))
    np.testing.assert_array_equal(whole.encode_query(text), query.encode(text))
    assert abs(whole.encode_document(text) - query.encode(text)).max() > 0.1
    assert query.max_seq_length == exported("roberta").source.encoder.question_tokens


def test_titles_joined_by_hand_give_the_same_vectors(bert):
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(str(bert.folder / "model"), device="cpu")
    pair, joined = model.encode_document([("alpha beta", "gamma delta")]), ["alpha beta [SEP] gamma delta"]
    assert abs(model.encode_document(joined) - pair).max() > 0.01
    model.tokenizer.split_special_tokens = False
    assert_close(model.encode_document(joined), pair)


def test_texts_that_are_read_differently_are_counted(export):
    """Only the two passages with the long title; special tokens and lengths cause no difference."""
    assert export.reading == {"questions": 60, "questions_differing": 0, "passages": 120, "passages_differing": 2}


def test_the_model_has_no_files_of_a_training(bert):
    assert {path.name for path in (bert.folder / "model").iterdir()} == {
        "1_Pooling",
        "config.json",
        "config_sentence_transformers.json",
        "model.safetensors",
        "modules.json",
        "sentence_bert_config.json",
        "tokenizer.json",
        "tokenizer_config.json",
    }


# text-embeddings-inference


def fields(folder: Path, name: str, **types: Any) -> dict[str, Any]:
    """A JSON object that has at least fields of these types, as the server's parser demands."""
    value = json.loads((folder / name).read_text())
    for field, kind in types.items():
        assert isinstance(value[field], kind), (name, field)
    return value


def test_text_embeddings_inference_can_read_each_folder(export):
    """The fields that its router and its backend read; there is no binary here."""
    source = export.source
    questions, passages = source.encoder.question_tokens, source.passage_tokens
    lengths = {"": passages} if source.encoder.tied else {"query": questions, "passage": passages}
    for name, longest in lengths.items():
        folder = export.folder / "model" / name
        model = fields(folder, "config.json", architectures=list, model_type=str, max_position_embeddings=int)
        fields(folder, "config.json", hidden_size=int, pad_token_id=int)
        assert not model["architectures"][0].endswith(("Classification", "MaskedLM"))
        pooling = fields(folder, "1_Pooling/config.json", pooling_mode_cls_token=bool, pooling_mode_mean_tokens=bool)
        assert pooling[f"pooling_mode_{source.encoder.pooling}_token" + "s" * (source.encoder.pooling == "mean")]
        assert fields(folder, "sentence_bert_config.json", max_seq_length=int)["max_seq_length"] == longest
        prompts = fields(folder, "config_sentence_transformers.json").get("prompts", {})
        assert all(isinstance(text, str) for text in prompts.values())
        modules = json.loads((folder / "modules.json").read_text())
        known = {f"sentence_transformers.models.{kind}" for kind in ("Transformer", "Pooling", "Dense", "Normalize")}
        assert {module["type"] for module in modules} <= known
        if source.encoder.projection:
            dense = fields(folder, "2_Dense/config.json", in_features=int, out_features=int, bias=bool)
            assert dense["activation_function"] == "torch.nn.modules.activation.Tanh"


def test_the_page_has_the_requests_of_its_model(export):
    text = (export.folder / "README.md").read_text()
    bodies = [json.loads(shlex.split(line)[-1]) for line in re.findall(r"^curl .*$", text, re.MULTILINE)]
    encoder = export.source.encoder
    assert [body["inputs"] for body in bodies] == [
        f"{encoder.question_prefix} {export.source.question}".strip(),
        f"{encoder.passage_prefix} the passage's text".strip(),
    ]
    assert {body.get("normalize", True) for body in bodies} == {encoder.normalise}
    folders = ["model"] if encoder.tied else ["model/query", "model/passage"]
    assert re.findall(r'-v "\$PWD/(.*?):/model"', text) == folders
    assert ("always normalises, gives other scores" in " ".join(text.split())) is not encoder.normalise


def test_a_title_is_one_text_with_its_passage_for_the_servers_tokenizer(export):
    """As its tokenizer reads it: special tokens in a text are special tokens."""
    from tokenizers import Tokenizer

    folder = export.folder / "model" / ("" if export.source.encoder.tied else "passage")
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    joined = re.findall(r"A passage with a title is `title(.*?)text`", (export.folder / "README.md").read_text())
    pair = tokenizer.encode("alpha beta", "gamma delta").ids
    assert tokenizer.encode("alpha beta" + joined[0] + "gamma delta").ids == pair


# ONNX


@pytest.mark.slow
def test_openvino_gives_our_vectors(export):
    openvino = pytest.importorskip("openvino", reason="an extra of the benchmarks")
    source, texts = export.source, read_sample(export.source, 30)
    graph = export.folder / "onnx" / ("model.onnx" if source.encoder.tied else "query.onnx")
    compiled = openvino.Core().compile_model(graph, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    for row, expected in zip(
        texts.question_rows,
        encode_rows(cut_encoders(source.checkpoint, source.dimension)[0], texts.question_rows, 999),
        strict=True,
    ):
        inputs = {"input_ids": row[None].astype(np.int64), "attention_mask": np.ones((1, len(row)), np.int64)}
        np.testing.assert_allclose(compiled(inputs)[0][0], expected, atol=1e-4)


def test_a_graph_gives_torchs_vectors_in_any_batch(export):
    source, texts = export.source, read_sample(export.source, EVERY)
    rows_of = {"query": texts.question_rows, "passage": texts.passage_rows}
    for (side, rows), encoder in zip(rows_of.items(), cut_encoders(source.checkpoint, source.dimension), strict=True):
        graph = session(export.folder / "onnx" / ("model.onnx" if source.encoder.tied else f"{side}.onnx"))
        assert len({len(row) for row in rows}) >= 3
        expected = encode_rows(encoder, rows, 999)
        assert_close(padded(graph, rows), expected)
        assert_close(np.concatenate([padded(graph, [row]) for row in rows]), expected)


def test_the_measures_are_saved_next_to_the_graphs(export):
    figures = json.loads((export.folder / "onnx" / "onnx.json").read_text())
    names = ["model"] if export.source.encoder.tied else ["query", "passage"]
    assert [*figures["files"]] == [f"{name}{end}" for name in names for end in (".onnx", ".int8.onnx")]
    for name in names:
        assert 0 < figures["files"][f"{name}.onnx"]["greatest_difference"] < 1e-5
        small = figures["files"][f"{name}.int8.onnx"]
        assert 0.9 < small["least_cosine"] < small["mean_cosine"] < 1 - 1e-6
    assert figures["retrieval"]["questions"] == 20
    assert figures["retrieval"]["float32"] == figures["retrieval"]["torch"]


def test_a_graph_with_different_vectors_is_refused(bert):
    path, rows = bert.folder / "onnx" / "model.onnx", read_sample(bert.source, 20).question_rows
    expected = encode_rows(load_encoders(bert.source.checkpoint)[0], rows, 999)
    assert checked(path, rows, expected) < 1e-5
    expected[3] *= 1 + 2e-4
    with pytest.raises(InputError, match=r"^model.onnx: its vectors differ from torch's by 2.0e-04 of their norm$"):
        checked(path, rows, expected)
    expected[3] = np.nan
    with pytest.raises(InputError, match="by nan"):
        checked(path, rows, expected)


@pytest.mark.slow
def test_equal_models_give_equal_bytes_without_this_machines_paths(bert, tmp_path):
    write_graph(load_encoders(bert.source.checkpoint)[0], tmp_path / "model.onnx")
    quantise(tmp_path / "model.onnx", tmp_path / "model.int8.onnx")
    for name in ("model.onnx", "model.int8.onnx"):
        data = (tmp_path / name).read_bytes()
        assert data == (bert.folder / "onnx" / name).read_bytes()
        for part in (str(Path(__file__).parents[3]), str(tmp_path), ".py", sys.prefix):
            assert part.encode() not in data


# Vectors


def test_the_table_has_the_vectors_of_the_index_in_row_groups(bert, monkeypatch, tmp_path):
    monkeypatch.setattr("pipeline.export.vectors.ROWS", 50)
    for kind in ("float32", "float16"):
        write_vectors(bert.source.served_collection, bert.source.served, tmp_path / kind, kind, silent)
        path = tmp_path / kind / "passages.parquet"
        with parquet_file(path) as file:
            assert [file.metadata.row_group(n).num_rows for n in range(file.num_row_groups)] == [50, 50, 20]
        table = read_parquet(path)
        np.testing.assert_array_equal(
            np.array(table["vector"].to_pylist(), np.float32), open_index(bert.source.served).vectors_ND
        )
    assert table["id"].to_pylist() == passage_ids(bert.source.collection)
    sizes = [(tmp_path / kind / "passages.parquet").stat().st_size for kind in ("float32", "float16")]
    assert sizes[1] < sizes[0]


def test_vectors_of_other_passages_are_refused(bert, tmp_path):
    other = write_collection(tmp_path / "other", [("p0", "d0", "", "one")], [], [])
    with pytest.raises(InputError, match=r"120 vectors for 1 passages; "):
        write_vectors(other, bert.source.served, tmp_path / "out", "float32", silent)


def test_names_of_metadata_do_not_collide():
    assert column_names(["year", "ID", "metadata_id", "vector"]) == [
        "year",
        "metadata_metadata_ID",
        "metadata_id",
        "metadata_vector",
    ]


# Measures, runs, index


def evaluated_splits(source: Source) -> dict[str, Any]:
    return json.loads((source.collection.parent / "evaluate" / "metrics.json").read_text())["splits"]


def test_retrieval_measures_equal_those_of_the_evaluation(bert):
    encoder = load_encoders(bert.source.checkpoint)[0]

    def encode(rows: Sequence[np.ndarray]) -> np.ndarray:
        return encode_rows(encoder, rows, 999)

    encoders = {"torch": encode, "backwards": lambda rows: -encode(rows)}
    measured = onnx_files.retrieval_measures(bert.source, encoders, silent)
    assert measured is not None
    assert (measured["split"], measured["questions"]) == ("dev", 20)
    for name in onnx_files.SHOWN:
        known = evaluated_splits(bert.source)["dev"]["systems"]["stage1"][name]["mean"]
        assert measured["torch"][name] == pytest.approx(known, abs=1e-6)
        assert measured["torch"][name] > measured["backwards"][name]
    assert onnx_files.retrieval_measures(replace(bert.source, index=None), encoders, silent) is None


def test_measures_of_the_runs_equal_those_of_the_evaluation(bert):
    import ir_measures

    folder = bert.folder / "run"
    names = {"run": "stage1", "bm25": "bm25", "fusion": "fusion"}
    copies = {f"{name}{end}" for name in names for end in (".trec", ".parquet")}
    assert {path.name for path in folder.iterdir()} == {*copies, "qrels.dev.trec", "qrels.test.trec"}
    for split, part in evaluated_splits(bert.source).items():
        judged = [*ir_measures.read_trec_qrels(str(folder / f"qrels.{split}.trec"))]
        for name, system in names.items():
            run = [*ir_measures.read_trec_run(str(folder / f"{name}.trec"))]
            expected = {ir_measures.parse_measure(measure): known for measure, known in part["systems"][system].items()}
            means = ir_measures.calc_aggregate([*expected], judged, run)
            for measure, known in expected.items():
                assert means[measure] == pytest.approx(known["mean"], abs=1e-6)


def test_copied_files_are_independent_of_the_store(bert):
    for name in ("index", "docid"):
        copied = bert.folder / "index" / name
        assert copied.read_bytes() == (bert.source.served / name).read_bytes()
        assert copied.stat().st_nlink == 1
        assert not copied.is_symlink()


def test_positions_are_evenly_spread():
    assert spread(3, 200).tolist() == [0, 1, 2]
    assert spread(1000, 4).tolist() == [0, 333, 666, 999]
    assert spread(0, 4).tolist() == []


# The page


def test_the_code_of_the_page_runs_and_its_vectors_agree(export, monkeypatch, capsys):
    monkeypatch.chdir(export.folder)
    assert len(export.blocks) == 7
    known: dict[str, Any] = {}
    for block in export.blocks:
        if "pyserini" not in block:
            exec(block, known)
    for name, least in (("vectors", 0.999999), ("question_vectors", 0.9)):
        actual, expected = torch.as_tensor(known[name]), torch.from_numpy(known["questions"])
        assert torch.nn.functional.cosine_similarity(actual, expected).item() > least
    assert known["passage_vectors"].shape == known["passages"].shape
    ids, index = passage_ids(export.source.collection), open_index(export.source.index)
    rows, _ = top_k(known["questions"], index, 5)
    assert str([ids[row] for row in rows[0]]) in capsys.readouterr().out


@pytest.mark.parametrize("parts", [["model"], ["onnx"], ["index"], ["run"], ["vectors"], ["onnx", "index"]])
def test_the_page_describes_only_the_exported_parts(bert, tmp_path, parts, monkeypatch):
    for part in parts:
        (tmp_path / part).symlink_to(bert.folder / part)
    write_page(bert.source, tmp_path, parts, None, bert.figures if "onnx" in parts else None)
    assert re.findall(r"^\| `(.*?)/` \|", (tmp_path / "README.md").read_text(), flags=re.MULTILINE) == parts
    monkeypatch.chdir(tmp_path)
    known: dict[str, Any] = {}
    for block in blocks(tmp_path):
        if "pyserini" not in block:
            exec(block, known)


@pytest.mark.slow
def test_all_code_of_the_page_runs_also_with_pyserini(bert):
    code = "\n".join(["from pipeline.bm25 import java", "java.start_java()", *bert.blocks])
    variables = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
    command = [sys.executable, "-c", code]
    completed = subprocess.run(command, cwd=bert.folder, env=variables, capture_output=True, text=True)
    assert completed.returncode == 0, completed.stderr
    by_faiss, by_pyserini = (line for line in completed.stdout.splitlines() if line.startswith("['p"))
    assert by_faiss == by_pyserini
