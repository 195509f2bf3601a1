"""Commands that users keep in files (UI-5, EXT-3), and what a file says when it is called.

``commands/NAME.md`` is a prompt that ``/NAME`` sends; in a directory below it is ``/DIR:NAME``. A
skill is called by ``/NAME`` as well. What is put into a text when it is called are the fields of
https://code.claude.com/docs/en/skills: arguments, directories, and what ``!`COMMAND``` prints.
Laws: only the places that the caller trusts are read; a file is data: to read it runs nothing, and
what runs when it is called is judged like any command; what was put in is not read for more; one
that makes no sense is one warning and hides no other; the nearest of a name wins.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from agentcli.domain.clean import one_line
from agentcli.domain.errors import AgentError
from agentcli.domain.files import walk
from agentcli.domain.patterns import LazyPattern
from agentcli.domain.values import frozen
from agentcli.extensions.front_matter import Document, Heads, Unusable, read_placed
from agentcli.extensions.places import ExtensionPlace
from agentcli.extensions.skills import (
    MAX_BYTES,
    MAX_FILES,
    MAX_LOOKED_AT,
    NAME,
    Skill,
    description_of,
    opening,
)

MAX_HINT = 200
MAX_SHOWN = 300
_NAME = LazyPattern(rf"{NAME.pattern}(?::{NAME.pattern})*")
_ALLOWED = LazyPattern(r"[\w*-]+(?:\([^()]*(?:\([^()]*\)[^()]*)*\))?")
_SHELL = LazyPattern(
    r"^```![ \t]*\n(?P<block>(?:(?!```)[^\n]*\n)*)```[ \t]*$|(?:(?<=\s)|^)!`(?P<line>[^`\n]+)`",
    re.MULTILINE,
)
_WORD = LazyPattern(r"""\"([^"]*)\"(?!\S)|'([^']*)'(?!\S)|(\S+)""")
_PUT_IN = r"\\?\$(?:ARGUMENTS\[(?P<index>\d{1,3})\]|(?P<all>ARGUMENTS)\b|(?P<number>\d{1,3})(?!\d)"
_FROM_ZERO = LazyPattern(r"(?<!\\)\$(?:0(?!\d)|ARGUMENTS\[)")
_LAST_DIGIT = 9


@frozen
class Shell:
    """A command whose output stands in its place."""

    command: str


@frozen
class CustomCommand:
    """A command or skill; ``hint`` says what arguments it takes. ``head`` has its other fields."""

    name: str
    path: Path
    place: ExtensionPlace
    head: Document
    description: str = ""
    hint: str = ""
    is_skill: bool = False

    def prompt(
        self, arguments: str, variables: Mapping[str, str] | None = None
    ) -> tuple[str | Shell, ...]:
        """What ``/NAME arguments`` says, as the file is by now. Raises ``AgentError``.

        ``variables`` are put in for ``${NAME}``.
        """
        try:
            body = read_placed(self.place, self.path, MAX_BYTES).body
        except Unusable as error:
            raise AgentError(f"{self.path}: {error}", "look at the file") from error
        known = {"CLAUDE_SKILL_DIR": str(self.path.parent), **(variables or {})}
        if self.place.plugin:
            known["CLAUDE_PLUGIN_ROOT"] = known["PLUGIN_ROOT"] = str(self.place.path)
        pieces = fill_in(body, arguments, _argument_names(self.head), known)
        if not self.is_skill:
            return pieces
        return (opening(self.name, self.path.parent), *pieces)

    @property
    def allowed_tools(self) -> tuple[str, ...]:
        """What it wants to have allowed while it is followed, as it is written there."""
        return tuple(_ALLOWED.findall(self.head.text("allowed-tools").strip("[]")))


def find_commands(
    places: Iterable[ExtensionPlace],
    skills: Sequence[Skill] = (),
    heads: Heads | None = None,
) -> tuple[list[CustomCommand], tuple[str, ...]]:
    """The commands in ``places`` and the ``skills``, the nearest of a name; warnings. Blocks."""
    places = tuple(places)
    found: dict[str, CustomCommand] = {}
    warnings: list[str] = []
    by_place: dict[Path, list[Skill]] = {}
    for skill in skills:
        by_place.setdefault(skill.place.path, []).append(skill)
    for place in places:
        of_place = [of_skill(skill) for skill in by_place.get(place.path, ()) if skill.for_user]
        for name, path in _commands(place, warnings):
            if name in found:
                continue
            if len(found) >= MAX_FILES:
                warnings.append(f"warning: more than {MAX_FILES} commands: the rest is left out")
                return list(found.values()), tuple(warnings)
            try:
                found[name] = _command(name, path, place, heads)
            except Unusable as error:
                warnings.append(f"warning: the command file {str(path)!r}: {error}")
        for command in of_place:
            found.setdefault(command.name, command)
    for command in [each for each in found.values() if each.place.plugin]:
        short = command.name.partition(":")[2]
        found.setdefault(short, replace(command, name=short))
    return list(found.values()), tuple(warnings)


def _commands(place: ExtensionPlace, warnings: list[str]) -> Iterator[tuple[str, Path]]:
    directory = place.path / "commands"
    seen = 0

    def unread(error: OSError) -> None:
        if not isinstance(error, FileNotFoundError):
            warnings.append(f"warning: {error.filename!r} cannot be read: {error.strerror}")

    for above, below, files in walk(directory, onerror=unread):
        below.sort()
        room = max(MAX_LOOKED_AT - seen, 0)
        seen += len(files) + len(below)
        for file in sorted(files)[:room]:
            path = Path(above) / file
            parts = path.relative_to(directory).with_suffix("").parts
            name = ":".join(parts).lower()
            if file.endswith(".md") and _NAME.fullmatch(name) and str(path).isprintable():
                yield f"{place.plugin}:{name}" if place.plugin else name, path
        if seen > MAX_LOOKED_AT:
            warnings.append(f"warning: {directory} holds too much: not all of it is read")
            return


def _command(name: str, path: Path, place: ExtensionPlace, heads: Heads | None) -> CustomCommand:
    document = read_placed(place, path, MAX_BYTES, heads)
    if not document.body:
        raise Unusable("it has no text")
    head = Document(document.fields, "")
    hint = one_line(document.text("argument-hint"), MAX_HINT)
    return CustomCommand(name, path, place, head, description_of(document), hint)


def lines_of(command: CustomCommand) -> Iterator[str]:
    """What ``command`` is, runs, wants to have allowed and brings with it, for a decision."""
    kind = f"skill {command.name}" if command.is_skill else f"command /{command.name}"
    yield f"{kind}: {one_line(command.description, MAX_SHOWN)}"
    try:
        body = read_placed(command.place, command.path, MAX_BYTES).body
    except Unusable as error:
        yield f"  {error}"
        return
    for found in _SHELL.finditer(body):
        yield f"  runs when it is called: {(found['block'] or found['line']).strip()}"
    if command.allowed_tools:
        yield f"  has allowed while it is followed: {', '.join(command.allowed_tools)}"
    if command.is_skill and (files := list(_files_of(command.path))):
        yield f"  files: {', '.join(files)}"


def _files_of(path: Path) -> Iterator[str]:
    """What lies beside a skill's own file, bounded."""
    seen = 0
    for above, below, files in walk(path.parent):
        below.sort()
        for name in sorted(files):
            seen += 1
            if seen > MAX_FILES:
                yield f"and more than {MAX_FILES}"
                return
            if (found := Path(above, name)) != path:
                yield str(found.relative_to(path.parent))


def of_skill(skill: Skill) -> CustomCommand:
    """``skill`` as a thing that ``/NAME`` calls."""
    hint = one_line(skill.head.text("argument-hint"), MAX_HINT)
    return CustomCommand(
        skill.name, skill.path, skill.place, skill.head, skill.description, hint, is_skill=True
    )


# --- what is put in ---------------------------------------------------------------------------


def fill_in(
    body: str,
    arguments: str,
    names: Sequence[str] = (),
    variables: Mapping[str, str] | None = None,
) -> tuple[str | Shell, ...]:
    r"""``body`` with arguments and variables put in, and its commands by themselves.

    ``$ARGUMENTS`` is all that was typed, ``$ARGUMENTS[N]`` a word of it from 0, ``$1`` to ``$9``
    one from 1 - from 0 where the text has ``$0`` or ``$ARGUMENTS[N]`` -, ``$NAME`` one that
    ``names`` names. Words are separated by blanks; quotes keep them together. ``\$1`` is no
    argument. A text that takes none is followed by them.
    """
    words = [next(filter(None, found.groups()), "") for found in _WORD.finditer(arguments)]
    first = 0 if _FROM_ZERO.search(body) else 1
    options = "".join(f"|(?:{re.escape(name)})(?!\\w)" for name in names)
    pattern = re.compile(rf"{_PUT_IN}|\{{(?P<variable>\w+)\}}|(?P<name>{options[1:] or '(?!)'}))")
    is_used = False

    def value(found: re.Match[str]) -> str:
        nonlocal is_used
        if found[0].startswith("\\"):
            return found[0][1:]
        if variable := found["variable"]:
            return (variables or {}).get(variable, found[0])
        is_used = True
        if found["all"]:
            return arguments
        if name := found["name"]:
            at = list(names).index(name)
        elif found["index"]:
            at = int(found["index"])
        else:
            number = int(found["number"])
            at = number - first
            if number > _LAST_DIGIT and at >= len(words):  # an amount of money
                return found[0]
        return words[at] if 0 <= at < len(words) else ""

    pieces: list[str | Shell] = []
    end = 0
    for found in _SHELL.finditer(body):
        pieces.append(pattern.sub(value, body[end : found.start()]))
        command = (found["block"] or found["line"]).strip()
        pieces.append(Shell(pattern.sub(value, command)))
        end = found.end()
    pieces.append(pattern.sub(value, body[end:]))
    if arguments and not is_used:
        pieces.append(f"\n\n{arguments}")
    return tuple(piece for piece in pieces if piece)


def _argument_names(head: Document) -> tuple[str, ...]:
    """What the file calls its arguments: ``arguments: [issue, branch]``, or with blanks."""
    given = " ".join(head.names("arguments") or ())
    return tuple(name for name in given.split() if name.isidentifier())


def served_command(name: str, server: str, description: str, hint: str) -> CustomCommand:
    """The command for a prompt that an MCP ``server`` has; no file holds it."""
    place = ExtensionPlace(Path(), server)
    return CustomCommand(name, Path(), place, Document(None, ""), description, hint)
