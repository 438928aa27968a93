"""An endpoint that speaks the protocol of chat completions, and fails as it is told to.

Grades follow from the text alone: `expected`. What it does to a text the text says itself: words
such as !429 or !reset, each done once, in their order, before the text is answered; and how, the
same each time: !prose.
"""

import hashlib
import json
import re
import socket
import struct
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

CONTENTS = ("clinical_case", "study", "review", "other")
DOMAINS = ("clinical", "biomedical", "other")


def expected(text: str) -> dict[str, Any]:
    """The grades of a text."""
    digest = hashlib.md5(text.encode()).digest()
    return {
        "educational": 1 + digest[0] % 5,
        "content": CONTENTS[digest[1] % 4],
        "domain": DOMAINS[digest[2] % 3],
    }


# How a text may be answered, from its grades.
ANSWERS = {
    "prose": lambda grades: "I would say it is rather good.",
    "range": lambda grades: json.dumps(grades | {"educational": 9}),
    "half": lambda grades: json.dumps(grades | {"educational": 3.5}),
    "extra": lambda grades: json.dumps(grades | {"why": "because"}),
    "fenced": lambda grades: f"```json\n{json.dumps(grades)}\n```",
}


class Server(ThreadingHTTPServer):
    """Counts what it did.

    Attributes:
      answered: texts whose answer was sent: what is paid for.
      seen: requests, by text.
      bodies: of the requests.
      keys: Authorization headers that came.
      delay: seconds before an answer.
      write: what makes an answer of a text; None: its grades.
    """

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, delay: float = 0.0, write: Callable[[str], str] | None = None):
        super().__init__(("127.0.0.1", 0), Handler)
        self.answered: list[str] = []
        self.seen: dict[str, int] = {}
        self.bodies: list[dict] = []
        self.keys: set[str | None] = set()
        self.delay, self.write, self.guard = delay, write, threading.Lock()

    @property
    def url(self) -> str:
        """Of the endpoint."""
        return f"http://127.0.0.1:{self.server_address[1]}/v1"


class Handler(BaseHTTPRequestHandler):
    """One request."""

    server: Server
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: Any) -> None:
        """Says nothing."""

    def do_POST(self) -> None:
        """Answers, or fails."""
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        text = body["messages"][-1]["content"]
        with self.server.guard:
            turn = self.server.seen.get(text, 0)
            self.server.seen[text] = turn + 1
            self.server.bodies.append(body)
            self.server.keys.add(self.headers["authorization"])
        if self.path != "/v1/chat/completions":
            self.reply(404, {"error": {"code": "no_such_path"}})
            return
        said = re.findall(r"!(\w+)", text)
        faults = [one for one in said if one not in ANSWERS]
        ways = [one for one in said if one in ANSWERS]
        time.sleep(self.server.delay)
        if "always" in faults:
            self.fail(faults[faults.index("always") + 1], text)
        elif turn < len(faults):
            self.fail(faults[turn], text)
        else:
            way = ANSWERS[ways[0]] if ways else json.dumps
            write = self.server.write or (lambda text: way(expected(text)))
            self.reply(200, self.completion(write(text)))
            with self.server.guard:
                self.server.answered.append(text)

    def fail(self, fault: str, text: str) -> None:
        """Does as a text says."""
        if fault == "reset":
            linger = struct.pack("ii", 1, 0)
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            self.connection.close()
            self.close_connection = True
        elif fault == "slow":
            time.sleep(3)
            self.close_connection = True
        elif fault == "truncated":
            whole = json.dumps(self.completion(json.dumps(expected(text)))).encode()
            self.send_response(200)
            self.send_header("content-length", str(len(whole)))
            self.end_headers()
            self.wfile.write(whole[: len(whole) // 2])
            self.close_connection = True
        elif fault == "nonsense":
            self.reply(200, {"choices": []})
        else:
            headers = {"retry-after": "0.2"} if fault == "429" else {}
            self.reply(int(fault), {"error": {"code": "asked_for", "message": text}}, headers)

    def completion(self, said: str) -> dict[str, Any]:
        """The body of an answer."""
        usage = {"prompt_tokens": 100, "completion_tokens": 20}
        return {"choices": [{"message": {"content": said}}], "usage": usage}

    def reply(self, status: int, value: Any, headers: dict[str, str] | None = None) -> None:
        """A status with a JSON body."""
        raw = json.dumps(value).encode()
        self.send_response(status)
        for name, content in {"content-length": str(len(raw)), **(headers or {})}.items():
            self.send_header(name, content)
        self.end_headers()
        self.wfile.write(raw)
