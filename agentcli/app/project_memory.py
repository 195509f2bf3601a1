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
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from agentcli.config.redaction import Redactor
from agentcli.domain.cancel import uninterruptible
from agentcli.domain.clean import clean_text
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
    editable,
    fact_text,
    topic_name,
    write_files,
)

if TYPE_CHECKING:
    from agentcli.domain.tools import FileKeeper

__all__ = ["Fact", "SaidByUser", "SessionMemory"]
MAX_SAID = 200
_LOCK_TRIES = 250
_LOCK_STEP_S = 0.02
_OTHERS = (ATTACHED, TOLD, ADDED_BY_HOOK, *NOT_SAID)
_SENTENCE_END = re.compile(
    "(?<![.!?;\u2026\u3002\uff01\uff1f])[.!?;\u2026\u3002\uff01\uff1f]+(?=\\s|$)|\n+"
)
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
_PHRASE = r"(?i)(?<![a-z])(?:pass(?:word|wd|phrase|wort)|kennwort|pin"
_TELLS = re.compile(
    rf"{_PHRASE}|pass|secret|token|credential|login|pat"
    r"|(?:api|access|account|deploy|private|signing)[ _-]?key)s?(?![a-z])"
)
_GIVEN = re.compile(
    rf"{_PHRASE})(?![a-z])(?:\s+(?:at|for|of|on|to|f\u00fcr|von)\s+\S+){{0,2}}"
    r"\s*(?:is|ist|lautet|=|:)\s*\S|\bpass[:=]"
)
_VALUES = re.compile("[\\s=:,;\"']+")
_OF_PATHS = ("/", "~", "./")
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
        self._listed: tuple[list[Fact], list[Fact]] = ([], [])
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
        waiting = [each for each in self.files.waiting() if each.text == text]
        self.files.change(new=[fact], answered=waiting)
        return MemoryChange("Remembered; the next session knows.", _diff((), (fact,)), "remembered")

    def _correct(self, text: str, topic: str) -> MemoryChange:
        old = self._nearest(text, self.files.facts())
        if not SaidByUser(self._messages).has_said(text):
            return self._wait(self._new(text, old.topic, old.text))
        fact = self._new(text, topic or old.topic)
        self.files.change([old], [fact])
        return MemoryChange("Corrected.", _diff((old,), (fact,)), "corrected")

    def _forget(self, text: str, _topic: str) -> MemoryChange:
        waiting = [each for each in self.files.waiting() if each.text == text]
        if waiting:
            self.files.change(answered=waiting[:1])
            return MemoryChange("Forgotten.", _diff(waiting[:1], ()), "forgotten")
        old = self._nearest(text, self.files.facts())
        if not SaidByUser(self._messages).has_named(old.text):
            raise UsageError("the user has not spoken of that fact", "they can: /memory forget")
        self.files.change([old])
        return MemoryChange("Forgotten.", _diff((old,), ()), "forgotten")

    def _wait(self, fact: Fact) -> MemoryChange:
        if any(fact.text == each.text for each in self.files.waiting()):
            return MemoryChange("That waits for the user's yes already.", "", "unconfirmed")
        self.files.change(waiting=[fact])
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
        redactor = Redactor(weak=tuple)
        redactor.add(self._secrets())
        values = (each for each in _VALUES.split(fact) if not each.startswith(_OF_PATHS))
        is_told = _TELLS.search(fact) and any(map(is_secret, values))
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
        self._listed = await asyncio.to_thread(lambda: (self.files.facts(), self.files.waiting()))
        return self._listed

    # --- the user's own hand -----------------------------------------------------------------

    async def confirm(self, numbers: list[int]) -> list[Fact]:
        """What waits under these numbers, from 1, holds from now on; all without numbers.

        The numbers are those of what was ``listed`` last; "all" is all of that.
        """
        async with self._locked():
            waiting = await asyncio.to_thread(self.files.waiting)
            chosen = self._chosen(waiting, numbers, self._listed[1])
            await asyncio.to_thread(self.files.confirm, chosen)
        return chosen

    async def forget(self, text: str) -> Fact | None:
        """Take out a fact of these words, or what waits under ``uN``; ``None``: there is none."""
        async with self._locked():
            waiting = await asyncio.to_thread(self.files.waiting)
            facts = await asyncio.to_thread(self.files.facts)
            if re.fullmatch(r"u\d+", text):
                (chosen,) = self._chosen(waiting, [int(text[1:])], self._listed[1])
                await asyncio.to_thread(partial(self.files.change, answered=[chosen]))
                return chosen
            if text.isdecimal():
                (chosen,) = self._chosen(facts, [int(text)], self._listed[0])
            else:
                try:
                    chosen = self._nearest(text, facts)
                except UsageError:
                    return None
            await asyncio.to_thread(self.files.change, [chosen])
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
        found = await asyncio.to_thread(editable, path)
        if clean_text(found) != found:
            raise UsageError("the file is not UTF-8", f"open {path} in an editor")
        return found

    async def replace(self, topic: str, before: str, after: str) -> None:
        """Let the file be ``after``. Raises ``UsageError`` where it is no longer ``before``."""
        async with self._locked():
            path = self.files.path_of(topic_name(topic))
            if await asyncio.to_thread(editable, path) != before:
                raise UsageError("it has changed meanwhile", "edit it again; nothing was changed")
            await asyncio.to_thread(self.files.register)
            await asyncio.to_thread(write_files, {path: after})

    @staticmethod
    def _chosen(facts: list[Fact], numbers: list[int], listed: list[Fact]) -> list[Fact]:
        """Those of ``facts`` under the numbers that the user has seen; what has come has the next.

        Another session may have changed them meanwhile.
        """
        if not numbers:
            return [fact for fact in listed if fact in facts] if listed else facts
        known = [*listed, *(fact for fact in facts if fact not in listed)]
        if not all(1 <= number <= len(known) for number in numbers):
            raise UsageError("there is no fact of that number", "/memory shows the numbers")
        chosen = list(dict.fromkeys(known[number - 1] for number in numbers))
        if not all(fact in facts for fact in chosen):
            raise UsageError("that fact is no longer there", "/memory shows what is")
        return chosen


def _diff(old: tuple[Fact, ...] | list[Fact], new: tuple[Fact, ...]) -> str:
    """As a unified diff shows one line."""
    lines = [f"-{each.line()}" for each in old] + [f"+{each.line()}" for each in new]
    counts = f"@@ -{min(len(old), 1)},{len(old)} +{min(len(new), 1)},{len(new)} @@"
    return "\n".join(("--- a/memory", "+++ b/memory", counts, *lines))
