"""Reading what a session's requests have sent and cost: ``domain.accounts`` shares it out.

Law: no body is decoded. A message's size is that of its stored body, four bytes to a token, and a
flat number for an image, whose bytes stand elsewhere.
"""

from __future__ import annotations

import sqlite3
from bisect import bisect_right
from typing import Any

from agentcli.domain.accounts import IMPORTED, Ledger, SentMessage, UsageRow
from agentcli.domain.errors import PersistenceError
from agentcli.domain.messages import Usage
from agentcli.store.codec import from_column, from_json
from agentcli.store.reads import MOST_ROWS, SENT_ORDER

_BYTES_PER_TOKEN = 4
_IMAGE_TOKENS = 1_500
_IMAGE = '"blob":"'  # in a text the quotes would be escaped
_NEVER = 2**62
_LONGEST = 1_000  # characters of a name or a line: longer ones are none of ours (SEC-13)


def _begin(columns: str) -> str:
    return ", ".join(f"substr({name}, 1, {_LONGEST})" for name in columns.split(", "))


_MESSAGES = f"""
SELECT message.seq, length(CAST(body AS BLOB)), length(body) - length(replace(body, ?, '')),
  hidden_by, role, created_at, {_begin("tool_run.call_id, name, line")}
FROM message LEFT JOIN tool_run ON result_seq = message.seq ORDER BY {SENT_ORDER}
"""  # noqa: S608 - constants
_USAGE = f"""
SELECT {_begin("kind")}, created_at, {_begin("model")}, input_tokens, output_tokens,
  cache_read_tokens, cache_write_tokens, reasoning_tokens, cost_usd, message_seq
FROM usage ORDER BY id DESC
"""  # noqa: S608 - constants


def read_ledger(db: sqlite3.Connection) -> Ledger:
    """All messages and all requests; what a sub-agent has spent is one row.

    Raises ``PersistenceError`` for more rows than are held at once (SEC-13).
    """
    query = "SELECT (SELECT count(*) FROM message) + (SELECT count(*) FROM usage)"
    if db.execute(query).fetchone()[0] > MOST_ROWS:
        what = f"it has more than {MOST_ROWS:,} messages and requests, which are not counted"
        raise PersistenceError(what, "read it: agent sessions show ID")
    taken_back = _taken_back(db)
    messages, times = [], []
    for seq, size, images, hides, role, at, *call in db.execute(_MESSAGES, (_IMAGE,)):
        times.append((_time(at), seq))
        tokens = (size or 0) // _BYTES_PER_TOKEN + (images or 0) // len(_IMAGE) * _IMAGE_TOKENS
        hidden_by = hides if isinstance(hides, int) else None
        is_folded = hidden_by is not None and hidden_by != seq
        until = taken_back.get(seq, seq) if hidden_by == seq else hidden_by
        named = [_text(value) for value in call] if role == "tool" else ()
        messages.append(SentMessage(seq, tokens, until, hidden_by if is_folded else None, *named))
    return Ledger(tuple(messages), _rows(db, sorted(times)))


def _rows(db: sqlite3.Connection, times: list[tuple[float, int]]) -> tuple[UsageRow, ...]:
    """A request without a reply of its own had what was there by then."""
    found, before = [], _NEVER
    for kind, at, model, *tokens, cost, seq in db.execute(_USAGE):
        if isinstance(seq, int):
            before = place = seq
        elif kind == IMPORTED:
            place = 0
        else:
            there = times[: bisect_right(times, (_time(at), _NEVER))]
            place = min(before, max((each for _, each in there), default=0) + 1)
        usage, name = Usage(*map(_count, tokens)), _text(model)
        found.append(UsageRow(str(kind), _time(at), name, usage, _amount(cost), place))
    return tuple(reversed(found))


def _taken_back(db: sqlite3.Connection) -> dict[int, int]:
    """From which seq on requests did without a message that the user took back."""
    query = "SELECT newest_seq, messages FROM rewind WHERE undone_at IS NULL ORDER BY id"
    found: dict[int, int] = {}
    for newest, moves in db.execute(query):
        try:
            found.update((at, newest + 1) for at, _, after in from_json(moves) if after == at)
        except (ValueError, TypeError):
            continue  # the account is a little less exact
    return found


def _text(value: Any) -> str:
    """What a damaged file has in the place of a text is none."""
    return from_column(value) if isinstance(value, str) else ""


def _time(value: Any) -> float:
    return float(value) if isinstance(value, int | float) else 0.0


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and value >= 0 else None


def _amount(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) else None
