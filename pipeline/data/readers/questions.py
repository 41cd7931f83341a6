"""Generates questions from a document's title, headings, first sentences and passages, for texts without questions."""

import random
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from pipeline.data.ids import hash_id
from pipeline.data.readers.cut import cut_text
from pipeline.data.readers.sections import Document, lower_words
from pipeline.data.readers.text_config import Kind
from pipeline.data.text.sentences import ends_sentence, sentences
from pipeline.data.text.words import count, spans

if TYPE_CHECKING:
    from pipeline.data.readers.text_config import TextConfig


# English headings of several words that fit any section.
SAYING_NOTHING = {
    *("about this document", "additional information", "additional resources", "basic usage", "bug fixes"),
    *("change log", "contact us", "external links", "frequently asked questions", "further reading"),
    *("further information", "getting help", "getting started", "how it works", "how to use", "in this section"),
    *("key features", "key points", "known issues", "learn more", "more information", "new features", "next steps"),
    *("on this page", "other changes", "quick start", "read more", "release notes", "see also", "table of contents"),
    *("what's new", "what’s new", "what is new", "what's changed", "what’s changed", "what next", "what's next"),
}
SIGNS = frozenset("{}[]<>|=_\\/#$@*^~`+&%;")
SIGNS_SHARE = 0.1  # of a sentence's characters; more signs mean code


class Question(NamedTuple):
    """`passages`: indices, in the document, of the passages that answer it."""

    question_id: str
    kind: Kind
    text: str
    passages: list[int]


class GeneratedQuestions(NamedTuple):
    """(title, text) of a document's passages, its questions, and (reason, id) of candidates that are left out."""

    passages: list[tuple[str, str]]
    questions: list[Question]
    left_out: list[tuple[str, str]]


def split_of(document_id: str, config: "TextConfig") -> str:
    """Returns train, dev or test by a hash of the id, independent of all other documents."""
    x = _uniform(f"{config.seed} split {document_id}")
    if x < config.test_share:
        return "test"
    return "dev" if x < config.test_share + config.dev_share else "train"


def asking(document: Document, config: "TextConfig") -> Iterator[str]:
    """Yields the candidates for questions, except crops: titles, headings and first sentences.

    `generate_questions` uses those that occur in only one place.
    """
    for kind, _, text in _candidates(document, config):
        if not _says_nothing(kind, text, config):
            yield text


def generate_questions(document: Document, config: "TextConfig", repeated: Callable[[str], bool]) -> GeneratedQuestions:
    """Returns the document's passages and questions. `repeated`: whether a text occurs in several places; such texts
    are not used.

    If the words of a question occurred in its passage, they alone would find it: BM25 would win every evaluation, and
    the dense model would learn to match words. So the question is removed from the indexed text: titles and headings
    from the passages' titles, first sentences and crops from the text. In training a share of them may stay, as in the
    Inverse Cloze Task (Lee, Chang and Toutanova 2019, section 5: the sentence is removed in 90 % of the examples, so
    that word matching is learnt too); in dev and test none stays.

    The answers of a title are all passages of its document, of a heading those of its section with all subsections, of
    a first sentence the rest of its section (without subsections), of a crop the rest of its passage. A heading's
    question does not contain the document's title, which occurs in all passages and would find them alone.
    """

    def question_id(kind: Kind, place: int) -> str:
        return f"{document.document_id}?{kind}:{place}"

    split = split_of(document.document_id, config)
    left_out: list[tuple[str, str]] = []
    chosen: dict[tuple[Kind, int], str] = {}
    lengths = [count(section.text) for section in document.sections]
    answering = _answering(document)
    for kind, place, text in _candidates(document, config):
        rest = sum(lengths[i] for i in answering(kind, place)) - (count(text) if kind == "first_sentences" else 0)
        if _says_nothing(kind, text, config):
            left_out.append(("saying_nothing", question_id(kind, place)))
        elif repeated(text):
            left_out.append(("repeated", question_id(kind, place)))
        elif rest < config.remaining_words:
            left_out.append(("without_rest", question_id(kind, place)))
        else:
            chosen[kind, place] = text

    def removed(kind: Kind, place: int) -> bool:
        if (kind, place) not in chosen:
            return False
        return split != "train" or _uniform(f"{config.seed} kept {question_id(kind, place)}") >= config.kept_share

    title = "" if removed("titles", 0) else document.title
    passages: list[tuple[str, str]] = []
    of_section: list[list[int]] = []
    for i, section in enumerate(document.sections):
        headings = [document.headings[j] for j in section.path if not removed("headings", j)]
        text = section.text
        if removed("first_sentences", i):
            text = text[_sentence_end(text) :]
        pieces = cut_text(text, config.passage_words, config.passage_overlap) or [""]
        of_section.append(list(range(len(passages), len(passages) + len(pieces))))
        passages += [(": ".join(part for part in (title, *headings) if part), piece) for piece in pieces]

    questions = []
    for (kind, place), text in chosen.items():
        answers = [passage for i in answering(kind, place) for passage in of_section[i]]
        questions.append(Question(question_id(kind, place), kind, text, answers))
    if "crops" in config.questions:
        for i, (passage_title, text) in enumerate(passages):
            crop = _crop(text, config)
            if not crop:
                left_out.append(("without_rest", question_id("crops", i)))
            elif repeated(crop[0]):
                left_out.append(("repeated", question_id("crops", i)))
            else:
                chosen["crops", i] = crop[0]
                questions.append(Question(question_id("crops", i), "crops", crop[0], [i]))
                if removed("crops", i):
                    passages[i] = passage_title, crop[1]
    return GeneratedQuestions(passages, questions, left_out)


def _candidates(document: Document, config: "TextConfig") -> Iterator[tuple[Kind, int, str]]:
    """Yields (kind, index of the heading or section, text)."""
    if "titles" in config.questions and document.title:
        yield "titles", 0, document.title
    if "headings" in config.questions:
        yield from (("headings", i, text) for i, text in enumerate(document.headings))
    if "first_sentences" in config.questions:
        for i, section in enumerate(document.sections):
            if section.text:
                yield "first_sentences", i, " ".join(section.text[: _sentence_end(section.text)].split())


def _says_nothing(kind: Kind, text: str, config: "TextConfig") -> bool:
    if kind == "first_sentences":
        low, high = config.sentence_words
        prose = sum(c in SIGNS for c in text) <= SIGNS_SHARE * len(text)
        return not (low <= count(text) <= high and text[:1].isalpha() and prose)
    plain = lower_words(text)
    longer = " ".join(word for word in plain.split() if len(word) > 1)
    return count(longer) < config.heading_words or plain in SAYING_NOTHING


def _answering(document: Document) -> Callable[[Kind, int], Sequence[int]]:
    """Returns a function from a candidate's kind and index to the sections that answer it."""
    under: list[list[int]] = [[] for _ in document.headings]
    for i, section in enumerate(document.sections):
        for heading in section.path:
            under[heading].append(i)

    def sections(kind: Kind, place: int) -> Sequence[int]:
        if kind == "titles":
            return range(len(document.sections))
        return under[place] if kind == "headings" else [place]

    return sections


def _sentence_end(text: str) -> int:
    """Returns the end of the first sentence of the first paragraph; 0: no sentence ends there."""
    start, end = next(sentences(text), (0, 0))
    return end if ends_sentence(text[start:end]) else 0


def _crop(text: str, config: "TextConfig") -> tuple[str, str] | None:
    """Returns (a random span of whole words, the rest), or None if one is too short. Equal texts give equal crops."""
    word_spans = spans(text)
    draw = random.Random(hash_id(f"{config.seed} crop {text}"))
    low, high = config.sentence_words
    length = min(max(round(draw.uniform(*config.crop_share) * len(word_spans)), low), high)
    if len(word_spans) - length < config.remaining_words:
        return None
    first = draw.randrange(len(word_spans) - length + 1)
    start, end = word_spans[first][0], word_spans[first + length - 1][1]
    rest = f"{text[:start].rstrip()} {text[end:].lstrip()}".strip()
    return " ".join(text[start:end].split()), rest


def _uniform(text: str) -> float:
    """Returns a number in [0, 1) that depends only on the text."""
    return hash_id(text) / 2**64
