"""Tiny language models from scratch, and a local server that plays recorded answers."""

import json
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from flows.recipes.recipe import resolve
from pipeline.generate.config import GenerateConfig

KEY = "sk-0123456789abcdefSECRET"
WORDS = ("what", "is", "the", "red", "ledger", "harbour", "glacier", "orchard", "Text", ":", '"', "one", "a", "of")
TEMPLATE = (
    "{% for message in messages %}<{{ message['role'] }}> {{ message['content'] }} </s>{% endfor %}"
    "{% if add_generation_prompt %}<assistant> {% endif %}"
)
WITHOUT_SYSTEM = "{% if messages[0]['role'] == 'system' %}{{ raise_exception('no system') }}{% endif %}" + TEMPLATE


def config(**fields: Any) -> GenerateConfig:
    """The base recipe's section with these fields, and short limits."""
    quick = {"min_words": 0, "timeout_seconds": 5.0, "attempts": 3, "round_trip": None}
    base = resolve("tiny").generate.model_dump()
    return GenerateConfig(**{**base, **quick, **fields})


def write_tokenizer(folder: Path, template: str | None = None) -> int:
    """Writes a tokenizer of whole words. Returns the size of its vocabulary."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    names = ["<pad>", "</s>", "<unk>", *WORDS]
    raw = Tokenizer(models.WordLevel({name: i for i, name in enumerate(names)}, unk_token="<unk>"))
    raw.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=raw, pad_token="<pad>", eos_token="</s>", unk_token="<unk>", model_max_length=4096
    )
    tokenizer.chat_template = template
    tokenizer.save_pretrained(folder)
    return len(names)


def write_t5(folder: Path, seed: int = 1) -> Path:
    """A random T5, whose weights are large enough for different answers to different prompts."""
    import torch
    from transformers import T5Config, T5ForConditionalGeneration

    torch.manual_seed(seed)
    shape = {"d_model": 16, "d_kv": 8, "d_ff": 32, "num_layers": 1, "num_heads": 2}
    ids = {"pad_token_id": 0, "eos_token_id": 1, "decoder_start_token_id": 0}
    random = {"initializer_factor": 3.0, "tie_word_embeddings": False}
    size = write_tokenizer(folder)
    T5ForConditionalGeneration(T5Config(vocab_size=size, **shape, **ids, **random)).save_pretrained(folder)
    return folder


def write_causal(folder: Path, template: str | None = TEMPLATE, positions: int = 4096) -> Path:
    """A random model of GPT-2's type."""
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    size = write_tokenizer(folder, template)
    shape = {"n_embd": 16, "n_layer": 1, "n_head": 2, "n_positions": positions, "initializer_range": 0.3}
    ids = {"pad_token_id": 0, "eos_token_id": 1, "bos_token_id": 1}
    GPT2LMHeadModel(GPT2Config(vocab_size=size, **shape, **ids)).save_pretrained(folder)
    return folder


@dataclass
class Reply:
    """What the server sends."""

    status: int = 200
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    closes: bool = False
    """Closes the connection without an answer."""
    seconds: float = 0.0
    """Before each of two halves of the body."""


Answering = Callable[[dict[str, Any]], Reply]


def chat(content: Any, prompt_tokens: Any = 100, completion_tokens: Any = 10) -> Reply:
    """A chat completion."""
    usage = {"prompt_tokens": prompt_tokens, "completion_tokens": completion_tokens}
    value = {"choices": [{"message": {"role": "assistant", "content": content}}], "usage": usage}
    return Reply(body=json.dumps(value).encode())


@dataclass
class Server:
    address: str
    requests: list[tuple[dict[str, str], dict[str, Any]]] = field(default_factory=list)
    """(headers, body) of each request."""
    stop: threading.Event = field(default_factory=threading.Event)

    def texts(self) -> list[str]:
        """The last message of each request."""
        return [body["messages"][-1]["content"] for _, body in self.requests]


@contextmanager
def server(answer: Answering | Sequence[Reply]) -> Iterator[Server]:
    """A server that answers requests by a function of their body, or by replies in turn; the last one repeats."""
    lock = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            with lock:
                number = len(running.requests)
                running.requests.append(({name.lower(): value for name, value in self.headers.items()}, body))
            reply = answer(body) if callable(answer) else answer[min(number, len(answer) - 1)]
            self.close_connection = True
            if reply.closes:
                return
            self.send_response(reply.status)
            for name, value in {"content-length": str(len(reply.body)), "connection": "close", **reply.headers}.items():
                self.send_header(name, value)
            self.end_headers()
            middle = len(reply.body) // 2
            for part in (reply.body[:middle], reply.body[middle:]):
                if running.stop.wait(reply.seconds):
                    return
                try:
                    self.wfile.write(part)
                    self.wfile.flush()
                except OSError:  # the client has enough
                    return

        def log_message(self, *arguments: Any) -> None:
            pass

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    http.daemon_threads = True
    running = Server(f"http://127.0.0.1:{http.server_port}/v1")
    thread = threading.Thread(target=http.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield running
    finally:
        running.stop.set()
        http.shutdown()
        http.server_close()
