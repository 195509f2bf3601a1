"""Reads the words of a program that only reads, by its line of the table (SEC-4).

Law: an option that the line does not hold, or a value of another kind, makes the reading fail;
long names are never completed. Where programs do not look for options behind operands (BSD,
``POSIXLY_CORRECT``), the value of one is a file like any other: it counts as both.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import field

from agentcli.domain.values import mutable
from agentcli.policy.read_only_tables import Spec

_NUMBER = re.compile(r"[+-]?[0-9]+[A-Za-z]{0,3}")


class UnknownOptionError(Exception):
    """An option that is not in the table, or a value that does not fit it."""


@mutable
class Reading:
    """The words told apart: options by name, files that options name, and operands."""

    spec: Spec
    rest: list[str]
    options: list[str] = field(default_factory=list)
    files: list[str] = field(default_factory=list)
    operands: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, words: Sequence[str], spec: Spec) -> Reading:
        """The reading of a whole call; raises ``UnknownOptionError``."""
        reading = cls(spec, list(reversed(words[1:])))
        while reading.rest:
            word = reading.rest.pop()
            if word == "--":
                reading.operands += reversed(reading.rest)
                break
            if not word.startswith("-") or word == "-":
                reading.operands.append(word)
            elif not ("-#" in spec.marks and word[1:].isdecimal()):
                reading.option(word)
        return reading

    def option(self, word: str) -> None:
        """Take one option word, or a bundle of letters."""
        if word.startswith("--") or not self.spec.bundled:
            name, equals, value = word.partition("=")
            mark = self._mark(name)
            if equals and not mark:
                raise UnknownOptionError(word)
            if mark not in {"", "?"}:
                self._value(mark, value if equals else self._next(word))
            return
        for at, letter in enumerate(word[1:], start=2):
            mark = self._mark(f"-{letter}")
            if mark == "?":
                return
            if mark:
                self._value(mark, word[at:] or self._next(word))
                return

    def _mark(self, name: str) -> str:
        mark = self.spec.marks.get(name)
        if mark is None:
            raise UnknownOptionError(name)
        self.options.append(name)
        return mark

    def _next(self, word: str) -> str:
        if not self.rest:
            raise UnknownOptionError(word)
        value = self.rest.pop()
        if self.operands:
            self.files.append(value)
        return value

    def _value(self, mark: str, value: str) -> None:
        if mark == "#" and not _NUMBER.fullmatch(value):
            raise UnknownOptionError(value)
        if mark == "@":
            self.files.append(value)
