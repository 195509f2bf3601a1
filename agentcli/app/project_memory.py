"""The memory of the session's project: what is told to the model, and who may write it (MEM-1).

Laws. What the user has not said waits for their yes and is in no prompt (MEM-2). Only words count
that the user gave this process: no message of a session file, no attachment, no output, no text of
a command or skill; a fact has to be whole sentences of one message, so that no cut turns "never do
X" into "do X". The index is read once, when the session begins, and stays what it was.
"""

from __future__ import annotations

import asyncio
import os
import re
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from agentcli.config.redaction import Redactor
from agentcli.domain.cancel import uninterruptible
from agentcli.domain.errors import UsageError
from agentcli.domain.messages import (
    ADDED_BY_HOOK,
    ATTACHED,
    NOT_SAID,
    TOLD,
    TextPart,
    UserMessage,
)
from agentcli.domain.secrecy import is_secret
from agentcli.domain.tool_ports import MemoryChange
from agentcli.store.memory import (
    Fact,
    MemoryFiles,
    fact_text,
    read_file,
    topic_name,
    write_file,
)

if TYPE_CHECKING:
    from agentcli.domain.tools import FileKeeper

__all__ = ["Fact", "SaidByUser", "SessionMemory"]
MAX_SAID = 200
_LOCK_TRIES = 250
_LOCK_STEP_S = 0.02
_OTHERS = (ATTACHED, TOLD, ADDED_BY_HOOK, *NOT_SAID)
_SENTENCE_END = re.compile("[.!?;\u2026\u3002\uff01\uff1f]+(?=\\s|$)|\n+")
_MARKS = re.compile("[`*_\"'\u2018\u2019\u201c\u201d\u00ab\u00bb]+")
# what asks for it to be kept, and is no part of it
_REQUEST = re.compile(
    r"(?:(?:no|nope|actually|wrong|sorry|nein|doch)[ ]*[,:]+ *)?"
    r"(?:(?:(?:please|also|and|ok|okay|hey|now|bitte|could you|can you)[ ,]*)*"
    r"(?:remember|memori[sz]e|note|keep in mind|take note|bear in mind|dont forget"
    r"|never forget|for the record|save to memory|add to memory|correction|from now on"
    r"|merke? dir|denk daran|vergiss nicht|notiere?)\b)?"
)
_FILLER = re.compile(
    r"[ ,]*(?:\b(?:this|that|dass|it|for later|for next time|for (?:this|the) project|forever"
    r"|please|bitte|to)\b|:| - )"
)
_TELLS = re.compile(r"(?i)\b(?:pass(?:word|phrase|wort)|pin|secret|token|api[ _-]?key)\b")
_GIVEN = re.compile(r"(?i)\b(?:pass(?:word|phrase|wort)|pin)\b\s*(?:is|ist|=|:)\s*\S")
_LEAST_SHARED = 0.34
_LONG = 4


class SaidByUser:
    """The sentences that the user gave this process; see the law of the module."""

    def __init__(self, messages: Sequence[UserMessage]) -> None:
        self._sentences: list[list[str]] = []
        self._words: set[str] = set()
        for message in messages[-MAX_SAID:]:
            if not message.is_summary:
                self._hear(message)

    def _hear(self, message: UserMessage) -> None:
        texts = (part.text for part in message.parts if isinstance(part, TextPart))
        own = next((text for text in texts if not text.startswith(_OTHERS)), "")
        self._sentences.append(list(_sentences(own)))  # what follows is piped in, or a file's
        self._words |= _words(own)

    def has_said(self, fact: str) -> bool:
        """Whether ``fact`` is whole sentences of one message."""
        wanted = list(_sentences(fact))
        return bool(wanted) and any(
            all(any(_is_said(each, own) for own in message) for each in wanted)
            for message in self._sentences
        )

    def has_named(self, fact: str) -> bool:
        """Whether a word of ``fact`` was said: enough to take it out."""
        words = _words(fact)
        long = {word for word in words if len(word) >= _LONG}
        return bool((long or words) & self._words)


def _is_said(wanted: str, own: str) -> bool:
    """Whether ``own`` is it, maybe after words that ask for it to be kept."""
    asked = _REQUEST.match(own)
    end = asked.end() if asked else 0
    while own[end:].strip(" ,") != wanted:
        filler = _FILLER.match(own, end) if end else None
        if filler is None:
            return wanted == own
        end = filler.end()
    return True


def _sentences(text: str) -> Iterator[str]:
    for piece in _SENTENCE_END.split(text.casefold()):
        plain = " ".join(_MARKS.sub("", piece).split()).strip(" -")
        if plain:
            yield plain


def _words(text: str) -> set[str]:
    return set(re.findall(r"\w+", text.casefold()))


class SessionMemory:
    """Satisfies ``domain.tools.ProjectMemory`` for one session, and shows it to the user."""

    def __init__(
        self,
        base: Path,
        cwd: Path,
        session_id: str,
        secrets: Callable[[], tuple[str, ...]],
        keeper: Callable[[], FileKeeper | None],
        said: Sequence[UserMessage],
    ) -> None:
        """``said`` are the messages of the user, which grow; ``secrets`` are never kept."""
        self.files = MemoryFiles(base, cwd)
        self.written: set[Path] = set()
        self._session_id = session_id
        self._secrets = secrets
        self._keeper = keeper
        self._messages = said

    async def change(self, call_id: str, action: str, text: str, topic: str) -> MemoryChange:
        """See the port."""
        fact = self._checked(text)
        async with self._writing(call_id, topic_name(topic)):
            work = {"remember": self._remember, "correct": self._correct, "forget": self._forget}
            change = asyncio.to_thread(work[action], fact, topic_name(topic))
            return await uninterruptible(change)

    def _new(self, text: str, topic: str, old: str = "") -> Fact:
        return Fact(text, time.strftime("%Y-%m-%d"), self._session_id, topic, old)

    def _remember(self, text: str, topic: str) -> MemoryChange:
        known = [*self.files.facts()]
        if any(text.casefold() == each.text.casefold() for each in known):
            return MemoryChange("That is known already.", "", "known already")
        if not SaidByUser(self._messages).has_said(text):
            return self._wait(self._new(text, topic))
        fact = self._new(text, topic)
        self.files.add(fact)
        waiting = (each for each in self.files.waiting() if each.text == text)
        for each in list(waiting):
            self.files.remove_waiting(each)
        return MemoryChange("Remembered; the next session knows.", _diff((), (fact,)), "remembered")

    def _correct(self, text: str, topic: str) -> MemoryChange:
        old = self._nearest(text, self.files.facts())
        if not SaidByUser(self._messages).has_said(text):
            return self._wait(self._new(text, old.topic, old.text))
        fact = self._new(text, topic or old.topic)
        self.files.remove(old)
        self.files.add(fact)
        return MemoryChange("Corrected.", _diff((old,), (fact,)), "corrected")

    def _forget(self, text: str, _topic: str) -> MemoryChange:
        waiting = [each for each in self.files.waiting() if each.text == text]
        if waiting:
            self.files.remove_waiting(waiting[0])
            return MemoryChange("Forgotten.", _diff(waiting[:1], ()), "forgotten")
        old = self._nearest(text, self.files.facts())
        if not SaidByUser(self._messages).has_named(old.text):
            raise UsageError("the user has not spoken of that fact", "they can: /memory forget")
        self.files.remove(old)
        return MemoryChange("Forgotten.", _diff((old,), ()), "forgotten")

    def _wait(self, fact: Fact) -> MemoryChange:
        if any(fact.text == each.text for each in self.files.waiting()):
            return MemoryChange("That waits for the user's yes already.", "", "unconfirmed")
        self.files.add_waiting(fact)
        told = (
            "Kept as unconfirmed: the user has not said it in these words. No session is told of it"
            " until the user confirms it with /memory confirm. Say so, briefly."
        )
        return MemoryChange(told, _diff((), (fact,)), "unconfirmed: /memory confirm")

    @staticmethod
    def _nearest(text: str, facts: list[Fact]) -> Fact:
        """The fact that is meant. Raises ``UsageError`` where that is not clear."""
        exact = [each for each in facts if each.text.casefold() == text.casefold()]
        inside = [each for each in facts if text.casefold() in each.text.casefold()]
        for found in (exact, inside):
            if len(found) == 1:
                return found[0]
        words = _words(text)
        scored = sorted(
            ((len(words & _words(f.text)) / len(words | _words(f.text)), f) for f in facts),
            key=lambda pair: -pair[0],
        )
        best = [f for score, f in scored if score >= _LEAST_SHARED and score == scored[0][0]]
        if len(best) != 1:
            near = "; ".join(f.text for _, f in scored[:3]) or "nothing is known"
            raise UsageError("it is not clear which fact is meant", f"there is: {near}")
        return best[0]

    def _checked(self, text: str) -> str:
        """A fact without a secret in it (SEC-9)."""
        fact = fact_text(text)
        redactor = Redactor()
        redactor.add(self._secrets())
        is_told = _TELLS.search(fact) and any(is_secret(word) for word in fact.split())
        if redactor.redact(fact) != fact or _GIVEN.search(fact) or is_told:
            raise UsageError("secrets are not remembered", "name where it is kept instead")
        return fact

    @asynccontextmanager
    async def _writing(self, call_id: str, topic: str) -> AsyncIterator[None]:
        """The one writer of all processes; the files are kept for ``/undo`` meanwhile (TT-1)."""
        files = self.files
        async with self._locked():
            paths = [files.index, files.unconfirmed, *files.topics(), files.path_of(topic)]
            self.written.update(paths)
            keeper = self._keeper()
            if keeper is None:
                yield
                return
            await keeper.begin(call_id, list(dict.fromkeys(paths)))
            try:
                yield
            finally:
                await keeper.end(call_id)

    @asynccontextmanager
    async def _locked(self) -> AsyncIterator[None]:
        for _ in range(_LOCK_TRIES):
            handle = self.files.try_lock()
            if handle is not None:
                break
            await asyncio.sleep(_LOCK_STEP_S)
        else:
            raise UsageError("another session is writing the project's memory", "try it again")
        try:
            yield
        finally:
            os.close(handle)

    async def listed(self) -> tuple[list[Fact], list[Fact]]:
        """What holds, and what waits for a yes."""
        return await asyncio.to_thread(lambda: (self.files.facts(), self.files.waiting()))

    # --- the user's own hand -----------------------------------------------------------------

    async def confirm(self, numbers: list[int]) -> list[Fact]:
        """What waits under these numbers, from 1, holds from now on; all without numbers."""
        async with self._locked():
            waiting = self._chosen(await asyncio.to_thread(self.files.waiting), numbers)
            for fact in waiting:
                await asyncio.to_thread(self.files.confirm, fact)
        return waiting

    async def forget(self, text: str) -> Fact | None:
        """Take out a fact of these words, or what waits under ``uN``; ``None``: there is none."""
        async with self._locked():
            waiting, facts = self.files.waiting(), self.files.facts()
            if re.fullmatch(r"u\d+", text):
                (chosen,) = self._chosen(waiting, [int(text[1:])])
                await asyncio.to_thread(self.files.remove_waiting, chosen)
                return chosen
            if text.isdecimal():
                (chosen,) = self._chosen(facts, [int(text)])
            else:
                try:
                    chosen = self._nearest(text, facts)
                except UsageError:
                    return None
            await asyncio.to_thread(self.files.remove, chosen)
            return chosen

    async def join(self) -> str:
        """Let the directory be of the project whose remote it has. Raises ``UsageError``."""
        async with self._locked():
            if not self.files.claimed:
                raise UsageError(
                    "this directory has its memory already", "/memory shows what is known"
                )
            return await asyncio.to_thread(self.files.join)

    async def text(self, topic: str) -> str:
        """The file of a topic; of the index without one. Raises ``UsageError``."""
        name = topic_name(topic)
        path = self.files.path_of(name)
        if topic and (not name or not path.exists()):
            there = ", ".join(each.stem for each in self.files.topics()) or "none"
            raise UsageError(f"there is no topic {topic!r}", f"there are: {there}")
        return await asyncio.to_thread(read_file, path)

    async def replace(self, topic: str, before: str, after: str) -> None:
        """Let the file be ``after``. Raises ``UsageError`` where it is no longer ``before``."""
        async with self._locked():
            path = self.files.path_of(topic_name(topic))
            if await asyncio.to_thread(read_file, path) != before:
                raise UsageError("it has changed meanwhile", "edit it again; nothing was changed")
            await asyncio.to_thread(self.files.register)
            await asyncio.to_thread(write_file, path, after)

    @staticmethod
    def _chosen(facts: list[Fact], numbers: list[int]) -> list[Fact]:
        if not all(1 <= number <= len(facts) for number in numbers):
            raise UsageError("there is no fact of that number", "/memory shows the numbers")
        return [facts[number - 1] for number in numbers] if numbers else facts


def _diff(old: tuple[Fact, ...] | list[Fact], new: tuple[Fact, ...]) -> str:
    """As a unified diff shows one line."""
    lines = [f"-{each.line()}" for each in old] + [f"+{each.line()}" for each in new]
    counts = f"@@ -{min(len(old), 1)},{len(old)} +{min(len(new), 1)},{len(new)} @@"
    return "\n".join(("--- a/memory", "+++ b/memory", counts, *lines))
