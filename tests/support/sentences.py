"""Tables of made-up sentences whose similarity a tiny model can learn, and how it trains."""

from pathlib import Path

import numpy as np

from pipeline.sentences.model import SentenceEncoder
from pipeline.sentences.readers import LabelledConfig, Layout, ScoredConfig, TripletConfig
from pipeline.sentences.tune import TuneTraining
from pipeline.training.loop import Optimiser

ENCODER = SentenceEncoder(pooling="own", prefix=None, tokens=24)
OPTIMISER = Optimiser(
    learning_rate=3e-3,
    betas=(0.9, 0.98),
    epsilon=1e-6,
    weight_decay=0.0,
    clip_norm=1.0,
    warmup_ratio=0.1,
    warmup_steps=None,
)
TRAINING = TuneTraining(batch=8, subset_seed=1, keep="last", margin=1.0, dropout=0.0, seed=3, optimiser=OPTIMISER)
SPLITS = ("train", "dev", "test")
LABELS = ["contradiction", "entailment", "neutral"]
TAB = Layout(separator="tab", quotes=False, header=False)
COMMA = Layout(separator="comma", quotes=True, header=True)


def words(rng: np.random.Generator, group: int, number: int = 6) -> list[str]:
    """Of one of two groups of 8 words, which no model knows before it has learnt them."""
    return [f"w{8 * group + i}" for i in rng.integers(0, 8, number)]


def near(rng: np.random.Generator, group: int, share: float) -> str:
    """`share` of the words of the same group, the others of the other one."""
    own = round(6 * share)
    return " ".join(rng.permutation([*words(rng, group, own), *words(rng, 1 - group, 6 - own)]))


def scored(folder: Path, train: int = 120, others: int = 40) -> ScoredConfig:
    """STS-b's format: the score is the share of words of the same group, times 5."""
    rng = np.random.default_rng(1)
    for split in SPLITS:
        lines = []
        for i in range(train if split == "train" else others):
            group, share = i % 2, int(rng.integers(0, 7)) / 6
            texts = f"{' '.join(words(rng, group))}\t{near(rng, group, share)}"
            lines.append(f"main\tmade\t2012\t{i:04}\t{5 * share:.3f}\t{texts}\r\n")
        (folder / f"sts-{split}.csv").write_bytes("".join(lines).encode())
    paths = {split: folder / f"sts-{split}.csv" for split in SPLITS}
    return ScoredConfig(kind="scored", **paths, layout=TAB, score=5, sentence1=6, sentence2=7, highest=5)


def labelled(folder: Path, train: int = 120) -> LabelledConfig:
    """Entailment: words of the same group; neutral: half of them; contradiction: none."""
    rng = np.random.default_rng(2)
    for split in SPLITS[:2]:
        lines = ["gold,sentence1,sentence2"]
        for i in range(train if split == "train" else 24):
            group, share = i // 3 % 2, (0.0, 1.0, 0.5)[i % 3]
            lines.append(f'{LABELS[i % 3]},"{" ".join(words(rng, group))}",{near(rng, group, share)}')
        (folder / f"nli-{split}.csv").write_text("\n".join(lines) + "\n")
    paths = {split: folder / f"nli-{split}.csv" for split in SPLITS[:2]}
    columns = {"sentence1": "sentence1", "sentence2": "sentence2", "label": "gold"}
    return LabelledConfig(kind="labelled", **paths, layout=COMMA, **columns, labels=LABELS, left_out=["-"])


def triplets(folder: Path, train: int = 120) -> TripletConfig:
    """Anchor and positive are of one group, the negative is of the other."""
    rng = np.random.default_rng(3)
    for split in SPLITS:
        lines = ["anchor,positive,negative"]
        for i in range(train if split == "train" else 40):
            lines.append(",".join(" ".join(words(rng, group)) for group in (i % 2, i % 2, 1 - i % 2)))
        (folder / f"triplets-{split}.csv").write_text("\n".join(lines) + "\n")
    paths = {split: folder / f"triplets-{split}.csv" for split in SPLITS}
    return TripletConfig(kind="triplets", **paths, layout=COMMA, anchor=1, positive=2, negative=3)
