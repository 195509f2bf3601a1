"""``@frozen``: what ``dataclass(frozen=True, slots=True)`` makes, at a quarter of its cost.

``@mutable`` is the same for ``dataclass(slots=True)``.

A start defines over a hundred values before the first request leaves, and ``dataclass`` compiles
six functions for each (0.5 ms a class on CPython 3.11: a fifth of the whole start). Here only
``__init__`` is compiled, and only for a kind of which many are made: that costs as much as to
fill fifty values field by field. The rest is shared. The result is a dataclass to
``replace``, ``fields``, ``asdict``, ``match`` and type checkers.

Law: a value is frozen, equal only to the same kind with equal fields, and can be copied.
Annotations must be text (``from __future__ import annotations``); there is no ``super()`` without
arguments. A subclass has the fields of its base first. A field with ``init=False`` has no default
and is set by ``__post_init__``.
"""

from __future__ import annotations

import dataclasses
from dataclasses import MISSING, Field, FrozenInstanceError, field
from operator import attrgetter
from typing import Any, NoReturn, TypeVar, cast, dataclass_transform

T = TypeVar("T")

_set = object.__setattr__
_ABSENT = object()
_FEW = 50  # values of a kind are filled field by field; then ``__init__`` is compiled


def _equal(self: Any, other: Any) -> Any:
    if other.__class__ is not self.__class__:
        return NotImplemented
    return bool(self.__compared__(self) == self.__compared__(other))


def _hash(self: Any) -> int:
    return hash((type(self), self.__compared__(self)))


def _repr(self: Any) -> str:
    shown = (
        f"{name}={getattr(self, name)!r}"
        for name, each in type(self).__dataclass_fields__.items()
        if each.repr
    )
    return f"{type(self).__qualname__}({', '.join(shown)})"


def _refuse_set(_self: Any, name: str, _new: object) -> NoReturn:
    raise FrozenInstanceError(f"cannot assign to field {name!r}")


def _refuse_delete(_self: Any, name: str) -> NoReturn:
    raise FrozenInstanceError(f"cannot delete field {name!r}")


def _reduce(self: Any) -> tuple[Any, ...]:
    fields = type(self).__dataclass_fields__
    return type(self), tuple(getattr(self, name) for name, each in fields.items() if each.init)


_SHARED = {
    "__eq__": _equal,
    "__hash__": _hash,
    "__repr__": _repr,
    "__setattr__": _refuse_set,
    "__delattr__": _refuse_delete,
    "__reduce__": _reduce,
}

_SHARED_BY_MUTABLE = {"__eq__": _equal, "__hash__": None, "__repr__": _repr, "__reduce__": _reduce}


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def frozen(cls: type[T]) -> type[T]:
    """Make ``cls`` a frozen value with slots; see the module."""
    return _made(cls, _SHARED)


@dataclass_transform(field_specifiers=(field,))
def mutable(cls: type[T]) -> type[T]:
    """Make ``cls`` what ``dataclass(slots=True)`` makes: state with an owner, never a key."""
    return _made(cls, _SHARED_BY_MUTABLE)


def _made(cls: type[T], shared_methods: dict[str, Any]) -> type[T]:
    fields = _fields_of(cls)
    body = dict(vars(cls))
    for name in (*fields, "__dict__", "__weakref__"):
        body.pop(name, None)
    for name, shared in shared_methods.items():
        body.setdefault(name, shared)
    body["__hash__"] = body.get("__hash__") or shared_methods["__hash__"]
    body["__match_args__"] = tuple(fields)
    body["__dataclass_fields__"] = fields
    slots, compared, taken = [], [], {}
    for name, each in fields.items():
        if not hasattr(cls.__base__, name):
            slots.append(name)
        if each.compare:
            compared.append(name)
        if each.init:
            taken[name] = each
    body["__slots__"] = tuple(slots)
    body["__compared__"] = attrgetter(*compared) if compared else type
    made_so_far = 0

    def __init__(self: Any, *values: Any, **named: Any) -> None:  # noqa: N807 - it stands for it
        nonlocal made_so_far
        made_so_far += 1
        calls_post_init = hasattr(made, "__post_init__")
        if made_so_far > _FEW or not _filled(self, taken, values, named):
            made.__init__ = _make_init(taken, calls_post_init=calls_post_init)
            made.__init__(self, *values, **named)
        elif calls_post_init:
            self.__post_init__()

    body["__init__"] = __init__
    made: Any = type(cls).__new__(type(cls), cls.__name__, cls.__bases__, body)
    made.__qualname__ = cls.__qualname__
    return cast("type[T]", made)


def _fields_of(cls: type) -> dict[str, Field[Any]]:
    fields: dict[str, Field[Any]] = dict(getattr(cls.__base__, "__dataclass_fields__", {}))
    for name, kind in vars(cls).get("__annotations__", {}).items():
        if kind.startswith("ClassVar"):
            continue
        default = vars(cls).get(name, MISSING)
        each: Any = default if isinstance(default, Field) else field(default=default)
        each.name, each.type = name, kind
        each._field_type = dataclasses._FIELD  # type: ignore[attr-defined]  # noqa: SLF001 - how dataclasses tells fields from the rest
        fields[name] = each
    return fields


def _filled(
    value: Any, fields: dict[str, Field[Any]], values: tuple[Any, ...], named: dict[str, Any]
) -> bool:
    """Set the fields; ``False`` where the arguments do not fit: the compiled one says how."""
    given = dict(zip(fields, values, strict=False)) | named
    if len(given) != len(values) + len(named):
        return False
    found = 0
    for name, each in fields.items():
        if name in given:
            found += 1
            content = given[name]
        elif each.default is not MISSING:
            content = each.default
        elif each.default_factory is not MISSING:
            content = each.default_factory()
        else:
            return False
        _set(value, name, content)
    return found == len(given)


def _make_init(fields: dict[str, Field[Any]], *, calls_post_init: bool) -> Any:
    names: dict[str, Any] = {"_set": _set, "_absent": _ABSENT}
    parameters: list[str] = ["self"]
    lines: list[str] = []
    for name, each in fields.items():
        given = name
        if each.default is not MISSING:
            names[f"_default_{name}"] = each.default
            parameters.append(f"{name}=_default_{name}")
        elif each.default_factory is not MISSING:
            names[f"_make_{name}"] = each.default_factory
            parameters.append(f"{name}=_absent")
            given = f"_make_{name}() if {name} is _absent else {name}"
        else:
            parameters.append(name)
        lines.append(f" _set(self, {name!r}, {given})")
    if calls_post_init:
        lines.append(" self.__post_init__()")
    source = f"def __init__({', '.join(parameters)}):\n" + ("\n".join(lines) or " pass")
    exec(source, names)  # noqa: S102 - made of field names of our own classes, as dataclasses does
    return names["__init__"]
