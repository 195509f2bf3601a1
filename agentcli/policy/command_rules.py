"""What the pattern of a rule covers of a shell command (SEC-3, SEC-4).

Law: a pattern allows a simple command only when all that the shell would do with it is known and
it is nothing but this program with these words: no assignment, no expansion, no redirection but
to ``/dev/null`` or between its own streams. It denies whatever might be that command.
"""

from __future__ import annotations

import fnmatch
import shlex
from collections.abc import Iterator

from agentcli.policy.bash_command import ParsedCommand, SimpleCommand
from agentcli.policy.command_texts import MAX_JUDGED, matches_pattern, names_command_of, parts_of

_NOWHERE = frozenset({"/dev/null", "/dev/stdout", "/dev/stderr"})

# they run what comes after them as it is, within bounds of their own
_TRANSPARENT = frozenset({"timeout", "nice", "ionice", "nohup", "stdbuf"})


def has_pattern(pattern: str) -> bool:
    """Whether ``pattern`` is one; else it is this very text."""
    return "*" in pattern


def covers(pattern: str, command: SimpleCommand) -> bool:
    """Whether a pattern with ``*`` allows ``command``, whatever comes before and after it."""
    return is_bare(command) and any(
        matches_pattern(text, pattern) for text in (_joined(command), command.text)
    )


def covers_literally(text: str, command: SimpleCommand, whole: str, parsed: ParsedCommand) -> bool:
    """Whether a rule for the very command ``text`` allows ``command`` as a part of ``whole``.

    Only where it is the same act: in the same directory, fed by nothing.
    """
    if command.text != text or not is_bare(command) or command.wrappers or "<" in whole:
        return False
    before, found, _ = whole.partition(text)
    is_fed = "|" in before.replace("||", "")
    is_first = not before.strip(" \t\n;&|")
    moved = any(each.words and each.words[0] in {"cd", "pushd", "popd"} for each in parsed.commands)
    return bool(found) and not is_fed and (is_first or parsed.plain) and not moved


def is_bare(command: SimpleCommand) -> bool:
    """Whether it is a program with known words and nothing around it."""
    if not command.words or None in command.words or command.assignments:
        return False
    return writes_nowhere(command) and not any(
        each.operator in {"<", "<&", "<>"} and each.target != "/dev/null"
        for each in command.redirections
    )


def writes_nowhere(command: SimpleCommand) -> bool:
    """Whether no redirection of it writes a file."""
    return all(
        not each.writes or (each.target in _NOWHERE and each.operator != "<>")
        for each in command.redirections
    )


def is_transparent(command: SimpleCommand, parsed: ParsedCommand) -> bool:
    """Whether it only runs another one of the commands, which is judged on its own."""
    if not is_bare(command):
        return False
    program = command.words[0]
    inner = (other for other in parsed.commands if other.wrappers)
    after = command.words[1] if len(command.words) > 1 else None
    is_plain_time = program == "time" and after is not None and not after.startswith("-")
    return (program in _TRANSPARENT or is_plain_time) and any(
        program in other.wrappers and command.text.endswith(other.text) for other in inner
    )


def touches_command(pattern: str, text: str, parsed: ParsedCommand) -> bool:
    """Whether any part of ``text`` is covered; one too long to tell is, if it names the command."""
    if any(
        matches_pattern(each, pattern)
        for command in parsed.commands
        for each in _ways_to_say(command)
    ):
        return True
    if not names_command_of(pattern, text):
        return False
    if len(text) > MAX_JUDGED:
        return True
    return any(matches_pattern(part, pattern) for part in parts_of(text))


def may_touch(pattern: str, text: str, parsed: ParsedCommand) -> bool:
    """Whether a part that cannot be told might be covered."""
    if not parsed.understood and names_command_of(pattern, text):
        return True
    return any(_may_be(pattern, command) for command in parsed.commands)


def _may_be(pattern: str, command: SimpleCommand) -> bool:
    tokens = pattern.split()
    for token, word in zip(tokens, command.words, strict=False):
        if word is None:
            return True
        name = word.rpartition("/")[2] if token is tokens[0] else word
        if not fnmatch.fnmatchcase(name, token.replace("[", "[[]")):
            return False
    return False


def _joined(command: SimpleCommand) -> str:
    """The words in one line, each so that it is seen where it begins and ends."""
    return " ".join(
        word
        if word and not any(char.isspace() or char in "'\"" for char in word)
        else _quoted(word)
        for word in command.words
    )


def _quoted(word: str | None) -> str:
    return shlex.quote(word or "")


def _ways_to_say(command: SimpleCommand) -> Iterator[str]:
    """The words with single spaces, also by the program's bare name; the unknown is ``$?``."""
    words = ["$?" if word is None else word for word in command.words]
    if words:
        yield " ".join(words)
        yield " ".join([words[0].rpartition("/")[2], *words[1:]])
