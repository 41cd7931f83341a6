"""The stage `generate`: collections, interruptions, limits, the round trip, and no key in what is written."""

import json
import threading
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from adapted import ENCODER, Corpus, make_corpus
from language_models import KEY, Reply, chat, config, server, write_causal, write_t5
from searched import write_collection

from artifacts import objects
from pipeline.data.collection import read_qrels, read_queries
from pipeline.data.near_duplicates.groups import FILE, Groups, write_groups
from pipeline.errors import InputError
from pipeline.generate.generate import generate, missing, unread
from pipeline.language_model import endpoint
from pipeline.notices import read_notices
from pipeline.runtime.work import Metrics, Work

TEXTS = {
    "p0": "A ledger lists the accounts of a firm.",
    "p1": "The harbour is closed in winter.",
    "p2": "Violins need spruce and maple.",
    "p3": "A glacier moves a few metres in a year.",
}
QUESTIONS = {
    "ledger": "What does a ledger list?",
    "harbour": "When is the harbour closed?",
    "Violins": "What wood do violins need?",
    "glacier": "How far does a glacier move?",
}


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoint, "FIRST_WAIT", 0.01)
    monkeypatch.setenv("OPENAI_API_KEY", KEY)


def collection(folder: Path, texts: dict[str, str] = TEXTS, **more) -> Path:
    queries = [("q0", "train", "accounts"), ("q1", "dev", "winter in port"), ("q2", "test", "Wood of violins")]
    judged = [("train", "q0", "p0", 1), ("dev", "q1", "p1", 1), ("test", "q2", "p2", 1)]
    passages = [(key, key, "", text) for key, text in texts.items()]
    return write_collection(folder, passages, queries, judged)


def knowing(body: dict) -> Reply:
    """The question of the passage that the request shows."""
    text = body["messages"][-1]["content"]
    return chat(next((question for word, question in QUESTIONS.items() if word in text), ""), 100, 10)


def run(given: Path, work: Work, address: str, **fields) -> Metrics:
    settings = config(endpoint=address, model="tiny", **fields)
    return generate(settings, given, None, None, None, work)


def questions_of(out: Path) -> dict[str, str]:
    return {query.query_id: query.text for query in read_queries(out, ["train"])}


def test_the_artifact_is_a_collection_with_the_new_questions(tmp_path: Path, work) -> None:
    done = work()
    with server(knowing) as running:
        price = {"input": 10, "output": 100}
        metrics = run(collection(tmp_path / "c"), done, running.address, price_per_million_tokens=price)
    assert questions_of(done.out) == {
        "q0": "accounts",
        **{f"p{n}?question:0": text for n, text in enumerate(QUESTIONS.values())},
    }
    assert read_qrels(done.out, ["train"])["p3?question:0"] == {"p3": 1}
    assert read_qrels(done.out, ["dev", "test"]) == read_qrels(tmp_path / "c", ["dev", "test"])
    assert (done.out / "passages.parquet").read_bytes() == (tmp_path / "c" / "passages.parquet").read_bytes()
    counts = {"passages": 4, "queries": 7, "train_queries": 5, "train_relevant": 5, "requests": 4, "input_tokens": 400}
    assert counts.items() <= metrics.items()
    assert metrics["cost"] == pytest.approx((10 * 400 + 100 * 40) / 1e6)
    assert json.loads((done.out / "ingest.json").read_text())["train_relevant"] == 5


def test_almost_equal_passages_of_the_collection_stay_known(tmp_path: Path, work) -> None:
    """Else they would be hard negatives of the new questions."""
    given, done = collection(tmp_path / "c"), work()
    write_groups(given, Groups(np.array([0, 2]), np.array([0, 0])))
    with server(knowing) as running:
        run(given, done, running.address)
    assert (done.out / FILE).read_bytes() == (given / FILE).read_bytes()


def test_the_collections_own_training_questions_may_be_left_out(tmp_path: Path, work) -> None:
    done = work()
    with server(knowing) as running:
        run(collection(tmp_path / "c"), done, running.address, keep_questions=False)
    assert "q0" not in questions_of(done.out)
    assert "q0" not in read_qrels(done.out)
    assert {query.query_id for query in read_queries(done.out, ["dev", "test"])} == {"q1", "q2"}


def test_nothing_is_asked_twice_and_new_files_cost_only_themselves(tmp_path: Path, work) -> None:
    first, again, more = (replace(work(name), kept=tmp_path / "kept") for name in ("first", "again", "more"))
    given = collection(tmp_path / "c")
    with server(knowing) as running:
        run(given, first, running.address)
        assert run(given, again, running.address, concurrent=1)["requests"] == 0
        assert objects.seal(first.out)[0] == objects.seal(again.out)[0]
        assert len(running.requests) == 4
        new = collection(tmp_path / "new", {"p9": "A red glacier.", **TEXTS})
        assert run(new, more, running.address)["requests"] == 1
        assert "red" in running.texts()[-1]


def test_a_run_that_fails_keeps_its_answers(tmp_path: Path, work) -> None:
    stopped, again = (replace(work(name), kept=tmp_path / "kept") for name in ("stopped", "again"))
    given, broken = collection(tmp_path / "c"), threading.Event()

    def answer(body: dict) -> Reply:
        if broken.is_set() or "glacier" not in body["messages"][-1]["content"]:
            return knowing(body)
        return Reply(403, b"")

    with server(answer) as running:
        with pytest.raises(InputError, match="403"):
            run(given, stopped, running.address, concurrent=1)
        assert len(running.requests) == 4
        broken.set()
        assert run(given, again, running.address)["requests"] == 1
        assert len(running.requests) == 5


def test_requests_being_answered_when_another_fails_are_stored(tmp_path: Path, work) -> None:
    stopped, again = (replace(work(name), kept=tmp_path / "kept") for name in ("stopped", "again"))
    failing = [True]

    def answer(body: dict) -> Reply:
        text = body["messages"][-1]["content"]
        if failing and "harbour" in text:
            return Reply(403, b"")
        return replace(knowing(body), seconds=0.2 if failing and "ledger" not in text else 0.0)

    with server(answer) as running:
        with pytest.raises(InputError, match="403"):
            run(collection(tmp_path / "c"), stopped, running.address)
        failing.clear()
        assert run(tmp_path / "c", again, running.address)["requests"] == 1


def test_an_interruption_keeps_the_answers(tmp_path: Path, work) -> None:
    def interrupt(done: int, *rest) -> None:
        if done == 2:
            raise KeyboardInterrupt

    kept = tmp_path / "kept"
    with server(knowing) as running:
        with pytest.raises(KeyboardInterrupt):
            run(collection(tmp_path / "c"), replace(work("a", interrupt), kept=kept), running.address, concurrent=1)
        assert run(tmp_path / "c", replace(work("b"), kept=kept), running.address)["requests"] == 2
        assert len(running.requests) == 4


def test_the_limit_of_the_cost_counts_requests_that_are_being_answered(tmp_path: Path, work) -> None:
    """Else it is passed by up to `concurrent` requests."""
    price = {"input": 10_000, "output": 0}  # 1 for each request
    with server(knowing) as running:
        with pytest.raises(
            InputError, match=r"max_cost: 2 is reached after 2 of 4 requests, which cost 2; the answers"
        ):
            run(
                collection(tmp_path / "c"),
                work("paid"),
                running.address,
                concurrent=4,
                price_per_million_tokens=price,
                max_cost=2,
            )
        assert len(running.requests) == 2


def test_a_request_that_fails_is_left_out_and_named_but_not_many(tmp_path: Path, work) -> None:
    def refusing(body: dict) -> Reply:
        text = body["messages"][-1]["content"]
        return Reply(400, b'{"error": "not allowed"}') if "harbour" in text else knowing(body)

    done = work()
    with server(refusing) as running:
        metrics = run(collection(tmp_path / "c"), done, running.address)
    assert metrics["requests_failed"] == 1
    assert "p1?question:0" not in questions_of(done.out)
    assert read_notices(metrics)[0] == "3 questions written for 3 passages, 4 requests sent"
    (line,) = (line for line in read_notices(metrics) if "without an answer" in line)
    assert "not allowed" in line
    with server([Reply(400, b"no")]) as running, pytest.raises(InputError, match="1 of 1 requests failed"):
        run(collection(tmp_path / "d"), work("none"), running.address)
    assert len(running.requests) == 1


def test_limits_are_kept(tmp_path: Path, work) -> None:
    given, price = collection(tmp_path / "c"), {"input": 10_000, "output": 0}  # 1 for each request
    with server(knowing) as running:
        with pytest.raises(InputError, match=r"max_requests: 3, but 4 requests have no answer yet"):
            run(given, work("few"), running.address, max_requests=3)
        assert running.requests == []
        paid, more = (replace(work(name), kept=tmp_path / "kept") for name in ("paid", "more"))
        with pytest.raises(InputError, match=r"max_cost: 2 is reached after 2 of 4 requests"):
            run(given, paid, running.address, concurrent=1, price_per_million_tokens=price, max_cost=2)
        assert run(given, more, running.address, price_per_million_tokens=price, max_cost=2)["cost"] == 2
        assert len(running.requests) == 4


def test_questions_of_several_passages_or_of_the_collection_are_left_out(tmp_path: Path, work) -> None:
    same = {"ledger": "wood of  VIOLINS", "harbour": "What is this about?", "Violins": "What is this about?"}

    def answer(body: dict) -> Reply:
        text = body["messages"][-1]["content"]
        return chat(next((question for word, question in same.items() if word in text), "How far does it move?"))

    done = work()
    with server(answer) as running:
        metrics = run(collection(tmp_path / "c"), done, running.address)
    assert {
        "left_out_several_passages": 1,
        "left_out_asked_already": 1,
        "generated_questions": 1,
    }.items() <= metrics.items()
    assert list(questions_of(done.out)) == ["q0", "p3?question:0"]
    assert any("that the collection has already: 1 (first: wood of VIOLINS)" in line for line in read_notices(metrics))


def test_where_documents_are_judged_a_question_is_answered_by_its_passages_document(tmp_path: Path, work) -> None:
    passages = [(f"d{n // 2}#{n % 2}", f"d{n // 2}", "", text, f"d{n // 2}") for n, text in enumerate(TEXTS.values())]
    given = write_collection(tmp_path / "c", passages, [("q", "test", "x")], [("test", "q", "d0", 1)])
    done = work()
    with server(knowing) as running:
        run(given, done, running.address)
    assert read_qrels(done.out, ["train"])["d1#0?question:0"] == {"d1": 1}


def test_no_usable_answer_is_one_line(tmp_path: Path, work) -> None:
    with (
        server([chat("<p>Hello</p>")]) as running,
        pytest.raises(InputError, match="no question is left of 4 answers") as raised,
    ):
        run(collection(tmp_path / "c"), work(), running.address)
    assert "4 with markup" in str(raised.value)


def test_the_key_is_nowhere(
    tmp_path: Path, work, capfd: pytest.CaptureFixture, caplog: pytest.LogCaptureFixture
) -> None:
    echoes = {"ledger": chat(f"What is {KEY} here?"), "harbour": Reply(400, f"Bearer {KEY}".encode())}

    def answer(body: dict) -> Reply:
        text = body["messages"][-1]["content"]
        return next((reply for word, reply in echoes.items() if word in text), None) or knowing(body)

    caplog.set_level(0)
    done = replace(work(), kept=tmp_path / "kept")
    with server(answer) as running:
        metrics = run(collection(tmp_path / "c"), done, running.address)
        assert running.requests[0][0]["authorization"].endswith(KEY)
    written = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert any(path.name == "answers.sqlite" for path in written)
    assert not [path for path in written if KEY.encode() in path.read_bytes()]
    queries = pq.read_table(done.out / "queries.parquet")["text"].to_pylist()
    assert not any(KEY in text for text in queries)
    assert KEY not in json.dumps(metrics)
    assert KEY not in "".join(capfd.readouterr()) + caplog.text


def test_an_unknown_host_is_one_line(tmp_path: Path, work) -> None:
    with pytest.raises(InputError, match=r"no-such-host\.invalid") as raised:
        run(collection(tmp_path / "c"), work(), "http://no-such-host.invalid/v1", attempts=1)
    assert "\n" not in str(raised.value)


def test_what_is_known_to_fail_is_known_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with server(knowing) as running:
        address = running.address
        assert missing(config(endpoint=address, model="m")) == []
        (tmp_path / "bad.jsonl").write_text("{}")
        (line,) = missing(config(endpoint=address, model="m", examples=tmp_path / "bad.jsonl"))
        assert "bad.jsonl:1" in line
        monkeypatch.setenv("OPENAI_API_KEY", "a key")
        (line,) = missing(config(endpoint=address, model="m"))
        assert "unusual characters" in line
    monkeypatch.delenv("OPENAI_API_KEY")
    (line,) = missing(config(endpoint=address, model="m"))
    assert f"{address} does not answer" in line


@pytest.mark.parametrize("kind", ["t5", "causal", pytest.param("child", marks=pytest.mark.slow)])
def test_a_local_model_writes_each_answer_once(tmp_path: Path, work, request: pytest.FixtureRequest, kind: str) -> None:
    if kind != "child":
        request.getfixturevalue("inline")
    folder = {"t5": write_t5, "causal": write_causal, "child": write_causal}[kind](tmp_path / kind)
    form = {"prompt": "passage"} if kind == "t5" else {}
    settings = config(checkpoint=folder, answer_tokens=8, kinds=("keywords",), questions=2, temperature=1.0, **form)
    words = ("red", "ledger", "harbour", "glacier", "orchard", "one", "of")
    texts = {f"p{n}": f"{word} {words[n - 1]} {words[n - 2]} the" for n, word in enumerate(words)}
    passages = [(key, key, "", text) for key, text in texts.items()]
    given = write_collection(tmp_path / "c", passages, [("q", "test", "x")], [("test", "q", "p0", 1)])
    first, again = (replace(work(name), kept=tmp_path / "kept") for name in ("first", "again"))
    metrics = generate(settings, given, None, None, None, first)
    assert metrics["requests"] == 7
    assert 0 < metrics["generated_questions"] <= 14
    assert generate(settings, given, None, None, None, again)["requests"] == 0
    assert objects.seal(first.out)[0] == objects.seal(again.out)[0]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    """Read-only."""
    return make_corpus(tmp_path_factory.mktemp("round-trip"))


@pytest.mark.parametrize("fuses", [True, False])
def test_the_round_trip_keeps_questions_that_find_their_passage(corpus: Corpus, work, inline, fuses: bool) -> None:
    """A passage's own first words find it, those of another passage do not."""
    rows = pq.read_table(corpus.collection / "passages.parquet").to_pylist()
    other = {row["text"]: rows[n - 30]["text"] for n, row in enumerate(rows) if n % 3 == 0}

    def answer(body: dict) -> Reply:
        shown = body["messages"][-1]["content"].split('"""')[1].strip().splitlines()[-1]
        words = other.get(shown, shown).replace(".", "").split()
        return chat(" ".join(words[:10]))

    model = (corpus.checkpoint, corpus.index) if fuses else (None, None)
    done = work()
    with server(answer) as running:
        settings = config(endpoint=running.address, model="m", round_trip_depth=1)
        metrics = generate(settings, corpus.collection, corpus.bm25, *model, done, encoder=ENCODER if fuses else None)
    kept = {query.query_id.partition("?")[0] for query in read_queries(done.out, ["train"])}
    own = {row["passage_id"] for n, row in enumerate(rows) if n % 3}
    foreign = {row["passage_id"] for n, row in enumerate(rows) if n % 3 == 0}
    assert len(kept & own) > 0.8 * len(own)
    assert not kept & foreign
    assert metrics["left_out_not_found"] >= 1
    assert metrics["generated_questions"] + metrics["left_out_not_found"] + metrics["left_out_several_passages"] <= 60


def test_the_gpu_is_held_for_a_local_model_and_for_the_round_trip_of_vectors_alone(
    corpus: Corpus, tmp_path: Path, work, inline
) -> None:
    turns: list[int] = []

    def turn() -> AbstractContextManager[None]:
        turns.append(len(running.requests))
        return nullcontext()

    def answer(body: dict) -> Reply:
        return chat(" ".join(body["messages"][-1]["content"].split('"""')[1].split()[-10:]))

    with server(answer) as running:
        settings = config(endpoint=running.address, model="m", passages=6)
        parts = (corpus.bm25, corpus.checkpoint, corpus.index)
        generate(settings, corpus.collection, *parts, replace(work("a"), gpu_turn=turn), encoder=ENCODER)
        assert turns == [6]
        generate(settings, corpus.collection, corpus.bm25, None, None, replace(work("b"), gpu_turn=turn))
    assert len(turns) == 1


def test_fields_that_change_no_question_are_in_no_key() -> None:
    settings = config(endpoint="http://localhost/v1", model="m")
    assert {"key_variable", "max_cost", "concurrent"} <= {*unread(settings)}
    assert {*unread(settings)} <= {*type(settings).model_fields}
