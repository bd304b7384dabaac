"""A stand-in for the Hugging Face Hub on loopback: enough of its interface to create, upload to and download from."""

import base64
import hashlib
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

COMMIT = "5f1c0de" + "0" * 33


class Hub(ThreadingHTTPServer):
    """Keeps repositories as dictionaries of files. It listens on loopback, on a port that is free."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.repositories: dict[str, dict[str, bytes]] = {}
        self.private: set[str] = set()
        self.tokens: set[str] = set()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


@contextmanager
def running_hub() -> Iterator[Hub]:
    """A hub that runs in a thread until the block ends."""
    hub = Hub()
    thread = threading.Thread(target=hub.serve_forever, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        hub.shutdown()
        hub.server_close()
        thread.join(timeout=10)


class _Handler(BaseHTTPRequestHandler):
    server: Hub
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: Any) -> None:
        """Say nothing."""

    def _body(self) -> bytes:
        if "chunked" not in self.headers.get("Transfer-Encoding", ""):
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))
        parts = []
        while size := int(self.rfile.readline(), 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(parts)

    def _send(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _json(self, value: Any, status: int = 200) -> None:
        self._send(status, json.dumps(value).encode(), {"Content-Type": "application/json"})

    def do_POST(self) -> None:
        body = self._body()
        self.server.tokens.add(self.headers.get("Authorization", ""))
        if self.path == "/api/repos/create":
            about = json.loads(body)
            name = "/".join(filter(None, (about.get("organization"), about["name"])))
            self.server.repositories.setdefault(name, {})
            if about.get("private") or about.get("visibility") == "private":
                self.server.private.add(name)
            self._json({"url": f"{self.server.address}/{name}", "name": name, "id": name})
        elif match := re.fullmatch(r"/api/models/(.+)/preupload/main(\?.*)?", self.path):
            files = [{"path": file["path"], "uploadMode": "regular"} for file in json.loads(body)["files"]]
            self._json({"files": [file | {"shouldIgnore": False} for file in files]})
        elif match := re.fullmatch(r"/api/models/(.+)/commit/main(\?.*)?", self.path):
            self._commit(match[1], body)
        elif self.path == "/api/validate-yaml":
            self._json({"errors": [], "warnings": []})
        else:
            self._json({"error": f"no {self.path}"}, 404)

    def _commit(self, name: str, body: bytes) -> None:
        for line in body.splitlines():
            entry = json.loads(line)
            if entry["key"] == "file":
                value = entry["value"]
                self.server.repositories[name][value["path"]] = base64.b64decode(value["content"])
        address = f"{self.server.address}/{name}/commit/{COMMIT}"
        self._json({"commitUrl": address, "commitOid": COMMIT, "success": True, "hookOutput": ""})

    def do_GET(self) -> None:
        if match := re.fullmatch(r"/api/models/(.+?)(?:/revision/(.+?))?(\?.*)?", self.path):
            self._about(match[1])
        elif match := re.fullmatch(r"/(.+)/resolve/[^/]+/(.+)", self.path):
            self._file(match[1], match[2])
        else:
            self._json({"error": f"no {self.path}"}, 404)

    do_HEAD = do_GET

    def _about(self, name: str) -> None:
        tree = re.fullmatch(r"(.+)/tree/[^/]+", name)
        files = self.server.repositories.get(tree[1] if tree else name)
        if files is None:
            self._send(404, b"{}", {"X-Error-Code": "RepoNotFound"})
        elif tree:
            self._json([{"type": "file", "path": path, "size": len(data), "oid": "0"} for path, data in files.items()])
        else:
            self._json({"id": name, "sha": COMMIT, "siblings": [{"rfilename": path} for path in files]})

    def _file(self, name: str, path: str) -> None:
        data = self.server.repositories.get(name, {}).get(path)
        if data is None:
            self._send(404, b"", {"X-Error-Code": "EntryNotFound"})
            return
        tag = hashlib.sha256(data).hexdigest()
        self._send(200, data, {"ETag": f'"{tag}"', "X-Repo-Commit": COMMIT})
