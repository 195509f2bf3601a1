"""Text as it comes: what is surely answer, what may be a call or the model's thinking.

Law: text is held back only while it may be the start of a form; it is handed out once, whole and
in order, or becomes calls. Within a code block, inline code or a quote nothing is a form.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from agentcli.providers.text_calls.forms import FORMS, Form, NoCall, Offer, WrittenCall, read_calls

# A longer text is looked at again when it has grown by a quarter: the work stays linear.
_SMALL = 2_048
_MAX_HELD = 4_000_000
_FENCE = re.compile(r"\s*(`{3,}|~{3,})")
_CODE_INDENT = 4

# (opening, closing): Qwen, DeepSeek, GLM, Kimi and many others; Magistral; Command A; Seed; Kimi-VL
_THINKING = (
    ("<think>", "</think>"),
    ("<thinking>", "</thinking>"),
    ("[THINK]", "[/THINK]"),
    ("<|START_THINKING|>", "<|END_THINKING|>"),
    ("<seed:think>", "</seed:think>"),
    ("◁think▷", "◁/think▷"),
)
LONE_CLOSERS = ("</think>", "[/THINK]", "</seed:think>", "◁/think▷")
"""What ends thinking whose beginning stands in the prompt, for templates that put it there."""


def begun(text: str, words: Iterable[str]) -> int:
    """How many of the last characters of ``text`` may be the start of one of ``words``."""
    longest = 0
    for word in words:
        for size in range(min(len(word) - 1, len(text)), longest, -1):
            if text.endswith(word[:size]):
                longest = size
                break
    return longest


class ThinkingSplit:
    """Splits thinking off the start of a reply's text (STR-11)."""

    def __init__(self) -> None:
        self._held = ""
        self._closer = ""
        self._has_thought = False
        self._is_answer = False

    def feed(self, text: str) -> tuple[str, str]:
        """Thinking and answer that ``text`` brings; thinking comes first."""
        if self._is_answer:
            return "", text
        self._held += text
        thinking = ""
        while not self._is_answer:
            if self._closer:
                before, closer, after = self._held.partition(self._closer)
                if not closer:
                    keep = begun(self._held, (self._closer,))
                    cut = len(self._held) - keep
                    thinking += self._held[:cut]
                    self._held = self._held[cut:]
                    return thinking, ""
                thinking += before
                self._held, self._closer, self._has_thought = after, "", True
            start = self._held.lstrip()
            pair = next((pair for pair in _THINKING if start.startswith(pair[0])), None)
            if pair is not None:
                self._held, self._closer = start[len(pair[0]) :], pair[1]
            elif any(opener.startswith(start) for opener, _ in _THINKING):
                return thinking, ""
            else:
                self._is_answer = True
        return thinking, self._rest()

    def finish(self) -> tuple[str, str]:
        """What was held back: thinking that was not closed, or text."""
        return (self._held, "") if self._closer else ("", self._rest())

    def _rest(self) -> str:
        held, self._held = self._held, ""
        return held.lstrip() if self._has_thought else held


class CallScan:
    """Finds the calls that end a reply. ``as_asked``: the prompt has asked for calls as text."""

    def __init__(
        self, tools: Mapping[str, Mapping[str, Any]], *, as_asked: bool, is_off: bool = False
    ) -> None:
        self._tools = tools
        self._as_asked = as_asked
        self._is_off = is_off or not tools
        self._all = tuple(form for form in FORMS if as_asked or not form.asked)
        self._choose(self._all)
        self._held = ""
        self._is_candidate = False
        self._next_look = self._opener_size = 0
        self._line = ""
        self._fence = ""
        self._has_text = False

    @property
    def is_within_code(self) -> bool:
        """Whether what comes next stands in a code block, in inline code or in a quote."""
        line = self._line
        return bool(
            self._fence
            or line.count("`") % 2
            or line.lstrip().startswith(">")
            or (line and not line.strip() and len(line.expandtabs(4)) >= _CODE_INDENT)
        )

    def feed(self, text: str) -> str:
        """The text that is surely no call."""
        self._held += text
        if self._is_off:
            return self.give_up()
        return self._scan(last=False, cut=False)[0]

    def finish(self, *, cut: bool) -> tuple[str, list[WrittenCall], str]:
        """The rest: text, and the calls that end the reply with what was written for them."""
        if self._is_off:
            return self.give_up(), [], ""
        return self._scan(last=True, cut=cut)

    def give_up(self) -> str:
        """All that is held back, as text; nothing is looked for any more."""
        self._is_off = True
        self._is_candidate = False
        return self._release(len(self._held))

    def _choose(self, forms: tuple[Form, ...]) -> None:
        self._forms = forms
        openers = sorted({form.opener for form in forms}, key=len, reverse=True)
        self._openers = tuple(openers)
        self._pattern = re.compile("|".join(map(re.escape, openers)))

    def _scan(self, *, last: bool, cut: bool) -> tuple[str, list[WrittenCall], str]:
        out: list[str] = []
        offer = Offer(self._tools, last, cut)
        while self._held:
            if self._is_candidate:
                if not last and len(self._held) < self._next_look:
                    break
                try:
                    calls = self._read(offer)
                except NoCall:
                    self._is_candidate = False
                    out.append(self._release(self._opener_size))
                    continue
                if last and calls:
                    held, self._held = self._held, ""
                    return "".join(out), calls, held
                size = len(self._held)
                self._next_look = size + 1 if size < _SMALL else size * 5 // 4
                break
            if self._has_text and not self._as_asked and len(self._forms) == len(self._all):
                self._choose(tuple(form for form in self._all if not form.at_start))
            found = self._pattern.search(self._held)
            if found is None:
                keep = 0 if last else begun(self._held, self._openers)
                out.append(self._release(len(self._held) - keep))
                break
            out.append(self._release(found.start()))
            self._opener_size = len(found[0])
            if self._may_begin(found[0]):
                self._is_candidate, self._next_look = True, 0
            else:
                out.append(self._release(self._opener_size))
        return "".join(out), [], ""

    def _read(self, offer: Offer) -> list[WrittenCall] | None:
        if len(self._held) > _MAX_HELD:
            raise NoCall
        calls = read_calls(self._held, self._forms, offer)
        if offer.last and not calls:
            raise NoCall
        return calls

    def _may_begin(self, opener: str) -> bool:
        if self.is_within_code:
            return False
        if any(form.at_start for form in self._forms if form.opener == opener):
            return not self._line.strip() if self._as_asked else not self._has_text
        return True

    def _release(self, size: int) -> str:
        """The first ``size`` characters of what is held; keeps track of lines and fences."""
        text, self._held = self._held[:size], self._held[size:]
        self._has_text = self._has_text or bool(text.strip())
        *whole, rest = text.split("\n")
        for line in whole:
            self._end_line(self._line + line)
            self._line = ""
        self._line += rest
        return text

    def _end_line(self, line: str) -> None:
        found = _FENCE.match(line)
        if found is None:
            return
        mark = found[1]
        if not self._fence:
            self._fence = mark
        elif mark.startswith(self._fence) and not line[found.end() :].strip():
            self._fence = ""
