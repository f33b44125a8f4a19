"""The fields that steer a generation, the same on both routes: sampling, caps, stop strings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from maple_spec.settings import Settings
from maple_spec.types import SamplingParams

# Repetition penalties beyond these choose the same tokens, and would carry logits beyond what float32 holds.
_LEAST_PENALTY, _MOST_PENALTY = 1e-30, 1e30


def given(body: Mapping[str, Any], name: str, default: Any) -> Any:
    """A field's value; the default where the field is absent or null, as SDKs send what was not set."""
    value = body.get(name)
    return default if value is None else value


def sampling_params(body: Mapping[str, Any], settings: Settings) -> SamplingParams:
    """How tokens are chosen, and how many at most: defaults filled in, caps applied.

    max_completion_tokens, which only chat has, comes before max_tokens; both are capped at MAPLE_MAX_NEW_TOKENS_LIMIT.
    """
    cap = given(body, "max_completion_tokens", given(body, "max_tokens", settings.max_new_tokens))
    return SamplingParams(
        temperature=float(given(body, "temperature", settings.temperature)),
        top_p=float(given(body, "top_p", settings.top_p)),
        top_k=max(given(body, "top_k", settings.top_k), 0),  # -1 is another word for "no limit"
        repetition_penalty=float(min(max(given(body, "repetition_penalty", 1.0), _LEAST_PENALTY), _MOST_PENALTY)),
        seed=body.get("seed"),
        max_new_tokens=min(cap, settings.max_new_tokens_limit),
    )


def stop_strings(body: Mapping[str, Any]) -> tuple[str, ...]:
    """The stop strings; empty ones, which would end every answer at once, are left out."""
    stop = given(body, "stop", ())
    return tuple(text for text in ([stop] if isinstance(stop, str) else stop) if text)
