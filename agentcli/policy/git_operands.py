"""What git would change or destroy: ``config`` writes, ``clean`` and ``rm -r`` destroy."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace

from agentcli.policy.operands import (
    Operands,
    has,
    moved,
    outputs,
    perhaps_of,
    plain_words,
    possible_values,
)
from agentcli.policy.places import Words
from agentcli.policy.read_only_programs import only_reads
from agentcli.policy.read_only_table import UNKNOWN


def git_operands(words: Words) -> Operands:
    """``git config`` writes, ``git clean`` and ``git rm -r`` destroy."""
    rest = list(words)
    directory, tree = ".", possible_values(words, "--work-tree")
    forced: Words = ()
    is_templated = bool(possible_values(words, "--template"))
    while rest and (rest[0] is None or rest[0].startswith("-")):
        option = rest.pop(0)
        if option in {"-C", "-c", "--git-dir", "--work-tree"} and rest:
            value = rest.pop(0)
            setting = (value or "").casefold() if option == "-c" else ""
            forced = ("-f",) if "requireforce" in setting else forced
            is_templated = is_templated or setting.startswith("init.templatedir=")
            if option == "-C" and value is not None:
                directory = os.path.join(directory, value)  # noqa: PTH118 - text as typed
    command = _GIT_COMMANDS.get(rest[0] or "") if rest else None
    after = (*forced, *rest[1:])
    if command:
        found = command(after, directory)
        lost = tree if found.destroyed else ()
        return replace(found, written=(*found.written, *tree), destroyed=(*found.destroyed, *lost))
    known = tuple(word or UNKNOWN for word in rest)
    kept = _below(directory, (".git/config",)) if _is_configured(known) else ()
    if not rest or rest[0] in _GIT_KEEPS or only_reads(("git", *known)):
        return Operands((*_below(directory, outputs(after)), *tree), kept=kept)
    copied = _below(directory, _copied_hooks(known)) if is_templated else ()
    perhaps = _below(directory, perhaps_of((None, *after)))
    made = _below(directory, _working_tree(tuple(rest)))
    return Operands((*copied, *tree), perhaps=perhaps, kept=kept, made=made)


# they leave what they name in the working tree as it is
_GIT_KEEPS = frozenset(
    {
        "add", "am", "apply", "branch", "cherry-pick", "commit", "diff", "fetch", "gc",
        "hash-object", "lfs", "log", "ls-remote", "merge", "pull", "push", "rebase", "remote",
        "reset", "revert", "stash", "status", "switch", "tag", "update-index", "update-ref",
    }
)  # fmt: skip


# what they are called for is written to git's configuration, or takes away what a sandbox holds in
# its place (what says where a working tree is) -> the words that say so
_CONFIGURE = {
    "remote": "add rename remove rm set-url set-branches",
    "branch": "-u --set-upstream-to --unset-upstream -m -M --move --edit-description",
    "sparse-checkout": "init set add disable reapply",
    "submodule": "add init update deinit sync set-url set-branch absorbgitdirs",
    "lfs": "install uninstall",
    "worktree": "remove move prune repair",
}


def _is_configured(words: Sequence[str]) -> bool:
    """Whether the command would fail in a sandbox that keeps such files as they are."""
    said = _CONFIGURE.get(words[0], "").split() if words else []
    return any(word.partition("=")[0] in said for word in words[1:3])


def _working_tree(words: Words) -> Words:
    """Where git makes a working tree, when it has made its branch; git-worktree(1)."""
    return plain_words(words[2:], "-b -B --reason")[:1] if words[:2] == ("worktree", "add") else ()


def _copied_hooks(words: Sequence[str]) -> Words:
    """Where hooks come to lie that a template has; git-init(1), "TEMPLATE DIRECTORY"."""
    if words[0] not in {"init", "clone"}:
        return ()
    takes = "-b --initial-branch --object-format --ref-format --template"
    names = plain_words(tuple(words[1:]), takes)
    return (f"{(names or ('.',))[-1]}/.git/hooks",)


def _git_config(words: Words, directory: str) -> Operands:
    takes = "-f --file --type --default --blob --comment"
    operands = plain_words(words, takes)
    options = {*words} - {*operands, *possible_values(words, *takes.split())}
    if operands[:1] in {("get",), ("list",)} or any(
        word in {"-l", "--list"} or (word or "").startswith("--get") for word in options
    ):
        return Operands()
    is_edit = operands == ("edit",) or has(words, "e", "--edit", "--unset-all", "--remove-section")
    if len(operands) == 1 and not is_edit:
        return Operands()
    if files := possible_values(words, "-f", "--file"):
        return Operands(files)
    if has(words, "", "--global"):
        return Operands(("~/.gitconfig",))
    return Operands((f"{directory}/.git/config",))


def _git_clean(words: Words, directory: str) -> Operands:
    if not has(words, "f", "--force") or _only_tells(words):
        return Operands()
    where = plain_words(words, "-e --exclude") or (".",)
    return Operands(destroyed=_below(directory, where), is_recursive=True)


def _only_tells(words: Words) -> bool:
    """Whether ``git clean`` has ``-n``, and not as a part of the pattern for ``-e``."""
    is_dry = is_value = False
    for word in words:
        if word == "--":
            break
        if is_value or not word or word[0] != "-":
            is_value = False
        elif word.startswith("--"):
            is_dry = (is_dry or has((word,), "", "--dry-run")) and not word.startswith("--no-")
            is_value = word == "--exclude"
        else:
            letters, takes, value = word[1:].partition("e")  # "-enode_modules"
            is_dry, is_value = is_dry or "n" in letters, bool(takes) and not value
    return is_dry


def _git_remove(words: Words, directory: str) -> Operands:
    is_kept = has(words, "", "--cached", "--dry-run")
    is_kept = is_kept and not has(words, "", "--no-cached", "--no-dry-run")
    if is_kept or not has(words, "r"):
        return Operands()
    return Operands(destroyed=_below(directory, plain_words(words)), is_recursive=True)


def _git_files(words: Words, directory: str) -> Operands:
    return Operands(_below(directory, plain_words(words, "-s --source")))


def _git_move(words: Words, directory: str) -> Operands:
    return Operands(_below(directory, moved(words).written))


def _git_checkout(words: Words, directory: str) -> Operands:
    if "--" in words:
        return _git_files(words[words.index("--") :], directory)
    return Operands(perhaps=_below(directory, plain_words(words)))


def _below(directory: str, names: Words) -> Words:
    return tuple(
        # ":/" and its kind may mean any file; gitglossary(7), "pathspec"
        None if name is None or name[:1] == ":" else _at(directory, name)
        for name in names
    )


def _at(directory: str, name: str) -> str:
    return name if name[:1] == "~" else os.path.join(directory, name)  # noqa: PTH118 - text as typed


_GIT_COMMANDS: dict[str, Callable[[Words, str], Operands]] = {
    "config": _git_config,
    "clean": _git_clean,
    "rm": _git_remove,
    "mv": _git_move,
    "restore": _git_files,
    "checkout": _git_checkout,
}
