"""The map of the code in the installed program: the tools in a run, and ``agent map`` (MEM-3)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.e2e.one_shot import check_sessions, result_of
from tests.support.cli import agent_env, run_agent
from tests.support.model_server import ModelServer
from tests.support.replies import Reply, call, say

HOSTILE = "<script>alert(1)</script>\x1b[31m.py"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    root = tmp_path / "project"
    (root / "shop").mkdir(parents=True)
    (root / "shop/cart.py").write_text("class Cart:\n    def total(self): pass\n")
    (root / "main.py").write_text("from shop.cart import Cart\nCart().total()\n")
    return root


@pytest.mark.slow
@pytest.mark.spec("MEM-3")
def test_a_model_asks_the_map_without_having_been_offered_it(project: Path) -> None:
    replies = [
        call("symbols", {"query": "Cart"}),
        call("references", {"path": "shop/cart.py", "line": 1}),
        say("done"),
    ]
    with ModelServer(replies) as server:
        done = run_agent(
            "run", "who uses Cart", "--output-format", "json", env=agent_env(server), cwd=project
        )
        assert result_of(done)["result"] == "done", done.stderr
        assert not server.violations
        told = json.dumps(server.requests[-1].body)
        offered = json.dumps(server.requests[0].body["tools"])
    assert "shop/cart.py:1 class Cart, used in:" in told
    assert "main.py:1, 2" in told
    assert '"symbols"' not in offered
    check_sessions()


@pytest.mark.slow
@pytest.mark.spec("MEM-3", "CLI-9")
def test_agent_map_is_a_tree_json_a_graph_and_a_page(project: Path) -> None:
    (project / HOSTILE.replace("/", "_")).write_text("import shop\n")
    tree = run_agent("map", str(project))
    assert (tree.code, tree.stderr) == (0, "")
    assert "shop/\n  cart.py" in tree.stdout
    assert "Cart:1, Cart.total:2" in tree.stdout
    assert "\x1b" not in tree.stdout
    value = json.loads(run_agent("map", "--format", "json", cwd=project).stdout)
    assert value["state"]["files"] == 3
    (link,) = value["links"]
    assert (link["user"], link["used"]) == ("main.py", "shop/cart.py")
    assert '"main.py" -> "shop/cart.py"' in run_agent("map", "--format", "dot", cwd=project).stdout
    page = project.parent / "map.html"
    made = run_agent("map", str(project), "--format", "html", "-o", str(page))
    assert made.stderr == f"written: {page}\n"
    text = page.read_text()
    assert "default-src 'none'" in text
    assert "<script" not in text
    assert "&lt;script&gt;" in text
    assert 'id="f0"' in text
    again = run_agent("map", str(project), "--format", "html", "-o", str(page))
    assert (again.code, "exists already" in again.stderr) == (2, True)


@pytest.mark.spec("MEM-3")
def test_what_cannot_be_mapped_is_told_in_one_line(project: Path) -> None:
    for words, told in (
        (("map", str(project / "main.py")), "is a file"),
        (("map", str(project / "nowhere")), "does not exist"),
        (("map", "--format", "png"), "one of: tree, json, dot, html"),
    ):
        done = run_agent(*words, cwd=project)
        assert done.code == 2
        assert told in done.stderr
        assert len(done.stderr.splitlines()) == 1
    (project.parent / "empty").mkdir()
    assert "0 files" in run_agent("map", cwd=project.parent / "empty").stdout


@pytest.mark.slow
@pytest.mark.spec("MEM-3")
def test_the_history_of_a_file_names_the_prompts_whose_calls_touched_it(project: Path) -> None:
    replies = [
        call("read_file", {"path": "shop/cart.py"}),
        call("bash", {"command": "cat ./shop/cart.py | wc -l"}),
        say("read"),
        call("read_file", {"path": "main.py"}),
        call("write_file", {"path": "shop/cart.py", "content": "refused"}),
        say("other"),
    ]
    with ModelServer(replies) as server:
        env = agent_env(server)
        for prompt in ("look at the cart", "cart.py is not for this"):
            run_agent("run", prompt, "--yolo", "--deny-tool=write_file", env=env, cwd=project)
        assert not server.violations
    words = ("sessions", "search", "--file", "shop/cart.py", "--format", "json")
    found = json.loads(run_agent(*words, cwd=project).stdout)
    assert {row["tool"] for row in found} == {"read_file", "bash"}
    assert {row["prompt"] for row in found} == {"look at the cart"}
    told = run_agent("map", "--history", "../project/shop/cart.py", cwd=project)
    assert "look at the cart" in told.stdout
    assert "not for this" not in told.stdout
    none = run_agent("map", "--history", "cart.py", cwd=project)
    assert (none.code, none.stdout) == (1, "")
    assert "no session has touched cart.py" in none.stderr
    assert run_agent("sessions", "search").code == 2
    assert run_agent("sessions", "search", "x", "--file", "y").code == 2


@pytest.mark.slow
@pytest.mark.spec("MEM-3")
def test_the_history_of_a_symbol_names_the_prompts_that_changed_its_lines(project: Path) -> None:
    def edit(old: str, new: str) -> Reply:
        return call("edit_file", {"path": "shop/cart.py", "old_string": old, "new_string": new})

    above = call("bash", {"command": "sed -i '1i import os' shop/cart.py"})
    delegated = call("task", {"prompt": "help", "description": "help"})
    replies = [
        *(call("read_file", {"path": "shop/cart.py"}), edit("): pass", "): return 1"), say("ok")),
        *(above, say("ok")),
        *(delegated, call("read_file", {"path": "shop/cart.py"})),
        *(edit("return 1", "return 3"), say("helped"), say("ok")),
        *(call("write_file", {"path": "shop/other.py", "content": "x = 1\n"}), say("ok")),
    ]
    with ModelServer(replies) as server:
        env = agent_env(server)
        for prompt in ("make it one", "import at the top", "delegate it", "something else"):
            done = run_agent("run", prompt, "--yolo", "--sandbox", "off", env=env, cwd=project)
            assert done.code == 0, done.stderr

    def prompts(*words: str) -> list[tuple[str, str]]:
        found = run_agent("map", "--format", "json", "--history", *words, cwd=project)
        return [(row["prompt"], row["tool"]) for row in json.loads(found.stdout)]

    changed = [("delegate it", "task"), ("make it one", "edit_file")]
    for what in ("shop/cart.py:Cart.total", "Cart.total", "total", "shop/cart.py:Cart"):
        assert prompts(what) == changed
    assert "import at the top" in {prompt for prompt, _ in prompts("shop/cart.py")}
    (project / "shop/cart.py").unlink()
    assert prompts("shop/cart.py:Cart::total") == changed
    none = run_agent("map", "--history", "shop/cart.py:Basket", cwd=project)
    assert (none.code, none.stdout) == (1, "")
    assert "no session has changed Basket in cart.py" in none.stderr
