"""The next turn of a chat tells how much of it was known, and says what a server that keeps nothing says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.live_server import ServerProcess, launch

FIRST = {"role": "user", "content": "My name is Mira. " + "I like maple trees and rain. " * 30}
SECOND = {"role": "user", "content": "What is my name?"}


def conversation(server: ServerProcess) -> tuple[list[Any], list[int]]:
    """Both turns' answers, and how many tokens of each prompt were known."""
    server.wait(lambda health: health["status"] == "ok", 90)
    first = server.chat(messages=[FIRST], temperature=0).json()
    said = {"role": "assistant", "content": first["choices"][0]["message"]["content"]}
    second = server.chat(messages=[FIRST, said, SECOND], temperature=0).json()
    bodies = [first, second]
    known = [body["usage"].pop("prompt_tokens_details")["cached_tokens"] for body in bodies]
    return [(body["choices"], body["usage"]) for body in bodies], known


def test_the_second_turn_is_known_but_for_what_is_new(tmp_path: Path) -> None:
    answers, known = {}, {}
    for tokens in ("0", "4000"):
        server = launch("maple-serve", tmp_path / tokens, MAPLE_PREFIX_CACHE_TOKENS=tokens)
        try:
            answers[tokens], known[tokens] = conversation(server)
        finally:
            server.stop()
    assert answers["0"] == answers["4000"]
    assert known["0"] == [0, 0]
    shared = answers["4000"][0][1]["prompt_tokens"]
    assert known["4000"][0] == 0
    assert shared - 32 <= known["4000"][1] <= shared
