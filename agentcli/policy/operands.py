"""What the words of a command say that it would change or destroy (SEC-3, SEC-14).

Law: a program writes what it names, unless a table says what it writes, or that it only reads.
"""

from __future__ import annotations

import fnmatch
import os
import re
from collections.abc import Callable, Sequence
from itertools import pairwise

from agentcli.domain.values import frozen
from agentcli.policy.bash_wrappers import look_through
from agentcli.policy.places import Words, closed, without_sets
from agentcli.policy.read_only_programs import SED_PATTERNS, only_reads
from agentcli.policy.read_only_table import HARMLESS_WITH_ANY_OPTION, UNKNOWN

_MOST_RUN = 100
_FOUND = re.compile(r"[*?]|\[.+\]")  # "/bin/r?": whichever program has such a name


@frozen
class Operands:
    """``written``: files that would be changed; ``destroyed``: whole trees that would be lost.

    ``is_recursive``: what is destroyed may be a directory with all that is in it. ``perhaps``:
    what a call names that is not known to only read it. ``kept``: what it writes, and a sandbox
    would keep as it is. ``made``: what it makes when it has changed other things before.
    """

    written: Words = ()
    destroyed: Words = ()
    is_recursive: bool = False
    perhaps: Words = ()
    kept: Words = ()
    made: Words = ()


# they write nothing whatever their options are
_NEVER_WRITE = HARMLESS_WITH_ANY_OPTION | {
    "cd", "printf", "pushd", "popd", "which", "type", "source", ".", "export", "declare", "local",
    "readonly", "typeset", "unset", "set", "alias", "kill", "wait", "read", "less", "more", "bat",
    "batcat", "fold", "strings", "od", "hexdump", "cmp", "comm", "join", "shellcheck", "open",
    "xdg-open",
}  # fmt: skip
_TAKES_SCRIPT = re.compile(r"(?:bash|[dz]?sh|ksh|python[\d.]*|node|deno|bun|ruby|perl|php|lua)")
# options that name what is left alone, or what variables are read from
_LEAVE = re.compile(r"-[xXIEei]|--?[\w-]*(?:exclude|ignore|skip|env-?file|dotenv)[\w-]*")
_GLUED = re.compile(r"-[A-Za-z0-9]+?([./~].*)", re.DOTALL)  # "-sD.git/config"


def perhaps_of(words: Words) -> Words:
    """Whatever may be a file that the call writes."""
    program = (words[0] or "").rpartition("/")[2]
    known = tuple(word or UNKNOWN for word in words)
    if program in _NEVER_WRITE or only_reads((program, *known[1:])):
        return ()
    looked = look_through(words)
    inner = () if looked.why_not else looked.inner
    rest = words[1 : inner[0].start] if inner and inner[0].script is None else words[1:]
    if _TAKES_SCRIPT.fullmatch(program):
        rest = _without_script(rest)
    found: list[str | None] = []
    left = ""
    is_option = True
    for word in rest:
        text = word or ""
        is_option = is_option and text != "--"
        option, _, value = text.partition("=")
        if text.startswith("-"):
            is_left = is_option and _LEAVE.fullmatch(option)
            left = option if is_left and not value else ""
            glued = _GLUED.match(text)
            found += [] if is_left else [value or text[2:], glued[1] if glued else ""]
        elif left:
            left = left if left == "-x" else ""  # of zip: whatever comes
        else:
            found += [word, value.lstrip("@")]
    return tuple(each for each in found if each != "" and "://" not in (each or ""))


def _without_script(words: Words) -> Words:
    """The words for a script: neither it nor code is written."""
    at = next((at for at, word in enumerate(words) if (word or "-")[0] != "-"), len(words))
    if words[at - 1 : at + 1] == ("-m", "json.tool"):
        at += 1
    return words[at + 1 :]


def plain_words(words: Words, takes_value: str = "") -> Words:
    """The operands; ``takes_value`` lists the options whose value is the next word."""
    values = takes_value.split()
    found: list[str | None] = []
    is_value = False
    for at, word in enumerate(words):
        if is_value:
            is_value = False
        elif word == "--":
            return (*found, *words[at + 1 :])
        elif word is None or not word.startswith("-") or word == "-":
            found.append(word)
        else:
            is_value = word in values
    return tuple(found)


def has(words: Words, short: str, *long: str) -> bool:
    """Whether an option is given, alone or in a cluster such as ``-rf``."""
    for word in words:
        if word == "--":
            return False
        if word is None or not word.startswith("-"):
            continue
        name = word.partition("=")[0]
        if len(name) > len("--x") and any(option.startswith(name) for option in long):
            return True  # options may be shortened
        if not word.startswith("--") and not set(short).isdisjoint(word[1:]):
            return True
    return False


def possible_values(words: Words, *options: str) -> Words:
    """What may be values of ``options``, as ``values_of`` of ``places`` has them.

    Also behind other letters (``-so x``), and of a long name that is cut short (``--out=x``).
    """
    found: list[str | None] = []
    letters = "".join(option[1:] for option in options if len(option) == len("-o"))
    for at, word in enumerate(words):
        if word is None or not word.startswith("-"):
            continue
        name, equals, value = word.partition("=")
        values = [value] if equals else []
        is_meant = word in options
        if not word.startswith("--"):
            # one that takes a value has all that follows it, where it comes first
            values = [word.partition(each)[2] for each in letters if each in word]
            is_meant = is_meant or "" in values
        elif len(name) > len("--o"):
            is_meant = any(option.startswith(name) for option in options)
            values = values if is_meant else []
        found += filter(None, values)
        found += words[at + 1 : at + 2] if is_meant and not equals else ()
    return tuple(dict.fromkeys(found))


def outputs(words: Words) -> Words:
    """What most programs write: the value of ``-o``."""
    return possible_values(words, "-o", "--output")


# --- programs --------------------------------------------------------------------------------


def _unknown_program(words: Words) -> Operands:
    """``$cmd -rf x``: as ``rm`` would take it."""
    return _rm(words) if has(words, "rR", "--recursive") else Operands(perhaps=words)


def _rm(words: Words) -> Operands:
    files = plain_words(words)
    recursive = has(words, "rR", "--recursive")
    return Operands(files, files if recursive or has(words, "f", "--force") else (), recursive)


def _shred(words: Words) -> Operands:
    files = plain_words(words, "-n -s --iterations --size --random-source")
    return Operands(files, files)


def above_of(pattern: str) -> str:
    """``pattern`` with ``..`` for what finds that in some shells (dash, bash before 5.2)."""
    if "/." not in f"/{pattern}" and "/[" not in f"/{pattern}":
        return pattern
    parts = pattern.split("/")
    return "/".join(
        ".." if each[:1] in {".", "["} and fnmatch.fnmatchcase("..", closed(each)) else each
        for each in parts
    )


_GIVES_THE_OWNER = re.compile(r"u\+[rwX]+")  # and takes nothing from anybody


def _change_mode(words: Words) -> Operands:
    """chmod, chown, chgrp: the first operand is a mode or an owner."""
    plain, is_like = plain_words(words, "--reference"), possible_values(words, "--reference")
    change, files = ("", plain) if is_like else ("".join(filter(None, plain[:1])), plain[1:])
    files = (*files, *(above_of(each) for each in files if each and above_of(each) != each))
    recursive = has(words, "R", "--recursive") and not _GIVES_THE_OWNER.fullmatch(change)
    return Operands(files, files if recursive else (), recursive)


def _copy(words: Words) -> Operands:
    """cp, install, ln: into the last operand, or the value of ``-t``."""
    takes = "-m -o -g -S -t --mode --owner --group --suffix --target-directory"
    return _into(plain_words(words, takes), possible_values(words, "-t", "--target-directory"))


def _into(files: Words, targets: Words = ()) -> Operands:
    sources = files
    if not targets:
        targets, sources = files[-1:], files[:-1]
    inside = [
        os.path.join(target, os.path.basename(source.rstrip("/")))  # noqa: PTH118, PTH119 - text as typed
        for target in targets
        if target is not None
        for source in sources
        if source is not None
    ]
    return Operands((*targets, *inside))


def _mirror(words: Words) -> Operands:
    files = plain_words(words, "-e -f --rsh --filter --exclude --include --exclude-from")
    copied = _into(files)
    deletes = any(word is not None and word.startswith("--del") for word in words)
    lost = copied.written[:1] if deletes else ()
    if "--remove-source-files" in words:
        lost = (*lost, *files[:-1])
    return Operands(copied.written, lost, bool(lost))


def moved(words: Words) -> Operands:
    """``mv``: what it writes, and its sources, which are lost."""
    copied = _copy(words)
    sources = plain_words(words, "-S -t --suffix --target-directory")
    if not possible_values(words, "-t", "--target-directory"):
        sources = sources[:-1]
    known = tuple(source for source in sources if source is not None)
    return Operands((*copied.written, *sources), known)


def _disk_dump(words: Words) -> Operands:
    return Operands(tuple(word[3:] for word in words if word is not None and word[:3] == "of="))


def _in_place(words: Words) -> Operands:
    """sed, perl, ruby: their files are written only with ``-i``."""
    is_edit = any(word is not None and re.match(r"-[a-zA-Z0-9]*i|--i", word) for word in words)
    return Operands(plain_words(words, "-e -f --expression --file") if is_edit else ())


_SED_IS_TOLD = re.compile(r"-[a-zA-Z]*[ef]|--[ef]").match  # what to do, by an option
_SED_WRITES = re.compile(rf"{SED_PATTERNS}|[wW][ \t]*(?P<name>[^\s;}}]+)", re.ASCII)
_AWK_WRITES = re.compile(r"""(?:>|\btee\s)\s*["']?([^\s"';}]+)""")


def _stream_edit(words: Words) -> Operands:
    """sed: in place, or what its script says behind ``w``, but for what is looked for."""
    found = (each["name"] for word in words for each in _SED_WRITES.finditer(word or ""))
    named = tuple(filter(None, found))
    files = _in_place(words).written
    if not any(map(_SED_IS_TOLD, (word or "" for word in words))):
        files = files[1:]  # the first is the script
    return Operands((*files, *named[:_MOST_RUN]))


def _awk(words: Words) -> Operands:
    """``awk '{print > "FILE"}'``."""
    named = tuple(name for word in words for name in _AWK_WRITES.findall(word or ""))
    return Operands(named[:_MOST_RUN], perhaps=perhaps_of(("awk", *words)))


def _remove_trees(words: Words) -> Operands:
    """Programs that remove whatever they name, directories too."""
    files = plain_words(words)
    return Operands(files, files, is_recursive=True)


def _zip(words: Words) -> Operands:
    """``-m`` moves what is packed: zip(1)."""
    files = plain_words(words, "-b -n -t -tt")
    lost = files[1:] if has(words, "m", "--move") else ()
    return Operands((*files[:1], *possible_values(words, "-O", "--out")), lost, bool(lost))


_UNPACKS_TO = ("--directory", "--file", "--one-top-level", "--index-file")


def _unpack(words: Words) -> Operands:
    """Tar and its kind: the directory that it is unpacked in, and what is packed."""
    lost = plain_words(words[1:], "-f --file -C") if has(words, "", "--remove-files") else ()
    if words and words[0] and words[0][0] != "-":  # "cf x.tar"
        words = (f"-{words[0]}", *words[1:])
    written = possible_values(words, "-C", "-d", "-f", "-D", "-o", *_UNPACKS_TO)
    members = plain_words(words) if has(words, "x", "--extract", "--get") else ()
    return Operands(written, lost, bool(lost), perhaps=members)


def _make_file_system(words: Words) -> Operands:
    files = tuple(word for word in plain_words(words) if word is None or "/" in word)
    return Operands(files, files, is_recursive=True)


_PATTERN_TESTS = frozenset({"-name", "-iname", "-path", "-ipath", "-wholename", "-regex"})
_WIDENS = frozenset({"!", "-not", "-o", "-or", ","})
_ONLY_WILD = re.compile(r"[*?.]*")
_FIND_OPTION = re.compile(r"-[EHLPXdsx]+|-O[0-9]|-D.*|--")
KILLERS = frozenset({"rm", "shred", "unlink", "mv", "chmod", "chown", "truncate"})
"""What may destroy the files that ``find`` hands on."""


def _find(words: Words) -> Operands:
    """``find`` destroys below its starts, unless a pattern narrows what is found there."""
    starts: list[str | None] = []
    at = _first_start(words)
    follows, words = any("L" in (word or "") for word in words[:at]), words[at:]
    for word in words:
        if word is not None and word.startswith(("-", "(", "!")):
            break
        starts.append(word)
    tests = words[len(starts) :]
    written = possible_values(tests, "-fprint", "-fprintf", "-fls")
    run = [each.words for each in look_through(("find", *words)).inner]
    named = _named_by(tests, starts or ["."])
    written = (*written, *_written_by(run[:_MOST_RUN], named))
    if "-delete" not in tests and not _kills(run):
        return Operands(written)
    written = (*written, *named)
    narrowed = _WIDENS.isdisjoint(tests) and any(
        word in _PATTERN_TESTS and after is not None and not _ONLY_WILD.fullmatch(after)
        for word, after in pairwise(tests)
    )
    lost = [
        start
        for start in starts or ["."]
        if not narrowed or start is None or start.startswith(("/", "~", ".."))
    ]
    if ("-prune", "-o") not in pairwise(tests) and any(
        before not in {"!", "-not"} and _finds_git(test, after)
        for before, test, after in zip((None, *tests), tests, tests[1:], strict=False)
    ):
        lost += [start and f"{start}/.git" for start in starts or ["."]]
    if not narrowed and (follows or "-follow" in tests):
        lost.append(None)  # it goes on wherever a link leads
    return Operands((*written, *starts), tuple(lost), is_recursive=True)


def _first_start(words: Words) -> int:
    """Where the places begin in ``find -L -D tree . -delete``, behind its own options: find(1)."""
    at = 0
    while at < len(words) and _FIND_OPTION.fullmatch(words[at] or ""):
        at += 1 + (words[at] == "-D")
    return at


def _named_by(tests: Words, starts: Sequence[str | None]) -> Words:
    """What tests by name say that ``find`` may find, right below its ``starts``."""
    names: list[str] = []
    for at, (test, after) in enumerate(pairwise(tests)):
        is_left = tests[at - 1 : at] in {("!",), ("-not",)} or tests[at + 2 : at + 3] == ("-prune",)
        if after is None or is_left or _ONLY_WILD.fullmatch(after) or _finds_git(test, after):
            continue  # git's own directory is destroyed, and no file of it named
        if test in {"-name", "-iname"}:
            names += [f"{start}/{after}" for start in starts if start]
        elif test in {"-path", "-ipath", "-wholename"}:
            names.append(after)
    return tuple(names[:_MOST_RUN])


def _written_by(run: Sequence[Words], named: Words) -> Words:
    """Which of the files ``named`` the commands would write that are given one."""
    given = [tuple(name if word is None else word for word in one) for one in run for name in named]
    written = (name for words in given[:_MOST_RUN] for name in program_operands(words).written)
    return tuple(name for name in written if name in named)


def _kills(run: list[Words]) -> bool:
    """Whether one of the commands, or what it runs (``sudo rm``), destroys what it is given."""
    for block in run:
        run += (each.words for each in look_through(block).inner if len(run) < _MOST_RUN)
    return not KILLERS.isdisjoint((block[0] or "").rpartition("/")[2] for block in run if block)


_FD_RUNS = re.compile(r"(?:-[HIuaslipLF0]*[xX]|--exec(?:-batch)?(?:=|\Z))(.*)", re.DOTALL)
_FD_VALUES = (
    "-d --max-depth --min-depth --exact-depth -E --exclude -t --type -e --extension -S --size -o"
    " --owner -c --color -j --threads --changed-within --changed-before --max-results --batch-size"
    " --ignore-file --format --path-separator --and --search-path --base-directory -C"
)


def _fd(words: Words) -> Operands:
    """``fd -x rm`` destroys below its starts, unless a pattern or an ending narrows it."""
    runs = (
        (at, found[1]) for at, word in enumerate(words) if (found := _FD_RUNS.match(word or ""))
    )
    at, first = next(runs, (len(words), ""))
    if not _kills([(*filter(None, (first,)), *words[at + 1 :])]):
        return Operands(perhaps=perhaps_of(("fd", *words)))
    tests = words[:at]
    pattern, *starts = plain_words(tests, _FD_VALUES) or ("",)
    starts += possible_values(tests, "--search-path", "--base-directory", "-C")
    plain = None if pattern is None else re.sub(r"[\\^$]", "", pattern)
    narrowed = has(tests, "e", "--extension") or not (plain is None or _ONLY_WILD.fullmatch(plain))
    lost = [
        start
        for start in starts or ["."]
        if not narrowed or start is None or start.startswith(("/", "~", ".."))
    ]
    if plain and plain.casefold() in ".git" and has(tests, "Hu", "--hidden", "--unrestricted"):
        lost += [start and f"{start}/.git" for start in starts or ["."]]
    named = tuple(f"{start}/{plain}" for start in starts or ["."] if start and plain)
    return Operands(named, tuple(lost), is_recursive=True)


def _finds_git(test: str | None, pattern: str | None) -> bool:
    """Whether a test of ``find`` lets git's own directory, or what is in it, pass."""
    if test not in _PATTERN_TESTS or pattern is None or _ONLY_WILD.fullmatch(pattern):
        return False
    plain = pattern.casefold()
    name = ".git" if test in {"-name", "-iname"} else "./.git"
    is_named = ".git" in plain.replace("\\", "").split("/")
    return is_named or fnmatch.fnmatchcase(name, without_sets(plain))


_SPECIAL: dict[str, Callable[[Words], Operands]] = {
    "rm": _rm, "unlink": _rm, "shred": _shred, "chmod": _change_mode, "chown": _change_mode,
    "chgrp": _change_mode, "setfacl": _change_mode, "chattr": _change_mode, "cp": _copy,
    "install": _copy, "ln": _copy, "scp": _copy, "rsync": _mirror, "mv": moved, "dd": _disk_dump,
    "sed": _stream_edit, "perl": _in_place, "ruby": _in_place, "mkfs": _make_file_system,
    "tar": _unpack, "bsdtar": _unpack, "unzip": _unpack,
    "wipefs": _make_file_system, "blkdiscard": _make_file_system, "find": _find,
    "gfind": _find, "fd": _fd, "fdfind": _fd, "zip": _zip,
    **dict.fromkeys(("awk", "gawk", "mawk"), _awk),
    **dict.fromkeys(("rimraf", "srm", "trash", "trash-put"), _remove_trees),
}  # fmt: skip
# programs that write all their operands -> their options that take a value
_ALL = {
    "tee": "", "touch": "-d -r -t --date --reference", "mkdir": "-m --mode", "rmdir": "",
    "truncate": "-s -r --size --reference", "sponge": "", "gzip": "-S", "gunzip": "-S",
    "bzip2": "", "xz": "", "ed": "", "ex": "", "vi": "", "vim": "", "nano": "",
    "emacs": "", "mknod": "", "mkfifo": "", "split": "-b -l -n -a",
}  # fmt: skip


def program_operands(words: Words) -> Operands:
    """What the command made of ``words`` (not git) would change and destroy."""
    if not words or words[0] is None:
        return _unknown_program(words[1:])
    program = words[0].rpartition("/")[2]
    if _FOUND.search(program):
        return _unknown_program(words[1:])
    if program.startswith(("mkfs", "mke2fs")):
        program = "mkfs"
    special = _SPECIAL.get(program)
    if special is not None:
        return special(words[1:])
    if program in _ALL:
        return Operands(plain_words(words[1:], _ALL[program]))
    return Operands(outputs(words[1:]), perhaps=perhaps_of(words))
