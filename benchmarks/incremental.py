"""The cost of a collection that grew or changed by 1 %: `python -m benchmarks.incremental`.

The first 3,000 passages of pydocs and a random 4 x 256 encoder, through the stages `encode` and `index`, as in
a run. `encoded` is the share of the passages that are encoded again, `seconds` of both stages over those of the
collection before it, for shards of at most 2,000 passages (pydocs) and 256 (the recipe `text`). Exit code 1 if
a change of neighbours encodes more than the shards that it touches.
"""

import json
import shutil
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.data import FOLDER, pydocs
from benchmarks.encode import write_model
from benchmarks.steps import BUDGET
from flows.recipes.recipe import resolve
from pipeline.data.collection import passage_batches, schemas, write_table
from pipeline.dense.encode import encode
from pipeline.dense.index import index
from pipeline.runtime.work import Work, silent
from pipeline.tokenization.token_files import Tokens

PASSAGES, SHARDS = 3_000, (2000, 256)
MOST_ANEW = {2000: 0.15, 256: 0.08}
"""Share of these passages in the shards that such a change touches, by the most passages of a shard."""
SCATTERED = "1 % changed, here and there"
Document = tuple[int, bool]
"""Its number, and whether its words are reversed, which makes it a changed one."""


def edits(documents: int) -> Mapping[str, tuple[list[Document], list[Document]]]:
    """Returns (before, after) of each kind of change of 1 %."""
    part, middle = documents // 100, documents // 2
    every = [(d, False) for d in range(documents)]
    drawn = {int(d) for d in np.random.default_rng(0).choice(documents, part, replace=False)}
    together = set(range(middle, middle + part))
    return {
        "1 % more at its end": (every[:-part], every),
        "1 % more in its middle": (every[:middle] + every[middle + part :], every),
        "1 % changed, neighbours": (every, [(d, d in together) for d in range(documents)]),
        SCATTERED: (every, [(d, d in drawn) for d in range(documents)]),
    }


def write_collection(documents: list[Document], data: Tokens, ids: list[str], folder: Path) -> None:
    """Writes the collection (only its passages' ids) and tokens of these documents."""
    rows = [(row, back) for d, back in documents for row in range(*data.doc_offsets[d : d + 2].tolist())]
    (folder / "collection").mkdir(parents=True)
    named = [(ids[row] + ("-changed" if back else ""), "", "", "") for row, back in rows]
    write_table(folder / "collection" / "passages.parquet", schemas()["passages"], named)
    for name, texts in (("passages", data.passages), ("titles", data.titles), ("queries", data.titles)):
        (folder / "tokens" / name).mkdir(parents=True)
        chosen = [texts[row][:: -1 if back else 1] for row, back in rows]
        np.save(folder / "tokens" / name / "tokens.npy", np.concatenate(chosen))
        np.save(folder / "tokens" / name / "offsets.npy", np.cumsum([0, *map(len, chosen)]))
        np.save(folder / "tokens" / name / "word_starts.npy", np.zeros(0, bool))
    np.save(folder / "tokens" / "doc_offsets.npy", np.zeros(1, np.int64))
    shutil.copy(FOLDER / "tokens" / "specials.json", folder / "tokens")


def build_embeddings(folder: Path, model: Path, most: int, earlier: list[Path]) -> tuple[float, float, Path]:
    """Returns (seconds, share of the passages that were encoded, embeddings)."""
    recipe = resolve("pydocs", [f"encode.shard_passages={most}", f"machine.token_budget={BUDGET}"])
    place = Path(tempfile.mkdtemp(dir=folder))
    works = {}
    for name in ("encode", "index"):
        (place / name).mkdir()
        works[name] = Work(place / name, place, recipe.machine, silent, earlier)
    started = time.perf_counter()
    encode(recipe.encode, recipe.encoder, folder / "collection", folder / "tokens", model, works["encode"])
    index(recipe.index, folder / "collection", place / "encode", works["index"])
    spent = time.perf_counter() - started
    known = {shard["key"] for path in earlier for shard in shards(path)}
    after = shards(place / "encode")
    again = sum(shard["rows"] for shard in after if shard["key"] not in known) / sum(shard["rows"] for shard in after)
    return spent, again, place / "encode"


def shards(embeddings: Path) -> list[dict]:
    return json.loads((embeddings / "embeddings.json").read_text())["shards"]


def main() -> None:
    data = pydocs()
    ids = [name for batch in passage_batches(FOLDER / "collection", ["passage_id"]) for name in batch["passage_id"]]
    missed: list[str] = []
    documents = int(np.searchsorted(data.doc_offsets, PASSAGES))
    table = Table("change", *(f"{what}, {most:,}" for most in SHARDS for what in ("encoded", "seconds")), box=None)
    with tempfile.TemporaryDirectory() as place:
        model = Path(place) / "model"
        write_model("mini", model)
        for name, (before, after) in edits(documents).items():
            sides = [Path(place) / f"{name}-{side}" for side in ("before", "after")]
            for folder, chosen in zip(sides, (before, after), strict=True):
                write_collection(chosen, data, ids, folder)
            cells = []
            for most in SHARDS:
                whole, _, earlier = build_embeddings(sides[0], model, most, [])
                spent, again, _ = build_embeddings(sides[1], model, most, [earlier])
                if name != SCATTERED and again > MOST_ANEW[most]:
                    missed.append(f"missed: {name}, shards of {most:,}: {again:.1%} encoded, not {MOST_ANEW[most]:.0%}")
                cells += [f"{again:.1%}", f"{spent / whole:.2f} of {whole:.0f}"]
                print(name, most, *cells[-2:], file=sys.stderr)
            table.add_row(name, *cells)
    Console(width=120).print(table)
    if missed:
        raise SystemExit("\n".join(missed))


if __name__ == "__main__":
    main()
