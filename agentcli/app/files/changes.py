"""What has changed in a git repository: file by file, bounded, without running its code (SEC-2).

Law: whatever the repository holds, at most ``MAX_BYTES`` of diff are kept, at most ``MAX_FILE`` of
a file and ``MAX_LINE`` of a line; what is left out is counted, and no changed file goes unnamed but
those beyond ``MAX_FILES``. A diff is read as it comes: its size costs time and no memory. Nothing
is written, no link is followed, also not what git has followed one to that has come up while it
looked; and what holds keys by its name is not read unless git has it.
"""

from __future__ import annotations

import io
import os
import re
import stat
import threading
from collections.abc import Iterator, Sequence
from dataclasses import field, replace
from pathlib import Path
from typing import IO

from agentcli.app.files.safe_git import SafeGit, find_git, refuse_references_elsewhere
from agentcli.domain.clean import one_line
from agentcli.domain.errors import UsageError
from agentcli.domain.files import lstat_of, open_resolved, readlink_of
from agentcli.domain.tools import real_path
from agentcli.domain.values import frozen, mutable
from agentcli.engine.context.system_prompt import project_root
from agentcli.policy.places import credential_place

TIMEOUT_S = 60.0
MAX_BYTES = 4_000_000
MAX_FILE = 400_000
MAX_LINE = 2_000
MAX_FILES = 5_000
MAX_NAMES = 5_000_000
MAX_COUNTED = 20_000_000
_MOST_HIDDEN = 50
_MOST_RANGES = 20_000
_MAX_READ = 1 << 14  # more than the longest two names
_SHORT = 7
_BINARY_HEAD = 8_000
_KEPT_BACK = "not shown, as it may hold keys"
_GONE = "not shown: the file does not hold it now"
_OTHER_COMMIT = "a submodule at another commit"  # which git may have seen by a link, too
_IDENT = re.compile(rb"\$Id[^$\n]*\$")
_DIFF = (
    *("diff", "--no-ext-diff", "--no-textconv", "--no-color", "--ignore-submodules=dirty"),
    *("--submodule=short", "--find-renames", "--no-relative", "--unified=5"),
    *("--inter-hunk-context=0", "-O/dev/null", "--src-prefix=a/", "--dst-prefix=b/"),
)
_HUNK = re.compile(rb"@@ -\d{1,9}(?:,\d{1,9})? \+(\d{1,9})(?:,(\d{1,9}))? @@")
_ESCAPED = re.compile(rb'\\([abfnrtv"\\]|[0-7]{3})')
_ESCAPES = dict(zip(b'abfnrtv"\\', b'\a\b\f\n\r\t\v"\\', strict=True))
_LFS = b"version https://git-lfs.github.com/spec/"


@frozen
class ChangedFile:
    """One changed file; ``path`` is from the repository's top, of a deleted file its old one.

    ``status`` is ``added``, ``deleted``, ``modified``, ``renamed``, ``copied`` or ``conflict``.
    ``text`` are the hunks of its diff, ``left_out`` the bytes of them that are not in it.
    ``ranges`` are the lines of the new file, first and last, that the diff shows.
    """

    path: str
    status: str
    old_path: str = ""
    text: str = ""
    left_out: int = 0
    is_binary: bool = False
    details: tuple[str, ...] = ()
    added: int = 0
    removed: int = 0
    ranges: tuple[tuple[int, int], ...] = ()

    def shows(self, line: int) -> bool:
        """Whether the line of the new file stands in the diff."""
        return any(first <= line <= last for first, last in self.ranges)


@frozen
class ChangeSet:
    """What has changed. ``what`` says between what, ``notes`` what is not in ``files`` and why.

    ``revision`` is where the new files are: a commit, ``:`` for what is staged, or nothing for the
    working tree.
    """

    root: Path
    what: str
    files: tuple[ChangedFile, ...]
    notes: tuple[str, ...] = ()
    revision: str = ""


def find_changes(
    cwd: Path,
    *,
    base: str | None = None,
    staged: bool = False,
    commit: str | None = None,
    paths: Sequence[str] = (),
) -> ChangeSet:
    """What has changed, of the whole repository or below ``paths``. Blocks.

    Since the branch ``base`` was left, what is ``staged``, or by ``commit``. Without any of them:
    the working tree against the last commit, new files too, or, where that is clean, against the
    default branch. Raises ``UsageError``.
    """
    repository = open_repository(cwd)
    inside = repository.path_arguments(cwd, paths)
    head = repository.commit("HEAD")
    if commit is not None:
        return repository.of_commit(commit, inside)
    if staged:
        since = head or repository.nothing()
        repository = repository.with_index(cwd)
        return repository.changes("what is staged", ("--cached", since), inside, revision=":")
    if base is not None:
        return repository.since(base, head, inside)
    what = f"the working tree against {_short(head)}" if head else "all files: there is no commit"
    found = repository.changes(what, (head or repository.nothing(),), inside, new=True)
    if found.files or head is None:
        return found
    default = repository.default_branch()
    return found if default is None else repository.since(default, head, inside)


@frozen
class GitChanges:
    """A git repository with a working tree."""

    root: Path
    git: SafeGit

    @property
    def _top(self) -> Path:
        return real_path(self.root)

    def commit(self, name: str) -> str | None:
        """The commit that ``name`` names."""
        return self.git.commit(name) or None

    def with_index(self, cwd: Path) -> GitChanges:
        """With the index that is being committed, where git says so: to a pre-commit hook."""
        name = os.environ.get("GIT_INDEX_FILE")
        if not name:
            return self
        env = {**self.git.env, "GIT_INDEX_FILE": str(cwd / name)}
        return replace(self, git=replace(self.git, env=env))

    def nothing(self) -> str:
        """The tree without a file."""
        found = self.git.output("hash-object", "-t", "tree", "/dev/null", limit=200) or b""
        return found.decode().strip()

    def default_branch(self) -> str | None:
        """The branch that others start from; ``None`` where none is known."""
        found = self.git.output("symbolic-ref", "--quiet", "refs/remotes/origin/HEAD", limit=1_000)
        names = [os.fsdecode(found).strip().removeprefix("refs/remotes/")] if found else []
        names += ["origin/main", "origin/master", "main", "master"]
        return next((name for name in names if self.commit(name)), None)

    def path_arguments(self, cwd: Path, paths: Sequence[str]) -> tuple[str, ...]:
        """``paths``, seen from ``cwd``, as git takes them. Raises ``UsageError``."""
        top = self._top
        found = []
        for name in paths:
            place = Path(name).expanduser()
            place = cwd / place
            path = real_path(place.parent) / place.name if place.is_symlink() else real_path(place)
            if not path.is_relative_to(top):
                raise UsageError(
                    f"{one_line(name)} is outside the repository", f"give a path below {top}"
                )
            found.append(f":(top,literal){path.relative_to(top)}")
        return tuple(found)

    def since(self, base: str, head: str | None, inside: Sequence[str]) -> ChangeSet:
        """What has changed since ``base`` was left, in the working tree and in commits."""
        shown = one_line(base)
        other = self.commit(base) or self.commit(f"origin/{base}")
        if other is None:
            raise UsageError(
                f"there is no branch or commit {shown} here", "git branch --all shows what there is"
            )
        if head is None:
            raise UsageError("there is no commit yet", "leave out --base to review all files")
        forked = self.git.output("merge-base", other, head, limit=200)
        if not forked:
            is_cut = self.git.output("rev-parse", "--is-shallow-repository", limit=20) == b"true\n"
            advice = (
                "this clone is shallow: git fetch --unshallow (in a GitHub workflow: fetch-depth: 0"
                " at the checkout)"
                if is_cut
                else f"give another --base, or compare with it directly: --commit {shown}"
            )
            raise UsageError(f"{shown} and HEAD have no commit in common here", advice)
        since = forked.decode().strip()
        what = f"the working tree against {shown} (since {_short(since)})"
        return self.changes(what, (since,), inside, new=True)

    def of_commit(self, name: str, inside: Sequence[str]) -> ChangeSet:
        """What the commit has changed, against its first parent."""
        found = self.commit(name)
        if found is None:
            raise UsageError(
                f"there is no commit {one_line(name)} here", "git log --oneline shows them"
            )
        parent = self.commit(f"{found}^1")
        if parent is None:
            content = self.git.output("cat-file", "commit", found, limit=10_000) or b""
            if b"\nparent " in content.partition(b"\n\n")[0]:
                raise UsageError(
                    f"what came before {_short(found)} is not in this shallow clone",
                    "git fetch --deepen 1",
                )
        since = parent or self.nothing()
        return self.changes(f"the commit {_short(found)}", (since, found), inside, revision=found)

    def changes(
        self,
        what: str,
        between: Sequence[str],
        inside: Sequence[str],
        *,
        new: bool = False,
        revision: str = "",
    ) -> ChangeSet:
        """What has changed ``between`` two states; with ``new``, untracked files too."""
        files: list[ChangedFile] = []
        notes: list[str] = []
        room, beyond = MAX_BYTES, 0
        for change in self._diff(between, inside):
            kept = change if len(change.text) <= room else _without_text(change)
            room -= len(kept.text)
            if len(files) < MAX_FILES:
                files.append(kept)
            else:
                beyond += 1
        withheld = [one_line(each.path) for each in files if _KEPT_BACK in each.details]
        if hidden := [each.path for each in files if each.is_binary]:
            files = self._with_hidden(files, hidden, between)
        if new:
            listed = self._new_names(inside)
            if listed is None:
                notes.append("new files are not looked at: git could not list them")
            beyond += self._add_new(files, withheld, listed or b"", room)
        if withheld:
            notes.append(f"not sent, as it may hold keys: {', '.join(withheld[:20])}")
        if beyond:
            notes.append(f"{beyond:,} more changed files are not looked at")
        return ChangeSet(self.root, what, tuple(files), tuple(notes), revision)

    def _diff(self, between: Sequence[str], inside: Sequence[str]) -> Iterator[ChangedFile]:
        with self.git.without_filters(self.root) as plain:
            yield from self._changed(plain, between, inside)

    def _changed(
        self, plain: SafeGit, between: Sequence[str], inside: Sequence[str]
    ) -> Iterator[ChangedFile]:
        process = plain.start(*_DIFF, *between, "--", *inside)
        timer = threading.Timer(TIMEOUT_S, process.kill)
        timer.daemon = True
        timer.start()
        try:
            is_commit = "--cached" in between or len([x for x in between if x != "--text"]) > 1
            tree = None if is_commit else self._top
            if process.stdout is not None:
                for change in _parsed(process.stdout, tree):
                    names = filter(None, (change.path, change.old_path))
                    is_secret = credential_place(self.root / name for name in names)
                    yield _withheld(change, _KEPT_BACK) if is_secret else change
            code = process.wait()
            if code:
                raise UsageError(
                    "git could not list the changes", f"try: git diff {' '.join(between)}"
                )
        finally:
            timer.cancel()
            process.kill()
            process.wait()
            if process.stdout is not None:
                process.stdout.close()

    def _with_hidden(
        self, files: Sequence[ChangedFile], names: Sequence[str], between: Sequence[str]
    ) -> list[ChangedFile]:
        """``files`` with the diffs of texts that an attribute of the repository calls binary."""
        texts = [name for name in names[:_MOST_HIDDEN] if self._is_text(name, between)]
        if not texts:
            return list(files)
        again = {
            change.path: change
            for change in self._diff(
                ("--text", *between), [f":(top,literal){name}" for name in texts]
            )
        }
        return [again.get(each.path, each) if each.is_binary else each for each in files]

    def _is_text(self, name: str, between: Sequence[str]) -> bool:
        """Whether both sides of a file look like text."""
        sides = [
            self.git.output("cat-file", "blob", f"{side}:{name}", limit=_BINARY_HEAD)
            for side in between
            if side != "--cached"
        ]
        if "--cached" in between:
            sides.append(self.git.output("cat-file", "blob", f":{name}", limit=_BINARY_HEAD))
        elif len(between) == 1:
            sides.append(_content(self._top / name, _BINARY_HEAD))
        known = [side for side in sides if side is not None]
        return bool(known) and all(b"\0" not in side for side in known)

    def _new_names(self, inside: Sequence[str]) -> bytes | None:
        """The files that git does not know, unless it ignores them."""
        return self.git.output(
            *("ls-files", "-z", "--others", "--exclude-standard", "--full-name", "--", *inside),
            limit=MAX_NAMES,
            timeout_s=TIMEOUT_S,
        )

    def _add_new(
        self, files: list[ChangedFile], withheld: list[str], listed: bytes, room: int
    ) -> int:
        """Add the files that are ``listed``; how many are left out."""
        names = [name for name in listed.split(b"\0") if name]
        for position, raw in enumerate(names):
            if len(files) >= MAX_FILES:
                return len(names) - position
            name = os.fsdecode(raw)
            shown = raw.decode("utf-8", "replace")
            if credential_place((self.root / name,)):
                withheld.append(one_line(shown))
                continue
            change = _new_file(self._top / name, shown, room)
            if change is not None:
                kept = change if len(change.text) <= room else _without_text(change)
                room -= len(kept.text)
                files.append(kept)
        return 0

    def line_count(self, path: str, revision: str) -> int | None:
        """How many lines the file ``path`` has in ``revision``; ``None``: there is no such file."""
        if revision:
            name = f"{revision.rstrip(':')}:{path}"
            data = self.git.output("cat-file", "blob", name, limit=MAX_COUNTED)
        else:
            place = self._top / path
            data = _content(place, MAX_COUNTED) if place.is_relative_to(self._top) else None
        if data is None:
            return None
        return data.count(b"\n") + (not data.endswith(b"\n") if data else 0)


def open_repository(cwd: Path) -> GitChanges:
    """The repository that ``cwd`` is in. Raises ``UsageError``."""
    root = project_root(cwd)
    git = find_git(root)
    if git is None:
        raise UsageError("git was not found", "install it")
    found = git.output("rev-parse", "--show-toplevel", limit=10_000)
    if found is None and (root / ".git").exists():
        raise UsageError(
            f"git does not read the repository at {one_line(str(root))}",
            "try: git status (it may belong to another user, or have no working tree)",
        )
    if found is None:
        raise UsageError(
            f"{one_line(str(cwd))} is in no git repository", "go to one, or give it with -C DIR"
        )
    if real_path(Path(os.fsdecode(found).removesuffix("\n"))) != real_path(root):
        raise UsageError(
            f"the working tree of {one_line(str(root))} is elsewhere",
            "see: git config core.worktree",
        )
    refuse_references_elsewhere(git)
    return GitChanges(root, git)


def _short(commit: str) -> str:
    return commit[:_SHORT]


def _without_text(change: ChangedFile) -> ChangedFile:
    return replace(change, text="", left_out=change.left_out + len(change.text))


# --- the diff as git prints it -------------------------------------------------------------


def _withheld(change: ChangedFile, why: str) -> ChangedFile:
    """``change`` without what the file holds (SEC-3, SEC-5)."""
    return replace(change, text="", left_out=0, ranges=(), details=(*change.details, why))


def _parsed(stream: IO[bytes], tree: Path | None) -> Iterator[ChangedFile]:
    """The files of the diff in ``stream``; the new ones are in the working tree ``tree``, if any.

    A line that belongs to a hunk starts with a sign, so that what starts with a word is git's own.
    """
    section: _FileSection | None = None
    for line, cut in _lines(stream):
        if line.startswith(b"diff --git "):
            if section is not None:
                yield section.change(tree)
            section = _FileSection(*_names(line[11:]))
        elif line.startswith(b"* Unmerged path "):
            name = line[16:].decode("utf-8", "replace")
            yield ChangedFile(name, "conflict", details=("it has conflicts",))
        elif section is not None:
            section.add(line, cut)
    if section is not None:
        yield section.change(tree)


def _lines(stream: IO[bytes]) -> Iterator[tuple[bytes, int]]:
    """Each line, without its end, as far as it is kept, and how many bytes are not."""
    while line := stream.readline(_MAX_READ):
        cut = 0
        last = line
        while not last.endswith(b"\n"):
            last = stream.readline(1 << 16)
            if not last:
                break
            cut += len(last)
        yield line.removesuffix(b"\n"), max(0, cut - 1)


@mutable
class _FileSection:
    """The part of a diff that is about one file; its names are those of the disk."""

    path: str
    old_path: str
    status: str = "modified"
    in_hunks: bool = False
    is_binary: bool = False
    size: int = 0
    left_out: int = 0
    added: int = 0
    removed: int = 0
    lines: list[str] = field(default_factory=list)
    ranges: list[tuple[int, int]] = field(default_factory=list)
    details: list[str] = field(default_factory=list)
    new: set[bytes] = field(default_factory=set)

    def add(self, line: bytes, cut: int) -> None:
        """A line after the first."""
        if hunk := _HUNK.match(line):
            self.in_hunks = True
            first, count = int(hunk[1]), int(hunk[2] or b"1")
            if count and len(self.ranges) < _MOST_RANGES:
                self.ranges.append((first, first + count - 1))
        if self.in_hunks:
            self._add_body(line, cut)
        else:
            self._add_head(line)

    def _add_body(self, line: bytes, cut: int) -> None:
        self.added += line.startswith(b"+")
        self.removed += line.startswith(b"-")
        if line[1:].startswith(_LFS):
            self._tell("kept by Git LFS: its content is not part of the diff")
        if self.size + len(line) >= MAX_FILE:
            self.left_out += len(line) + cut + 1
            return
        cut += max(0, len(line) - MAX_LINE)
        line = line[:MAX_LINE]
        self.size += len(line) + 1
        self.left_out += cut
        if line.startswith(b"+"):
            self.new.add(line[1:])
        text = line.decode("utf-8", "replace")
        self.lines.append(_shortened(text, cut))

    def _add_head(self, line: bytes) -> None:
        word, _, rest = line.partition(b" ")
        match word:
            case b"new" if rest.startswith(b"file mode "):
                self.status = "added"
                self._tell_kind(rest[10:])
            case b"deleted":
                self.status = "deleted"
            case b"old":
                self._tell(line.decode("ascii", "replace"))
            case b"new":
                self._tell(line.decode("ascii", "replace"))
            case b"rename" | b"copy":
                self.status = "renamed" if word == b"rename" else "copied"
                which, _, name = rest.partition(b" ")
                if which == b"from":
                    self.old_path = _unquoted(name)
                else:
                    self.path = _unquoted(name)
            case b"Binary" | b"GIT":
                self.is_binary = True

    def _tell_kind(self, mode: bytes) -> None:
        kinds = {b"120000": "a symbolic link", b"160000": "a submodule", b"100755": "executable"}
        if mode in kinds:
            self._tell(kinds[mode])

    def _tell(self, detail: str) -> None:
        if detail not in self.details:
            self.details.append(detail)

    def change(self, tree: Path | None) -> ChangedFile:
        """What the lines amount to, unless they are not those of the file below ``tree``."""
        is_moved = self.status in {"renamed", "copied"}
        path, old_path = (
            os.fsencode(name).decode("utf-8", "replace") for name in (self.path, self.old_path)
        )
        change = ChangedFile(
            path,
            self.status,
            old_path if is_moved else "",
            "\n".join(self.lines),
            self.left_out,
            self.is_binary,
            tuple(self.details),
            self.added,
            self.removed,
            tuple(self.ranges),
        )
        if tree is None or _holds(tree / self.path, self.new):
            return change
        is_commit = all(line.startswith(b"Subproject commit ") for line in self.new)
        return _withheld(change, _OTHER_COMMIT if is_commit else _GONE)


def _holds(path: Path, lines: set[bytes]) -> bool:
    """Whether what stands at a resolved path, which no link leads to, has all of ``lines``.

    Git may convert the ends of lines, what ``$Id$`` stands for, and UTF-16 (gitattributes(5)).
    """
    left = {_IDENT.sub(b"$Id$", line.rstrip(b"\r")) for line in lines}
    try:
        kind = lstat_of(path).st_mode if left else 0
        if stat.S_ISLNK(kind):
            left.discard(os.fsencode(readlink_of(path)))
        elif left:
            with open_resolved(path) as file:
                _take_lines(file, left)
                if left:
                    file.seek(0)
                    data = file.read(MAX_COUNTED)
                    for codec in ("utf-16", "utf-16-le", "utf-16-be"):
                        text = data.decode(codec, "replace")
                        _take_lines(io.BytesIO(text.encode("utf-8", "replace")), left)
    except (OSError, ValueError):
        return False
    return not left


def _take_lines(stream: IO[bytes], left: set[bytes]) -> None:
    """Take what ``stream`` has out of ``left``."""
    for line, _ in _lines(stream):
        left.discard(_IDENT.sub(b"$Id$", line[: MAX_LINE - 1].rstrip(b"\r")))
        if not left:
            return


def _shortened(line: str, cut: int) -> str:
    """``line``, of which ``cut`` characters are too many."""
    return f"{line[:MAX_LINE]} [{cut:,} more bytes]" if cut > 0 else line


def _names(rest: bytes) -> tuple[str, str]:
    """The new and the old name in ``a/NAME b/NAME``; other lines say it where they differ."""
    half = len(rest) // 2
    old, new = rest[:half], rest[half + 1 :]
    return _unquoted(new, prefix=True), _unquoted(old, prefix=True)


def _unquoted(name: bytes, *, prefix: bool = False) -> str:
    """A name as git writes it: in quotes, with escapes, where it holds something unusual."""
    if name.startswith(b'"') and name.endswith(b'"'):
        name = _ESCAPED.sub(_unescaped, name[1:-1])
    return os.fsdecode(name[2:] if prefix else name)


def _unescaped(found: re.Match[bytes]) -> bytes:
    code = found[1]
    return bytes([_ESCAPES[code[0]] if len(code) == 1 else int(code, 8) & 0xFF])


# --- files that git does not know ----------------------------------------------------------


def _new_file(path: Path, name: str, room: int) -> ChangedFile | None:
    """The whole of a file as an addition; ``None`` for what is neither a file nor a link.

    Without ``room`` it is not read.
    """
    try:
        status = path.lstat()
        if stat.S_ISLNK(status.st_mode):
            target = os.fsencode(path.readlink()).decode("utf-8", "replace")
            hunk = f"@@ -0,0 +1,1 @@\n+{target}"
            return ChangedFile(
                name, "added", text=hunk, details=("a symbolic link",), added=1, ranges=((1, 1),)
            )
    except OSError:
        return None
    if room <= 0 and stat.S_ISREG(status.st_mode):
        return ChangedFile(name, "added", left_out=status.st_size)
    data = _content(path, MAX_FILE)
    if data is None:
        return None
    if b"\0" in data[:_BINARY_HEAD]:
        return ChangedFile(name, "added", is_binary=True)
    lines = data.decode("utf-8", "replace").removesuffix("\n").split("\n") if data else []
    shown = (f"+{_shortened(line, len(line) - MAX_LINE)}" for line in lines)
    left_out = max(0, status.st_size - len(data)) + sum(max(0, len(x) - MAX_LINE) for x in lines)
    text = "\n".join((f"@@ -0,0 +1,{len(lines)} @@", *shown)) if lines else ""
    details = ("executable",) if status.st_mode & stat.S_IXUSR else ()
    ranges = ((1, len(lines)),) if lines else ()
    return ChangedFile(
        name, "added", "", text, left_out, details=details, added=len(lines), ranges=ranges
    )


def _content(path: Path, limit: int) -> bytes | None:
    """At most ``limit`` bytes of the plain file at a resolved path; nothing is waited for."""
    try:
        with open_resolved(path) as file:
            return file.read(limit)
    except (OSError, ValueError):
        return None
