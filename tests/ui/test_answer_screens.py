"""An answer with everything in it, as a terminal shows it: golden screens in four widths."""

from __future__ import annotations

import random
import re

import pytest

from agentcli.ui.frame import Below, Place
from agentcli.ui.live_screen import LiveScreen
from agentcli.ui.rows import Row, columns_of
from agentcli.ui.screen import Screen, Size
from tests.support.screens import matches_snapshot
from tests.ui.test_live_screen import LIVE, Terminal

ANSWER = """\
# What I found in `parser.py`
The parser reads **one line too many**, so that a paragraph that is longer than the window *wraps
at the wrong place*; see [the notes](https://example.org/notes/wrapping) and `Wrap.feed()`.

1. The loop asks for the next line before it knows whether the paragraph has ended, which costs a read
   - that read blocks on a pipe, and nothing is shown until the next line arrives
   - [x] reproduced with a pipe
   - [ ] a test for it
2. The caller does the same:
   ```python
   def paragraphs(lines: Iterator[str]) -> Iterator[str]:
       for line in lines:  # one line too many when the paragraph has ended before the end of the file
           yield line
   ```
10. Everything else is fine, including 日本語の文章は、どこでも改行できます。しかし（括弧）は例外です。

> A quote keeps its bar on every line, however long the sentence in it is and however narrow the window.
> > So does a quote in a quote, although there is less room for the words that stand in it.

| file | lines | what to do with it in the next days |
|:-----|------:|-------------------------------------|
| parser.py | 1204 | split the reading of lines from the reading of paragraphs, then measure |
| caller.py | 88 | nothing |

```diff
--- a/parser.py
+++ b/parser.py
-    line = next(lines)
+    line = next(lines, None)
```
***
Sub heading
-----------
See https://example.org/a/very/long/address/that/no/window/of/forty/columns/can/show/in/one/row é שלום.
"""


def compose(size: Size, needs_gap: bool) -> Below:
    rows = [Row(""), Row("> ", 2)] if needs_gap else [Row("> ", 2)]
    rows = rows[-size.lines :]
    return Below(rows, Place(len(rows) - 1, 2))


def streamed(columns: int, seed: int) -> Terminal:
    """The answer in pieces of any size, a frame for each."""
    chance = random.Random(seed)
    terminal = Terminal(columns, 24)
    screen = LiveScreen(terminal, LIVE, lambda: terminal.size)
    screen.show(compose)
    at = 0
    while at < len(ANSWER):
        size = chance.choice((1, 3, 9, 40, 200))
        screen.feed_text(ANSWER[at : at + size])
        at += size
    screen.finish()
    screen.hide()
    return terminal


@pytest.mark.spec("UI-1")
@pytest.mark.parametrize("columns", [40, 80, 120, 220])
def test_every_word_is_whole_and_every_row_begins_where_it_should(columns: int) -> None:
    lines = streamed(columns, 1).lines()
    assert matches_snapshot(f"text-{columns}", "\n".join(lines) + "\n")
    shown = "".join(re.sub(r"[│▎↪─┼\s]", "", line) for line in lines)
    for word in re.findall(r"[a-z]{3,}", ANSWER.partition("| file")[0]):
        assert word in shown
    words = set(re.findall(r"\w+", ANSWER))
    for line in lines:
        assert columns_of(line) <= columns
        if "example" not in line and "/" not in line:
            assert set(re.findall(r"[A-Za-z]\w+", line)) <= words, line


@pytest.mark.spec("UI-1")
@pytest.mark.parametrize("seed", [2, 3])
def test_the_streamed_screen_is_the_one_that_is_drawn_at_once(seed: int) -> None:
    whole = Terminal(60, 24)
    screen = Screen(whole, LIVE, lambda: whole.size)
    screen.feed_text(ANSWER)
    screen.finish()
    assert streamed(60, seed).lines() == whole.lines()


@pytest.mark.spec("UI-1")
def test_a_window_that_changes_its_size_in_mid_answer_loses_and_doubles_no_word() -> None:
    words = [f"w{number:03d}" for number in range(400)]
    terminal = Terminal(100, 24)
    screen = LiveScreen(terminal, LIVE, lambda: terminal.size)
    screen.show(compose)
    sizes = iter([(110, 24), (120, 24), (140, 24), (160, 24)])
    for at, word in enumerate(words):
        screen.feed_text(f"{word} ")
        if at % 90 == 89:
            terminal.resize(*next(sizes))
            screen.paint()
    screen.finish()
    screen.hide()
    assert re.findall(r"w\d{3}", "\n".join(terminal.lines())) == words
