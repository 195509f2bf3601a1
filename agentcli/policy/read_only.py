"""Shell commands that change nothing, where a sandbox makes sure of it (LOOP-4, SEC-3, SEC-4).

They run in a read-only one, so that a mistake here has no effect: of words that only the shell
knows nothing is asked. Where there is none, ``policy/strict_reads.py`` is asked instead. Law: names
of files that are written out lie in the workspace, and what is not known to read is no read.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

from agentcli.domain.tools import Workspace
from agentcli.domain.values import frozen
from agentcli.policy.bash_command import ParsedCommand, Redirection, SimpleCommand, unquote
from agentcli.policy.bash_syntax import parse_bash
from agentcli.policy.bash_tree import SUBSHELLS
from agentcli.policy.bash_wrappers import look_through
from agentcli.policy.places import without_braces
from agentcli.policy.read_only_programs import WIDE, tells_version
from agentcli.policy.read_only_table import (
    HARMLESS_WITH_ANY_OPTION,
    OPEN_FILES,
    PATTERN_GIVEN,
    UNKNOWN,
    Spec,
    reading_of,
    spec_of,
)
from agentcli.policy.strict_reads import below, stands_in

# the user is to see this text, though it is only printed
_QUOTED_DELETION = re.compile(r"\brm\s+-")
_NO_FILES = frozenset({"none", "text"})
_GLOB = re.compile(r"[A-Za-z0-9_./@%+=:,-]*[*?][A-Za-z0-9_./@%+=:,*?-]*", re.ASCII)
_SET = re.compile(r"\[[!^]?(?:[A-Za-z0-9_.,@%+=-]|\[:[a-z]+:\])+\]", re.ASCII)
_AT_HOME = re.compile(r"~(?:/[A-Za-z0-9._/-]*)?")
_PLAIN = re.compile(r"[A-Za-z0-9_./@%+=:,][A-Za-z0-9_./@%+=:,-]*", re.ASCII)
_EXPANDS = re.compile("[$`]")
_MAX_DIRECTORIES = 8
_NULL = "/dev/null"
# wrappers that change how long or how urgently a program runs, not what it does
_HARMLESS_WRAPPERS = frozenset({"timeout", "time", "nice", "stdbuf", "command", "builtin"})
_SHELLS = frozenset({"bash", "sh"})
# syntax beyond lists and pipes of commands
_KINDS = frozenset(
    {
        "for_statement", "do_group", "if_statement", "elif_clause", "else_clause",
        "negated_command", "variable_name", "simple_expansion", "expansion", "heredoc_redirect",
        "heredoc_start", "heredoc_body", "heredoc_content", "heredoc_end", "herestring_redirect",
        "for", "in", "do", "done", "if", "then", "elif", "else", "fi", "$", "${", "}", "<<", "<<-",
        "<<<", "subshell", "compound_statement", "command_substitution", "special_variable_name",
        "while_statement", "arithmetic_expansion", "case_statement", "case_item",
        "extglob_pattern", "(", ")", "{", "$(", "`", "while", "until", "case", "esac", ";;", ":-",
        "-", ":+", "+", "#", "##", "%", "%%", "/", "//", "regex", "[[", "]]",
        "parenthesized_expression", "=~", "comparison", "process_substitution", "<(",
        "variable_assignment",
    }
)  # fmt: skip
# with these a command may not run, or changes the directory of others alone
_MAY_SKIP = SUBSHELLS | {
    "if_statement", "case_statement", "for_statement", "while_statement", "negated_command",
}  # fmt: skip
_OTHER_INPUT = re.compile(r"-[A-Za-z0-9]*[ad]|--a|--d")  # of xargs
_WRITE_NAMES = (("echo",), ("printf",), ("sed",), ("awk",))
_TOP_LEVEL = "git rev-parse --show-toplevel"
_GIVEN = "./given"
_IFS = re.compile(r"IFS=(?:[^$`\s\"'\\]{0,8}|\"[^$`\"\\]{0,8}\"|\$?'[^']{0,8}')")  # of "read" alone
# how it is shown, and no more: locale(7), tzset(3), environ(7), git(1)
_SHOWN_BY = re.compile(
    r"(?:LC_[A-Z]+|LANG|TZ|NO_COLOR|FORCE_COLOR|COLUMNS|TERM)=[A-Za-z0-9_][\w/.+-]*|(?:GIT_)?PAGER=cat"
)


def is_read_only(command: str, workspace: Workspace) -> bool:
    """Whether ``command``, run in the read-only sandbox, names no file elsewhere that it reads."""
    parsed = parse_bash(command)
    if not (parsed.understood and parsed.commands and parsed.kinds <= _KINDS):
        return False
    reader = _Reader(workspace, parsed, (workspace.cwd,))
    return stands_in(workspace) and reader.reads_all(may_skip="||" in command)


@frozen
class _Reader:
    """A text, and the ``directories`` in which the shell may be."""

    workspace: Workspace
    parsed: ParsedCommand
    directories: tuple[Path, ...]

    def reads_all(self, *, may_skip: bool) -> bool:
        """Whether each of the commands only reads, as ``cd`` leads from place to place.

        ``may_skip``: one of them runs only if another fails.
        """
        reader, is_certain = self, not may_skip and _MAY_SKIP.isdisjoint(self.parsed.kinds)
        if any(
            self._values(source) is None for loop in self.parsed.loops for source in loop.sources
        ):
            return False
        waiting = [*reversed(self.parsed.subshells)]
        within: list[tuple[int, tuple[Path, ...]]] = []
        for command in self.parsed.commands:
            if command.wrappers:
                continue  # judged with the words of the one that runs it
            while within and within[-1][0] <= command.at:  # what is behind it stays where it was
                reader = replace(reader, directories=within.pop()[1])
            while waiting and waiting[-1][0] <= command.at:
                _, end = waiting.pop()
                within += [(end, reader.directories)] if end > command.at else []
            if command.words[:1] == ("cd",):
                moved = reader.moved(command)
                if not moved:
                    return False
                is_certain = is_certain and not any(e.operator == "<" for e in command.redirections)
                certain = is_certain and command.upstream is None
                both = moved if certain else (*reader.directories, *moved)
                reader = replace(reader, directories=tuple(dict.fromkeys(both)))
                if len(reader.directories) > _MAX_DIRECTORIES:
                    return False
                continue
            is_certain = False  # another ``cd`` may be skipped
            if not reader.only_reads(command):
                return False
        return True

    def moved(self, command: SimpleCommand) -> tuple[Path, ...]:
        """Where ``cd`` leads: directories of the workspace that are there; empty otherwise."""
        is_plain = not command.assignments and all(map(self._harmless, command.redirections))
        is_repeated = "while_statement" in self.parsed.kinds or any(
            loop.start < command.at < loop.end for loop in self.parsed.loops
        )
        if is_repeated or not is_plain or len(command.words) != 2:  # noqa: PLR2004 - cd and a directory
            return ()
        target, source = command.words[1], command.sources[1].strip('"')
        if target is None and source == f"$({_TOP_LEVEL})":
            return (self.workspace.root,)
        moved = [below(target or "", replace(self.workspace, cwd=e)) for e in self.directories]
        return tuple(each.cwd for each in moved if each) if all(moved) else ()

    def only_reads(self, command: SimpleCommand) -> bool:
        """Whether one command does."""
        is_known = _IFS.fullmatch if command.words[:1] == ("read",) else _SHOWN_BY.fullmatch
        if not all(map(is_known, command.assignments)):
            return False
        if not command.words or not all(map(self._harmless, command.redirections)):
            return False
        words = self._words(command)
        if words is None:
            return False
        is_fed = words[0] in {"xargs", "gxargs"}
        return self._given_files(words, command) if is_fed else self._call(words)

    def _words(self, command: SimpleCommand) -> list[str] | None:
        """The words as the program sees them; ``None`` where one could name what lies elsewhere."""
        words: list[str] = []
        for word, source in zip(command.words, command.sources, strict=True):
            if word is not None:
                words.append(word)
            elif not words:
                return None
            elif source.startswith("<("):
                words.append(_NULL)  # likewise a name that the shell gives, of nothing on the disk
            elif words[0] == "[[":  # where nothing is a file's name
                words.append(UNKNOWN)
            else:
                values = self._values(source)
                if values is None:
                    return None
                words += values
        return words

    def _values(self, source: str) -> list[str] | None:
        """What the shell makes of a word; ``None`` where it names what lies elsewhere."""
        word = unquote(source)
        if word is not None:
            return [word] if self.may_read(word) else None
        if _AT_HOME.fullmatch(source):
            return [source] if self.may_read(source) else None
        choices = without_braces(source)
        if len(choices) > 1 and "$" not in source:
            values = [[each] if _PLAIN.fullmatch(each) else self._matches(each) for each in choices]
            return [word for each in values for word in each or ()] if all(values) else None
        return [UNKNOWN] if _EXPANDS.search(source) else self._matches(source)

    def _matches(self, source: str) -> list[str] | None:
        """Whatever a pattern finds; ``None`` where that may lie elsewhere."""
        pattern = _SET.sub("?", source)
        if not _GLOB.fullmatch(pattern) or not self.may_read(pattern):
            return None
        if any(fnmatch.fnmatchcase("..", each) for each in pattern.split("/") if each[:1] == "."):
            return None  # some shells find the directory above
        return [UNKNOWN]

    def may_read(self, path: str) -> bool:
        """Whether a file operand stays in the workspace.

        ``-`` is mostly standard input, and a file for ``<`` and for ``ls``: it may be a link, too.
        """
        if path in {UNKNOWN, _NULL, *OPEN_FILES}:
            return True  # from what it does not know the sandbox keeps it
        try:
            return all(
                self.workspace.contains(replace(self.workspace, cwd=each).resolve(path))
                for each in self.directories
            )
        except (RuntimeError, ValueError):  # a user who is not there; no name of a file
            return False

    def _harmless(self, redirection: Redirection) -> bool:
        target = redirection.target
        if redirection.operator == "<":
            return self.may_read(UNKNOWN if target is None else target)
        if redirection.operator in {"<<", "<<<"}:
            return True
        if redirection.operator == ">&":
            return target in {"1", "2"}
        return redirection.operator in {">", ">>", "&>", "&>>"} and target == _NULL

    def _call(self, words: Sequence[str]) -> bool:
        name = words[0]
        if name in _HARMLESS_WRAPPERS and self._wrapped(words):
            return True
        if "/" in name or name == UNKNOWN:
            return False
        if name in _SHELLS and words[1:2] in (["-c"], ["-lc"]):
            return len(words) == len(("sh", "-c", "text")) and self._text_reads(words[2])
        if tells_version(words):
            return True
        if special := WIDE.get(name):
            return special(words, self.may_read)
        spec = spec_of(name)
        return spec is not None and self._fits(words, spec)

    def _text_reads(self, text: str) -> bool:
        """What a shell is given to run, where that is certain."""
        is_certain = text != UNKNOWN and len(self.directories) == 1
        place = replace(self.workspace, cwd=self.directories[0])
        return is_certain and is_read_only(text, place)

    def _given_files(self, words: Sequence[str], command: SimpleCommand) -> bool:
        """``find … | xargs grep x``: files of the workspace, for a program that only reads."""
        inner = look_through(tuple(words))
        sources = [each for each in self.parsed.commands if each.at in (command.upstream or ())]
        if inner.why_not or len(inner.inner) != 1 or not sources:
            return False
        start = inner.inner[0].start
        own, after = words[:start], words[start:]
        mark = next((text for option, text in pairwise(own) if option == "-I"), "{}")
        if any(map(_OTHER_INPUT.match, own)):
            return False
        # where a name is put into a word, the word is more than the name of a file
        both = zip(inner.inner[0].words, after, strict=False)
        if any(word is None and each != mark for word, each in both):
            return False
        program = [_GIVEN if word is None else word for word in inner.inner[0].words]
        written = any(each.words[:1] in _WRITE_NAMES for each in sources)  # it is named
        written |= any(each.operator in {"<<", "<<<"} for each in command.redirections)
        is_known = bool(program) and program[0] in HARMLESS_WITH_ANY_OPTION
        return is_known and not written and self._call(program)

    def _wrapped(self, words: Sequence[str]) -> bool:
        if words[0] == "time":
            rest = words[2:] if words[1:2] == ["-p"] else words[1:]
            return bool(rest) and self._call(rest)
        looked = look_through(tuple(words))
        if looked.why_not or len(looked.inner) != 1:
            return False
        inner = [word for word in looked.inner[0].words if word is not None]
        return bool(inner) and self._call(inner)

    def _fits(self, words: Sequence[str], spec: Spec) -> bool:
        """Whether all options are in the table and all files in the workspace."""
        if spec.operands == "any":
            return not any(map(_QUOTED_DELETION.search, words))
        reading = reading_of(words, spec)
        if reading is None:
            return False
        operands = reading.operands
        if spec.operands == "pattern" and PATTERN_GIVEN.isdisjoint(reading.options):
            operands = operands[1:]
        files = reading.files + (operands if spec.operands not in _NO_FILES else [])
        return all(map(self.may_read, files))
