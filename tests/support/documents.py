"""Long Markdown documents in which each word has a number of its own: none may be lost or doubled."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator

_STEMS = (
    "the",
    "agent",
    "reads",
    "**two**",
    "*files*",
    "`and`",
    "日本",
    "cafe\u0301",
    "שלום",
    "👍🏽",
    "mends",
)
_WORD = re.compile(r"x(\d{4})y")


def document(seed: int, blocks: int = 30) -> str:
    """Paragraphs, quotes, lists, tables and code; the words are numbered from 1000 on."""
    chance = random.Random(seed)
    numbers = iter(range(1000, 10_000))
    kinds = (_paragraph, _quote, _bullets, _ordered, _table, _code)
    parts = [kind(chance, numbers) for kind in chance.choices(kinds, k=blocks)]
    return "\n\n".join(parts) + "\n"


def numbers_of(text: str) -> list[str]:
    """The numbers of the words in ``text``, in their order."""
    return _WORD.findall(text)


def _words(chance: random.Random, numbers: Iterator[int], least: int, most: int) -> list[str]:
    many = chance.randint(least, most)
    return [f"{chance.choice(_STEMS)} x{next(numbers)}y" for _ in range(many)]


def _paragraph(chance: random.Random, numbers: Iterator[int]) -> str:
    return " ".join(_words(chance, numbers, 5, 40))


def _quote(chance: random.Random, numbers: Iterator[int]) -> str:
    lines = [" ".join(_words(chance, numbers, 2, 12)) for _ in range(chance.randint(1, 5))]
    return "\n".join(f"> {line}" for line in lines)


def _bullets(chance: random.Random, numbers: Iterator[int]) -> str:
    items = [" ".join(_words(chance, numbers, 2, 15)) for _ in range(chance.randint(2, 6))]
    return "\n".join(f"{'  ' * (at % 2)}- {item}" for at, item in enumerate(items))


def _ordered(chance: random.Random, numbers: Iterator[int]) -> str:
    items = [" ".join(_words(chance, numbers, 2, 15)) for _ in range(chance.randint(2, 6))]
    return "\n".join(f"{at}. {item}" for at, item in enumerate(items, 1))


def _table(chance: random.Random, numbers: Iterator[int]) -> str:
    size = chance.randint(2, 3)
    rows = [[f"x{next(numbers)}y" for _ in range(size)] for _ in range(chance.randint(2, 20))]
    body = (f"| {' | '.join(row)} |" for row in rows)
    return "\n".join(["| head " * size + "|", "|" + "---|" * size, *body])


def _code(chance: random.Random, numbers: Iterator[int]) -> str:
    lines = [
        "    " * chance.randint(0, 2)
        + " ".join(f"x{next(numbers)}y" for _ in range(chance.randint(1, 12)))
        for _ in range(chance.randint(1, 8))
    ]
    return "\n".join(["```python", *lines, "```"])
