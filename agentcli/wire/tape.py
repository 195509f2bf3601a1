"""What a provider has answered, kept in a file and served again without a network (TT-4).

The file is JSON Lines: a head, then one object per request. Laws. No header of a request is kept,
and of a reply only those that steer the program; keys are taken out of everything (SEC-9), also
where a reply spells one in pieces; else the pieces of a body stay as they came. A request is
answered by the recorded one that comes next; several may be next where they ran side by side. One
whose conversation differs is refused and told of: nothing is guessed. How long a tool took and what
time it was are no difference.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import re
import stat
import time
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing
from itertools import takewhile
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from agentcli.domain.cancel import uninterruptible
from agentcli.domain.errors import ConfigError, ErrorKind, ProviderError, UsageError
from agentcli.domain.files import open_named, refuse_links
from agentcli.domain.stream import Tape
from agentcli.wire.http import Endpoint, HttpClient, Refusal, host_of

FORMAT = "agentcli-record/1"
MAX_BYTES = 64 * 1024 * 1024
_KEPT_HEADERS = frozenset({"content-type", "retry-after", "retry-after-ms"})
_CONVERSATION = ("messages", "input", "contents")
_NOT_SAID = frozenset({"system", "developer"})
_ENDS = ("complete", "left", "refused", "failed")
_SHOWN = 60
_DATA = b"data:"

Redact = Callable[[Any], Any]
Tell = Callable[[str], None]
Sent = AsyncGenerator[bytes, None]


class Recorder:
    """Keeps what goes through it in the file ``path``; ``tell`` gets a line for the user.

    Raises ``UsageError`` for a file that cannot be made, or that is no record.
    """

    is_offline = False
    model = ""

    def __init__(self, path: Path, cwd: Path, redact: Redact, tell: Tell) -> None:
        self._path = path
        self._redact = redact
        self._tell = tell
        self._cwd = str(cwd)
        self._begun = self._done = self._size = 0
        self._is_full = False
        self._lock = asyncio.Lock()
        _make(path)

    def place(self, provider: str) -> tuple[str, str] | None:
        """Where it is, is what the settings say."""
        del provider
        return None

    async def exchange(
        self, place: tuple[str, str], model: str, body: bytes, sent: Sent
    ) -> AsyncGenerator[bytes, None]:
        """The reply of ``sent`` as it comes; afterwards it is in the file, however it ended."""
        entry: dict[str, Any] = {
            "number": self._begun,
            "after": self._done,
            "protocol": place[0],
            "address": _address(place[1]),
            "model": model,
            "request": json.loads(body),
            "status": 200,
        }
        self._begun += 1
        pieces: list[bytes] = []
        end = "left"
        try:
            async with aclosing(sent) as chunks:
                async for piece in chunks:
                    pieces.append(piece)
                    yield piece
            end = "complete"
        except Refusal as refusal:
            end, entry["status"] = "refused", refusal.status
            names = ((name.lower(), value) for name, value in refusal.headers.items())
            entry["headers"] = {name: value for name, value in names if name in _KEPT_HEADERS}
            pieces = [refusal.body]
            raise
        except ProviderError as error:
            end = "failed"
            entry["error"] = {
                "message": error.message,
                "advice": error.advice,
                "kind": str(error.kind),
                "retryable": error.retryable,
                "streaming": error.streaming,
            }
            raise
        finally:
            self._done += 1
            entry["end"] = end
            await uninterruptible(self._keep(entry, pieces))

    async def _keep(self, entry: dict[str, Any], pieces: Sequence[bytes]) -> None:
        async with self._lock:
            if self._is_full:
                return
            try:
                await asyncio.to_thread(self._write, entry, pieces)
            except OSError as error:
                self._is_full = True
                self._tell(f"--record: {self._path}: {error.strerror}; nothing more is recorded")

    def _write(self, entry: dict[str, Any], pieces: Sequence[bytes]) -> None:
        kept = self._redact(entry)
        kept["pieces"] = [_text_of(piece) for piece in _without_keys(pieces, self._redact)]
        lines = json.dumps(kept, separators=(",", ":")) + "\n"
        if not self._size:
            head = {"format": FORMAT, "made_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())}
            head |= {"cwd": self._redact(self._cwd), "model": entry["model"]}
            lines = json.dumps(head, separators=(",", ":")) + "\n" + lines
        data = lines.encode()
        if self._size + len(data) > MAX_BYTES:
            self._is_full = True
            self._tell(f"--record: {self._path} is full at 64 MB; nothing more is recorded")
            return
        descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW)
        with os.fdopen(descriptor, "ab") as file:
            file.write(data)
        self._size += len(data)


class Served:
    """Serves the record ``path`` again; raises ``UsageError`` for what is none.

    ``cwd`` is where the program works now: the directory of then is taken for it.
    """

    is_offline = True

    def __init__(self, path: Path, cwd: Path, redact: Redact, tell: Tell) -> None:
        head, self._entries = _read(path)
        self.model = str(head.get("model") or "")
        self._there, self._here = str(head.get("cwd") or ""), str(cwd)
        self._redact = redact
        self._tell = tell
        self._used: set[int] = set()
        self._has_told = False

    def place(self, provider: str) -> tuple[str, str] | None:
        """The protocol and the address of a provider of then."""
        for entry in self._entries:
            if str(entry.get("model", "")).partition("/")[0] == provider:
                return entry["protocol"], str(entry.get("address", ""))
        return None

    async def exchange(
        self, place: tuple[str, str], model: str, body: bytes, sent: Sent
    ) -> AsyncGenerator[bytes, None]:
        """The recorded reply; nothing is sent. Raises as then, ``ConfigError`` for another one."""
        del model
        await sent.aclose()
        try:
            entry = self._next(place[0], self._redact(json.loads(body)))
        except RecursionError:
            what = "--replay: a request is nested too deeply to be compared"
            raise ConfigError(what, "record again") from None
        pieces = [_bytes_of(piece) for piece in entry["pieces"]]
        end = entry["end"]
        if end == "refused":
            raise Refusal(entry["status"], _headers(entry), b"".join(pieces))
        for piece in pieces:
            await asyncio.sleep(0)
            yield piece
        if end == "failed":
            raise _failure(entry["error"])
        if end == "left":
            what = "--replay: the recorded run was cancelled within this reply, and ends here"
            raise ConfigError(what, "record a run that is not cancelled to see more")

    def _next(self, kind: str, body: Any) -> Mapping[str, Any]:
        """The entry for a request, marked as used."""
        waiting = [at for at in range(len(self._entries)) if at not in self._used]
        if not waiting:
            count = len(self._entries)
            what = f"--replay: the record ends after request {count}, and the agent asks again"
            raise ConfigError(what, "record again, with the same prompt and options")
        differs = ""
        for at in waiting:
            entry = self._entries[at]
            if at > waiting[0] and int(entry.get("after", at)) > waiting[0]:
                break
            found = self._difference(entry, kind, body)
            if not found:
                self._used.add(at)
                self._compare_rest(at, entry["request"], body)
                return entry
            differs = differs or found
        what = f"--replay: request {waiting[0] + 1} differs from the recorded one: {differs}"
        raise ConfigError(
            what, "run it as it was recorded, with the same prompt, files and options"
        )

    def _difference(self, entry: Mapping[str, Any], kind: str, body: Any) -> str:
        if entry["protocol"] != kind:
            return f"it speaks {kind}, recorded was {entry['protocol']}"
        return _difference(self._moved(_said(entry["request"])), _said(body))

    def _compare_rest(self, at: int, then: Any, now: Any) -> None:
        """The system prompt, the tools and the like may have changed since: that is said once."""
        if self._has_told:
            return
        found = _difference(_plain(self._moved(then)), _plain(now))
        if found:
            self._has_told = True
            self._tell(f"--replay: around the conversation request {at + 1} differs: {found}")

    def _moved(self, value: Any) -> Any:
        """``value`` with the directory of then replaced by the one of now."""
        if not self._there or self._there in {self._here, "/"}:
            return value
        if isinstance(value, str):
            return value.replace(self._there, self._here)
        if isinstance(value, list):
            return [self._moved(each) for each in value]
        if isinstance(value, dict):
            return {key: self._moved(each) for key, each in value.items()}
        return value


class TapedClient(HttpClient):
    """A client whose replies pass a tape; ``place`` is its owner's protocol and address."""

    def __init__(self, place: tuple[str, str], tape: Tape) -> None:
        super().__init__()
        self._place = place
        self._tape = tape

    async def post_stream(
        self, endpoint: Endpoint, headers: Mapping[str, str], body: bytes
    ) -> AsyncGenerator[bytes, None]:
        """The reply, by way of the tape."""
        sent = super().post_stream(endpoint, headers, body)
        model = f"{endpoint.provider}/{endpoint.model}"
        passed = self._tape.exchange(self._place, model, body, sent)
        async with aclosing(passed) as pieces:
            async for piece in pieces:
                yield piece


# --- the file ------------------------------------------------------------------------------


def _make(path: Path) -> None:
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    try:
        refuse_links(path)
        descriptor = os.open(path, flags, 0o600)
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):  # a device keeps its permissions
            os.close(descriptor)
            raise UsageError(f"--record: {path} is no plain file", "name another file")
        with os.fdopen(descriptor, "r+b") as file:
            head = file.read(len(FORMAT) + 64)
            if head and f'"format":"{FORMAT}"'.encode() not in head:
                what = f"--record: {path} exists already, and is no record"
                raise UsageError(what, "name another file")
            os.fchmod(file.fileno(), 0o600)
            file.truncate(0)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise UsageError(f"--record: cannot write {path}: {reason}", "name another file") from error


def _read(path: Path) -> tuple[Mapping[str, Any], Sequence[Mapping[str, Any]]]:
    advice = "give a file that agent run --record has written"
    try:
        with open_named(path) as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise UsageError(f"--replay: cannot read {path}: {reason}", advice) from error
    if len(data) > MAX_BYTES:
        raise UsageError(f"--replay: {path} is larger than 64 MB", advice)
    number = 0
    try:
        found = []
        whole = data[: data.rfind(b"\n") + 1]  # a killed run may have left a part of a line
        for number, line in enumerate(whole.split(b"\n")[:-1], 1):
            found.append(json.loads(line))
            _check(found[-1], is_head=number == 1)
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError):
        raise UsageError(
            f"--replay: {path}: line {number} is no part of a record", advice
        ) from None
    if not found:
        raise UsageError(f"--replay: {path} is empty", "the recorded run has asked no provider")
    entries = sorted(found[1:], key=lambda entry: int(entry["number"]))
    return found[0], entries


def _check(value: Any, *, is_head: bool) -> None:
    """Raises what a wrong value raises where it is used, and ``ValueError``."""
    if is_head:
        if value["format"] != FORMAT:
            raise ValueError
        return
    int(value["number"]), int(value["after"])
    if not isinstance(value["request"], dict) or not isinstance(value["protocol"], str):
        raise TypeError
    if not isinstance(value["pieces"], list) or value["end"] not in _ENDS:
        raise TypeError
    if value["status"] not in range(100, 600):
        raise ValueError
    for piece in value["pieces"]:
        _bytes_of(piece)
    _headers(value)
    if value["end"] == "failed":
        _failure(value["error"])


def _headers(entry: Mapping[str, Any]) -> Mapping[str, str]:
    return {str(name): str(value) for name, value in (entry.get("headers") or {}).items()}


def _failure(known: Mapping[str, Any]) -> ProviderError:
    return ProviderError(
        str(known["message"]),
        str(known["advice"]),
        kind=ErrorKind(known["kind"]),
        retryable=bool(known["retryable"]),
        streaming=bool(known["streaming"]),
    )


def _address(url: str) -> str:
    """Without a query, a user name or a password."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return ""
    return f"{parts.scheme}://{host_of(url)}{parts.path}" if parts.scheme else ""


def _text_of(piece: bytes) -> str | dict[str, str]:
    try:
        return piece.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(piece).decode("ascii")}


def _bytes_of(piece: Any) -> bytes:
    if isinstance(piece, str):
        return piece.encode()
    return base64.b64decode(piece["base64"], validate=True)


# --- keys ----------------------------------------------------------------------------------


def _without_keys(pieces: Sequence[bytes], redact: Redact) -> Sequence[bytes]:
    """``pieces``; where a key is in them, in one or spread over several, one piece without it."""
    whole = b"".join(pieces)
    text = whole.decode("utf-8", "surrogateescape")
    cleaned = redact(_respelled(text, redact))
    if cleaned == text:
        return pieces
    return [str(cleaned).encode("utf-8", "surrogateescape")]


def _respelled(text: str, redact: Redact) -> str:
    """``text`` where what events spell piece by piece, and holds a key, stands in one event."""
    lines = text.split("\n")
    events: dict[int, Any] = {}
    for at, line in enumerate(lines):
        if line.startswith(_DATA.decode()):
            try:
                events[at] = json.loads(line[len(_DATA) :])
            except (ValueError, RecursionError):
                continue
    spelled: dict[tuple[Any, ...], list[tuple[int, Any, Any]]] = {}
    for at, event in events.items():
        for key, holder, name in _leaves(event, ()):
            spelled.setdefault(key, []).append((at, holder, name))
    changed = set()
    for places in spelled.values():
        said = "".join(holder[name] for _, holder, name in places)
        if len(places) > 1 and (cleaned := redact(said)) != said:
            for index, (at, holder, name) in enumerate(places):
                holder[name] = "" if index else cleaned
                changed.add(at)
    for at in changed:
        lines[at] = f"data: {json.dumps(events[at], ensure_ascii=False, separators=(',', ':'))}"
    return "\n".join(lines)


def _leaves(value: Any, way: tuple[Any, ...]) -> Iterator[tuple[tuple[Any, ...], Any, Any]]:
    """Every text in ``value`` with what it is a part of: one stretch of a reply has one key."""
    if isinstance(value, dict):
        about = tuple(value[name] for name in _PLACES if isinstance(value.get(name), int | str))
        for name, each in value.items():
            if isinstance(each, str) and name not in _PLACES:
                yield (*way, *about, name), value, name
            elif isinstance(each, dict | list):
                yield from _leaves(each, (*way, *about, name))
    elif isinstance(value, list):
        for at, each in enumerate(value):
            if isinstance(each, str):
                yield (*way, at), value, at
            else:
                yield from _leaves(each, (*way, at))


_PLACES = ("index", "item_id", "output_index", "content_index", "type", "id", "object", "model")


# --- what differs --------------------------------------------------------------------------


_TIME = re.compile(
    r"\b\d+(?:\.\d+)? (?:ms|s|min|h)\b(?: \d+ (?:s|min)\b)?"
    r"|\b\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|[+-]\d\d:\d\d)?"
)


def _said(body: Any) -> Any:
    """The conversation in a request: what is compared."""
    for name in _CONVERSATION:
        found = body.get(name)
        if isinstance(found, list):
            said = [each for each in found if _role(each) not in _NOT_SAID]
            return {"model": body.get("model"), name: [_plain(each) for each in said]}
    return body


def _role(message: Any) -> Any:
    return message.get("role") if isinstance(message, dict) else None


def _plain(value: Any) -> Any:
    """Without the marks of caching, which stand where the conversation ends, and without times."""
    if isinstance(value, str):
        return _TIME.sub("TIME", value)
    if isinstance(value, list):
        return [_plain(each) for each in value]
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items() if key != "cache_control"}
    return value


def _difference(then: Any, now: Any) -> str:
    """The first place where the two differ, with what stands there; empty where they do not."""
    before, present = dict(_flat(then, "")), dict(_flat(now, ""))
    for way, value in before.items():
        if way not in present:
            return f"{way} is missing, recorded {json.dumps(value)[:_SHOWN]}"
        if present[way] != value:
            other = present[way]
            return f"{way}: recorded {_around(value, other)}, now {_around(other, value)}"
    for way, value in present.items():
        if way not in before:
            return f"{way} is new, {json.dumps(value)[:_SHOWN]}"
    return ""


def _flat(value: Any, way: str) -> Iterator[tuple[str, Any]]:
    """Every value that holds no others, by its way: ``messages[2].content[0].text``."""
    if isinstance(value, dict) and value:
        for key, each in value.items():
            yield from _flat(each, f"{way}.{key}" if way else str(key))
    elif isinstance(value, list) and value:
        for at, each in enumerate(value):
            yield from _flat(each, f"{way}[{at}]")
    else:
        yield way, value


def _around(value: Any, other: Any) -> str:
    """The part of ``value`` where it begins to differ from ``other``."""
    if not (isinstance(value, str) and isinstance(other, str)):
        return json.dumps(value)[:_SHOWN]
    same = sum(
        1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(value, other, strict=False))
    )
    begin = max(0, same - _SHOWN // 3)
    cut = value[begin : begin + _SHOWN]
    return json.dumps(
        ("…" if begin else "") + cut + ("…" if len(value) > begin + _SHOWN else ""),
        ensure_ascii=False,
    )
