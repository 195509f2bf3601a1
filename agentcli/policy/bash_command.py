"""What a bash text would run, as values (SEC-4).

Law: a word is text only when bash would certainly pass exactly that text; else it is ``None``.
"""

from __future__ import annotations

from agentcli.domain.values import frozen


@frozen
class Redirection:
    """One redirection: ``target`` is ``None`` when it is not statically known.

    A duplication such as ``2>&1`` has the operator ``>&``, a number as its target, and writes
    nothing by itself. Heredocs and here-strings have no target.
    """

    operator: str
    target: str | None
    writes: bool


@frozen
class SimpleCommand:
    """One program call with all that bash would do around it.

    ``words`` are the arguments as the program sees them (``None``: not statically known), empty
    for a bare assignment or redirection. ``text`` is its source without redirections.
    ``wrappers`` are the programs looked through to reach it, the outermost first; each of those
    calls is listed as a command of its own. ``sources`` are the words as they are written, and
    ``fed`` is what here-documents give it to read, as far as that is known.
    """

    words: tuple[str | None, ...]
    text: str
    assignments: tuple[str, ...] = ()
    redirections: tuple[Redirection, ...] = ()
    wrappers: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    fed: tuple[str, ...] = ()


@frozen
class ParsedCommand:
    """Every simple command that the text holds, in source order.

    ``understood`` is false when bash may do something that is not listed: then a person must be
    asked, and ``why_not`` says why. The list is still as full as can be, for deny rules.
    ``plain`` means: nothing but lists and pipes of commands whose words are all known.
    """

    commands: tuple[SimpleCommand, ...]
    understood: bool
    why_not: str = ""
    plain: bool = False
