"""A client of an OpenAI-compatible chat endpoint. Nothing is sent but by :meth:`ChatEndpoint.reply`."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

from routelab.errors import EvaluationError

_TRY_AGAIN = frozenset({408, 409, 429, 500, 502, 503, 504})


@dataclass(frozen=True)
class ChatEndpoint:
    """Where a model answers chats.

    Attributes:
        url: the base of the interface, such as ``http://localhost:8000/v1``.
        model: the model's name there.
        key_variable: the environment variable that holds the key, if one is needed; the key itself is kept nowhere.
        seconds: how long to wait for one reply.
        attempts: how often a busy, failing or silent endpoint is asked, with ``pause`` seconds before the second time,
            and twice as many before each further one.

    Raises:
        EvaluationError: an address that is not http or https, or a number out of range.
    """

    url: str
    model: str
    key_variable: str | None = None
    seconds: float = 120.0
    attempts: int = 3
    pause: float = 1.0
    max_tokens: int = 1024

    def __post_init__(self) -> None:
        parts = urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.netloc:
            raise EvaluationError(f"an endpoint is an address such as http://localhost:8000/v1, got {self.url!r}")
        if self.attempts < 1 or self.seconds <= 0 or self.pause < 0 or self.max_tokens < 1:
            raise EvaluationError(
                "an endpoint needs at least one attempt and token, some seconds, and no negative pause"
            )

    def reply(self, messages: Sequence[Mapping[str, str]]) -> str:
        """Send ``messages`` and return what the model answers, drawn at temperature 0.

        Raises:
            EvaluationError: the key's variable is not set, the endpoint cannot be reached or refuses, or its answer is
                no chat completion.
        """
        body = {"model": self.model, "messages": list(messages), "temperature": 0, "max_tokens": self.max_tokens}
        request = Request(
            f"{self.url.rstrip('/')}/chat/completions",
            data=json.dumps(body).encode(),
            headers={"Content-Type": "application/json", **self._authorisation()},
        )
        answer = self._send(request)
        try:
            text = json.loads(answer)["choices"][0]["message"]["content"]
        except (ValueError, KeyError, IndexError, TypeError) as error:
            raise EvaluationError(f"{self.url} answered with no chat completion: {answer[:200]!r}") from error
        if not isinstance(text, str):
            raise EvaluationError(f"{self.url} answered without text: {answer[:200]!r}")
        return text

    def _authorisation(self) -> dict[str, str]:
        if self.key_variable is None:
            return {}
        key = os.environ.get(self.key_variable)
        if not key:
            raise EvaluationError(f"the environment variable {self.key_variable}, which should hold a key, is not set")
        return {"Authorization": f"Bearer {key}"}

    def _send(self, request: Request) -> bytes:
        for attempt in range(1, self.attempts + 1):
            try:
                with urlopen(request, timeout=self.seconds) as response:
                    body: bytes = response.read()
                return body
            except HTTPError as error:
                said = error.read(300).decode(errors="replace")
                problem: Any = f"status {error.code}: {said}"
                if error.code not in _TRY_AGAIN:
                    break
            except (URLError, OSError, HTTPException) as error:
                problem = error
            if attempt < self.attempts:
                time.sleep(self.pause * 2 ** (attempt - 1))
        raise EvaluationError(f"{self.url} gave no answer: {problem}")
