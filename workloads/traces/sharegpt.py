"""ShareGPT JSON: ``[{"conversations": [{"from": "human", "value": ...}, {"from": "gpt", ...}]}]``; no arrivals.

It holds text, and there is no tokenizer here: lengths are characters / characters_per_token, rounded up, and the
notes say so. Also read: ``messages`` with ``role`` and ``content``, and one conversation a line.
"""

from __future__ import annotations

import math
from typing import Any, TextIO

from workloads.traces.config import TraceConfig
from workloads.traces.json_rows import json_rows
from workloads.traces.sink import BadRowError, RowSink

_HUMAN = {"human", "user"}
_ANSWER = {"gpt", "assistant", "chatgpt", "bing", "bard", "model"}


def read(text: TextIO, sink: RowSink, config: TraceConfig) -> None:
    """Reads the exchanges into ``sink``: the first of each conversation, or all as turns of a session."""
    for number, row in json_rows(text, sink):
        try:
            exchanges = _exchanges(row, config.characters_per_token)
        except BadRowError as bad:
            sink.drop(number, bad.reason, bad.shown)
            continue
        history = 0
        for turn, (new, output) in enumerate(exchanges if config.turns == "all" else exchanges[:1]):
            if sink.full:
                break
            sink.add(number, None, history + new, output)
            sink.new_tokens.append(new)
            sink.turn.append(turn)
            history += new + output
    sink.notes.append(f"ShareGPT lengths are a proxy: {config.characters_per_token:g} characters a token, no tokenizer")
    if config.turns == "first":
        sink.notes.append("only the first exchange of each conversation is used: nothing is shared between requests")


def _exchanges(row: dict[str, Any], characters_per_token: float) -> list[tuple[int, int]]:
    """(new prompt tokens, answer tokens) of each question that has an answer.

    Messages before a question (system text, a second question) belong to its prompt.
    """
    messages = next((row[k] for k in ("conversations", "conversation", "messages") if k in row), None)
    if not isinstance(messages, list):
        raise BadRowError("has no conversation")
    found: list[tuple[int, int]] = []
    waiting, asked = 0, False
    for message in messages:
        role, content = _message(message)
        if role in _ANSWER and asked:
            if waiting and content:
                found.append(
                    (math.ceil(waiting / characters_per_token), math.ceil(len(content) / characters_per_token))
                )
            waiting, asked = 0, False
        elif role not in _ANSWER:
            waiting += len(content)
            asked |= role in _HUMAN
    if not found:
        raise BadRowError("has no question with an answer", f"{len(messages)} messages")
    return found


def _message(message: Any) -> tuple[str, str]:
    if not isinstance(message, dict):
        raise BadRowError("a message is not an object", repr(message)[:40])
    role, content = message.get("from", message.get("role")), message.get("value", message.get("content"))
    if not isinstance(role, str) or not isinstance(content, str):
        raise BadRowError("a message lacks who says what", repr(message)[:40])
    return role.lower(), content
