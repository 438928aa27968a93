"""Google Cloud Storage's JSON API over a dictionary, as far as TensorStore and gcsfs ask for it.

Objects have generations, and the preconditions on them hold, one request at a time. Set
``TENSORSTORE_GCS_HTTP_URL`` and ``STORAGE_EMULATOR_HOST`` to ``url`` to have it used.
"""

import contextlib
import http.server
import json
import re
import threading
import urllib.parse
from collections.abc import Iterator


class Bucket:
    """The objects of a bucket, by name: (generation, content)."""

    def __init__(self):
        self.objects: dict[str, tuple[int, bytes]] = {}
        self.lock = threading.Lock()
        self.requests: list[str] = []
        self.fail = lambda method, name: False  # whether a request gets 403
        self.lose: list[int] = []  # status with which the next uploads are answered, though done
        self.url = ""
        self._generation = 1000

    def names(self) -> list[str]:
        with self.lock:
            return sorted(self.objects)

    def put(self, name: str, content: bytes) -> int:
        self._generation += 1
        self.objects[name] = (self._generation, content)
        return self._generation


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # header and body are two writes: 40 ms each answer otherwise
    bucket: Bucket

    def log_message(self, *_):
        pass

    def handle(self):
        with contextlib.suppress(ConnectionError):  # a client that closes without a word
            super().handle()

    def _reply(self, status: int, content: bytes = b"", **headers: str) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # it has seen enough
                self.wfile.write(content)

    def _json(self, value: object, status: int = 200) -> None:
        self._reply(status, json.dumps(value).encode(), Content_Type="application/json")

    def _describe(self, name: str) -> dict[str, str]:
        generation, content = self.bucket.objects[name]
        return {
            "kind": "storage#object",
            "bucket": "bucket",
            "name": name,
            "size": str(len(content)),
            "generation": str(generation),
            "metageneration": "1",
            "updated": "2026-01-01T00:00:00Z",
            "timeCreated": "2026-01-01T00:00:00Z",
        }

    def _answer(self) -> None:
        url = urllib.parse.urlsplit(self.path)
        query = dict(urllib.parse.parse_qsl(url.query, keep_blank_values=True))
        length = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(length)
        name = urllib.parse.unquote(url.path.split("/o/", 1)[1]) if "/o/" in url.path else ""
        name = name or query.get("name", "")
        with self.bucket.lock:
            self.bucket.requests.append(f"{self.command} {self.path}")
            if self.bucket.fail(self.command, name):
                self._json({"error": {"code": 403, "message": "forbidden"}}, 403)
            elif url.path.startswith("/upload/") or url.path.startswith("/resumable"):
                self._upload(query, name, body)
            elif url.path.endswith("/o"):
                self._list(query)
            elif "/o/" in url.path:
                self._object(query, name)
            elif re.search(r"/b/bucket(/storageLayout)?$", url.path):
                self._json({"name": "bucket", "hierarchicalNamespace": {"enabled": False}})
            else:
                self._json({"error": {"code": 404, "message": url.path}}, 404)

    do_GET = do_POST = do_PUT = do_DELETE = do_HEAD = _answer

    def _refused(self, query: dict[str, str], name: str) -> bool:
        generation = self.bucket.objects.get(name, (0, b""))[0]
        wanted, unwanted = query.get("ifGenerationMatch"), query.get("ifGenerationNotMatch")
        if wanted is not None and int(wanted) != generation:
            self._json({"error": {"code": 412, "message": "conditionNotMet"}}, 412)
            return True
        if unwanted is not None and int(unwanted) == generation:
            self._reply(304)
            return True
        return False

    def _upload(self, query: dict[str, str], name: str, body: bytes) -> None:
        if query.get("uploadType") == "multipart":
            boundary = re.search(r"boundary=['\"]?([^'\";]+)", self.headers["Content-Type"])
            assert boundary
            _, description, content, _ = body.split(b"--" + boundary[1].encode())
            name = json.loads(description.split(b"\n\n", 1)[1].strip() or b"{}").get("name", name)
            body = content.split(b"\n\n", 1)[1][:-1]
        elif query.get("uploadType") == "resumable" and self.command == "POST":
            name = json.loads(body or b"{}").get("name", name)
            place = f"{self.bucket.url}/resumable?{urllib.parse.urlencode({'name': name})}"
            self._reply(200, Location=place)
            return
        if self._refused(query, name):
            return
        self.bucket.put(name, body)
        if self.bucket.lose:
            status = self.bucket.lose.pop()
            self._json({"error": {"code": status, "message": "the answer is lost"}}, status)
        else:
            self._json(self._describe(name))

    def _list(self, query: dict[str, str]) -> None:
        prefix, delimiter = query.get("prefix", ""), query.get("delimiter", "")
        start, end = query.get("startOffset", ""), query.get("endOffset", "")
        names, prefixes = [], set()
        for name in sorted(self.bucket.objects):
            if not name.startswith(prefix) or name < start or (end and name >= end):
                continue
            rest = name[len(prefix) :]
            if delimiter and delimiter in rest:
                prefixes.add(prefix + rest.split(delimiter)[0] + delimiter)
            else:
                names.append(name)
        self._json(
            {"items": [self._describe(name) for name in names], "prefixes": sorted(prefixes)}
        )

    def _object(self, query: dict[str, str], name: str) -> None:
        if name not in self.bucket.objects:
            if self.command == "DELETE" and query.get("ifGenerationMatch") not in (None, "0"):
                self._json({"error": {"code": 412, "message": "conditionNotMet"}}, 412)
            else:
                self._json({"error": {"code": 404, "message": name}}, 404)
        elif self._refused(query, name):
            pass
        elif self.command == "DELETE":
            del self.bucket.objects[name]
            self._reply(204)
        elif query.get("alt") == "media":
            self._media(name)
        else:
            self._json(self._describe(name))

    def _media(self, name: str) -> None:
        generation, content = self.bucket.objects[name]
        said = {"x_goog_generation": str(generation), "Content_Type": "application/octet-stream"}
        if found := re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range") or ""):
            first = int(found[1])
            last = min(int(found[2] or len(content) - 1), len(content) - 1)
            said["Content_Range"] = f"bytes {first}-{last}/{len(content)}"
            self._reply(206, content[first : last + 1], **said)
        else:
            self._reply(200, content, **said)


@contextlib.contextmanager
def serving() -> Iterator[Bucket]:
    """A bucket named "bucket" behind ``url``, empty at first."""
    bucket = Bucket()
    handler = type("Handler", (_Handler,), {"bucket": bucket})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    bucket.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield bucket
    finally:
        server.shutdown()
        server.server_close()
