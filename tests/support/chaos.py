"""A model service that goes wrong at random, from a seed, around an honest conversation.

``Chaos`` answers each request by its history: the last prompt ``turn N`` and the number of steps
since then say what comes next, so a request that is sent again gets the same reply again. What
is said once consists of words that occur nowhere else (``t12s0w3.``), each call carries a serial
number that no other reply has. So a test can see what was shown twice, run twice, or run though
it was cut. Before that, dice decide whether and how the reply is spoilt.

Law: the service is strict: a request that the real one would refuse is in ``violations``.
"""

from __future__ import annotations

import asyncio
import json
import random
import re
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from email.utils import formatdate
from typing import Any

from tests.support.model_server import ModelServer
from tests.support.replies import Block, Call, Reply, Text, Thinking, Tokens, bad_gateway, fails
from tests.support.service import ANTHROPIC, OPENAI, Recorded

PROMPT = "turn {}: go on"
EVENT_STREAM = {"content-type": "text/event-stream"}
_PLACE = re.compile(r"turn (\d+): go on")
_REFUSED_S = 0.004
# items of the Responses API that are parts of a reply
_BY_MODEL = {"function_call", "reasoning"}

Fault = Callable[["Chaos", Reply, Recorded], Reply]


class Chaos(ModelServer):
    """See the module. ``likelihood`` is that of a fault in one reply.

    ``told`` counts the faults by name, ``serials`` the calls that were given out, ``cut`` those
    whose arguments did not arrive whole.
    """

    def __init__(self, seed: int, *, likelihood: float = 0.4) -> None:
        super().__init__(default=self.answer)
        self.dice = random.Random(seed)
        self.told: Counter[str] = Counter()
        self.serials: set[str] = set()
        self.cut: set[str] = set()
        self.cut_places: set[tuple[int, int]] = set()
        self._likelihood = likelihood
        self._seed = seed
        self._closed_for: asyncio.Task[None] | None = None

    def answer(self, recorded: Recorded) -> Reply:
        """The next reply to what was asked, maybe spoilt."""
        turn, step = place_of(recorded.messages)
        reply = self._honest(turn, step)
        if self.dice.random() >= self._likelihood:
            self.told["none"] += 1
            return reply
        name = self.dice.choice(sorted(FAULTS))
        self.told[name] += 1
        return FAULTS[name](self, reply, recorded)

    # --- what is said when nothing goes wrong ----------------------------------------------

    def _honest(self, turn: int, step: int) -> Reply:
        fate = random.Random(f"{self._seed}/{turn}/{step}")
        steps = random.Random(f"{self._seed}/{turn}").choice([0, 1, 1, 2, 3])
        blocks: list[Block] = []
        if fate.random() < 0.25:
            blocks.append(Thinking(words("k", turn, step, fate.randint(1, 12))))
        last = step >= steps
        if last or fate.random() < 0.6:
            blocks.append(Text(words("w", turn, step, fate.randint(1, 30))))
        if not last:
            for _ in range(fate.choice([1, 1, 2, 3])):
                blocks.append(self._call(fate))
        tokens = Tokens(input=100 + turn, output=20)
        return Reply(tuple(blocks), tokens=tokens, piece=fate.choice([3, 12, 40]))

    def _call(self, fate: random.Random) -> Call:
        serial = f"c{len(self.serials):05d}"
        self.serials.add(serial)
        chosen = fate.randrange(10)
        if chosen < 3:
            return Call("bash", {"command": f"echo {serial} >> ran.log"})
        if chosen < 6:
            return Call("write_file", {"path": f"{serial}.txt", "content": f"{serial}\n"})
        if chosen < 8:
            return Call("read_file", {"path": "notes.txt", "offset": 1 + int(serial[1:]) % 9})
        if chosen < 9:
            return Call("grep_files", {"pattern": serial, "path": "notes.txt"})
        return Call("no_such_tool", {"serial": serial})

    # --- what the faults need ----------------------------------------------------------------

    def anywhere(self) -> int:
        """A byte of a reply's body, or one behind its end."""
        return self.dice.randrange(self.dice.choice([300, 1500, 6000]))

    def refuse_connections(self) -> None:
        """For a moment nobody listens at the port."""
        if self._closed_for is None or self._closed_for.done():
            self._closed_for = asyncio.get_running_loop().create_task(self._close_for_a_moment())

    async def _close_for_a_moment(self) -> None:
        await self._stop_listening()
        await asyncio.sleep(_REFUSED_S)
        await self._listen()


_BRIDGE = '"Understood."'  # between two of the user's; no reply of the model


def place_of(messages: list[dict[str, Any]]) -> tuple[int, int]:
    """(turn, step) of a history in any protocol: the newest prompt, the replies since."""
    steps, within = 0, False
    for message in reversed(messages):
        if _BRIDGE in json.dumps(message):
            continue
        by_model = message.get("role") in {"assistant", "model"} or message.get("type") in _BY_MODEL
        steps += by_model and not within
        within = by_model
        if not by_model and (found := _PLACE.findall(json.dumps(message))):
            return int(found[-1]), steps
    raise ValueError("no prompt of this test in the history")


def words(kind: str, turn: int, step: int, count: int, start: int = 0) -> str:
    """Words that nothing else says, with a line end here and there."""
    each = (f"t{turn}s{step}{kind}{n}." for n in range(start, start + count))
    return "".join(word + ("\n" if word.endswith("6.") else " ") for word in each).rstrip()


# --- faults --------------------------------------------------------------------------------


def _status(chaos: Chaos, reply: Reply, recorded: Recorded) -> Reply:
    status = chaos.dice.choice([408, 429, 429, 500, 502, 503, 529])
    if status == 502:
        return bad_gateway()
    if chaos.dice.random() < 0.5:
        return fails(status)
    later = formatdate(time.time() + 30, usegmt=True)
    wait = chaos.dice.choice(["0", "1", "2.5", "-7", "soon", "99999999999", later])
    return fails(status, retry_after=wait)


def _long_limit(chaos: Chaos, reply: Reply, recorded: Recorded) -> Reply:
    return fails(429, retry_after=str(chaos.dice.choice([61, 7200])))


def _quota(chaos: Chaos, reply: Reply, recorded: Recorded) -> Reply:
    if recorded.protocol == ANTHROPIC:
        return fails(400, "credit")
    return fails(429, "quota")


def _stall(chaos: Chaos, reply: Reply, recorded: Recorded) -> Reply:
    place = chaos.dice.choice(["connect", "headers", chaos.anywhere()])
    return replace(reply, stall_at=place)


def _drop(chaos: Chaos, reply: Reply, recorded: Recorded) -> Reply:
    place = chaos.dice.choice(["connect", "headers", "start", *[chaos.anywhere() for _ in "123"]])
    return replace(reply, drop_at=place)


def _close(chaos: Chaos, reply: Reply, recorded: Recorded) -> Reply:
    return replace(reply, close_at=chaos.dice.choice(["headers", "end", chaos.anywhere()]))


def _error_event(chaos: Chaos, reply: Reply, recorded: Recorded) -> Reply:
    kind = chaos.dice.choice(["overloaded", "rate_limit", "api_error"])
    place = chaos.dice.choice(["headers", "start", "end", chaos.anywhere()])
    return replace(reply, error_at=place, error_kind=kind)


def _garbage(chaos: Chaos, reply: Reply, recorded: Recorded) -> Reply:
    junk = chaos.dice.choice(
        [b"data: {\xff\xfe not json\n\n", b"\0\0\xff\xfe\r\r\n", b"data: [[[[\n\n", b"data: 1\n\n",
         b"event: error\ndata: {}\n\n", chaos.dice.randbytes(99)]
    )  # fmt: skip
    return replace(reply, garbage_at=chaos.anywhere(), garbage=junk)


def _noise(chaos: Chaos, reply: Reply, recorded: Recorded) -> Reply:
    return Reply(
        body=chaos.dice.randbytes(chaos.dice.choice([1, 500, 50_000])), headers=EVENT_STREAM
    )


def _html(chaos: Chaos, reply: Reply, recorded: Recorded) -> Reply:
    return Reply(body=b"<html><title>Log in</title></html>", headers={"content-type": "text/html"})


def _empty(chaos: Chaos, reply: Reply, recorded: Recorded) -> Reply:
    return chaos.dice.choice(
        [Reply(body=b"", headers=EVENT_STREAM), replace(reply, close_at="start")]
    )


def _nothing(chaos: Chaos, reply: Reply, recorded: Recorded) -> Reply:
    thought = [block for block in reply.blocks if isinstance(block, Thinking)]
    return Reply(chaos.dice.choice([(), (Text(" \n"),), tuple(thought)]))


def _cut_arguments(chaos: Chaos, reply: Reply, recorded: Recorded) -> Reply:
    """The model itself leaves the JSON of its last call unfinished."""
    return replace(reply, blocks=_with_last_call_cut(chaos, reply.blocks))


def _with_last_call_cut(chaos: Chaos, blocks: tuple[Block, ...]) -> tuple[Block, ...]:
    if not blocks or not isinstance(blocks[-1], Call):
        return blocks
    one = blocks[-1]
    text = one.json_text
    # a value is cut, not only the closers: nothing may guess the rest (LOOP-9)
    raw = text[: chaos.dice.randrange(1, text.rindex('"'))]
    chaos.cut.update(re.findall(r"c\d{5}", text))
    return (*blocks[:-1], replace(one, raw=raw))


def _max_tokens(chaos: Chaos, reply: Reply, recorded: Recorded) -> Reply:
    """Cut in the last block, in mid-call or mid-text; sometimes after saying something else."""
    chaos.cut_places.add(place_of(recorded.messages))
    blocks = reply.blocks
    last = blocks[-1]
    if isinstance(last, Call):
        blocks = _with_last_call_cut(chaos, blocks)
    elif isinstance(last, Text):
        text = last.text[: chaos.dice.randrange(len(last.text) + 1)]
        if chaos.dice.random() < 0.3:
            text += f"x{chaos.dice.getrandbits(40):x} y{chaos.dice.getrandbits(40):x}"
        blocks = (*blocks[:-1], Text(text)) if text else blocks[:-1]
    return replace(reply, blocks=blocks, stop="max_tokens")


_UNKNOWN = b'event: mystery\ndata: {"type":"mystery","object":"mystery","value":[1,{"a":null}]}\n\n'


def _odd_events(chaos: Chaos, reply: Reply, recorded: Recorded) -> Reply:
    """What a tolerant reader takes: unknown events, comments, doubled marks, other line ends."""
    once = (b"_delta", b'"delta":{"content"', b"reasoning", b"tool_calls", b"content_block_start")
    kind = chaos.dice.randrange(5)
    if kind == 1 and recorded.protocol not in {ANTHROPIC, OPENAI}:
        kind = 0  # there every event is something said

    def change(data: bytes) -> bytes:
        if kind == 0:
            return _UNKNOWN + b": note\n\n" + data
        if kind == 1:
            return data if any(mark in data for mark in once) else data * 2
        if kind == 2:
            return data.replace(b"\n", b"\r\n")
        if kind == 3:
            return data.replace(b"\n", b"\r")
        return b"\n\nid: 7\nretry: 5\n" + data

    return replace(reply, transform=change, preamble=chaos.dice.choice([b"", b"\xef\xbb\xbf"]))


def _invalid_utf8(chaos: Chaos, reply: Reply, recorded: Recorded) -> Reply:
    """In visible text only: a signature covers a thought, and half a reply is asked for again."""
    if place_of(recorded.messages) in chaos.cut_places:
        return reply
    broken = chaos.dice.choice([b"\xff\xc3", b"\xed\xa0\x80", b"\xf0\x9f\x98"])
    return replace(
        reply,
        transform=lambda data: re.sub(rb"(w\d*5)\.", lambda found: found[1] + broken + b".", data),
    )


def _drip(chaos: Chaos, reply: Reply, recorded: Recorded) -> Reply:
    return replace(reply, write_bytes=chaos.dice.choice([1, 7, 30, 100]))


def _huge(chaos: Chaos, reply: Reply, recorded: Recorded) -> Reply:
    size = chaos.dice.choice([200_000, 2_000_000])
    filler = chaos.dice.choice([b": ", b"data: ", b"event: mystery\ndata: "])
    return replace(reply, preamble=filler + b'{"x":"' + b"x" * size + b'"}\n\n')


def _refused(chaos: Chaos, reply: Reply, recorded: Recorded) -> Reply:
    chaos.refuse_connections()
    return replace(reply, drop_at="connect")


def _ping_only(chaos: Chaos, reply: Reply, recorded: Recorded) -> Reply:
    return Reply(ping_only=True)


FAULTS: dict[str, Fault] = {
    "status": _status,
    "long_limit": _long_limit,
    "quota": _quota,
    "stall": _stall,
    "pings": _ping_only,
    "drop": _drop,
    "drop_again": _drop,
    "close": _close,
    "error_event": _error_event,
    "garbage": _garbage,
    "noise": _noise,
    "html": _html,
    "empty": _empty,
    "nothing": _nothing,
    "cut_arguments": _cut_arguments,
    "max_tokens": _max_tokens,
    "max_tokens_again": _max_tokens,
    "odd_events": _odd_events,
    "invalid_utf8": _invalid_utf8,
    "drip": _drip,
    "huge": _huge,
    "refused": _refused,
}
