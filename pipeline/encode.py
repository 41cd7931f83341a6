"""Passage vectors of a collection, in shards that are finished one by one."""

import json
import os
from pathlib import Path

from pydantic import Field

from pipeline.config import Config
from pipeline.encoder import EncoderConfig
from pipeline.errors import InputError
from pipeline.work import Metrics, Progress, Work


class EncodeConfig(Config):
    passage_tokens: int = Field(ge=8, le=512)
    """Tokens of a passage's input, title and special tokens included. 128 (MARCO), 256 (NQ): coCondenser, section 4."""
    shard_passages: int = Field(ge=1)
    """Passages in a shard, the unit that a kill can lose."""


def encode(config: EncodeConfig, encoder: EncoderConfig, tokens: Path, checkpoint: Path, work: Work) -> Metrics:
    """Write `shard-00000.npy` (float16, [rows, dimension]) ... and `embeddings.json`, in passage order.

    Shards grow in `work.checkpoints`, so that a killed run keeps those it finished.
    """
    from pipeline.launch import device_of, launch
    from pipeline.processes import workers

    shards = work.checkpoints / "shards"
    shards.mkdir(parents=True, exist_ok=True)
    arguments = {
        "config": config.model_dump(mode="json"),
        "encoder": encoder.model_dump(mode="json"),
        "tokens": str(tokens),
        "checkpoint": str(checkpoint),
        "shards": str(shards),
        "workers": workers(work.machine),
        "token_budget": work.machine.token_budget,
    }
    # On the CPU one child loads the model and forks; on GPUs there is a rank for each.
    ranks = 0 if device_of(work.machine) == "cuda" else 1
    machine = work.machine.model_copy(update={"ranks": ranks, "threads": 1, "torchrun": []})
    result = launch("pipeline.encode:run", arguments, machine, work.progress, work.checkpoints)
    for number in range(len(result["rows"])):
        (shards / shard_name(number)).rename(work.out / shard_name(number))
    (work.out / "embeddings.json").write_text(json.dumps(result) + "\n")
    return {"passages": sum(result["rows"]), "dimension": result["dim"], "shards": len(result["rows"])}


def shard_name(number: int) -> str:
    """File name of a shard."""
    return f"shard-{number:05d}.npy"


def run(
    *,
    progress: Progress,
    device: str,
    config: dict,
    encoder: dict,
    tokens: str,
    checkpoint: str,
    shards: str,
    workers: int,
    token_budget: int,
) -> dict:
    """Encode what `shards` still lacks. On CPU `workers` single-threaded forks share the model; on GPUs a rank each.

    Returns the content of embeddings.json.
    """
    import torch

    from pipeline.biencoder import check_fits, encode_rows, load_encoders
    from pipeline.distributed import rank, world
    from pipeline.inputs import passage_rows, read_form
    from pipeline.ragged import Tokens

    settings = EncodeConfig(**config)
    artifact = Tokens.open(Path(tokens))
    passages = len(artifact.passages)
    bounds = [
        (start, min(start + settings.shard_passages, passages)) for start in range(0, passages, settings.shard_passages)
    ]
    form = read_form(EncoderConfig(**encoder), Path(checkpoint), artifact.specials)
    model = load_encoders(Path(checkpoint))[1]
    check_fits(model, artifact.specials, Path(checkpoint), "passage_tokens", settings.passage_tokens)
    todo = [i for i, (start, stop) in enumerate(bounds) if not _finished(Path(shards, shard_name(i)), stop - start)]
    done = passages - sum(bounds[i][1] - bounds[i][0] for i in todo)

    def work(numbers: list[int], tick) -> None:
        for number in numbers:
            rows = passage_rows(artifact, range(*bounds[number]), form, settings.passage_tokens)
            vectors = _halves(encode_rows(model, rows, token_budget, tick))
            _save(vectors, Path(shards, shard_name(number)))

    if device == "cpu":
        torch.set_num_threads(1)  # before the first parallel region: OpenMP's threads do not survive a fork
        _fork(work, [todo[i::workers] for i in range(min(workers, len(todo)))], done, passages, progress)
    else:
        model.to(device)
        finished = done

        def tick(count: int) -> None:
            nonlocal finished
            finished += count * world()
            progress(min(finished, passages), passages, "passages")

        work(todo[rank() :: world()], tick)
    return {"dim": model.dimension, "rows": [b - a for a, b in bounds], "pooling": model.pooling}


def _halves(vectors_NE):
    import numpy as np

    halves_NE = vectors_NE.astype(np.float16)
    if not np.isfinite(halves_NE).all():
        raise InputError("vectors beyond float16: the encoder diverged in training (try a lower learning_rate)")
    return halves_NE


def _finished(path: Path, rows: int) -> bool:
    import numpy as np

    return path.is_file() and len(np.load(path, mmap_mode="r")) == rows


def _save(vectors, path: Path) -> None:
    import numpy as np

    unfinished = path.with_suffix(".part")
    with open(unfinished, "wb") as file:
        np.save(file, vectors)
        file.flush()
        os.fsync(file.fileno())
    unfinished.rename(path)


def _fork(work, shares: list[list[int]], done: int, total: int, progress: Progress) -> None:
    """Run `work(share, tick)` for each share in a fork of its own and report their progress; all end with this one.

    Raises what a fork raised: InputError as such, anything else as RuntimeError with its traceback.
    """
    import multiprocessing
    import traceback

    from pipeline.parent import die_with_parent

    context, parent = multiprocessing.get_context("fork"), os.getpid()
    counts = context.Array("q", max(1, len(shares)), lock=False)
    errors = context.SimpleQueue()

    def body(place: int) -> None:
        os.environ["PIPELINE_PARENT"] = str(parent)
        die_with_parent()

        def tick(count: int) -> None:
            counts[place] += count

        try:
            work(shares[place], tick)
        except InputError as error:
            errors.put(error)
            raise SystemExit(2) from error
        except Exception as error:
            errors.put(RuntimeError(traceback.format_exc()))
            raise SystemExit(1) from error

    forks = [context.Process(target=body, args=(place,)) for place in range(len(shares))]
    for fork in forks:
        fork.start()
    try:
        waiting = forks
        while waiting:
            waiting[0].join(0.5)
            progress(done + sum(counts), total, "passages")
            codes = [fork.exitcode for fork in forks]  # one look for both questions: a fork may end at any moment
            if any(codes):
                raise RuntimeError(f"exit codes {codes} of processes that encode") if errors.empty() else errors.get()
            waiting = [fork for fork, code in zip(forks, codes, strict=True) if code is None]
    finally:
        for fork in forks:
            fork.terminate()
            fork.join()
