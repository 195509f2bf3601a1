"""Which files of a directory a script says by their names (SEC-17).

Law: what is there is looked for in the script, and not the script for what looks like a name.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator
from itertools import islice

_WORD = re.compile(rb"[\w.@+-]+")
_OF_SHELL = rb"(?:^|[\s;&|({`\"'/])"
# what a shell reads as its own, to the end of the line
_SOURCES = re.compile(_OF_SHELL + rb"(?:\.|source)[ \t]+([^\n]+)")
# what an interpreter is told to run: its first word, and the rest of the line
_STARTS = re.compile(
    _OF_SHELL + rb"(?:(?:ba|da|k|z)?sh|python[\d.]*|node|perl|ruby)[ \t]+"
    rb"((?:-\S*[ \t]+)*(?:[^\s$]*\$\([^)\n]*\)\S*|\S+))([^\n]*)"
)
_MOST_STARTS = 100  # directories that a script may go to
_MOST_LISTED = 5_000  # names of one of them
# a file that only a variable names is run
_RUNS_A_VARIABLE = re.compile(_OF_SHELL + rb"(?:\.|source|(?:ba|da|k|z)?sh)[ \t]+[\"']?\$")


def files_said(text: bytes, bases: Iterable[str]) -> Iterator[tuple[str, bool]]:
    """The files that ``text`` says, and whether by name: else by a pattern or a variable.

    A name may start at one of ``bases`` or of the directories that are said, as in
    "cd tools && ./run.sh".
    """
    if not text:
        return
    is_said = _said_in(text)
    seen, waiting = set[str](), list(bases)
    for base in waiting:
        is_all = _runs_all_of(os.path.basename(base), text)  # noqa: PTH119 - a text
        for name in _names_in(base, text):
            is_named = is_said(name)
            if not (is_named or is_all) or (path := f"{base}/{name}") in seen:
                continue
            seen.add(path)
            if not os.path.isdir(path):  # noqa: PTH112 - a text
                yield path, is_named
            elif is_named and len(waiting) < _MOST_STARTS:
                waiting.append(path)


def scripts_said(text: bytes, bases: Iterable[str], script: re.Pattern[str]) -> Iterator[str]:
    """Those of them that are run: programs, what ``script`` finds, and what a shell is given."""
    starts = [
        b" ".join((first, *(word for word in rest.split() if b"." not in word)))
        for first, rest in _STARTS.findall(text)
    ]
    is_started = _said_in(b"\n".join((*_SOURCES.findall(text), *starts)))
    runs_any = bool(_RUNS_A_VARIABLE.search(text))
    for path, is_named in files_said(text, bases):
        is_script = is_named and (
            script.search(os.path.realpath(path)) or is_started(os.path.basename(path))  # noqa: PTH119 - a text
        )
        if is_script or (runs_any and not is_named) or os.access(path, os.X_OK):
            yield path


def _said_in(text: bytes) -> Callable[[str], bool]:
    """Whether a name stands in ``text``, also with quotes and escapes in it."""
    plain = text.translate(None, b"\\\"'")
    words = frozenset((*_WORD.findall(text), *_WORD.findall(plain)))

    def is_said(name: str) -> bool:
        said = os.fsencode(name)
        return said in words or (not _WORD.fullmatch(said) and said in plain)

    return is_said


def _runs_all_of(directory: str, script: bytes) -> bool:
    """Whether ``script`` names what is in it by a pattern, a variable or as a whole."""
    name = re.escape(os.fsencode(directory))
    return bool(re.search(rb"(?<![\w.@+-])" + name + rb"[\"']?/[\"']?[*$`]", script)) or bool(
        re.search(rb"run-parts[ \t][^\n]*(?<![\w.@+-])" + name + rb"(?![\w.@+-])", script)
    )


def _names_in(directory: str, script: bytes) -> list[str]:
    """Those there, or in a crowd those of ``script`` that may be there."""
    try:
        with os.scandir(directory) as entries:
            names = [entry.name for entry in islice(entries, _MOST_LISTED)]
    except OSError:
        return []
    if len(names) < _MOST_LISTED:
        return sorted(names)
    words = dict.fromkeys(map(os.fsdecode, _WORD.findall(script)))
    return [word for word in words if os.path.lexists(f"{directory}/{word}")]
