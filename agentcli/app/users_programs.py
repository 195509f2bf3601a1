"""What programs of the user's own that we start get: editor, pager, browser, clipboard (SEC-8)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping


def environment_for(env: Mapping[str, str], named: Iterable[str] = ()) -> dict[str, str]:
    """``env``, which is ours, without the keys of model providers and what is ``named`` as one."""
    from agentcli.process.environment import without_provider_keys

    return without_provider_keys(env, named)
