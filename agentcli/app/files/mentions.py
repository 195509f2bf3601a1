"""``@path`` in a text: how a file is named in a prompt (UI-4).

Law: what ``written`` makes of a path, ``find_mentions`` reads as that path, wherever it stands in
a text. An ``@`` within a word (``mail@example.org``) names nothing.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path

from agentcli.app.trust import holds_credentials
from agentcli.domain.patterns import LazyPattern
from agentcli.domain.tools import Workspace, real_path
from agentcli.domain.values import frozen

# what may stand before the @
START = r"(?:^|(?<=[\s(\[{<'\"`,;:=|]))"
_MENTION = LazyPattern(rf'{START}@(?:"((?:[^"\\\n]|\\.)*+)"|((?:\\ |[^\s"])++))', re.MULTILINE)
_LINES = LazyPattern(r"(?P<path>.+?)(?::|#L)(?P<first>[1-9]\d{0,8})(?:-L?(?P<last>[1-9]\d{0,8}))?")
MAX_PATH_CHARS = 4096
_MAX_CLOSERS = 20
_MAX_PASSES = 5
_CLOSERS = ".,;:!?)]}>'`*_\u2026"
_PLAIN = LazyPattern(r"[^\s\"'`\\()\[\]{}<>#]+")


@frozen
class Mention:
    """A path that a text names. ``first`` and ``last`` are lines, from 1; 0: the whole file.

    ``text`` is the mention as it stands there, without the ``@``.
    """

    path: str
    first: int = 0
    last: int = 0
    text: str = ""


def find_mentions(text: str) -> Iterator[tuple[Mention, ...]]:
    """For each ``@`` what it may name: the first of these that exists is meant."""
    if "@" not in text:
        return
    for found in _MENTION.finditer(text):
        if found[1]:
            yield (Mention(unescaped(found[1]), text=f'"{found[1]}"'),)
        elif found[2] and (readings := tuple(_readings(found[2]))):
            yield readings


def _readings(token: str) -> Iterator[Mention]:
    """With the punctuation that follows it, then without; with lines, where it ends so."""
    for _ in range(_MAX_CLOSERS if len(token) <= MAX_PATH_CHARS else 0):
        if not token.strip("./~"):
            break
        path = token.replace("\\ ", " ")
        yield Mention(path, text=token)
        if lines := _LINES.fullmatch(path):
            first = int(lines["first"])
            last = max(first, int(lines["last"] or first))
            yield Mention(lines["path"], first, last, token)
        if token[-1] not in _CLOSERS:
            return
        token = token[:-1]
    if token in {"./", "../", "~/"}:
        yield Mention(token, text=token)


def written(path: str) -> str:
    """``path`` as it is written after the ``@``: in quotes where it has to be."""
    if _PLAIN.fullmatch(path) and path[-1] not in _CLOSERS and not _LINES.fullmatch(path):
        return path
    return f'"{escaped(path)}"'


def escaped(path: str) -> str:
    """``path`` as it stands between quotes."""
    return re.sub(r'(["\\])', r"\\\1", path)


def unescaped(text: str) -> str:
    """The path that stands between quotes as ``text``."""
    return re.sub(r"\\(.)", r"\1", text)


def naming_only_inside(
    text: str,
    typed: str,
    workspace: Workspace,
    is_secret: Callable[[Path], bool] = holds_credentials,
) -> str:
    """``text`` in which only what the user has ``typed`` attaches files from elsewhere (SEC-1).

    Another file that it names by ``@`` stays named, without the ``@``; one that ``is_secret``, too.
    """
    may = typed_or_inside(typed, workspace, is_secret)

    def stays(mention: Mention) -> bool:
        try:
            return may(mention, real_path(workspace.resolve(mention.path)))
        except (OSError, RuntimeError, ValueError):  # names no file
            return True

    for _ in range(_MAX_PASSES):
        before = text
        for mention in {one for readings in find_mentions(text) for one in readings}:
            if not stays(mention):
                text = text.replace(f"@{mention.text}", mention.text)
        if text == before:
            return text
    return text.replace("@", " ")


def typed_or_inside(
    typed: str, workspace: Workspace, is_secret: Callable[[Path], bool] = holds_credentials
) -> Callable[[Mention, Path], bool]:
    """Whether a mention that leads to a path may attach it, as ``naming_only_inside`` says."""
    meant = {mention.text for readings in find_mentions(typed) for mention in readings}

    def may(mention: Mention, path: Path) -> bool:
        if mention.text in meant:
            return leads_as_named(mention, path, workspace, is_secret)
        return workspace.contains(path) and not is_secret(path)

    return may


def leads_as_named(
    mention: Mention, real: Path, workspace: Workspace, is_secret: Callable[[Path], bool]
) -> bool:
    """Whether what the user typed names the file at the resolved path that it leads to.

    A name in the workspace names no file elsewhere, and no secret one that has another name:
    anybody may have put a link there.
    """
    named = Path(os.path.normpath(workspace.resolve(mention.path)))
    if not any(named.is_relative_to(base) for pair in workspace.led for base in pair):
        return True
    return workspace.contains(real) and (named.name == real.name or not is_secret(real))


def project_files(root: Path, stopped: Callable[[], bool]) -> Iterator[str]:
    """What is below a directory without git, for completing names; see ``walk_project``."""
    from agentcli.tools.search.worker import walk_project

    return walk_project(str(root), stopped)
