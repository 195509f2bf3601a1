"""PDFs: as documents where a provider takes them, else as text (TOOL-16)."""

from __future__ import annotations

import base64
import json
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.one_shot import check_sessions, result_of
from tests.support.cli import MODELS, Finished, agent_env, run_agent
from tests.support.model_server import ANTHROPIC, GEMINI, OPENAI, RESPONSES, ModelServer
from tests.support.replies import Reply, call, say

pytestmark = pytest.mark.sampled

TAKES_DOCUMENTS = [ANTHROPIC, RESPONSES, GEMINI]


def pdf_of(*pages: str) -> bytes:
    """A small PDF with a line of text on each page."""
    kids = " ".join(f"{4 + 2 * index} 0 R" for index in range(len(pages)))
    objects = [
        "<< /Type /Catalog /Pages 2 0 R >>",
        f"<< /Type /Pages /Kids [{kids}] /Count {len(pages)} >>",
        "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    ]
    for index, text in enumerate(pages):
        stream = f"BT /F1 12 Tf 20 100 Td ({text}) Tj ET"
        objects += [
            (
                "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 300 200] /Resources"
                f" << /Font << /F1 3 0 R >> >> /Contents {5 + 2 * index} 0 R >>"
            ),
            f"<< /Length {len(stream)} >>\nstream\n{stream}\nendstream",
        ]
    out = b"%PDF-1.4\n"
    places = []
    for number, body in enumerate(objects, 1):
        places.append(len(out))
        out += f"{number} 0 obj\n{body}\nendobj\n".encode()
    table = "".join(f"{place:010} 00000 n \n" for place in places)
    tail = f"xref\n0 {len(objects) + 1}\n0000000000 65535 f \n{table}"
    tail += f"trailer\n<< /Size {len(objects) + 1} /Root 1 0 R >>\nstartxref\n{len(out)}\n%%EOF\n"
    return out + tail.encode()


def ask(server: ModelServer, protocol: str, cwd: Path, *args: str) -> Finished:
    env = agent_env(server, protocol, AGENTCLI_MODEL=MODELS[protocol])
    args = args or ("read it",)
    return run_agent("run", *args, "--output-format", "json", env=env, cwd=cwd)


def documents(value: Any) -> list[bytes]:
    """The PDFs in the body of a request, in any protocol."""
    if isinstance(value, list):
        return [found for each in value for found in documents(each)]
    if not isinstance(value, dict):
        return []
    if "application/pdf" in (value.get("media_type"), value.get("mimeType")):
        return [base64.b64decode(value["data"])]
    if value.get("type") == "input_file":
        return [base64.b64decode(value["file_data"].removeprefix("data:application/pdf;base64,"))]
    return [found for each in value.values() for found in documents(each)]


@pytest.mark.slow
@pytest.mark.spec("TOOL-16")
@pytest.mark.parametrize("protocol", [*TAKES_DOCUMENTS, OPENAI])
def test_a_pdf_is_a_document_where_the_protocol_has_one_and_text_elsewhere(
    protocol: str, tmp_path: Path
) -> None:
    whole = pdf_of("first page", "second page", "third page")
    (tmp_path / "a.pdf").write_bytes(whole)
    replies = [call("read_file", {"path": "a.pdf"}), say("done")]
    with ModelServer(replies) as server:
        done = ask(server, protocol, tmp_path)
        assert result_of(done)["result"] == "done", done.stderr
        assert not server.violations
        sent = server.requests[1].body
    found = documents(sent)
    if protocol == OPENAI:
        assert found == []
        assert "--- page 2 ---\\nsecond page" in json.dumps(sent)
    else:
        assert found == [whole]
        assert "second page" not in json.dumps(sent)  # not twice
    assert "3 pages" in json.dumps(sent)
    check_sessions()


@pytest.mark.slow
@pytest.mark.spec("TOOL-16")
def test_only_the_pages_that_were_asked_for_are_sent(tmp_path: Path) -> None:
    (tmp_path / "a.pdf").write_bytes(pdf_of("first page", "second page", "third page"))
    replies = [call("read_file", {"path": "a.pdf", "pages": "2-3"}), say("done"), say("again")]
    with ModelServer(replies) as server:
        done = ask(server, ANTHROPIC, tmp_path)
        (part,) = documents(server.requests[1].body)
        assert b"/Count 2" in part
        more = ("go on", "--session", result_of(done)["session_id"], "-m", MODELS[OPENAI])
        assert result_of(ask(server, OPENAI, tmp_path, *more))["result"] == "again"
        assert not server.violations
        after = json.dumps(server.requests[2].body)
    assert "third page" in after  # the same history with a provider that takes no documents
    assert "first page" not in after
    assert "pages 2-3 of 3" in after


@pytest.mark.spec("TOOL-16", "UI-4")
@pytest.mark.parametrize("protocol", [ANTHROPIC, OPENAI])
def test_a_pdf_that_a_prompt_names_goes_along_and_it_says_how(
    protocol: str, tmp_path: Path
) -> None:
    whole = pdf_of("the only page")
    (tmp_path / "a.pdf").write_bytes(whole)
    with ModelServer([say("done")]) as server:
        done = ask(server, protocol, tmp_path, "what says @a.pdf ?")
        assert result_of(done)["result"] == "done", done.stderr
        assert not server.violations
        sent = server.requests[0].body
    assert "a.pdf: PDF, 1 page," in json.dumps(sent)
    if protocol == ANTHROPIC:
        assert documents(sent) == [whole]
    else:
        assert "the only page" in json.dumps(sent)


@pytest.mark.slow
@pytest.mark.spec("TOOL-16", "SEC-13")
@pytest.mark.parametrize(
    ("content", "pages", "says"),
    [
        (b"%PDF-1.4\nthis is none", None, "cannot be read"),
        (pdf_of(), None, "has no pages"),
        (pdf_of("one"), "4", "there is no page 4"),
        (pdf_of("one"), "2-1", "write it as"),
        (pdf_of("one"), "all", "write it as"),
        (pdf_of("one") + b"\0" * 33_000_000, None, "more than"),
    ],
)
def test_a_pdf_that_cannot_be_read_is_one_line(
    content: bytes, pages: str | None, says: str, tmp_path: Path
) -> None:
    (tmp_path / "a.pdf").write_bytes(content)
    with ModelServer([call("read_file", {"path": "a.pdf", "pages": pages}), say("done")]) as server:
        done = ask(server, ANTHROPIC, tmp_path)
        assert result_of(done)["result"] == "done", done.stderr
        assert not server.violations
        (result,) = server.requests[1].messages[-1]["content"]
    assert says in json.dumps(result)
    assert result["is_error"]


def encrypted(content: bytes, password: str) -> bytes:
    """``content`` for readers who know ``password``; only its owner may change it."""
    writer = pytest.importorskip("pypdf").PdfWriter(BytesIO(content))
    writer.encrypt(password, "the owner's", algorithm="RC4-128")
    out = BytesIO()
    writer.write(out)
    return out.getvalue()


@pytest.mark.slow
@pytest.mark.spec("TOOL-16")
def test_a_provider_gets_no_encrypted_pdf(tmp_path: Path) -> None:
    from agentcli.tools.files.paths import FileProblem
    from agentcli.tools.files.pdf import read_pdf

    everybody = read_pdf(encrypted(pdf_of("open"), ""), "a.pdf", None, workspace=tmp_path)
    assert "open" in everybody.part.text
    assert everybody.part.data.startswith(b"%PDF-")
    assert b"/Encrypt" not in everybody.part.data
    with pytest.raises(FileProblem, match="it is encrypted"):
        read_pdf(encrypted(pdf_of("shut"), "pass"), "a.pdf", None, workspace=tmp_path)


@pytest.mark.slow
@pytest.mark.spec("TOOL-16", "HIS-8")
def test_a_document_that_the_provider_refuses_goes_as_text(tmp_path: Path) -> None:
    (tmp_path / "a.pdf").write_bytes(pdf_of("the only page"))
    said = "messages.0.content.2.pdf.source.base64.data: The PDF specified was not valid."
    error = {"type": "error", "error": {"type": "invalid_request_error", "message": said}}
    refusal = Reply(status=400, body=json.dumps(error).encode())
    with ModelServer([refusal, say("done")]) as server:
        done = ask(server, ANTHROPIC, tmp_path, "what says @a.pdf ?")
        assert result_of(done)["result"] == "done", done.stderr
        assert not server.violations
        first, second = (request.body for request in server.requests)
    assert len(documents(first)) == 1
    assert not documents(second)
    assert "the only page" in json.dumps(second)
    assert "refused 1 document" in done.stderr
    check_sessions()
