"""Programs that run another program: ``sudo``, ``env``, ``xargs``, ``bash -c`` and their kind.

And built-ins that evaluate a part of their arguments: bash expands the subscript of a variable's
name, so ``test -v 'a[$(touch x)]'`` runs ``touch``. Laws: an option that the tables do not know
makes the look-through uncertain; then every word that could be the program is offered, so that a
rule against it still sees it. A built-in that could be given such a name, or that changes how the
rest is read, is not understood (SEC-4).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise

from agentcli.domain.patterns import LazyPattern
from agentcli.domain.values import frozen

Words = tuple[str | None, ...]
_MAX_GUESSES = 24
_ASSIGNMENT = LazyPattern(r"[A-Za-z_][A-Za-z0-9_]*\+?=")


@frozen
class Inner:
    """What a wrapper runs: the words from ``start`` on, or a ``script`` for a shell.

    ``script`` is ``None`` when the words are the command. ``words`` replace the wrapper's own.
    """

    words: Words = ()
    start: int = 0
    script: str | None = None


@frozen
class LookThrough:
    """All that a call may run, and why that is not certain (empty: it is)."""

    inner: tuple[Inner, ...] = ()
    why_not: str = ""


@frozen
class _Options:
    """How a wrapper reads the words before its command."""

    flags: frozenset[str] = frozenset()
    values: frozenset[str] = frozenset()
    operands: int = 0
    assigns: bool = False


def _options(
    flags: str = "", values: str = "", operands: int = 0, *, assigns: bool = False
) -> _Options:
    return _Options(frozenset(flags.split()), frozenset(values.split()), operands, assigns)


_ARGV_WRAPPERS: dict[str, _Options] = {
    "sudo": _options(
        "-A -b -E -e -H -K -k -l -n -P -S -s -i -v -V --askpass --background --preserve-env --login"
        " --shell --set-home --non-interactive --stdin --reset-timestamp --preserve-groups",
        "-C -D -g -h -p -R -r -T -t -U -u --user --group --chdir --chroot --close-from --host"
        " --prompt --role --type --command-timeout --other-user",
        assigns=True,
    ),
    "doas": _options("-L -n -s", "-a -C -u"),
    "pkexec": _options("--disable-internal-agent --keep-cwd", "--user -u"),
    "chpst": _options("-v -P -0 -1 -2", "-u -U -b -e -/ -C -n -l -L -m -d -o -p -f -c -r -t"),
    "setuidgid": _options(operands=1),
    "s6-setuidgid": _options(operands=1),
    "chronic": _options("-v -e"),
    "dumb-init": _options("-c -v --single-child --verbose", "-r --rewrite"),
    "tini": _options("-s -w -v -g", "-p -e"),
    "proxychains": _options("-q", "-f"),
    "proxychains4": _options("-q", "-f"),
    "torsocks": _options("-i -q --isolate --quiet", "-a -P -u -p"),
    "systemd-inhibit": _options("", "--what --who --why --mode"),
    "env": _options(
        "-i -0 -v - --ignore-environment --null --debug --block-signal --default-signal"
        " --ignore-signal --list-signal-handling",
        "-u -C --unset --chdir -a --argv0",
        assigns=True,
    ),
    "timeout": _options(
        "-f -p -v --foreground --preserve-status --verbose",
        "-k -s --kill-after --signal",
        operands=1,
    ),
    "nice": _options("", "-n --adjustment"),
    "nohup": _options(),
    "setsid": _options("-c -f -w --ctty --fork --wait"),
    "stdbuf": _options("", "-i -o -e --input --output --error"),
    "ionice": _options("-t --ignore", "-c -n -p -P -u --class --classdata"),
    "chrt": _options("-a -b -f -i -m -o -r -R -v", "-D -P -T", operands=1),
    "taskset": _options("-a -c --cpu-list --all-tasks", "", operands=1),
    "time": _options(
        "-a -p -q -v --append --portability --quiet --verbose",
        "-f -o --format --output",
        assigns=True,
    ),
    "command": _options("-p"),
    "builtin": _options(),
    "exec": _options("-c -l", "-a"),
    "coproc": _options(),
    "busybox": _options(),
    "toybox": _options(),
    "chroot": _options("--skip-chdir", "--groups --userspec -g -G -u", operands=1),
    **dict.fromkeys(("linux32", "linux64", "i386", "x86_64"), _options("-R -v -3 -B")),
    "gosu": _options(operands=1),
    "su-exec": _options(operands=1),
    "strace": _options(
        "-f -ff -c -C -d -h -i -q -qq -r -t -tt -ttt -T -v -V -x -xx -y -yy -w -k -D -Z -z",
        "-a -b -e -E -I -o -O -p -P -s -S -u -U -X",
    ),
    "ltrace": _options("-f -c -C -i -L -r -S -t -tt -T", "-a -A -D -e -F -l -n -o -p -s -u -w -x"),
    "caffeinate": _options("-d -i -m -s -u", "-t -w"),
    "unbuffer": _options("-p"),
    "rlwrap": _options("-a -c -r"),
    "catchsegv": _options(),
    "eatmydata": _options(),
    "fakeroot": _options("--"),  # a script that evaluates what its options are given
    "faketime": _options("-f -m", operands=1),
    "dbus-run-session": _options("--"),
    "xvfb-run": _options("-a -l", "-e -f -n -p -s -w"),
    "numactl": _options("-l", "-N -C -m -i -p"),
    "valgrind": _options(),
    "firejail": _options("--quiet --private --noprofile"),
    "unshare": _options("-m -u -i -n -p -U -C -T -f -r -c", "-R -w -S -G"),
    "nsenter": _options("-a -F -r -w", "-t -S -G"),
    "setpriv": _options("--no-new-privs", "--reuid --regid"),
    "prlimit": _options(),
    "systemd-run": _options("-t -P -q -G -d --user --scope --pty --wait", "-p -u -E --unit"),
    "script": _options("-q -a -e -f"),
    "doexec": _options(operands=1),
}
# shells whose syntax is bash's or a part of it, and shells that only resemble it
_SHELLS = frozenset({"bash", "sh", "dash", "ash", "rbash"})
OTHER_SHELLS = frozenset({"zsh", "ksh", "mksh", "ksh93", "pdksh", "yash", "fish", "csh", "tcsh"})
_SHELL_VALUES = frozenset({"-o", "+o", "-O", "+O", "--rcfile", "--init-file"})
_FIND_PROGRAMS = frozenset({"-exec", "-execdir", "-ok", "-okdir"})
_FD_PROGRAMS = frozenset({"-x", "-X", "--exec", "--exec-batch"})
_XARGS = _options(
    # of the last three the value is never the next word
    "-0 -r -t -p -x -o --null --no-run-if-empty --verbose --interactive --exit --open-tty --replace"
    " --max-lines --eof",
    "-I -n -P -L -s -E -d -a -J -R -S --max-args --max-procs --max-chars --delimiter --arg-file",
)
_LOADER = LazyPattern(r"ld-[\w.-]*\.so\b|ld\.so\Z")  # ld.so(8) runs what it is given
# several words at once are put behind the others
_ADDS = LazyPattern(r" -[0rtpxo]*(?:[Ll]|n(?! ?1 ))| --max-(?:l|args(?![= ]1 ))")


def look_through(words: Words) -> LookThrough:
    """What the call ``words`` would run besides its own program."""
    if not words or words[0] is None:
        return LookThrough()
    name = words[0].rpartition("/")[2]
    if special := _SPECIAL.get(name):
        return special(words)
    if options := _ARGV_WRAPPERS.get(name):
        return _argv(words, options)
    return _guesses(words) if _LOADER.match(name) else LookThrough()


def _argv(words: Words, options: _Options) -> LookThrough:
    start = _command_at(words, options)
    if start is None:
        return _guesses(words)
    return LookThrough((Inner(words[start:], start),)) if start < len(words) else LookThrough()


def _command_at(words: Words, options: _Options) -> int | None:
    """Where the command starts (after the last word: there is none); ``None``: not certain."""
    at = 1
    while at < len(words):
        word = words[at]
        if word is None:
            return None
        at += 1
        if word == "--":
            break
        if not word.startswith("-") or (word == "-" and "-" not in options.flags):
            at -= 1
            break
        takes = _takes_value(word, options)
        if takes is None:
            return None
        at += takes
    while options.assigns and at < len(words) and _assigns(words[at] or ""):
        at += 1
    following = words[at : at + max(options.operands, options.assigns)]
    # to env a word such as a-b=c is an assignment as well
    if any(word is None or (options.assigns and "=" in word) for word in following):
        return None
    return min(at + options.operands, len(words))


def _assigns(word: str) -> bool:
    return word == "!" or _ASSIGNMENT.match(word) is not None


def _takes_value(word: str, options: _Options) -> bool | None:
    """Whether the option's value is the next word; ``None`` for an unknown option."""
    if word in options.flags:
        return False
    if word in options.values:
        return True
    if word.startswith("--"):
        name, equals, _ = word.partition("=")
        known = name in options.values or name in options.flags
        return False if equals and known else None
    for at, letter in enumerate(word[1:], start=1):
        if f"-{letter}" in options.values:
            return at == len(word) - 1
        if f"-{letter}" not in options.flags:
            return None
    return False


def _guesses(words: Words, why_not: str = "") -> LookThrough:
    """Every word that could be the program, when the options are not known."""
    places = [at for at in range(1, len(words)) if not (words[at] or "").startswith("-")]
    found = tuple(Inner(words[at:], at) for at in places[:_MAX_GUESSES])
    return LookThrough(found, why_not or f"it is not certain what {words[0]} runs")


def _shell(words: Words) -> LookThrough:
    """``bash -c TEXT``; a script file or standard input is not looked into."""
    name = str(words[0])
    why_not = f"{name} has a syntax of its own" if _base(name) in OTHER_SHELLS else ""
    at, runs_text = 1, False
    while at < len(words):
        word = words[at]
        if word is None:
            return _guesses(words)
        if word in {"--", "-"} or not word.startswith(("-", "+")):
            at += word in {"--", "-"}
            break
        at += 1
        if word.startswith("--"):
            at += word in _SHELL_VALUES
        else:
            runs_text |= "c" in word
            at += sum(letter in "oO" for letter in word[1:])
    if not runs_text or at >= len(words):
        return LookThrough((), why_not)
    return _script(words[at], name, why_not)


def _script(text: str | None, name: str, why_not: str = "") -> LookThrough:
    if text is None:
        return LookThrough((), why_not or f"{name} runs a script that is not known")
    return LookThrough((Inner(script=text),), why_not)


def _eval(words: Words) -> LookThrough:
    rest = words[2:] if len(words) > 1 and words[1] == "--" else words[1:]
    if any(word is None for word in rest):
        known = " ".join(word for word in rest if word)
        return LookThrough((Inner(script=known),), "eval runs a script that is not known")
    return LookThrough((Inner(script=" ".join(str(word) for word in rest)),) if rest else ())


def _trap(words: Words) -> LookThrough:
    rest = [word for word in words[1:] if word != "--"]
    if len(rest) < 2 or rest[0] in {"-", "", "-l", "-p"}:  # noqa: PLR2004 - an action and a signal
        return LookThrough()
    return _script(rest[0], "trap", "it sets a trap")


def _after(flags: frozenset[str], why_not: str = "") -> Callable[[Words], LookThrough]:
    """Wrappers that take a shell text behind one of ``flags``, and maybe a command as well."""

    def look(words: Words) -> LookThrough:
        found = [
            Inner(script=text)
            for flag, text in pairwise(words[1:])
            if flag in flags and text is not None
        ]
        guessed = _guesses(words)
        reason = why_not or guessed.why_not
        return LookThrough((*found, *_attached(words, flags), *guessed.inner), reason)

    return look


def _attached(words: Words, flags: frozenset[str]) -> Iterator[Inner]:
    """``--command=TEXT`` and ``-cTEXT``."""
    for word in words[1:]:
        for flag in flags:
            if word and word.startswith(flag) and word != flag:
                yield Inner(script=word[len(flag) :].removeprefix("="))


def _env(words: Words) -> LookThrough:
    split = _after(frozenset({"-S", "--split-string", "-vS", "-iS", "-0S"}))
    if any(word is None or re.match(r"-[a-zA-Z0]*S|--s", word) for word in words[1:]):
        looked = split(words)
        return LookThrough(looked.inner, "env splits a string into words")
    return _argv(words, _ARGV_WRAPPERS["env"])


def _nice(words: Words) -> LookThrough:
    """A number is an option of its own: ``nice -5 -n 3 -- make``."""
    at = 1
    while at < len(words) and re.fullmatch(r"--?\+?[0-9]+", words[at] or ""):
        at += 1
    looked = _argv((words[0], *words[at:]), _ARGV_WRAPPERS["nice"])
    inner = tuple(replace(each, start=each.start + at - 1) for each in looked.inner)
    return LookThrough(inner, looked.why_not)


def _time(words: Words) -> LookThrough:
    """The shell's own takes what may stand before any program."""
    looked = _argv(words, _ARGV_WRAPPERS["time"])
    before = words[1 : looked.inner[0].start] if looked.inner else words
    is_more = any(_assigns(word or "") for word in before)
    return LookThrough(looked.inner, looked.why_not or "it times more than a program" * is_more)


def _command(words: Words) -> LookThrough:
    """``command -v NAME`` only looks NAME up."""
    if len(words) > 1 and words[1] in {"-v", "-V", "-pv", "-pV"}:
        return LookThrough()
    return _argv(words, _ARGV_WRAPPERS["command"])


def _xargs(words: Words) -> LookThrough:
    start = _command_at(words, _XARGS)
    if start is None:
        return _guesses(words)
    if start == len(words):
        return LookThrough((Inner(("echo", None), start),))
    inner: list[str | None] = list(words[start:])
    told = [_replaced(word, nxt) for word, nxt in pairwise((*words[1:start], None))]
    marks = list(filter(None, told))
    for mark in marks:
        inner = [None if word is not None and mark in word else word for word in inner]
    # the last of two that exclude each other counts
    is_added = not marks or _ADDS.search(f" {' '.join(filter(None, words[1:start]))} ")
    return LookThrough((Inner((*inner, None) if is_added else tuple(inner), start),))


def _replaced(word: str | None, following: str | None) -> str:
    """The text that xargs puts its input in place of, if this option names it."""
    for flag in ("-I", "-J", "--replace"):
        if word == flag:
            return (following if flag != "--replace" else "") or "{}"
        if word and word.startswith(flag):
            return word[len(flag) :].removeprefix("=")
    return ""


def _find(words: Words) -> LookThrough:
    return _blocks(words, _FIND_PROGRAMS)


def _fd(words: Words) -> LookThrough:
    looked = _blocks(words, _FD_PROGRAMS)
    if any(re.match(r"-[A-Za-z0-9]*[xX]|--exec", word or "") for word in words[1:]):
        return looked if looked.inner else _guesses(words)
    return looked


def _blocks(words: Words, starts: frozenset[str]) -> LookThrough:
    """The commands between a flag such as ``-exec`` and ``;`` or ``{} +``."""
    found = []
    for at, word in enumerate(words):
        if word in starts:
            rest = words[at + 1 :]
            ends = (
                n
                for n, each in enumerate(rest)
                if each == ";" or (n and each == "+" and rest[n - 1] == "{}")
            )
            length = next(ends, len(rest))
            block = [None if each is not None and "{" in each else each for each in rest[:length]]
            if block:  # what is found stands in the place of "{}", else at the end
                more = () if None in block else (None,)
                found.append(Inner((*block, *more), at + 1))
    return LookThrough(tuple(found[:_MAX_GUESSES]))


def _alias(words: Words) -> LookThrough:
    texts = [word.partition("=")[2] for word in words[1:] if word and "=" in word]
    return LookThrough(tuple(Inner(script=text) for text in texts), "it defines an alias")


_GIT_TAKES = frozenset({"-C", "--git-dir", "--work-tree", "--namespace", "--config-env"})
# git-rebase(1), git-difftool(1), git-grep(1), git-filter-branch(1): options with a text for a shell
_GIT_SETTING = LazyPattern(
    r"(?i:alias\.[^=]*=!|[^=]*(?:pager|editor|command|cmd|fsmonitor|askpass|textconv|external|process"
    r"|clean|smudge|driver|program|helper)=!?)(.+)",
    re.DOTALL,
)
_GIT_RUNS = {
    "rebase": r"-[a-zA-Z]*x|--exec",
    "difftool": r"-[a-zA-Z]*x|--extcmd",
    "grep": r"-[a-zA-Z]*O|--open-files-in-pager",
    "filter-branch": r"--[a-z-]+-filter|--setup",
    "fetch": "--upload-pack",
    "pull": "--upload-pack",
    "clone": "-u|--upload-pack",
    "ls-remote": "--upload-pack|--exec",
    "push": "--receive-pack|--exec",
}


def _git(words: Words) -> LookThrough:
    """``git rebase -x TEXT``, ``git submodule foreach TEXT``, ``git bisect run …`` and settings."""
    scripts: list[str] = []
    at = 1
    while at < len(words) and (words[at] or "-").startswith("-"):
        if words[at] == "-c" and at + 1 < len(words):
            name, _, value = (words[at + 1] or "").partition("=")
            found = _GIT_SETTING.fullmatch(words[at + 1] or "")
            scripts += [found[1]] if found else []
            if name.lower().startswith("alias.") and value and value[0] != "!":
                scripts.append(f"git {value}")
        at += 1 + (words[at] == "-c" or words[at] in _GIT_TAKES)
    name, rest = (words[at] or "" if at < len(words) else ""), words[at + 1 :]
    if name == "bisect" and rest[:1] == ("run",) and len(rest) > 1:
        return LookThrough((*map(_inner_script, scripts), Inner(rest[1:], at + 2)))
    if name == "submodule" and "foreach" in rest:
        told = rest[rest.index("foreach") + 1 :]
        scripts.append(" ".join(word or "$x" for word in told if word != "--recursive"))
    elif known := _GIT_RUNS.get(name):
        for option, following in pairwise((*rest, None)):
            found = re.fullmatch(rf"({known})(?:=?(.+))?", option or "", re.DOTALL)
            scripts += filter(None, [(found[2] or following)] if found else ())
    return LookThrough(tuple(map(_inner_script, scripts[:_MAX_GUESSES])))


def _inner_script(text: str) -> Inner:
    return Inner(script=text)


def _base(name: str) -> str:
    return name.rpartition("/")[2]


def _coproc(words: Words) -> LookThrough:
    return _guesses(words, "it starts a coprocess")


_SPECIAL: dict[str, Callable[[Words], LookThrough]] = {
    **dict.fromkeys((*_SHELLS, *OTHER_SHELLS), _shell),
    "eval": _eval,
    "trap": _trap,
    "alias": _alias,
    "env": _env,
    "nice": _nice,
    "time": _time,
    "command": _command,
    "coproc": _coproc,
    "git": _git,
    "xargs": _xargs,
    "gxargs": _xargs,
    "setarch": _guesses,
    "find": _find,
    "gfind": _find,
    "fd": _fd,
    "fdfind": _fd,
    "su": _after(frozenset({"-c", "--command", "--session-command"})),
    "runuser": _after(frozenset({"-c", "--command", "--session-command"})),
    "script": _after(frozenset({"-c", "--command"})),
    "flock": _after(frozenset({"-c", "--command"})),
    "watch": _after(frozenset()),
    "parallel": _after(frozenset({":::"})),
    "entr": _after(frozenset()),
    "mapfile": _after(frozenset({"-C"}), "it sets a callback for bash"),
    "readarray": _after(frozenset({"-C"}), "it sets a callback for bash"),
    "compgen": _after(frozenset({"-C"})),
}


# --- built-ins that evaluate their arguments -------------------------------------------------

_NAMING = frozenset(
    {
        "declare", "typeset", "local", "readonly", "export", "unset", "read", "mapfile",
        "readarray", "getopts", "printf", "wait",
    }
)  # fmt: skip
# of a format of printf, whatever stands between: %n stores a number in a variable
_ASSIGNS = LazyPattern(r"%[^a-zA-Z%]*(?:[hlLjztq]*)n")
_DECLARING = frozenset({"declare", "typeset", "local", "readonly"})
_CHANGES_THE_SHELL = {
    "let": "it evaluates arithmetic",
    "enable": "it replaces built-ins",
    "hash": "it changes where programs are found",
    "shopt": "it changes how the shell reads the rest",
    "bind": "it binds keys",
    "complete": "it installs completions",
    "history": "it changes the history",
    "fc": "it runs commands from the history",
}
_UNARY = frozenset("bcdefghknoprstuwxzLNOSG")
_BINARY = frozenset(
    {
        "=", "==", "!=", "<", ">", "-eq", "-ne", "-lt", "-le", "-gt", "-ge", "-nt", "-ot", "-ef",
    }
)  # fmt: skip
_TEST_WORDS = 2


def evaluates(words: tuple[str | None, ...], sources: tuple[str, ...]) -> str:
    """Why this call may run what its words do not show; empty when it cannot."""
    if not words or words[0] is None:
        return ""
    name, rest = words[0], words[1:]
    if name in {"test", "["}:
        return _test(rest, sources[1:])
    if name == "[[":
        return _bracket(rest)
    if name in _NAMING:
        return _naming(name, rest)
    return _CHANGES_THE_SHELL.get(name, "")


def _naming(name: str, rest: tuple[str | None, ...]) -> str:
    if name == "printf":
        first = rest[1] if rest[:1] == ("--",) and len(rest) > 1 else next(iter(rest), "")
        if first is None or first.startswith("-v"):
            return "it may evaluate a subscript"
        return "it may assign a variable" if _ASSIGNS.search(first) else ""
    if any(word is None or "[" in word for word in rest):
        return "it may evaluate a subscript"
    if name in _DECLARING and any(word and word[0] in "-+" for word in rest):
        return "it declares variables with attributes"
    return ""


def _test(rest: tuple[str | None, ...], sources: tuple[str, ...]) -> str:
    """``test`` reads numbers plainly; only ``-v`` and ``-R`` name variables."""
    if "-v" in rest or "-R" in rest:
        return "it may evaluate a subscript"
    if None not in rest:
        return ""
    shape = rest[:-1] if rest and rest[-1] == "]" else rest
    if any(w is None and not _one_word(s) for w, s in zip(rest, sources, strict=False)):
        return "it tests a value that is not known"
    if shape and shape[0] == "!":
        shape = shape[1:]
    if len(shape) == _TEST_WORDS and shape[0] and shape[0].removeprefix("-") in _UNARY:
        return ""
    if len(shape) == _TEST_WORDS + 1 and shape[1] in _BINARY:
        return ""
    return "it tests a value that is not known"


def _bracket(rest: tuple[str | None, ...]) -> str:
    evaluating = {"-v", "-R", "-eq", "-ne", "-lt", "-le", "-gt", "-ge"}
    return "it evaluates arithmetic" if evaluating.intersection(w for w in rest if w) else ""


def _one_word(source: str) -> bool:
    """Whether the expansion yields exactly one word: it is in double quotes, and no ``$@``."""
    return len(source) > 1 and source[0] == source[-1] == '"' and "@" not in source
