"""Which examples stand in which batch: shuffled, as they come, or scheduled by how hard they are for each other (ABS).

Shapes: N examples of an epoch, each a pair of a question and its positive; D dimensions.
"""

import contextlib
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import torch

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
"""vectors(questions_N, passages_N): [N, D] each, by the encoder as it is now; all ranks call it together."""


def fixed(config: FinetuneConfig, edges: np.ndarray) -> Order:
    """Batches that hang on the seed alone."""

    def order(epoch: int, place: int) -> np.ndarray:
        size = int(edges[-1])
        indices = examples.order(config.seed, epoch, size) if config.order == "random" else np.arange(size)
        return indices[edges[place] : edges[place + 1]]

    return order


@contextlib.contextmanager
def opened(
    config: FinetuneConfig,
    pools: Pools,
    data: Tokens,
    edges: np.ndarray,
    vectors: Vectors,
    folder: Path,
    device: str,
) -> Iterator[Order]:
    """The order that the recipe wants. `edges`: of an epoch's batches; `folder`: for what a schedule hangs on."""
    if not config.order.startswith("abs"):
        yield fixed(config, edges)
        return
    with contextlib.closing(Scheduled(config, pools, data, edges, vectors, folder, device)) as order:
        yield order


def hardness(folder: Path) -> list[dict[str, float]]:
    """Summed hardness of each finished epoch's batches, and of random ones; none where nothing was scheduled."""
    epochs = sorted(int(path.parent.name.split("-")[1]) for path in folder.glob(f"epoch-*/{process.HARDNESS}"))
    return [{"epoch": epoch + 1, **process.hardness(_folder(folder, epoch))} for epoch in epochs]


class Scheduled:
    """Adaptive Batch Scheduling: BM25 says in the first epoch what is hard, then the encoder at each epoch's start.

    The first rank owns the scheduling process and tells the others each batch. What an epoch's batches hang on lies in
    `folder` before its first update, so that a training that goes on after a kill sees the same ones.
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
            if ranks.rank() == 0:  # a training that goes on: what it has done already
                for _ in range(place):
                    next(self._batches)
        size = int(self._edges[place + 1] - self._edges[place])
        batch = self._tell(next(self._batches) if ranks.rank() == 0 else None, size)
        if place == last and ranks.rank() == 0:
            next(self._batches, None)  # the process writes its figures behind the last batch
        return batch

    def _begin(self, epoch: int) -> None:
        folder, job = _folder(self._folder, epoch), self._job(epoch)
        if not self._tell(np.array([folder.is_dir()]) if ranks.rank() == 0 else None, 1)[0]:
            self._prepare(epoch, folder)
        if ranks.rank() == 0:
            self._process.close()
            self._batches = self._process.enter_context(process.scheduled(folder, job))
        self._epoch = epoch

    def _job(self, epoch: int) -> process.Job:
        own = self._config.abs
        return process.Job(
            method="beam" if self._config.order == "abs_beam" else "greedy",
            sizes=np.diff(self._edges).tolist(),
            seed=self._config.seed,
            epoch=epoch,
            width=own.beam_width,
            depth=own.list_depth,
            pool=own.pool,
        )

    def _prepare(self, epoch: int, folder: Path) -> None:
        """Write the similarity of an epoch's pairs, under another name until it is whole."""
        pools, size = self._pools, int(self._edges[-1])
        queries_N = np.tile(pools.queries, len(pools.negatives))
        passages_N = np.array([examples.positive(pools, epoch, index, self._draw) for index in range(size)])
        found: dict[str, np.ndarray] = {}
        if epoch:
            found["questions"], found["passages"] = self._vectors(queries_N, passages_N)
        if ranks.rank() != 0:
            return
        unfinished = folder.with_suffix(".part")
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir()
        for name, vectors_ND in found.items():
            np.save(unfinished / f"{name}.npy", vectors_ND)
        if not epoch:
            asked = [self._data.queries[int(i)] for i in queries_N]
            read = [self._passage(int(i)) for i in passages_N]
            depth, entries = self._config.abs.list_depth, self._data.specials.vocab_size
            question, passage, score = bm25_lists(asked, read, entries, depth)
            np.savez(unfinished / process.CANDIDATES, question=question, passage=passage, score=score)
        barred_E2 = np.stack(barred_pairs(pools.barred, np.searchsorted(pools.queries, queries_N), passages_N), axis=1)
        np.save(unfinished / process.JUDGED, barred_E2.astype(np.int32))
        unfinished.rename(folder)

    def _passage(self, row: int) -> np.ndarray:
        return np.concatenate([self._data.titles[row], self._data.passages[row]])

    def _tell(self, known: np.ndarray | None, size: int) -> np.ndarray:
        """The first rank's numbers, on every rank. int64 [size]."""
        shared = torch.zeros(size, dtype=torch.int64, device=self._device)
        if known is not None:
            shared += torch.from_numpy(np.asarray(known, np.int64)).to(self._device)
        return ranks.add(shared).cpu().numpy()


def _folder(schedule: Path, epoch: int) -> Path:
    return schedule / f"epoch-{epoch}"
