"""Programs whose words have a language of their own: what each may say and only read (SEC-4).

Law: each function knows the words that it lets pass by what they mean; the rest is not read-only.
What one of them might do all the same the read-only sandbox keeps from having an effect.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from agentcli.policy.bash_tree import is_plain_variable
from agentcli.policy.read_only_table import (
    HARMLESS_WITH_ANY_OPTION,
    UNKNOWN,
    reading_of,
    spec_of,
)

# may the file at this path be read unasked?
Readable = Callable[[str], bool]
Judge = Callable[[Sequence[str], Readable], bool]

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
# "[[.x.]/]" and "[[=x=]/]" end elsewhere
_SED_SET = r"\[\^?+\]?+(?:\[:\w+:\]|[^][\n])*+\[?\]"
# what is no command in a script of sed: texts, and addresses and labels with what they stand for;
# by each of its marks, for no look ahead may stand in "(…)*+": CPython before 3.11.5 finds nothing
_SED_CHANGES = "|".join(
    rf"s{by}(?:\\.|{_SED_SET}|[^{by}\\\n[])*+{by}(?:\\[\s\S]|[^{by}\\\n])*+{by}[gpiI0-9]*"
    for by in map(re.escape, "/|,#@_~!%+")
)
SED_PATTERNS = (
    rf"{_SED_CHANGES}"
    rf"|y/(?:\\.|[^/\\\n])*+/(?:\\.|[^/\\\n])*+/|/(?:\\.|{_SED_SET}|[^/\\\n[])*+/[IM]*"
)
"""Of a script of sed: what is looked for and put in its place."""
_SED_TEXT = re.compile(
    rf"{SED_PATTERNS}"
    r"|(?:^|(?<=[0-9$/;{\n ]))[aic](?:\\\n|\\? ).*|[:btT] ?[a-z]\w*(?=[;}\n]|\Z)",
    re.ASCII,
)
_SED_PLAIN = re.compile(r"[0-9$,;{}!~+ \t\npdDgGhHnNxzlqQ=F]*")
_LONGEST_SCRIPT = 2_000
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
    """``sed`` that edits what it prints: no other file, no command, not in place."""
    scripts: list[str] = []
    operands: list[str] = []
    at = 1
    while at < len(words):
        word = words[at]
        at += 1
        if word in {"-e", "--expression", "-ne"}:
            scripts += words[at : at + 1]
            at += 1
        elif word.startswith("-") and word not in _SED_FLAGS and word != "-":
            return False
        elif word not in _SED_FLAGS:
            operands.append(word)
    if not scripts:
        scripts, operands = operands[:1], operands[1:]
    known = bool(scripts) and all(map(_is_harmless_script, scripts))
    return known and all(map(may_read, operands))


def _is_harmless_script(script: str) -> bool:
    """Whether what is left without texts are commands that read and write no file."""
    if UNKNOWN in script or len(script) > _LONGEST_SCRIPT:
        return False
    return _SED_PLAIN.fullmatch(_SED_TEXT.sub("", script)) is not None


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


def _test(words: Sequence[str], _may_read: Readable) -> bool:
    """``test`` and ``[``: a look at any path does no harm, one at a variable may run its index."""
    if words[0] == "[" and words[-1] != "]":
        return False
    return "-v" not in words and "-R" not in words


_PRINTF = re.compile(
    r"(?:[^%\\]|%%|\\[abefnrtv\\0-9\"'xuU]|%[-+ #0']*[0-9]*(?:\.[0-9]*)?[diouxXeEfFgGaAcsbq])*"
)


def _printf(words: Sequence[str], _may_read: Readable) -> bool:
    """``printf`` with formats that are known to print: ``%n`` assigns, as ``-v`` does."""
    rest = list(words[1:])
    if rest[:1] == ["--"]:
        rest = rest[1:]
    if not rest or rest[0].startswith("-"):
        return False
    return _PRINTF.fullmatch(rest[0]) is not None


def _find_running(words: Sequence[str], may_read: Readable) -> bool:
    """``find``, also with ``-exec`` of a program that only reads."""
    rest: list[str] = []
    at = 0
    while at < len(words):
        if words[at] not in {"-exec", "-execdir"}:
            rest.append(words[at])
            at += 1
            continue
        end = next((n for n in range(at, len(words)) if words[n] in {";", "+"}), None)
        if end is None or words[at + 1] not in HARMLESS_WITH_ANY_OPTION or UNKNOWN in words[at:end]:
            return False
        for word in words[at + 2 : end]:
            value = (word.partition("=")[2] or word[2:]) if word.startswith("-") else word
            if not may_read(value.replace("{}", ".")):
                return False
        at = end + 1
    return _find(rest, may_read)


def _command(words: Sequence[str], _may_read: Readable) -> bool:
    """``command -v NAME`` looks a name up."""
    return len(words) > 1 and words[1] in {"-v", "-V"}


# --- awk --------------------------------------------------------------------------------------

# it writes, runs, or reads what its words do not name
_AWK_DOES = re.compile(
    # behind "print" up to its end; where that is not sure, anywhere behind it
    r"\bprintf?\b(?:[^;}\n\"/\\#>|,&?:(]|\"(?:[^\"\\\n]|\\.)*+\"|(?:[,&?:(]|\|\|)\s*|>=)*+"
    r"(?:[>|]|[\"/\\#][\s\S]*[>|])|\}\s*[>|]|@"
    r"|\b(?:system|getline|close|fflush|ARG[VC]|ARGIND|PROCINFO|FUNCTAB|SYMTAB|ENVIRON|func(?:tion)?)\b"
)


def _awk(words: Sequence[str], may_read: Readable) -> bool:
    """``awk`` with a program that only prints: no commands, no files of its own, no redirection."""
    at, rest = 1, list(words)
    while at < len(rest) and rest[at].startswith("-") and rest[at] != "-":
        word = rest[at]
        if word == "--":
            at += 1
            break
        if word in {"-F", "-v"}:
            at += 2
        elif word.startswith("-F"):
            at += 1
        else:
            return False
    if at >= len(rest) or UNKNOWN in rest[at] or len(rest[at]) > _LONGEST_SCRIPT:
        return False
    if _AWK_DOES.search(rest[at]):
        return False
    # a word such as a=b is no file to awk: it assigns
    return all("=" not in word and may_read(word) for word in rest[at + 1 :])


# --- the system and its programs ----------------------------------------------------------------

_PS = re.compile(r"-[AadefFlHjLMNTwxZ]+|[AafFjlLTuwxrST]+|--sort=?[\w,%+-]*|--forest|--no-headers?")
_PS_WITH = frozenset({"-o", "-eo", "-p", "-u", "-C", "-U", "-g", "-t", "--sort", "--pid", "--ppid"})
_ASKS_VERSION = frozenset({"--version", "-V", "--help"})
_VERSION_WORDS = frozenset({"-v", "-version", "version"})
_NODE_LIKE = frozenset({"node", "npm", "yarn", "pnpm", "php", "java", "javac"})


def _ps(words: Sequence[str], _may_read: Readable) -> bool:
    """``ps``, but not the environment of processes."""
    at = 1
    while at < len(words):
        word = words[at]
        at += 1
        if word in _PS_WITH:
            if at >= len(words) or "env" in words[at] or words[at] == UNKNOWN:
                return False
            at += 1
        elif not _PS.fullmatch(word):
            return False
    return True


def tells_version(words: Sequence[str]) -> bool:
    """``PROGRAM --version``, of any program."""
    if len(words) != 2 or UNKNOWN in words:  # noqa: PLR2004 - the program and the question
        return False
    name, asks = words
    return asks in _ASKS_VERSION or (asks in _VERSION_WORDS and name in {*_NODE_LIKE, *_TOOLS})


_TOOLS: dict[str, frozenset[str]] = {
    "pip": frozenset({"list", "show", "freeze", "check", "--version"}),
    "pip3": frozenset({"list", "show", "freeze", "check", "--version"}),
    "npm": frozenset({"ls", "list", "root", "prefix", "explain", "why"}),
    "pnpm": frozenset({"ls", "list", "why", "root"}),
    "yarn": frozenset({"list", "why"}),
    "go": frozenset({"version", "env", "list", "doc", "help"}),
    "cargo": frozenset({"metadata", "tree", "pkgid", "help"}),
    "rustup": frozenset({"show", "which"}),
    "poetry": frozenset({"show", "check"}),
    "uv": frozenset({"tree", "version"}),
    "bundle": frozenset({"list", "show", "info"}),
    "gem": frozenset({"list", "which", "environment"}),
    "composer": frozenset({"show", "validate"}),
    "dotnet": frozenset({"--info", "--list-sdks", "--list-runtimes"}),
    "conda": frozenset({"list", "info"}),
    "brew": frozenset({"list", "info"}),
    "terraform": frozenset({"version"}), "helm": frozenset({"version"}),
    "openssl": frozenset({"version"}),
    "tar": frozenset(), "unzip": frozenset(),
    "dpkg": frozenset({"-l", "-L", "-s", "-S"}), "rpm": frozenset({"-q", "-qa", "-qi", "-ql"}),
    "apt-cache": frozenset({"search", "show", "policy"}),
}  # fmt: skip
_WRITES = re.compile(
    r"-w|-o.*|-u|--?(?:out|write|exec|toolexec|config|eval|fix|install|update).*|-C.*"
)
_ASK_DATABASES = frozenset({"dpkg", "rpm", "apt-cache", "brew"})
# cargo-metadata(1), docs.astral.sh/uv: they bring the lock file up to date before they answer
_LOCKS = {"cargo": ("metadata", "tree"), "uv": ("tree",)}
_SHOWS_VERSION = frozenset({"--short", "--output-format", "--output-format=json", "json", "text"})
_LEAVES_LOCK = frozenset({"--locked", "--frozen", "--no-deps"})
_LISTS_TAR = re.compile(r"-?[zjJav]*t[zjJav]*f?|--list|--file=.*|-f|-z|-j|-J|-v|--verbose|--gzip")


def _tool(words: Sequence[str], may_read: Readable) -> bool:
    """Package managers and their kind, where they list what is there."""
    name, rest = words[0], list(words[1:])
    if name == "tar":
        options = [word for at, word in enumerate(rest) if word.startswith("-") or at == 0]
        is_list = any(re.fullmatch(r"-?[zjJavf]*t[zjJavf]*|--list", word) for word in options[:2])
        return (
            is_list
            and all(_LISTS_TAR.fullmatch(word) for word in options)
            and all(may_read(word) for word in rest if word not in options)
            and all(may_read(word.partition("=")[2]) for word in options if "=" in word)
        )
    if name == "unzip":
        return rest[:1] == ["-l"] and all(map(may_read, rest[1:]))
    known = _TOOLS.get(name, frozenset())
    if not rest or rest[0] not in known:
        return False
    if (name, rest[0]) == ("uv", "version") and not _SHOWS_VERSION.issuperset(rest[1:]):
        return False  # it sets the project's
    if rest[0] in _LOCKS.get(name, ()) and _LEAVES_LOCK.isdisjoint(rest):
        return False
    is_told = name in _ASK_DATABASES or _stays(rest[1:], may_read)
    return is_told and not any(_WRITES.fullmatch(word) for word in rest[1:])


def _stays(words: Sequence[str], may_read: Readable) -> bool:
    """Whether no word is a path that leads elsewhere, nor the value of an option."""
    named = (each for word in words for each in (word, word.partition("=")[2]))
    return all(map(may_read, named))


def _read(words: Sequence[str], _may_read: Readable) -> bool:
    """``read -r NAME``: the next line into a variable of its own."""
    names = [word for word in words[1:] if word != "-r"]
    return bool(names) and all(is_plain_variable(name) for name in names)


def _sleep(words: Sequence[str], _may_read: Readable) -> bool:
    return len(words) > 1 and all(re.fullmatch(r"[0-9]{1,3}(?:\.[0-9]+)?", w) for w in words[1:])


def _exit(words: Sequence[str], _may_read: Readable) -> bool:
    """``ls x || exit 1``: the command ends there."""
    return re.fullmatch(r"exit(?: [0-9]{1,3})?", " ".join(words)) is not None


def _alone(words: Sequence[str], _may_read: Readable) -> bool:
    """Without a word it only tells."""
    return len(words) == 1


def _set(words: Sequence[str], _may_read: Readable) -> bool:
    """``set -euo pipefail``: when the shell gives up, which ends with the command."""
    return re.fullmatch(r"-[eu]+|(?:-[eu]+ )?-[eu]*o pipefail", " ".join(words[1:])) is not None


def _graphics(words: Sequence[str], _may_read: Readable) -> bool:
    """``nvidia-smi`` where it shows: it resets and sets modes, too, and writes files."""
    shows = re.compile(r"-L|-q|-i|[0-9]+|--(?:query-[a-z-]+|format|id)=[\w.,-]+")
    return all(map(shows.fullmatch, words[1:]))


def _any(words: Sequence[str], may_read: Readable) -> bool:
    """What it is told only changes what it prints."""
    return UNKNOWN not in words and _stays([w for w in words if w[:5] != "/dev/"], may_read)


# --- git, where it can do nothing but read --------------------------------------------------------
# In the read-only sandbox hooks, fsmonitor, pagers, external diffs and text conversions are off.

_GIT_ALONE = frozenset(
    {
        "--no-pager", "-P", "--no-optional-locks", "--literal-pathspecs", "--no-replace-objects",
        "--glob-pathspecs", "--icase-pathspecs",
    }
)  # fmt: skip
# every option of these only chooses what is shown, but for those that start like these
GIT_SHOWS = frozenset(
    {
        "status", "diff", "log", "show", "blame", "annotate", "grep", "describe", "rev-parse",
        "rev-list", "cat-file", "shortlog", "ls-files", "ls-tree", "merge-base", "name-rev",
        "show-ref", "show-branch", "for-each-ref", "count-objects", "diff-tree", "diff-index",
        "diff-files", "whatchanged", "range-diff", "check-ignore", "check-attr", "cherry", "var",
        "version", "verify-pack", "patch-id", "get-tar-commit-id", "check-ref-format",
    }
)  # fmt: skip
_GIT_UNSAFE = ("--output", "--open-files-in-pager", "--ext-diff", "--textconv", "--exec",
               "--upload-pack", "--show-signature", "--filters", "--no-index", "--untracked",
               "--paginate", "--stdin-packs", "--contents", "--write-tree", "--exclude-from",
               "--exclude-per-directory", "--ignore-revs-file", "--orderfile")  # fmt: skip
_GIT_LISTS: dict[str, re.Pattern[str]] = {
    "branch": re.compile(
        r"-[avrl]+|-vv|--all|--remotes|--list|--show-current|--verbose|--(?:no-)?(?:merged|contains)"
        r"(?:=.*)?|--points-at=.*|--sort=.*|--format=.*|--column|--no-color|--color(?:=.*)?|-i"
    ),
    "tag": re.compile(
        r"-l|--list|-n[0-9]*|--sort=.*|--format=.*|--(?:no-)?(?:merged|contains)(?:=.*)?"
        r"|--points-at=.*|--column"
    ),
    "remote": re.compile(r"-v|--verbose|get-url|--all|--push"),
    "worktree": re.compile(r"list|--porcelain|-v"),
    "notes": re.compile(r"list|show"),
    "config": re.compile(
        r"--list|-l|--get|--get-all|--get-regexp|get|list|--show-origin|--show-scope|--local"
        r"|--global|--system|--name-only|-z|--type=\w+|--bool|--int"
    ),
    "stash": re.compile(
        r"list|show|-p|--stat|--patch|--oneline|stash@\{[0-9]+\}|[0-9]+|--name-only"
    ),
    "reflog": re.compile(
        r"(?:show|exists|-[0-9]+|--oneline|--all|--date=\w+|-n|[A-Za-z0-9@{}/._~^-]+)"
    ),
    "submodule": re.compile(r"status|--recursive|--cached|summary"),
    "bisect": re.compile(r"log"),
    "symbolic-ref": re.compile(r"--short|-q|HEAD"),
    "help": re.compile(r"(?!.*)"),
}
_GIT_FIRST = {"worktree": {"list"}, "notes": {"list", "show"}, "stash": {"list", "show"},
              "submodule": {"status", "summary"}, "bisect": {"log"}}  # fmt: skip
_GIT_READS_CONFIG = frozenset({"--list", "-l", "--get", "--get-all", "--get-regexp", "get", "list"})
_GIT_WITH_NAMES = frozenset(
    {"--list", "-l", "--contains", "--no-contains", "--merged", "--no-merged"}
)


def _git(words: Sequence[str], may_read: Readable) -> bool:
    """``git`` where it shows what is there; nothing that changes, runs, fetches or opens files."""
    at = 1
    while at < len(words) and words[at].startswith("-"):
        if words[at] == "-C" and at + 1 < len(words) and may_read(words[at + 1]):
            at += 1
        elif words[at] not in _GIT_ALONE:
            return list(words[at:]) in (["--version"], ["-v"])
        at += 1
    if at >= len(words):
        return True  # its usage
    name, rest = words[at], list(words[at + 1 :])
    if name in GIT_SHOWS:
        return not any(_is_unsafe_for_git(name, word, may_read) for word in rest)
    return name in _GIT_LISTS and _git_lists(name, rest)


def _is_unsafe_for_git(name: str, word: str, may_read: Readable) -> bool:
    option = word.partition("=")[0]
    if option.startswith("--"):
        # options may be shortened
        return len(option) > len("--") and any(each.startswith(option) for each in _GIT_UNSAFE)
    if word.startswith("-") and len(word) > 1:
        if name == "grep":
            return not re.fullmatch(r"-[a-zA-Z0-9]*", word) or "O" in word or "f" in word
        return word.startswith("-O") or (word.startswith("-S") and name in {"blame", "annotate"})
    return not may_read(word)


def _git_lists(name: str, rest: Sequence[str]) -> bool:
    pattern = _GIT_LISTS[name]
    first = _GIT_FIRST.get(name)
    if first is not None and (not rest or rest[0] not in first):
        return False
    names = [word for word in rest if not pattern.fullmatch(word)]
    check = _GIT_NAMED.get(name)
    if check is not None:
        return check(rest, names)
    if any(word.startswith("-") for word in names) or UNKNOWN in names:
        return False
    return not names or not _GIT_WITH_NAMES.isdisjoint(word.partition("=")[0] for word in rest)


def _git_config_reads(rest: Sequence[str], names: Sequence[str]) -> bool:
    """``git config NAME`` does, too; git-config(1)."""
    is_told = any("." in name for name in names) or not _GIT_READS_CONFIG.isdisjoint(rest)
    return is_told and len(names) <= 1 and not any(name.startswith("-") for name in names)


# what else holds for the words of some: all of them, and those that no pattern knows
_GIT_NAMED: dict[str, Callable[[Sequence[str], Sequence[str]], bool]] = {
    "config": _git_config_reads,
    "reflog": lambda rest, names: not names and not {"expire", "delete", "drop"} & set(rest),
    "symbolic-ref": lambda rest, names: bool(rest) and not names,
    "remote": lambda rest, names: not names or (rest[0] == "get-url" and UNKNOWN not in names),
}


WIDE: dict[str, Judge] = {
    "find": _find_running, "sed": _sed, "jq": _jq, "date": _date, "test": _test,
    "[": _test, "[[": _test, "command": _command, "awk": _awk, "gawk": _awk, "mawk": _awk,
    "ps": _ps, "printf": _printf, "sleep": _sleep, "git": _git, "read": _read, "env": _alone,
    "set": _set, "exit": _exit, "nvidia-smi": _graphics,
    **dict.fromkeys(_TOOLS, _tool),
    **dict.fromkeys(("printenv", "lscpu", "lsb_release", "locale", "getconf", "tty", "cal", "pgrep",
                     "vmstat", "lsmod", "lsblk", "logname", "users", "who", "w",
                     "times"), _any),
}  # fmt: skip


def only_reads(words: Sequence[str]) -> bool:
    """Whether a call is known to write nothing, wherever the files that it names lie."""
    if special := WIDE.get(words[0]):
        return special(words, lambda _: True)
    spec = spec_of(words[0])
    return spec is not None and (spec.operands == "any" or reading_of(words, spec) is not None)
