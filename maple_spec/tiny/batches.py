"""Documents as batches of token ids: drawn, tokenised and sorted by length without end, the same for the same seed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from tokenizers import Tokenizer
from torch import Tensor

from maple_spec.tiny.corpus import document
from maple_spec.tiny.words import Draw

POOL = 4096  # documents drawn at once, so that batches hold documents of like lengths
STEP = 32  # tokens: lengths are padded to multiples, so that few sizes of product occur
LONGEST = 768  # tokens; longer documents are left out


@dataclass(frozen=True)
class Batch:
    """inputs and targets [B, T]; weights [B, T]: 1 where the model is to say the target, `aside` in prompts, 0 in padding."""

    inputs: Tensor
    targets: Tensor
    weights: Tensor
    pool: int
    place: int


def batches(
    tokenizer: Tokenizer, name: str, *, first_pools: int, tokens: int, aside: float, start: tuple[int, int]
) -> Iterator[Batch]:
    """Batches of `tokens` tokens each, from place start = (pool, place in it); the first pools hold the simpler mixture."""
    pool, skip = start
    while True:
        draw = Draw(f"{name}:{pool}")
        kept = _buckets(tokenizer, draw, pool >= first_pools)
        groups = []
        for length, rows in kept.items():
            size = max(1, tokens // length)  # what does not fill a batch is left out
            groups += [rows[i : i + size] for i in range(0, len(rows) - size + 1, size)]
        draw.random.shuffle(groups)
        for place, group in enumerate(groups[skip:], skip):
            yield _batch(group, aside, pool, place)
        pool, skip = pool + 1, 0


def _length(size: int) -> int:
    return -(-(size - 1) // STEP) * STEP


def _buckets(tokenizer: Tokenizer, draw: Draw, whole: bool) -> dict[int, list[tuple[list[int], list[bool]]]]:
    documents = [document(draw, whole) for _ in range(POOL)]
    encoded = iter(tokenizer.encode_batch_fast([piece for d in documents for piece, _ in d], add_special_tokens=False))
    out: dict[int, list[tuple[list[int], list[bool]]]] = {}
    for pieces in documents:
        ids: list[int] = []
        learnt: list[bool] = []
        for _, is_learnt in pieces:
            more = next(encoded).ids
            ids += more
            learnt += [is_learnt] * len(more)
        if len(ids) <= LONGEST:
            out.setdefault(_length(len(ids)), []).append((ids, learnt))
    return out


def _batch(group: list[tuple[list[int], list[bool]]], aside: float, pool: int, place: int) -> Batch:
    width = _length(max(len(ids) for ids, _ in group)) + 1
    ids = torch.zeros(len(group), width, dtype=torch.long)
    weights = torch.zeros(len(group), width)
    for row, (tokens, learnt) in enumerate(group):
        ids[row, : len(tokens)] = torch.tensor(tokens)
        weights[row, : len(tokens)] = torch.tensor(learnt).float().clamp(min=aside)
    return Batch(ids[:, :-1].contiguous(), ids[:, 1:].contiguous(), weights[:, 1:].contiguous(), pool, place)
