"""The bash tool with real shells: where it starts, what it keeps, what the model is told."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import sys
import tempfile
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from agentcli.domain.cancel import CancelToken
from agentcli.domain.errors import InvalidArguments, PersistenceError
from agentcli.domain.tools import Asks, OutputKind, ToolContext, ToolOutput
from agentcli.process.run import end_processes
from agentcli.process.shell import STATE_KEY, ShellState, ShellStates
from agentcli.tools.bash import TOOL
from tests.support.processes import alive, pids_in, until
from tests.support.tool_context import MemoryState, Progress, text_of, tool_context

linux = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


def whole(body: Callable[[], Awaitable[None]]) -> None:
    async def run() -> None:
        try:
            await body()
        finally:
            await end_processes(grace_s=0.1)

    asyncio.run(run())


async def call(ctx: ToolContext, command: str, **more: object) -> ToolOutput:
    return await TOOL.run(TOOL.parse({"command": command, **more}), ctx)


def one(root: Path, command: str, **more: object) -> ToolOutput:
    outputs: list[ToolOutput] = []

    async def body() -> None:
        outputs.append(await call(tool_context(root), command, **more))

    whole(body)
    return outputs[0]


def several(ctx: ToolContext, *commands: str) -> list[str]:
    texts: list[str] = []

    async def body() -> None:
        for command in commands:
            texts.append(text_of(await call(ctx, command)))

    whole(body)
    return texts


@pytest.mark.spec("TOOL-11")
def test_the_result_has_the_output_the_exit_code_and_the_duration(tmp_path: Path) -> None:
    output = one(tmp_path, "echo out; echo err >&2")
    assert output.kind is OutputKind.SUCCESS
    assert text_of(output).startswith("out\nerr\n[exit code 0, ")
    assert text_of(output).endswith(" s]")
    assert output.summary.startswith("exit 0 · ")
    failed = one(tmp_path, "echo sorry; exit 3")
    assert failed.kind is OutputKind.TOOL_ERROR
    assert text_of(failed).startswith("sorry\n[exit code 3, ")


@pytest.mark.spec("TOOL-11")
def test_directory_and_exported_variables_are_kept_between_calls(tmp_path: Path) -> None:
    (tmp_path / "a dir").mkdir()
    ctx = tool_context(tmp_path)
    texts = several(
        ctx,
        "cd 'a dir'; export KEPT='two\nlines \"quoted\" $x' EMPTY=; LOCAL=1; unset LANG",
        'pwd; printf "%s|" "$KEPT" "${EMPTY-unset}" "${LOCAL-unset}" "${LANG-unset}"',
        "cd ..; unset KEPT",
        'pwd; echo "${KEPT-unset}"',
    )
    assert f"[directory is now {tmp_path}/a dir]" in texts[0]
    assert texts[1].startswith(f'{tmp_path}/a dir\ntwo\nlines "quoted" $x||unset|unset|')
    assert texts[3].startswith(f"{tmp_path}\nunset\n")


@pytest.mark.spec("TOOL-11")
def test_the_state_outlives_the_process_as_plain_json(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    state = MemoryState()
    several(tool_context(tmp_path, state=state), "cd sub; export A=1")
    stored = json.loads(state.values["shell"])["outside"]
    assert stored["cwd"] == str(tmp_path / "sub")
    assert stored["set"]["A"] == "1"
    resumed = MemoryState(dict(state.values))
    (text,) = several(tool_context(tmp_path, state=resumed), "pwd; echo $A")
    assert text.startswith(f"{tmp_path}/sub\n1\n")


@pytest.mark.slow
@pytest.mark.spec("TOOL-11", "OPS-1")
@pytest.mark.parametrize(
    "ending",
    [
        "exit 0",
        "exit 4",
        "set -e; false; echo not reached",
        "set -u; echo $undefined",
        "set -euo pipefail; false | true",
        "set -x",
        "set -C",
        "set -f",
        "IFS=,",
        "unset PWD; PATH=",
        "printf() { echo hijacked; }; set() { echo hijacked; }; exit() { :; }",
        "trap 'echo bye' EXIT",
        "trap 'cd /' EXIT",
        "echo 'unbalanced",
        "cat <<END\nheredoc without end",
        "cat <<'END'\n$(echo no)\nEND",
        "true # a comment",
        "echo back\\",
        "return 3",
        "if then",
        "( exit 9 )",
        "( cd / )",
        "sleep 1000 & disown",
        "kill -TERM $$; sleep 5",
        "exec 1>&- 2>&-",
        "echo ${}",
        "\n\n",
    ],
)
def test_the_directory_is_kept_whatever_ends_the_command(tmp_path: Path, ending: str) -> None:
    (tmp_path / "sub").mkdir()
    texts = several(tool_context(tmp_path), f"cd sub; export A=1\n{ending}", "pwd; echo $A")
    assert texts[1].startswith(f"{tmp_path}/sub\n1\n"), texts
    assert "[exit code " in texts[0]
    assert "hijacked" not in texts[0]
    assert "agentcli" not in texts[0].replace(str(tmp_path), "")


@pytest.mark.spec("TOOL-11", "OPS-1")
@pytest.mark.parametrize("ending", ["exec true", "kill -9 $$", "trap - EXIT; exit 0"])
def test_where_the_shell_cannot_tell_the_model_is_told_so(tmp_path: Path, ending: str) -> None:
    (tmp_path / "sub").mkdir()
    ctx = tool_context(tmp_path)
    texts = several(ctx, "cd sub; export A=1", f"cd /; {ending}", "pwd; echo $A")
    assert f"not recorded; the next command is in {tmp_path}/sub]" in texts[1]
    assert texts[2].startswith(f"{tmp_path}/sub\n1\n")


@pytest.mark.spec("OPS-1", "SEC-6")
def test_in_a_deleted_directory_nothing_runs_and_the_next_is_in_the_session_s(
    tmp_path: Path,
) -> None:
    texts = several(tool_context(tmp_path), "mkdir gone; cd gone; rmdir ../gone", "rm -rf *", "pwd")
    assert f"{tmp_path}/gone no longer exists: nothing was run" in texts[1]
    assert texts[2].startswith(f"{tmp_path}\n[exit")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may enter every directory")
@pytest.mark.spec("OPS-1", "SEC-6")
def test_a_directory_that_cannot_be_entered_is_left(tmp_path: Path) -> None:
    texts = several(tool_context(tmp_path), "mkdir shut; cd shut; chmod 0 .", "rm -rf *", "pwd")
    assert f"Cannot start a shell in {tmp_path}/shut: Permission denied" in texts[1]
    assert "nothing was run" in texts[1]
    assert texts[2].startswith(f"{tmp_path}\n[exit")


@pytest.mark.spec("OPS-1")
def test_a_deleted_workspace_is_a_clear_error(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    output = one(gone, "pwd")
    assert output.kind is OutputKind.TOOL_ERROR
    assert str(gone) in text_of(output)
    assert "No such file or directory" in text_of(output)


@pytest.mark.spec("SEC-8")
def test_keys_and_dangerous_variables_reach_neither_shell_nor_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "evil.sh").write_text("echo evil\n")
    for name in ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "HF_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN"):
        monkeypatch.setenv(name, "canary-key")
    for name in ("BASH_ENV", "ENV"):
        monkeypatch.setenv(name, str(tmp_path / "evil.sh"))
    monkeypatch.setenv("BASH_FUNC_ls%%", "() { echo evil; }")
    monkeypatch.setenv("LD_EVIL", "evil")
    state = MemoryState()
    texts = several(
        tool_context(tmp_path, state=state),
        "env; ls; tr '\\0' '\\n' < /proc/$PPID/environ",
        "export OPENAI_API_KEY=canary-two LD_PRELOAD= BASH_ENV=evil.sh OK=1",
        "env",
    )
    assert "canary" not in "".join(texts)
    assert "evil" not in texts[0].replace("evil.sh", "")
    assert "not kept for the next command: BASH_ENV, LD_PRELOAD, OPENAI_API_KEY" in texts[1]
    assert "OK=1" in texts[2]
    assert "BASH_ENV" not in texts[2]
    assert "canary" not in json.dumps(state.values)


@pytest.mark.spec("TOOL-11", "SEC-8")
def test_nothing_waits_for_input_a_pager_or_an_editor(tmp_path: Path) -> None:
    output = one(
        tmp_path,
        "cat; read x; echo $?; echo $PAGER $GIT_PAGER $NO_COLOR $TERM $GIT_TERMINAL_PROMPT $EDITOR",
        timeout_s=20,
    )
    assert text_of(output).startswith("1\ncat cat 1 dumb 0 true\n")


@pytest.mark.spec("TOOL-11")
def test_colours_progress_lines_and_odd_bytes_become_plain_text(tmp_path: Path) -> None:
    output = one(tmp_path, r"printf '\033[31mred\033[0m\n10%%\r100%%\r\n\xff\0end\n'")
    assert text_of(output).startswith("red\n100%\n\ufffd\u2400end\n[exit")
    assert output.raw == b"\x1b[31mred\x1b[0m\n10%\r100%\r\n\xff\0end\n"


def test_binary_output_is_not_shown(tmp_path: Path) -> None:
    output = one(tmp_path, "head -c 100000 /dev/urandom")
    assert text_of(output).startswith("(binary output, 100000 bytes")


@pytest.mark.spec("TOOL-6")
def test_long_output_is_cut_for_the_model_and_kept_whole_beside_it(tmp_path: Path) -> None:
    output = one(tmp_path, "seq 1 100000")
    text = text_of(output)
    assert len(text) <= 30_000
    assert text.startswith("1\n2\n3\n")
    assert "\n99999\n100000\n[exit code 0" in text
    assert output.raw == "".join(f"{n}\n" for n in range(1, 100_001)).encode()


@pytest.mark.slow
@pytest.mark.spec("TOOL-11", "SEC-13")
def test_200_megabytes_neither_grow_memory_nor_stall(tmp_path: Path) -> None:
    one(tmp_path, "seq 1 100000")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    progress = Progress()

    async def body() -> None:
        ctx = tool_context(tmp_path, progress=progress)
        output = await call(ctx, "yes $'ab\\r' | head -c 200000000; echo the end")
        assert "the end\n[exit code 0" in text_of(output)
        assert "bytes of output were not kept" in (output.raw or b"").decode()
        assert len(output.raw or b"") < 5_000_000

    whole(body)
    grown_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown_kib < 200_000
    assert len(progress.text) < 5_000_000


@pytest.mark.spec("TOOL-11")
def test_output_is_seen_while_the_command_runs(tmp_path: Path) -> None:
    progress = Progress()

    async def body() -> None:
        ctx = tool_context(tmp_path, progress=progress)
        command = "printf 'h\\xc3'; until [ -e seen ]; do sleep 0.02; done; printf '\\xa9llo\\n'"
        running = asyncio.create_task(call(ctx, command))
        await until(lambda: progress.text.startswith("h"), "live output")
        assert not running.done()
        (tmp_path / "seen").touch()
        await running

    whole(body)
    assert progress.text == "h\u00e9llo\n"


@pytest.mark.spec("TOOL-11", "LOOP-5")
def test_a_time_out_tells_what_was_printed_and_what_to_do(tmp_path: Path) -> None:
    output = one(tmp_path, "echo before; sleep 1000", timeout_s=0.3)
    assert output.kind is OutputKind.TOOL_ERROR
    assert text_of(output).startswith("before\n[timed out after 0.3 s and was killed")
    assert "timeout_s may be at most 600" in text_of(output)


@pytest.mark.spec("TOOL-11")
@pytest.mark.parametrize("timeout_s", [0, -1, 601, "soon"])
def test_a_time_out_is_bounded(timeout_s: object) -> None:
    with pytest.raises(InvalidArguments, match="timeout_s"):
        TOOL.parse({"command": "true", "timeout_s": timeout_s})


@pytest.mark.spec("CAN-6", "CAN-1")
def test_cancel_returns_the_output_so_far(tmp_path: Path) -> None:
    async def body() -> None:
        cancel = CancelToken()
        ctx = tool_context(tmp_path, cancel=cancel)
        running = asyncio.create_task(call(ctx, "echo so far; echo $$ > a.pid; sleep 1000"))
        await until(lambda: bool(pids_in(tmp_path)), "it runs")
        cancel.cancel()
        output = await running
        assert output.kind is OutputKind.CANCELLED
        assert text_of(output) == "so far"
        assert not alive(pids_in(tmp_path)[0])

    whole(body)


@linux
@pytest.mark.spec("CAN-10")
def test_a_cancelled_call_is_joined_only_when_all_is_dead(tmp_path: Path) -> None:
    async def body() -> None:
        cancel = CancelToken()
        ctx = tool_context(tmp_path, cancel=cancel)
        command = "trap '' TERM; echo $$ > a.pid; while :; do sleep 0.05; done"
        running = asyncio.create_task(call(ctx, command))
        await until(lambda: bool(pids_in(tmp_path)), "it runs")
        cancel.cancel()
        running.cancel()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert not alive(pids_in(tmp_path)[0])

    whole(body)


@linux
@pytest.mark.spec("OPS-1")
def test_what_stays_in_the_background_is_named(tmp_path: Path) -> None:
    async def body() -> None:
        ctx = tool_context(tmp_path)
        text = text_of(await call(ctx, "sleep 1000 >/dev/null 2>&1 & echo $! > a.pid; echo ok"))
        pid = pids_in(tmp_path)[0]
        assert text.startswith("ok\n[still running in the background until the session ends: ")
        assert f"{pid} (sleep 1000)" in text
        assert text_of(await call(ctx, f"kill {pid} && echo killed")).startswith("killed\n")

    whole(body)


@pytest.mark.spec("SEC-9", "SEC-15")
def test_neither_the_command_nor_its_state_has_a_name_on_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scratch = tmp_path / "tmp"
    scratch.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    for memory in (True, False):
        if not memory:
            monkeypatch.delattr(os, "memfd_create", raising=False)
        (text,) = several(tool_context(tmp_path), f"ls -A {scratch}; export A=1; cd /")
        assert text.startswith("(no output)\n[directory is now /]")


@pytest.mark.spec("SEC-13", "SEC-15")
@pytest.mark.parametrize("trick", ["head -c 9000000 /dev/zero", "printf 'x\\0y\\0end\\0'", ":"])
def test_a_command_that_tampers_with_its_state_does_no_harm(tmp_path: Path, trick: str) -> None:
    first = f"cd /; trap - EXIT; {trick} >&61; kill -9 $$"
    texts = several(tool_context(tmp_path), first, "pwd")
    assert texts[1].startswith(f"{tmp_path}\n")


@linux
@pytest.mark.spec("SEC-15")
def test_what_is_written_after_the_shell_has_ended_counts_for_nothing(tmp_path: Path) -> None:
    late = "printf '/\\0PATH=/evil\\0end\\0' >&61; touch written"
    left = f"(until [ -e go ]; do sleep 0.01; done; {late}) >/dev/null 2>&1 &"

    async def body() -> None:
        ctx = tool_context(tmp_path)
        running = asyncio.create_task(call(ctx, left))
        await running
        (tmp_path / "go").touch()
        await until((tmp_path / "written").exists, "the late write")
        text = text_of(await call(ctx, 'pwd; echo "$PATH"'))
        assert text.startswith(f"{tmp_path}\n")
        assert "/evil" not in text

    whole(body)


def test_a_megabyte_of_command_runs(tmp_path: Path) -> None:
    output = one(tmp_path, "cd /\n" + "# padding\n" * 100_000 + "echo done")
    assert text_of(output).startswith("done\n")


def test_a_command_does_not_find_itself_by_name(tmp_path: Path) -> None:
    output = one(tmp_path, "pgrep -f some-unusual-word || echo none")
    assert text_of(output).startswith("none\n")


@pytest.mark.spec("FAIL-2")
def test_a_state_that_cannot_be_stored_does_not_lose_the_result(tmp_path: Path) -> None:
    class Broken(MemoryState):
        async def set(self, key: str, value: object) -> None:
            raise PersistenceError("disk full")

    (text,) = several(tool_context(tmp_path, state=Broken()), "cd /; echo result")
    assert text.startswith("result\n")
    assert "could not be stored: disk full" in text


@pytest.mark.spec("TOOL-1")
def test_the_call_reads_in_a_line_and_previews_exactly(tmp_path: Path) -> None:
    args = TOOL.parse({"command": "pytest -q\nls"})
    assert TOOL.summary(args) == "Run `pytest -q` …"
    assert len(TOOL.summary(TOOL.parse({"command": "x" * 5000}))) < 200
    assert TOOL.paths(args, tool_context(tmp_path).workspace) == ()
    assert TOOL.definition.asks is Asks.ANYTHING
    assert TOOL.definition.timeout_s is None

    async def body() -> None:
        preview = await TOOL.preview(args, tool_context(tmp_path))
        assert preview == f"pytest -q\nls\n\nin {tmp_path}"

    whole(body)


@pytest.mark.parametrize("command", ["", "a\0b"])
def test_a_command_that_cannot_be_one_is_refused(tmp_path: Path, command: str) -> None:
    try:
        output = one(tmp_path, command)
    except InvalidArguments:
        return
    assert output.kind is OutputKind.TOOL_ERROR


@pytest.mark.spec("SEC-2")
def test_the_shell_is_never_one_from_the_workspace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = tmp_path / "bash"
    fake.write_text("#!/bin/sh\necho fake\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:.:/usr/bin:/bin")
    assert text_of(one(tmp_path, "echo real")).startswith("real\n")


def test_plain_sh_is_used_where_there_is_no_bash(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agentcli.tools.bash.SHELLS", ("sh",))
    (tmp_path / "sub").mkdir()
    texts = several(
        tool_context(tmp_path),
        "cd sub; export A='x\ny'; exit 3",
        'pwd; echo "$A"; set -e; cd ..; false',
        "pwd",
    )
    assert "[exit code 3" in texts[0]
    assert texts[1].startswith(f"{tmp_path}/sub\nx\ny\n")
    assert texts[2].startswith(f"{tmp_path}\n")


@pytest.mark.spec("SEC-15", "SEC-6")
def test_an_escalation_shows_all_that_earlier_commands_have_set(tmp_path: Path) -> None:
    names = {f"A{number}": "x" for number in range(40)}
    long = {"PATH": f"/usr/bin:{'x' * 400}:/evil/bin", "ZZ": "one\nline  of two"}
    place = tmp_path / "a\nin another place"
    place.mkdir()
    states = ShellStates(inside=ShellState(str(place), variables={**names, **long}))

    async def main() -> str:
        ctx = tool_context(tmp_path)
        await ctx.state.set(STATE_KEY, replace(states, outside=states.inside).to_json())
        return await TOOL.preview(TOOL.parse({"command": "git fetch", "access": "network"}), ctx)

    lines = asyncio.run(main()).splitlines()
    assert {f"  {name}=x" for name in names} <= {*lines}
    assert rf"in {tmp_path}/a\nin another place" in lines
    assert f"  PATH={long['PATH']}" in lines and r"  ZZ=one\nline  of two" in lines
