"""A small Google Cloud Storage: the part of its XML API that the client uses, with generation conditions.

No emulator at hand keeps `x-goog-if-generation-match`, on which a commit rests. Authorization is not looked at.
"""

from __future__ import annotations

import dataclasses
import email.utils
import hashlib
import http.server
import re
import threading
import time
import urllib.parse
import uuid
from xml.sax.saxutils import escape

PAGE = 100
"""Keys in one page of a listing: few, so that tests of hundreds of keys turn pages."""


@dataclasses.dataclass(frozen=True)
class Stored:
    data: bytes
    generation: int
    modified: float

    @property
    def etag(self):
        return f'"{hashlib.md5(self.data).hexdigest()}"'

    def headers(self):
        return {
            "ETag": self.etag,
            "Last-Modified": email.utils.formatdate(self.modified, usegmt=True),
            "x-goog-generation": str(self.generation),
        }


class GcsStub:
    """Serves one bucket on a free port of loopback until ``close``.

    Args:
        bucket: its name.
        conditions: whether they are kept; without, the stub overwrites in silence, as some backends do.
    """

    def __init__(self, bucket, *, conditions=True):
        self.bucket = bucket
        self.conditions = conditions
        self.lock = threading.Lock()
        self.objects = {}
        self.uploads = {}
        self._generations = 0
        handler = type("Handler", (_Handler,), {"stub": self})
        self._server = _Server(("127.0.0.1", 0), handler)
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, name="gcs", daemon=True).start()

    def close(self):
        self._server.shutdown()
        self._server.server_close()

    def put(self, key, data, condition):
        """Store an object, or return None where the condition does not hold. The caller has the lock."""
        there = self.objects.get(key)
        if self.conditions and condition is not None and int(condition) != (there.generation if there else 0):
            return None
        self._generations += 1
        stored = self.objects[key] = Stored(data, self._generations, time.time())
        return stored


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128  # a burst of connections that finds no room is tried again only after a second

    def handle_error(self, request, client_address):
        """Say nothing: a client that goes away is what the tests are about."""


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    stub: GcsStub

    def log_message(self, *arguments):
        """Keep the tests' output quiet."""

    def _serve(self):
        split = urllib.parse.urlsplit(self.path)
        self.query = dict(urllib.parse.parse_qsl(split.query, keep_blank_values=True))
        bucket, _, key = urllib.parse.unquote(split.path).lstrip("/").partition("/")
        expected = int(self.headers.get("Content-Length") or 0)
        self.body = self.rfile.read(expected)
        if len(self.body) < expected:  # the sender went away: a real store keeps nothing of it
            self.close_connection = True
            return
        if bucket != self.stub.bucket:
            self._fail(404, "NoSuchBucket")
            return
        with self.stub.lock:
            name = f"_{self.command.lower()}_{self._kind(key)}"
            getattr(self, name, self._unknown)(key)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _serve  # noqa: N815

    def _kind(self, key):
        if "uploads" in self.query:
            return "uploads"
        if "uploadId" in self.query:
            return "upload"
        return "object" if key else "bucket"

    def _unknown(self, key):
        self._fail(501, "NotImplemented")

    def _put_object(self, key):
        stored = self.stub.put(key, self.body, self.headers.get("x-goog-if-generation-match"))
        if stored is None:
            self._fail(412, "PreconditionFailed")
        else:
            self._answer(200, headers=stored.headers())

    def _get_object(self, key):
        stored = self.stub.objects.get(key)
        if stored is None:
            self._fail(404, "NoSuchKey")
            return
        wanted = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        if wanted is None:
            self._answer(200, stored.data, stored.headers())
            return
        size, start = len(stored.data), int(wanted[1])
        end = min(size, int(wanted[2]) + 1 if wanted[2] else size)
        if start >= size:
            self._fail(416, "InvalidRange")
            return
        headers = {**stored.headers(), "Content-Range": f"bytes {start}-{end - 1}/{size}"}
        self._answer(206, stored.data[start:end], headers)

    _head_object = _get_object

    def _delete_object(self, key):
        if self.stub.objects.pop(key, None) is None:
            self._fail(404, "NoSuchKey")
        else:
            self._answer(204)

    def _get_bucket(self, key):
        prefix, after = self.query.get("prefix", ""), self.query.get("continuation-token", "")
        keys = sorted(name for name in self.stub.objects if name.startswith(prefix) and name > after)
        page, more = keys[:PAGE], len(keys) > PAGE
        token = f"<NextContinuationToken>{escape(page[-1])}</NextContinuationToken>" if more else ""
        contents = "".join(self._listed(name) for name in page)
        truncated = str(more).lower()
        self._xml("ListBucketResult", f"<IsTruncated>{truncated}</IsTruncated>{token}{contents}")

    def _listed(self, name):
        stored = self.stub.objects[name]
        modified = time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime(stored.modified))
        return (
            f"<Contents><Key>{escape(name)}</Key><Size>{len(stored.data)}</Size>"
            f"<LastModified>{modified}</LastModified><ETag>{escape(stored.etag)}</ETag></Contents>"
        )

    def _post_uploads(self, key):
        upload = uuid.uuid4().hex
        self.stub.uploads[upload] = (key, {})
        self._xml("InitiateMultipartUploadResult", f"<UploadId>{upload}</UploadId>")

    def _get_uploads(self, key):
        listed = (f"<Upload><Key>{escape(name)}</Key></Upload>" for name, _ in self.stub.uploads.values())
        self._xml("ListMultipartUploadsResult", "".join(listed))

    def _put_upload(self, key):
        upload = self.stub.uploads.get(self.query["uploadId"])
        if upload is None:
            self._fail(404, "NoSuchUpload")
            return
        upload[1][int(self.query["partNumber"])] = self.body
        self._answer(200, headers={"ETag": f'"{hashlib.md5(self.body).hexdigest()}"'})

    def _post_upload(self, key):
        upload = self.stub.uploads.pop(self.query["uploadId"], None)
        if upload is None:
            self._fail(404, "NoSuchUpload")
            return
        numbers = [int(number) for number in re.findall(rb"<PartNumber>(\d+)</PartNumber>", self.body)]
        stored = self.stub.put(key, b"".join(upload[1][number] for number in numbers), None)
        etag = f"<ETag>{escape(stored.etag)}</ETag>"
        self._xml("CompleteMultipartUploadResult", etag, stored.headers())

    def _delete_upload(self, key):
        known = self.stub.uploads.pop(self.query["uploadId"], None)
        self._answer(204) if known else self._fail(404, "NoSuchUpload")

    def _xml(self, root, text, headers=None):
        body = f'<?xml version="1.0" encoding="UTF-8"?><{root}>{text}</{root}>'.encode()
        self._answer(200, body, {"Content-Type": "application/xml", **(headers or {})})

    def _fail(self, status, code):
        self._answer(status, f"<Error><Code>{code}</Code><Message>{code}</Message></Error>".encode())

    def _answer(self, status, body=b"", headers=None):
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        if status != 204:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)
