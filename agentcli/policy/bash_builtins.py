"""Shell built-ins that evaluate a part of their arguments, and so may run a command (SEC-4).

Bash expands the subscript of a variable's name: ``test -v 'a[$(touch x)]'`` runs ``touch``.
Law: wherever a built-in could be given such a name, or changes how the rest is read, it is not
understood.
"""

from __future__ import annotations

_NAMING = frozenset(
    {
        "declare", "typeset", "local", "readonly", "export", "unset", "read", "mapfile",
        "readarray", "getopts", "printf", "wait",
    }
)  # fmt: skip
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
        rest = tuple(word for word in rest[:1] if word is None or word.startswith("-v"))
        return "it may evaluate a subscript" if rest else ""
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
        return "it tests a text that is not known"
    if shape and shape[0] == "!":
        shape = shape[1:]
    if len(shape) == _TEST_WORDS and shape[0] and shape[0].removeprefix("-") in _UNARY:
        return ""
    if len(shape) == _TEST_WORDS + 1 and shape[1] in _BINARY:
        return ""
    return "it tests a text that is not known"


def _bracket(rest: tuple[str | None, ...]) -> str:
    evaluating = {"-v", "-R", "-eq", "-ne", "-lt", "-le", "-gt", "-ge"}
    return "it evaluates arithmetic" if evaluating.intersection(w for w in rest if w) else ""


def _one_word(source: str) -> bool:
    """Whether the expansion yields exactly one word: it is in double quotes, and no ``$@``."""
    return len(source) > 1 and source[0] == source[-1] == '"' and "@" not in source
