"""``@frozen`` makes what ``dataclass(frozen=True, slots=True)`` makes."""

from __future__ import annotations

import copy
import pickle
from dataclasses import FrozenInstanceError, asdict, dataclass, field, fields, is_dataclass, replace
from typing import Any, ClassVar

import pytest

from agentcli.domain.values import frozen, mutable


@frozen
class Ours:
    """A value."""

    kind: ClassVar[str] = "ours"
    x: int
    y: str = "y"
    z: list[int] = field(default_factory=list)
    secret: str = field(default="", repr=False)

    @property
    def double(self) -> int:
        return self.x * 2


@dataclass(frozen=True, slots=True)
class Theirs:
    """A dataclass."""

    kind: ClassVar[str] = "theirs"
    x: int
    y: str = "y"
    z: list[int] = field(default_factory=list)
    secret: str = field(default="", repr=False)


@frozen
class Checked:
    """Refuses what can never be right."""

    x: int

    def __post_init__(self) -> None:
        if self.x < 0:
            raise ValueError("negative")


@frozen
class Twin:
    """The same fields as another value."""

    x: int


@pytest.mark.parametrize("arguments", [(1,), (1, "a"), (1, "a", [3]), (1, "a", [3], "s")])
def test_it_is_built_compared_shown_and_taken_apart_as_a_dataclass_is(arguments: Any) -> None:
    ours, theirs = Ours(*arguments), Theirs(*arguments)
    assert asdict(ours) == asdict(theirs)
    assert repr(ours) == repr(theirs).replace("Theirs", "Ours")
    assert ours == Ours(*arguments)
    assert ours != Ours(2)
    assert replace(ours, x=9) == Ours(9, *arguments[1:])
    assert [each.name for each in fields(ours)] == [each.name for each in fields(theirs)]
    assert is_dataclass(Ours)
    assert Ours.__match_args__ == Theirs.__match_args__


def test_wrong_arguments_are_a_type_error() -> None:
    for arguments, named in (((), {}), ((1, 2, 3, 4, 5), {}), ((1,), {"nope": 1})):
        with pytest.raises(TypeError):
            Ours(*arguments, **named)


def test_it_is_frozen_and_has_no_room_for_more() -> None:
    ours = Ours(1)
    with pytest.raises(FrozenInstanceError):
        ours.x = 2  # type: ignore[misc]
    with pytest.raises(FrozenInstanceError):
        del ours.x
    assert not hasattr(ours, "__dict__")


def test_defaults_are_not_shared() -> None:
    first = Ours(1)
    first.z.append(5)
    assert Ours(1).z == []


def test_values_of_two_kinds_are_never_equal_and_equal_ones_have_one_hash() -> None:
    assert Twin(1) != Checked(1)
    assert len({Twin(1), Twin(1), Twin(2), Checked(1)}) == 3


def test_the_constructor_validates() -> None:
    with pytest.raises(ValueError, match="negative"):
        Checked(-1)
    with pytest.raises(ValueError, match="negative"):
        replace(Checked(1), x=-1)


def test_it_can_be_copied_pickled_and_matched() -> None:
    ours = Ours(3, z=[1])
    assert copy.copy(ours) == ours
    assert copy.deepcopy(ours) == ours
    assert pickle.loads(pickle.dumps(ours)) == ours
    match ours:
        case Ours(x, y):
            assert (x, y) == (3, "y")
        case _:
            pytest.fail("no match")
    assert ours.double == 6
    assert Ours.kind == "ours"


@mutable
class OurState:
    """State with an owner."""

    x: int
    seen: list[int] = field(default_factory=list)


@dataclass(slots=True)
class TheirState:
    """A dataclass."""

    x: int
    seen: list[int] = field(default_factory=list)


def test_state_changes_and_is_compared_as_a_dataclass_is() -> None:
    ours, theirs = OurState(1), TheirState(1)
    ours.x = theirs.x = 2
    ours.seen.append(3)
    theirs.seen.append(3)
    assert repr(ours).removeprefix("OurState") == repr(theirs).removeprefix("TheirState")
    assert asdict(ours) == asdict(theirs)
    assert ours == OurState(2, [3]) and ours != theirs and OurState(1).seen is not ours.seen
    assert replace(ours, x=9) == OurState(9, [3])
    assert copy.deepcopy(ours) == ours and pickle.loads(pickle.dumps(ours)) == ours
    with pytest.raises(TypeError):
        hash(ours)
    with pytest.raises(AttributeError):
        ours.other = 1  # type: ignore[attr-defined]  # that it fails is the point


def test_the_first_values_of_a_kind_are_made_as_the_hundredth_is() -> None:
    @frozen
    class Fresh:
        x: int
        y: str = "y"
        z: list[int] = field(default_factory=list)
        sum: int = field(init=False)

        def __post_init__(self) -> None:
            object.__setattr__(self, "sum", self.x + len(self.z))

    wrong: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
        ((), {}),
        ((1, "a", [], 4), {}),
        ((1,), {"x": 1}),
        ((1,), {"nope": 1}),
        ((1,), {"sum": 1}),
    ]
    seen = []
    for _ in range(100):
        seen += [Fresh(1), Fresh(x=1), Fresh(1, "y"), Fresh(1, z=[]), Fresh(z=[], y="y", x=1)]
        assert len({id(each.z) for each in seen}) == len(seen)
    assert all(each == seen[0] and each.sum == 1 for each in seen)
    for arguments, named in wrong:

        @frozen
        class Other:
            x: int
            y: str = "y"
            z: list[int] = field(default_factory=list)
            sum: int = field(init=False)

        for kind in (Other, Fresh):
            with pytest.raises(TypeError):
                kind(*arguments, **named)
