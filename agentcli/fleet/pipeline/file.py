"""A pipeline's file: read, checked as a whole, every mistake with its line (SCALE-5).

::

    [inputs]
    directory = "src"

    [steps.find]
    prompt = "Which modules in {{inputs.directory}} use the old client?"
    schema = "modules.schema.json"

    [steps.change]
    for_each = "steps.find.result.modules"
    prompt = "Use the new client in {{item.path}}."

Law: what is read without an error can run: every step, input, field and file that it names is
there, no step waits for itself, and a list is a list as far as its schema says. One reading tells
all that is wrong.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from difflib import get_close_matches
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from agentcli.domain.errors import ConfigError, UsageError
from agentcli.domain.files import open_named
from agentcli.domain.values import frozen
from agentcli.fleet.pipeline.expressions import (
    Expression,
    Operation,
    Reference,
    Template,
    WrongExpression,
    parse,
    parse_template,
    problems,
    references,
    shape,
)
from agentcli.fleet.pipeline.expressions import Literal as Given
from agentcli.fleet.pipeline.shapes import NUMBER, TEXT, ValueShape, list_of, shape_of, type_of

MAX_BYTES = 1_000_000
MAX_STEPS = 500
MAX_RETRIES = 10
STATES = ("done", "failed", "skipped", "blocked")
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")
_HEADER = re.compile(r"\s*\[\[?\s*+([^\]#\s]++(?:\s++[^\]#\s]++)*+)\s*\]\]?\s*(?:#.*)?")
_KEY = re.compile(r"""\s*((?:[\w-]+|"[^"]*"|'[^']*')(?:\s*\.\s*(?:[\w-]+|"[^"]*"|'[^']*'))*)\s*=""")
_PART = re.compile(r"""[\w-]+|"[^"]*"|'[^']*'""")
_ROOTS = ("inputs", "steps", "item", "index")
_OF_STEP = ("result", "results", "state", "error")
_ALL_OF_IT = (("steps",), ("inputs",))  # without these nothing else can be judged
_MAX_READINGS = 4
_UNREAD = "-"  # the prompt of a step that has none
Where = tuple[str, ...]
Check = Callable[[str, str], str]
"""What is wrong with the value of a step's key where it is to run; empty: nothing."""


# --- values ----------------------------------------------------------------------------------


@frozen
class RunSettings:
    """How a step's runs are started; ``None`` leaves it to the settings of the user."""

    agent: str | None = None
    model: str | None = None
    permission_mode: str | None = None
    allow_tools: tuple[str, ...] = ()
    worktree: bool = False
    timeout_s: float | None = None
    max_budget_usd: float | None = None
    retry: int = 0


@frozen
class Step:
    """One step. ``needs`` are the steps that it waits for, by name or because it refers to them.

    ``watches`` are those of them whose end, good or bad, it asks for. ``each`` is the list that it
    is run over, ``schema`` what its result must satisfy; ``definition`` is all of it as plain data.
    """

    name: str
    line: int
    prompt: Template
    settings: RunSettings
    needs: tuple[str, ...]
    watches: frozenset[str]
    when: Expression | None
    each: Expression | None
    cwd: Template | None
    schema: Any
    definition: Mapping[str, Any]


@frozen
class StepPipeline:
    """A checked file; its steps in an order in which they can run."""

    name: str
    description: str
    steps: tuple[Step, ...]
    inputs: Mapping[str, Any]
    max_budget_usd: float | None

    def step(self, name: str) -> Step:
        """The step of that name."""
        return next(step for step in self.steps if step.name == name)


# --- the file as it is written ---------------------------------------------------------------

_Positive = Field(default=None, gt=0, allow_inf_nan=False)


class _RunKeys(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    agent: str | None = None
    model: str | None = None
    permission_mode: Literal["default", "accept-edits", "auto", "plan", "yolo"] | None = None
    allow_tools: list[str] = []
    worktree: bool = False
    timeout_s: float | None = _Positive
    max_budget_usd: float | None = _Positive
    retry: int = Field(default=0, ge=0, le=MAX_RETRIES)
    cwd: str | None = None


class _StepKeys(_RunKeys):
    prompt: str
    needs: list[str] = []
    when: Any = None
    for_each: Any = None
    schema_: Any = Field(default=None, alias="schema")


class _FileKeys(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    name: str = ""
    description: str = ""
    max_budget_usd: float | None = _Positive
    inputs: dict[str, Any] = {}
    defaults: _RunKeys = _RunKeys()
    steps: dict[str, _StepKeys]


_WORDS = {
    "missing": "is missing",
    "string_type": "must be a text",
    "bool_type": "must be true or false",
    "int_type": "must be a whole number",
    "float_type": "must be a number",
    "list_type": "must be a list",
    "dict_type": "must be a table",
    "model_type": "must be a table",
    "greater_than": "must be more than {gt:g}",
    "greater_than_equal": "must be at least {ge}",
    "less_than_equal": "must be at most {le}",
    "literal_error": "must be one of: {expected}",
    "finite_number": "must be a finite number",
}


def read_pipeline(
    path: Path, given: Mapping[str, str] | None = None, check: Check | None = None
) -> StepPipeline:
    """The pipeline in the file ``path``, its inputs as ``given`` by name.

    ``check`` judges each agent, model, permission mode, rule, directory and schema's file that it
    names.

    Raises ``ConfigError`` with all that is wrong, ``UsageError`` for a file that cannot be read or
    an input that it has not.
    """
    text = _text_of(path)
    try:
        raw = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise _wrong(path, [str(error)[:1].lower() + str(error)[1:]]) from None
    except RecursionError:
        raise _wrong(path, ["nested too deeply"]) from None
    plain = json.loads(json.dumps(raw, default=str))
    reading = _PipelineReading(path, text, plain, check or (lambda _key, _value: ""))
    return reading.pipeline(given or {})


def _text_of(path: Path) -> str:
    advice = "name a file of steps: agent pipeline run FILE.toml"
    try:
        with open_named(path) as file:
            data = file.read(MAX_BYTES + 1)
        if len(data) > MAX_BYTES:
            raise UsageError(f"{path}: larger than {MAX_BYTES:,} bytes", advice)
        return data.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError:
        raise UsageError(f"{path}: not UTF-8", advice) from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise UsageError(f"cannot read {path}: {reason.lower()}", advice) from None


def _wrong(path: Path, lines: Sequence[str]) -> ConfigError:
    return ConfigError(f"{path} cannot run", "correct it; nothing has run", tuple(lines))


def _worded(where: Where, error: Any) -> str:
    if error["type"] == "extra_forbidden":
        return f"is unknown{_near(where[-1], _known_keys(where))}"
    return _WORDS.get(error["type"], str(error["msg"])).format(**error.get("ctx", {}))


def _known_keys(where: Where) -> list[str]:
    """The keys that there may be beside the one at ``where``."""
    models: Mapping[str, type[BaseModel]] = {"defaults": _RunKeys, "steps": _StepKeys}
    model = models.get(where[0], _FileKeys)
    return [field.alias or name for name, field in model.model_fields.items()]


class _PipelineReading:
    """One reading of one file. ``_found`` are the mistakes so far, with their places."""

    def __init__(self, path: Path, text: str, raw: dict[str, Any], check: Check) -> None:
        self._path = path
        self._raw = raw
        self._check = check
        self._lines = _lines_of(text)
        self._found: list[tuple[Where, str]] = []
        self._inputs: dict[str, Any] = {}
        self._results: dict[str, ValueShape] = {}  # of one run of each step
        self._schemas: dict[str, Any] = {}
        self._fans: set[str] = set()

    def pipeline(self, given: Mapping[str, str]) -> StepPipeline:
        """All of it; raises ``ConfigError``, ``UsageError``."""
        keys = self._keys()
        self._inputs = {**keys.inputs, **self._given(keys.inputs, given)}
        for name, step in keys.steps.items():
            self._note_result(name, step)
        steps = [self._step(name, step, keys.defaults) for name, step in keys.steps.items()]
        ordered = self._ordered(steps)
        self._check_directories(ordered)
        self._raise_found()
        return StepPipeline(
            keys.name or self._path.stem,
            keys.description,
            ordered,
            self._inputs,
            keys.max_budget_usd,
        )

    def _keys(self) -> _FileKeys:
        """The file's keys; what is wrong with some is told, and the rest is read without them."""
        for _ in range(_MAX_READINGS):
            try:
                keys = _FileKeys.model_validate(self._raw)
            except ValidationError as error:
                self._leave_out(error.errors(include_url=False))
            else:
                break
        else:
            self._raise_found()
            raise AssertionError
        if not keys.steps:
            self._say(("steps",), "has no step")
        if len(keys.steps) > MAX_STEPS:
            self._say(("steps",), f"has more than {MAX_STEPS} steps")
            self._raise_found()
        for table, names in (("steps", keys.steps), ("inputs", keys.inputs)):
            for name in names:
                if not _NAME.fullmatch(name):
                    self._say((table, name), "is no name: letters, digits, - and _ only")
        return keys

    def _leave_out(self, errors: Sequence[Any]) -> None:
        """Tell of ``errors``; what is wrong goes, or is taken for what was meant."""
        is_lost = False
        for each in sorted(errors, key=lambda each: bool(each["type"] != "extra_forbidden")):
            where = tuple(str(part) for part in each["loc"])
            *path, key = where[: {"steps": 3, "defaults": 2}.get(where[0], 1)]
            table = self._raw
            for part in path:
                table = table[part]
            if each["type"] == "missing" and key in table:
                continue  # it was misspelt
            self._say(where, _worded(where, each))
            if where in _ALL_OF_IT:
                is_lost = True
                continue
            if path == ["steps"]:
                table[key] = {"prompt": _UNREAD}
                continue
            value = table.pop(key, None)
            if key == "prompt":
                table[key] = _UNREAD
            elif each["type"] == "extra_forbidden":
                for meant in get_close_matches(key, _known_keys(where), 1, 0.5):
                    table.setdefault(meant, value)
                    self._lines.setdefault((*where[:-1], meant), self._line(where))
        if is_lost:
            self._raise_found()

    def _given(self, inputs: Mapping[str, Any], given: Mapping[str, str]) -> dict[str, Any]:
        """The values of ``--input``, of the types that the file has for them."""
        found: dict[str, Any] = {}
        for name, text in given.items():
            if name not in inputs:
                advice = f"there are: {', '.join(inputs) or 'none'}"
                raise UsageError(f"{self._path} has no input {name}", advice)
            kind = type_of(inputs[name])
            value: Any = text
            if kind != "string":
                try:
                    value = json.loads(text)
                except (ValueError, RecursionError):
                    value = None
                if type_of(value) != kind:
                    shown = {"boolean": "true or false", "array": "a list as JSON"}
                    wanted = shown.get(kind, f"JSON: {kind}")
                    raise UsageError(f"--input {name}={text[:80]} is not valid", f"give {wanted}")
            found[name] = value
        return found

    def _note_result(self, name: str, step: _StepKeys) -> None:
        """What a step will have to offer, before any other is looked at."""
        if step.for_each is not None:
            self._fans.add(name)
        if step.schema_ is None:
            self._results[name] = TEXT
            return
        self._results[name] = ValueShape()
        try:
            schema = self._schema(step.schema_)
        except UsageError as error:
            advice = f" ({error.advice})" if error.advice else ""
            self._say(("steps", name, "schema"), f"{error.message}{advice}")
        else:
            self._schemas[name] = schema
            self._results[name] = ValueShape(schema, schema)

    def _schema(self, given: Any) -> Any:
        from agentcli.app.options import result_schema

        if isinstance(given, str):
            path = self._path.parent / given
            if problem := self._check("schema", given):
                raise UsageError(problem)
            try:
                given = json.loads(_text_of(path))
            except ValueError as error:
                raise UsageError(f"{path}: not JSON: {error}") from None
            except RecursionError:
                raise UsageError(f"{path}: nested too deeply") from None
            except UsageError as error:
                raise UsageError(error.message, "a path beside this file") from None
        elif not isinstance(given, dict):
            raise UsageError("must be a table, or the name of a file")
        result_schema(given)
        return given

    # --- a step ---

    def _step(self, name: str, keys: _StepKeys, defaults: _RunKeys) -> Step:
        where = ("steps", name)
        own = keys.model_dump(include=set(_RunKeys.model_fields), exclude_unset=True)
        run = {**defaults.model_dump(exclude_unset=True), **own}
        cwd_text = run.pop("cwd", None)
        prompt = self._template((*where, "prompt"), keys.prompt)
        cwd = None if cwd_text is None else self._template((*where, "cwd"), cwd_text)
        wanted = "a list, or in quotes what names one"
        each = self._expression((*where, "for_each"), keys.for_each, list, wanted)
        wanted = "an expression in quotes, or true or false"
        when = self._expression((*where, "when"), keys.when, bool, wanted)
        if not keys.prompt.strip():
            self._say((*where, "prompt"), "is empty")
        item = shape(each, self._shapes(name, "for_each", references(each))) if each else None
        if each and item and not item.may_be("array"):
            kinds = " or ".join(sorted(item.types()))
            self._say((*where, "for_each"), f"is no list: {_shown(each)} is {kinds}")
        referred = [] if each is None else [*references(each)]
        for key, expressions in (
            ("prompt", _of_template(prompt)),
            ("cwd", _of_template(cwd)),
            ("when", [] if when is None else [when]),
        ):
            for expression in expressions:
                used = [*references(expression)]
                known = self._shapes(name, key, used, item)
                for problem in problems(expression, known):
                    self._say((*where, key), problem)
                referred += used
        needs = self._needs(name, keys.needs, referred)
        self._check_run(name, run, own, has_cwd=cwd is not None)
        definition = keys.model_dump(exclude_unset=True, by_alias=True) | run
        if name in self._schemas:
            definition["schema"] = self._schemas[name]
        return Step(
            name,
            self._line(where),
            prompt,
            RunSettings(**{**run, "allow_tools": tuple(run.get("allow_tools", ()))}),
            needs,
            frozenset(str(r.path[1]) for r in referred if _asks_for_end(r)),
            when,
            each,
            cwd,
            self._schemas.get(name),
            definition,
        )

    def _check_run(
        self, name: str, run: Mapping[str, Any], own: Mapping[str, Any], *, has_cwd: bool
    ) -> None:
        """What the step names is there: told where it is written, with the step or the defaults."""
        for key in ("agent", "model", "permission_mode", "allow_tools"):
            if key not in run or (key == "agent" and has_cwd):  # maybe one of that directory
                continue
            where = ("steps", name, key) if key in own else ("defaults", key)
            for value in run[key] if isinstance(run[key], list) else [run[key]]:
                if problem := self._check(key, value):
                    self._say(where, problem)

    def _check_directories(self, steps: Sequence[Step]) -> None:
        """Those that are known before anything runs, unless an earlier step may make them."""
        makers: set[str] = set()
        for step in steps:
            if any(need in makers for need in step.needs):
                makers.add(step.name)
                continue
            if step.settings.permission_mode != "plan" and not step.settings.worktree:
                makers.add(step.name)
            used = [*(() if step.cwd is None else step.cwd.references())]
            if step.cwd is None or any(each.path[0] != "inputs" for each in used):
                continue
            if problem := self._check("cwd", step.cwd.fill({"inputs": self._inputs})):
                where = ("steps", step.name, "cwd")
                self._say(where if where in self._lines else ("defaults", "cwd"), problem)

    def _needs(self, name: str, named: Sequence[str], used: Sequence[Reference]) -> tuple[str, ...]:
        for other in named:
            if other not in self._results:
                near = _near(other, self._results)
                self._say(("steps", name, "needs"), f"there is no step {other}{near}")
        implied = [str(r.path[1]) for r in used if r.path[0] == "steps" and len(r.path) > 1]
        found = dict.fromkeys((*named, *(other for other in implied if other != name)))
        return tuple(other for other in found if other in self._results)

    def _template(self, where: Where, text: str) -> Template:
        try:
            return parse_template(text)
        except WrongExpression as error:
            self._say(where, str(error))
            return Template(())

    def _expression(
        self, where: Where, given: Any, plain: type[bool | list[Any]], wanted: str
    ) -> Expression | None:
        """What ``given`` comes to: a value of the type ``plain``, or an expression in quotes."""
        if given is None or isinstance(given, plain):
            return None if given is None else Given(given)
        try:
            if isinstance(given, str):
                return parse(given)
            self._say(where, f"must be {wanted}")
        except WrongExpression as error:
            self._say(where, str(error))
        return None

    # --- what is referred to ---

    def _shapes(
        self, step: str, key: str, found: Iterable[Reference], items: ValueShape | None = None
    ) -> dict[Reference, ValueShape]:
        """The shape of each reference; what leads nowhere is a mistake and may be anything."""
        known: dict[Reference, ValueShape] = {}
        for reference in found:
            try:
                known[reference] = self._shape(reference, step, items)
            except WrongExpression as error:
                self._say(("steps", step, key), f"{reference}: {error}")
                known[reference] = ValueShape()
        return known

    def _shape(self, reference: Reference, step: str, items: ValueShape | None) -> ValueShape:
        root, *rest = reference.path
        if root in {"item", "index"}:
            if items is None:
                raise WrongExpression(f"there is no {root} without for_each")
            here = NUMBER if root == "index" else items.element() or ValueShape()
            return _walk(here, rest, str(root))
        if root == "inputs":
            if not rest:
                return shape_of(self._inputs)
            if rest[0] not in self._inputs:
                name = str(rest[0])
                raise WrongExpression(f"there is no input {name}{_near(name, self._inputs)}")
            return _walk(shape_of(self._inputs[str(rest[0])]), rest[1:], f"inputs.{rest[0]}")
        if root != "steps":
            raise WrongExpression(f"{root} is unknown; a value begins with {', '.join(_ROOTS)}")
        if not rest or rest[0] not in self._results:
            name = str(rest[0]) if rest else ""
            raise WrongExpression(f"there is no step {name}{_near(name, self._results)}".rstrip())
        if rest[0] == step:
            raise WrongExpression("a step cannot use its own result")
        return self._of_step(str(rest[0]), rest[1:])

    def _of_step(self, name: str, rest: Sequence[str | int]) -> ValueShape:
        what = str(rest[0]) if rest else ""
        place = f"steps.{name}.{what}"
        if what == "state":
            return _walk(ValueShape({"enum": list(STATES)}), rest[1:], place)
        if what == "error":
            return _walk(TEXT, rest[1:], place)
        if what not in {"result", "results"}:
            raise WrongExpression(f"a step has {', '.join(_OF_STEP)}{_near(what, _OF_STEP)}")
        is_fan = name in self._fans
        if is_fan != (what == "results"):
            right = "results, a list" if is_fan else "result, as it runs once"
            raise WrongExpression(f"step {name} has {right}")
        if len(rest) > 1 + is_fan and name not in self._schemas and self._results[name] == TEXT:
            raise WrongExpression(f"step {name} has no schema, so its result is a text")
        shape_ = list_of(self._results[name]) if is_fan else self._results[name]
        return _walk(shape_, rest[1:], place)

    # --- order, and what is wrong ---

    def _ordered(self, steps: Sequence[Step]) -> tuple[Step, ...]:
        """Each after those that it needs, else in the order of the file."""
        by_name = {step.name: step for step in steps}
        graph = {s.name: [each for each in s.needs if each in by_name] for s in steps}
        left = {name: list(needs) for name, needs in graph.items()}
        while circle := _circle_in(left):
            first = min(circle, key=list(by_name).index)
            at = circle.index(first)
            turned = [*circle[at:-1], *circle[:at], first] if at else circle
            self._say(("steps", first), f"waits for itself: {' needs '.join(turned)}")
            for name in circle:  # so that another is found
                left[name] = [each for each in left[name] if each not in circle]
        if left != graph:
            return ()
        placed: dict[str, Step] = {}
        while len(placed) < len(by_name):
            for step in steps:
                if step.name not in placed and all(each in placed for each in graph[step.name]):
                    placed[step.name] = step
                    break
        return tuple(placed.values())

    def _say(self, where: Where, problem: str) -> None:
        if (where, problem) not in self._found:
            self._found.append((where, problem))

    def _raise_found(self) -> None:
        if self._found:
            ordered = sorted(self._found, key=lambda each: self._line(each[0]))
            raise _wrong(self._path, [self._worded_line(*each) for each in ordered])

    def _worded_line(self, where: Where, problem: str) -> str:
        line = self._line(where)
        name = ".".join(where)
        return f"line {line}: {name}: {problem}" if line else f"{name}: {problem}"

    def _line(self, where: Where) -> int:
        """Where it stands, or what it is a part of; 0: nowhere."""
        while where and where not in self._lines:
            where = where[:-1]
        return self._lines.get(where, 0)


def _circle_in(graph: Mapping[str, Sequence[str]]) -> list[str]:
    """Steps that wait for each other, the first again at the end; empty where none do."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(reversed(error.args[1]))
    return []


def _walk(here: ValueShape, path: Sequence[str | int], place: str) -> ValueShape:
    """The shape at the end of ``path``; raises ``WrongExpression`` where it leads nowhere."""
    for step in path:
        if isinstance(step, int):
            found, what = here.element(), "no list"
        else:
            found = here.field(step)
            fields = here.fields()
            what = f"without a field {step}{_near(step, fields) if fields else ''}"
            if not here.may_be("object"):
                what = f"{' or '.join(sorted(here.types()))} and has no fields"
        if found is None:
            raise WrongExpression(f"{place} is {what}")
        here = found
        place += f"[{step}]" if isinstance(step, int) else f".{step}"
    return here


def _asks_for_end(reference: Reference) -> bool:
    return reference.path[0] == "steps" and reference.path[2:3] in {("state",), ("error",)}


def _of_template(template: Template | None) -> list[Expression]:
    pieces = () if template is None else template.pieces
    return [piece for piece in pieces if not isinstance(piece, str)]


def _shown(expression: Expression) -> str:
    match expression:
        case Reference():
            return str(expression)
        case Operation(name, _):
            return name
        case _:
            return "it"


def _near(name: str, known: Sequence[str] | Mapping[str, Any]) -> str:
    near = get_close_matches(name, list(known), n=2, cutoff=0.5)
    return f" (did you mean {' or '.join(near)}?)" if near else ""


def _lines_of(text: str) -> dict[Where, int]:
    """On which line each table and key of a valid TOML text begins."""
    found: dict[Where, int] = {}
    table: Where = ()
    closing = ""  # what ends a text of several lines
    depth = 0  # of brackets of a list over several lines
    for number, line in enumerate(text.split("\n"), 1):
        rest = line
        if not closing and not depth:
            if header := _HEADER.fullmatch(line):
                table = tuple(part.strip("\"'") for part in _PART.findall(header[1]))
                for size in range(1, len(table) + 1):
                    found.setdefault(table[:size], number)
                continue
            if key := _KEY.match(line):
                parts = tuple(part.strip("\"'") for part in _PART.findall(key[1]))
                for size in range(1, len(parts) + 1):
                    found.setdefault((*table, *parts[:size]), number)
                rest = line[key.end() :]
        closing, depth = _still_open(rest, closing, depth)
    return found


_SIGN = re.compile(r'''"""|\'\'\'|"(?:[^"\\]|\\.)*"|'[^']*'|#.*|[\[\]{}]''')


def _still_open(line: str, closing: str, depth: int) -> tuple[str, int]:
    """What is still open after ``line``: the end of a text, and how many brackets."""
    at = 0
    while at < len(line):
        if closing:
            end = line.find(closing, at)
            while closing == '"""' and end > 0 and line[end - 1] == "\\":
                end = line.find(closing, end + 1)
            if end < 0:
                return closing, depth
            at, closing = end + 3, ""
            continue
        sign = _SIGN.search(line, at)
        if sign is None:
            break
        at = sign.end()
        if sign[0] in {'"""', "'''"}:
            closing = sign[0]
        elif sign[0] in {"[", "{"}:
            depth += 1
        elif sign[0] in {"]", "}"}:
            depth -= 1
    return closing, depth
