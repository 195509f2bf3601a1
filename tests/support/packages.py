"""Packages of others that few tests use."""

from __future__ import annotations

from typing import Any

import pytest


class Package:
    """A package of others, imported when a test first uses it: every worker reads every file, few
    use this. The test is skipped where it cannot be imported.
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        package = pytest.importorskip(
            self._name, reason=f"{self._name} cannot be imported here", exc_type=ImportError
        )
        return getattr(package, attribute)
