"""Questions made from a document's title, headings, first sentences and passages, for texts that come without any."""

import random
import re
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from pipeline.data.ids import hash_id
from pipeline.data.readers.cut import cut
from pipeline.data.readers.sections import Document, words
from pipeline.data.readers.text_config import Kind
from pipeline.data.words import UNSPACED_END, count, spans

if TYPE_CHECKING:
    from pipeline.data.readers.text_config import TextConfig


# English headings of several words that stand over anything.
SAYING_NOTHING = {
    *("about this document", "additional information", "additional resources", "basic usage", "bug fixes"),
    *("change log", "contact us", "external links", "frequently asked questions", "further reading"),
    *("further information", "getting help", "getting started", "how it works", "how to use", "in this section"),
    *("key features", "key points", "known issues", "learn more", "more information", "new features", "next steps"),
    *("on this page", "other changes", "quick start", "read more", "release notes", "see also", "table of contents"),
    *("what's new", "what’s new", "what is new", "what's changed", "what’s changed", "what next", "what's next"),
}
SENTENCE_END = re.compile(r"""[.!?]["'”’)\]]*(?=\s+[^\sa-z]|\s*\Z)|""" + UNSPACED_END)
PARAGRAPH_END = re.compile(r"\n[^\S\n]*\n")
ABBREVIATION = re.compile(r"(?:^|[\s(])(?:e\.g|i\.e|cf|vs|etc|Dr|Mr|Mrs|Ms|Prof|St|No|Fig|Eq|al|[A-Z])\.$")
SIGNS = frozenset("{}[]<>|=_\\/#$@*^~`+&%;")
SIGNS_SHARE = 0.1  # of a sentence's characters; more is code


class Question(NamedTuple):
    """`passages`: the places, in the document, of those that answer it."""

    question_id: str
    kind: Kind
    text: str
    passages: list[int]


class Made(NamedTuple):
    """(title, text) of a document's passages, its questions, and (why, id) of what could have asked and does not."""

    passages: list[tuple[str, str]]
    questions: list[Question]
    left_out: list[tuple[str, str]]


def split_of(document_id: str, config: "TextConfig") -> str:
    """Train, dev or test by a hash of the id: other documents, new or changed, do not matter."""
    x = _uniform(f"{config.seed} split {document_id}")
    if x < config.test_share:
        return "test"
    return "dev" if x < config.test_share + config.dev_share else "train"


def asking(document: Document, config: "TextConfig") -> Iterator[str]:
    """What would ask if no other document said the same: titles, headings and first sentences, not crops."""
    for kind, _, text in _candidates(document, config):
        if not _says_nothing(kind, text, config):
            yield text


def make(document: Document, config: "TextConfig", repeated: Callable[[str], bool]) -> Made:
    """The document's passages and questions; `repeated` tells which texts ask in several places, and so do not.

    A question whose words stand in its passage is found by them alone: BM25 would win every evaluation and the dense
    model learn to match words. So the words that ask are taken out of what is indexed: the title and the headings out
    of the passages' titles, the first sentence and the crop out of the text. In training a share of them may stay, as
    in the Inverse Cloze Task (Lee, Chang and Toutanova 2019, section 5: the sentence is removed in 90 % of the
    examples, so that word matching is learnt too); in dev and test none does.

    A title asks for all passages of its document, a heading for those of its section with all subsections, a first
    sentence for the rest of its section (without subsections), a crop for the rest of its passage. A heading asks
    without the document's title, which stands over all its passages and would find them alone.
    """

    def question_id(kind: Kind, place: int) -> str:
        return f"{document.document_id}?{kind}:{place}"

    split = split_of(document.document_id, config)
    left_out: list[tuple[str, str]] = []
    asked: dict[tuple[Kind, int], str] = {}
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
            asked[kind, place] = text

    def removed(kind: Kind, place: int) -> bool:
        if (kind, place) not in asked:
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
        pieces = cut(text, config.passage_words) or [""]
        of_section.append(list(range(len(passages), len(passages) + len(pieces))))
        passages += [(": ".join(part for part in (title, *headings) if part), piece) for piece in pieces]

    questions = []
    for (kind, place), text in asked.items():
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
                asked["crops", i] = crop[0]
                questions.append(Question(question_id("crops", i), "crops", crop[0], [i]))
                if removed("crops", i):
                    passages[i] = passage_title, crop[1]
    return Made(passages, questions, left_out)


def _candidates(document: Document, config: "TextConfig") -> Iterator[tuple[Kind, int, str]]:
    """(kind, place, text); the place counts headings or sections."""
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
    plain = words(text)
    longer = " ".join(word for word in plain.split() if len(word) > 1)
    return count(longer) < config.heading_words or plain in SAYING_NOTHING


def _answering(document: Document) -> Callable[[Kind, int], Sequence[int]]:
    """A function from a candidate's kind and place to the sections that answer it."""
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
    """Where the first sentence of the first paragraph ends; 0: no sentence ends there."""
    paragraph = PARAGRAPH_END.search(text)
    first = text[: paragraph.start()] if paragraph else text
    ends = (match.end() for match in SENTENCE_END.finditer(first))
    return next((end for end in ends if not ABBREVIATION.search(first[:end])), 0)


def _crop(text: str, config: "TextConfig") -> tuple[str, str] | None:
    """(a random span of whole words, the rest); None where either is too short. Equal texts give equal crops."""
    found = spans(text)
    draw = random.Random(hash_id(f"{config.seed} crop {text}"))
    low, high = config.sentence_words
    length = min(max(round(draw.uniform(*config.crop_share) * len(found)), low), high)
    if len(found) - length < config.remaining_words:
        return None
    first = draw.randrange(len(found) - length + 1)
    start, end = found[first][0], found[first + length - 1][1]
    rest = f"{text[:start].rstrip()} {text[end:].lstrip()}".strip()
    return " ".join(text[start:end].split()), rest


def _uniform(text: str) -> float:
    """A number of [0, 1) that hangs on the text alone."""
    return hash_id(text) / 2**64
