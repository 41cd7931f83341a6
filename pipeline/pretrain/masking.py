"""Whole-word masks for masked language modelling, vectorised over flat texts.

Shapes: S sequences of T tokens and W words together, M masked tokens, R of them replaced by random tokens.
"""

import numpy as np

from pipeline.data.counter_rng import uniform
from pipeline.modeling.packing import Batch
from pipeline.pretrain.batches import packed
from pipeline.runtime.work import Machine
from pipeline.tokenization.token_files import Ragged, Specials

WORDS, TOKENS = 0, 1  # the purpose of a draw, part of its key


def mask(
    ids_T: np.ndarray,
    word_starts_T: np.ndarray,
    length_S: np.ndarray,
    row_S: np.ndarray,
    fraction: float,
    seed: int,
    step: int,
    specials: Specials,
) -> tuple[np.ndarray, np.ndarray]:
    """Masks whole words of each sequence: about `fraction` of its tokens, and at least one word.

    Of the masked tokens, 80 % become [MASK], 10 % a random ordinary token, and 10 % stay (BERT, section 3.1; whole
    words as in Condenser's code). Words with a special token (such as [UNK]) are never masked. A pure function of
    (seed, step, row): `row_S` are the sequences' numbers, `length_S` their tokens.

    Returns the corrupted ids [T] int64, and which tokens are masked [T] bool.
    """
    sequence_T = np.repeat(np.arange(len(length_S)), length_S)
    first_S = np.cumsum(length_S) - length_S
    masked_T = np.zeros(len(ids_T), bool)
    corrupted_T = ids_T.astype(np.int64)
    if not len(ids_T):
        return corrupted_T, masked_T

    starts_T = word_starts_T.copy()
    starts_T[first_S[length_S > 0]] = True  # a crop may begin inside a word
    word_T = np.cumsum(starts_T) - 1
    at_W = np.flatnonzero(starts_T)
    size_W = np.concatenate([at_W[1:], [len(ids_T)]]) - at_W
    sequence_W = sequence_T[at_W]
    special_V = np.zeros(specials.vocab_size, bool)
    special_V[list(specials.ids)] = True
    ordinary_W = np.ones(len(at_W), bool)
    ordinary_W[word_T[special_V[ids_T]]] = False

    # Put the words of each sequence in random order. Those whose middle is within the first `fraction` of its tokens
    # are masked, so that long and short words are masked equally often.
    draw_W = np.where(ordinary_W, uniform(seed, step, WORDS, row_S[sequence_W], at_W - first_S[sequence_W]), 1.0)
    key_W = (sequence_W << 41) + (draw_W * 2.0**40).astype(np.int64)  # one number sorts faster than two
    order_W = np.argsort(key_W, kind="stable")
    size_W, ordinary_W = size_W[order_W], ordinary_W[order_W]  # sequence_W is the same in either order
    before_W = np.cumsum(size_W) - size_W - first_S[sequence_W]
    chosen_W = ordinary_W & ((before_W + size_W / 2 < fraction * length_S[sequence_W]) | (before_W == 0))
    masked_W = np.zeros(len(at_W), bool)
    masked_W[order_W[chosen_W]] = True
    masked_T = masked_W[word_T]

    at_M = np.flatnonzero(masked_T)
    draw_M = uniform(seed, step, TOKENS, row_S[sequence_T[at_M]], at_M - first_S[sequence_T[at_M]])
    corrupted_T[at_M[draw_M < 0.8]] = specials.mask
    # The draws that select a random token are uniform between 0.8 and 0.9, so they also determine the token.
    replaced_M = (draw_M >= 0.8) & (draw_M < 0.9)
    ordinary = specials.vocab_size - len(specials.ids)
    random_R = np.minimum((draw_M[replaced_M] - 0.8) * (10 * ordinary), ordinary - 1).astype(np.int64)
    for special in specials.ids:  # ascending: skips each in turn
        random_R += random_R >= special
    corrupted_T[at_M[replaced_M]] = random_R
    return corrupted_T, masked_T


def masked_batch(
    texts: Ragged,
    begin_S: np.ndarray,
    length_S: np.ndarray,
    row_S: np.ndarray,
    fraction: float,
    seed: int,
    step: int,
    specials: Specials,
    machine: Machine,
    device: str,
) -> Batch:
    """Masks the sequences texts.tokens[begin : begin + length] and packs this rank's share into chunks.

    `row_S`: numbers that key the masks. All ranks compute the masks of the whole batch, so that each knows how many
    tokens are masked.
    """
    first_S = np.cumsum(length_S) - length_S
    at_T = np.repeat(begin_S - first_S, length_S) + np.arange(length_S.sum())
    true_T = texts.tokens[at_T].astype(np.int64)
    ids_T, masked_T = mask(true_T, texts.word_starts[at_T], length_S, row_S, fraction, seed, step, specials)
    return packed(ids_T, true_T, masked_T, length_S, specials, machine, device)
