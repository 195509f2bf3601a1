"""Tools as values: what a call may return, and what lies in the workspace."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Optional, cast

import pytest

from agentcli.domain.cancel import CancelToken
from agentcli.domain.messages import ImagePart, ResultStatus, TextPart
from agentcli.domain.sandbox import Sandbox
from agentcli.domain.tools import (
    Asker,
    OutputKind,
    PortMissing,
    Tool,
    ToolContext,
    ToolOutput,
    Workspace,
    context_for,
    real_path,
    status_of,
)
from agentcli.domain.values import frozen


def told(output: ToolOutput) -> str:
    return "\n".join(part.text for part in output.parts if isinstance(part, TextPart))


@pytest.mark.spec("TOOL-2")
def test_a_success_is_text_json_or_images() -> None:
    image = ImagePart("image/png", b"png")
    pictures = ToolOutput.images("one picture", [image])
    assert told(ToolOutput.text("done")) == "done"
    assert told(ToolOutput.text(" \n")) == "(no output)"
    assert told(ToolOutput.json({"name": "Zoë"})) == '{"name": "Zoë"}'
    assert pictures.parts == (TextPart("one picture"), image)
    for output in (ToolOutput.text("x"), ToolOutput.json([]), pictures):
        assert output.kind is OutputKind.SUCCESS
        assert status_of(output) is ResultStatus.OK


@pytest.mark.spec("TOOL-2")
def test_a_failure_is_the_models_ours_or_a_missing_connection() -> None:
    cause = RuntimeError("secret detail of ours")
    mine = ToolOutput.error("no such file")
    ours = ToolOutput.internal_error(cause)
    missing = ToolOutput.connection_required("github")
    assert told(mine) == "no such file"
    assert "internal error" in told(ours) and "secret detail" not in told(ours)
    assert ours.cause is cause
    assert "log in to github" in told(missing)
    kinds = [output.kind for output in (mine, ours, missing)]
    assert kinds == [
        OutputKind.TOOL_ERROR, OutputKind.INTERNAL_ERROR, OutputKind.CONNECTION_REQUIRED
    ]  # fmt: skip
    assert {status_of(output) for output in (mine, ours, missing)} == {ResultStatus.ERROR}


@pytest.mark.spec("TOOL-2", "TOOL-3")
def test_what_only_the_person_sees_is_beside_the_text() -> None:
    output = ToolOutput.text("short", raw=b"all of it", display="-a\n+b", summary="+1 -1")
    assert told(output) == "short"
    assert (output.raw, output.display, output.summary) == (b"all of it", "-a\n+b", "+1 -1")
    keyed = ToolOutput.json({"raw": "mine", "display": "mine", "summary": "mine"})
    assert (keyed.raw, keyed.display, keyed.summary) == (None, "", "")
    assert '"raw": "mine"' in told(keyed)


@pytest.mark.spec("SEC-5")
def test_links_in_a_circle_are_judged_where_they_lie(tmp_path: Path) -> None:
    root, other = tmp_path / "work", tmp_path / "other"
    root.mkdir()
    other.mkdir()
    (root / "loop").symlink_to("loop")
    (other / "loop").symlink_to("loop")
    (root / "out").symlink_to(other / "loop")
    workspace = Workspace(root, root)
    assert workspace.contains(root / "loop")
    assert not workspace.contains(root / "out")
    assert not workspace.contains(root / "loop" / ".." / ".." / "other")
    assert real_path(root / "loop") == root / "loop"


@pytest.mark.spec("SEC-5", "SEC-13")
def test_as_many_links_are_followed_as_the_kernel_follows(tmp_path: Path) -> None:
    (tmp_path / "l0").write_text("x")
    for number in range(1100):
        (tmp_path / f"l{number + 1}").symlink_to(f"l{number}")
    assert (tmp_path / "l40").read_text() == "x"
    assert real_path(tmp_path / "l40") == tmp_path / "l0"
    with pytest.raises(OSError, match="symbolic links"):
        (tmp_path / "l41").read_text()
    assert real_path(tmp_path / "l1100" / ".." / "a") == tmp_path / "a"


@frozen
class Modern(ToolContext):
    """What a call may lack is said with a bar."""

    ask: Asker | None
    sandbox: Sandbox | None


@frozen
class Classic(ToolContext):
    """The same in the older way."""

    ask: Optional[Asker]  # noqa: UP045 - as users write it
    sandbox: Optional[Sandbox]  # noqa: UP045


@frozen
class Needs(ToolContext):
    """A call that cannot do without."""

    ask: Asker


@pytest.mark.spec("LOOP-5")
def test_a_call_is_refused_only_for_the_lack_of_what_it_needs(tmp_path: Path) -> None:
    class Declares:
        def __init__(self, context: type[Any]) -> None:
            self.context = context

    call = ToolContext("c", Workspace(tmp_path, tmp_path), CancelToken(), print)
    for context in (Modern, Classic):
        made = context_for(cast("Tool", Declares(context)), call, lambda _: None)
        assert type(made) is context and made.ask is made.sandbox is None
    with pytest.raises(PortMissing, match="Nobody can be asked"):
        context_for(cast("Tool", Declares(Needs)), call, lambda _: None)
