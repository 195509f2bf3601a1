"""The table of programs that only read, with every option that keeps them so (SEC-4).

Law: an option is here because it is known to be harmless; what is not here is unknown.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import field
from functools import lru_cache

from agentcli.domain.values import frozen, mutable

UNKNOWN = "\0"
"""A word that only the shell will know."""
HARMLESS_WITH_ANY_OPTION = frozenset(
    {
        "cat", "ls", "dir", "head", "wc", "stat", "du", "grep", "egrep", "fgrep", "cksum", "md5sum",
        "sha1sum", "sha224sum", "sha256sum", "sha384sum", "sha512sum", "b2sum", "echo", "basename",
        "dirname", "realpath", "readlink", "tail", "tac", "nl", "cut",
    }
)  # fmt: skip
"""No option that a file could be named like would have them write or run anything."""
_NUMBER = re.compile(r"[+-]?[0-9]+[A-Za-z]{0,3}")


# ripgrep shows what is hidden where a pattern names it: "*.env" finds ".env"
OF_SOURCES = re.compile(
    r"![\w./*-]+|(?:\*\*/)?\*\.(?:[cm]?[jt]sx?|pyi?|go|rs|java|kt|c|cc|cpp|h|hpp|rb|php|cs|swift|md|rst"
    r"|html|s?css|sql|vue|svelte)",
    re.ASCII,
)


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
                self._value(mark, value if equals else self._next(name))
            return
        for at, letter in enumerate(word[1:], start=2):
            mark = self._mark(f"-{letter}")
            if mark == "?":
                return
            if mark:
                if word[at:] and self.spec.goes_on and not word[at:].isdecimal():
                    raise UnknownOptionError(word)
                self._value(mark, word[at:] or self._next(f"-{letter}"))
                return

    def _mark(self, name: str) -> str:
        mark = self.spec.marks.get(name)
        if mark is None:
            raise UnknownOptionError(name)
        self.options.append(name)
        return mark

    def _next(self, name: str) -> str:
        if not self.rest:
            raise UnknownOptionError(name)
        value = self.rest.pop()
        is_option = value.startswith("-") and value != "-" and not _NUMBER.fullmatch(value)
        if is_option and name in self.spec.doubtful:
            raise UnknownOptionError(value)
        if self.operands:
            self.files.append(value)
        return value

    def _value(self, mark: str, value: str) -> None:
        if mark == "#" and not _NUMBER.fullmatch(value):
            raise UnknownOptionError(value)
        if mark == "!" and not OF_SOURCES.fullmatch(value):
            raise UnknownOptionError(value)
        if mark == "@":
            self.files.append(value)


# --- the table: programs that only read, with every option that keeps them so -----------------
# One line a program. ``-ab`` are options without a value, ``-n#`` takes a number, ``-e=`` a text,
# ``-f@`` a file to read, ``-C?`` a value only when attached, ``-g!`` a pattern of names that finds
# nothing hidden; the same marks after long names.
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
    "zcat": "-fq --force --quiet --help --version : files",
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
    " --regexp= --file@ --glob= --iglob= --glob-case-insensitive --type= --type-not="
    " --type-list --after-context# --before-context# --context# --max-count#"
    " --threads# --max-columns# --max-columns-preview --max-depth# --maxdepth# --max-filesize="
    " --encoding= --replace= --ignore-case --smart-case --case-sensitive --word-regexp"
    " --line-regexp --invert-match --line-number --no-line-number --column --no-column"
    " --files-with-matches --files-without-match --files --count --count-matches --only-matching"
    " --quiet --fixed-strings --no-fixed-strings --pcre2 --no-pcre2 --auto-hybrid-regex --engine="
    " --multiline --multiline-dotall --no-multiline --unrestricted --text --with-filename"
    " --no-filename --pretty --heading --no-heading --color= --colors= --null --null-data"
    " --hidden --no-hidden --no-ignore --no-ignore-dot --no-ignore-exclude --no-ignore-files"
    " --no-ignore-global --no-ignore-parent --no-ignore-vcs --no-ignore-messages --ignore"
    " --no-require-git --no-config --json --stats --sort= --sortr= --trim"
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
# what every system says of itself
OPEN_FILES = frozenset(
    {
        "/etc/os-release", "/usr/lib/os-release", "/etc/lsb-release", "/etc/debian_version",
        "/etc/redhat-release", "/etc/alpine-release", "/etc/issue", "/etc/timezone",
        "/proc/cpuinfo", "/proc/meminfo", "/proc/version", "/proc/loadavg", "/proc/uptime",
    }
)  # fmt: skip
# in these a word that looks like an option may be one even where a value is due: ripgrep 13 takes
# "--engine --pre=x" for both; known to take whatever follows are
TAKE_OPTIONS_FOR_VALUES = {"rg": frozenset({"-e", "--regexp"}), "fd": frozenset[str]()}
# options are single words: "-ps" is not "-p -s"
UNBUNDLED = frozenset({"xxd"})
# "-Io PATTERN FILE": letters behind one with a value are options, too, and "-o" writes
GOES_ON = frozenset({"tree"})
# with these options the first word is a file as well
PATTERN_GIVEN = frozenset({"-e", "-f", "--regexp", "--file", "--files", "--type-list"})

_OPTION = re.compile(r"(?P<name>--?[^\s=#@!?]+)(?P<mark>[=#@!?]?)")


@frozen
class Spec:
    """A line of the table: the mark of each option, and what the other words are.

    Behind an option that is ``doubtful`` a word may be another one, and not its value; where a
    bundle ``goes_on``, what follows a letter with a value is no value.
    """

    marks: dict[str, str]
    operands: str
    bundled: bool
    doubtful: frozenset[str] = frozenset()
    goes_on: bool = False


@lru_cache(maxsize=128)
def spec_of(program: str) -> Spec | None:
    """The table's line for ``program``; ``None``: it is not known to be read-only."""
    line = SPECS.get(program)
    return None if line is None else spec_from(program, line)


def spec_from(program: str, line: str) -> Spec:
    """What a ``line`` of the form above says of ``program``."""
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
    certain = TAKE_OPTIONS_FOR_VALUES.get(program, marks.keys())
    doubtful = frozenset(marks.keys() - certain)
    is_bundled, goes_on = program not in UNBUNDLED, program in GOES_ON
    return Spec(marks, operands.strip(), is_bundled, doubtful, goes_on)


MOST_OPERANDS = {"none": 0, "file": 1}


def reading_of(words: Sequence[str], spec: Spec) -> Reading | None:
    """The words of a call that writes nothing, told apart; ``None``: that is not known of it."""
    try:
        reading = Reading.of(words, spec)
    except UnknownOptionError:
        return None
    operands = reading.operands
    if len(operands) > MOST_OPERANDS.get(spec.operands, len(operands)):
        return None
    # where options stand in front only, what follows the one file is another, to be written
    is_certain = spec.operands != "file" or operands[-1:] in ([], [words[-1]])
    return reading if is_certain else None
