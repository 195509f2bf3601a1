"""One list of tasks on several machines: whose each task is, and all results as one (SCALE-3).

Laws: a task belongs to a shard by its id alone, whatever the order of the list and what else it
holds; a directory keeps its shard. Only all shards of one list make one result, each task once;
what does not fit together is said before anything is written. To merge again changes nothing, and
nothing is replaced that no merge of these shards has written.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, Self

from agentcli.domain.errors import UsageError
from agentcli.domain.files import make_private_directory, open_regular
from agentcli.domain.values import frozen
from agentcli.fleet.batch import BatchEnd
from agentcli.fleet.report import (
    ReportRow,
    prompt_shown,
    report_order,
    report_rows,
    write_page,
)
from agentcli.fleet.results import (
    JOURNAL,
    MAX_LINE_BYTES,
    RESULTS,
    SESSIONS,
    Journal,
    read_value,
    refuse_foreign,
    tidy,
    write_json,
    write_whole,
)
from agentcli.fleet.tasks import BatchTask
from agentcli.ui.sanitize import clean_line, safe_json

SHARD = "shard.json"
SHARD_FORMAT = "agentcli-shard/1"
MERGED = "merged.json"
MERGED_FORMAT = "agentcli-merged/1"
MOST_SHARDS = 10_000
_MAX_PAGE_BYTES = 64 * 1024 * 1024
_NAMED = 10
_SPOOL_BYTES = 16 * 1024 * 1024
_NAME = re.compile(r"([0-9]{1,9})/([0-9]{1,9})")


@frozen
class Shard:
    """The ``number`` th of ``count`` parts of a list, from 1."""

    number: int
    count: int

    def __str__(self) -> str:
        """As the option takes it."""
        return f"{self.number}/{self.count}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """The shard called ``i/n``; raises ``UsageError``."""
        if found := _NAME.fullmatch(text.strip()):
            shard = cls(int(found[1]), int(found[2]))
            if 1 <= shard.number <= shard.count <= MOST_SHARDS:
                return shard
        what = f"--shard {clean_line(text)[:40]} is not valid"
        raise UsageError(what, "give it as i/n, i from 1 to n: for example 1/8")

    def holds(self, task_id: str) -> bool:
        """Whether the task is one of this shard."""
        digest = hashlib.sha256(task_id.encode("utf-8", "surrogatepass")).digest()
        return int.from_bytes(digest[:8]) % self.count == self.number - 1


class _TaskPlace(NamedTuple):
    """Where a task stands in the whole list, and how its prompt begins."""

    at: int
    id: str
    prompt: str


@frozen
class _ShardPart:
    """What a directory says of its shard. ``tasks`` digests the whole list, in any order."""

    directory: Path
    shard: Shard
    tasks: str
    places: tuple[_TaskPlace, ...]

    def __str__(self) -> str:
        return f"shard {self.shard} ({clean_line(str(self.directory))})"


def part_of(
    journal: Journal, tasks: Sequence[BatchTask], shard: Shard | None, redact: Callable[[str], str]
) -> tuple[BatchTask, ...]:
    """Those of ``tasks`` that are to run in the journal's directory, which notes its shard.

    Raises ``UsageError`` where the directory is that of another shard.
    """
    path = journal.directory / SHARD
    shown = clean_line(str(journal.directory))
    if path.exists():
        known = _read(journal.directory).shard
        if known != shard:
            advice = f"give --shard {known}, or another directory with -o DIR"
            raise UsageError(f"{shown} holds shard {known}", advice)
    elif shard is not None and journal.tasks:
        advice = "give another directory with -o DIR"
        raise UsageError(f"{shown} holds a batch without shards", advice)
    if shard is None:
        return tuple(tasks)
    places = [
        _TaskPlace(at, task.id, redact(prompt_shown(task.prompt)))
        for at, task in enumerate(tasks)
        if shard.holds(task.id)
    ]
    value = {
        "format": SHARD_FORMAT,
        "shard": shard.number,
        "of": shard.count,
        "tasks": _digest(tasks),
        "places": places,
    }
    write_json(path, value)
    return tuple(tasks[place.at] for place in places)


def _digest(tasks: Sequence[BatchTask]) -> str:
    said = json.dumps(sorted((task.id, task.content) for task in tasks))
    return hashlib.sha256(said.encode()).hexdigest()


def _read(directory: Path) -> _ShardPart:
    """What is noted of a shard; raises ``UsageError``."""
    shown = clean_line(str(directory))
    try:
        part = _parsed(directory, read_value(_content(directory / SHARD)))
    except (FileNotFoundError, NotADirectoryError):
        what = "is no shard of a batch" if directory.is_dir() else "is no directory"
        advice = "name the -o directories of: agent batch TASKS --shard i/n"
        raise UsageError(f"{shown} {what}", advice) from None
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise UsageError(f"cannot read {shown}: {reason}", "make it readable") from error
    except (KeyError, TypeError, ValueError, UsageError):
        part = None
    if part is None:
        raise _damaged(directory / SHARD)
    return part


def _content(path: Path) -> bytes:
    """What a file holds, which a task may have put there (SEC-13). Raises ``OSError``."""
    with open_regular(path) as file:
        data = file.read(MAX_LINE_BYTES + 1)
    return data if len(data) <= MAX_LINE_BYTES else b""


def _parsed(directory: Path, value: Mapping[str, Any]) -> _ShardPart | None:
    if value["format"] != SHARD_FORMAT:
        return None
    places = tuple(_TaskPlace(int(at), str(name), str(said)) for at, name, said in value["places"])
    shard = Shard.parse(f"{value['shard']}/{value['of']}")
    return _ShardPart(directory, shard, str(value["tasks"]), places)


def _damaged(path: Path) -> UsageError:
    advice = "bring its directory again from where it ran"
    return UsageError(f"{clean_line(str(path))} is damaged", advice)


# --- all of them as one --------------------------------------------------------------------------


@frozen
class Merged:
    """What a merge came to. ``unfinished`` are the shards with tasks that have not ended."""

    end: BatchEnd
    unfinished: tuple[Shard, ...]


def merge_shards(
    directories: Sequence[Path],
    into: Path,
    page_of: Callable[[str], str | None],
    redact: Callable[[str], str],
) -> Merged:
    """Write the results, the report and the pages of all shards into one directory.

    ``page_of`` and ``redact`` are those of ``write_page``. Raises ``UsageError`` where the
    directories do not make up one batch, and ``PersistenceError``.
    """
    parts = [_read(path) for path in dict.fromkeys(path.resolve() for path in directories)]
    _check(parts)
    for path in (into / JOURNAL, into / SHARD):
        if path.exists():
            what = f"{clean_line(str(into))} is the directory of a batch"
            raise UsageError(what, "give another -o DIR for what is merged")
    with tempfile.SpooledTemporaryFile(_SPOOL_BYTES) as spool:
        found = _Spooled(spool)
        for part in parts:
            found.take(part)
        if not found.batches & _merged_in(into):
            refuse_foreign(into, "no merge of these shards has written it")
        try:
            make_private_directory(into)
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            what = f"cannot write to {clean_line(str(into))}: {reason}"
            raise UsageError(what, "give another directory with -o DIR") from error
        tidy(into)
        write_json(into / MERGED, {"format": MERGED_FORMAT, "batches": sorted(found.batches)})
        write_whole(into / RESULTS, found.lines())
    write_page(into, found.shown, lambda name: found.page(name) or page_of(name), redact)
    costs = sum(row.cost_usd or 0.0 for row in found.shown)
    end = BatchEnd(Counter(row.state for row in found.shown), 0, costs)
    return Merged(end, tuple(sorted(found.unfinished, key=lambda shard: shard.number)))


def _check(parts: Sequence[_ShardPart]) -> None:
    """Raise ``UsageError`` unless these are all shards of one list."""
    first = parts[0]
    seen: dict[Shard, _ShardPart] = {}
    owners: dict[str, _ShardPart] = {}
    for part in parts:
        if part.shard.count != first.shard.count:
            advice = "merge the shards of one split"
            raise UsageError(f"{part} and {first} are of different splits", advice)
        if part.shard in seen:
            advice = "name each shard once"
            raise UsageError(f"{part} is there twice: {seen[part.shard].directory}", advice)
        if part.tasks != first.tasks:
            advice = "start both again with the same TASKS, then merge"
            raise UsageError(f"{part} and {first} had different TASKS", advice)
        seen[part.shard] = part
        for place in part.places:
            if place.id in owners:
                what = f"the task {clean_line(place.id)} is in {owners[place.id]} and in {part}"
                raise UsageError(what, "bring both directories again from where they ran")
            owners[place.id] = part
    here = {part.shard.number for part in parts}
    missing = [number for number in range(1, first.shard.count + 1) if number not in here]
    if missing:
        names = ", ".join(str(Shard(number, first.shard.count)) for number in missing[:_NAMED])
        more = f" and {len(missing) - _NAMED} more" if len(missing) > _NAMED else ""
        verb = "shard {} is" if len(missing) == 1 else "shards {} are"
        advice = f"name its directory too, or run: agent batch TASKS --shard {names.split(',')[0]}"
        raise UsageError(f"{verb.format(names + more)} missing", advice)


def _merged_in(directory: Path) -> set[str]:
    """The batches whose results a merge has put there."""
    with suppress(OSError, KeyError, TypeError, ValueError):
        value = read_value(_content(directory / MERGED))
        if value["format"] == MERGED_FORMAT:
            return set(map(str, value["batches"]))
    return set()


class _Spooled:
    """The rows of all shards: as text in ``file``, in short in ``shown``."""

    def __init__(self, file: BinaryIO | Any) -> None:
        self._file = file
        self._lines: list[tuple[int, str, int, int]] = []
        self._folders: dict[str, Path] = {}
        self.shown: Sequence[ReportRow] = ()
        self.unfinished: list[Shard] = []
        self.batches: set[str] = set()

    def take(self, part: _ShardPart) -> None:
        """Read the shard to its end, while nobody else is at work on it."""
        if not (part.directory / JOURNAL).exists():
            raise _damaged(part.directory / JOURNAL)
        journal = Journal.open(part.directory)
        try:
            names = [place.id for place in part.places]
            rows = zip(part.places, journal.rows(names), strict=True)
            prompts = {place.id: place.prompt for place in part.places}
            shown = report_rows((self._keep(part, *pair) for pair in rows), prompts)
        except (KeyError, TypeError, ValueError, RecursionError):
            raise _damaged(part.directory / JOURNAL) from None
        finally:
            journal.close()
        self.batches.add(journal.batch)
        self.shown = report_order([*self.shown, *shown])
        if not all(row.state.has_ended for row in shown):
            self.unfinished.append(part.shard)

    def _keep(
        self, part: _ShardPart, place: _TaskPlace, row: Mapping[str, Any]
    ) -> Mapping[str, Any]:
        session = row["session_id"]
        data = safe_json(json.dumps(row, ensure_ascii=False)).encode("utf-8", "backslashreplace")
        self._lines.append((place.at, place.id, self._file.tell(), len(data)))
        self._file.write(data)
        if session is not None:
            self._folders[session] = part.directory / SESSIONS
        return row

    def lines(self) -> Iterator[bytes]:
        """All rows, in the order of the list."""
        for _, _, start, size in sorted(self._lines):
            self._file.seek(start)
            yield self._file.read(size) + b"\n"

    def page(self, session_id: str) -> str | None:
        """The page that the session's shard has of it."""
        try:
            page = self._folders[session_id] / f"{session_id}.html"
            with open_regular(page, os.O_NOFOLLOW) as file:
                data = file.read(_MAX_PAGE_BYTES + 1)
        except OSError:
            return None
        return None if len(data) > _MAX_PAGE_BYTES else data.decode("utf-8", "replace")


def merge_advice(merged: Merged) -> str:
    """What to do next; empty when all is done."""
    if merged.unfinished:
        names = ", ".join(map(str, merged.unfinished[:_NAMED]))
        return f"tasks have not ended in shard {names} - start it again, and merge again"
    if merged.end.is_complete:
        return ""
    return "run what has failed again with --retry-failed in its shard, and merge again"
