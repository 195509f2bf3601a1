"""Whether checking a value against a schema can take long, and a check that ends in any case.

A pattern can take for ever on the right text, and references can multiply: such a schema is
checked by a process of its own (``_result_schema.main``), which is ended when its time is over.
Law: every check ends, within ``LIMIT_S`` where its schema is not plain.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable, Mapping
from enum import Enum
from pathlib import Path
from typing import Any

from jsonschema import __file__ as library  # type: ignore[import-untyped]  # stubs are apart

LIMIT_S = 3.0
MAX_NODES = 5_000
"""Parts of a plain schema at most, references replaced by what they lead to."""
_PATTERNS = frozenset({"pattern", "patternProperties"})
_DEFINITIONS = frozenset({"$defs", "definitions"})
_OTHER_REFERENCES = frozenset({"$dynamicRef", "$recursiveRef"})
# nothing is imported from the working directory (SEC-2)
_PLACES = [str(Path(file).resolve().parents[up]) for file, up in ((__file__, 2), (library, 1))]
_CODE = (
    f"import sys; sys.path += {_PLACES!r}; "
    "from agentcli.tools import _result_schema; _result_schema.main()"
)


class CheckFailed(Exception):
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


def checked_apart(schema: Any, value: Any) -> list[tuple[str, str]]:
    """Field and problem of what is wrong with ``value``; raises ``CheckFailed``."""
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
        raise CheckFailed(f"could not be checked within {LIMIT_S:g} s") from None
    except RecursionError:
        raise CheckFailed("nested too deeply to be checked") from None
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        raise CheckFailed(f"could not be checked: {type(error).__name__}") from error


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
