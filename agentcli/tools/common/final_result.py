"""``final_result``: the model delivers the result of the run, which ends the turn (CTRL-5).

The schema of that result is checked itself, then judges what the model delivers. Validation is
that of JSON Schema, whole, by the ``jsonschema`` library; the draft is what ``$schema`` names,
else 2020-12 (https://json-schema.org/draft/2020-12). Formats are asserted.
Law: nothing is ever fetched (a reference that leads outside of the schema is an error at the
start); every check ends (a pattern can take for ever on the right text, and references can
multiply: such a schema is checked by a process of its own, which is ended after ``LIMIT_S``); a
text about a wrong value never holds that value.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import Enum
from itertools import islice
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]  # its stubs are a package of their own
from jsonschema.exceptions import SchemaError, best_match  # type: ignore[import-untyped]  # as above
from jsonschema.validators import validator_for  # type: ignore[import-untyped]  # as above
from referencing import Registry
from referencing.exceptions import Unresolvable

from agentcli.domain.errors import ArgumentProblem, InvalidArguments, UsageError
from agentcli.domain.tools import Asks, Tool, ToolDefinition, ToolOutput

NAME = "final_result"
DESCRIPTION = (
    "Deliver the result of the task, in this shape. Call it once, when everything is done: it "
    "ends the task. An answer in words does not count."
)
WRAPPER = "result"
_MAX_PROBLEMS = 20
_MAX_SHOWN = 160
_WHOLE = "(all)"
_TOO_DEEP = "nested too deeply to be checked"
_NOT_FOUND = "the schema refers to {}, which is not in it"
_ADVICE = "correct the schema, see https://json-schema.org/learn"
# providers take an object at the top, and none of these beside it
_NOT_AT_THE_TOP = frozenset(
    {"$ref", "$dynamicRef", "allOf", "anyOf", "oneOf", "not", "if", "enum", "const"}
)
_DEFINITIONS = ("$defs", "definitions")
# what holds schemas by name
_BY_NAME = frozenset({"properties", "patternProperties", "dependentSchemas", *_DEFINITIONS})
# what holds values, not schemas
_DATA = frozenset({"enum", "const", "default", "examples"})
# their messages name fields of the schema or of the value, nothing that a field holds
_TELLING = frozenset(
    {"required", "dependentRequired", "additionalProperties", "unevaluatedProperties"}
)

Json = dict[str, Any]
Schema = Mapping[str, Any] | bool
Check = Callable[[Any], tuple[ArgumentProblem, ...]]
LIMIT_S = 3.0
MAX_NODES = 5_000
"""Parts of a plain schema at most, references replaced by what they lead to."""
_PATTERNS = frozenset({"pattern", "patternProperties"})
_OTHER_REFERENCES = frozenset({"$dynamicRef", "$recursiveRef"})
# nothing is imported from the working directory (SEC-2)
_PLACES = [
    str(Path(file).resolve().parents[up]) for file, up in ((__file__, 3), (jsonschema.__file__, 1))
]
_CODE = (
    f"import sys; sys.path += {_PLACES!r}; "
    "from agentcli.tools.common import final_result; final_result.main()"
)


class FinalResult(Tool):
    """The tool for one schema; see ``domain.tools.Tool``."""

    def __init__(self, schema: ResultSchema) -> None:
        self._schema = schema
        self._definition = ToolDefinition(
            name=NAME,
            display_name="Result",
            description=DESCRIPTION,
            parameters=schema.parameters,
            asks=Asks.NOTHING,
            group="result",
        )

    @property
    def definition(self) -> ToolDefinition:
        """As the schema shapes it."""
        return self._definition

    def parse(self, arguments: Mapping[str, Any]) -> Any:
        """The arguments as they are; raises ``InvalidArguments`` naming each wrong field."""
        if problems := self._schema.argument_problems(arguments):
            raise InvalidArguments(problems)
        return arguments

    async def run(self, args: Any, ctx: Any) -> ToolOutput:
        """The result has been taken."""
        del args, ctx
        return ToolOutput.text("The result was taken.", summary="taken")


class ResultSchema:
    """One ``schema``. ``parameters`` is how it is given to the model; see ``of_arguments``.

    ``apart`` is whether a check that may take long is made by a process of its own. ``check`` is
    asked about what satisfies the schema. Raises ``UsageError`` for what is no JSON schema.
    """

    def __init__(self, schema: object, *, apart: bool = True, check: Check | None = None) -> None:
        self._check = check
        if not isinstance(schema, Mapping | bool):
            raise UsageError(f"a JSON schema is an object, not {_kind(schema)}", _ADVICE)
        self.schema = _of_json(schema)
        self._validator = _validator(schema)
        cost = cost_of(schema) if apart else Cost.PLAIN
        self._apart = cost is not Cost.PLAIN
        if apart:
            _try_out(schema, self._validator, cost)
        self._is_wrapped = isinstance(schema, bool) or not _is_object(schema)
        self.parameters: Json = (
            _wrapped(schema) if self._is_wrapped else {"type": "object", **_mapping(schema)}
        )

    def problems(self, value: Any) -> tuple[ArgumentProblem, ...]:
        """What is wrong with a result, field by field; empty when it satisfies the schema."""
        found = self._schema_problems(value)
        return found if found or self._check is None else self._check(value)

    def _schema_problems(self, value: Any) -> tuple[ArgumentProblem, ...]:
        if self._apart:
            try:
                return tuple(
                    ArgumentProblem(*found) for found in _checked_apart(self.schema, value)
                )
            except _CheckFailed as failure:
                return (ArgumentProblem(_WHOLE, str(failure)),)
        try:
            errors = islice(self._validator.iter_errors(value), _MAX_PROBLEMS)
            return tuple(self._problem(best_match([error])) for error in errors)
        except RecursionError:
            return (ArgumentProblem(_WHOLE, _TOO_DEEP),)
        except Unresolvable as error:
            return (ArgumentProblem(_WHOLE, _NOT_FOUND.format(_cut(str(error.ref)))),)

    def refusal(self, value: Any) -> str:
        """The same in words."""
        return "; ".join(
            problem.problem if problem.field == _WHOLE else f"{problem.field}: {problem.problem}"
            for problem in self.problems(value)
        )

    def of_arguments(self, arguments: Mapping[str, Any]) -> Any:
        """The result in a call's arguments: a schema that is no object's is wrapped in one."""
        if self._is_wrapped and set(arguments) == {WRAPPER}:
            return arguments[WRAPPER]
        return dict(arguments)

    def argument_problems(self, arguments: Mapping[str, Any]) -> tuple[ArgumentProblem, ...]:
        """What is wrong with the arguments of a call."""
        if not self._is_wrapped:
            return self.problems(dict(arguments))
        if set(arguments) != {WRAPPER}:  # a model may leave the wrapper out
            missing = ArgumentProblem(WRAPPER, "the one field there is, and it is required")
            return () if arguments and not self.problems(dict(arguments)) else (missing,)
        return tuple(
            ArgumentProblem(
                WRAPPER if problem.field == _WHOLE else f"{WRAPPER}.{problem.field}",
                problem.problem,
            )
            for problem in self.problems(arguments[WRAPPER])
        )

    @staticmethod
    def _problem(error: Any) -> ArgumentProblem:
        field = ".".join(str(part) for part in error.absolute_path) or _WHOLE
        if error.validator in _TELLING:
            return ArgumentProblem(field, _cut(error.message))
        if error.validator is None:
            return ArgumentProblem(field, "nothing is allowed here")
        rule = json.dumps(error.validator_value, ensure_ascii=False, default=str)
        return ArgumentProblem(field, _cut(f"does not satisfy {error.validator}: {rule}"))


def _of_json(schema: Schema) -> Schema:
    """``schema``; raises ``UsageError`` when it cannot be sent, for example for a NaN."""
    try:
        json.dumps(schema, allow_nan=False)
    except RecursionError:
        raise UsageError("the schema is nested too deeply", "write a simpler schema") from None
    except (TypeError, ValueError) as error:
        raise UsageError(f"the schema is not JSON: {_cut(str(error))}", _ADVICE) from None
    return schema


def _validator(schema: Schema) -> Any:
    if isinstance(schema, Mapping) and not isinstance(schema.get("$schema", ""), str):
        raise UsageError('the schema is not valid: "$schema" is not a text', _ADVICE)
    kind = validator_for(schema, default=jsonschema.Draft202012Validator)
    try:
        kind.check_schema(schema)
        validator = kind(schema, registry=Registry(), format_checker=kind.FORMAT_CHECKER)
        _check_references(schema, validator)
    except SchemaError as error:
        where = ".".join(str(part) for part in error.absolute_path)
        what = f"{where}: {error.message}" if where else error.message
        raise UsageError(f"the schema is not valid: {_cut(what)}", _ADVICE) from None
    except Unresolvable as error:
        raise _not_found(error) from None
    except RecursionError:
        raise UsageError("the schema is nested too deeply", "write a simpler schema") from None
    return validator


def _try_out(schema: Schema, validator: Any, cost: Cost) -> None:
    """Raise ``UsageError`` when not even an empty object can be checked."""
    try:
        if cost is not Cost.ENDLESS:
            next(validator.iter_errors({}), None)
        is_endless = cost is Cost.ENDLESS and (_WHOLE, _TOO_DEEP) in _checked_apart(schema, {})
    except Unresolvable as error:
        raise _not_found(error) from None
    except (RecursionError, _CheckFailed):
        is_endless = True
    if is_endless:
        raise UsageError("the schema refers to itself without end", _ADVICE)


def _not_found(error: Any) -> UsageError:
    return UsageError(
        _NOT_FOUND.format(_cut(str(error.ref))),
        "put what it refers to under $defs; nothing is fetched",
    )


def _check_references(schema: Any, validator: Any) -> None:
    """Raise ``Unresolvable`` for the first reference that leads nowhere."""
    resolver = validator._resolver  # noqa: SLF001 - the library's own, with its base address
    for reference, has_own_address in _references(schema):
        if not has_own_address:
            resolver.lookup(reference)


def _references(node: Any, *, has_own_address: bool = False) -> Iterator[tuple[str, bool]]:
    """Every reference, and whether a part of the schema has an address that it starts from."""
    if isinstance(node, list):
        for item in node:
            yield from _references(item, has_own_address=has_own_address)
    elif isinstance(node, Mapping):
        for key in ("$ref", "$dynamicRef"):
            if isinstance(node.get(key), str):
                yield node[key], has_own_address
        for part in _parts(node):
            inner = has_own_address or (isinstance(part, Mapping) and "$id" in part)
            yield from _references(part, has_own_address=inner)


def _parts(node: Mapping[str, Any]) -> Iterator[Any]:
    """What in ``node`` is a schema, or a list of schemas."""
    for key, value in node.items():
        if key in _BY_NAME and isinstance(value, Mapping):
            yield from value.values()
        elif key not in _DATA:
            yield value


def _is_object(schema: Mapping[str, Any]) -> bool:
    if _NOT_AT_THE_TOP & set(schema):
        return False
    return schema.get("type") == "object" or ("type" not in schema and "properties" in schema)


def _wrapped(schema: Schema) -> Json:
    """An object with the one field ``result``; definitions stay at the top, where they were."""
    inner: Json = {} if schema is True else {"not": {}} if schema is False else _mapping(schema)
    top = {key: inner.pop(key) for key in ("$schema", *_DEFINITIONS) if key in inner}
    return {
        "type": "object",
        "properties": {WRAPPER: _inside(inner)},
        "required": [WRAPPER],
        "additionalProperties": False,
        **_inside(top),
    }


def _inside(node: Any) -> Any:
    """``node`` with the references that led to the root, or to a part of it, led after it."""
    if isinstance(node, list):
        return [_inside(item) for item in node]
    if not isinstance(node, dict):
        return node
    found: Json = {}
    for key, value in node.items():
        if key == "$ref" and isinstance(value, str):
            found[key] = _reference_inside(value)
        elif key in _BY_NAME and isinstance(value, dict):
            found[key] = {name: _inside(each) for name, each in value.items()}
        else:
            found[key] = value if key in _DATA else _inside(value)
    return found


def _reference_inside(reference: str) -> str:
    kept = tuple(f"#/{name}/" for name in _DEFINITIONS)
    if reference != "#" and (not reference.startswith("#/") or reference.startswith(kept)):
        return reference
    return f"#/properties/{WRAPPER}{reference[1:]}"


def _mapping(schema: Schema) -> Json:
    return dict(schema) if isinstance(schema, Mapping) else {}


def _kind(value: object) -> str:
    return {list: "an array", str: "a text", type(None): "null"}.get(type(value), "a number")


def _cut(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _MAX_SHOWN else line[:_MAX_SHOWN] + "…"


# --- checks that could take for ever ---


class _CheckFailed(Exception):
    """The check came to no end; the text says why."""


class Cost(Enum):
    """What a check takes at most.

    ``PLAIN``: as long as the sizes of schema and value say. ``PATTERNS``: so too where there is
    no text to be matched. ``ENDLESS``: any time.
    """

    PLAIN = "plain"
    PATTERNS = "patterns"
    ENDLESS = "endless"


def cost_of(schema: Any) -> Cost:
    """What checks against ``schema`` take at most."""
    size = _Size(schema)
    try:
        parts, returns = size.of(schema)
    except (_Endless, RecursionError):
        return Cost.ENDLESS
    if parts > MAX_NODES or returns > 1:
        return Cost.ENDLESS
    return Cost.PATTERNS if size.has_patterns else Cost.PLAIN


def _checked_apart(schema: Any, value: Any) -> list[tuple[str, str]]:
    """Field and problem of what is wrong with ``value``; raises ``_CheckFailed``."""
    argv = [sys.executable, "-I", "-X", "utf8", "-c", _CODE]
    try:
        done = subprocess.run(  # noqa: S603 - our own program, nothing of the schema is in it
            argv,
            input=json.dumps([schema, value]).encode(),
            capture_output=True,
            timeout=LIMIT_S,
            check=True,
        )
        return [(field, problem) for field, problem in json.loads(done.stdout)]
    except subprocess.TimeoutExpired:
        raise _CheckFailed(f"could not be checked within {LIMIT_S:g} s") from None
    except RecursionError:
        raise _CheckFailed("nested too deeply to be checked") from None
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        raise _CheckFailed(f"could not be checked: {type(error).__name__}") from error


class _Endless(Exception):
    pass


class _Size:
    """Counts the parts of a schema with its references replaced, and how often it returns.

    A reference that leads back multiplies nothing where it is the only one for its part of the
    value: the value gets smaller each time. Two of them double the work at every level.
    """

    def __init__(self, root: Any) -> None:
        self.has_patterns = False
        self._root = root
        self._known: dict[str, tuple[int, int] | None] = {"#": None}

    def of(self, node: Any) -> tuple[int, int]:
        """Parts, and references that lead back from one part of the value at most.

        Raises ``_Endless`` for references that are no plain path.
        """
        if isinstance(node, list):
            return _both(map(self.of, node))
        if not isinstance(node, Mapping):
            return 1, 0
        if not _OTHER_REFERENCES.isdisjoint(node):
            raise _Endless
        self.has_patterns |= not _PATTERNS.isdisjoint(node)
        found = [self._part(key, part) for key, part in node.items() if key not in _DEFINITIONS]
        reference = node.get("$ref")
        if isinstance(reference, str):
            found.append(self._target(reference))
        return _both(found)

    def _part(self, key: str, part: Any) -> tuple[int, int]:
        if key != "properties" or not isinstance(part, Mapping):
            return self.of(part)
        each = [self.of(field) for field in part.values()]  # each for a field of its own
        return 1 + sum(size for size, _ in each), max((back for _, back in each), default=0)

    def _target(self, reference: str) -> tuple[int, int]:
        if reference not in self._known:
            self._known[reference] = None
            self._known[reference] = self.of(self._found(reference))
        return self._known[reference] or (0, 1)

    def _found(self, reference: str) -> Any:
        node = self._root
        if not reference.startswith("#/"):
            raise _Endless
        for part in reference.split("/")[1:]:
            key = part.replace("~1", "/").replace("~0", "~")
            if not isinstance(node, Mapping) or key not in node:
                raise _Endless
            node = node[key]
        return node


def _both(each: Iterable[tuple[int, int]]) -> tuple[int, int]:
    parts, returns = 1, 0
    for more, back in each:
        parts, returns = parts + more, returns + back
        if parts > MAX_NODES or returns > 1:
            raise _Endless
    return parts, returns


def main() -> None:
    """Check the value on standard input, for ``_checked_apart``, and print what is wrong."""
    schema, value = json.load(sys.stdin)
    problems = ResultSchema(schema, apart=False).problems(value)
    sys.stdout.write(json.dumps([(problem.field, problem.problem) for problem in problems]))
