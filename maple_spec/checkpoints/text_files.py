"""What a checkpoint folder says about text: its tokenizer file, its chat template and the tokens that end an answer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from maple_spec.checkpoints.tensor_files import DOWNLOAD_AGAIN, read_json
from maple_spec.errors import CheckpointError
from maple_spec.model.config import ModelConfig, token_ids

TOKENIZER_FILE = "tokenizer.json"
TEMPLATE_FILE = "chat_template.jinja"
END_TOKENS = ("<|im_end|>", "<|endoftext|>")  # both end an answer, whatever the config names


def find_tokenizer(folder: Path) -> Path:
    """The tokenizer.json of the folder."""
    path = folder / TOKENIZER_FILE
    if not path.is_file():
        raise CheckpointError(f"{TOKENIZER_FILE}: missing from {folder}; {DOWNLOAD_AGAIN}")
    return path


def read_chat_template(folder: Path) -> str:
    """The folder's chat template: chat_template.jinja, else the one inside tokenizer_config.json."""
    path = folder / TEMPLATE_FILE
    if path.is_file():
        try:
            return path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise CheckpointError(f"{TEMPLATE_FILE}: cannot be read as UTF-8 text ({error}); {DOWNLOAD_AGAIN}") from None
    settings = folder / "tokenizer_config.json"
    template = read_json(settings).get("chat_template") if settings.is_file() else None
    if isinstance(template, list):
        named = {entry.get("name"): entry.get("template") for entry in template if isinstance(entry, dict)}
        template = named.get("default")
    if not isinstance(template, str):
        raise CheckpointError(f"{TEMPLATE_FILE}: missing from {folder}, and tokenizer_config.json holds none; {DOWNLOAD_AGAIN}")
    return template


def read_eos_token_ids(folder: Path, config: ModelConfig) -> tuple[int, ...]:
    """Every token id that ends an answer: config.json's, generation_config.json's and the tokenizer's own end tokens.

    Raises CheckpointError where the tokenizer holds ids that the vocabulary does not have, or where nothing ends an answer.
    """
    content = read_json(find_tokenizer(folder))
    entries = content.get("added_tokens")
    added = {entry["content"]: entry["id"] for entry in entries if _is_token(entry)} if isinstance(entries, list) else {}
    model = content.get("model")
    vocab = model.get("vocab") if isinstance(model, dict) else None
    known = [*added.values(), *(vocab.values() if isinstance(vocab, dict) else ())]
    highest = max((number for number in known if isinstance(number, int)), default=-1)
    if highest < 0:
        raise CheckpointError(f"{TOKENIZER_FILE}: holds no vocabulary; {DOWNLOAD_AGAIN}")
    if highest >= config.vocab_size:
        raise CheckpointError(
            f"{TOKENIZER_FILE}: token id {highest} lies outside config.json's vocab_size {config.vocab_size}; "
            "use the tokenizer that belongs to these weights"
        )
    generation = folder / "generation_config.json"
    extra = token_ids(read_json(generation), "eos_token_id", file=generation.name) if generation.is_file() else ()
    ends = dict.fromkeys((*config.eos_token_ids, *extra, *(added[token] for token in END_TOKENS if token in added)))
    if not ends:
        raise CheckpointError("config.json: eos_token_id is missing, so no answer would end; add it")
    outside = [number for number in ends if number >= config.vocab_size]
    if outside:
        raise CheckpointError(f"config.json: eos_token_id {outside[0]} lies outside vocab_size {config.vocab_size}; correct it")
    return tuple(ends)


def _is_token(entry: Any) -> bool:
    return isinstance(entry, dict) and isinstance(entry.get("content"), str) and isinstance(entry.get("id"), int)
