"""What an installation without the extras says in their place; the command that adds one."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import pytest

from agentcli.cli.setup.doctor import check_extras
from agentcli.domain.extensions.extras import EXTRAS, has_extra, install_command
from agentcli.tools.web.page import to_markdown
from tests.support.cli import agent_env
from tests.support.histories import png
from tests.support.model_server import ModelServer
from tests.support.replies import say

WITHOUT = (
    "import sys; sys.modules |= dict.fromkeys({}); from agentcli.cli.entry import main; main()"
)


def lacking(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    for name in names:
        monkeypatch.setitem(sys.modules, EXTRAS[name][0], None)


@pytest.mark.spec("HIS-8")
def test_an_image_that_does_not_fit_is_left_out_with_the_command_that_would_make_it_fit(
    model_server: ModelServer, tmp_path: Path
) -> None:
    (tmp_path / "wide.png").write_bytes(png(2_400, 10))
    (tmp_path / "small.png").write_bytes(png(20, 10))
    model_server.add(say("I see."))
    code = WITHOUT.format([EXTRAS["images"][0]])
    done = subprocess.run(
        [sys.executable, "-c", code, "run", "what is on @wide.png and @small.png?"],
        env=agent_env(model_server),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=20,
    )
    assert (done.returncode, done.stdout) == (0, "I see.\n")
    told = "image/png, 2,400x10 px"
    advice = f"longer than 2,000 px; to have it made to fit: {install_command('images')}]"
    (request,) = model_server.requests
    sent = json.dumps(request.body)
    assert told in sent and advice in sent and sent.count('"media_type"') == 1
    assert told in done.stderr and "agentcli[images]" in done.stderr


@pytest.mark.spec("TOOL-12")
def test_a_page_is_its_bare_text_and_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    lacking(monkeypatch, "web")
    page = "<title>T</title><h1>Start</h1><p>Read <a href=/x>this</a>.<script>no</script>"
    found = asyncio.run(to_markdown(page, "https://docs.example/"))
    assert found.text == "T\nStart\nRead this."
    assert found.note.endswith(f"for Markdown with links: {install_command('web')}")


@pytest.mark.spec("OPS-3")
def test_the_report_names_what_is_missing_and_one_command_for_all_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lacking(monkeypatch, *EXTRAS)
    (found,) = check_extras()
    assert all(f"{name} (" in found.detail for name in EXTRAS)
    assert found.detail.endswith("install 'agentcli[images,web,pdf,map,keyring]'")
    monkeypatch.undo()
    monkeypatch.setattr("agentcli.cli.setup.doctor.has_extra", lambda _: True)
    assert check_extras()[0].detail == "images, web, pdf, map, keyring"


def test_the_command_is_that_of_this_installation(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    prefix = tmp_path / "agent cli"
    prefix.mkdir()
    monkeypatch.setattr(sys, "prefix", str(prefix))
    monkeypatch.setattr(sys, "executable", str(prefix / "bin/python"))
    python = f"'{prefix}/bin/python'"
    assert install_command("pdf") == f"{python} -m pip install 'agentcli[pdf]'"
    monkeypatch.setenv("VIRTUAL_ENV", str(prefix))
    assert install_command("pdf") == "pip install 'agentcli[pdf]'"
    monkeypatch.setitem(sys.modules, "pip", None)
    assert install_command("pdf") == f"uv pip install --python {python} 'agentcli[pdf]'"
    (prefix / "pipx_metadata.json").touch()
    assert install_command("pdf") == "pipx runpip 'agent cli' install 'agentcli[pdf]'"


def test_what_is_installed_is_seen_without_importing_it() -> None:
    code = (
        "from agentcli.domain.extensions.extras import *; import sys; assert has_extra('images');"
    )
    code += "assert 'PIL' not in sys.modules"
    if has_extra("images"):
        subprocess.run([sys.executable, "-c", code], check=True)
