"""The bi-encoder of the tests of dense retrieval."""

from pipeline.encoder import EncoderConfig
from pipeline.inputs import Form
from pipeline.ragged import Specials

SPECIALS = Specials(vocab_size=305, pad=0, unk=1, cls=2, sep=3, mask=4)
ENCODER = EncoderConfig(
    pooling="cls",
    normalise=False,
    projection=0,
    tied=True,
    question_tokens=16,
    title_tokens=4,
    title_join="sep",
    question_prefix="",
    passage_prefix="",
)
FORM = Form(SPECIALS, question_tokens=16, title_tokens=4, between=(3,))
