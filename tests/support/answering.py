"""A store with one evaluated run that answers questions by dense retrieval, BM25 or both."""

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

import numpy as np
from encoders import ENCODER
from evaluating import EVALUATE
from indexes import EFFORT, write_flat_index
from machines import make_machine
from searched import CONFIG, build, write_collection

from artifacts.objects import seal
from artifacts.records import Ref
from artifacts.runs import record_run
from artifacts.runs import runs as all_runs
from artifacts.store import Store
from pipeline.data import runs
from pipeline.data.near_duplicates.groups import Groups, write_groups
from pipeline.dense.shard_reuse import model
from pipeline.evaluate.evaluate import evaluate
from pipeline.runtime.work import Work, silent


def make_store(
    root: Path,
    passages: Sequence[tuple[str, ...]],
    question: str,
    vectors_ND: np.ndarray | None = None,
    checkpoint: Path | None = None,
    run_file: bool = False,
    depth: int = 10,
    near: Groups | None = None,
    cross_encoders: Mapping[str, Path] = MappingProxyType({}),
) -> Store:
    """Of passages in order (id, document, title, text), the first of them relevant to the one dev question. A fifth
    column: the documents that they were cut from.

    `vectors_ND`: the passages' vectors, None for a run without dense retrieval; their first number sorts the dense run
    of the dev question. `checkpoint`: the model, else a folder without one. `near`: almost equal passages.
    `cross_encoders`: folders by node.
    """
    store = Store(root)
    objects = {name: store.root / name for name in ("ingest", "bm25", "evaluate", "stage1", "index-stage1")}
    store.objects.mkdir(parents=True)
    judged = [("dev", "q", passages[0][-1] if len(passages[0]) == 5 else passages[0][0], 1)]
    ingest = write_collection(objects["ingest"], passages, [("q", "dev", question)], judged)
    if near is not None:
        write_groups(ingest, near)
    given = store.root / "run"
    given.write_text(f"q {passages[0][0]} 1\n")
    build(ingest, objects["bm25"], CONFIG.model_copy(update={"run": given if run_file else None}), workers=1)
    found = {}
    if vectors_ND is not None:
        objects["stage1"].mkdir()
        if checkpoint:
            shutil.copytree(checkpoint, objects["stage1"], dirs_exist_ok=True)
        else:
            (objects["stage1"] / "empty").touch()
        ids = [row[0] for row in passages]
        write_flat_index(objects["index-stage1"], vectors_ND.astype(np.float32), ids, model(objects["stage1"]))
        found["stage1"] = store.root / "search"
        found["stage1"].mkdir()
        best = np.argsort(-vectors_ND[:, 0], kind="stable")[:10]
        with runs.writer(found["stage1"]) as write:
            write("dev", ["q"] * len(best), [passages[n][0] for n in best], vectors_ND[best, 0])
    objects["evaluate"].mkdir()
    evaluate(EVALUATE, ingest, objects["bm25"], Work(objects["evaluate"], root, make_machine(), silent), **found)
    nodes = {name: filed(store, name, path) for name, path in objects.items() if path.exists()}
    for node, folder in cross_encoders.items():
        copy = Path(shutil.copytree(folder, store.root / node))
        nodes[node] = filed(store, "cross_encoder", copy)
    search = {"depth": depth, "approximate": EFFORT.model_dump()}
    depths = {"search": search, "bm25": {"depth": depth}, "evaluate": {"reciprocal_k": 60}}
    record_run(store, "one", nodes, {"recipe": {**depths, "encoder": ENCODER.model_dump()}})
    return store


def filed(store: Store, name: str, path: Path) -> Ref:
    """Moves a folder in as an object; nothing but its digest names it."""
    digest, _ = seal(path)
    return Ref(name, digest, digest, digest, path.rename(store.objects / digest), {})


def artifact(store: Store, node: str) -> Path:
    """Of the newest run."""
    return all_runs(store)[0].nodes[node].path


def write_model(folder: Path, words: Sequence[str], dimension: int = 32) -> Path:
    """A bi-encoder from scratch that knows these words."""
    import torch
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

    from pipeline.modeling.checkpoint import save_checkpoint

    names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words]
    raw = Tokenizer(models.WordPiece({name: i for i, name in enumerate(names)}, unk_token="[UNK]"))
    raw.pre_tokenizer = pre_tokenizers.Whitespace()
    specials = {f"{name[1:-1].lower()}_token": name for name in names[:5]}
    PreTrainedTokenizerFast(tokenizer_object=raw, **specials).save_pretrained(folder / "tokenizer")
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(names),
        hidden_size=dimension,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=2 * dimension,
        max_position_embeddings=32,
        initializer_range=0.3,
    )
    save_checkpoint(folder / "model", BertModel(config, add_pooling_layer=False), folder / "tokenizer")
    return folder / "model"
