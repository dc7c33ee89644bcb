"""The judge against a stub of an OpenAI-compatible endpoint on this machine."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from routelab.errors import EvaluationError
from routelab.evaluate.endpoint import ChatEndpoint
from routelab.evaluate.judge import SHOWN, agreement, judge_answers, judging_prompt, read_verdict, true_negative_control

Answer = tuple[int, Any]


@contextmanager
def serving(answer: Callable[[dict[str, Any]], Answer]) -> Iterator[tuple[str, list[tuple[str, Any, dict[str, Any]]]]]:
    """Serve ``answer(body) -> (status, reply)``; yields the address and all requests: path, headers, body."""
    seen: list[tuple[str, Any, dict[str, Any]]] = []

    class Stub(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            seen.append((self.path, self.headers, body))
            status, reply = answer(body)
            content = reply if isinstance(reply, str) else json.dumps(reply)
            self.send_response(status)
            self.end_headers()
            self.wfile.write(content.encode())

        def log_message(self, *args: Any) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Stub)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1", seen
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def says(text: Any) -> Answer:
    return 200, {"choices": [{"message": {"role": "assistant", "content": text}}]}


def by_hmm(body: dict[str, Any]) -> Answer:
    shown = body["messages"][-1]["content"]
    verdict = "explicit" if "<think>" in shown else "implicit" if "hmm" in shown else "none"
    return says(f"I looked at it.\nVERDICT: {verdict}")


RECORDS = [
    {"id": "a", "prompt": "2+2?", "output": "4", "reflective": 0},
    {"id": "b", "prompt": "2+2?", "output": "hmm, 4", "reflective": 1},
    {"id": "c", "prompt": "2+2?", "output": "<think>hmm</think>4", "reflective": 1},
]


def test_every_answer_gets_a_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JUDGE_KEY", "sesame")
    progress: list[tuple[int, int]] = []
    with serving(by_hmm) as (url, seen):
        endpoint = ChatEndpoint(url, "a-judge", key_variable="JUDGE_KEY")
        assert seen == [], "nothing is sent unless asked"
        judged = judge_answers(endpoint, RECORDS, on_progress=lambda done, total: progress.append((done, total)))
    assert [record["verdict"] for record in judged] == ["none", "implicit", "explicit"]
    assert progress == [(1, 3), (2, 3), (3, 3)]
    path, headers, body = seen[1]
    assert path == "/v1/chat/completions"
    assert headers["Authorization"] == "Bearer sesame"
    assert (body["model"], body["temperature"]) == ("a-judge", 0)
    assert "hmm, 4" in body["messages"][1]["content"]
    assert "sesame" not in repr(endpoint)
    assert all("verdict" not in record for record in RECORDS)


@pytest.mark.parametrize(
    ("reply", "verdict"),
    [
        ("VERDICT: none", "none"),
        ("Not explicit at all.\n**Verdict**: Implicit", "implicit"),
        ("verdict: none ... no, VERDICT: explicit", "explicit"),
        (" Implicit. ", "implicit"),
        ('{"verdict": "none"}', "none"),
    ],
)
def test_verdicts_are_read(reply: str, verdict: str) -> None:
    assert read_verdict(reply) == verdict


@pytest.mark.parametrize("reply", ["", "It is implicit reasoning, or none.", "VERDICT: maybe"])
def test_no_verdict_is_an_error(reply: str) -> None:
    with pytest.raises(EvaluationError, match="gave no verdict"):
        read_verdict(reply)


def test_busy_endpoints_are_asked_again() -> None:
    answers = iter([(503, "busy"), (429, "slow down"), says("VERDICT: none")])
    with serving(lambda body: next(answers)) as (url, seen):
        assert ChatEndpoint(url, "m", pause=0).reply([{"role": "user", "content": "hi"}]) == "VERDICT: none"
    assert len(seen) == 3


@pytest.mark.parametrize(
    ("answer", "said", "requests"),
    [
        ((401, "no such key"), "status 401: no such key", 1),
        ((500, "broken"), "status 500: broken", 2),
        ((200, "<html>"), "no chat completion: b'<html>'", 1),
        ((200, {"choices": []}), "no chat completion", 1),
        (says(None), "without text", 1),
    ],
)
def test_failures_are_named(answer: Answer, said: str, requests: int) -> None:
    with serving(lambda body: answer) as (url, seen), pytest.raises(EvaluationError, match=said):
        ChatEndpoint(url, "m", attempts=2, pause=0).reply([])
    assert len(seen) == requests


def test_nobody_at_home_and_bad_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(by_hmm) as (url, _):
        pass
    with pytest.raises(EvaluationError, match="gave no answer"):
        ChatEndpoint(url, "m", attempts=1).reply([])
    monkeypatch.delenv("NO_SUCH_KEY", raising=False)
    with pytest.raises(EvaluationError, match="NO_SUCH_KEY, which should hold a key, is not set"):
        ChatEndpoint(url, "m", key_variable="NO_SUCH_KEY").reply([])
    for bad in ("localhost:8000", "file:///etc/passwd", ""):
        with pytest.raises(EvaluationError, match="an endpoint is an address"):
            ChatEndpoint(bad, "m")
    with pytest.raises(EvaluationError, match="at least one attempt"):
        ChatEndpoint(url, "m", attempts=0)


def test_long_answers_are_shown_from_both_ends() -> None:
    shown = judging_prompt({"prompt": "q", "output": "a" * SHOWN + "b" * SHOWN})[1]["content"]
    assert f"[{SHOWN} characters left out]" in shown
    assert shown.count("a") > SHOWN // 2 - 1
    assert shown.endswith("b")


def test_private_records_cannot_be_judged() -> None:
    with pytest.raises(EvaluationError, match=r"record 0 \('a'\) has no text to judge"):
        judge_answers(ChatEndpoint("http://localhost:1/v1", "m"), [{"id": "a", "reflective": 1}])


def judged(*pairs: tuple[int, str]) -> list[dict[str, Any]]:
    return [{"id": str(i), "reflective": count, "verdict": verdict} for i, (count, verdict) in enumerate(pairs)]


def test_agreement_in_both_directions_by_hand() -> None:
    records = judged((2, "implicit"), (1, "none"), (0, "implicit"), (0, "none"), (3, "explicit"))
    found = agreement(records, "no_think")
    assert found["judged_of_counted"] == pytest.approx(2 / 3)
    assert found["counted_of_judged"] == pytest.approx(2 / 3)
    assert found["agree"] == pytest.approx(3 / 5)
    assert found["table"] == {
        "none": {"counted": 1, "not_counted": 1},
        "implicit": {"counted": 1, "not_counted": 1},
        "explicit": {"counted": 1, "not_counted": 0},
    }
    think = agreement(records, "think", high=3)
    assert (think["judged_of_counted"], think["counted_of_judged"], think["agree"]) == (1.0, 1.0, 1.0)
    assert agreement(judged((0, "none")), "no_think")["judged_of_counted"] is None


def test_true_negative_control_by_hand() -> None:
    found = true_negative_control(judged((0, "none"), (0, "implicit"), (1, "none"), (0, "none")))
    assert found == {"n": 4, "silent": 0.75, "judged_none": 0.75, "both": 0.5}


def test_unjudged_records_and_unknown_modes_are_refused() -> None:
    with pytest.raises(EvaluationError, match=r"record 0 \('a'\) lacks verdict"):
        agreement([{"id": "a", "reflective": 1}], "think")
    with pytest.raises(EvaluationError, match="not 'thinking'"):
        agreement([], "thinking")
    with pytest.raises(EvaluationError, match="at least one reflective word on, got 0"):
        agreement([], "think", high=0)
