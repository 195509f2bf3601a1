"""Shell commands that are known to change nothing (LOOP-4, SEC-3, SEC-4).

Law: a command is read-only when it is a list or pipe of known programs whose every word is
known, each with known options, whose files stay in the workspace. An option that the table does
not hold, or a value of another kind, makes it uncertain; whatever is not certain is not read-only.
"""

from __future__ import annotations

import glob
import os
import re
import shutil
from collections.abc import Callable, Sequence
from dataclasses import field
from functools import lru_cache
from pathlib import Path

from agentcli.domain.tools import Workspace
from agentcli.domain.values import frozen, mutable
from agentcli.policy.bash_command import Redirection, SimpleCommand
from agentcli.policy.bash_syntax import parse_bash
from agentcli.policy.bash_wrappers import look_through

# the user is to see this text, though it is only printed
_QUOTED_DELETION = re.compile(r"\brm\s+-")
_MOST_OPERANDS = {"none": 0, "file": 1}
_NO_FILES = frozenset({"none", "text"})
# no option that a file could be named like would have them write or run anything
_HARMLESS_WITH_ANY_OPTION = frozenset(
    {
        "cat", "ls", "dir", "head", "wc", "stat", "du", "grep", "egrep", "fgrep", "cksum", "md5sum",
        "sha1sum", "sha224sum", "sha256sum", "sha384sum", "sha512sum", "b2sum",
    }
)  # fmt: skip
_GLOB = re.compile(r"[A-Za-z0-9_./@%+=:,*?-]*[*?][A-Za-z0-9_./@%+=:,*?-]*", re.ASCII)
_MAX_MATCHES = 500
_MAX_SEEN = 3_000
_NULL = "/dev/null"
# wrappers that change how long or how urgently a program runs, not what it does
_HARMLESS_WRAPPERS = frozenset({"timeout", "time", "nice", "stdbuf"})


def is_read_only(command: str, workspace: Workspace, search_path: str | None = None) -> bool:
    """Whether ``command`` certainly changes nothing and reads only the workspace.

    ``workspace.cwd`` is the shell's directory: it must be there and in the workspace as well,
    since commands without operands read it. ``search_path`` is the shell's ``PATH`` (by default
    our own): a program that it finds inside the workspace is the repository's (SEC-2).
    """
    parsed = parse_bash(command)
    if not (parsed.understood and parsed.plain and parsed.commands):
        return False
    cwd = workspace.cwd
    if not (cwd.is_dir() and workspace.contains(cwd)):
        return False
    reader = _Reader(workspace, search_path)
    return all(each.wrappers or reader.only_reads(each) for each in parsed.commands)


def _takes_matches(words: Sequence[str], source: str) -> bool:
    """Whether a glob may stand behind ``words``, whatever files there are by the time it runs."""
    if not words:
        return False
    if source[0] in "*?" and "--" not in words:
        return words[0] in _HARMLESS_WITH_ANY_OPTION
    spec = spec_of(words[0])
    return spec is None or spec.operands not in _MOST_OPERANDS


@frozen
class _Reader:
    """Where commands run: what they may read, and which programs are the system's."""

    workspace: Workspace
    search_path: str | None

    def only_reads(self, command: SimpleCommand) -> bool:
        if command.assignments or not all(map(self._harmless, command.redirections)):
            return False
        words: list[str] = []
        for word, source in zip(command.words, command.sources, strict=True):
            found = [word] if word is not None else self._matches(source)
            if found is None or (word is None and not _takes_matches(words, source)):
                return False
            words += found
        return bool(words) and self._call(words, in_shell=True)

    def may_read(self, path: str) -> bool:
        """Whether a file operand stays in the workspace.

        ``-`` is mostly standard input, and a file for ``<`` and for ``ls``: it may be a link, too.
        """
        if path == _NULL:
            return True
        try:
            return self.workspace.contains(self.workspace.resolve(path))
        except (RuntimeError, ValueError):  # a user who is not there; no name of a file
            return False

    def _harmless(self, redirection: Redirection) -> bool:
        target = redirection.target
        if redirection.operator == "<":
            return target is not None and self.may_read(target)
        if redirection.operator == ">&":
            return target in {"1", "2"}
        return redirection.operator in {">", ">>", "&>", "&>>"} and target == _NULL

    def _matches(self, source: str) -> list[str] | None:
        """What bash makes of a glob, judged now; ``None`` when that is not certain."""
        if not _GLOB.fullmatch(source):
            return None
        found = []
        for match in glob.iglob(source, root_dir=self.workspace.cwd):  # noqa: PTH207 - as bash does: relative words
            found.append(match)
            if len(found) > _MAX_MATCHES or match.startswith("-"):
                return None
        return sorted(found) or [source]

    def _call(self, words: Sequence[str], *, in_shell: bool) -> bool:
        name = words[0]
        if name in _HARMLESS_WRAPPERS:
            return self._wrapped(words, in_shell=in_shell)
        if name == "cd":
            return in_shell and self._stays(words)
        built_in = in_shell and name in BUILT_IN
        if not built_in and not all(map(self._is_foreign, (name, *HELPERS.get(name, ())))):
            return False
        if special := _SPECIAL.get(name):
            return special(words, self.may_read)
        spec = spec_of(name)
        return spec is not None and self._fits(words, spec)

    def _wrapped(self, words: Sequence[str], *, in_shell: bool) -> bool:
        name = words[0]
        if name == "time":
            rest = words[2:] if words[1:2] == ["-p"] else words[1:]
            return in_shell and bool(rest) and self._call(rest, in_shell=True)
        looked = look_through(tuple(words))
        if looked.why_not or len(looked.inner) != 1 or not self._is_foreign(name):
            return False
        inner = [word for word in looked.inner[0].words if word is not None]
        return bool(inner) and self._call(inner, in_shell=False)

    def _stays(self, words: Sequence[str]) -> bool:
        """Whether ``cd`` goes where the shell already is: nothing is to be remembered."""
        if len(words) != 2 or not words[1].startswith(("/", ".")):  # noqa: PLR2004 - cd and a directory
            return False
        cwd = self.workspace.cwd
        return os.path.realpath(self.workspace.resolve(words[1])) == os.path.realpath(cwd)

    def _is_foreign(self, program: str) -> bool:
        """Whether the program is found, and not in a directory that the repository could fill.

        A ``PATH`` that was changed must lead to the same program as our own: a command that was
        approved for one thing has not named what others run.
        """
        if "/" in program:
            return False
        found = self._found(program, self.search_path)
        if found is None or self.search_path is None:
            return found is not None
        return found == self._found(program, None)

    def _found(self, program: str, search_path: str | None) -> str | None:
        """Where bash finds it, all links followed; ``None``: not, or where it may not be."""
        path = os.environ.get("PATH", os.defpath) if search_path is None else search_path
        entries = path.split(os.pathsep)
        if not path or any(entry.startswith("~") for entry in entries):
            return None  # bash expands it
        # bash looks from where it is, and takes an empty entry for that place
        places = os.pathsep.join(str(self.workspace.cwd / entry) for entry in entries)
        found = shutil.which(program, path=places)
        if found is None or self.workspace.contains(Path(found).parent):
            return None
        return None if self.workspace.contains(Path(found)) else os.path.realpath(found)

    def _fits(self, words: Sequence[str], spec: Spec) -> bool:
        """Whether all options are in the table and all files in the workspace."""
        if spec.operands == "any":
            return not any(map(_QUOTED_DELETION.search, words))
        try:
            reading = Reading.of(words, spec)
        except UnknownOptionError:
            return False
        operands = reading.operands
        if len(operands) > _MOST_OPERANDS.get(spec.operands, len(operands)):
            return False
        if spec.operands == "pattern" and PATTERN_GIVEN.isdisjoint(reading.options):
            operands = operands[1:]
        files = reading.files + (operands if spec.operands not in _NO_FILES else [])
        if words[0] == "strings" and any(word.startswith("@") for word in words):
            return False  # a file of further arguments
        if not all(map(self.may_read, files)):
            return False
        follows = words[0] == "diff" or not FOLLOWING.isdisjoint(reading.options)
        return not follows or self._holds_no_way_out(files or ["."])

    def _holds_no_way_out(self, names: Sequence[str]) -> bool:
        """Whether no link below these directories leads out of the workspace; bounded."""
        waiting = [self.workspace.resolve(name) for name in names if name != "-"]
        seen = 0
        while waiting:
            directory = waiting.pop()
            try:
                with os.scandir(directory) as entries:
                    for entry in entries:
                        seen += 1
                        path = Path(entry.path)
                        if seen > _MAX_SEEN:
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


# --- words and options ----------------------------------------------------------------------

_NUMBER = re.compile(r"[+-]?[0-9]+[A-Za-z]{0,3}")


class UnknownOptionError(Exception):
    """An option that is not in the table, or a value that does not fit it."""


@mutable
class Reading:
    """The words told apart: options by name, files that options name, and operands.

    Long names are never completed. Where programs do not look for options behind operands (BSD,
    ``POSIXLY_CORRECT``), the value of one is a file like any other: it counts as both.
    """

    spec: Spec
    rest: list[str]
    options: list[str] = field(default_factory=list)
    files: list[str] = field(default_factory=list)
    operands: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, words: Sequence[str], spec: Spec) -> Reading:
        """The reading of a whole call; raises ``UnknownOptionError``."""
        reading = cls(spec, list(reversed(words[1:])))
        while reading.rest:
            word = reading.rest.pop()
            if word == "--":
                reading.operands += reversed(reading.rest)
                break
            if not word.startswith("-") or word == "-":
                reading.operands.append(word)
            elif not ("-#" in spec.marks and word[1:].isdecimal()):
                reading.option(word)
        return reading

    def option(self, word: str) -> None:
        """Take one option word, or a bundle of letters."""
        if word.startswith("--") or not self.spec.bundled:
            name, equals, value = word.partition("=")
            mark = self._mark(name)
            if equals and not mark:
                raise UnknownOptionError(word)
            if mark not in {"", "?"}:
                self._value(mark, value if equals else self._next(word))
            return
        for at, letter in enumerate(word[1:], start=2):
            mark = self._mark(f"-{letter}")
            if mark == "?":
                return
            if mark:
                self._value(mark, word[at:] or self._next(word))
                return

    def _mark(self, name: str) -> str:
        mark = self.spec.marks.get(name)
        if mark is None:
            raise UnknownOptionError(name)
        self.options.append(name)
        return mark

    def _next(self, word: str) -> str:
        if not self.rest:
            raise UnknownOptionError(word)
        value = self.rest.pop()
        if self.operands:
            self.files.append(value)
        return value

    def _value(self, mark: str, value: str) -> None:
        if mark == "#" and not _NUMBER.fullmatch(value):
            raise UnknownOptionError(value)
        if mark == "@":
            self.files.append(value)


# --- programs whose words have a language of their own ----------------------------------------
# Each function knows every word that it lets pass; the rest is not read-only.

# may the file at this path be read unasked?
Readable = Callable[[str], bool]

_FIND_ALONE = frozenset(
    {
        "-print", "-print0", "-ls", "-prune", "-not", "-a", "-and", "-o", "-or", "!", "(", ")",
        ",", "-empty", "-true", "-false", "-depth", "-d", "-xdev", "-mount", "-daystart",
        "-noleaf", "-executable", "-readable", "-writable", "-nouser", "-nogroup", "-quit",
        "-ignore_readdir_race", "-noignore_readdir_race", "-nowarn", "-warn",
    }
)  # fmt: skip
_FIND_WITH_TEXT = frozenset(
    {
        "-name", "-iname", "-path", "-ipath", "-wholename", "-iwholename", "-regex", "-iregex",
        "-regextype", "-type", "-xtype", "-size", "-mtime", "-atime", "-ctime", "-mmin", "-amin",
        "-cmin", "-maxdepth", "-mindepth", "-perm", "-user", "-group", "-uid", "-gid", "-links",
        "-inum", "-printf", "-lname", "-ilname", "-used", "-fstype", "-newermt", "-newerat",
        "-newerct",
    }
)  # fmt: skip
_FIND_WITH_FILE = frozenset({"-newer", "-anewer", "-cnewer", "-samefile"})
_FIND_FIRST = frozenset({"-H", "-P", "-O0", "-O1", "-O2", "-O3"})
_SED_ADDRESS = r"(?:[0-9]+|\$|/[\w .:=^$*@#,-]+/)"
_SED_COMMAND = rf"(?:{_SED_ADDRESS}(?:,(?:\+?[0-9]+|{_SED_ADDRESS}))?)?p"
_SED_SCRIPT = re.compile(rf"{_SED_COMMAND}(?:; *{_SED_COMMAND})*;?", re.ASCII)
_SED_FLAGS = frozenset({"-n", "--quiet", "--silent", "-E", "-r", "-nE", "-nr", "-En", "-rn"})
_JQ_FLAGS = frozenset(
    {
        "--raw-output", "--compact-output", "--slurp", "--null-input", "--exit-status",
        "--join-output", "--ascii-output", "--sort-keys", "--monochrome-output", "--color-output",
        "--raw-input", "--tab",
    }
)  # fmt: skip
_JQ_LETTERS = re.compile(r"-[rcsnejaSMCR]+")
_JQ_UNSAFE = re.compile(r"env|ENV|import|include|modulemeta|input_filename|\$__|getpath/0")
_DATE_FLAGS = re.compile(
    r"-[uR]+|-I(date|hours|minutes|seconds|ns)?|--utc|--universal|--rfc-email"
    r"|--iso-8601(=\w+)?|--rfc-3339=\w+|--date=.*|--help|--version",
    re.DOTALL,
)


def _find(words: Sequence[str], may_read: Readable) -> bool:
    """``find``: tests and printing; nothing that writes, runs, deletes or follows links."""
    at = 1
    while at < len(words) and words[at] in _FIND_FIRST:
        at += 1
    while at < len(words) and not words[at].startswith(("-", "(", ")", "!", ",")):
        if not may_read(words[at]):
            return False
        at += 1
    while at < len(words):
        word = words[at]
        at += 1
        if word in _FIND_ALONE:
            continue
        if word not in _FIND_WITH_TEXT and word not in _FIND_WITH_FILE:
            return False
        if at >= len(words) or (word in _FIND_WITH_FILE and not may_read(words[at])):
            return False
        at += 1
    return True


def _sed(words: Sequence[str], may_read: Readable) -> bool:
    """``sed -n`` with scripts that only print lines, such as ``1,5p``."""
    scripts: list[str] = []
    operands: list[str] = []
    quiet, at = False, 1
    while at < len(words):
        word = words[at]
        at += 1
        if word in _SED_FLAGS:
            quiet = quiet or word not in {"-E", "-r"}
        elif word in {"-e", "--expression", "-ne"}:
            quiet = quiet or word == "-ne"
            scripts += words[at : at + 1]
            at += 1
        elif word == "--":
            operands += words[at:]
            break
        elif word.startswith("-") and word != "-":
            return False
        else:
            operands.append(word)
    if not scripts:
        scripts, operands = operands[:1], operands[1:]
    if not quiet or not scripts:
        return False
    return all(map(_SED_SCRIPT.fullmatch, scripts)) and all(map(may_read, operands))


def _jq(words: Sequence[str], may_read: Readable) -> bool:
    """``jq`` with a filter that reads neither the environment nor other files."""
    operands: list[str] = []
    at = 1
    while at < len(words):
        word = words[at]
        at += 1
        if word in {"--arg", "--argjson"}:
            at += 2
        elif word == "--indent":
            at += 1
        elif word in _JQ_FLAGS or _JQ_LETTERS.fullmatch(word):
            continue
        elif word.startswith("-"):
            return False
        else:
            operands.append(word)
    if not operands or _JQ_UNSAFE.search(operands[0]):
        return False
    return all(map(may_read, operands[1:]))


def _date(words: Sequence[str], may_read: Readable) -> bool:
    """``date`` shows a time; a word without ``+`` would set the clock."""
    at = 1
    while at < len(words):
        word = words[at]
        at += 1
        if word in {"-d", "--date"}:
            at += 1
        elif word == "-r":
            if at >= len(words) or not may_read(words[at]):
                return False
            at += 1
        elif not word.startswith("+") and not _DATE_FLAGS.fullmatch(word):
            return False
    return True


def _test(words: Sequence[str], may_read: Readable) -> bool:
    """``test`` and ``[``: every word that may be a path is one that may be read."""
    rest = list(words[1:])
    if words[0] == "[" and (not rest or rest.pop() != "]"):
        return False
    if "-v" in rest or "-R" in rest:
        return False
    return all(may_read(word) for word in rest if not word.startswith("-"))


def _command(words: Sequence[str], _may_read: Readable) -> bool:
    """``command -v NAME`` looks a name up."""
    return len(words) > 1 and words[1] in {"-v", "-V"}


_SPECIAL: dict[str, Callable[[Sequence[str], Readable], bool]] = {
    "find": _find,
    "sed": _sed,
    "jq": _jq,
    "date": _date,
    "test": _test,
    "[": _test,
    "command": _command,
}


# --- the table: programs that only read, with every option that keeps them so -----------------
# One line a program. ``-ab`` are options without a value, ``-n#`` takes a number, ``-e=`` a text,
# ``-f@`` a file to read, ``-C?`` a value only when attached; the same marks after long names.
# ``-#`` is a number as an option (``-5``). Last, what the other words are: ``files``, one
# ``file``, ``text``, a ``pattern`` and then files, ``any`` (options too), or ``none``.
#
# Law: an option is here because it is known to be harmless. What writes (``sort -o``), runs a
# program (``rg --pre``), reads a list of other files (``--files0-from``), leaves the workspace by
# links (``find -L``) or never ends (``tail -f``) is not here, and neither are abbreviations.

_SUMS = "-btz --binary --text --tag --zero --untagged : files"
_GREP = (
    "-EFGPHILTUVZabchilnoqsvwxyz -r -R -e= -f@ -m# -A# -B# -C# -D= -#"
    " --dereference-recursive --extended-regexp"
    " --fixed-strings --basic-regexp --perl-regexp --regexp= --file@ --ignore-case"
    " --no-ignore-case --invert-match --word-regexp --line-regexp --count --color? --colour?"
    " --files-with-matches --files-without-match --max-count# --only-matching --quiet --silent"
    " --no-messages --byte-offset --with-filename --no-filename --label= --line-number"
    " --initial-tab --null --after-context# --before-context# --context# --text"
    " --binary-files= --devices= --exclude= --exclude-from@ --exclude-dir= --include="
    " --recursive --line-buffered --null-data --version --help : pattern"
)
SPECS: dict[str, str] = {
    "ls": "-1aAbBcCdfFgGhHiklmnNopqQrRsStuUvxX -I= -T# -w# --all --almost-all --author --escape"
    " --classify? --color? --directory --file-type --format= --full-time --group-directories-first"
    " --human-readable --si --inode --ignore= --hide= --indicator-style= --no-group"
    " --numeric-uid-gid --quote-name --quoting-style= --reverse --recursive --size --sort= --time="
    " --time-style= --width# --block-size= --help --version : files",
    "dir": "-1aAlhrtRS : files",
    "cat": "-AbeEnstTuv --show-all --number-nonblank --show-ends --number --squeeze-blank"
    " --show-tabs --show-nonprinting --help --version : files",
    "tac": "-br -s= --before --regex --separator= --help --version : files",
    "rev": "-V : files",
    "head": "-qvz -n# -c# -# --lines# --bytes# --quiet --silent --verbose --zero-terminated"
    " --help --version : files",
    "tail": "-qvz -n# -c# -# --lines# --bytes# --quiet --silent --verbose --zero-terminated"
    " --help --version : files",
    "wc": "-clLmw --bytes --chars --lines --max-line-length --words --total= --help --version"
    " : files",
    "stat": "-fLt -c= --dereference --file-system --format= --printf= --terse --help --version"
    " : files",
    "file": "-bhikLNnr0E -F= -P= --brief --mime --mime-type --mime-encoding --keep-going"
    " --no-dereference --dereference --extension --no-pad --raw --print0 --separator= --help"
    " --version : files",
    "du": "-0abchHkmsSx -B# -d# -t# --all --apparent-size --block-size= --bytes --total"
    " --human-readable --si --max-depth# --null --one-file-system --separate-dirs --summarize"
    " --threshold# --exclude= --time? --time-style= --inodes --help --version : files",
    "df": "-aBhHiklPT -t= -x= --all --human-readable --inodes --local --portability --print-type"
    " --total --type= --exclude-type= --output? --help --version : text",
    "sort": "-bcCdfgghiMmnrRsuVz -k= -t= -S= --ignore-leading-blanks --dictionary-order"
    " --ignore-case --general-numeric-sort --human-numeric-sort --ignore-nonprinting"
    " --month-sort --numeric-sort --random-sort --reverse --version-sort --sort= --key="
    " --field-separator= --check? --merge --stable --unique --zero-terminated --parallel#"
    " --buffer-size= --help --version : files",
    "uniq": "-cdDiuz -f# -s# -w# --count --repeated --all-repeated? --group? --ignore-case"
    " --unique --zero-terminated --skip-fields# --skip-chars# --check-chars# --help --version"
    " : file",
    "cut": "-nsz -b= -c= -d= -f= --bytes= --characters= --delimiter= --fields= --complement"
    " --only-delimited --output-delimiter= --zero-terminated --help --version : files",
    "tr": "-cCdst --complement --delete --squeeze-repeats --truncate-set1 --help --version : text",
    "nl": "-p -b= -d= -f= -h= -i# -l# -n= -s= -v# -w# --body-numbering= --header-numbering="
    " --footer-numbering= --number-format= --number-separator= --number-width#"
    " --starting-line-number# --line-increment# --help --version : files",
    "numfmt": "-z -d= --from= --to= --field= --format= --suffix= --padding# --grouping --header?"
    " --round= --invalid= --delimiter= --from-unit= --to-unit= --help --version : text",
    "od": "-abcdfiloOsvxX -A= -j= -N= -t= -S# -w? --address-radix= --skip-bytes= --read-bytes="
    " --format= --strings? --output-duplicates --width? --help --version : files",
    "xxd": "-a -b -e -E -i -p -ps -u -C -d -c# -g# -l# -o# -s# : file",
    "hexdump": "-bcCdovx -n# -s# -e= : files",
    "hd": "-bcCdovx -n# -s# : files",
    "strings": "-afw -n# -t= -e= --all --bytes# --radix= --encoding= --print-file-name --help"
    " --version : files",
    "base64": "-diD -w# --decode --ignore-garbage --wrap# --help --version : file",
    "base32": "-di -w# --decode --ignore-garbage --wrap# --help --version : file",
    "cksum": "-z -a= -l# --algorithm= --length# --tag --untagged --zero --base64 --raw --help"
    " --version : files",
    "sum": "-rs --sysv --help --version : files",
    "diff": "-abBcdeEHiNnpqrstuwyZT -C# -U# -W# -F= -I= -x= -X@ -S= --brief"
    " --report-identical-files --normal --context? --unified? --ed --rcs --side-by-side --width#"
    " --left-column --suppress-common-lines --show-c-function --show-function-line= --label="
    " --expand-tabs --initial-tab --tabsize# --suppress-blank-empty --recursive"
    " --new-file --unidirectional-new-file --ignore-file-name-case --exclude="
    " --exclude-from@ --starting-file= --ignore-case --ignore-tab-expansion"
    " --ignore-trailing-space --ignore-space-change --ignore-all-space --ignore-blank-lines"
    " --ignore-matching-lines= --text --strip-trailing-cr --minimal --horizon-lines#"
    " --speed-large-files --color? --from-file@ --to-file@ --help --version : files",
    "cmp": "-bls -i= -n# --print-bytes --ignore-initial= --verbose --bytes# --quiet --silent"
    " --help --version : files",
    "comm": "-123iz --check-order --nocheck-order --output-delimiter= --total --zero-terminated"
    " --help --version : files",
    "join": "-iz -a# -e= -1# -2# -j# -o= -t= -v# --ignore-case --header --check-order"
    " --nocheck-order --zero-terminated --help --version : files",
    "paste": "-sz -d= --delimiters= --serial --zero-terminated --help --version : files",
    "fold": "-bs -w# --bytes --spaces --width# --help --version : files",
    "fmt": "-cstu -p= -w# -g# --width# --crown-margin --split-only --uniform-spacing : files",
    "expand": "-i -t= --initial --tabs= --help --version : files",
    "unexpand": "-a -t= --all --first-only --tabs= --help --version : files",
    "column": "-ntxeLJ -c# -s= -o= -N= -R= -H= -O= -T= --table --separator= --output-separator="
    " --output-width# --fillrows --json --table-columns= --table-right= : files",
    "grep": _GREP,
    "egrep": _GREP,
    "fgrep": _GREP,
    "rg": "-iSswxvnNlcoqFPUuaHIpVh0. -e= -f@ -g= -t= -T= -A# -B# -C# -m# -j# -M# -E= -r= -d#"
    " --regexp= --file@ --glob= --iglob= --glob-case-insensitive --type= --type-not= --type-add="
    " --type-clear= --type-list --after-context# --before-context# --context# --max-count#"
    " --threads# --max-columns# --max-columns-preview --max-depth# --maxdepth# --max-filesize="
    " --encoding= --replace= --ignore-case --smart-case --case-sensitive --word-regexp"
    " --line-regexp --invert-match --line-number --no-line-number --column --no-column"
    " --files-with-matches --files-without-match --files --count --count-matches --only-matching"
    " --quiet --fixed-strings --no-fixed-strings --pcre2 --no-pcre2 --auto-hybrid-regex --engine="
    " --multiline --multiline-dotall --no-multiline --unrestricted --text --with-filename"
    " --no-filename --pretty --heading --no-heading --color= --colors= --null --null-data"
    " --hidden --no-hidden --no-ignore --no-ignore-dot --no-ignore-exclude --no-ignore-files"
    " --no-ignore-global --no-ignore-parent --no-ignore-vcs --no-ignore-messages --ignore"
    " --ignore-file@ --no-require-git --no-config --json --stats --sort= --sortr= --trim"
    " --passthru --passthrough --vimgrep --byte-offset --crlf --binary --no-messages --mmap"
    " --no-mmap --no-follow --one-file-system --path-separator= --context-separator="
    " --field-match-separator= --field-context-separator= --include-zero --line-buffered"
    " --block-buffered --regex-size-limit= --dfa-size-limit= --no-unicode --version --help"
    " : pattern",
    "fd": "-HIuasigFp01q -t= -e= -d# -E= -S= -c= -j# --hidden --no-ignore --no-ignore-vcs"
    " --unrestricted --case-sensitive --ignore-case --glob --regex --fixed-strings"
    " --absolute-path --full-path --print0 --max-depth# --min-depth# --exact-depth# --exclude="
    " --type= --extension= --size= --changed-within= --changed-before= --owner= --color="
    " --max-results# --quiet --show-errors --threads# --prune --one-file-system --strip-cwd-prefix"
    " --version --help : pattern",
    "tree": "-adfixshDFQNupgAnqrtcUvJX -L# -P= -I= --prune --noreport --dirsfirst --filelimit#"
    " --gitignore --si --du --inodes --device --timefmt= --charset= --matchdirs --ignore-case"
    " --sort= --filesfirst --metafirst --version --help : files",
    "echo": " : any",
    "printf": " : text",
    "pwd": "-LP : none",
    "true": " : any",
    "false": " : any",
    ":": " : any",
    "basename": "-az -s= --multiple --suffix= --zero --help --version : text",
    "dirname": "-z --zero --help --version : text",
    "realpath": "-eLmPqsz --canonicalize-existing --canonicalize-missing --logical --physical"
    " --quiet --strip --no-symlinks --zero --relative-to@ --relative-base@ --help --version"
    " : files",
    "readlink": "-efmnqsvz --canonicalize --canonicalize-existing --canonicalize-missing"
    " --no-newline --quiet --silent --verbose --zero --help --version : files",
    "whoami": "--help --version : none",
    "id": "-agGnruzZ --context --group --groups --name --real --user --zero --help --version"
    " : text",
    "groups": "--help --version : text",
    "uname": "-asnrvmpio --all --kernel-name --nodename --kernel-release --kernel-version"
    " --machine --processor --hardware-platform --operating-system --help --version : none",
    "arch": "--help --version : none",
    "hostname": "-sI --short --all-ip-addresses --version --help : none",
    "nproc": "--all --ignore# --help --version : none",
    "uptime": "-psV --pretty --since --help --version : none",
    "free": "-bkmghltwV --bytes --kibi --mebi --gibi --kilo --mega --giga --human --lohi --total"
    " --wide --si --help --version : none",
    "which": "-as --all : text",
    "type": "-afptP : text",
    "seq": "-w -f= -s= --equal-width --format= --separator= -# --help --version : text",
    "expr": " : any",
    "git": "--version : none",
    **dict.fromkeys(
        ("md5sum", "sha1sum", "sha224sum", "sha256sum", "sha384sum", "sha512sum"), _SUMS
    ),
    "b2sum": f"-l# --length# {_SUMS}",
}
BUILT_IN = frozenset(
    {"pwd", "true", "false", "echo", ":", "test", "[", "printf", "type", "command", "cd"}
)
# programs that find another one on PATH
HELPERS = {"egrep": ("grep",), "fgrep": ("grep",)}
# options are single words: "-ps" is not "-p -s"
UNBUNDLED = frozenset({"xxd"})
# with these options links are followed: only where none leads out of the workspace
FOLLOWING = frozenset({"-R", "--dereference-recursive"})
# with these options the first word is a file as well
PATTERN_GIVEN = frozenset({"-e", "-f", "--regexp", "--file", "--files", "--type-list"})

_OPTION = re.compile(r"(?P<name>--?[^\s=#@?]+)(?P<mark>[=#@?]?)")


@frozen
class Spec:
    """A line of the table: the mark of each option, and what the other words are."""

    marks: dict[str, str]
    operands: str
    bundled: bool


@lru_cache(maxsize=128)
def spec_of(program: str) -> Spec | None:
    """The table's line for ``program``; ``None``: it is not known to be read-only."""
    line = SPECS.get(program)
    if line is None:
        return None
    options, _, operands = line.rpartition(":")
    marks: dict[str, str] = {}
    for each in options.split():
        if each == "-#":
            marks[each] = ""
            continue
        found = _OPTION.fullmatch(each)
        if found is None:  # pragma: no cover - a test reads every line
            raise ValueError(f"{program}: {each}")
        name, mark = found["name"], found["mark"]
        if name.startswith("--") or mark or program in UNBUNDLED:
            marks[name] = mark
        else:
            marks.update((f"-{letter}", "") for letter in name[1:])
    return Spec(marks, operands.strip(), program not in UNBUNDLED)
