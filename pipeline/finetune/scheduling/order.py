"""The batches of an epoch's examples: shuffled, in the collection's order, or scheduled by hardness (ABS).

Shapes: N examples of an epoch, each a pair of a question and its positive; D dimensions.
"""

import contextlib
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from pipeline.data.barred import barred_pairs
from pipeline.finetune import examples
from pipeline.finetune.config import FinetuneConfig
from pipeline.finetune.pools import Pools
from pipeline.finetune.scheduling import process
from pipeline.finetune.scheduling.bm25_similarity import bm25_lists
from pipeline.runtime import ranks
from pipeline.tokenization.token_files import Tokens

Order = Callable[[int, int], np.ndarray]
"""order(epoch, place): examples of an epoch's batch, numbers below N."""
Vectors = Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]
"""vectors(questions_N, passages_N): [N, D] each, by the current encoder; all ranks call it together."""


def fixed(config: FinetuneConfig, edges: np.ndarray) -> Order:
    """Returns an order that depends only on the seed."""

    def order(epoch: int, place: int) -> np.ndarray:
        size = int(edges[-1])
        indices = examples.epoch_order(config.seed, epoch, size) if config.batch_order == "random" else np.arange(size)
        return indices[edges[place] : edges[place + 1]]

    return order


@contextlib.contextmanager
def open_order(
    config: FinetuneConfig,
    pools: Pools,
    data: Tokens,
    edges: np.ndarray,
    vectors: Vectors,
    folder: Path,
    device: str,
) -> Iterator[Order]:
    """Opens the order of the recipe. `edges`: of an epoch's batches; `folder`: for the inputs of a schedule."""
    if not config.batch_order.startswith("abs"):
        yield fixed(config, edges)
        return
    with contextlib.closing(Scheduled(config, pools, data, edges, vectors, folder, device)) as order:
        yield order


def hardness(folder: Path) -> list[dict[str, float]]:
    """Returns the total hardness of each finished epoch's batches, and of random ones; empty without a schedule."""
    epochs = sorted(int(path.parent.name.split("-")[1]) for path in folder.glob(f"epoch-*/{process.HARDNESS}"))
    return [{"epoch": epoch + 1, **process.hardness(_folder(folder, epoch))} for epoch in epochs]


class Scheduled:
    """Adaptive Batch Scheduling: hardness by BM25 in the first epoch, then by the encoder at each epoch's start.

    The first rank runs the scheduling process and sends each batch to the others. The inputs of an epoch's schedule are
    written to `folder` before its first update, so that a resumed training gets the same batches.
    """

    def __init__(
        self,
        config: FinetuneConfig,
        pools: Pools,
        data: Tokens,
        edges: np.ndarray,
        vectors: Vectors,
        folder: Path,
        device: str,
    ) -> None:
        self._config, self._pools, self._data, self._edges = config, pools, data, edges
        self._vectors, self._folder, self._device = vectors, folder, device
        self._draw = examples.Draw(config.negatives_per_query, config.positives_considered, config.seed)
        self._epoch = -1
        self._batches: Iterator[np.ndarray] = iter(())
        self._process = contextlib.ExitStack()
        folder.mkdir(parents=True, exist_ok=True)

    def close(self) -> None:
        self._process.close()

    def __call__(self, epoch: int, place: int) -> np.ndarray:
        last = len(self._edges) - 2
        if epoch != self._epoch:
            self._begin(epoch)
            if ranks.rank() == 0:  # a resumed training skips the batches already done
                for _ in range(place):
                    next(self._batches)
        size = int(self._edges[place + 1] - self._edges[place])
        batch = ranks.from_first_rank(next(self._batches) if ranks.rank() == 0 else None, size)
        if place == last and ranks.rank() == 0:
            next(self._batches, None)  # the process writes its figures after the last batch
        return batch

    def _begin(self, epoch: int) -> None:
        folder, job = _folder(self._folder, epoch), self._job(epoch)
        if not ranks.from_first_rank(np.array([folder.is_dir()]) if ranks.rank() == 0 else None, 1)[0]:
            self._prepare(epoch, folder)
        if ranks.rank() == 0:
            if self._device == "cuda":
                import torch

                torch.cuda.empty_cache()  # the process computes candidates on the same GPU
            self._process.close()
            self._batches = self._process.enter_context(process.scheduled(folder, job))
        self._epoch = epoch

    def _job(self, epoch: int) -> process.ScheduleJob:
        own = self._config.batch_scheduling
        return process.ScheduleJob(
            method="beam" if self._config.batch_order == "abs_beam" else "greedy",
            sizes=np.diff(self._edges).tolist(),
            seed=self._config.seed,
            epoch=epoch,
            width=own.beam_width,
            depth=own.list_depth,
            pool=own.pool,
            device=self._device,
        )

    def _prepare(self, epoch: int, folder: Path) -> None:
        """Writes the similarity of an epoch's pairs, under a temporary name until it is complete."""
        pools, size = self._pools, int(self._edges[-1])
        queries_N = np.tile(pools.queries, len(pools.negatives))
        passages_N = np.array([examples.positive(pools, epoch, index, self._draw) for index in range(size)])
        vectors: dict[str, np.ndarray] = {}
        if epoch:
            vectors["questions"], vectors["passages"] = self._vectors(queries_N, passages_N)
        if ranks.rank() != 0:
            return
        unfinished = folder.with_suffix(".part")
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir()
        for name, vectors_ND in vectors.items():
            np.save(unfinished / f"{name}.npy", vectors_ND)
        if not epoch:
            questions = [self._data.queries[int(i)] for i in queries_N]
            passages = [self._passage(int(i)) for i in passages_N]
            depth, entries = self._config.batch_scheduling.list_depth, self._data.specials.vocab_size
            question, passage, score = bm25_lists(questions, passages, entries, depth)
            np.savez(unfinished / process.CANDIDATES, question=question, passage=passage, score=score)
        barred_E2 = np.stack(barred_pairs(pools.barred, np.searchsorted(pools.queries, queries_N), passages_N), axis=1)
        np.save(unfinished / process.JUDGED, barred_E2.astype(np.int32))
        unfinished.rename(folder)

    def _passage(self, row: int) -> np.ndarray:
        return np.concatenate([self._data.titles[row], self._data.passages[row]])


def _folder(schedule: Path, epoch: int) -> Path:
    return schedule / f"epoch-{epoch}"
