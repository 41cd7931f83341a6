"""The shape of the flow."""

import inspect

import pytest

from flows.dag import nodes
from flows.recipes import yaml_layers
from flows.recipes.recipe import resolve
from pipeline.cross_encoder.folds import divide
from pipeline.errors import InputError
from tasks.keys import without_paths
from tasks.node import Node
from tasks.stages import STAGES


def names(dag: list[Node]) -> list[str]:
    return [node.name for node in dag]


def node(name: str, *settings: str, recipe: str = "tiny") -> Node:
    return next(n for n in nodes(resolve(recipe, settings)) if n.name == name)


def check(dag: list[Node]) -> None:
    """Each node appears once, after its inputs, and its function accepts its arguments."""
    seen: set[str] = set()
    for n in dag:
        assert n.name not in seen
        assert {source.name for source in n.inputs.values() if source} <= seen
        seen.add(n.name)
        inspect.signature(STAGES[n.stage].function).bind(n.config, **n.shared, **n.inputs, work=None)
    assert "report" in seen


@pytest.mark.parametrize("recipe", yaml_layers.named())
def test_each_node_comes_after_its_inputs_and_fits_its_function(recipe: str) -> None:
    check(nodes(resolve(recipe)))


PSEUDO = "pseudo_labels={depth: 5, positive_above: 0.9, negative_below: 0.1, positives: null, negatives: null}"
RERANK = "rerank={splits: [dev, test], depth: 9}"
FROM_FILE = "negatives_file={file: negatives.tsv, number: null, seed: 0, page_questions: 0}"
POINTWISE = "cross_encoder.loss=pointwise"
SECTIONS = "attention.sections=9"
OTHERS = "evaluate.others=[data/scifact, data/nfcorpus]"
WRITES = "generate.checkpoint=a-language-model"
LABELLED = ["denoise.threshold=0.9", POINTWISE, PSEUDO, "search.unjudged_train_questions=true", RERANK, "ensemble=2"]


def test_every_stage_is_used() -> None:
    mined, from_file = (
        nodes(
            resolve("tiny", ["ict.budget=9 steps", "rounds.number=2", "adapt.queries=9", SECTIONS, *LABELLED, source])
        )
        for source in ("rounds.miner=given", FROM_FILE)
    )
    of_other_flows = {"ablation", "sentence_table", "sentence_model", "sentence_tune", "sentence_summary"}
    written = nodes(resolve("generated", [WRITES]))
    compared = nodes(resolve("adapt", [OTHERS]))
    prefixes = nodes(resolve("tiny", ["encoder.dimensions=[32, 8]"]))
    assert {n.stage for n in (*mined, *from_file, *written, *compared, *prefixes)} == set(STAGES) - of_other_flows
    for dag in (mined, from_file, written, compared, prefixes):
        check(dag)
    assert names(mined)[-25:] == [
        *(
            "encode-miner",
            "index-miner",
            "search-miner",
            "mine",
            "cross-encoder",
            "soft-labels",
            "denoise",
            "pseudo-labels",
        ),
        *(
            "stage2",
            "encode-stage2",
            "index-stage2",
            "search-stage2",
            "mine-2",
            "soft-labels-2",
            "denoise-2",
            "pseudo-labels-2",
        ),
        *("stage2-2", "encode-stage2-2", "index-stage2-2", "search-stage2-2", "cross-encoder-2", "rerank"),
        *("evaluate", "attention", "report"),
    ]
    assert next(n for n in from_file if n.name == "search-stage1").config.splits == ["train", "dev", "test"]


def inputs(node_name: str, *settings: str, recipe: str = "tiny") -> dict[str, str | None]:
    read = node(node_name, *settings, recipe=recipe).inputs
    return {argument: n.name if n else None for argument, n in read.items()}


ADAPTED = ["adapted", "encode-adapted", "index-adapted", "search-adapted"]


def test_a_model_is_adapted_between_its_search_and_fine_tuning() -> None:
    on = "adapt.queries=9"
    off, dag = (names(nodes(resolve("tiny", settings))) for settings in ([], [on]))
    assert [name for name in dag if name not in off] == ADAPTED
    assert dag.index("search-pretrained") + 1 == dag.index("adapted") == dag.index("stage1") - 4
    read = {"collection": "ingest", "checkpoint": "cocondenser", "index": "index-pretrained", "bm25": "bm25"}
    assert inputs("adapted", on) == read
    assert inputs("encode-adapted", on) == {"checkpoint": "adapted", "embeddings": "encode-pretrained"}
    assert inputs("index-adapted", on)["embeddings"] == "encode-adapted"
    assert inputs("search-adapted", on)["checkpoint"] == "adapted"
    assert inputs("stage1", on)["start"] == "cocondenser"
    assert [*inputs("evaluate", on)] == ["collection", "bm25", "pretrained", "adapted", "stage1", "stage2"]


def test_a_model_whose_encoders_are_both_adapted_encodes_the_passages_again() -> None:
    on = ("adapt.queries=9", "adapt.trains=both_encoders")
    assert [name for name in names(nodes(resolve("tiny", on))) if "adapted" in name] == ADAPTED
    assert inputs("adapted", *on)["tokens"] == "tokens"
    assert node("adapted", *on).shared["passage_tokens"] == resolve("tiny", on).encode.passage_tokens
    encode = {"collection": "ingest", "tokens": "tokens", "checkpoint": "adapted"}
    assert inputs("encode-adapted", *on) == encode
    assert node("encode-adapted", *on).stage == "encode"
    assert resolve("tiny", ["adapt.candidates=5"]).adapt.candidates == 5  # fewer than both_encoders draws


def test_an_adapted_model_answers_for_an_existing_one() -> None:
    settings = ["adapt.queries=9", "model=somewhere", "evaluate.fusions=[[bm25, model]]"]
    dag = nodes(resolve("text", settings))
    check(dag)
    assert names(dag)[4:12] == ["model", "encode-model", "index-model", "search-model", *ADAPTED]
    whole = node("encode-whole", *settings, recipe="text").inputs["checkpoint"]
    assert whole is not None
    assert whole.name == "adapted"


def test_written_questions_are_for_the_trainings_alone() -> None:
    off, dag = (names(nodes(resolve("tiny", settings))) for settings in ([], [WRITES]))
    assert [name for name in dag if name not in off] == ["generate", "tokens-generate", "bm25-generate"]
    assert dag.index("search-pretrained") + 1 == dag.index("generate")
    # From scratch, the model of the pre-training searches worse than BM25.
    assert inputs("generate", WRITES) == {"collection": "ingest", "bm25": "bm25", "checkpoint": None, "index": None}
    assert node("generate", WRITES).config.round_trip == "bm25"
    assert node("generate", WRITES).shared == {}
    before = ("initial", "condenser", "cocondenser", "encode-pretrained", "index-pretrained", "search-pretrained")
    for name in (*before, "encode-stage2", "index-stage2", "bm25", "evaluate", "report"):
        assert not {"generate", "tokens-generate", "bm25-generate"} & {*inputs(name, WRITES).values()}, name
    read = {"collection": "generate", "tokens": "tokens-generate", "bm25": "bm25-generate"}
    for name in ("stage1", "stage2", "cross-encoder", "soft-labels"):
        own = inputs(name, WRITES, "stage2.loss=soft_labels", POINTWISE)
        assert read.items() <= own.items(), name
    assert inputs("mine", WRITES)["collection"] == "generate"
    assert inputs("search-stage1", WRITES)["collection"] == "generate"
    other = "cross_encoder_initial.checkpoint=other"
    assert inputs("tokens-cross-initial", WRITES, "stage2.loss=soft_labels", other)["collection"] == "generate"


def test_the_fusion_may_label_instead_of_a_cross_encoder() -> None:
    given = (WRITES, "stage2.loss=soft_labels", "fusion_labels={negatives_from: bm25, negative_depth: null}")
    assert not {"cross-encoder", "soft-labels"} & {*names(nodes(resolve("tiny", given)))}
    assert inputs("stage2", *given)["soft_labels"] == "fusion-labels"
    read = {"collection": "generate", "bm25": "bm25-generate", "run": "search-teacher", "mined": "mine"}
    assert inputs("fusion-labels", *given) == read
    teacher = {"checkpoint": "cocondenser", "index": "index-pretrained", "collection": "generate"}
    assert teacher.items() <= inputs("search-teacher", *given).items()
    assert node("search-teacher", *given).config.splits == ["train"]
    assert inputs("fusion-labels", *given[1:])["collection"] == "ingest"
    both = {*names(nodes(resolve("tiny", [*given, "denoise.threshold=0.9", POINTWISE])))}
    assert {"soft-labels", "fusion-labels"} <= both
    assert inputs("fusion-labels-2", *given, "rounds.number=2")["mined"] == "mine-2"


def test_the_fusion_checks_written_questions_if_training_starts_from_an_embedding_model() -> None:
    written = node("generate", WRITES, recipe="adapt")
    assert {name: n.name if n else None for name, n in written.inputs.items()} == {
        "collection": "ingest",
        "bm25": "bm25",
        "checkpoint": "initial",
        "index": "index-pretrained",
    }
    assert (written.config.round_trip, [*written.shared]) == ("fusion", ["encoder"])
    unchecked = node("generate", WRITES, "generate.round_trip=null", recipe="adapt")
    assert [n for n in unchecked.inputs.values() if n] == [unchecked.inputs["collection"]]


def test_an_existing_model_that_is_not_trained_needs_no_written_questions() -> None:
    assert "generate" not in names(nodes(resolve("text", [WRITES, "model=somewhere"])))


def test_rounds_repeat_mining_and_stage_2() -> None:
    two = "rounds.number=2"
    assert node("search-stage2", two).config.splits == ["train", "dev", "test"]
    assert node("search-stage2-2", two).config.splits == ["dev", "test"]
    assert inputs("mine-2", two)["run"] == "search-stage2"
    assert inputs("stage2-2", two)["mined"] == "mine-2"
    assert inputs("stage2-2", two)["start"] == "cocondenser"
    assert inputs("stage2-2", two, "rounds.start=previous")["start"] == "stage2"
    assert inputs("stage2", two, "rounds.start=previous")["start"] == "cocondenser"
    assert [*inputs("evaluate", two)] == ["collection", "bm25", "pretrained", "stage1", "stage2", "stage2-2"]
    alone = names(nodes(resolve("tiny", ["rounds.number=0"])))
    assert not {"mine", "stage2", "cross-encoder"} & {*alone}
    assert node("search-stage1", "rounds.number=0").config.splits == ["dev", "test"]


def test_negatives_may_come_from_another_model_or_a_file() -> None:
    other = "rounds.miner=given"
    assert inputs("mine", other)["run"] == "search-miner"
    assert node("search-miner", other).config.splits == ["train"]
    assert node("search-stage1", other).config.splits == ["dev", "test"]
    assert inputs("stage2", FROM_FILE)["mined"] == "negatives-file"
    for source, name in ((other, "miner"), (FROM_FILE, "negatives-file")):
        dag = names(nodes(resolve("tiny", [source])))
        assert dag.index(name) < dag.index("condenser"), "its mistakes must end the run before pre-training"
    labelled = ["search.unjudged_train_questions=true", PSEUDO, POINTWISE]
    searched = {n: node(f"search-{n}", *labelled).config for n in ("pretrained", "stage1")}
    assert [searched[n].unjudged_train_questions for n in ("pretrained", "stage1")] == [False, True]


def test_a_cross_encoder_is_trained_where_it_is_needed() -> None:
    assert "cross-encoder" not in names(nodes(resolve("tiny")))
    soft = inputs("stage2", "stage2.loss=soft_labels")
    assert (soft["mined"], soft["soft_labels"], soft["pseudo_labels"]) == ("mine", "soft-labels", None)
    clean = ["denoise.threshold=0.9", POINTWISE]
    assert inputs("stage2", *clean)["mined"] == "denoise"
    assert inputs("stage2", *clean)["soft_labels"] is None
    members = {k: v for k, v in inputs("rerank", RERANK, "ensemble=2").items() if k.startswith("cross")}
    assert members == {"cross_encoder_1": "cross-encoder", "cross_encoder_2": "cross-encoder-2"}
    first, second = (node(name, RERANK, "ensemble=2").config for name in ("cross-encoder", "cross-encoder-2"))
    assert second.seed == first.seed + 1
    assert inputs("cross-encoder", RERANK, "rounds.number=0")["mined"] is None
    assert inputs("rerank", RERANK)["run"] == "search-stage2"


SOFT = "stage2.loss=soft_labels"


def test_folds_of_cross_encoders_label_and_rerank() -> None:
    given = (SOFT, "cross_encoder.folds=3", RERANK)
    dag = nodes(resolve("tiny", given))
    check(dag)
    folds = [n for n in dag if n.stage == "cross_encoder"]
    assert names(folds) == [f"cross-encoder-fold-{n}" for n in (1, 2, 3)]
    section = resolve("tiny", given).cross_encoder
    assert [n.shared["fold"] for n in folds] == divide(3, section.seed)
    assert {n.config for n in folds} == {section}
    members = {f"cross_encoder_{n}": f"cross-encoder-fold-{n}" for n in (1, 2, 3)}
    unjudged = "search.unjudged_train_questions=true"
    for name, settings in (
        ("soft-labels", given),
        ("rerank", given),
        ("pseudo-labels", ("denoise.threshold=0.5", POINTWISE, PSEUDO, unjudged, given[1])),
    ):
        read = inputs(name, *settings)
        assert {parameter: of for parameter, of in read.items() if parameter.startswith("cross")} == members
    rounds = names(nodes(resolve("tiny", [*given, "rounds.number=2"])))
    assert len([name for name in rounds if "cross-encoder" in name]) == 3


def test_without_folds_nothing_changes() -> None:
    plain, null = (nodes(resolve("tiny", [SOFT, RERANK, *more])) for more in ([], ["cross_encoder.folds=null"]))
    assert names(plain) == names(null)
    teacher = node("cross-encoder", SOFT)
    assert [*teacher.shared] == ["train_subset"]
    assert "folds" not in without_paths(teacher.config)  # no key has it
    assert inputs("soft-labels", SOFT)["cross_encoder"] == "cross-encoder"


def test_a_teacher_is_compared_with_the_newest_fine_tuned_model() -> None:
    assert inputs("soft-labels", SOFT)["run"] == "search-stage1"
    assert inputs("soft-labels", SOFT, FROM_FILE)["run"] == "search-stage1"
    assert inputs("soft-labels", SOFT, "adapt.queries=9", "rounds.miner=given")["run"] == "search-stage1"
    assert inputs("soft-labels-2", SOFT, "rounds.number=2")["run"] == "search-stage2"
    assert inputs("soft-labels", SOFT, FROM_FILE, "stage1.loss=learning_to_rank")["run"] is None
    assert "run" in STAGES["soft_labels"].unkeyed  # only figures read it


@pytest.mark.parametrize(
    ("setting", "tokens", "start"),
    [
        ("ensemble=2", "tokens", "cocondenser"),
        ("cross_encoder_initial.checkpoint=given", "tokens-cross-initial", "cross-initial"),
        ("cross_encoder_initial.pretrained=some/model", "tokens-cross-initial", "cross-initial"),
        ("cross_encoder.checkpoint=given", "tokens-cross-encoder", "tokenizer-cross-encoder"),
    ],
)
def test_a_cross_encoder_reads_texts_with_its_own_tokenizer(setting: str, tokens: str, start: str) -> None:
    dag = {n.name: n for n in nodes(resolve("tiny", [*LABELLED, "ensemble=1", setting]))}
    check([*dag.values()])
    for name in ("cross-encoder", "soft-labels", "pseudo-labels", "rerank"):
        assert dag[name].inputs["tokens"] is dag[tokens]
    assert dag["cross-encoder"].inputs["start"] is dag[start]
    own = {name for name, n in dag.items() if name.endswith(("-cross-encoder", "-cross-initial"))}
    assert own == (set() if tokens == "tokens" else {tokens, tokens.replace("tokens", "tokenizer")})
    others = [n for name, n in dag.items() if n.stage in ("condenser", "finetune", "encode", "search")]
    assert not [n.name for n in others if n.inputs.get("tokens", dag["tokens"]) is not dag["tokens"]]
    if own:
        assert [*dag].index(tokens) < [*dag].index("condenser"), "its mistakes must end the run before pre-training"


def test_another_start_of_cross_encoders_is_read_where_one_is_trained() -> None:
    other = "cross_encoder_initial.checkpoint=given"
    assert names(nodes(resolve("tiny", [other]))) == names(nodes(resolve("tiny")))
    with pytest.raises(InputError, match="cross_encoder_initial is unused"):
        resolve("tiny", [other, "cross_encoder.checkpoint=given"])
    with pytest.raises(InputError, match="cross_encoder_initial: pretrained and checkpoint are both set"):
        resolve("tiny", [other, "cross_encoder_initial.pretrained=some/model"])


def test_a_miner_reads_texts_with_its_own_tokenizer() -> None:
    mined = inputs("search-miner", "rounds.miner=given")
    assert mined["tokens"] == inputs("encode-miner", "rounds.miner=given")["tokens"] == "tokens-miner"
    assert inputs("miner", "rounds.miner=given")["tokenizer"] == "tokenizer-miner"
    assert inputs("search-stage1", "rounds.miner=given")["tokens"] == "tokens"


def test_without_pre_training_training_starts_from_the_initial_model() -> None:
    plain = ["condenser.budget=null", "cocondenser.budget=null"]
    assert inputs("stage1", *plain)["start"] == inputs("encode-pretrained", *plain)["checkpoint"] == "initial"
    assert not {"condenser", "cocondenser"} & {*names(nodes(resolve("tiny", plain)))}
    assert inputs("stage1", *plain, "ict.budget=9 steps")["start"] == "ict"
    assert inputs("cocondenser", "condenser.budget=null")["start"] == "condenser"


def test_a_model_of_learning_to_rank_is_not_encoded() -> None:
    dag = names(nodes(resolve("tiny", ["stage1.loss=learning_to_rank", "rounds.number=0"])))
    assert "stage1" in dag
    assert "encode-stage1" not in dag


def test_stage_2_starts_again_from_the_pre_trained_model() -> None:
    stage1, stage2 = node("stage1"), node("stage2")
    assert stage1.inputs["start"].name == stage2.inputs["start"].name == "cocondenser"
    assert stage1.inputs["mined"] is None
    assert stage2.inputs["mined"].name == "mine"
    assert node("mine").inputs["run"].name == "search-stage1"


def test_only_stage_1_searches_the_training_questions() -> None:
    assert node("search-stage1").config.splits == ["train", "dev", "test"]
    assert node("search-stage2").config.splits == node("search-pretrained").config.splits == ["dev", "test"]


def test_condenser_reads_the_general_text_and_cocondenser_the_collection() -> None:
    assert node("condenser", recipe="marco").inputs["tokens"].name == "tokens-pretraining"
    assert node("cocondenser", recipe="marco").inputs["tokens"].name == "tokens"
    assert node("condenser").inputs["tokens"].name == "tokens"


def test_a_stage_reads_the_general_text_if_its_corpus_names_it() -> None:
    general = "pretraining={reader: beir, folder: general, document_key: '', metadata: []}"
    by_node = {name: node(name, general, "ict.budget=9 steps").inputs["tokens"].name for name in ("ict", "cocondenser")}
    assert {*by_node.values()} == {"tokens"}
    for name in by_node:
        corpus = f"{name}.corpus=pretraining"
        assert node(name, general, "ict.budget=9 steps", corpus).inputs["tokens"].name == "tokens-pretraining"
        assert node(name, "ict.budget=9 steps", corpus).inputs["tokens"].name == "tokens"


def test_a_model_from_scratch_starts_with_the_general_text() -> None:
    """The text is the same for all collections, so their recipes share the pre-trained models."""
    general = "pretraining={reader: beir, folder: general, document_key: '', metadata: []}"
    assert node("initial", general).inputs["tokens"].name == "tokens-pretraining"
    untrained = [general, "condenser.budget=null", "cocondenser.budget=null"]
    assert node("initial", *untrained).inputs["tokens"].name == "tokens-pretraining"
    assert node("initial").inputs["tokens"].name == "tokens"
    assert node("initial", recipe="marco").inputs["tokens"].name == "tokens"
    existing = nodes(resolve("tiny", [*untrained, "initial.checkpoint=given"]))
    assert not [n.name for n in existing if "pretraining" in n.name]


def test_random_weights_need_no_text() -> None:
    general = "pretraining={reader: beir, folder: general, document_key: '', metadata: []}"
    drawn = [general, "initial.embeddings=random"]
    assert node("initial", *drawn).inputs["tokens"].name == "tokens"
    assert node("condenser", *drawn).inputs["tokens"].name == "tokens-pretraining"
    untrained = nodes(resolve("tiny", [*drawn, "condenser.budget=null", "cocondenser.budget=null"]))
    assert not [n.name for n in untrained if "pretraining" in n.name]


def test_a_finished_condenser_needs_no_general_text(tmp_path) -> None:
    dag = nodes(resolve("marco", [f"condenser.checkpoint={tmp_path}"]))
    assert not [n.name for n in dag if "pretraining" in n.name]


def test_finished_models_need_no_training_text(tmp_path) -> None:
    general = "pretraining={reader: beir, folder: general, document_key: '', metadata: []}"
    untrained = [general, "condenser.budget=null", "cocondenser.budget=null"]
    for finished in ("ict", "condenser", "cocondenser"):
        dag = nodes(resolve("tiny", [*untrained, f"{finished}.checkpoint={tmp_path}"]))
        assert not [n.name for n in dag if "pretraining" in n.name], finished
    trained = [general, f"ict.checkpoint={tmp_path}", "condenser.budget=9 steps", "cocondenser.budget=null"]
    assert node("condenser", *trained).inputs["tokens"].name == "tokens-pretraining"


def test_a_finished_cocondenser_needs_no_condenser(tmp_path) -> None:
    dag = nodes(resolve("marco", [f"cocondenser.checkpoint={tmp_path}"]))
    assert "condenser" not in names(dag)
    assert next(n for n in dag if n.name == "cocondenser").inputs["start"].name == "initial"
    assert "condenser" not in next(n for n in dag if n.name == "report").inputs


def test_attention_is_measured_for_every_bi_encoder_on_the_pre_training_text() -> None:
    attention_inputs = inputs("attention", SECTIONS)
    assert attention_inputs == {"tokens": "tokens", "pretrained": "cocondenser", "stage1": "stage1", "stage2": "stage2"}
    assert inputs("report", SECTIONS)["attention"] == "attention"
    assert inputs("report")["attention"] is None
    assert "attention" not in names(nodes(resolve("tiny")))
    assert node("attention", recipe="marco").inputs["tokens"].name == "tokens-pretraining"
    assert node("attention", "attention.corpus=collection", recipe="marco").inputs["tokens"].name == "tokens"
    assert inputs("attention", SECTIONS, "model=given") == {"tokens": "tokens", "model": "model"}
    two = inputs("attention", SECTIONS, "rounds.number=2", "rounds.miner=given")
    assert [*two] == ["tokens", "pretrained", "stage1", "stage2", "stage2-2"]
    assert [*inputs("attention", SECTIONS, "rounds.number=0", RERANK)] == ["tokens", "pretrained", "stage1"]


def test_search_uses_the_whole_texts() -> None:
    """The texts without their questions are only for training and evaluation."""
    dag = {n.name: n for n in nodes(resolve("text"))}
    assert dag["ingest-whole"].config.questions == ()
    assert dag["ingest"].config.questions
    assert dag["encode-whole"].inputs["checkpoint"].name == "stage2"
    assert dag["index-whole"].inputs["collection"].name == "ingest-whole"
    assert "ingest-whole" not in names(nodes(resolve("text", ["ingest.questions=[]"])))
    assert "ingest-whole" not in names(nodes(resolve("tiny")))
    existing = {n.name: n for n in nodes(resolve("text", ["model=given"]))}
    assert existing["encode-whole"].inputs["checkpoint"].name == "model"


def test_dimensions_are_in_the_keys_of_trainings_alone() -> None:
    plain, trained = ({n.name: n for n in nodes(resolve("tiny", s))} for s in ([], ["encoder.dimensions=[32, 8]"]))
    changed = [name for name, one in trained.items() if name in plain and one.shared != plain[name].shared]
    measured = [name for name in trained if name not in plain]
    assert measured == [*("index-stage2-32d", "search-stage2-32d", "index-stage2-8d", "search-stage2-8d", "dimensions")]
    assert [trained[f"index-stage2-{n}d"].config.dimension for n in (32, 8)] == [None, 8]
    assert changed == ["stage1", "stage2", "report"]
    assert trained["stage1"].shared["encoder"].dimensions == (32, 8)
    indexed = names(nodes(resolve("tiny", ["encoder.dimensions=[32, 8]", "index.dimension=12"])))
    assert [name for name in indexed if name.startswith("index-stage2-")] == [f"index-stage2-{n}d" for n in (32, 12, 8)]
    hash(trained["stage1"].shared["encoder"])  # early checks remember what they read by it


def test_a_cut_index_knows_whether_vectors_are_normalised() -> None:
    for normalise in (True, False):
        index = node("index-stage1", "index.dimension=8", f"encoder.normalise={str(normalise).lower()}")
        assert index.shared == {"normalise": normalise}
    assert node("index-stage1").shared == {}


def test_an_adaptation_reads_whole_vectors() -> None:
    settings = ("index.dimension=8", "adapt.queries=10", "model=DIR")
    assert inputs("adapted", *settings)["index"] == "index-model-uncut"
    uncut = node("index-model-uncut", *settings)
    assert uncut.config.dimension is None
    assert inputs("index-model-uncut", *settings)["embeddings"] == "encode-model"
    assert node("index-adapted", *settings).config.dimension == 8
    assert inputs("adapted", *settings[1:])["index"] == "index-model"
