"""A stand-in for the hub of Hugging Face on this machine: takes commits and serves their files."""

import base64
import hashlib
import json
import re

from tests.weights.file_server import Handler, Server

COMMIT = "1" * 40


class HubServer(Server):
    """`with HubServer() as hub:` answers what `huggingface_hub` asks of repositories of models.

    Attributes:
        repositories: name -> {path: content}.
        private: names of the repositories that were made private.
        posted: (path, body) of every POST request, in order.
        users: token -> name of the owner that it may write to.
    """

    def __init__(self):
        super().__init__(_Handler)
        self.repositories, self.private, self.posted = {}, set(), []
        self.users = {"hf_writer": "user"}


class _Handler(Handler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        self.server.posted.append((self.path, body))
        if self.path == "/api/validate-yaml":
            return self.answer({"errors": [], "warnings": []})
        owner = self.server.users.get(self.headers.get("Authorization", "").removeprefix("Bearer "))
        if owner is None:
            return self.answer({"error": "Invalid username or password."}, 401)
        if self.path == "/api/repos/create":
            wanted = json.loads(body)
            name = f"{wanted['organization']}/{wanted['name']}"
            if wanted["organization"] != owner:
                return self.answer({"error": "You don't have the rights to create a model."}, 403)
            if wanted.get("private") or wanted.get("visibility") == "private":
                self.server.private.add(name)
            status = 409 if name in self.server.repositories else 200
            self.server.repositories.setdefault(name, {})
            return self.answer({"url": f"{self.server.at}/{name}", "name": name}, status)
        found = re.fullmatch(r"/api/models/(\w+/[\w.-]+)/(preupload|commit)/main", self.path)
        name, action = found.groups()
        if action == "preupload":
            asked = json.loads(body)["files"]
            plain = {"uploadMode": "regular", "shouldIgnore": False}
            return self.answer({"files": [{"path": f["path"], **plain} for f in asked]})
        for line in map(json.loads, body.splitlines()):
            if line["key"] == "file":
                content = base64.b64decode(line["value"]["content"])
                self.server.repositories[name][line["value"]["path"]] = content
        about = {"commitUrl": f"{self.server.at}/{name}/commit/{COMMIT}", "commitOid": COMMIT}
        return self.answer(about)

    def do_GET(self):
        path = self.path.split("?")[0]
        found = re.fullmatch(
            r"/(?:api/models/)?(\w+/[\w.-]+)(?:/(\w+)/(main|1{40})(?:/(.+))?)?", path
        )
        files = found and self.server.repositories.get(found[1])
        if files is None:
            missing = {"X-Error-Code": "RepoNotFound"}
            return self.answer({"error": "Repository not found"}, 404, missing)
        if found[2] == "tree":
            sizes = {name: len(content) for name, content in files.items()}
            rows = [{"type": "file", "path": n, "size": s, "oid": "0"} for n, s in sizes.items()]
            return self.answer(rows)
        if found[2] != "resolve":
            siblings = [{"rfilename": name} for name in files]
            return self.answer({"id": found[1], "sha": COMMIT, "siblings": siblings})
        if found[4] not in files:
            return self.answer({}, 404, {"X-Error-Code": "EntryNotFound"})
        content = files[found[4]]
        etag = hashlib.sha256(content).hexdigest()
        return self.answer(content, 200, {"ETag": f'"{etag}"', "X-Repo-Commit": COMMIT})

    def answer(self, content, status=200, headers=()):
        kind = "application/octet-stream" if isinstance(content, bytes) else "application/json"
        content = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        for name, value in {"Content-Type": kind, **dict(headers)}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", len(content))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)
