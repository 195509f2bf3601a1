"""Checks after edits: formats and checks what a batch has changed, and tells what is new (EXT-6).

Laws: each command runs once for a batch, on the files that were touched, contained like a command
of the model, and for a limited time; nothing here fails a turn. A problem counts as new when there
are more of its kind in a file than before: what a file's last known state has is kept by its
content, so that a check runs before an edit only on what it has not seen. What cannot be compared
is not reported. A formatter's work is the session's own: snapshots and the ledger know it.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import re
import shlex
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING

from agentcli.domain.clean import one_line, plain_text
from agentcli.domain.extensions.checks import CheckReport, program_of
from agentcli.domain.files import open_resolved, real_text
from agentcli.domain.messages import ABOUT_CHECKS
from agentcli.domain.tools import FileLedger
from agentcli.domain.values import frozen, mutable
from agentcli.domain.worktrees import is_chosen_there
from agentcli.process.program import Program, ProgramResult, RunProgram

if TYPE_CHECKING:
    from agentcli.domain.cancel import CancelToken
    from agentcli.domain.extensions.checks import CheckConfig
    from agentcli.domain.tools import FileKeeper

MAX_PROBLEMS = 10
MAX_CHARS = 2_000
MAX_FILES = 200
MAX_FILE_BYTES = 16 * 1024 * 1024
_MAX_LINES = 5_000
_MAX_LINE = 400
_DID_NOT_RUN = 126  # and above: not found, or killed
log = logging.getLogger(__name__)

# --- what a check has printed ----------------------------------------------------------------

_COLOURS = re.compile(r"\x1b\[[0-9;:?]*[ -/]*[@-~]")
# as ruff, mypy, go, rustc write it (src/app.py:3:1: ...), and tsc (src/app.ts(3,1): ...)
_AT = re.compile(
    r"(?P<path>[^\s:(][^:(]*?)(?::(?P<line>\d+)(?::\d+)?:|\((?P<other>\d+)(?:,\d+)?\):)"
)
_UNDER_NAME = re.compile(r"\s+(?P<line>\d+):\d+\s+(?P<text>\S.*)")
_NUMBER = re.compile(r"\d+")
_NOTE = re.compile(r"\s*note:")
_PYTHON = re.compile(r'\s*File "(?P<path>[^"]+)", line (?P<line>\d+)')
_PYTHON_SAYS = re.compile(r"\w+(?:Error|Warning|Exception|Interrupt): ")


@frozen
class Problem:
    """One line of a check's output; ``path`` is empty where it names no place in a file.

    ``kind`` is what stays the same when lines move; ``source`` the line that it is about.
    """

    path: str
    text: str
    kind: str
    source: str = ""


def problems_in(result: ProgramResult, root: Path, names: Mapping[str, Path]) -> list[Problem]:
    """The problems that a check has printed.

    ``names`` are the files that it was run on, by their names on the command line. Lines without a
    place count where a check failed and named none.
    """
    text = (result.stdout + b"\n" + result.stderr).decode("utf-8", "replace")
    lines = [plain_text(_COLOURS.sub("", line)) for line in text.splitlines()[:_MAX_LINES]]
    sources: dict[str, list[str]] = {}
    touched = {str(each) for each in names.values()}
    placed: list[Problem] = []
    heading, raised = "", None
    for line in lines:
        path, number, message, shown = "", "", "", line.strip()
        if (found := _AT.match(line)) and not _NOTE.match(line, found.end()):
            path = found["path"]
            number, message = found["line"] or found["other"], line[found.end() :]
        elif heading and (found := _UNDER_NAME.match(line)):
            path, number, message = heading, found["line"], found["text"].strip()
            shown = f"{_short(heading, root)}:{number}: {message}"
        elif found := _PYTHON.match(line):
            raised = found
        elif raised and _PYTHON_SAYS.match(line):
            path, number, message = raised["path"], raised["line"], line
            shown, raised = f"{_short(path, root)}:{number}: {line}", None
        elif line in names or Path(line) in names.values():
            heading = line
        if path and os.path.lexists(full := os.path.normpath(root / path)):
            source = _line_of(full, int(number[:9]), sources) if full in touched else ""
            placed.append(Problem(full, shown, _kind(message), source))
    if placed or not result.code:
        return placed
    return [Problem("", line.strip(), _kind(line)) for line in lines if line.strip()]


def _short(name: str, root: Path) -> str:
    return os.path.relpath(name, root) if name.startswith(f"{root}/") else name


def _kind(message: str) -> str:
    return _NUMBER.sub("#", " ".join(message.split()))


def _line_of(path: str, number: int, sources: dict[str, list[str]]) -> str:
    if path not in sources:
        data = _read(Path(path)) or b""
        sources[path] = data.decode("utf-8", "replace").splitlines()
    lines = sources[path]
    return lines[number - 1].strip() if 0 < number <= len(lines) else ""


def new_among(now: Sequence[Problem], before: Sequence[Problem]) -> list[Problem]:
    """Those of ``now`` that are more than there were ``before``, in their order.

    Of several that are alike, those about lines that had none before.
    """
    known = Counter((each.path, each.kind) for each in before)
    there = Counter((each.path, each.kind, each.source) for each in before)
    surplus = Counter((each.path, each.kind) for each in now) - known
    chosen: set[int] = set()
    for at, each in enumerate(now):  # first those about other lines
        key = (each.path, each.kind)
        if there[(*key, each.source)] > 0:
            there[(*key, each.source)] -= 1
        elif surplus[key] > 0:
            surplus[key] -= 1
            chosen.add(at)
    for at, each in enumerate(now):
        key = (each.path, each.kind)
        if at not in chosen and surplus[key] > 0:
            surplus[key] -= 1
            chosen.add(at)
    return [each for at, each in enumerate(now) if at in chosen]


# --- running them ----------------------------------------------------------------------------


@frozen
class CheckServices:
    """What checks need of their session.

    ``is_contained`` says if there is a sandbox, and ``doubted`` which checks do not run without
    one; it blocks. ``selects`` tells whether a glob selects a path, and raises ``ValueError`` for
    what is no glob; ``replace`` writes what a formatter has printed and raises ``OSError`` or
    ``ValueError``; ``mark`` is what the ledger has of a content. ``find`` finds checks by the
    project's own configuration: to run them, or, ``offers``, to tell of them.
    """

    root: Path
    run: RunProgram
    is_contained: Callable[[], Awaitable[bool]]
    doubted: Callable[[Sequence[CheckConfig]], Sequence[CheckConfig]]
    selects: Callable[[str, str], bool]
    replace: Callable[[Path, bytes, FileLedger], None]
    mark: Callable[[bytes], str]
    diff: Callable[[str, bytes, bytes], str]
    owner: str = ""
    keeper: Callable[[], FileKeeper] | None = None
    find: Callable[[], Sequence[CheckConfig]] | None = None
    offers: Callable[[Sequence[CheckConfig]], str] | None = None


@mutable
class _Known:
    """What one check has said of each file, with a mark of the content that it was said of."""

    files: dict[Path, tuple[str, tuple[Problem, ...]]] = field(default_factory=dict)
    elsewhere: tuple[Problem, ...] | None = ()


@mutable
class _Told:
    """What there is to tell of one batch."""

    texts: list[str] = field(default_factory=list)
    news: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    left: int = MAX_PROBLEMS


class SessionChecks:
    """Satisfies ``domain.tools.EditChecks``, for a session and its sub-agents."""

    def __init__(self, configs: Sequence[CheckConfig], services: CheckServices) -> None:
        self._configs: Sequence[CheckConfig] | None = tuple(configs) or None
        self._services = services
        self._root = Path(os.path.realpath(services.root))
        self._known: dict[CheckConfig, _Known] = {}
        self._open: set[Path] = set()
        self._warned: set[str] = set()
        self._unsaid: list[str] = []
        self._turn = asyncio.Lock()

    async def before(self, paths: Sequence[Path], cancel: CancelToken) -> None:
        """See ``EditChecks.before``: runs only on contents that no check has seen."""
        async with self._turn:
            try:
                await self._look(paths, cancel)
            except Exception as error:
                log.exception("checks could not look")
                self._warn(f"checks could not look at the files: {error}", self._unsaid)

    async def _look(self, paths: Sequence[Path], cancel: CancelToken) -> None:
        fresh = [path for path in self._inside(paths) if path not in self._open]
        self._open.update(fresh)
        contents = await asyncio.to_thread(_contents, fresh)
        for config in await self._runnable(self._unsaid):
            known = self._known.setdefault(config, _Known())
            chosen = self._chosen(config, contents, self._unsaid)
            marks = {path: _mark(contents[path]) for path in chosen}
            unseen = [p for p in chosen if known.files.get(p, ("", ()))[0] != marks[p]]
            if config.check and unseen:
                result = await self._run(config, config.check, unseen, cancel)
                await self._learn(config, result, {path: marks[path] for path in unseen})
        for path in fresh:
            if contents.get(path) is None:  # a new file has no problems
                for known in self._known.values():
                    known.files[path] = ("", ())

    async def after(
        self, call_id: str, paths: Sequence[Path], ledger: FileLedger, cancel: CancelToken
    ) -> CheckReport:
        """See ``EditChecks.after``."""
        async with self._turn:
            told = _Told(warnings=self._unsaid)
            self._unsaid = []
            try:
                await self._check(call_id, self._inside(paths), ledger, cancel, told)
            except Exception as error:
                log.exception("checks failed")
                self._warn(f"checks after edits failed: {error}", told.warnings)
            text = "\n".join(told.texts)
            cut = text if len(text) <= MAX_CHARS else f"{text[:MAX_CHARS]}…"
            feedback = f"{ABOUT_CHECKS}\n{cut}\n</checks>" if text else ""
            return CheckReport(feedback, tuple(told.news), tuple(told.warnings))

    async def _check(
        self,
        call_id: str,
        paths: Sequence[Path],
        ledger: FileLedger,
        cancel: CancelToken,
        told: _Told,
    ) -> None:
        contents = await asyncio.to_thread(_contents, paths)
        if line := await asyncio.to_thread(self._offered, contents):
            told.news.append(line)
        configs = await self._runnable(told.warnings)
        for config in configs:
            if config.format and (chosen := self._chosen(config, contents, told.warnings)):
                formatted = await self._format(config, call_id, chosen, ledger, cancel, told)
                contents.update(formatted)
        for config in configs:
            chosen = self._chosen(config, contents, told.warnings)
            if config.check and chosen:
                result = await self._run(config, config.check, chosen, cancel)
                marks = {path: _mark(contents[path]) for path in chosen}
                found = await self._learn(config, result, marks, told.warnings)
                self._report(config, found, told)
        self._open.difference_update(paths)

    def _offered(self, contents: Mapping[Path, bytes | None]) -> str:
        """What could run here and was not asked for, once. Blocks."""
        offers, find = self._services.offers, self._services.find
        if offers is None or find is None or self._configs is not None:
            return ""
        there = [each for each in find() if self._chosen(each, contents, [])]
        if there:
            self._configs = ()
        return offers(there) if there else ""

    async def _runnable(self, warnings: list[str]) -> Sequence[CheckConfig]:
        services = self._services
        if self._configs is None and services.offers is None and services.find is not None:
            self._configs = await asyncio.to_thread(services.find)
        configs = self._configs or ()
        if not configs or await services.is_contained():
            return configs
        configs = await asyncio.to_thread(services.doubted, configs)
        if any(each.runs_project for each in configs):
            names = ", ".join(each.name for each in configs if each.runs_project)
            why = "may run code of this directory, which is not trusted, and there is no sandbox"
            self._warn(f"not run after edits: {names} {why} (see: agent doctor)", warnings)
            return [each for each in configs if not each.runs_project]
        return configs

    def _inside(self, paths: Iterable[Path]) -> list[Path]:
        real = (Path(real_text(str(path))) for path in paths)
        mine = (path for path in real if path.is_relative_to(self._root))
        return list(dict.fromkeys(mine))[:MAX_FILES]

    def _chosen(
        self, config: CheckConfig, contents: Mapping[Path, bytes | None], warnings: list[str]
    ) -> list[Path]:
        """The files that are there and that the check is for."""
        there = [path for path, data in contents.items() if data is not None]
        try:
            return [
                path
                for path in there
                if any(
                    self._services.selects(glob, path.relative_to(self._root).as_posix())
                    for glob in config.globs
                )
            ]
        except ValueError as error:
            self._warn(f"the glob of the check {config.name} is none: {error}", warnings)
            return []

    async def _format(
        self,
        config: CheckConfig,
        call_id: str,
        chosen: Sequence[Path],
        ledger: FileLedger,
        cancel: CancelToken,
        told: _Told,
    ) -> Mapping[Path, bytes | None]:
        """Run a formatter; the contents of the files afterwards."""
        before = await asyncio.to_thread(_contents, chosen)
        keeper = self._services.keeper() if self._services.keeper is not None else None
        if keeper is not None:
            await keeper.begin(call_id, chosen)
        try:
            if config.is_filter:
                results = [
                    await self._filter(config, path, ledger, cancel, before[path] or b"")
                    for path in chosen
                ]
            else:
                results = [await self._run(config, config.format, chosen, cancel)]
        finally:
            if keeper is not None:
                await keeper.end(call_id)
        after = await asyncio.to_thread(_contents, chosen)
        for result in results:
            if why := _why_not(result):
                name = program_of(config.format)
                self._warn(f"the formatter {name} after edits: {why}", told.warnings)
            elif result.code and not config.check:  # else the check tells why
                self._refused(config, result, told)
        self._note_changes(config, before, after, ledger, told)
        return after

    async def _filter(
        self,
        config: CheckConfig,
        path: Path,
        ledger: FileLedger,
        cancel: CancelToken,
        data: bytes,
    ) -> ProgramResult:
        """A formatter that prints what the file should be."""
        result = await self._run(config, config.format, (), cancel, data)
        if result.code == 0 and result.stdout and result.stdout != data:
            if len(result.stdout) >= len(data) * 4 + 4_096:
                return ProgramResult(None, problem="printed much more than a formatted file")
            try:
                await asyncio.to_thread(self._services.replace, path, result.stdout, ledger)
            except (OSError, ValueError) as error:
                return ProgramResult(None, problem=str(error))
        return result

    def _note_changes(
        self,
        config: CheckConfig,
        before: Mapping[Path, bytes | None],
        after: Mapping[Path, bytes | None],
        ledger: FileLedger,
        told: _Told,
    ) -> None:
        for path, data in after.items():
            was = before[path]
            if data is None or was is None or data == was:
                continue
            if ledger.seen.get(path) == self._services.mark(was):
                ledger.seen[path] = self._services.mark(data)
            name = self._name(path)
            program = program_of(config.format)
            told.news.append(f"{program} formatted {name}")
            diff = self._services.diff(name, was, data)
            shown = f":\n{diff}" if len(diff) <= MAX_CHARS // 2 else "; read it again to edit it."
            told.texts.append(f"{program} formatted {name} after your change{shown}")

    def _refused(self, config: CheckConfig, result: ProgramResult, told: _Told) -> None:
        """A formatter does not take what it was given: maybe it is no valid code."""
        line = f"{program_of(config.format)} could not format the change: {_said(result)}"
        told.news.append(one_line(line, _MAX_LINE))
        told.texts.append(line)

    async def _learn(
        self,
        config: CheckConfig,
        result: ProgramResult,
        marks: Mapping[Path, str],
        warnings: list[str] | None = None,
    ) -> list[Problem]:
        """Keep what a check says of these contents; what of it is new, if that can be told."""
        known = self._known.setdefault(config, _Known())
        if why := _why_not(result):
            said = self._unsaid if warnings is None else warnings
            self._warn(f"the check {program_of(config.check)} after edits: {why}", said)
            known.elsewhere = None  # what comes next cannot be compared
            return []
        names = {self._name(path): path for path in marks}
        found = await asyncio.to_thread(problems_in, result, self._root, names)
        new: list[Problem] = []
        for path, mark in marks.items():
            mine = tuple(each for each in found if each.path == str(path))
            if path in known.files:
                new += new_among(mine, known.files[path][1])
            known.files[path] = (mark, mine)
        others = tuple(each for each in found if not each.path)
        if known.elsewhere is not None:
            new += new_among(others, known.elsewhere)
        known.elsewhere = others
        return new

    def _report(self, config: CheckConfig, found: Sequence[Problem], told: _Told) -> None:
        if not found:
            return
        files = dict.fromkeys(self._name(Path(each.path)) for each in found if each.path)
        count = f"{len(found)} new problem{'s' if len(found) > 1 else ''}"
        where = f" in {_listed(list(files))}" if files else ""
        name = program_of(config.check)
        told.news.append(f"{name}: {count}{where}")
        shown = [one_line(each.text, _MAX_LINE) for each in found[: told.left]]
        told.left -= len(shown)
        left = len(found) - len(shown)
        more = [f"… and {left} more"] if left else []
        told.texts.append("\n".join((f"{name}: {count}{where}:", *shown, *more)))

    async def _run(
        self,
        config: CheckConfig,
        command: str,
        paths: Sequence[Path],
        cancel: CancelToken,
        stdin: bytes = b"",
    ) -> ProgramResult:
        names = " ".join(shlex.quote(self._name(path)) for path in paths)
        if "{files}" in command:
            command = command.replace("{files}", names)
        elif config.adds_files and names:
            command = f"{command} {names}"
        services = self._services
        program = Program(
            command, self._root, stdin, config.timeout_s, _PLAIN, services.owner, contained=True
        )
        return await services.run(program, cancel)

    def _name(self, path: Path) -> str:
        name = os.path.relpath(path, self._root)
        return f"./{name}" if name.startswith("-") else name

    def _warn(self, line: str, warnings: list[str]) -> None:
        if line not in self._warned:
            self._warned.add(line)
            warnings.append(one_line(line, _MAX_LINE))


_PLAIN = {"NO_COLOR": "1", "TERM": "dumb", "CLICOLOR": "0", "PY_COLORS": "0", "FORCE_COLOR": "0"}


def _why_not(result: ProgramResult) -> str:
    """Why a program has not done its work; empty when it has."""
    if result.code is None or result.problem:
        return result.problem or "it did not run"
    if result.code < _DID_NOT_RUN:
        return ""
    return _said(result) or f"it ended with exit code {result.code}"


def _said(result: ProgramResult) -> str:
    text = (result.stderr.strip() or result.stdout).decode("utf-8", "replace")
    return one_line(plain_text(_COLOURS.sub("", text)), _MAX_LINE)


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"


def _contents(paths: Iterable[Path]) -> dict[Path, bytes | None]:
    """What files at resolved paths hold; ``None`` for what is none, or too large. Blocks."""
    return {path: _read(path) for path in paths}


def _read(path: Path) -> bytes | None:
    try:
        with open_resolved(path) as file:
            data = file.read(MAX_FILE_BYTES + 1)
    except (OSError, ValueError):
        return None
    return data if len(data) <= MAX_FILE_BYTES else None


def _mark(data: bytes | None) -> str:
    return hashlib.sha256(data or b"").hexdigest()


# --- what a project's own configuration stands for -------------------------------------------


_RUFF = (".ruff.toml", "ruff.toml")
_MYPY = ("mypy.ini", ".mypy.ini")
_PRETTIER = re.compile(r"\.prettierrc(?:\..+)?|prettier\.config\..+")
_ESLINT = re.compile(r"\.eslintrc(?:\..+)?|eslint\.config\..+")
_SCRIPTS = ("*.{js,jsx,mjs,cjs,ts,tsx,mts,cts}",)
_PRETTY = ("*.{js,jsx,mjs,cjs,ts,tsx,mts,cts,json,css,scss,less,html,vue,md,yaml,yml}",)
_EDITION = re.compile(r'^\s*edition\s*=\s*"(\d{4})"', re.MULTILINE)
_MAX_CONFIG_BYTES = 1_000_000


def found_checks(root: Path, find: Callable[[str], str | None]) -> list[CheckConfig]:
    """The checks that the project's own configuration in ``root`` stands for. Blocks.

    ``find`` finds a program outside of the workspace; one that the project brings, or that runs
    code of it (plugins, build scripts), is marked ``runs_project``. A formatter is one only where
    the project says that it uses it.
    """
    project = _ProjectFiles(root)
    python, settings = ("*.py", "*.pyi"), project.text("pyproject.toml")
    names = project.names
    wanted: list[tuple[str, CheckConfig]] = []

    def add(program: str, globs: tuple[str, ...], **more: object) -> None:
        wanted.append((program, _config(program, globs, **more)))

    if names & {*_RUFF} or "[tool.ruff" in settings:
        own = "".join(project.text(name) for name in _RUFF)
        formats = "[tool.ruff.format" in settings or "[format]" in own
        check = "ruff check --quiet --output-format concise {files}"
        add("ruff", python, check=check, format="ruff format --quiet {files}" if formats else "")
    if names & {*_MYPY} or "[tool.mypy" in settings or "[mypy]" in project.text("setup.cfg"):
        check = "mypy --no-error-summary --no-pretty --hide-error-context {files}"
        add("mypy", python, check=check, timeout_s=60.0, runs_project=True)
    if "go.mod" in names:
        add("gofmt", ("*.go",), format="gofmt -w {files}")
    if "Cargo.toml" in names:
        edition = _EDITION.search(project.text("Cargo.toml"))
        year = edition[1] if edition else "2021"
        add("rustfmt", ("*.rs",), format=f"rustfmt --edition {year}", is_filter=True)
        clippy = "cargo clippy --quiet --offline --message-format short"
        add("cargo", ("*.rs",), check=clippy, timeout_s=60.0, adds_files=False, runs_project=True)
    if any(map(_PRETTIER.fullmatch, names)) or '"prettier": {' in project.text("package.json"):
        command = "prettier --write --log-level warn {files}"
        add("prettier", _PRETTY, format=command, runs_project=True)
    if any(map(_ESLINT.fullmatch, names)):
        add("eslint", _SCRIPTS, check="eslint --no-color {files}", runs_project=True)
    return [each for each in (_located(root, *pair, find) for pair in wanted) if each is not None]


def _config(program: str, globs: tuple[str, ...], **more: object) -> CheckConfig:
    from agentcli.domain.extensions.checks import CheckConfig

    return CheckConfig(globs, source=f"{program} of this project", **{"timeout_s": 30.0, **more})  # type: ignore[arg-type]  # as the callers above give them


def _located(
    root: Path, program: str, config: CheckConfig, find: Callable[[str], str | None]
) -> CheckConfig | None:
    """``config`` where its program is: outside of the project, else what the project brings."""
    from dataclasses import replace

    own = (root / place / program for place in ("node_modules/.bin", ".venv/bin", "venv/bin"))
    outside = find(program)
    there = outside or next((str(path) for path in own if os.access(path, os.X_OK)), None)
    if there is None:
        return None
    commands = {
        kind: f"{shlex.quote(there)}{text.removeprefix(program)}"
        for kind, text in (("format", config.format), ("check", config.check))
        if text
    }
    runs_project = config.runs_project or outside is None or is_chosen_there(outside)
    return replace(config, **commands, runs_project=runs_project)  # type: ignore[arg-type]  # the first are texts


class _ProjectFiles:
    """What stands in a project's root, read once and bounded."""

    def __init__(self, root: Path) -> None:
        self._root = root
        try:
            self.names = frozenset(os.listdir(root))  # noqa: PTH208 - names, not paths
        except OSError:
            self.names = frozenset()
        self._texts: dict[str, str] = {}

    def text(self, name: str) -> str:
        """A file's text; empty when there is none."""
        if name not in self._texts:
            data = _read(self._root / name) if name in self.names else None
            self._texts[name] = (data or b"")[:_MAX_CONFIG_BYTES].decode("utf-8", "replace")
        return self._texts[name]
