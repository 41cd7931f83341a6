"""An existing model on a BEIR folder: this project's figures against sentence-transformers' with the same weights.

    python -m benchmarks.zero_shot --model DIR --collection DIR --store DIR

Prints a line of JSON with nDCG@10 and R@100 of both on the test questions; exit code 1 if nDCG@10 differs by more
than 0.001. sentence-transformers reads title and text as one string, cuts at `--tokens`, as this project's
`encode.passage_tokens`, and uses the prompts and the similarity of the model's folder. It knows a prompt for passages
only by the name `document`; this project also by `passage` and `corpus`.
"""

import json
import sys
from pathlib import Path
from typing import Annotated

import ir_measures
import numpy as np
import typer
from ir_measures import R, nDCG

from artifacts.store import Store
from flows.cli import main as cli
from flows.cli.running.run import run_flow, run_outcome
from flows.graph.prepare import prepare
from flows.graph.selection import store_folder
from flows.runs.zero_shot import zero_shot_recipe
from pipeline.data.collection import passage_batches, read_queries
from pipeline.errors import InputError
from pipeline.evaluate.questions import relevant_questions

MEASURES = (nDCG @ 10, R @ 100)
DEPTH = 100
TOLERANCE = 0.001
"""Tolerance of nDCG@10."""


def main(
    model: Annotated[str, typer.Option(help="A sentence-transformers folder.")],
    collection: Annotated[str, typer.Option(help="A BEIR folder.")],
    store: Annotated[Path | None, typer.Option(help="Of this project's run.")] = None,
    tokens: Annotated[int, typer.Option(help="Of a passage, special tokens included.")] = 256,
) -> None:
    """Measures both and compares them."""
    root = store_folder(store)
    settings = [f"encode.passage_tokens={tokens}"]
    recipe, _ = zero_shot_recipe(Store(root), model, collection, settings, name=None)
    if not (Path(model) / "modules.json").is_file():
        raise InputError(f"--model {model}: no folder of sentence-transformers: no modules.json")
    ready = prepare(recipe, settings, store=root, device="cpu")
    refs = run_flow(ready)
    split = run_outcome(refs)["results"]["splits"]["test"]["systems"]["model"]
    ours = {str(measure): split[str(measure)]["mean"] for measure in MEASURES}
    theirs = by_sentence_transformers(model, refs["ingest"].path, tokens)
    print(json.dumps({"cocondenser": ours, "sentence-transformers": theirs}))
    if abs(ours["nDCG@10"] - theirs["nDCG@10"]) > TOLERANCE:
        sys.exit(1)


def by_sentence_transformers(model: str, collection: Path, tokens: int) -> dict[str, float]:
    """Returns {measure: mean over the test questions}."""
    from sentence_transformers import SentenceTransformer

    reader = SentenceTransformer(model, device="cpu")
    reader.max_seq_length = tokens
    ids: list[str] = []
    texts: list[str] = []
    for batch in passage_batches(collection, ["passage_id", "title", "text"]):
        ids += batch["passage_id"]
        texts += [f"{title} {text}".strip() for title, text in zip(batch["title"], batch["text"], strict=True)]
    _, qrels, _ = relevant_questions(collection, "test", 1)
    asked = [query for query in read_queries(collection, ["test"]) if query.query_id in qrels]
    question_QD = reader.encode_query([query.text for query in asked])
    score_QP = reader.similarity(question_QD, reader.encode_document(texts, show_progress_bar=True)).numpy()
    # By rank, as in pipeline/evaluate/measures.py: providers order passages with equal scores differently.
    run = {
        query.query_id: {ids[row]: -float(rank) for rank, row in enumerate(np.argsort(-score_P, kind="stable")[:DEPTH])}
        for query, score_P in zip(asked, score_QP, strict=True)
    }
    found = ir_measures.calc_aggregate(MEASURES, qrels, run)
    return {str(measure): round(float(found[measure]), 6) for measure in MEASURES}


if __name__ == "__main__":
    cli.main(lambda: typer.run(main))
