"""What a provider may say: the table and the union are one."""

from __future__ import annotations

import re
from typing import get_args

from agentcli.domain import stream


def test_the_table_names_every_event_and_no_other() -> None:
    rows = re.findall(r"^``(\w+)(?:\(i\))?`` ", stream.__doc__ or "", re.MULTILINE)
    assert set(rows) == {event.__name__ for event in get_args(stream.StreamEvent)}
