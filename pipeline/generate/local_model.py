"""A local Hugging Face model as the writer of questions: seq2seq or causal. Runs in a child process.

Shapes: B prompts of a batch, L tokens of the longest.
"""

import json
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline.data.text.text_files import json_lines
from pipeline.errors import InputError, reason
from pipeline.generate.answer_store import AnswerStore
from pipeline.generate.prompts import flat, shorter
from pipeline.language_model.chat_completion import Answer, Message
from pipeline.notices import one_line
from pipeline.runtime.precision import low_precision
from pipeline.runtime.work import Metrics, Progress

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

SORTED = 16
"""Batches whose prompts are sorted by length together, so that a batch has little padding."""
WRITERS = ("ForCausalLM", "ForConditionalGeneration", "LMHeadModel")
"""Ends of the names of models that write text."""
UNLIMITED = 1 << 20
"""Tokenizers without a limit name a larger one."""


def write(
    *, progress: Progress, device: str, folder: str, prompts: str, answers: str, total: int, config: dict[str, Any]
) -> Metrics:
    """Writes the answers to the requests of the file `prompts` (JSON lines: key, messages) to the store in `answers`.

    `config`: prompt, questions, answer_tokens, temperature, seed and batch of `GenerateConfig`. Returns the tokens read
    and written, and `too_long`: requests without an answer, because they are longer than the model's input.
    """
    writer = Writer(Path(folder), device, config)
    # Sampled tokens are drawn for a whole batch: alone, a prompt has the same answer whatever else is still missing.
    size = 1 if config["temperature"] else config["batch"]
    counts: Metrics = {"input_tokens": 0, "output_tokens": 0, "too_long": 0}
    read, written, too_long, done = 0, 0, 0, 0
    with AnswerStore(Path(answers)) as store:
        for batch in _batches(Path(prompts), writer, size):
            fitting = [(key, ids) for key, ids in batch if len(ids) <= writer.longest]
            too_long += len(batch) - len(fitting)
            found = writer.answer(fitting) if fitting else []
            store.add(found)
            read += sum(answer.input_tokens for _, answer in found)
            written += sum(answer.output_tokens for _, answer in found)
            done += len(batch)
            progress(done, total, "requests", {"input_tokens": read, "output_tokens": written})
    return counts | {"input_tokens": read, "output_tokens": written, "too_long": too_long}


Prompt = tuple[str, list[int]]
"""A request's key, and the tokens of its prompt."""


def _batches(path: Path, writer: "Writer", size: int) -> Iterator[list[Prompt]]:
    rows = ((row["key"], writer.fitting(row["messages"])) for _, row in json_lines(path))
    while group := sorted(islice(rows, SORTED * size), key=lambda one: -len(one[1])):
        yield from (group[start : start + size] for start in range(0, len(group), size))


class Writer:
    """The model and its tokenizer. Raises InputError for a folder without a generative model."""

    def __init__(self, folder: Path, device: str, config: dict[str, Any]) -> None:
        import torch

        self.device, self.config = device, config
        self.tokenizer: Any  # the library's hints of types lack much
        self.model: Any
        self.model, self.tokenizer = load(folder, low_precision(device) or torch.float32)
        self.is_seq2seq = bool(self.model.config.is_encoder_decoder)
        self.tokenizer.padding_side = "right" if self.is_seq2seq else "left"
        if self.tokenizer.pad_token_id is None:
            self.tokenizer.pad_token = self.tokenizer.eos_token
        if self.tokenizer.pad_token_id is None:
            raise InputError(f"generate: the tokenizer in {folder} has no padding token and no end token")
        self.model.to(device=device).eval()
        limits = [getattr(self.model.config, "max_position_embeddings", None), self.tokenizer.model_max_length]
        longest = min((limit for limit in limits if limit and limit < UNLIMITED), default=UNLIMITED)
        self.longest = longest if self.is_seq2seq else longest - config["answer_tokens"]

    def fitting(self, messages: Sequence[Message]) -> list[int]:
        """Returns the tokens of a prompt: without some examples, or with a shorter passage, if it is longer than the
        model's input.
        """
        ids = self.ids(messages)
        while len(ids) > self.longest and (less := shorter(messages)) is not None:
            messages, ids = less, self.ids(less)
        return ids

    def ids(self, messages: Sequence[Message]) -> list[int]:
        """Returns the tokens of a prompt: by the chat template if there is one, else of one text."""
        if not self.tokenizer.chat_template:
            ids: list[int] = self.tokenizer(flat(messages), truncation=False, verbose=False)["input_ids"]
            return ids
        try:
            return self._templated(messages)
        except Exception as error:  # whatever the template raises
            if messages[0]["role"] != "system":
                raise InputError(f"generate: the model's chat template fails: {reason(error)}") from error
        return self.ids(without_system(messages))  # some templates know no system message

    def _templated(self, messages: Sequence[Message]) -> list[int]:
        text = self.tokenizer.apply_chat_template(
            list(messages), tokenize=False, add_generation_prompt=True, enable_thinking=False
        )
        ids: list[int] = self.tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]
        return ids

    def answer(self, prompts: Sequence[Prompt]) -> list[tuple[str, Answer]]:
        """Returns the answer to each prompt. Sampling starts from the seed and the first prompt's key.

        Raises InputError if the memory of a GPU is too small.
        """
        import torch

        config, returned = self.config, self.config["questions"] if self.config["prompt"] == "passage" else 1
        padded = self.tokenizer.pad({"input_ids": [ids for _, ids in prompts]}, return_tensors="pt")
        sampling: dict[str, Any] = {"do_sample": False}
        if config["temperature"]:
            sampling = {"do_sample": True, "temperature": config["temperature"]}
            torch.manual_seed((config["seed"] + int(prompts[0][0][:12], 16)) % (1 << 63))
        try:
            with torch.inference_mode():
                output_RL = self.model.generate(
                    input_ids=padded["input_ids"].to(self.device),
                    attention_mask=padded["attention_mask"].to(self.device),
                    max_new_tokens=config["answer_tokens"],
                    num_return_sequences=returned,
                    num_beams=1,
                    pad_token_id=self.tokenizer.pad_token_id,
                    **sampling,
                )
        except torch.OutOfMemoryError:
            raise InputError(out_of_memory(len(prompts))) from None
        if not self.is_seq2seq:
            output_RL = output_RL[:, padded["input_ids"].shape[1] :]
        texts = self.tokenizer.batch_decode(output_RL, skip_special_tokens=True)
        lengths = (output_RL != self.tokenizer.pad_token_id).sum(1).tolist()
        return [
            (key, Answer("\n".join(texts[row : row + returned]), len(ids), sum(lengths[row : row + returned])))
            for row, (key, ids) in zip(range(0, len(texts), returned), prompts, strict=True)
        ]


def out_of_memory(prompts: int) -> str:
    """Returns what is too large for a GPU, and what to do."""
    if prompts > 1:
        return f"generate.batch: {prompts} prompts at a time are too large for this GPU's memory; lower it"
    return "generate: a single prompt is too large for this GPU's memory; lower generate.passage_words"


def without_system(messages: Sequence[Message]) -> list[Message]:
    """Returns the messages with the system's text before that of the first user."""
    system, asked, *rest = messages
    return [{"role": "user", "content": f"{system['content']}\n\n{asked['content']}"}, *rest]


def load(folder: Path, dtype: "torch.dtype") -> "tuple[PreTrainedModel, PreTrainedTokenizerBase]":
    """Returns the model, with weights of `dtype`, and its tokenizer. No code of the folder is run.

    Weights that `dtype` is too narrow for stay float32: transformers knows them while it loads (T5's `wo` in float16).
    Raises InputError if the model cannot be read.
    """
    import transformers
    from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForSeq2SeqLM, AutoTokenizer

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    local: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}
    check_architecture(folder)
    try:
        config = AutoConfig.from_pretrained(folder, **local)
        auto: Any = AutoModelForSeq2SeqLM if config.is_encoder_decoder else AutoModelForCausalLM
        model = auto.from_pretrained(folder, dtype=dtype, use_safetensors=True, **local)
        return model, AutoTokenizer.from_pretrained(folder, **local)
    except Exception as error:  # the library raises errors of many kinds for a folder that it cannot read
        raise InputError(f"generate: no model that writes text in {folder}: {reason(error)}") from error


def check_architecture(folder: Path) -> None:
    """Raises InputError for a folder without a model that writes text: its head would get random weights."""
    path = folder / "config.json"
    try:
        value = json.loads(path.read_bytes())
        named = [str(name) for name in value.get("architectures") or []]
    except FileNotFoundError:
        raise InputError(f"generate: no model in {folder}: config.json does not exist") from None
    except (OSError, ValueError, RecursionError, AttributeError, TypeError):
        raise InputError(f"generate: {path} cannot be read as a model's configuration") from None
    if not any(name.endswith(WRITERS) for name in named):
        shown = one_line(", ".join(named)) or "none is named"
        raise InputError(
            f"generate: the model in {folder} writes no text (architecture: {shown}): take a causal or seq2seq model"
        )


def write_prompts(path: Path, requests: Iterator[tuple[str, Sequence[Message]]]) -> int:
    """Writes the file that `write` reads. Returns the number of requests."""
    number = 0
    with open(path, "w", encoding="utf-8") as file:
        for key, messages in requests:
            file.write(json.dumps({"key": key, "messages": list(messages)}) + "\n")
            number += 1
    return number
