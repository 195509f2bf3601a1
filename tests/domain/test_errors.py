"""One tree of errors, each a line with advice."""

from __future__ import annotations

import pytest

from agentcli.domain import errors
from agentcli.domain.errors import (
    AgentError,
    ArgumentProblem,
    ErrorKind,
    InvalidArguments,
    ProviderError,
)

RETRYABLE = {"rate_limit", "server", "overloaded", "network", "stalled", "empty"}


@pytest.mark.spec("STR-1")
def test_the_kinds_are_those_of_the_contract_and_each_says_whether_to_retry() -> None:
    assert {kind.value for kind in ErrorKind} == {
        "rate_limit", "auth", "context_overflow", "bad_request", "server", "overloaded", "network",
        "stalled", "empty", "other",
    }  # fmt: skip
    assert {kind.value for kind in ErrorKind if kind.retryable} == RETRYABLE


@pytest.mark.spec("STR-1")
def test_a_provider_error_takes_after_its_kind_unless_it_says_otherwise() -> None:
    assert ProviderError("x", kind=ErrorKind.SERVER).retryable
    assert not ProviderError("x", kind=ErrorKind.AUTH).retryable
    assert not ProviderError("x", kind=ErrorKind.NETWORK, retryable=False).retryable
    assert ProviderError("x", kind=ErrorKind.OTHER, retryable=True).retryable
    assert not ProviderError("x", kind=ErrorKind.NETWORK).streaming


@pytest.mark.spec("STR-9")
def test_an_error_reads_as_what_happened_and_what_to_do() -> None:
    assert str(AgentError("KEY is not set", "export KEY=…")) == "KEY is not set - export KEY=…"
    assert str(AgentError("KEY is not set")) == "KEY is not set"


def test_the_tree_in_the_docstring_is_the_tree() -> None:
    """Each class of the module is drawn under its parent."""
    lines = (errors.__doc__ or "").splitlines()
    drawn = {}
    trail: list[tuple[int, str]] = []
    for line in lines:
        word = line.lstrip(" │├└─")
        name = word.split(" ")[0]
        found = getattr(errors, name, None) if name.isidentifier() else None
        if isinstance(found, type):
            depth = line.index(name)
            trail = [entry for entry in trail if entry[0] < depth]
            drawn[name] = trail[-1][1] if trail else None
            trail.append((depth, name))
    for name, parent in drawn.items():
        if parent is not None:
            assert getattr(errors, name).__bases__[0].__name__ == parent
    ours = {n for n, c in vars(errors).items() if isinstance(c, type) and issubclass(c, AgentError)}
    assert ours <= set(drawn)


@pytest.mark.spec("LOOP-5")
def test_invalid_arguments_name_each_field() -> None:
    error = InvalidArguments((ArgumentProblem("path", "missing"), ArgumentProblem("n", "not int")))
    assert str(error) == "path: missing; n: not int"
