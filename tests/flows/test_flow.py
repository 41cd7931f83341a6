"""The checks that the flow runs between its stages."""

import re
import shlex
import shutil
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import small
import torch
from crossed import make_cross_encoder, make_roberta, wordpiece
from searched import write_collection

from artifacts.records import Ref
from artifacts.store import Store
from flows.dag import Node, nodes
from flows.graph import early_checks, preflight, run_nodes
from flows.graph.preflight import missing
from flows.graph.selection import up_to
from flows.recipes.recipe import resolve
from pipeline.data.collection import schemas, write_table
from pipeline.errors import InputError
from pipeline.modeling.model_files.model_config import model_config
from pipeline.modeling.model_files.sentence_transformers_files import Dense, Vector, write_vector

RERANK = "rerank={depth: 9, splits: [dev]}"
PSEUDO = (
    "pseudo_labels={depth: 20, positive_above: 0.3, negative_below: 0.3, positives: 1, negatives: 8}",
    "search.unjudged_train_questions=true",
    "cross_encoder.loss=pointwise",
)


TRAININGS = ("finetune", "cross_encoder", "soft_labels")


def collection(**metrics: int) -> Ref:
    return Ref("ingest", "key", "digest", "digest", Path("nowhere"), metrics)


def check_stages(name: str, refs: dict[str, Ref], dag: list[Node], *stages: str) -> None:
    """Runs only the checks of these stages' nodes."""
    early_checks.check(name, refs, [node for node in dag if node.stage in stages])


def check_trainings(ingest: Ref, dag: list[Node]) -> None:
    check_stages("ingest", {"ingest": ingest}, dag, *TRAININGS)


def test_without_training_questions_fine_tuning_fails_before_pre_training(tmp_path: Path) -> None:
    dag = nodes(resolve("tiny"))
    for counts in ({"test_queries": 3}, {"train_queries": 3, "train_qrels": 3, "train_relevant": 0}):
        with pytest.raises(InputError, match="stage1: the collection has no training questions"):
            check_trainings(collection(passages=5, **counts), dag)
    check_trainings(judged(tmp_path / "judged"), dag)
    check_trainings(collection(passages=5), up_to(dag, "cocondenser"))
    plain = ["condenser.budget=null", "cocondenser.budget=null"]
    with pytest.raises(InputError, match="`--until initial` stops before it"):
        check_trainings(collection(passages=5), nodes(resolve("tiny", plain)))


@pytest.mark.parametrize("copies", [2, 60, 100])
def test_copies_of_a_positive_leave_less_room_for_negatives(tmp_path: Path, copies: int) -> None:
    few = judged(tmp_path / "copied", copies=copies)
    room = 100 - copies
    check_trainings(few, up_to(nodes(resolve("tiny", [f"stage1.negatives_per_query={room}"])), "stage1"))
    with pytest.raises(InputError, match=f"{room + 1} is too many: .* only {room} of the 100 passages"):
        check_trainings(few, up_to(nodes(resolve("tiny", [f"stage1.negatives_per_query={room + 1}"])), "stage1"))


def test_missing_negatives_of_the_collection_are_reported(tmp_path: Path) -> None:
    dag = nodes(resolve("tiny", ["stage2.negatives_from=collection"]))
    ingest = judged(tmp_path / "judged")
    with pytest.raises(InputError, match=r"stage2\.negatives_from: the collection came without negatives"):
        check_trainings(ingest, dag)
    (ingest.path / "negatives.parquet").touch()
    check_trainings(ingest, dag)


def judged(folder: Path, *splits: str, copies: int = 1) -> Ref:
    """Two training questions with a judged passage that appears `copies` times, and one question per further split."""
    questions = [("q0", "train"), ("q1", "train"), *((f"q-{split}", split) for split in splits)]
    passages = [(f"p{n}", f"p{n}", "title", f"text {max(0, n + 1 - copies)}") for n in range(100)]
    queries = [(name, split, "question") for name, split in questions]
    path = write_collection(folder, passages, queries, [(split, name, "p0", 1) for name, split in questions])
    return replace(collection(train_relevant=2), path=path)


def test_data_missing_for_a_training_is_reported_before_pre_training(tmp_path: Path) -> None:
    few = judged(tmp_path / "few")
    scheduled = ["stage1.batch_order=abs_beam", "stage1.batch_queries=3"]
    with pytest.raises(InputError, match=r"stage1: batch_queries: 3 is too many, there are only 2 training pairs"):
        check_trainings(few, nodes(resolve("tiny", scheduled)))
    check_trainings(few, nodes(resolve("tiny", [scheduled[0], "stage1.batch_queries=2"])))
    twice = ["stage2.batch_order=abs_beam", "stage2.batch_queries=4", "stage2.mix_negatives=separate_epochs"]
    check_trainings(few, nodes(resolve("tiny", twice)))
    validated = nodes(resolve("tiny", ["stage2.validation.questions=5"]))
    with pytest.raises(InputError, match=r"stage2: .*qrels\.parquet: no dev question has a judged passage"):
        check_trainings(few, validated)
    check_trainings(judged(tmp_path / "with-dev", "dev"), validated)
    reranked = nodes(resolve("tiny", [RERANK, "cross_encoder.negatives_from=collection"]))
    with pytest.raises(InputError, match=r"cross_encoder\.negatives_from: the collection came without negatives"):
        check_trainings(few, reranked)


def test_a_fold_without_training_questions_is_reported_before_pre_training(tmp_path: Path) -> None:
    folded = nodes(resolve("tiny", ["stage2.loss=soft_labels", "cross_encoder.folds=3"]))
    with pytest.raises(InputError) as error:  # both training questions have the same words
        check_trainings(judged(tmp_path / "few"), folded)
    assert re.fullmatch(
        r"cross_encoder: folds: fold \d of 3 has none of the 2 training questions; take --set cross_encoder.folds=null",
        str(error.value),
    )


ADVISED = [
    ["stage1.negatives_per_query=200"],
    ["stage1.negatives_per_query=100", "stage2.negatives_per_query=300", "stage2.batch_queries=7"],
    ["stage1.batch_order=abs_beam", "stage1.batch_queries=30", "stage1.negatives_per_query=500"],
    ["stage2.validation={questions: 3, candidates: 500, keep: best}"],
    ["stage2.validation={questions: 3, candidates: 500, keep: best}", "stage2.negatives_per_query=100"],
    ["cross_encoder.negatives_per_query=101", RERANK],
    ["stage1.negatives_from=collection", "stage2.negatives_from=collection", "bm25.negatives_depth=7"],
    ["stage1.negatives_from=collection", "stage1.negative_depth=900", "stage1.negatives_per_query=400"],
    ["stage1.negatives_from=collection", "stage1.negative_depth=null"],
    ["cross_encoder.negatives_from=collection", RERANK],
    ["stage2.loss=soft_labels", "cross_encoder.folds=3", "cross_encoder.negatives_per_query=101"],
    [
        *("stage2.loss=soft_labels", "stage2.negatives_from=collection", "soft_labels.negatives_from=collection"),
        *("stage2.negative_depth=900", "soft_labels.negative_depth=900"),
    ],
]


@pytest.mark.parametrize(
    ("settings", "splits"),
    [*((settings, ["dev"]) for settings in ADVISED), (ADVISED[3], []), (ADVISED[4], [])],
    ids=str,
)
def test_the_advice_on_training_data_is_accepted(tmp_path: Path, splits, settings: list[str]) -> None:
    """One round of advice is enough, and the recipe accepts it too."""
    ingest = judged(tmp_path / "collection", *splits)
    with pytest.raises(InputError) as refused:
        check_trainings(ingest, nodes(resolve("tiny", settings)))
    words = shlex.split(str(refused.value).rpartition("take ")[2])
    assert words[0] == "--set"
    check_trainings(ingest, nodes(resolve("tiny", [*settings, *words[1::2]])))


@pytest.mark.parametrize("kind", ["pretraining", "collection"])
def test_batches_that_cannot_be_filled_are_reported_before_the_first_model(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Store, "check", lambda store, refs: None)  # these are not artifacts of a store
    tokens, _ = small.make(tmp_path, documents=3)
    refs = {"tokens": replace(collection(), path=tokens)}
    recipe = resolve("tiny", [f"cocondenser.corpus={kind}"])
    with pytest.raises(InputError) as refused:
        run_nodes.check_later_nodes("tokens", refs, up_to(nodes(recipe), "cocondenser"))
    *problems, advice = str(refused.value).splitlines()
    assert [line.split(":")[0].split(".")[0] for line in problems] == ["condenser", "cocondenser"]
    followed = resolve("tiny", [f"cocondenser.corpus={kind}", *shlex.split(advice)[2::2]])
    run_nodes.check_later_nodes("tokens", refs, up_to(nodes(followed), "cocondenser"))


@pytest.mark.parametrize(
    ("most", "settings", "message"),
    [
        (99, ["stage1.negatives_per_query=N"], "stage1: negatives_per_query: 100 is too many: "),
        (99, ["stage2.negatives_per_query=N", *PSEUDO], "stage2: negatives_per_query: 100 is too many"),
        (
            100,
            ["stage2.validation={questions: 1, candidates: N, keep: last}"],
            "stage2: validation.candidates: 101 is too many",
        ),
        (99, ["cross_encoder.negatives_per_query=N", RERANK], "cross_encoder: negatives_per_query: 100 is too many"),
    ],
)
def test_more_passages_than_the_collection_has_are_reported_before_pre_training(
    tmp_path: Path, most: int, settings: list[str], message: str
) -> None:
    def check(number: int) -> None:
        numbered = [setting.replace("N", str(number)) for setting in settings]
        check_trainings(ingest, nodes(resolve("tiny", numbered)))

    ingest = judged(tmp_path / "collection", "dev")
    check(most)
    with pytest.raises(InputError, match=message):
        check(most + 1)


def check_evaluation(ingest: Ref, *settings: str) -> None:
    check_stages("ingest", {"ingest": ingest}, nodes(resolve("tiny", settings)), "evaluate")


def test_without_questions_to_evaluate_a_run_fails_before_pre_training(tmp_path: Path) -> None:
    none, dev = judged(tmp_path / "none"), judged(tmp_path / "dev", "dev")
    with pytest.raises(InputError, match=r"no dev or test question .* `--until search-stage2` stops before it"):
        check_evaluation(none)
    check_stages("ingest", {"ingest": none}, up_to(nodes(resolve("tiny")), "search-stage2"), "evaluate")
    check_evaluation(dev)
    with pytest.raises(InputError, match=r"evaluate\.relevance: 2, but no judgement of dev and test is above 1"):
        check_evaluation(dev, "evaluate.relevance=2")
    answers = [("q-test", "test", "question", ["text"])]
    write_table(none.path / "queries.parquet", schemas()["queries"], answers)
    check_evaluation(none)  # a question with answers is enough


def test_an_existing_model_needs_no_questions(tmp_path: Path) -> None:
    """It is only indexed and searched; a fine-tuning needs them."""
    none = judged(tmp_path / "none")
    write_table(none.path / "qrels.parquet", schemas()["qrels"], [])
    recipe = resolve("tiny", [f"model={tmp_path}", "adapt.queries=10", "rerank=null"])
    check_stages("ingest", {"ingest": none}, nodes(recipe), "evaluate")
    with pytest.raises(InputError, match=r"stage1: .* needs none"):
        check_trainings(replace(none, metrics={}), nodes(resolve("tiny")))


def test_runs_of_other_systems_are_read_before_pre_training(tmp_path: Path) -> None:
    def run(*lines: str) -> None:
        (tmp_path / "other.trec").write_text("".join(f"{line}\n" for line in lines))
        check_evaluation(ingest, f"evaluate.systems={{GAR: {tmp_path / 'other.trec'}}}")

    ingest = judged(tmp_path / "collection", "dev")
    good = [f"q-dev Q0 p{n} {n + 1} {9 - n}.5 GAR" for n in range(9)]
    run(*good)
    with pytest.raises(InputError, match=r"other\.trec:10: score 'nan' is not a number"):
        run(*good, "q-dev Q0 p9 10 nan GAR")
    with pytest.raises(InputError, match=r"other\.trec:10: unknown passage id 'other'"):
        run(*good, "q-dev Q0 other 10 0.5 GAR")
    with pytest.raises(InputError, match="none of its questions is one of the collection's"):
        run(*(line.replace("q-dev", "other") for line in good))


def test_prefixes_that_do_not_fit_are_reported_before_pre_training(tmp_path: Path) -> None:
    def check(*settings: str, until: str = "report") -> None:
        recipe = resolve("tiny", settings)
        check_stages("tokens", refs, up_to(nodes(recipe), until), "finetune", "encode")

    tokens, _ = small.make(tmp_path)
    wordpiece(tmp_path, 195)
    refs = {name: replace(collection(), path=path) for name, path in {"tokens": tokens, "tokenizer": tmp_path}.items()}
    long = "w1 " * 40
    check(f"encoder.question_prefix={'w1 ' * 29}")
    with pytest.raises(InputError, match=r"question_prefix: its 40 tokens .* in encoder\.question_tokens \(32\)"):
        check(f"encoder.question_prefix={long}")
    check(f"encoder.question_prefix={long}", until="condenser")
    with pytest.raises(InputError, match=r"passage_prefix: its 40 tokens .* in encode\.passage_tokens \(42\)"):
        check(f"encoder.passage_prefix={long}", "encode.passage_tokens=42")
    make_roberta(tmp_path / "roberta", ["some text"])
    refs["tokenizer"] = replace(collection(), path=tmp_path / "roberta" / "source")
    with pytest.raises(
        InputError, match=r"encoder\.passage_prefix: 'passage:  ' changes the first token of a text with"
    ):
        check('encoder.passage_prefix="passage:  "')


def test_lengths_beyond_an_existing_models_positions_are_reported_before_pre_training(tmp_path: Path) -> None:
    def check(*settings: str) -> None:
        lengths = [f"{stage}.passage_tokens=32" for stage in ("stage1", "stage2", "encode")]
        recipe = resolve("tiny", [*lengths, checkpoint, *settings])
        refs["initial"] = replace(collection(), path=start)
        dag = [node for node in nodes(recipe) if node.name not in ("condenser", "cocondenser")]
        early_checks.check("initial", refs, dag)

    tokens, start = small.make(tmp_path)  # 32 positions
    checkpoint = f"initial.checkpoint={start}"
    refs = {"tokens": replace(collection(), path=tokens)}
    check()
    for field in ("stage1.passage_tokens", "stage2.passage_tokens", "encoder.question_tokens"):
        with pytest.raises(InputError, match=rf"{field}: 33 tokens, but the model in .*start has 32 positions"):
            check(f"{field}=33")
    checkpoint = f"condenser.checkpoint={start}"
    start = tmp_path / "nowhere"
    with pytest.raises(InputError, match=r"stage1\.passage_tokens: 33 tokens"):
        check("stage1.passage_tokens=33")


def test_an_index_with_too_few_passages_to_train_on_is_reported_before_pre_training() -> None:
    def check(passages: int, *settings: str) -> None:
        ingest = collection(passages=passages)
        check_stages("ingest", {"ingest": ingest}, nodes(resolve("tiny", settings)), "index")

    check(1, "index.kind=hnsw")
    check(10_240, "index.kind=ivfpq", "index.pq_m=8")
    with pytest.raises(InputError, match=r"index\.kind: ivfpq needs 10,240 passages to train on, .* has 10,239"):
        check(10_239, "index.kind=ivfpq", "index.pq_m=8")
    with pytest.raises(InputError, match=r"index\.nlist: 9 needs 360 passages"):
        check(359, "index.kind=ivf", "index.nlist=9")
    before = up_to(nodes(resolve("tiny", ["index.kind=ivf"])), "cocondenser")
    check_stages("ingest", {"ingest": collection(passages=5)}, before, "index")


def test_vectors_that_cannot_be_cut_into_bytes_are_reported_before_pre_training(tmp_path: Path) -> None:
    """The dimension of an existing model is not in the recipe."""

    def check(*settings: str) -> None:
        all_settings = [f"initial.checkpoint={start}", "index.kind=ivfpq", *settings]
        check_stages(
            "initial", {"initial": replace(collection(), path=start)}, nodes(resolve("tiny", all_settings)), "index"
        )

    _, start = small.make(tmp_path)
    hidden = int(model_config(start)["hidden_size"])
    check(f"index.pq_m={hidden // 2}")
    with pytest.raises(InputError, match=rf"index\.pq_m: {hidden - 1} does not divide .* dimension, {hidden}"):
        check(f"index.pq_m={hidden - 1}")
    with pytest.raises(InputError, match=rf"index\.pq_m: {hidden // 2} does not divide .* dimension, {hidden + 1}"):
        check(f"index.pq_m={hidden // 2}", f"encoder.projection={hidden + 1}")


def test_an_existing_models_vectors_that_cannot_be_cut_into_bytes_are_reported_before_any_stage(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")

    def check(model: Path, pq_m: int) -> None:
        recipe = resolve("tiny", [f"model={model}", "index.kind=ivfpq", f"index.pq_m={pq_m}"])
        preflight.check(store, nodes(recipe), nodes(recipe))

    _, start = small.make(tmp_path)
    hidden = int(model_config(start)["hidden_size"])
    check(start, hidden // 2)
    with pytest.raises(InputError, match=rf"pq_m: {hidden - 1} does not divide .* dimension, {hidden}; take "):
        check(start, hidden - 1)
    projecting = Path(shutil.copytree(start, tmp_path / "projecting"))
    write_vector(projecting, hidden, Vector("cls", projection=Dense(torch.zeros(6, hidden))))
    check(projecting, 3)
    with pytest.raises(InputError, match=r"pq_m: 4 does not divide .* dimension, 6; take --set index.pq_m=3$"):
        check(projecting, 4)
    for side, source in (("query", start), ("passage", projecting)):
        shutil.copytree(source, tmp_path / "untied" / side)
    line = rf"^model: .*untied: .*{hidden} dimensions.* 6$"
    with pytest.raises(InputError, match=line):
        check(tmp_path / "untied", 2)


def test_a_cross_encoder_with_its_own_tokenizer_is_checked_before_condenser(
    run_served, tiny_copy: Path, tmp_path: Path
) -> None:
    """It is of RoBERTa with byte-level BPE: other special tokens, and other ids than the recipe's."""
    start = make_roberta(tmp_path / "roberta", ["some text of a few words"])
    make_cross_encoder(start, tmp_path / "ready")
    settings = (f"cross_encoder.checkpoint={tmp_path / 'ready'}", "rerank={depth: 9, splits: [dev]}")
    options = [word for setting in settings for word in ("--set", setting)]
    result = run_served("run", "tiny", *options, "--set", "cross_encoder.passage_tokens=127", store=tiny_copy)
    assert result.returncode == 2
    last = result.stderr.splitlines()[-1]
    assert "cross_encoder: pairs of " in last
    assert last.endswith("ready has 128 positions")
    assert "tokens-cross-encoder" in result.stderr
    assert "condenser " not in result.stderr + result.stdout


def test_a_missing_source_of_negatives_is_one_line_with_the_users_setting(tmp_path: Path) -> None:
    def missing_lines(setting: str) -> list[str]:
        return [*{line: None for node in nodes(resolve("tiny", [setting])) for line in missing(node)}]

    assert missing_lines("rounds.miner=gone") == [f"rounds.miner: {Path.cwd() / 'gone'}: no such file or folder"]
    (tmp_path / "loop").symlink_to("loop")
    circle = f"the link {tmp_path / 'loop'} leads back to itself"
    assert missing_lines(f"rounds.miner={tmp_path / 'loop'}") == [f"rounds.miner: {tmp_path / 'loop'}: {circle}"]
    assert missing_lines("negatives_file={file: gone.tsv, number: null, seed: 0, page_questions: 0}") == [
        f"{Path.cwd() / 'gone.tsv'} does not exist"
    ]


def test_trainings_are_checked_once_their_questions_are_written(tmp_path: Path) -> None:
    """A collection without training questions is no fault if a language model writes them."""
    dag = nodes(resolve("tiny", ["generate.checkpoint=a-language-model"]))
    check_trainings(collection(passages=5, test_queries=3), dag)
    with pytest.raises(InputError, match="stage1: the collection has no training questions"):
        check_stages("generate", {"generate": collection(passages=5, train_relevant=0)}, dag, *TRAININGS)
    check_stages("generate", {"generate": judged(tmp_path / "judged")}, dag, *TRAININGS)


def test_settings_may_complete_a_recipe(call_cli, tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("extends: tiny\ningest: {reader: beir, document_key: '', metadata: []}")
    settings = ("--set", f"ingest.folder={tmp_path / 'gone'}")
    result = call_cli("run", str(tmp_path / "mine.yaml"), *settings, store=tmp_path / "store")
    assert (result.returncode, result.stderr) == (2, f"error: ingest.folder: {tmp_path / 'gone'} is not a folder\n")


def test_cocondenser_is_checked_before_condenser_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    monkeypatch.setattr("pipeline.pretrain.cocondenser.check_cocondenser", lambda *arguments: calls.append(arguments))
    monkeypatch.setattr("pipeline.pretrain.condenser.check_condenser", lambda *_: None)
    recipe = resolve("tiny")
    refs = {name: replace(collection(), path=tmp_path / name) for name in ("tokens", "initial")}
    tokens, initial = refs["tokens"], refs["initial"]
    early_checks.check("initial", refs, up_to(nodes(recipe), "condenser"))
    assert not calls
    early_checks.check("initial", refs, up_to(nodes(recipe), "cocondenser"))
    assert calls == [(recipe.cocondenser, tokens.path, initial.path)]


def test_each_pre_training_is_checked_with_the_text_that_it_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checked = {}
    for stage in ("condenser", "cocondenser"):
        note = partial(lambda name, config, read, start: checked.update({name: read}), stage)
        monkeypatch.setattr(f"pipeline.pretrain.{stage}.check_{stage}", note)
    general = "pretraining={reader: beir, folder: general, document_key: '', metadata: []}"
    refs = {name: replace(collection(), path=tmp_path / name) for name in ("tokens", "tokens-pretraining")}
    for text, read in (("collection", "tokens"), ("pretraining", "tokens-pretraining")):
        early_checks.check(
            "tokens", refs, up_to(nodes(resolve("tiny", [general, f"cocondenser.corpus={text}"])), "cocondenser")
        )
        assert checked == {"condenser": tmp_path / "tokens-pretraining", "cocondenser": tmp_path / read}


def test_batches_that_the_collection_cannot_fill_are_reported_before_condenser(run_served, tiny_copy: Path) -> None:
    """One message reports all of them."""
    documents = ("--set", "cocondenser.batch_tokens=null", "--set", "cocondenser.batch_documents=9999")
    settings = ("--set", "condenser.batch_tokens=9999999", "--set", "condenser.batch_blocks=null", *documents)
    result = run_served("run", "tiny", *settings, store=tiny_copy)
    assert result.returncode == 2
    first, second, advice = result.stderr.splitlines()[-3:]
    assert first.startswith("error: condenser.batch_tokens: 9,999,999 is more than the whole collection holds")
    assert second.startswith("cocondenser.batch_documents: 9,999 is more than")
    assert advice.startswith("take --set condenser.batch_tokens=")
    assert "condenser " not in result.stderr + result.stdout
