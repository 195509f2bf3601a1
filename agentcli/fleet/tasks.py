"""The tasks of a batch: JSON Lines or CSV, checked as a whole before anything runs (SCALE-2).

Laws: a mistake is one line that names its line in the file. A task is known by its ``id``, or else
by what its row says, so that a list that has grown or was sorted names the same tasks; rows that
say the same are told apart by which of them comes first. A row takes permissions away and gives
none; one that fills a template is data, which chooses neither model nor permission mode, and no
directory elsewhere unless the user has named its column (SEC-1).
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from agentcli.domain.errors import UsageError
from agentcli.domain.files import open_named
from agentcli.domain.values import frozen
from agentcli.ui.sanitize import clean_line

MAX_TASKS_BYTES = 512 * 1024 * 1024
MAX_CELL_CHARS = 10_000_000
FIELDS = ("prompt", "id", "cwd", "model", "permission_mode", "max_budget_usd", "timeout_s")
_CHOICES = ("model", "permission_mode")  # which are the user's, not those of data
_MODES = ("plan", "default", "accept-edits", "auto", "yolo")  # each allows more than the last
_PLACEHOLDER = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")
_ID_DIGITS = 12
_LONGEST_ID = 200
_SHOWN = 60


@frozen
class BatchTask:
    """One row. ``cwd`` is absolute; what the row does not say is ``None``.

    ``content`` is a digest of what it says, ``line`` where it stands, from 1. The last five are
    for tasks that no row stands for: more options of ``agent run``, what its result must satisfy,
    a prompt that is data alone (see ``TaskCall``), how often it is tried again when it has failed,
    a worktree of its own.
    """

    id: str
    prompt: str
    cwd: Path
    content: str
    line: int
    model: str | None = None
    permission_mode: str | None = None
    max_budget_usd: float | None = None
    timeout_s: float | None = None
    arguments: tuple[str, ...] = ()
    schema: str | None = None
    is_data: bool = False
    retries: int = 0
    worktree: bool = False


@frozen
class TasksFile:
    """What to read: the bytes of a file, its name, and how its rows become tasks.

    ``template`` makes the prompt of what a row says, ``{column}`` by ``{column}``. ``cwd_field`` is
    the column with the directory, relative to ``base``, where the user has named one. ``mode`` is
    the widest that a row may ask for. ``say`` is told what may surprise.
    """

    data: bytes
    name: str
    base: Path
    template: str | None = None
    cwd_field: str | None = None
    mode: str = "yolo"
    say: Callable[[str], None] = lambda _: None


def tasks_data(path: Path) -> bytes:
    """What a file or a pipe holds, hardly more than it may. Raises ``OSError``."""
    with open_named(path) as file:
        return file.read(MAX_TASKS_BYTES + 1)


def read_tasks(source: TasksFile) -> tuple[BatchTask, ...]:
    """All tasks, in their order. Raises ``UsageError`` for the first mistake."""
    if len(source.data) > MAX_TASKS_BYTES:
        most = f"{MAX_TASKS_BYTES // 1024 // 1024} MB"
        raise UsageError(f"{source.name} is larger than {most}", "split it into several batches")
    try:
        text = source.data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = source.data.count(b"\n", 0, error.start) + 1
        raise UsageError(f"{source.name}, line {line}: not UTF-8", "save it as UTF-8") from None
    is_csv = _is_csv(source, text)
    rows = _csv_rows(source, text) if is_csv else _json_rows(source, text)
    tasks: list[BatchTask] = []
    seen: dict[str, int] = {}
    alike: Counter[str] = Counter()
    chosen: set[str] = set()
    for line, row in rows:
        chosen.update(name for name in _CHOICES if name in row)
        task = _TaskRow(source, line, row, is_csv=is_csv).task()
        if not task.id:
            alike[task.content] += 1
            count = alike[task.content]
            task = replace(task, id=task.content[:_ID_DIGITS] + (f"-{count}" if count > 1 else ""))
        if task.id in seen:
            what = f"the id {_short(task.id)} stands in line {seen[task.id]} already"
            raise _wrong(source, line, what, "give each task an id of its own, or none")
        seen[task.id] = line
        tasks.append(task)
    if not tasks:
        raise UsageError(f"{source.name} holds no tasks", 'one in a line: {"prompt": "..."}')
    if source.template is not None:
        for name in chosen.difference(_placeholders(source.template)):
            source.say(f"{source.name}: with --prompt, {name} is data and chooses nothing")
    return tuple(tasks)


def _wrong(source: TasksFile, line: int, what: str, advice: str) -> UsageError:
    return UsageError(f"{source.name}, line {line}: {what}", advice)


def _short(text: str) -> str:
    shown = clean_line(text)
    return shown if len(shown) <= _SHOWN else shown[: _SHOWN - 3] + "..."


# --- rows ---------------------------------------------------------------------------------------


def _is_csv(source: TasksFile, text: str) -> bool:
    suffix = Path(source.name).suffix.lower()
    if suffix in {".csv", ".tsv"}:
        return True
    return suffix not in {".jsonl", ".ndjson", ".json"} and text.lstrip()[:1] not in {"{", "["}


def _json_rows(source: TasksFile, text: str) -> Iterator[tuple[int, Mapping[str, Any]]]:
    # not splitlines: a string of JSON may hold the other line ends of Unicode
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line, object_pairs_hook=_unique)
        except json.JSONDecodeError as error:
            what = f"not JSON: {error.msg} (column {error.colno})"
            raise _wrong(source, number, what, "one object in each line") from None
        except (ValueError, RecursionError) as error:
            why = str(error) if isinstance(error, ValueError) else "nested too deeply"
            raise _wrong(source, number, f"not usable: {why}", "correct it") from None
        if not isinstance(row, dict):
            raise _wrong(source, number, "not an object", 'write {"prompt": "..."}')
        yield number, row


def _unique(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    row = dict(pairs)
    if len(row) < len(pairs):
        twice = next(
            name for name, count in Counter(name for name, _ in pairs).items() if count > 1
        )
        raise ValueError(f"{_short(twice)} stands there twice")
    return row


def _csv_rows(source: TasksFile, text: str) -> Iterator[tuple[int, Mapping[str, Any]]]:
    csv.field_size_limit(MAX_CELL_CHARS)
    head = text.lstrip("\r\n").split("\n", 1)[0]
    mark = max(",;\t", key=head.count)  # the comma, where none of them is there
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=mark, strict=True)
    names: list[str] = []
    begins = 1
    try:
        for cells in reader:
            line, begins = begins, reader.line_num + 1
            if not any(cell.strip() for cell in cells):
                continue
            if not names:
                names = [cell.strip() for cell in cells]
                _check_head(source, line, names)
                continue
            if len(cells) != len(names):
                what = f"{len(cells)} cells, and the head names {len(names)} columns"
                raise _wrong(source, line, what, "quote a cell that holds the separator")
            yield (
                line,
                {name: cell for name, cell in zip(names, cells, strict=True) if cell.strip()},
            )
    except csv.Error as error:
        advice = 'a quote within a quoted cell is written as ""'
        raise _wrong(source, begins, f"not CSV: {error}", advice) from None


def _check_head(source: TasksFile, line: int, names: Sequence[str]) -> None:
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        what = f"two columns are called {_short(twice[0]) or 'nothing'}"
        raise _wrong(source, line, what, "give each a name of its own")
    if source.template is None and "prompt" not in names:
        advice = "name a column so, or say it for all rows: --prompt 'TEXT with {COLUMN}'"
        raise _wrong(source, line, "there is no column prompt", advice)
    for name in _placeholders(source.template or ""):
        if name not in names:
            raise _wrong(source, line, f"there is no column {_short(name)}", _near(name, names))


# --- what a row says ------------------------------------------------------------------------------


def _placeholders(template: str) -> list[str]:
    return [found[1] for found in _PLACEHOLDER.finditer(template) if found[1] is not None]


def check_template(template: str) -> None:
    """Raise ``UsageError`` for a template with a brace that is neither a column nor doubled."""
    for found in _PLACEHOLDER.finditer(template):
        if found[0] in {"{", "}"} or (found[1] is not None and not found[1].strip()):
            what = f"--prompt: a brace at character {found.start() + 1} encloses no column"
            raise UsageError(what, "write {column}, and {{ or }} for a brace itself")


def _filled(template: str, row: Mapping[str, Any]) -> str:
    def value(found: re.Match[str]) -> str:
        if found[1] is None:
            return found[0][:1]
        given = row.get(found[1], "")
        return given if isinstance(given, str) else json.dumps(given, ensure_ascii=False)

    return _PLACEHOLDER.sub(value, template)


def _near(name: str, names: Sequence[str]) -> str:
    near = get_close_matches(name, names, n=2, cutoff=0.5)
    if near:
        return f"did you mean {' or '.join(map(_short, near))}?"
    shown = ", ".join(map(_short, names[:10]))
    return f"there are: {shown}" if shown else "there is none at all"


class _TaskRow:
    """One row on its way to a task."""

    def __init__(
        self, source: TasksFile, line: int, row: Mapping[str, Any], *, is_csv: bool
    ) -> None:
        self._is_csv = is_csv
        self._source = source
        self._line = line
        self._row = row

    def _wrong(self, what: str, advice: str) -> UsageError:
        return _wrong(self._source, self._line, what, advice)

    def task(self) -> BatchTask:
        """The task; without an ``id`` where the row gives none. Raises ``UsageError``."""
        self._check_names()
        template = self._source.template
        prompt = self._text("prompt") if template is None else _filled(template, self._row)
        if prompt is None or not prompt.strip():
            advice = "give one" if template is None else "fill in the columns that --prompt names"
            raise self._wrong("the prompt is empty", advice)
        prompt = prompt.encode("utf-8", "replace").decode()  # halves of characters
        given = self._text(self._source.cwd_field or "cwd")
        task = BatchTask(
            id=self._id(),
            prompt=prompt,
            cwd=self._directory(given),
            content="",
            line=self._line,
            model=self._model() if template is None else None,
            permission_mode=self._mode() if template is None else None,
            max_budget_usd=self._number("max_budget_usd"),
            timeout_s=self._number("timeout_s") or None,
            is_data=template is not None and bool(_placeholders(template)),
        )
        said = [prompt, given, *(getattr(task, name) for name in FIELDS[3:])]
        digest = hashlib.sha256(json.dumps(said).encode())
        return replace(task, content=digest.hexdigest())

    def _check_names(self) -> None:
        """With a template any column may be there, of which it takes what it names."""
        source, row = self._source, self._row
        known = [*FIELDS, *filter(None, (source.cwd_field,))]
        if source.template is None:
            # a table may have columns for others; a key of JSON was written for this
            wrong = [name for name in row if name not in known and not self._is_csv]
            if wrong:
                raise self._wrong(f"unknown key {_short(wrong[0])}", _near(wrong[0], known))
            if "prompt" not in row:
                raise self._wrong("there is no prompt", _near("prompt", list(row)))
            return
        for name in _placeholders(source.template):
            if name not in row and not self._is_csv:
                raise self._wrong(f"there is no {_short(name)}", _near(name, list(row)))

    def _text(self, name: str) -> str | None:
        value = self._row.get(name)
        if value is not None and not isinstance(value, str):
            raise self._wrong(f"{_short(name)} is {_kind(value)}", "it must be a text")
        return value

    def _number(self, name: str) -> float | None:
        value = self._row.get(name)
        if value is None:
            return None
        try:
            is_number = isinstance(value, int | float) or (self._is_csv and isinstance(value, str))
            found = float(value) if is_number and not isinstance(value, bool) else -1.0
        except (ValueError, OverflowError):
            found = -1.0
        if not 0 <= found < float("inf"):
            shown = _short(value) if isinstance(value, str) else _kind(value)
            raise self._wrong(f"{name} is {shown}", "it must be a number of at least 0")
        return found

    def _model(self) -> str | None:
        value = self._text("model")
        if value is not None and not (value.strip() and value.isprintable()):
            raise self._wrong(f"the model {_short(value)!r} cannot be", "write PROVIDER/MODEL")
        return value

    def _mode(self) -> str | None:
        value = self._text("permission_mode")
        if value is None:
            return None
        if value not in _MODES:
            raise self._wrong(
                f"permission_mode {_short(value)} is not valid", "one of: " + ", ".join(_MODES)
            )
        most = self._source.mode
        if _MODES.index(value) > _MODES.index(most):
            what = f"permission_mode {value} is more than {most}, which the batch has"
            raise self._wrong(what, f"start it with --permission-mode {value}, if you want that")
        return value

    def _id(self) -> str:
        value = self._row.get("id")
        if value is None:
            return ""
        if isinstance(value, bool) or not isinstance(value, str | int):
            raise self._wrong(f"id is {_kind(value)}", "it must be a text or a whole number")
        text = str(value).strip()
        if not text or len(text) > _LONGEST_ID or not text.isprintable():
            what = f"the id {_short(text)} cannot be used" if text else "the id is empty"
            raise self._wrong(what, f"at most {_LONGEST_ID} characters that can be printed")
        return text

    def _directory(self, given: str | None) -> Path:
        source = self._source
        name = source.cwd_field or "cwd"
        if given is None:
            return source.base
        try:
            path = source.base / Path(given).expanduser()
            may_leave = source.template is None or source.cwd_field is not None
            if not may_leave and not path.resolve().is_relative_to(source.base.resolve()):
                what = f"{name} {_short(given)} is outside of {source.base}"
                raise self._wrong(what, f"if you want that, give --cwd-field {name}")
            real = path.resolve()
            named = Path(os.path.normpath(path))
            if named.is_relative_to(source.base) and not real.is_relative_to(source.base.resolve()):
                raise self._wrong(  # an earlier task may have made it
                    f"{name} {_short(given)} is a link to {real}", "name that directory instead"
                )
            if path.is_dir():
                return real
            reason = "is no directory" if path.exists() else "does not exist"
        except (OSError, RuntimeError, ValueError):
            reason = "cannot be read"
        raise self._wrong(f"{name} {_short(given)} {reason}", "name a directory")


def _kind(value: object) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    kinds = {int: "a number", float: "a number", str: "a text", list: "a list", dict: "an object"}
    return kinds.get(type(value), "something else")
