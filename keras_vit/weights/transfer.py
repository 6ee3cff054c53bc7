"""One file over HTTP: resumed, retried and checked, and only then given its name."""

import dataclasses
import errno
import os
import random
import shutil
import time
from http.client import HTTPException
from pathlib import Path
from ssl import SSLCertVerificationError
from urllib.error import HTTPError, URLError

from keras_vit.weights import cache, web
from keras_vit.weights.cache import PIECE, DownloadError
from keras_vit.weights.progress import ProgressBar
from keras_vit.weights.web import Passing

_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 30.0  # seconds before the second and the later attempts
_PATIENCE = 300.0  # seconds: a server that asks for a longer pause ends the download
_PASSING_STATUS = (408, 425, 429)  # and 500 upwards
_REFUSED = (
    "the server refuses access (HTTP {status}): the file is private or gated, or there is none "
    "of this name. Check the name; on Hugging Face, accept the terms on the page of the model and "
    "set HF_TOKEN"
)
_GONE = "there is no such file (HTTP {status}). Check the name, and on Hugging Face the revision"


@dataclasses.dataclass
class Transfer:
    """What is to be downloaded, and how.

    Attributes:
        url: an http or https URL.
        path: where the file goes.
        size: its size in bytes, or None if that is not known.
        sha256: its hash, or None.
        timeout: seconds to wait for an answer, or for the next bytes of one.
        retries: how many further attempts may follow one that got no further.
        bar: a `ProgressBar`.
    """

    url: str
    path: Path
    size: int | None
    sha256: str | None
    timeout: float
    retries: int
    bar: ProgressBar
    attempts: int = 0

    def __post_init__(self):
        self.part = cache.beside(self.path, ".part")
        self.notes_path = cache.beside(self.path, ".part.json")
        self.notes = cache.read_json(self.notes_path)

    def run(self):
        """Downloads the file; the caller holds its lock.

        Raises:
            DownloadError: it cannot be had, or is not what it should be.
        """
        furthest, failures = self.received(), 0
        while True:
            self.attempts += 1
            try:
                self._attempt()
                break
            except Passing as error:
                # An attempt that got ahead has shown that there is a point in going on.
                failures = 1 if self.received() >= furthest + PIECE else failures + 1
                furthest = max(furthest, self.received())
                if failures > self.retries:
                    raise self.failure(str(error)) from error
                self._pause(error, failures)
        self._finish()

    def received(self):
        """Bytes of the file that are here."""
        return self.part.stat().st_size if self.part.is_file() else 0

    def discard(self):
        """Removes what is here."""
        self.part.unlink(missing_ok=True)
        self.notes_path.unlink(missing_ok=True)
        self.notes = {}

    def failure(self, what, status=None):
        """A `DownloadError` that tells what happened and what to do."""
        received = self.received()
        return DownloadError(
            f"Could not download {self.url}: {what}.\n"
            f"  Received: {received} bytes so far. Attempts: {self.attempts}.\n"
            f"Call again to {'go on from there' if received else 'try anew'}. To use only what "
            "is in the cache, set KERAS_VIT_OFFLINE=1. To do without this download, get the file "
            f"by other means and put it at {self.path}.",
            url=self.url,
            path=self.path,
            status=status,
        )

    def _pause(self, error, failures):
        pause = min(_FIRST_PAUSE * 2 ** (failures - 1), _LONGEST_PAUSE)
        pause *= random.uniform(0.5, 1.5)  # clients that failed together should not come together
        if error.wait is not None:
            pause = max(pause, error.wait)
        if pause > _PATIENCE:
            raise self.failure(f"{error}, and asks to wait {pause:.0f} s") from error
        self.bar.say(f"{error}; next attempt in {pause:.1f} s")
        time.sleep(pause)

    def _attempt(self):
        if self.received() and not self._can_resume():
            self.discard()
        if self.part.is_file() and self.received() == self.notes.get("size"):
            return  # it was complete, and only the checks are left
        if not self._receive():
            self.discard()  # it is no beginning of what the server now has
            self._receive()

    def _can_resume(self):
        """Whether a changed file would show: by its version, or at the end by its hash."""
        if not self.notes or self.notes.get("url") != self.url:
            return False
        size = self.notes.get("size")
        return bool(self.sha256 or web.version(self.notes)) and (
            size is None or self.received() <= size
        )

    def _receive(self):
        """Appends to the part; False if the server's answer does not continue it."""
        offset = self.received()
        response = self._open(offset)
        if response is None:
            return False
        with response:
            if response.status == 206 and offset:
                if not web.continues(response, offset, self.notes):
                    return False
            elif response.status == 200:
                offset = 0
            else:
                raise self.failure(f"the server answers HTTP {response.status} instead of 200")
            self._check_answer(response, offset)
            self._write(response, offset)
        return True

    def _open(self, offset):
        """The answer, or None if the server has nothing from `offset` on."""
        headers = {}
        if offset:
            headers["Range"] = f"bytes={offset}-"
            if version := web.version(self.notes):
                headers["If-Range"] = version
        try:
            return web.open_url(self.url, headers, self.timeout)
        except HTTPError as error:
            with error:
                if error.code == 416 and offset:
                    return None
                raise self._status_error(error) from error
        except URLError as error:
            if isinstance(error.reason, SSLCertVerificationError):
                raise self.failure(f"its certificate is not valid: {error.reason}") from error
            raise Passing(f"no connection ({error.reason})") from error
        except DownloadError as error:
            raise self.failure(str(error)) from error
        except (OSError, HTTPException) as error:
            raise Passing(f"no answer ({web.in_words(error)})") from error

    def _status_error(self, error):
        status = error.code
        what = f"the server answers HTTP {status} {error.reason}"
        if status in _PASSING_STATUS or status >= 500:
            return Passing(what, web.asked_to_wait(error.headers))
        if status in (401, 403):
            what = _REFUSED.format(status=status)
        elif status in (404, 410):
            what = _GONE.format(status=status)
        elif status < 400:
            what = f"its redirects lead nowhere ({' '.join(str(error.reason).split())})"
        return self.failure(what, status)

    def _check_answer(self, response, offset):
        """Raises if this is not the file, or there is no room for it."""
        if what := web.other_than_a_file(response):
            raise self.failure(what)
        total = web.total_size(response, offset)
        if None not in (total, self.size) and total != self.size:
            raise self.failure(f"expected {self.size} bytes, but the server has {total}")
        free = shutil.disk_usage(self.path.parent).free
        if total is not None and total - offset > free:
            raise self.failure(
                f"it needs {total - offset} bytes, and the disk of {self.path.parent} has {free} "
                "left. Make room, or set KERAS_VIT_CACHE to a folder on another disk"
            )

    def _write(self, response, offset):
        total = web.total_size(response, offset)
        announced = None if response.length is None else offset + response.length
        self.bar.start(offset, total)
        try:
            if not offset:
                self.part.unlink(missing_ok=True)  # the notes are never those of another part
                self._note(response, total)
            self._append(response)
        except OSError as error:
            raise self.failure(_disk_trouble(error, self.part)) from error
        finally:
            self.bar.stop()
        received = self.received()
        if announced is not None and received > announced:
            self.discard()
            raise self.failure(f"the server announced {announced} bytes and sent more")
        if total is not None and received < total:
            raise Passing(f"the connection broke off after {received} of {total} bytes")

    def _append(self, response):
        with open(self.part, "ab") as file:
            for piece in web.pieces(response):
                file.write(piece)
                self.bar.advance(len(piece))
            file.flush()
            os.fsync(file.fileno())

    def _note(self, response, total):
        self.notes = {
            "url": self.url,
            "size": total,
            "etag": response.headers.get("ETag"),
            "last_modified": response.headers.get("Last-Modified"),
        }
        cache.write_json(self.notes_path, self.notes)

    def _finish(self):
        received, digest = self.received(), cache.hash_file(self.part)
        for expected, found in ((self.size, received), (self.sha256, digest)):
            if expected not in (None, found):
                self.discard()
                raise self.failure(
                    "it is not the file that was expected, and has been deleted.\n"
                    f"  Expected: {'sha256 ' * (found is digest)}{expected}\n"
                    f"  Received: {found} ({received} bytes)"
                )
        # The record goes first: whoever sees the file sees its record too.
        cache.write_record(self.path, self.part, self.url, digest, self.notes.get("etag"))
        os.replace(self.part, self.path)
        self.notes_path.unlink(missing_ok=True)


def _disk_trouble(error, part):
    if error.errno in (errno.ENOSPC, getattr(errno, "EDQUOT", None)):
        return (
            f"the disk is full; what has come is kept in {part}. Make room, or set KERAS_VIT_CACHE "
            "to a folder on another disk"
        )
    return f"{part} cannot be written ({web.in_words(error)})"
