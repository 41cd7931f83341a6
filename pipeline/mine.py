"""Hard negatives: what a trained retriever ranks high and nobody judged relevant (coCondenser, section 3.3)."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

import numpy as np
from pydantic import Field

from pipeline.collection import passage_batches, read_qrels, write_table
from pipeline.config import Config
from pipeline.errors import InputError
from pipeline.ids import hash_id
from pipeline.work import Metrics, Work


class MineConfig(Config):
    depth: int = Field(ge=1)
    """Best ranks of the run that are looked at, judged passages included. 200 (authors' code)."""
    number: int = Field(ge=1)
    """Negatives sampled from the pool of each question. 30 (authors' code)."""
    margin_absolute: float | None = Field(ge=0)
    """Only passages that score at least this much below the question's best judged passage. None: no such filter."""
    margin_relative: float | None = Field(gt=0, le=1)
    """Only passages that score at least this share of the best judged score's size below it. None: no such filter."""
    seed: int = Field(ge=0)
    """Seed of the sampling."""


@dataclass(frozen=True)
class Ranking:
    """The passages of one question in a run, best first."""

    query_id: str
    passage_ids: list[str]
    scores: np.ndarray
    """float32."""


def mine(config: MineConfig, collection: Path, run: Path, work: Work) -> Metrics:
    """Write `negatives.parquet` for the training questions of the run; the metrics count what was dropped.

    Neither a judged passage nor one with exactly a positive's text is ever in a pool. Where a margin is set and none
    of a question's judged passages was retrieved, the last score of its list, which theirs cannot exceed, stands for
    theirs; so that question's pool is empty.
    Raises InputError for a run without training questions.
    """
    from pipeline.runs import NEGATIVES

    qrels = read_qrels(collection, ["train"])
    positives = {query: {p for p, relevance in judged.items() if relevance > 0} for query, judged in qrels.items()}
    twins = duplicates(collection, {passage for judged in positives.values() for passage in judged})
    counts = Counter(dict.fromkeys(("questions", "questions_short", "judged", "duplicate", "margin"), 0))

    def rows() -> Iterator[tuple[str, str, str, int, float]]:
        for ranking in rankings(run / "run.parquet"):
            judged = positives.get(ranking.query_id, set())
            places, dropped = pool(ranking, judged, twins, config)
            chosen = sample(places, config.number, config.seed, ranking.query_id)
            counts.update(dropped)
            counts.update(questions=1, questions_short=int(len(chosen) < config.number))
            work.progress(counts["questions"], len(positives), "questions")
            for i in chosen:
                yield ranking.query_id, ranking.passage_ids[i], "mined", int(i) + 1, float(ranking.scores[i])

    negatives = write_table(work.out / "negatives.parquet", NEGATIVES, rows())
    if not counts["questions"]:
        raise InputError(f"{run / 'run.parquet'}: no training questions; mining needs `train` among search.splits")
    return {
        "questions": counts["questions"],
        "negatives": negatives,
        "questions_short": counts["questions_short"],
        "dropped_judged": counts["judged"],
        "dropped_duplicate": counts["duplicate"],
        "dropped_margin": counts["margin"],
    }


def rankings(path: Path) -> Iterator[Ranking]:
    """The training questions of a run, one at a time. Memory: a row group."""
    import pyarrow.parquet as pq

    columns = ["split", "query_id", "passage_id", "score"]
    current: tuple[str, list[str], list[float]] | None = None
    with pq.ParquetFile(path) as file:
        for batch in file.iter_batches(columns=columns):
            for split, query_id, passage_id, score in zip(*(c.to_pylist() for c in batch.columns), strict=True):
                if split != "train":
                    continue
                if current is None or current[0] != query_id:
                    if current is not None:
                        yield Ranking(current[0], current[1], np.array(current[2], dtype=np.float32))
                    current = query_id, [], []
                current[1].append(passage_id)
                current[2].append(score)
    if current is not None:
        yield Ranking(current[0], current[1], np.array(current[2], dtype=np.float32))


def duplicates(collection: Path, judged: set[str]) -> dict[str, bytes]:
    """{passage id: digest of its text} of judged passages and of all others with the same text as one of them."""
    digests = {
        digest
        for batch in passage_batches(collection, ["passage_id", "text"])
        for passage_id, text in zip(batch["passage_id"], batch["text"], strict=True)
        if passage_id in judged and (digest := text_digest(text))
    }
    return {
        passage_id: digest
        for batch in passage_batches(collection, ["passage_id", "text"])
        for passage_id, text in zip(batch["passage_id"], batch["text"], strict=True)
        if (digest := text_digest(text)) in digests
    }


def text_digest(text: str) -> bytes:
    """16 bytes, equal for equal texts."""
    return blake2b(text.encode(), digest_size=16).digest()


def pool(
    ranking: Ranking, judged: set[str], twins: dict[str, bytes], config: MineConfig
) -> tuple[np.ndarray, Counter[str]]:
    """(places in the ranking that may be negatives, how many were dropped for which reason).

    `twins`: digest of the text of every passage whose text is some question's positive's (see `duplicates`).
    """
    texts = {twins[passage] for passage in judged if passage in twins}
    found = [i for i, passage in enumerate(ranking.passage_ids) if passage in judged]
    reference = ranking.scores[found[0] if found else -1]
    limit = ceiling(float(reference), config.margin_absolute, config.margin_relative)
    kept, dropped = [], Counter[str]()
    for place, passage in enumerate(ranking.passage_ids[: config.depth]):
        if passage in judged:
            dropped["judged"] += 1
        elif twins.get(passage) in texts:
            dropped["duplicate"] += 1
        elif limit is not None and ranking.scores[place] > limit:
            dropped["margin"] += 1
        else:
            kept.append(place)
    return np.array(kept, dtype=np.int64), dropped


def ceiling(positive: float, absolute: float | None, relative: float | None) -> float | None:
    """Highest score that a negative may have beside a positive's score; None: any."""
    limits = []
    if absolute is not None:
        limits.append(positive - absolute)
    if relative is not None:
        limits.append(positive - relative * abs(positive))
    return min(limits, default=None)


def sample(places: np.ndarray, number: int, seed: int, query_id: str) -> np.ndarray:
    """At most `number` of `places`, ascending; a function of (seed, question) and the pool alone."""
    return np.sort(np.random.default_rng([seed, hash_id(query_id)]).permutation(places)[:number])
