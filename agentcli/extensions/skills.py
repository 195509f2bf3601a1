"""Skills: folders with a ``SKILL.md`` that says how something is done (EXT-1).

The format is that of https://agentskills.io/specification. Laws: the nearest of a name wins, and a
notice names what it hides; one that makes no sense is one warning and hides no other; what the
model is told of them is bounded, in a fixed order, and leaves none out in silence; a file is data:
nothing in it runs or permits anything by itself.
"""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from agentcli.domain.clean import one_line
from agentcli.domain.patterns import LazyPattern
from agentcli.domain.values import frozen
from agentcli.extensions.front_matter import Document, Heads, Unusable, read_placed
from agentcli.extensions.places import ExtensionPlace

MAX_FILES = 500
MAX_LOOKED_AT = 10_000
MAX_BYTES = 200_000
MAX_DESCRIPTION = 1_536
MAX_CATALOGUE = 8_000
MAX_HIDDEN_SHOWN = 3
MORE = f"warning: more than {MAX_FILES} skills: the rest is left out"
NAME = LazyPattern(r"[^\W_][\w-]{0,63}")
_FILE_NAMES = ("SKILL.md", "skill.md")
_LEAST_SHOWN = 40
_BETWEEN = len(":  \n")
_OPENING = (
    "Skills: instructions for tasks of a kind. When a task fits a description, read that file with"
    " read_file before you begin, and follow it. Paths in a skill are relative to its directory."
)


@frozen
class Skill:
    """A skill as its ``head`` describes it. ``path`` is its ``SKILL.md``.

    ``for_model``: the model is told of it; ``for_user``: ``/NAME`` calls it.
    """

    name: str
    path: Path
    description: str
    head: Document
    place: ExtensionPlace
    for_model: bool = True
    for_user: bool = True

    @property
    def directory(self) -> Path:
        """Where its files are."""
        return self.path.parent


def find_skills(
    places: Iterable[ExtensionPlace], heads: Heads | None = None
) -> tuple[tuple[Skill, ...], tuple[str, ...]]:
    """The skills of ``places``, the nearest of a name, by name; and lines for the user. Blocks."""
    found: dict[str, Skill] = {}
    files: set[tuple[int, int]] = set()
    hidden: list[str] = []
    notices: list[str] = []
    for place in places:
        for path, identity in _skill_files(place.path / "skills", notices):
            if identity in files:  # the same file by another way
                continue
            files.add(identity)
            if len(found) >= MAX_FILES:
                return _named(found, hidden, [*notices, MORE])
            try:
                skill = _skill(path, place, heads)
            except Unusable as error:
                notices.append(f"warning: the skill {str(path)!r}: {error}")
                continue
            winner = found.setdefault(skill.name, skill)
            if winner is not skill:
                hidden.append(f"{skill.name} ({winner.directory} hides {skill.directory})")
    return _named(found, hidden, notices)


def _named(
    found: Mapping[str, Skill], hidden: Sequence[str], notices: list[str]
) -> tuple[tuple[Skill, ...], tuple[str, ...]]:
    """All by name, and the lines for the user."""
    if hidden:
        more = len(hidden) - MAX_HIDDEN_SHOWN
        shown = [*hidden[:MAX_HIDDEN_SHOWN], *([f"and {more} more"] if more > 0 else [])]
        notices.append(f"skills of the same name: {', '.join(shown)}")
    return tuple(found[name] for name in sorted(found)), tuple(notices)


def _skill_files(directory: Path, notices: list[str]) -> Iterator[tuple[Path, tuple[int, int]]]:
    names: list[str] = []
    try:
        with os.scandir(directory) as entries:
            for count, entry in enumerate(entries):
                if count >= MAX_LOOKED_AT:
                    notices.append(f"warning: {directory} holds too much: not all of it is read")
                    break
                # asked of the entry itself: a link that leads in a circle must not end the list
                if entry.is_symlink() or entry.is_dir(follow_symlinks=False):
                    names.append(entry.name)
    except FileNotFoundError:
        return
    except OSError as error:
        notices.append(f"warning: {str(directory)!r} cannot be read: {error.strerror}")
    for name in sorted(names):
        try:
            found = _file_in(directory / name)
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", error)
            notices.append(f"warning: the skill {str(directory / name)!r} cannot be read: {why}")
            continue
        if found is not None:
            yield found


def _file_in(directory: Path) -> tuple[Path, tuple[int, int]] | None:
    """The skill's file and which it is; ``None`` where there is none. Raises ``OSError``."""
    for path in map(directory.joinpath, _FILE_NAMES):
        with suppress(FileNotFoundError, NotADirectoryError):
            status = path.stat()
            return path, (status.st_dev, status.st_ino)
    directory.stat()  # a link that leads nowhere is no empty directory
    return None


def _skill(path: Path, place: ExtensionPlace, heads: Heads | None) -> Skill:
    """Raises ``Unusable``."""
    document = read_placed(place, path, MAX_BYTES, heads)
    if not str(path).isprintable():
        raise Unusable("its path has characters that cannot be shown")
    name = _name(document.text("name")) or _name(path.parent.name)
    if not name:
        raise Unusable("it has no name: use letters, digits and hyphens")
    if not document.body:
        raise Unusable("it has no text after its head")
    return Skill(
        name=f"{place.plugin}:{name}" if place.plugin else name,
        path=path,
        description=description_of(document),
        head=replace(document, body=""),
        place=place,
        for_model=not document.says("disable-model-invocation", otherwise=False),
        for_user=document.says("user-invocable", otherwise=True),
    )


def opening(name: str, directory: Path) -> str:
    """What stands before the text of a skill, wherever the model gets it."""
    return f"Follow the skill {name}. Its files are in {directory}.\n\n"


def text_of(skill: Skill) -> str:
    """The skill as it is by now, for an agent that is to follow it. Raises ``Unusable``."""
    body = read_placed(skill.place, skill.path, MAX_BYTES).body
    return opening(skill.name, skill.directory) + body


def _name(text: str) -> str:
    """``text`` as a name, in small letters; empty where it is none."""
    name = unicodedata.normalize("NFKC", text.strip()).lower()
    return name if NAME.fullmatch(name) else ""


def description_of(document: Document) -> str:
    """What a file says of itself in one line, else the first line of its text."""
    said = " ".join(filter(None, (document.text("description"), document.text("when_to_use"))))
    line = said or document.body.partition("\n")[0].strip("# ")
    if not line.isprintable():
        line = "".join(c if c.isprintable() else " " for c in line)
    return one_line(line, MAX_DESCRIPTION)


# --- what the model is told -------------------------------------------------------------------


def catalogue(skills: Sequence[Skill], limit: int = MAX_CATALOGUE) -> tuple[str, str]:
    """The skills for the model in at most ``limit`` characters, and a line for the user.

    The longest descriptions are shortened first. Where even names and paths are too long, names
    stand under their directories; where these are, the rest is counted, and the user told.
    """
    shown = [skill for skill in skills if skill.for_model]
    if not shown:
        return "", ""
    room = min(limit, MAX_CATALOGUE) - len(_OPENING) - 1
    rows = [(f"- {skill.name}", f"({skill.path})", skill.description) for skill in shown]
    fixed = sum(len(head) + len(tail) + _BETWEEN for head, tail, _ in rows)
    if fixed + _LEAST_SHOWN * len(rows) <= room:
        return f"{_OPENING}\n{_filled(rows, room - fixed)}", ""
    return _grouped(shown, room)


def _filled(rows: Sequence[tuple[str, str, str]], room: int) -> str:
    """The rows with as much of their descriptions as there is room for."""
    most = _longest(sorted(len(text) for _, _, text in rows), room)
    lines = []
    for head, tail, text in rows:
        said = f": {one_line(text, most)}" if most > 1 and text else ""
        lines.append(f"{head}{said} {tail}".rstrip())
    return "\n".join(lines)


def _longest(sizes: Sequence[int], room: int) -> int:
    """The most characters for each text, so that all of them take up ``room`` at most."""
    left = room
    for index, size in enumerate(sizes):
        share = left // (len(sizes) - index)
        if size > share:
            return max(share, 0)
        left -= size
    return sizes[-1] if sizes else 0


def _grouped(skills: Sequence[Skill], room: int) -> tuple[str, str]:
    """Names under the directory that holds them, with descriptions where there is room."""
    groups: dict[Path, list[Skill]] = {}
    for skill in skills:
        groups.setdefault(skill.directory.parent, []).append(skill)
    rows: list[tuple[str, str, str]] = []
    left, missing = room - _LEAST_SHOWN, 0
    for directory, members in groups.items():
        for index, skill in enumerate(members):
            opening = "" if index else f"In {directory}, each NAME/{skill.path.name}:\n"
            label = skill.directory.name
            also = "" if label == skill.name else f" ({skill.name})"
            head = f"{opening}- {label}{also}"
            left -= len(head) + _BETWEEN
            if left < 0:
                missing += 1
            else:
                rows.append((head, "", skill.description))
    lines = [_OPENING, *([_filled(rows, left if not missing else 0)] if rows else [])]
    if not missing:
        return "\n".join(lines), ""
    lines.append(f"({missing} more: list the directories)")
    notice = f"warning: {missing} of {len(skills)} skills do not fit into what the model is told"
    return "\n".join(lines), notice
