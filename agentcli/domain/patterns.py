# ruff: noqa: D102 - what its methods do is said by re
"""Regular expressions that are compiled when they are first used, not when their module is loaded.

A start loads about a hundred of them and uses twenty; compiling the others took a tenth of it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, AnyStr, Generic


class LazyPattern(Generic[AnyStr]):
    """What ``re.compile`` gives, later: has its methods, and compiles with the first one.

    Functions of ``re`` do not take it, which the type says.
    """

    def __init__(self, source: AnyStr, flags: int = 0) -> None:
        self.pattern: AnyStr = source
        self._flags = flags

    if TYPE_CHECKING:

        def search(self, text: AnyStr, pos: int = 0, end: int = ...) -> re.Match[AnyStr] | None: ...
        def match(self, text: AnyStr | bytearray, pos: int = 0) -> re.Match[AnyStr] | None: ...
        def fullmatch(self, text: AnyStr, pos: int = 0) -> re.Match[AnyStr] | None: ...
        def finditer(self, text: AnyStr, pos: int = 0) -> Iterator[re.Match[AnyStr]]: ...
        def findall(self, text: AnyStr, pos: int = 0) -> list[Any]: ...
        def split(self, text: AnyStr, maxsplit: int = 0) -> list[Any]: ...
        def sub(
            self,
            new: AnyStr | Callable[[re.Match[AnyStr]], AnyStr],
            text: AnyStr,
            count: int = 0,
        ) -> AnyStr: ...

    else:

        def __getattr__(self, name: str) -> Any:
            method = getattr(re.compile(self.pattern, self._flags), name)
            setattr(self, name, method)
            return method
