"""The explorer's server: programs that never end or die, questions of others, and the page in a browser."""

from __future__ import annotations

import functools
import http.client
import http.server
import json
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import tec
from tec.explore import pictures
from tec.explore.page import EXAMPLE
from tec.explore.worker import Worker

for _package in ("starlette", "uvicorn"):
    pytest.importorskip(_package)
app = pytest.importorskip("tec.explore.app")

TOKEN = "the-token"
TARGET = "cuda -arch=sm_90"


class Counted(Worker):
    """Counts the programs that it is asked to run."""

    asked = 0

    def ask(self, code: str, target: str) -> dict[str, Any]:
        self.asked += 1
        return super().ask(code, target)


@pytest.fixture(scope="module")
def worker() -> Iterator[Counted]:
    with Counted(60.0) as w:
        yield w


@pytest.fixture(scope="module")
def port(worker: Counted) -> Iterator[int]:
    at = app.listening(0)
    server = app.server(worker, at, TOKEN, EXAMPLE, TARGET)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [at]}, daemon=True)
    thread.start()
    yield int(at.getsockname()[1])
    server.should_exit = True
    thread.join(10)
    assert not thread.is_alive()


def alive(pid: int) -> bool:
    """Whether a process runs; one that ended and is not waited for does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def test_programs_that_never_end_or_die_end_only_their_process(worker, tmp_path):
    assert "answer" in worker.ask(EXAMPLE, TARGET)  # now it is warm
    first = worker._process.pid
    told = tmp_path / "pid"
    code = f"import subprocess, sys\np = subprocess.Popen(['sleep', '300'])\nopen({str(told)!r}, 'w').write(str(p.pid))\nwhile True: pass\n"
    worker.seconds = 1.0
    began = time.monotonic()
    got = worker.ask(code, "llvm")
    assert "more than 1 seconds" in got["error"]["message"] and time.monotonic() - began < 20
    until = time.monotonic() + 5
    while alive(int(told.read_text())) and time.monotonic() < until:
        time.sleep(0.02)
    assert not alive(int(told.read_text())) and not alive(first)  # what it started, too
    worker.seconds = 60.0
    for code, said in (
        ("import os\nos._exit(7)\n", "exit status 7"),
        ("import os\nos.kill(os.getpid(), 11)\n", "SIGSEGV"),
    ):
        assert said in worker.ask(code, "llvm")["error"]["message"]
    got = worker.ask("import os\nos.write(1, b'{}\\n')\nprint(input())\n", "llvm")  # neither reaches the pipes
    assert "EOFError" in got["error"]["message"] and got["error"]["line"] == 3
    assert "MemoryError" in worker.ask("x = bytearray(1 << 40)\n", "llvm")["error"]["message"]
    assert "answer" in worker.ask(EXAMPLE, TARGET)


@pytest.mark.parametrize(
    "headers, status",
    [
        ({"X-Tec-Token": "wrong"}, 403),
        ({"X-Tec-Token": None}, 403),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Host": "evil.example"}, 403),
        ({"Host": "evil.example:{port}"}, 403),
        ({"Content-Type": "text/plain"}, 415),
    ],
)
def test_questions_of_others_run_nothing(worker, port, headers, status):
    sent = {
        "Content-Type": "application/json",
        "X-Tec-Token": TOKEN,
        "Host": f"127.0.0.1:{port}",
        **{k: v and v.format(port=port) for k, v in headers.items()},
    }
    before = worker.asked
    got, answer = question(port, json.dumps({"code": "", "target": "llvm"}), sent)
    assert got.status == status and json.loads(answer)["error"]["message"]
    assert worker.asked == before and not [n for n, _ in got.getheaders() if n.lower().startswith("access-control")]


def question(
    port: int, body: str, headers: dict[str, str | None], method: str = "POST", path: str = "/explain"
) -> tuple[http.client.HTTPResponse, bytes]:
    c = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    c.putrequest(method, path, skip_host=True)
    for name, value in {**headers, "Content-Length": str(len(body))}.items():
        if value is not None:
            c.putheader(name, value)
    c.endheaders()
    try:
        c.send(body.encode())
    except OSError:
        pass  # it was refused before its end
    got = c.getresponse()
    return got, got.read()


def test_what_a_question_must_be(worker, port):
    good = {
        "Content-Type": "application/json",
        "X-Tec-Token": TOKEN,
        "Host": f"localhost:{port}",
        "Origin": f"http://localhost:{port}",
    }
    before = worker.asked
    for body in ("{", "[]", '{"code": 3, "target": "llvm"}', '{"code": ""}'):
        assert question(port, body, good)[0].status == 400
    assert question(port, "x" * 300_000, good)[0].status == 413
    assert question(port, "", good, "OPTIONS")[0].status == 405  # no page of another origin is allowed anything
    assert question(port, "", {"Host": f"127.0.0.1:{port}"}, "GET", "/?token=wrong")[0].status == 403
    assert worker.asked == before
    got, answer = question(port, json.dumps({"code": "1 +", "target": "llvm"}), good)
    assert got.status == 200 and json.loads(answer)["error"]["line"] == 1 and worker.asked == before + 1


def test_it_listens_on_the_loopback_alone():
    at = app.listening(0)
    assert at.getsockname()[0] == "127.0.0.1"
    with pytest.raises(OSError, match="in use"):
        app.listening(at.getsockname()[1])
    at.close()


# ---- in a browser


_TYPE = """
const until = async f => { for (let k = 0; k < 600 && !f(); k++) await new Promise(r => setTimeout(r, 50)); if (!f()) throw new Error("too long: " + document.getElementById("status").textContent); };
const code = document.getElementById("code"), type = async text => { const before = shown.answer; code.value = text; code.oninput(); await until(() => !waitingFor()); };
const waitingFor = () => /…/.test(document.getElementById("status").textContent);
await until(() => shown.answer);
const good = code.value, said = [];
await type(good.replace("factor=4", "factor=0"));
said.push([document.getElementById("error").textContent, document.querySelector("#lines .bad")?.textContent, document.body.classList.contains("stale")]);
await type(good.replace("* 2.0", "* 3.0"));
said.push([document.getElementById("error").hidden, document.querySelector(".code[data-kind=ir]").textContent.includes("3.0")]);
const stores = [...document.querySelectorAll(".code[data-kind=asm] li")].filter((l, i) => shown.answer.parts[0].of_asm[i] && /st\\.global/.test(l.textContent));
stores.at(-1).click();
said.push([shown.marked, [...document.querySelectorAll(".code li.on, .code li.near")].map(l => l.closest("[data-kind]").dataset.kind)]);
return {said, wide: document.documentElement.scrollWidth - innerWidth, boxes: document.querySelectorAll("#nest rect").length};
"""


def test_a_browser_types_a_program(port, browser):
    with browser.tab(1440) as tab:
        tab.open(f"http://127.0.0.1:{port}/?token={TOKEN}")
        got = tab.run(_TYPE)
        assert tab.errors() == []
    (error, line, stale), (hidden, changed), (marked, kinds) = got["said"]
    assert "factor" in error and line == "10" and stale and hidden and changed
    assert marked == [6] and {"ir", "llvm", "asm"} <= set(kinds)
    assert got["wide"] <= 0 and got["boxes"] > 3


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *words: Any) -> None:
        """Nothing is printed."""


def test_a_page_of_another_origin_runs_nothing(worker, port, browser, tmp_path):
    """A page of another port of this machine asks in every way that a browser has without leave."""
    (tmp_path / "other.html").write_text("<!doctype html><p>another page</p>")
    other = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(tmp_path)))
    threading.Thread(target=other.serve_forever, daemon=True).start()
    before = worker.asked
    address = f"http://127.0.0.1:{port}/explain"
    script = f"""
    const body = JSON.stringify({{code: "", target: "llvm"}}), how = [{{}}, {{mode: "no-cors"}}, {{headers: {{"content-type": "application/json", "x-tec-token": "{TOKEN}"}}}},
      {{mode: "no-cors", headers: {{"content-type": "text/plain"}}}}], said = [];
    for (const h of how) try {{ const r = await fetch("{address}", {{method: "POST", body, ...h}}); said.push(r.type); }} catch (e) {{ said.push("refused"); }}
    navigator.sendBeacon("{address}", body);
    const frame = document.createElement("iframe"); frame.src = "http://127.0.0.1:{port}/?token={TOKEN}"; document.body.append(frame);
    await new Promise(r => setTimeout(r, 300));
    return said;"""
    with browser.tab() as tab:
        tab.open(f"http://127.0.0.1:{other.server_port}/other.html")
        assert tab.run(script) == ["refused"] * 4
    other.shutdown()
    other.server_close()
    assert worker.asked == before


def test_the_title_of_a_picture_lies_within_it(browser, tmp_path):
    """A column of one work-group's elements: the picture is narrow, its title is not."""
    n = tec.placeholder((256, 2), name="a_long_name")
    b = tec.compute((256, 2), lambda i, j: n[i, j] + 1.0, name="another_long_name")
    s = tec.create_schedule(b.op)
    block, thread = s[b].split(b.op.axis[0], factor=16)
    s[b].bind(block, tec.thread_axis("blockIdx.x"))
    s[b].bind(thread, tec.thread_axis("threadIdx.x"))
    (tmp_path / "picture.html").write_text(pictures.who_does_what(tec.schedule.to_loops(s, [n, b])))
    script = """return [...document.querySelectorAll("svg text")].map(t => [t.textContent, t.getBBox().x + t.getBBox().width, t.ownerSVGElement.viewBox.baseVal.width]);"""
    with browser.tab(1440) as tab:
        tab.open((tmp_path / "picture.html").as_uri())
        found = tab.run(script)
    assert any("by thread" in text for text, *_ in found)
    assert [row for row in found if row[1] > row[2]] == []


def test_a_page_is_exported_and_needs_no_server(browser, tmp_path):
    click_testing = pytest.importorskip("click.testing")
    from tec.cli.app import app as cli

    program, page = tmp_path / "double.py", tmp_path / "double.html"
    program.write_text(EXAMPLE)
    words = ["explore", str(program), "--export", str(page), "-t", "rocm -mcpu=mi300x", "-t", "cuda -arch=h200"]
    got = click_testing.CliRunner().invoke(cli, words)
    assert got.exit_code == 0, got.output
    script = """const t = document.getElementById("target"), text = () => document.querySelector(".code[data-kind=asm]").textContent, said = [text().includes("s_endpgm")];
    t.value = t.options[1].value; t.onchange(); said.push(text().includes("st.global"));
    return {said, names: [...t.options].map(o => o.textContent), fixed: document.getElementById("code").readOnly, wide: document.documentElement.scrollWidth - innerWidth};"""
    with browser.tab(390, dark=True) as tab:
        tab.open(page.as_uri())
        got = tab.run(script)
        assert tab.errors() == []
    assert got["said"] == [True, True] and got["fixed"] and got["wide"] <= 0
    assert got["names"][0] == "MI300X (gfx942)" and got["names"][1] == "H200 (sm_90)"
    some = click_testing.CliRunner().invoke(
        cli, ["explore", str(program), "--export", str(page), "-t", "llvm", "-t", "cuda -arch=h200"]
    )
    assert some.exit_code == 0 and "bound to blockIdx.x" in some.output and "for llvm" in some.output
    with browser.tab(390) as tab:  # it begins with the target that the program is for
        tab.open(page.as_uri())
        script = """const t = document.getElementById("target"), e = document.getElementById("error"), said = [t.value, e.hidden];
        t.value = "llvm"; t.onchange(); return [...said, e.textContent, document.getElementById("status").textContent];"""
        text, hidden, error, status = tab.run(script)
        assert tab.errors() == []
    assert text == "cuda -arch=h200" and hidden and "bound to blockIdx.x" in error and "for this target" in status
    program.write_text("import tec\n1 / 0\n")
    bad = click_testing.CliRunner().invoke(cli, words)
    assert bad.exit_code == 2 and "double.py:2: ZeroDivisionError" in bad.output
    for more, said in (
        (["-t", "llvm", "-t", "cuda"], "one target"),
        (["--export", "x.html"], "needs a PROGRAM"),
        (["nothing.py"], "cannot be read"),
    ):
        bad = click_testing.CliRunner().invoke(cli, ["explore", "--no-browser", *more])
        assert bad.exit_code == 2 and said in bad.output, bad.output


def test_the_worker_ends_with_the_server():
    with Worker() as w:
        w.start()
        pid, folder = w._process.pid, Path(w._folder.name)
        assert alive(pid) and folder.is_dir()
        said = w.ask("import os, time\nprint(os.getcwd(), __file__)\nopen('note', 'w').close()\n", "llvm")
        assert said["printed"].startswith(f"{folder.resolve()} {folder.resolve()}/")
    assert not alive(pid) and not folder.exists()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
