"""Shell commands that are known to change nothing (LOOP-4, SEC-3, SEC-4).

Law: a command is read-only when all that it runs are known programs whose every word is known, each
with known options, whose files stay in the workspace. An option that the table does not hold, or a
value of another kind, makes it uncertain; whatever is not certain is not read-only. Where a sandbox
enforces it (``contained``) such a command runs in a read-only one: then more syntax and programs
count, of which it is known what they mean and not all that they might do.
"""

from __future__ import annotations

import fnmatch
import itertools
import os
import re
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import field, replace
from itertools import pairwise
from pathlib import Path

from agentcli.domain.tools import Workspace
from agentcli.domain.values import frozen
from agentcli.domain.worktrees import filled_by_others, lies_in
from agentcli.policy.bash_command import ParsedCommand, Redirection, SimpleCommand, unquote
from agentcli.policy.bash_syntax import parse_bash
from agentcli.policy.bash_wrappers import look_through
from agentcli.policy.places import (
    GlobFinder,
    credential_place,
    without_braces,
)
from agentcli.policy.read_only_programs import (
    STRICT,
    WIDE,
    tells_version,
)
from agentcli.policy.read_only_table import (
    BUILT_IN,
    FOLLOWING,
    HARMLESS_WITH_ANY_OPTION,
    HELPERS,
    MOST_OPERANDS,
    PATTERN_GIVEN,
    UNKNOWN,
    Spec,
    reading_of,
    spec_of,
)

# the user is to see this text, though it is only printed
_QUOTED_DELETION = re.compile(r"\brm\s+-")
_NO_FILES = frozenset({"none", "text"})
_GLOB = re.compile(r"[A-Za-z0-9_./@%+=:,-]*[*?][A-Za-z0-9_./@%+=:,*?-]*", re.ASCII)
_SET = re.compile(r"\[[!^]?(?:[A-Za-z0-9_.,@%+=-]|\[:[a-z]+:\])+\]", re.ASCII)
_SIMPLE_SET = re.compile(r"\[(?:[a-z](?:-[a-z])?|[A-Z](?:-[A-Z])?|[0-9](?:-[0-9])?)+\]", re.ASCII)
_MAX_MATCHES = 500
_MAX_SEEN = 3_000
_MAX_DIRECTORIES = 8
_NULL = "/dev/null"
# what every system says of itself
_OPEN_FILES = frozenset(
    {
        "/etc/os-release", "/usr/lib/os-release", "/etc/lsb-release", "/etc/debian_version",
        "/etc/redhat-release", "/etc/alpine-release", "/etc/issue", "/etc/timezone",
        "/proc/cpuinfo", "/proc/meminfo", "/proc/version", "/proc/loadavg", "/proc/uptime",
    }
)  # fmt: skip
# wrappers that change how long or how urgently a program runs, not what it does
_HARMLESS_WRAPPERS = frozenset({"timeout", "time", "nice", "stdbuf"})
# syntax beyond lists and pipes of commands
_STRICT_KINDS = frozenset(
    {
        "for_statement", "do_group", "if_statement", "elif_clause", "else_clause",
        "negated_command", "variable_name", "simple_expansion", "expansion", "heredoc_redirect",
        "heredoc_start", "heredoc_body", "heredoc_content", "heredoc_end", "herestring_redirect",
        "for", "in", "do", "done", "if", "then", "elif", "else", "fi", "$", "${", "}", "<<", "<<-",
        "<<<",
    }
)  # fmt: skip
_WIDE_KINDS = _STRICT_KINDS | {
    "subshell", "compound_statement", "command_substitution", "special_variable_name",
    "while_statement", "arithmetic_expansion", "case_statement", "case_item", "extglob_pattern",
    "(", ")", "{", "$(", "`", "while", "until", "case", "esac", ";;", ":-", "-", ":+", "+", "#",
    "##", "%", "%%", "/", "//", "regex", "[[", "]]", "parenthesized_expression", "=~",
    "comparison", "process_substitution", "<(", "variable_assignment",
}  # fmt: skip
_EXPANSIONS = frozenset({"simple_expansion", "expansion"})
_SUBSHELLS = frozenset({"subshell", "command_substitution", "process_substitution"})
# with these a command may not run, or changes the directory of others alone
_MAY_SKIP = _SUBSHELLS | {
    "if_statement", "case_statement", "for_statement", "while_statement", "negated_command",
}  # fmt: skip
_VARIABLE = re.compile(r"\$(?:\{([A-Za-z_]\w*)\}|([A-Za-z_]\w*))", re.ASCII)
_PLAIN_VALUE = re.compile(r"[A-Za-z0-9_./@%+=:,][A-Za-z0-9_./@%+=:,-]*|\0", re.ASCII)
_MAX_CALLS = 500
_TOP_LEVEL = "git rev-parse --show-toplevel"
_GIVEN = "./given"
_IFS = re.compile(r"IFS=(?:[^$`\s\"'\\]{0,8}|\"[^$`\"\\]{0,8}\"|\$?'[^']{0,8}')")  # of "read" alone
# how it is shown, and no more: locale(7), tzset(3), environ(7), git(1)
_SHOWN_BY = re.compile(
    r"(?:LC_[A-Z]+|LANG|TZ|NO_COLOR|FORCE_COLOR|COLUMNS|TERM)=[A-Za-z0-9_][\w/.+-]*|(?:GIT_)?PAGER=cat"
)
_PRINTS_OTHERS = frozenset({"-printf", "-ls"})
_SPLITS = re.compile(r"[\s'\"\\]")


def is_read_only(
    command: str, workspace: Workspace, search_path: str | None = None, *, contained: bool = False
) -> bool:
    """Whether ``command`` certainly changes nothing and reads only the workspace.

    ``workspace.cwd`` is the shell's directory: it must be there and in the workspace as well,
    since commands without operands read it. ``search_path`` is the shell's ``PATH`` (by default
    our own): a program that it finds inside the workspace is the repository's (SEC-2).
    ``contained``: what is judged read-only runs in the read-only sandbox (SEC-4).
    """
    parsed = parse_bash(command)
    kinds = _WIDE_KINDS if contained else _STRICT_KINDS
    if not (parsed.understood and parsed.commands and parsed.kinds <= kinds):
        return False
    cwd = workspace.cwd
    if not (os.path.isdir(cwd) and workspace.contains(cwd)):  # noqa: PTH112 - never raises
        return False
    if not contained:  # what is comes across none
        from agentcli.policy.credentials import credential_met

        if credential_met(command, cwd):
            return False
    return _Reader(workspace, search_path, contained, parsed, (cwd,)).reads_all("||" in command)


def _takes_matches(words: Sequence[str], source: str) -> bool:
    """Whether a glob may stand behind ``words``, whatever files there are by the time it runs."""
    if not words:
        return False
    if source[0] in "*?[" and "--" not in words:
        return words[0] in HARMLESS_WITH_ANY_OPTION
    spec = spec_of(words[0])
    if spec is None and "[" in source:
        return False  # what it matches is known from above only, and words are told by their order
    return spec is None or spec.operands not in MOST_OPERANDS


def _may_take(source: str, match: str) -> bool:
    """Whether the sets in the glob ``source`` may take ``match``, in whatever locale."""
    if "[" in _SIMPLE_SET.sub("", source) or not match.isascii():
        return True
    return fnmatch.fnmatchcase(match.lower(), source.lower())


@frozen
class _Reader:
    """Where commands run: what they may read, and which programs are the system's.

    ``directories`` are those in which the shell may be.
    """

    workspace: Workspace
    search_path: str | None
    contained: bool
    parsed: ParsedCommand
    directories: tuple[Path, ...]
    finder: GlobFinder = field(default_factory=GlobFinder)
    looked_at: dict[object, bool] = field(default_factory=dict)

    def reads_all(self, may_skip: bool) -> bool:  # noqa: FBT001 - its one argument
        """Whether each of the commands only reads, as ``cd`` leads from place to place.

        ``may_skip``: one of them runs only if another fails.
        """
        reader, is_certain = self, not may_skip and _MAY_SKIP.isdisjoint(self.parsed.kinds)
        for command in self.parsed.commands:
            if command.wrappers:
                continue  # judged with the words of the one that runs it
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
        if target is None and self.contained and source == f"$({_TOP_LEVEL})":
            return (self.workspace.root,)
        if not target or target.startswith("-"):
            return ()
        if not target.startswith(("/", ".")) and "CDPATH" in os.environ:
            return ()
        found = []
        for directory in self.directories:
            place = replace(self.workspace, cwd=directory).resolve(target)
            # the shell takes ".." off the name, the kernel off what it leads to
            named = os.path.normpath(directory / target)
            is_clear = os.path.realpath(named) == os.path.realpath(place)
            is_there = os.access(place, os.X_OK) and place.is_dir()
            if not (is_clear and is_there and self.workspace.contains(place)):
                return ()
            found.append(Path(named))
        return tuple(found)

    def only_reads(self, command: SimpleCommand) -> bool:
        """Whether one command does, whatever the variables of loops stand for."""
        is_known = _IFS.fullmatch if command.words[:1] == ("read",) else _SHOWN_BY.fullmatch
        if command.assignments and not (self.contained and all(map(is_known, command.assignments))):
            return False
        if not command.words or not all(map(self._harmless, command.redirections)):
            return False
        calls = 0
        for values in self._values(command):
            calls += 1
            words = self._words(command, values)
            if calls > _MAX_CALLS or words is None:
                return False
            is_fed = words[0] in {"xargs", "gxargs"}
            if not (self._given_files(words, command) if is_fed else self._call(words)):
                return False
            if values and self._are_credentials(words):  # nobody else reads what loops make
                return False
        return calls > 0

    def _values(self, command: SimpleCommand) -> Iterator[dict[str, str]]:
        """Each way in which the loops around ``command`` set their variables."""
        text = " ".join(command.sources)
        around = [loop for loop in self.parsed.loops if loop.start < command.at < loop.end]
        around = [loop for loop in around if f"${loop.variable}" in text.replace("{", "")]
        names = [loop.variable for loop in around]
        values = []
        for loop in around:
            if any(
                each.variable == loop.variable and loop.start < each.start < loop.end
                for each in self.parsed.loops
            ):
                return  # behind the inner loop it is what that one has left
            known: list[str] = []
            for source in loop.sources:
                word = unquote(source)
                found = [word] if word is not None else self._matches(source)
                if found is None and self.contained and re.search("[$`]", source):
                    found = [UNKNOWN]
                if not found or not all(map(_PLAIN_VALUE.fullmatch, found)):
                    return
                known += found
            values.append(known)
        for chosen in itertools.product(*values):
            yield dict(zip(names, chosen, strict=True))

    def _words(self, command: SimpleCommand, values: dict[str, str]) -> list[str] | None:
        """The words of one call; ``None`` where one of them could be anything."""
        words: list[str] = []
        for word, source in zip(command.words, command.sources, strict=True):
            if word is not None:
                words.append(word)
                continue
            if self.contained and words and source.startswith("<("):
                words.append(_NULL)  # likewise a name that the shell gives, of nothing on the disk
                continue
            text = _with_values(source, values)
            found = [unquote(text)] if text is not None else [None]
            if found[0] is None:
                in_test = words[:1] == ["[["]  # where nothing is a file's name
                matches = None if in_test else self._matches(text or source)
                is_open = in_test or re.search("[$`]", source)
                if matches is None and self.contained and words and is_open:
                    matches = [UNKNOWN]
                elif matches is None or not _takes_matches(words, text or source):
                    return None
                words += matches
            else:
                words += [each for each in found if each is not None]
        return words

    def may_read(self, path: str) -> bool:
        """Whether a file operand stays in the workspace.

        ``-`` is mostly standard input, and a file for ``<`` and for ``ls``: it may be a link, too.
        """
        if path == _NULL or path in _OPEN_FILES:
            return True
        if path == UNKNOWN:  # the sandbox keeps it from all but the workspace
            return self.contained
        try:
            return all(
                self.workspace.contains(replace(self.workspace, cwd=each).resolve(path))
                for each in self.directories
            )
        except (RuntimeError, ValueError):  # a user who is not there; no name of a file
            return False

    def _are_credentials(self, words: Sequence[str]) -> bool:
        places = [replace(self.workspace, cwd=each) for each in self.directories]
        known = [word for word in words[1:] if UNKNOWN not in word]
        return bool(credential_place(place.resolve(word) for place in places for word in known))

    def _harmless(self, redirection: Redirection) -> bool:
        target = redirection.target
        if redirection.operator == "<":
            return self.may_read(UNKNOWN if target is None else target)
        if redirection.operator in {"<<", "<<<"}:
            return self.contained or self.parsed.kinds.isdisjoint(_EXPANSIONS)  # of any variable
        if redirection.operator == ">&":
            return target in {"1", "2"}
        return redirection.operator in {">", ">>", "&>", "&>>"} and target == _NULL

    def _matches(self, source: str) -> list[str] | None:
        """What bash makes of a glob, judged now; ``None`` when that is not certain.

        A set of letters may mean more than it says, and nothing: shells do not agree on it.
        """
        if "{" in source:
            return self._chosen(source)
        pattern = _SET.sub("?", source)
        if not _GLOB.fullmatch(pattern) or not self.may_read(pattern):
            return None
        if any(fnmatch.fnmatchcase("..", each) for each in pattern.split("/") if each[:1] == "."):
            return None  # some shells find the directory above
        found: list[str] = []
        for directory in self.directories:
            matches = self.finder.matches(pattern, directory)
            if matches is None:
                return None
            for match in matches:
                if not _may_take(source, match):
                    continue
                found.append(match)
                if len(found) > _MAX_MATCHES or match.startswith("-") or not self.may_read(match):
                    return None  # that a file is there is something to read, too
        return [*sorted(set(found)), *([] if found and pattern == source else [source])]

    def _chosen(self, source: str) -> list[str] | None:
        """What bash makes of ``src/{a,b}.py``."""
        found: list[str] = []
        choices = without_braces(source)
        if len(choices) == 1:
            return None  # a pattern for too many of them
        for each in choices:
            known = [each] if _PLAIN_VALUE.fullmatch(each) else None
            matches = known or (None if "{" in each else self._matches(each))
            if matches is None:
                return None
            found += matches
        return found

    def _call(self, words: Sequence[str], *, in_shell: bool = True) -> bool:
        name = words[0]
        if name in _HARMLESS_WRAPPERS:
            return self._wrapped(words)
        built_in = in_shell and name in BUILT_IN
        if not built_in and not all(map(self._is_foreign, (name, *HELPERS.get(name, ())))):
            return False
        if tells_version(words, contained=self.contained):
            return True
        if special := (WIDE if self.contained else STRICT).get(name):
            return special(words, self.may_read)
        spec = spec_of(name)
        return spec is not None and self._fits(words, spec)

    def _given_files(self, words: Sequence[str], command: SimpleCommand) -> bool:
        """``find … | xargs grep x``: files of the workspace, for a program that only reads."""
        inner = look_through(tuple(words))
        sources = [each for each in self.parsed.commands if each.at in (command.upstream or ())]
        given = sources[-1].words[:1] if sources else ()
        if inner.why_not or len(inner.inner) != 1 or not given or not self._is_foreign("xargs"):
            return False
        start = inner.inner[0].start
        own, after = words[:start], words[start:]
        mark = next((text for option, text in pairwise(own) if option == "-I"), "{}")
        if any(word.startswith(("-a", "--arg-file", "-d", "--delimiter")) for word in own):
            return False
        # where a name is put into a word, the word is more than the name of a file
        both = zip(inner.inner[0].words, after, strict=False)
        if any(word is None and each != mark for word, each in both):
            return False
        program = [_GIVEN if word is None else word for word in inner.inner[0].words]
        if not program or program[0] not in HARMLESS_WITH_ANY_OPTION:
            return False
        if self.contained:  # what was written out is named
            written = any(each.words[:1] in (("echo",), ("printf",)) for each in sources)
            return not written and self._call(program, in_shell=False)
        # what is given may be a link, or a name that xargs takes for several
        is_safe = (
            given[0] == "find"
            and _PRINTS_OTHERS.isdisjoint(sources[-1].words)
            and self._holds_no_way_out([str(self.workspace.root)], splits=_SPLITS)
        )
        return is_safe and self._call(program, in_shell=False)

    def _wrapped(self, words: Sequence[str]) -> bool:
        name = words[0]
        if name == "time":
            rest = words[2:] if words[1:2] == ["-p"] else words[1:]
            # a keyword only as it is written and in front of a pipeline, and not in every shell
            is_known = self.contained or not self._could_run(name) or self._is_foreign(name)
            return is_known and bool(rest) and self._call(rest, in_shell=False)
        looked = look_through(tuple(words))
        if looked.why_not or len(looked.inner) != 1 or not self._is_foreign(name):
            return False
        inner = [word for word in looked.inner[0].words if word is not None]
        return bool(inner) and self._call(inner, in_shell=False)

    def _is_foreign(self, program: str) -> bool:
        """Whether the program is found, and not in a directory that the repository could fill.

        A ``PATH`` that was changed must lead to the same program as our own: a command that was
        approved for one thing has not named what others run. In the sandbox any of them may run.
        """
        if "/" in program or program == UNKNOWN:
            return False
        if self.contained:
            return True
        found = self._found(program, self.search_path)
        if found is None or self.search_path is None:
            return found is not None
        return found == self._found(program, None)

    def _could_run(self, program: str) -> bool:
        """Whether a program of this name may be found at all."""
        path = os.environ.get("PATH", os.defpath) if self.search_path is None else self.search_path
        is_plain = all(map(os.path.isabs, path.split(os.pathsep)))
        return not is_plain or shutil.which(program, path=path) is not None

    def _found(self, program: str, search_path: str | None) -> str | None:
        """Where bash finds it, all links followed; ``None``: not, or where it may not be."""
        path = os.environ.get("PATH", os.defpath) if search_path is None else search_path
        entries = path.split(os.pathsep)
        if not path or any(entry.startswith("~") for entry in entries):
            return None  # bash expands it
        # bash looks from where it is, and takes an empty entry for that place
        places = [os.pathsep.join(str(each / one) for one in entries) for each in self.directories]
        found = {shutil.which(program, path=place) for place in places}
        own = (self.workspace.root, *self.workspace.extra)
        barred = [each for root in own for each in filled_by_others(root)]
        if any(each is None or lies_in(Path(each), barred) for each in found):
            return None
        names = {os.path.realpath(each) for each in found if each}
        return names.pop() if len(names) == 1 else None

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
        if words[0] == "tree" and any(re.match("-[A-Za-z]*[IP].", word) for word in words):
            return False  # the value is the next word, and what is glued on are options
        if words[0] == "strings" and any(word.startswith("@") for word in words):
            return False  # a file of further arguments
        if not all(map(self.may_read, files)):
            return False
        follows = words[0] == "diff" or not FOLLOWING.isdisjoint(reading.options)
        return not follows or self._holds_no_way_out(files or ["."])

    def _holds_no_way_out(
        self, names: Sequence[str], splits: re.Pattern[str] | None = None
    ) -> bool:
        """Whether no link below these directories leads out of the workspace; bounded.

        No name there may hold what ``splits`` finds, either.
        """
        places = (replace(self.workspace, cwd=each) for each in self.directories)
        below = frozenset(
            place.resolve(name) for place in places for name in names if name not in {"-", UNKNOWN}
        )
        if (below, splits) not in self.looked_at:
            self.looked_at[below, splits] = self._is_closed(list(below), splits)
        return self.looked_at[below, splits]

    def _is_closed(self, waiting: list[Path], splits: re.Pattern[str] | None) -> bool:
        seen = 0
        while waiting:
            directory = waiting.pop()
            try:
                with os.scandir(directory) as entries:
                    for entry in entries:
                        seen += 1
                        path = Path(entry.path)
                        if seen > _MAX_SEEN or (splits and splits.search(entry.name)):
                            return False
                        if entry.is_symlink() and not self.workspace.contains(path):
                            return False
                        if entry.is_dir(follow_symlinks=False):
                            waiting.append(path)
            except NotADirectoryError:
                continue
            except OSError:
                return False
        return True


def _with_values(source: str, values: dict[str, str]) -> str | None:
    """``source`` with the variables of loops put in; ``None`` where another is expanded."""

    def put(found: re.Match[str]) -> str:
        return values.get(found[1] or found[2] or "", UNKNOWN)

    text = _VARIABLE.sub(put, source)
    return None if UNKNOWN in text or "'" in source or "\\" in source else text
