"""Questions to a language model behind an OpenAI-compatible endpoint (vLLM and others).

What fails for a while is asked again: no connection, no answer in time, status 408, 409, 429 and
5xx, and answers that are not the protocol's (cut off on the way). In between it waits as long as
the endpoint says (Retry-After), or twice as long each time, with some chance in it. Anything else
is a mistake of ours that would be one each time: it ends the run. Neither questions nor answers are
in messages: texts may be private. The key is read from the environment, and goes nowhere else.
"""

import asyncio
import dataclasses
import email.utils
import os
import random
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import httpx2

AGAIN = frozenset({408, 409, 429})  # and 5xx: statuses that may pass
FIRST_WAIT, LONGEST_WAIT = 0.5, 60.0  # seconds
MILLION = 1e6


@dataclasses.dataclass(frozen=True)
class Endpoint:
    """Where a model is, and how it may be asked.

    Attributes:
      url: up to and with the version: http://localhost:8000/v1.
      model: its name there.
      key_variable: the environment's name of the key; None: none is sent.
      concurrency: questions at a time.
      requests_per_minute, tokens_per_minute: no more than that on average; None: no limit.
      timeout: seconds to wait for an answer.
      attempts: how many times a question is asked in all before it is given up for this run.
      max_tokens: of an answer.
      temperature: of sampling.
      price_in, price_out: of a million tokens of questions and of answers, in any currency.
      budget: in that currency; nothing is asked once so much is spent. None: no limit.
    """

    url: str
    model: str
    key_variable: str | None = None
    concurrency: int = 16
    requests_per_minute: float | None = None
    tokens_per_minute: float | None = None
    timeout: float = 120.0
    attempts: int = 6
    max_tokens: int = 200
    temperature: float = 0.0
    price_in: float = 0.0
    price_out: float = 0.0
    budget: float | None = None

    def faults(self) -> list[str]:
        """What cannot be meant, each as "field: value is not ..."."""
        faults = [
            f"{name}: {getattr(self, name)} is not 1 or more"
            for name in ("concurrency", "attempts", "max_tokens")
            if getattr(self, name) < 1
        ]
        for name in ("requests_per_minute", "tokens_per_minute", "timeout", "budget"):
            value = getattr(self, name)
            if value is not None and not 0 < value < float("inf"):
                faults.append(f"{name}: {value} is not a number above 0")
        for name in ("temperature", "price_in", "price_out"):
            if not 0 <= getattr(self, name) < float("inf"):
                faults.append(f"{name}: {getattr(self, name)} is not a number from 0")
        if self.budget is not None and not self.price_in + self.price_out > 0:
            faults.append("budget: without price_in and price_out nothing is ever spent")
        if not self.url.startswith(("http://", "https://")):
            faults.append(f"url: {self.url!r} begins with neither http:// nor https://")
        if self.key_variable and not os.environ.get(self.key_variable):
            faults.append(f"key_variable: {self.key_variable} is not set in the environment")
        return faults

    def body(self, messages: Sequence[Mapping[str, str]], schema: Mapping[str, Any]) -> dict:
        """The request for an answer of this JSON schema."""
        form = {"name": "answer", "strict": True, "schema": schema}
        return {
            "model": self.model,
            "messages": list(messages),
            "max_tokens": self.max_tokens,
            "temperature": self.temperature,
            "response_format": {"type": "json_schema", "json_schema": form},
        }

    def cost(self, tokens_in: int, tokens_out: int) -> float:
        """What an answer cost."""
        return (tokens_in * self.price_in + tokens_out * self.price_out) / MILLION


class Answer(NamedTuple):
    """What the model said, and the tokens of question and answer."""

    text: str
    tokens_in: int
    tokens_out: int


class Refused(ValueError):
    """The endpoint refuses what it is asked, and would each time."""


class Unanswered(OSError):
    """A question was given up: the endpoint did not answer it, however often it was asked."""


def answer_of(body: Any) -> Answer:
    """The answer in the body of a response.

    Raises: ValueError where it is not the protocol's.
    """
    try:
        text = body["choices"][0]["message"]["content"]
        usage = body.get("usage") or {}
        tokens = (usage.get("prompt_tokens", 0), usage.get("completion_tokens", 0))
    except (KeyError, IndexError, TypeError, AttributeError):
        raise ValueError("no choices[0].message.content in the answer") from None
    if not isinstance(text, str) or not all(isinstance(count, int) for count in tokens):
        raise ValueError("no text in choices[0].message.content, or no whole numbers in usage")
    return Answer(text, *tokens)


class Pace:
    """So much a minute and no more, on average."""

    def __init__(self, per_minute: float | None):
        self._each = None if per_minute is None else 60.0 / per_minute
        self._free = time.monotonic()  # from when on there is some

    async def take(self, amount: float) -> None:
        """Waits until what was taken before is paid off, and takes."""
        wait = self._free - time.monotonic()
        self.note(amount)
        if self._each is not None and wait > 0:
            await asyncio.sleep(wait)

    def note(self, amount: float) -> None:
        """Takes without waiting: those who come after wait for it."""
        if self._each is not None:
            self._free = max(self._free, time.monotonic()) + amount * self._each


class Client:
    """Asks, again where that may help; to be used as ``async with``.

    Args:
      endpoint: where.

    Attributes:
      waits: how many times something was asked again.
    """

    def __init__(self, endpoint: Endpoint):
        self.waits = 0
        self._endpoint = endpoint
        key = os.environ[endpoint.key_variable] if endpoint.key_variable else None
        self._http = httpx2.AsyncClient(
            headers={"Authorization": f"Bearer {key}"} if key else {},
            timeout=endpoint.timeout,
            limits=httpx2.Limits(max_connections=endpoint.concurrency),
        )
        self._requests = Pace(endpoint.requests_per_minute)
        self._tokens = Pace(endpoint.tokens_per_minute)

    async def __aenter__(self) -> "Client":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._http.aclose()

    async def ask(self, messages: Sequence[Mapping[str, str]], schema: Mapping[str, Any]) -> Answer:
        """The answer to a question.

        Raises:
          Unanswered: none came, in all attempts.
          Refused: the endpoint does not take the question.
        """
        body, why = self._endpoint.body(messages, schema), ""
        for attempt in range(self._endpoint.attempts):
            if attempt:
                self.waits += 1
            await self._tokens.take(0)
            await self._requests.take(1)
            wait = min(LONGEST_WAIT, FIRST_WAIT * 2**attempt) * random.uniform(0.5, 1.5)
            try:
                response = await self._http.post(
                    f"{self._endpoint.url}/chat/completions", json=body
                )
                if response.is_success:
                    answer = answer_of(response.json())
                    self._tokens.note(answer.tokens_in + answer.tokens_out)
                    return answer  # at once: it is paid, and not on the disk yet
                status = response.status_code
                if status not in AGAIN and status < 500:
                    raise Refused(f"{self._endpoint.url}: status {status}: {_code(response)}")
                why, wait = f"status {status}", _told(response) or wait
            except httpx2.InvalidURL:
                raise Refused(f"{self._endpoint.url}: not an address") from None
            except httpx2.HTTPError as error:
                why = type(error).__name__
            except Refused:
                raise
            except ValueError:  # not JSON, or not the protocol's
                why = "an answer that is none"
            if attempt + 1 < self._endpoint.attempts:
                await asyncio.sleep(wait)
        raise Unanswered(f"{self._endpoint.url}: {why}, {self._endpoint.attempts} times")


def _code(response: httpx2.Response) -> str:
    """The endpoint's own name of the fault: a message of it might quote the question."""
    try:
        error = response.json()["error"]
        return str(error.get("code") or error.get("type"))[:80]
    except (ValueError, KeyError, TypeError, AttributeError):
        return response.reason_phrase


def _told(response: httpx2.Response) -> float | None:
    """The seconds that Retry-After asks for, if it does: a number, or a date."""
    value = response.headers.get("retry-after", "")
    try:
        return min(LONGEST_WAIT, max(0.0, float(value)))
    except ValueError:
        pass
    try:
        until = email.utils.parsedate_to_datetime(value).timestamp()
    except (TypeError, ValueError):
        return None
    return min(LONGEST_WAIT, max(0.0, until - time.time()))
