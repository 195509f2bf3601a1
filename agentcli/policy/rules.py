"""Permission rules: ``tool`` or ``tool(pattern)`` (SEC-3).

What a pattern is matched with depends on the tool: the command for ``bash``, the resolved
paths for file tools, the host for tools that fetch. Law: an allow rule covers the whole call
or nothing of it, a deny rule covers any part. ``bash(git diff *)`` does not allow
``git diff; rm -rf x``; ``bash(rm *)`` denies it, and ``sudo rm -rf x`` as well.
"""

from __future__ import annotations

import fnmatch
import os
import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import takewhile
from pathlib import Path
from urllib.parse import urlsplit

from agentcli.domain.tools import PREFIX, real_path
from agentcli.domain.values import frozen
from agentcli.policy.bash_command import ParsedCommand, SimpleCommand
from agentcli.policy.bash_syntax import (
    MAX_CHARS,
    matches_pattern,
    names_command_of,
    parse_bash,
    parts_of,
)
from agentcli.policy.decision import EDIT_TOOLS, CallPlace, Rule
from agentcli.policy.places import has_own_repository, moves, starts_of
from agentcli.policy.strict_reads import is_strict_read

_NOWHERE = frozenset({"/dev/null", "/dev/stdout", "/dev/stderr"})

# they run what comes after them as it is, within bounds of their own
_TRANSPARENT = frozenset({"timeout", "nice", "ionice", "nohup", "stdbuf"})
_GLOB_CHARACTERS = re.compile(r"[*?]")
_PARTS_WORDS = re.compile(r"[\s'\"]")
_BRACES = re.compile(r"(?:^|[\s;&|(`])\{(\S*+)")  # "{r,}m": what bash makes a program of
# what "PROGRAM WORD *" does not say: options that run or obey what they name, write or send there
_MAKE = (
    r"[^-].*=.*|-[^-]*[fCEI].*|--(?!(?:keep-going|silent|quiet|jobs|dry-run|always-make|trace|verbose"
    r"|no-print-directory|ignore-errors|output-sync|debug)(?:=|\Z)).+"
)
_GITS = (
    "--output", "--open-files-in-pager", "--exec", "--extcmd", "--upload-pack", "--receive-pack",
    "--strategy",
)  # fmt: skip
_CUT_SHORT = "|".join({name[:end] for name in _GITS for end in range(len("--o"), len(name) + 1)})
# git-config(1): what "-c" has git run, read further settings from, or speak to
_GIT_SETTING = (
    r"(?i:alias\.[^=]*=!|[a-z][^=\s]*\.[^=]*(?:pager|editor|command|cmd|fsmonitor|askpass|textconv"
    r"|external|process|clean|smudge|driver|program|helper|hook|vcs|proxy|update|allow|insteadof|server"
    r"|dir|(?<!quote)path)=).*"
)
_PYTEST = (  # a report below the directory is no more than it says
    r"--(?:base|rootd|conf|past|ov).*|--(?:junit|log-file)(?![\w-]*=(?![/~])(?!.*\.\.)).*|-[qvsx]*[co].*"
)
_PIP = r"--(?:py|log\b|ind|ext|fin|prox).*|-[qv]*i.*"
_BEYOND = {
    # git-diff(1), git-fetch(1); a merge strategy that is no plain word names a file
    "git": rf"(?!--strategy=[a-z]+\Z)(?:{_CUT_SHORT})(?:=.*)?|--(?:exec-path=|config-env).*"
    rf"|{_GIT_SETTING}",
    "git bisect": "run",
    "git clone": r"-[^-]*[uc].*|--(?:te|co).*",
    "git difftool": r"-[^-]*x.*",
    "git filter-branch": r"--(?:[a-z-]+-filter|setup).*",
    "git grep": r"-[^-]*O.*",
    "git init": r"--te.*",
    "git pull": r"-[^-]*s.*",
    "git rebase": r"-[^-]*[sx].*",
    "git submodule": "foreach",
    "make": _MAKE,
    "gmake": _MAKE,
    "ninja": r"-[nv]*[fCt].*",
    "rake": r"[^-].*=.*|-[efrIEpNRC].*|--(?:e|r|lib|proj).*",
    "cargo": r"--(?:config|manifest-path)(?:=.*)?|-[qvr]*[ZC].*",
    "go": r"--?(?:exec|toolexec|vettool|C|overlay|modfile|ldflags|gccgoflags|compiler)(?:=.*)?",
    "npm": r"-+(?:scr|she|nod|prefi|userc|globalc|git(?:=|\Z)|reg|@|prox|https?-p).*|-C.*",
    "pnpm": r"-+(?:script-shell|shell-emulator|node-options|prefix|dir|config\.|reg|@).*|-C.*",
    "yarn": r"--(?:cwd|use-yarnrc|script-shell|registry).*",
    "pytest": _PYTEST,
    "py.test": _PYTEST,
    "mypy": r"@.*|--(?:python-e|conf|inst|.*report|jun|cache-d|shad|cust).*",
    "pip": _PIP,
    "pip3": _PIP,
    "uv": r"--(?:python|directory|project|config-file|(?:\w+-)?index|find-links).*|-[qvn]*[pif].*",
    "poetry": r"--(?:directory|project).*|-[qvn]*[CP].*",
    "composer": r"--w.*|-[qvn]*d.*",
    "bundle": r"--gem.*",
    "dotnet": r"@.*|[-/](?:s|l|dl|logger|p|property)(?:[:=].*)?|--(?:source|settings|configfile).*"
    r"|--(?:logger|property|test-adapter-path).*",
    "gradle": r"-[IbcpgD].*|--?(?:init|build-f|settings|project-d|include-b|gradle-u|sys).*",
    "kubectl": r"--(?:kubeconfig|server).*|-[ARfhpw]*s.*",
    "gulp": r"-[^-]*f.*|--(?:gulpfile|cwd|require|preload).*",
    "grunt": r"-[^-]*b.*|--(?:gruntfile|base|require|tasks).*",
    "turbo": r"--cwd.*",
}
# where they write what they build or report: free in the directory, by its name, and nowhere else
_AWAY = r"(?:[/~]|.*\.\.).*"
_WRITES_TO = {
    "go": r"--?(?:o|outputdir|[a-z]+profile|trace|pkgdir)",
    "cargo": r"--(?:target-dir|out-dir|artifact-dir)",
    "dotnet": r"-o|--(?:output|results-directory|artifacts-path)",
    "vite": r"--outDir",
    "playwright": r"--output",
    "gradle": r"--project-cache-dir",
}
# of these "PROGRAM *" says no more than that: it is what a yes to one call of them offers
_SAID_WHOLE = frozenset({"git", "mypy", "py.test", "pytest"})
_RUNS_NAMED = re.compile(
    r"(?:(?:python|pypy)[0-9.]* -m|(?:uv|poetry|hatch|pdm|rye) run|p?npm exec) [\w.-]+(?: |\Z)"
)
_PASSES_ON = frozenset({"npm", "pnpm", "yarn", "cargo"})  # "-- …" is for another
_PARTS = re.compile(r"/\*\*/|\*\*|\*|\?|[^*?/]+|/")


@frozen
class Subject:
    """What a rule looks at: the tool and what the call is about.

    ``paths``, ``root``, ``more_roots`` and ``cwd`` are resolved, ``text`` is a command, ``host``
    comes from ``host_of``. ``edits``: it is a tool that edits the files it names. ``whole_tool``:
    see ``ToolDefinition.whole_name``.
    """

    tool: str
    paths: tuple[Path, ...] = ()
    text: str | None = None
    host: str | None = None
    root: Path = Path("/")
    more_roots: tuple[Path, ...] = ()
    cwd: Path = Path("/")
    edits: bool = False
    whole_tool: str = ""

    def is_of(self, rule: Rule) -> bool:
        """Whether ``rule`` is about this tool."""
        if self.edits and rule.tool == EDIT_TOOLS:
            return True
        names = (self.tool, self.whole_tool) if self.whole_tool else (self.tool,)
        if any(fnmatch.fnmatchcase(name, rule.tool) for name in names):
            return True  # "mcp__server" stands for all tools of that server
        is_server = rule.tool.startswith(PREFIX) and "__" not in rule.tool[len(PREFIX) :]
        return is_server and any(name.startswith(f"{rule.tool}__") for name in names)

    @property
    def parsed(self) -> ParsedCommand:
        """The commands that ``text`` would run."""
        return parse_bash(self.text or "")


def host_of(url: str) -> str:
    """The host that ``url`` names, lower case; empty where programs could read it differently."""
    if re.search(r"[\\\s\x00-\x1f]", url):
        return ""
    try:
        return (urlsplit(url).hostname or "").rstrip(".")
    except ValueError:
        return ""


def covering(
    rules: Sequence[Rule],
    subject: Subject,
    is_free: Callable[[SimpleCommand], bool] = lambda _: False,
) -> tuple[tuple[Rule, ...], str]:
    """The rules that cover the whole of the call between them; the part that none covers.

    No rules and a part: it is not covered. ``is_free`` says which parts of a command need none.
    """
    of_tool = [rule for rule in rules if subject.is_of(rule)]
    for rule in of_tool:
        if rule.pattern is None or _covers_whole(rule, subject):
            return (rule,), ""
    patterns = [rule for rule in of_tool if rule.pattern is not None]
    if subject.text is None or subject.host is not None:
        return (), ""
    parsed = subject.parsed
    if not parsed.understood:
        return (), parsed.why_not
    found: list[Rule] = []
    for command in parsed.commands:
        by = next((rule for rule in patterns if _covers_part(rule, command, subject)), None)
        if by is not None:
            found.append(by)
        elif "git" in command.wrappers:
            continue  # the rule for the call of git has named that option
        elif not is_free(command) and not is_transparent(command, parsed):
            return (), command.text
    return tuple(dict.fromkeys(found)), ""


def free_part(
    subject: Subject, place: CallPlace, *, contained: bool = False
) -> Callable[[SimpleCommand], bool]:
    """Which of the commands of a longer one change nothing, wherever the others may lead.

    ``contained``: which would be free by themselves, in the read-only sandbox.
    """
    commands = subject.parsed.commands if subject.text is not None else ()
    starts = starts_of(commands, place.workspace.cwd)
    places = starts.directories if moves(commands) else starts.directories[:1]

    def only_reads(command: SimpleCommand, cwd: Path) -> bool:
        there = replace(place.workspace, cwd=cwd)
        if contained:
            from agentcli.policy.read_only import is_read_only

            return is_read_only(command.text, there)
        is_wrapped = bool(command.wrappers)
        return is_strict_read(command.text, there, place.trusted_path, is_wrapped=is_wrapped)

    def is_free(command: SimpleCommand) -> bool:
        if not command.words or command.assignments or not writes_nowhere(command):
            return False
        if any(
            each.operator == "<" and each.target != "/dev/null" for each in command.redirections
        ):
            return False
        if command.words[0] == "cd" and len(command.words) == len(("cd", "directory")):
            return starts.is_sure and all(
                place.workspace.contains(each) and not has_own_repository(each, place.workspace)
                for each in starts.directories
            )
        return starts.is_sure and all(only_reads(command, each) for each in places)

    return is_free


def _covers_whole(rule: Rule, subject: Subject) -> bool:
    if subject.host is not None:
        return _matches_host(subject.host, rule)
    if subject.text is not None:
        is_literal = rule.exact or not has_pattern(rule.pattern or "")
        return subject.text == rule.pattern and is_literal and _is_there(rule, subject)
    roots = (subject.root, *subject.more_roots)
    return bool(subject.paths) and all(
        _matches_path(path, rule, subject.root, as_named_in=roots) for path in subject.paths
    )


def _covers_part(rule: Rule, command: SimpleCommand, subject: Subject) -> bool:
    pattern = rule.pattern or ""
    if rule.exact or not has_pattern(pattern):
        same = covers_literally(pattern, command, subject.text or "", subject.parsed)
        return same and _is_there(rule, subject)
    return covers(pattern, command) and _is_program_of(pattern, command, subject)


def _is_program_of(pattern: str, command: SimpleCommand, subject: Subject) -> bool:
    """Whether a program that ``pattern`` names by its place is the one of the project's root."""
    named, program = pattern.partition(" ")[0], command.words[0] or ""
    if "/" not in named:
        return True
    is_there = named[0] in "/~" or (
        subject.cwd == subject.root and not moves(subject.parsed.commands)
    )
    return is_there and (".." not in program.split("/") or ".." in named.split("/"))


def _is_there(rule: Rule, subject: Subject) -> bool:
    """Whether a rule for one very command means it here: ``./x`` is another program elsewhere."""
    if rule.directory is not None:
        return subject.cwd == rule.directory
    program = (rule.pattern or "").partition(" ")[0]
    return "/" not in program or program[0] in "/~" or subject.cwd == subject.root


def touches(rule: Rule, subject: Subject) -> bool:
    """Whether ``rule`` covers any part of the call, as a deny rule must."""
    if not subject.is_of(rule):
        return False
    if rule.pattern is None:
        return True
    if subject.host is not None:
        return not subject.host or _matches_host(subject.host, rule)
    if subject.text is not None:
        text, parsed = subject.text, subject.parsed
        return any(touches_command(each, text, parsed) for each in _readings(rule.pattern))
    named = rule.pattern.rstrip("/")
    if not _GLOB_CHARACTERS.search(named.rpartition("/")[2]):
        rule = replace(rule, pattern=f"{named}/**")  # a directory, too: all that is in it
    return any(_matches_path(path, rule, subject.root) for path in subject.paths)


def might_touch(rule: Rule, subject: Subject) -> bool:
    """Whether ``rule`` may cover a part of the call that only the shell will know."""
    if rule.pattern is None or subject.text is None or subject.host is not None:
        return False
    text, parsed = subject.text, subject.parsed
    return subject.is_of(rule) and any(
        may_touch(each, text, parsed) for each in _readings(rule.pattern)
    )


def _readings(pattern: str) -> tuple[str, ...]:
    """``git push:*`` is ``git push *`` to other programs, and ours to a script's name as well."""
    return (pattern, f"{pattern[:-2]} *") if pattern.endswith(":*") else (pattern,)


def first(rules: Sequence[Rule], subject: Subject) -> Rule | None:
    """The first rule that covers any part of the call."""
    return next((rule for rule in rules if touches(rule, subject)), None)


# --- commands ------------------------------------------------------------------------------
# A pattern allows a simple command only when all that the shell would do with it is known and it
# is nothing but this program with these words: no assignment, no expansion, no redirection but to
# /dev/null or between its own streams. It denies whatever might be that command.


def has_pattern(pattern: str) -> bool:
    """Whether ``pattern`` is one; else it is this very text."""
    return "*" in pattern


def covers(pattern: str, command: SimpleCommand) -> bool:
    """Whether a pattern with ``*`` allows ``command``, whatever comes before and after it."""
    if not is_bare(command) or _goes_beyond(command, pattern):
        return False
    return any(matches_pattern(text, pattern) for text in (_joined(command), command.text))


def _goes_beyond(command: SimpleCommand, pattern: str) -> bool:
    """Whether it has an option that makes more of it than ``pattern`` says, and does not name."""
    program = command.program
    first = next(iter(_behind_gits_options([word or "" for word in command.words[1:]])), "")
    known = (_BEYOND.get(program), _BEYOND.get(f"{program} {first}"))
    beyond = "|".join(filter(None, known))
    _, *says = pattern.split()
    if _RUNS_NAMED.match(pattern):  # it is that program's words that count
        inner = replace(command, words=command.words[2:])
        return _goes_beyond(inner, " ".join(says[1:]))
    is_any = program not in _SAID_WHOLE and says[:1] in ([], ["*"])
    if is_any or (program == "uv" and says[:1] == ["run"]):
        return False
    named = [word.partition("=")[0] for word in says if word.strip("*")]
    end = "--" if program in _PASSES_ON else None
    option = _WRITES_TO.get(program)
    if option is not None and not any(re.fullmatch(option, each) for each in named):
        text = "\n".join(takewhile(lambda word: word != end, filter(None, command.words[1:])))
        if re.search(rf"^(?:{option})[=\n]{_AWAY}", text, re.MULTILINE):
            return True
    return bool(beyond) and any(
        re.fullmatch(beyond, word, re.DOTALL)
        and not any(fnmatch.fnmatchcase(word.partition("=")[0], each) for each in named)
        for word in takewhile(lambda word: word != end, filter(None, command.words[1:]))
    )


def covers_literally(text: str, command: SimpleCommand, whole: str, parsed: ParsedCommand) -> bool:
    """Whether a rule for the very command ``text`` allows ``command`` as a part of ``whole``.

    Only where it is the same act: in the same directory, fed by nothing.
    """
    if command.text != text or not is_bare(command) or command.wrappers or "<" in whole:
        return False
    is_first = command.at == parsed.commands[0].at and whole.lstrip().startswith(text)
    is_unfed = is_first or (parsed.plain and not command.upstream)
    return is_unfed and not moves(parsed.commands)


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
    if len(text) > MAX_CHARS:
        return True
    return any(matches_pattern(part, pattern) for part in parts_of(text))


def may_touch(pattern: str, text: str, parsed: ParsedCommand) -> bool:
    """Whether a part that cannot be told might be covered."""
    if not parsed.understood and (_has_choice(text) or names_command_of(pattern, text)):
        return True
    return any(_may_be(pattern, command) for command in parsed.commands)


def _has_choice(text: str) -> bool:
    return any("," in word[1] or ".." in word[1] for word in _BRACES.finditer(text))


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
        word if word and not _PARTS_WORDS.search(word) else shlex.quote(word or "")
        for word in command.words
    )


def _ways_to_say(command: SimpleCommand) -> Iterator[str]:
    """The words with single spaces, also by the program's bare name; the unknown is ``$?``."""
    words = ["$?" if word is None else word for word in command.words]
    if words:
        yield " ".join(words)
        name = words[0].rpartition("/")[2]
        yield " ".join([name, *words[1:]])
        if name == "git":
            yield " ".join([name, *_behind_gits_options(words[1:])])


def _behind_gits_options(words: Sequence[str]) -> Sequence[str]:
    """What git is to do: ``push`` of ``git -C sub --no-pager push``; git(1)."""
    at = 0
    while at < len(words) and words[at].startswith("-"):
        at += 1 + (words[at] in _GIT_TAKES)
    return words[at:]


_GIT_TAKES = frozenset(
    {
        "-C", "-c", "--git-dir", "--work-tree", "--namespace", "--super-prefix", "--config-env",
        "--attr-source",
    }
)  # fmt: skip


# --- hosts ---------------------------------------------------------------------------------


def _matches_host(host: str, rule: Rule) -> bool:
    """Whole labels: ``python.org`` covers ``docs.python.org`` and not ``mypython.org``."""
    pattern = (rule.pattern or "").lower().rstrip(".")
    if not host or rule.exact:
        return bool(host) and host == pattern
    if "*" in pattern:
        return fnmatch.fnmatchcase(host, pattern.replace("[", "[[]"))
    return host == pattern or host.endswith(f".{pattern}")


# --- paths ---------------------------------------------------------------------------------


def _matches_path(path: Path, rule: Rule, root: Path, *, as_named_in: Sequence[Path] = ()) -> bool:
    pattern = rule.pattern or ""
    if rule.exact:
        return str(path) == pattern or (
            pattern.endswith("/**") and path.is_relative_to(pattern.removesuffix("/**"))
        )
    absolute = str(root / _expanded(pattern))
    candidates = (absolute, _with_real_start(absolute, as_named_in))
    return any(glob_covers(glob, str(path)) for glob in candidates)


def _expanded(pattern: str) -> Path:
    try:
        return Path(pattern).expanduser()
    except RuntimeError:  # no such user
        return Path(pattern)


def _with_real_start(pattern: str, roots: Sequence[Path] = ()) -> str:
    """``pattern`` with the links and ``..`` of its part before any ``*`` or ``?`` followed.

    No links of what lies in ``roots``: where those lead the repository says, or a command (SEC-5).
    """
    found = _GLOB_CHARACTERS.search(pattern)
    end = len(pattern) if found is None else pattern.rfind("/", 0, found.start()) + 1
    start, rest = pattern[:end], pattern[end:]
    real = _as_named_in(roots, Path(os.path.normpath(start))) or real_path(Path(start))
    return f"{str(real).rstrip('/')}/{rest}" if rest else str(real)


def _as_named_in(roots: Sequence[Path], place: Path) -> Path | None:
    """``place`` with the links followed that lead to one of ``roots``; ``None``: it is in none."""
    for above in (*reversed(place.parents), place) if roots else ():
        real = real_path(above)
        if any(real.is_relative_to(root) for root in roots):
            return real / place.relative_to(above)
    return None


def glob_covers(pattern: str, path: str) -> bool:
    """``**`` crosses directories, ``*`` and ``?`` do not; a final ``/**`` covers the start too.

    All places that a part of the pattern may end at are followed side by side: whatever the
    pattern, the work is at most its length times that of ``path`` (SEC-13).
    """
    base = pattern.removesuffix("/**")
    ends = {0}
    for part in _PARTS.findall(base):
        ends = set(_ends_of(part, path, ends))
        if not ends:
            return False
    return len(path) in ends or (base != pattern and any(path[end] == "/" for end in ends))


def _ends_of(part: str, path: str, starts: set[int]) -> Iterable[int]:
    size = len(path)
    if part == "**":
        return range(min(starts), size + 1)
    if part == "*":
        found: list[int] = []
        for start in sorted(starts):
            if not found or start > found[-1]:
                slash = path.find("/", start)
                found += range(start, (size if slash < 0 else slash) + 1)
        return found
    if part == "?":
        return [start + 1 for start in starts if start < size and path[start] != "/"]
    if part == "/**/":
        begun = [start + 1 for start in starts if path.startswith("/", start)]
        later = range(min(begun), size) if begun else ()
        return [*begun, *(place + 1 for place in later if path[place] == "/")]
    return [start + len(part) for start in starts if path.startswith(part, start)]
