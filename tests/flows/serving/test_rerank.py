"""The first passages of every list are scored again by a cross-encoder, the run's own or an existing one."""

import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from answering import artifact, make_store
from crossed import make_existing
from fastapi.testclient import TestClient
from sentence_transformers import CrossEncoder
from typer.testing import CliRunner

from artifacts.runs import SERIES, record_run
from artifacts.store import Store
from flows.cli.main import app
from flows.cli.serve import newer_session
from flows.runs.find_reranker import find_reranker, warning_of
from flows.serving.ask import ask, check_question
from flows.serving.engine import newest_engine
from flows.serving.metrics import ServerMetrics
from flows.serving.question import Question, Session
from flows.serving.reranker import RerankerSource
from flows.serving.server import application
from flows.serving.service import CurrentService, open_service
from flows.serving.session import open_session
from pipeline.cross_encoder.lengths import Lengths, write_lengths
from pipeline.cross_encoder.rerank import STEP
from pipeline.data.filter import Where
from pipeline.data.near_duplicates.groups import Groups
from pipeline.errors import InputError
from pipeline.runtime import hub

pytestmark = pytest.mark.usefixtures("kept_searchers")
WORDS = [f"word{n}" for n in range(12)]
RNG = np.random.default_rng(5)
TEXTS = [" ".join(RNG.choice(WORDS, 6)) for _ in range(40)]
PASSAGES = [(f"p{n}", f"d{n}", "title word3" if n % 3 else "", text) for n, text in enumerate(TEXTS)]
VECTORS = RNG.normal(size=(40, 4)).astype(np.float32)
QUESTIONS = ["word1 word2", "word3", "word4 word5 word6", "word0 absent"]
WAYS = ("dense", "bm25", "fusion")
EVEN = np.arange(40) % 2 == 0


class Encoder:
    """Each question has its own random vector."""

    encoder = SimpleNamespace(dimension=4)

    def rows(self, texts) -> list[np.ndarray]:
        return [np.random.default_rng(sum(text.encode())).normal(size=4).astype(np.float32) for text in texts]

    def vectors(self, rows, together) -> np.ndarray:
        return np.stack(rows)

    def is_steady(self) -> bool:
        return True

    def cut(self, text) -> str:
        return ""


@pytest.fixture(scope="module", autouse=True)
def encoder() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pipeline.dense.question_encoder.question_encoder", lambda *_: Encoder())
        patch.setattr(Where, "rows", lambda where, expression: EVEN if expression == "even" else np.ones(40, bool))
        yield


@pytest.fixture(scope="module")
def models(tmp_path_factory) -> list[Path]:
    """Three existing cross-encoders; the last two also say which lengths they read, as those of a run do."""
    folder = tmp_path_factory.mktemp("models")
    made = [make_existing(folder / str(seed), ["title", *WORDS], seed) for seed in range(3)]
    for one in made[1:]:
        write_lengths(Lengths(8, 4, 40), one)
    return made


@pytest.fixture(scope="module")
def store(models, tmp_path_factory) -> Store:
    """Of a run with two cross-encoders, an ensemble."""
    own = {"cross-encoder": models[1], "cross-encoder-2": models[2]}
    root = tmp_path_factory.mktemp("reranking") / "store"
    return make_store(root, PASSAGES, "word1", VECTORS, depth=30, cross_encoders=own)


@pytest.fixture(scope="module")
def plain(tmp_path_factory) -> Store:
    """Of a run without a cross-encoder."""
    return make_store(tmp_path_factory.mktemp("plain") / "store", PASSAGES, "word1", VECTORS, depth=30)


@pytest.fixture(scope="module")
def session(store, models) -> Iterator[Session]:
    engine = newest_engine(store, None)
    source = find_reranker(engine, 20, str(models[0]))
    with open_session(engine, engine.ways(), often=True, reranker=source) as opened:
        yield opened


@pytest.fixture(scope="module")
def scores(models) -> Callable[[str], np.ndarray]:
    """scores(question): of all passages, by sentence-transformers."""
    model = CrossEncoder(str(models[0]), device="cpu")
    return lambda question: model.predict([(question, f"{title} {text}") for _, _, title, text in PASSAGES])


@pytest.mark.parametrize("where", [None, "even"])
@pytest.mark.parametrize("by", WAYS)
def test_the_first_passages_have_the_order_and_scores_of_the_cross_encoder(session, scores, by, where) -> None:
    for text in QUESTIONS:
        (before,) = ask(session, [Question(text, 40, by, where)])
        (after,) = ask(session, [Question(text, 40, by, where, rerank=7)])
        first = [int(answer.passage_id[1:]) for answer in before[:7]]
        expected = sorted(first, key=lambda row: -scores(text)[row])
        assert [answer.passage_id for answer in after[:7]] == [f"p{row}" for row in expected]
        assert [answer.score for answer in after[:7]] == pytest.approx(scores(text)[expected].tolist(), abs=2e-5)
        assert [answer.passage_id for answer in after[7:]] == [answer.passage_id for answer in before[7:]]
        lowest = min((answer.score for answer in after[:7]), default=0)
        beyond = [lowest - STEP * n for n in range(1, len(after) - 6)]
        assert [answer.score for answer in after[7:]] == pytest.approx(beyond)
        assert [answer.reranked for answer in after] == [n < 7 for n in range(len(after))]
        assert not any(answer.reranked for answer in before)
        assert [answer.rank for answer in after] == [*range(1, len(after) + 1)]


def test_few_documents_are_the_first_of_many(session) -> None:
    """Passages beyond those that a few documents need are scored too."""
    for by in WAYS:
        (many,) = ask(session, [Question(QUESTIONS[0], 40, by, rerank=20)])
        assert ask(session, [Question(QUESTIONS[0], 2, by, rerank=20)]) == [many[:2]]


def test_a_question_has_the_same_answers_alone_and_among_others(session) -> None:
    questions = [
        Question(text, k, by, where, number)
        for text in QUESTIONS
        for by in WAYS
        for where in (None, "even")
        for k, number in ((1, 20), (5, 3), (40, 20), (4, 0))
    ]
    together = ask(session, questions)
    for question, answers in [*zip(questions, together, strict=True)][::5]:
        assert ask(session, [question]) == [answers]
    assert ask(session, questions[::-1]) == together[::-1]


def test_of_almost_equal_passages_the_one_with_the_best_new_score_is_shown(session, scores) -> None:
    first = [int(answer.passage_id[1:]) for answer in ask(session, [Question("word3", 10, "dense")])[0]]
    near = replace(session, near_duplicates=Groups(np.array(sorted(first)), np.full(10, min(first))))
    ((best, *_),) = ask(near, [Question("word3", 1, "dense", rerank=10)])
    assert best.passage_id == f"p{max(first, key=lambda row: scores('word3')[row])}"
    assert best.almost_equal_count == 9


@pytest.mark.parametrize("by", WAYS)
def test_a_document_has_the_passage_with_the_best_new_score(by, models, scores, tmp_path) -> None:
    """Four documents of ten passages each."""
    passages = [
        (f"d{n // 10}#{n % 10}", "book", title, text, f"d{n // 10}") for n, (*_, title, text) in enumerate(PASSAGES)
    ]
    engine = newest_engine(make_store(tmp_path / "store", passages, "word1", VECTORS, depth=40), None, by)
    source = RerankerSource((models[0],), "own", 40)
    with open_session(engine, reranker=source) as opened:
        (answers,) = ask(opened, [Question("word3", 4, by, rerank=40)])
        (before,) = ask(opened, [Question("word3", 4, by)])
    found = [(answer.doc_id, answer.passage_id) for answer in answers]
    allowed = {n for n, text in enumerate(TEXTS) if "word3" in text.split() or PASSAGES[n][2]}
    rows = range(40) if by != "bm25" else sorted(allowed)
    best = {f"d{n // 10}": f"d{n // 10}#{n % 10}" for n in sorted(rows, key=lambda n: scores("word3")[n])}
    expected = [*best.items()]
    order = sorted(best, key=lambda name: -max(scores("word3")[n] for n in rows if n // 10 == int(name[1:])))
    assert found == [(name, dict(expected)[name]) for name in order]
    assert {answer.doc_id for answer in before} == {answer.doc_id for answer in answers}


def test_the_runs_own_cross_encoders_score_together(store, models) -> None:
    engine = newest_engine(store, None, "dense")
    source = find_reranker(engine, 5, None)
    assert source == RerankerSource(source.folders, "cross-encoder, cross-encoder-2", 5, engine.run)
    with open_session(engine, reranker=source) as opened:
        (answers,) = ask(opened, [Question("word3", 5, "dense", rerank=5)])
    pairs = [("word3", f"{answer.title} {answer.text}") for answer in answers]
    expected = np.mean([CrossEncoder(str(model), device="cpu").predict(pairs) for model in models[1:]], axis=0)
    assert [answer.score for answer in answers] == pytest.approx(expected.tolist(), abs=2e-5)


def test_an_update_is_reranked_by_the_cross_encoders_that_were_trained_before(store, tmp_path) -> None:
    copy = Store(Path(shutil.copytree(store.root, tmp_path / "store")))
    trained = newest_engine(copy, None, "dense")
    nodes = {node: ref for node, ref in trained.run.nodes.items() if ref.stage != "cross_encoder"}
    record_run(copy, trained.run.name, nodes, {**trained.run.details, SERIES: trained.run.created})
    update = newest_engine(copy, None, "dense")
    source = find_reranker(update, 5, None)
    assert (update.run.nodes, source.run, source.name) == (nodes, trained.run, "cross-encoder, cross-encoder-2")
    with open_session(update, reranker=source) as opened:
        (answers,) = ask(opened, [Question("word3", 5, "dense", rerank=5)])
    assert all(answer.reranked for answer in answers)


def test_a_damaged_cross_encoder_is_reported(store, tmp_path) -> None:
    copy = Store(Path(shutil.copytree(store.root, tmp_path / "store")))
    engine = newest_engine(copy, None, "bm25")
    (artifact(copy, "cross-encoder-2") / "model.safetensors").write_bytes(b"x")
    with (
        pytest.raises(InputError, match=r"cross-encoder-2 .*model.safetensors"),
        open_session(engine, reranker=find_reranker(engine, 5, None)),
    ):
        pass
    shutil.rmtree(artifact(copy, "cross-encoder-2"))
    with pytest.raises(InputError, match="the run of one has lost cross-encoder-2; `cocondenser run one` builds it"):
        find_reranker(engine, 5, None)


@pytest.mark.parametrize("number", [-1, 21])
def test_another_number_of_passages_is_refused(number, session, plain) -> None:
    line = "the minimum is 0, which" if number < 0 else r"rerank is 21; the maximum is 20 passages \(--rerank\)"
    with pytest.raises(InputError, match=line):
        check_question(session, Question("x", 1, "dense", rerank=number))


def test_what_cannot_rerank_is_refused_before_anything_is_loaded(store, plain, models, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(hub, "reachable", lambda seconds: False)
    monkeypatch.setattr("flows.serving.session.open_session", None)
    bi_encoder = shutil.copytree(models[0], tmp_path / "bi")
    config = json.loads((bi_encoder / "config.json").read_text())
    (bi_encoder / "config.json").write_text(json.dumps({**config, "architectures": ["BertModel"]}))
    untokenized = Path(shutil.copytree(models[0], tmp_path / "untokenized"))
    (untokenized / "tokenizer.json").unlink()
    for arguments, line in {
        ("--rerank", "0"): "--rerank 0: must be from 1 to 1,000 passages",
        ("--rerank", "1001"): "--rerank 1,001: must be from 1 to 1,000 passages",
        ("--reranker", str(models[0])): "--reranker: needs --rerank N, the number of passages that it scores again",
        ("--rerank", "5"): "--rerank: the run of one has no cross-encoder; --reranker DIR takes an existing one, and "
        "`cocondenser run one --set rerank.depth=100 --set 'rerank.splits=[dev]'` trains one",
        ("--rerank", "5", "--reranker", "./none"): "--reranker ./none: no such folder; a name on the Hugging Face hub",
        ("--rerank", "5", "--reranker", "a/none"): "model a/none: no such folder, and not on this machine: `hf",
        ("--rerank", "5", "--reranker", str(bi_encoder)): f"--reranker: {bi_encoder}/config.json: not a classifier of "
        "one label (BertModel, 1 labels); name a cross-encoder, as sentence-transformers stores one",
        ("--rerank", "5", "--reranker", str(untokenized)): f"--reranker: {untokenized}: has no tokenizer: ",
        ("--rerank", "5", "--reranker", str(plain.root)): f"--reranker: {plain.root}/config.json: missing",
    }.items():
        for command in (["search", "x"], ["serve-search"]):
            ended = CliRunner().invoke(app, [*command, *arguments, "--store", str(plain.root)])
            assert isinstance(ended.exception, InputError), ended
            assert str(ended.exception).startswith(line)
            assert "\n" not in str(ended.exception)


def test_the_command_shows_new_scores_and_that_they_are_new(store, models) -> None:
    arguments = ["search", "word3", "--by", "dense", "--store", str(store.root), "--rerank", "3"]
    as_json = CliRunner().invoke(app, [*arguments, "--json"])
    result = json.loads(as_json.stdout)
    assert result["rerank"] == 3
    assert [answer["reranked"] for answer in result["answers"]] == [True] * 3 + [False] * 2
    shown = CliRunner().invoke(app, [*arguments, "--reranker", str(models[0])]).stdout
    assert shown.startswith(f"one, dense, the first 3 passages reranked by {models[0]}\n")
    assert [line.endswith(" reranked") for line in shown.splitlines() if line[:4].strip().isdigit()] == [
        *[True] * 3,
        *[False] * 2,
    ]


def test_a_server_reranks_at_most_as_many_passages_as_it_was_started_with(session, models) -> None:
    with open_service(session, ServerMetrics()) as service:
        client = TestClient(application(CurrentService(service)), base_url="http://localhost")
        about = client.get("/api").json()
        assert (about["rerank"], about["reranker"]) == (20, str(models[0]))
        results = [
            client.get("/api/search", params={"q": "word3", "k": 30, "by": "dense", **n}).json() for n in NUMBERS
        ]
        assert [result["rerank"] for result in results] == [20, 3, 0]
        reranked = [sum(answer["reranked"] for answer in result["answers"]) for result in results]
        assert reranked == [20, 3, 0]
        refused = client.post("/api/search", json={"q": "word3", "rerank": 21})
        assert refused.status_code == 400
        assert refused.json()["error"] == "rerank is 21; the maximum is 20 passages (--rerank)"
        notices = client.get("/api/search", params={"q": "word1 " * 40, "k": 1}).json()["notices"]
        assert notices == ["question cut for the cross-encoder, tokens read of its 40: 16"]


NUMBERS = ({}, {"rerank": 3}, {"rerank": 0})


def test_a_newer_run_is_reranked_by_its_own_cross_encoder(store, session) -> None:
    older = SimpleNamespace(name="one", created="2020-01-01T00:00:00+00:00")
    now = SimpleNamespace(engine=SimpleNamespace(run=older))
    opening = newer_session(now, store, "bm25", 5)
    assert opening is not None
    with opening as newer:
        assert newer.reranking.name == "cross-encoder, cross-encoder-2"


def figures(reranked: float) -> dict:
    systems = {name: {"RR@10": {"mean": mean}} for name, mean in (("stage2", 0.5), ("rerank", reranked))}
    return {"dense": "stage2", "splits": {"dev": {"systems": systems}}}


LINE = "the cross-encoder is below the retriever on dev: MRR@10 0.400 reranked, {} without; search without --rerank"

ANSWERED = {name: {"hits@20": {"mean": mean}} for name, mean in (("stage2", 0.5), ("rerank", 0.4))}
ONLY_ANSWERS = {"dense": "stage2", "splits": {"dev": {"systems": {}, "answers": {"systems": ANSWERED}}}}


@pytest.mark.parametrize(
    ("metrics", "labelled", "line"),
    [
        (figures(0.5), [{"dev_RR@10": 0.1, "student_dev_RR@10": 0.2}], ""),
        (figures(0.4), [], LINE.format("0.500")),
        (ONLY_ANSWERS, [], LINE.replace("MRR@10", "hits@20").format("0.500")),
        ({"dense": "stage2", "splits": {}}, [{"dev_questions": 0}], ""),
        ({"dense": "stage2", "splits": {}}, [{"dev_RR@10": 0.4, "student_dev_RR@10": 0.41}], LINE.format("0.410")),
        ({"dense": "stage2", "splits": {}}, [{"dev_RR@10": 0.4, "student_dev_RR@10": 0.4}], ""),
    ],
)
def test_a_cross_encoder_below_the_retriever_on_dev_is_reported(metrics, labelled, line) -> None:
    found = warning_of(metrics, labelled)
    assert found.startswith(line)
    assert bool(found) == bool(line)
