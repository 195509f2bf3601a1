"""Commands that are free where no sandbox makes up for a mistake: few, each word known (SEC-4).

This is a list and not a judgement: programs of the system with letters for options, names of files
as they are written, joined by ``|``, ``;``, ``&&`` and ``||``. What is not on it is asked about.
"""

from __future__ import annotations

import fnmatch
import os
import re
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import islice
from pathlib import Path

from agentcli.domain.files import read_start
from agentcli.domain.tools import Workspace, real_path
from agentcli.domain.values import frozen
from agentcli.domain.worktrees import (
    filled_by_others,
    git_directories_for,
    leads_git_elsewhere,
    lies_in,
    may_be_chosen_there,
)
from agentcli.policy.bash_command import SimpleCommand
from agentcli.policy.bash_syntax import parse_bash, why_unreadable
from agentcli.policy.bash_tree import is_plain_variable
from agentcli.policy.places import credentials_below
from agentcli.policy.read_only_table import (
    OF_SOURCES,
    OPEN_FILES,
    PATTERN_GIVEN,
    Reading,
    Spec,
    reading_of,
    spec_from,
)

# in the form of the table of reads (policy/read_only_table.py)
PROGRAMS = {
    **dict.fromkeys(("tac", "md5sum", "sha1sum", "sha256sum", "realpath"), " : files"),
    **dict.fromkeys(("type", "which"), "-a : files"),
    **dict.fromkeys(("basename", "dirname", "numfmt", "seq", "sleep"), " : text"),
    **dict.fromkeys(
        ("whoami", "hostname", "uptime", "pwd", "nproc", "arch", "groups", "tty"), " : none"
    ),
    **dict.fromkeys(("echo", "true", "false", ":", "expr"), " : any"),
    "base64": " : file",
    "cat": "-Abnt : files",
    "cmp": "-bls : files",
    "column": "-t -s= : files",
    "comm": "-123 : files",
    "cut": "-s -b= -c= -d= -f= : files",
    "df": "-hk : text",
    "diff": "-bBiquwy : files",
    "du": "-achks -d# --max-depth# : files",
    "file": "-b : files",
    "free": "-bghkm : none",
    "fold": "-s -w# : files",
    "grep": "-cEFHhilLnoPqrsvwx -A# -B# -C# -m# -e= --include= --exclude= --exclude-dir= --color?"
    " : pattern",
    "head": "-n# -c# -# : files",
    "hexdump": "-bCcdox -n# -s# : files",
    "id": "-gGnu : none",
    "ls": "-1aAdFhlrRSt --color? : files",
    "nl": "-b= : files",
    "od": "-bcdox -A= -j# -N# -t= : files",
    "paste": "-s -d= : files",
    "readlink": "-f : files",
    "rev": " : files",
    "rg": "-cFHilNnoSsvwx -A# -B# -C# -m# -g! -t= --glob! --type= --files --stats : pattern",
    "sort": "-bdfghinruV -k= -t= : files",
    "stat": "-c= : files",
    "tail": "-n# -c# -# : files",
    "tr": "-cds : text",
    "tree": "-adf -L# -I= --noreport : files",
    "uname": "-amnoprsv : none",
    "uniq": "-cdiu : file",
    "wc": "-clLmw : files",
    "xxd": "-c# -l# -s# : file",
}
VERSIONED = frozenset(
    {
        "bash", "cc", "clang", "cmake", "g++", "gcc", "gdb", "git", "jq", "ld", "lua", "make",
        "node", "perl", "psql", "python", "python3", "ruby", "sqlite3", "tar", "wget", "zsh",
    }
)  # fmt: skip
"""Programs that tell their version without a look at the directory that they are started in.

And before they load what a variable names, as ``OPENSSL_CONF`` has ``curl`` do.
"""
_BUILT_IN = frozenset(
    {":", "[", "command", "echo", "false", "printf", "pwd", "test", "true", "type"}
)
# each command in these counts by itself, and whatever the shell makes of a word is looked at there
_KINDS = frozenset(
    {
        "if_statement", "elif_clause", "else_clause", "if", "then", "elif", "else", "fi",
        "negated_command", "simple_expansion", "special_variable_name", "$",
    }
)  # fmt: skip
_TOLD = re.compile(
    r'"[\w =:./,+-]*\$\?[ =:./,+-]*"|[\w=:./,+-]*\$\?[=:./,+-]*', re.ASCII
)  # of echo
_FILTER = re.compile(r"--(?:include|exclude|exclude-dir)=[\w.*+-]+", re.ASCII)  # of grep
_WHATEVER_ITS_FILES_ARE_CALLED = frozenset({"cat", "du", "head", "ls", "stat"})
_SYSTEM = ("/usr/", "/bin/", "/sbin/", "/opt/homebrew/", "/home/linuxbrew/")
_NULL = "/dev/null"
_NESTED = re.compile(r"\s*\((\s*cd [^()]*)\)\s*")
_LOOP = re.compile(
    r"\s*for +([a-z]) +in +([\w./*+-]+(?: +[\w./*+-]+)*) *; *do +([^(){}`'\\\n]+); *done\s*",
    re.ASCII,
)
_CD = re.compile(r"\s*cd +([\w./+-]+)(?: *(&&|;) *([^;\n]*))?", re.ASCII)
_GLOB = re.compile(r"(?!-)(?:[\w.+-]+/)*(?!\.)[\w.+-]*\*[\w.+-]*", re.ASCII)
_PLAIN = re.compile(r"[\w.+/@][\w.+/@,-]*")
_IGNORE_FILES = (".gitignore", ".ignore", ".rgignore", ".git/info/exclude")  # of ripgrep
_LARGEST_IGNORE = 256 * 1024
_MAX_MATCHES = 500
_MAX_TURNS = 20
_LONGEST = 4_096
# the user is to see this text, though it is only printed
_DELETION = re.compile(r"\brm\s+-")
_FIND_WITH_VALUE = frozenset(
    {
        "-name", "-iname", "-path", "-ipath", "-type", "-maxdepth", "-mindepth", "-size", "-mtime",
        "-mmin",
    }
)  # fmt: skip
_FIND_ALONE = frozenset({"-print", "-ls", "-not", "!", "-a", "-o", "-empty", "-prune", "(", ")"})
_LINE = r"(?:[0-9]+|\$|/[\w =:(){}#^$-]+/)"
_LINES = re.compile(rf"(?:{_LINE}(?:,{_LINE})?p(?:; ?[0-9]+q)?|\$=)", re.ASCII)
# no sets of characters: where a slash in one ends the text is told in two ways
_CHANGES = re.compile(
    rf"s/(?:[^/\\\[\n]|\\[^\n])*/(?:[^/\\\n]|\\[^\n])*/[gI]*|{_LINE}(?:,{_LINE})?d", re.ASCII
)
_NUMBER = "NR ?[=<>]= ?[0-9]+"
_ROWS = rf"(?:{_NUMBER}(?: ?&& ?{_NUMBER})?|/[\w =:#^$-]+/)"
_FIELD = r"(?:\$(?:[0-9]+|NF)|NF|NR|FILENAME|\"[\w =:,.-]*\")"
_PRINT = rf"\{{ ?print(?: ?{_FIELD}(?:,? ?{_FIELD})*)? ?\}}"
_SUM = r"\{ ?([a-z]) ?\+= ?\$[0-9]+ ?\} ?END ?\{ ?print \1 ?\}"
_FIELDS = re.compile(rf"(?:{_ROWS})? ?(?:{_PRINT})?|{_SUM}", re.ASCII)
_KEY = r"(?:\.|(?:\.\w+|\[[0-9]*\])+|\.\[[0-9]*\](?:\.\w+|\[[0-9]*\])*)"
_KEYS = re.compile(rf"{_KEY}(?: ?\| ?(?:length|keys(?:\[\])?))?", re.ASCII)
_TESTS = re.compile(r"-[defrsx]")
_TEXT = re.compile(r"(?!-)(?:[^%\\]|%s|%%|\\n)+")  # of printf
# nothing that looks for an object: git may fetch one, with the repository's programs
_REVISIONS = frozenset({"HEAD", "--abbrev-ref", "--show-toplevel", "--show-prefix", "--git-dir"})
_SHORT_VERSION = (["node", "-v"], ["python", "-V"], ["python3", "-V"])


def is_strict_read(
    text: str, workspace: Workspace, search_path: str | None, *, is_wrapped: bool = False
) -> bool:
    """Whether ``text`` is on the list, run in ``workspace.cwd``.

    ``search_path`` is the shell's ``PATH`` (by default our own): a program that it finds inside
    the workspace is the repository's (SEC-2). ``is_wrapped``: another program runs it, which knows
    nothing of what the shell has built in.
    """
    if len(text) > _LONGEST or why_unreadable(text) or not stands_in(workspace):
        return False
    if nested := _NESTED.fullmatch(text):
        text = nested[1]
    if moved := _CD.fullmatch(text):  # "cd sub && ls": there, or not at all
        text = moved[3] or "true"
        there = below(moved[1], workspace)
        if there is None or "||" in text:
            return False
        if moved[2] == ";" and not is_strict_read(text, workspace, search_path):
            return False  # where it does not lead there all the same
        workspace = there
    texts = [text]
    if (loop := _LOOP.fullmatch(text)) and is_plain_variable(loop[1]):
        values = dict.fromkeys(loop[2].split())
        texts = [_turn_of(loop[3], loop[1], each) for each in islice(values, _MAX_TURNS)]
        is_long = len(values) > _MAX_TURNS or sum(map(len, texts)) > _LONGEST
        if is_long or any('"' in each for each in texts):
            return False
    strict = _Strict(workspace, search_path, is_wrapped)
    return all(map(strict.reads_all, texts))


def _turn_of(body: str, variable: str, value: str) -> str:
    """The body of a loop with one of its words, in which a pattern stands for each of its files."""
    name = rf"\${variable}"
    where = r"((?:\A|[;&|]) *(?:(?:then|else|if|elif|!) +)*)"
    echo = rf'{where}echo "[\w =:./-]*{name}[ =:./-]*"(?= *(?:[;|]|\Z))'
    body = re.sub(echo, r"\1echo x", body)  # whatever it is, it is only printed
    return re.sub(rf'(?<= )(?:"{name}"|{name})(?=[ ;]|\Z)', lambda _: value, body)


def stands_in(workspace: Workspace) -> bool:
    """Whether the shell's directory is there and in the workspace: some read it unnamed."""
    cwd = workspace.cwd
    return os.path.isdir(cwd) and workspace.contains(cwd)  # noqa: PTH112 - never raises


def below(target: str, workspace: Workspace) -> Workspace | None:
    """The workspace seen from where ``cd target`` leads; ``None``: elsewhere, or nowhere."""
    if not target or target.startswith("-"):
        return None
    if not target.startswith(("/", ".")) and "CDPATH" in os.environ:
        return None
    place = workspace.resolve(target)
    # the shell takes ".." off the name, the kernel off what it leads to
    named = os.path.normpath(workspace.cwd / target)
    is_clear = os.path.realpath(named) == os.path.realpath(place)
    is_there = os.access(place, os.X_OK) and place.is_dir()
    if not (is_clear and is_there and workspace.contains(place)):
        return None
    return replace(workspace, cwd=Path(named))


@lru_cache(maxsize=64)
def _spec(program: str) -> Spec:
    return spec_from(program, PROGRAMS[program])


@frozen
class _Strict:
    """Where commands run: what they may read, and which programs are the system's."""

    workspace: Workspace
    search_path: str | None
    is_wrapped: bool

    def reads_all(self, text: str) -> bool:
        """Whether each of its commands does."""
        parsed = parse_bash(text)
        is_known = parsed.understood and parsed.commands and parsed.kinds <= _KINDS
        return bool(is_known) and all(map(self.reads, parsed.commands))

    def reads(self, command: SimpleCommand) -> bool:
        if command.assignments or command.wrappers or not command.words:
            return False
        for each in command.redirections:
            is_null = each.operator in {">", ">>", "&>", "&>>"} and each.target == _NULL
            is_joined = each.operator == ">&" and each.target in {"1", "2"}
            is_read = each.operator == "<" and each.target and self.may_read(each.target)
            if not (is_null or is_joined or is_read):
                return False
        words = self._words(command)
        is_fed = command.upstream and all(each.operator != "<" for each in command.redirections)
        if words and words[0] == "rg" and is_fed:
            words.append("-")  # that it searches, where no file is named
        return words is not None and self._call(words)

    def _words(self, command: SimpleCommand) -> list[str] | None:
        """All of them, as the program sees them now; ``None`` where that is not certain."""
        words: list[str] = []
        for word, source in zip(command.words, command.sources, strict=True):
            if word is not None:
                words.append(word)
            elif words and "--" not in words and _is_told(words[0], source):
                words.append(source.replace("$", ""))
            elif words and (matches := self._matches(words[0], source)) is not None:
                words += matches
            else:
                return None
        return words

    def _matches(self, program: str, source: str) -> list[str] | None:
        """The names for ``src/*.py``: one star, and plain names, none of them linked away.

        By the time that it runs there may be other files: none may be an option of importance.
        """
        directory, slash, pattern = source.rpartition("/")
        is_certain = slash or source[0] != "*" or program in _WHATEVER_ITS_FILES_ARE_CALLED
        takes_many = program in PROGRAMS and _spec(program).operands == "files"
        if not (_GLOB.fullmatch(source) and is_certain and takes_many):
            return None
        place = self.workspace.resolve(directory or ".")
        try:
            with os.scandir(place) as entries:
                names = sorted(entry.name for entry in islice(entries, _MAX_MATCHES))
        except OSError:
            return None
        found = [f"{directory}{slash}{name}" for name in fnmatch.filter(names, pattern)]
        found = [name for name in found if not name.rpartition("/")[2].startswith(".")]
        is_known = len(names) < _MAX_MATCHES and all(map(self.may_read, found))
        return (found or [source]) if is_known and all(map(_PLAIN.fullmatch, found)) else None

    def may_read(self, path: str) -> bool:
        """Whether a file operand stays in the workspace. ``-`` may be the name of a link, too."""
        if path == _NULL or path in OPEN_FILES:
            return True
        try:
            return self.workspace.contains(self.workspace.resolve(path))
        except (RuntimeError, ValueError):  # a user who is not there; no name of a file
            return False

    def _call(self, words: Sequence[str]) -> bool:
        name, rest = words[0], words[1:]
        is_program = self.is_wrapped or name not in _BUILT_IN
        if is_program and not self._is_the_systems(name):
            return False
        if rest == ["--version"] or [*words] in _SHORT_VERSION:
            return name in VERSIONED
        if name in PROGRAMS:
            return self._fits(words, _spec(name))
        return name in _SPECIAL and _SPECIAL[name](self, rest)

    def _fits(self, words: Sequence[str], spec: Spec) -> bool:
        """Whether all options are on the list and all files in the workspace."""
        if spec.operands == "any":
            return not any(map(_DELETION.search, words))
        reading = reading_of(words, spec)
        if reading is None:
            return False
        files = [] if spec.operands in {"none", "text"} else reading.operands
        if spec.operands == "pattern" and PATTERN_GIVEN.isdisjoint(reading.options):
            files = files[1:]
        searched = [*(files or ["."]), *reading.files]  # the value of an option may be a file, too
        is_inside = all(map(self.may_read, [*files, *reading.files]))
        return is_inside and self._meets_nothing(words[0], reading, searched)

    def _meets_nothing(self, name: str, reading: Reading, files: Sequence[str]) -> bool:
        """Whether one that finds files by itself finds no credentials (SEC-3)."""
        if name == "diff":
            return not any(self.workspace.resolve(each).is_dir() for each in files)
        places = [real_path(self.workspace.resolve(each)) for each in files]
        if name == "rg":  # below, what is hidden it leaves out
            root = str(self.workspace.real_root)
            names = (os.path.relpath(each, root).split("/") for each in places)
            if any(part[0] == "." for each in names for part in each if part.strip(".")):
                return False
            if "--files" in reading.options:  # it tells their names
                return True
            has_globs = not {"-g", "--glob"}.isdisjoint(reading.options)
            told = lru_cache(maxsize=None)(_let_in_by)

            def is_shown(path: Path, place: Path) -> bool:
                is_hidden = any(part[0] == "." for part in path.relative_to(place).parts)
                is_named = has_globs and OF_SOURCES.fullmatch(f"*{path.suffix}")
                is_seen = not is_hidden or bool(is_named) or _is_let_in(path, told)
                return is_seen and real_path(path) == path  # no link

            return not any(
                is_shown(path, each) for each in places for path in credentials_below(each)
            )
        is_deep = name == "grep" and "-r" in reading.options
        return not is_deep or not any(next(credentials_below(each), None) for each in places)

    def find(self, rest: Sequence[str]) -> bool:
        """Tests by name, and printing."""
        waiting = list(reversed(rest))
        while waiting and not waiting[-1].startswith(("-", "(", "!")):
            if not self.may_read(waiting.pop()):
                return False
        while waiting:
            word = waiting.pop()
            if word in _FIND_WITH_VALUE and waiting:
                waiting.pop()
            elif word not in _FIND_ALONE:
                return False
        return True

    def sed(self, rest: Sequence[str]) -> bool:
        """``sed -n 1,5p FILE``, also from ``/a line/``; ``sed s/a/b/ FILE``."""
        is_print = rest[:1] == ["-n"] and len(rest) > 1 and _LINES.fullmatch(rest[1])
        if is_print:
            return self._are_files(rest[2:])
        rest = rest[1:] if rest[:1] == ["-E"] else rest
        return bool(rest and _CHANGES.fullmatch(rest[0])) and self._are_files(rest[1:])

    def awk(self, rest: Sequence[str]) -> bool:
        """``awk 'NR==1 {print $1}' FILE``, also with ``-F``."""
        rest = rest[1:] if rest and re.fullmatch(r"-F[\w,:;|]", rest[0]) else rest
        is_print = bool(rest) and _FIELDS.fullmatch(rest[0])
        return bool(is_print) and self._are_files(rest[1:]) and not any("=" in w for w in rest[1:])

    def jq(self, rest: Sequence[str]) -> bool:
        """``jq '.a.b | keys' FILE``."""
        rest = rest[1:] if rest and re.fullmatch(r"-[rcS]+", rest[0]) else rest
        is_path = bool(rest) and _KEYS.fullmatch(rest[0])
        return bool(is_path) and self._are_files(rest[1:])

    def bracket(self, rest: Sequence[str]) -> bool:
        """``[ -f FILE ]``."""
        return rest[-1:] == ["]"] and self.test(rest[:-1])

    def command(self, rest: Sequence[str]) -> bool:
        """``command -v NAME`` looks a name up."""
        return rest[:1] == ["-v"] and all(re.fullmatch(r"\w[\w.+-]*", name) for name in rest[1:])

    def test(self, rest: Sequence[str]) -> bool:
        """``test -f FILE``."""
        is_test = len(rest) == len(("-f", "file")) and _TESTS.fullmatch(rest[0])
        return bool(is_test) and self.may_read(rest[1])

    def printf(self, rest: Sequence[str]) -> bool:
        """Texts, and where words go among them: ``%n`` would assign."""
        is_text = bool(rest) and _TEXT.fullmatch(rest[0])
        return bool(is_text) and not any(map(_DELETION.search, rest))

    def ps(self, rest: Sequence[str]) -> bool:
        """Processes, and never their environment."""
        return list(rest) in (["aux"], ["-ef"], ["ax"], [])

    def date(self, rest: Sequence[str]) -> bool:
        """A word without ``+`` would set the clock."""
        return all(re.fullmatch(r"\+.*|-u|-R|-I(?:date|hours|minutes|seconds)?", w) for w in rest)

    def git(self, rest: Sequence[str]) -> bool:
        """Where the repository is, and what is checked out there: looks at names, runs nothing."""
        is_known = rest[:1] == ["rev-parse"] and _REVISIONS.issuperset(rest[1:])
        return is_known and not any(
            map(leads_git_elsewhere, git_directories_for(self.workspace.cwd))
        )

    def _are_files(self, words: Sequence[str]) -> bool:
        return all(not word.startswith("-") and self.may_read(word) for word in words)

    def _is_the_systems(self, program: str) -> bool:
        """Whether bash finds it, and not in a directory that the repository could fill.

        A ``PATH`` that was changed must lead to the same program as our own: a command that was
        approved for one thing has not named what others run.
        """
        own = self._found(program, os.environ.get("PATH", os.defpath))
        return own is not None and (
            self.search_path is None or own == self._found(program, self.search_path)
        )

    def _found(self, program: str, path: str) -> str | None:
        """Where bash finds it, links followed; empty: nowhere; ``None``: where it may not be."""
        entries = path.split(os.pathsep)
        if "/" in program or not path or any(entry.startswith("~") for entry in entries):
            return None  # bash expands it
        # bash looks from where it is, and takes an empty entry for that place
        place = os.pathsep.join(str(self.workspace.cwd / entry) for entry in entries)
        found = shutil.which(program, path=place)
        own = (self.workspace.root, *self.workspace.extra)
        barred = [each for root in own for each in filled_by_others(root)]
        if found is None:  # then nothing runs, unless the repository puts it there
            is_barred = any(lies_in(Path(each), barred) for each in place.split(os.pathsep))
            return None if is_barred else ""
        if lies_in(Path(found), barred) or _is_stand_in(found):
            return None
        return os.path.realpath(found)


def _is_told(program: str, source: str) -> bool:
    """Whether a word that the shell expands is none of a file, whatever comes of it."""
    known = {"echo": _TOLD, "grep": _FILTER}.get(program)
    return known is not None and known.fullmatch(source) is not None


def _is_let_in(path: Path, told: Callable[[Path], Sequence[str]]) -> bool:
    """Whether ripgrep looks at ``path``, hidden as it is, as a file like ``.gitignore`` says."""
    hidden = [part.casefold() for part in path.parts if part[0] == "."]
    return any(
        fnmatch.fnmatchcase(part, pattern)
        for directory in path.parents
        for pattern in told(directory)
        for part in hidden
    )


def _let_in_by(directory: Path) -> list[str]:
    """The last name of each pattern there with ``!``, ``*`` where that is not certain."""
    patterns = list[str]()
    for name in _IGNORE_FILES:
        data = read_start(directory / name, _LARGEST_IGNORE)
        lines = map(str.strip, data.decode("utf-8-sig", "replace").splitlines())
        found = [line[1:].rstrip("/").rpartition("/")[2] for line in lines if line[:1] == "!"]
        is_whole = len(data) < _LARGEST_IGNORE
        known = (each.casefold() if re.fullmatch(r"[^\[\\{]+", each) else "*" for each in found)
        patterns += known if is_whole else ["*"]
    return patterns


def _is_stand_in(found: str) -> bool:
    """Whether a program that is not the system's may run another one that the directory names.

    So do version managers: with a script, or one program that many names lead to.
    """
    if found.startswith(_SYSTEM):
        return False
    is_other = not Path(os.path.realpath(found)).name.startswith(Path(found).name)
    return is_other or may_be_chosen_there(found) or read_start(found, 2) == b"#!"


_SPECIAL: dict[str, Callable[[_Strict, Sequence[str]], bool]] = {
    "[": _Strict.bracket, "awk": _Strict.awk, "command": _Strict.command,
    "date": _Strict.date, "find": _Strict.find,
    "git": _Strict.git, "jq": _Strict.jq, "printf": _Strict.printf, "ps": _Strict.ps,
    "sed": _Strict.sed, "test": _Strict.test,
}  # fmt: skip
