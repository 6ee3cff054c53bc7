"""One HTTP request: where it may be redirected, what it may carry, and how its answer is read."""

import os
import re
import time
from email.utils import parsedate_to_datetime
from http.client import HTTPException
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

from keras_vit.weights.cache import PIECE, DownloadError


class Passing(Exception):
    """A failure that may be gone at the next attempt, after `wait` seconds if that is known."""

    def __init__(self, what, wait=None):
        super().__init__(what)
        self.wait = wait


def open_url(url, headers, timeout):
    """The answer to a GET request, after at most 10 redirects.

    Raises:
        DownloadError: a redirect leads where it must not.
        OSError, http.client.HTTPException: as `urllib.request` has them.
    """
    request = Request(url, headers={"User-Agent": "keras_vit", **headers})
    _authorize(request)
    return build_opener(_Redirects).open(request, timeout=timeout)


def hub_endpoint():
    """Address of Hugging Face, or of what the environment has in its place."""
    return os.environ.get("HF_ENDPOINT", "").rstrip("/") or "https://huggingface.co"


def total_size(response, offset):
    """Bytes of the whole file by this answer, or None if it does not say."""
    if response.status == 206 and (told := _content_range(response)) and told[1] is not None:
        return told[1]
    return None if response.length is None else offset + response.length


def continues(response, offset, notes):
    """Whether a 206 is the rest, from `offset` on, of the file that `notes` describe."""
    told = _content_range(response)
    if told is None or told[0] != offset:
        return False
    return _agree(told[1], notes.get("size")) and _agree(
        response.headers.get("ETag"), notes.get("etag")
    )


def version(notes):
    """What `If-Range` may name: an ETag that stands for the very bytes, or a date, or None."""
    etag = notes.get("etag")
    return etag if etag and not etag.startswith("W/") else notes.get("last_modified")


def other_than_a_file(response):
    """What came, in words, where it is no file of weights; otherwise None."""
    kind = response.headers.get_content_type()
    if kind in ("text/html", "application/xhtml+xml"):
        try:
            text = response.read(200).decode("utf-8", "replace")
        except (OSError, HTTPException):
            text = ""
        return (
            f"a web page ({kind}) came instead of the file: {' '.join(text.split())!r}. Check the "
            "URL, and whether there is a login page between this machine and the server"
        )
    coding = response.headers.get("Content-Encoding", "identity")
    if coding != "identity":
        return f"the server packed the file with {coding}, which it was not asked to do"
    return None


def pieces(response):
    """The body, piece by piece, and one byte more than announced where the server sends it.

    Raises:
        Passing: the connection broke off.
    """
    announced, done = response.length, 0
    if announced is not None:
        response.length += 1  # otherwise nobody would notice that there is more
    while True:
        try:
            piece = response.read1(PIECE)
        except (OSError, HTTPException) as error:
            if done == announced:
                return  # all is here, only the server has not hung up
            raise Passing(f"the connection broke off ({in_words(error)})") from error
        if not piece:
            return
        done += len(piece)
        yield piece


def asked_to_wait(headers):
    """Seconds by the Retry-After header, a number or a date; None without it."""
    value = headers.get("Retry-After", "").strip()
    if value.isdecimal():
        return float(value)
    try:
        return max(0.0, parsedate_to_datetime(value).timestamp() - time.time())
    except (TypeError, ValueError):
        return None


def in_words(error):
    """An exception by its kind and what it says."""
    return ": ".join(filter(None, (type(error).__name__, str(error))))


class _Redirects(HTTPRedirectHandler):
    max_redirections = 10

    def redirect_request(self, req, fp, code, msg, headers, newurl):
        here, there = urlsplit(req.full_url).scheme, urlsplit(newurl).scheme
        if there not in ("http", "https") or (here, there) == ("https", "http"):
            raise DownloadError(
                f"the server redirects to {newurl}, which is not as safe as {here}, and is not "
                "followed"
            )
        request = super().redirect_request(req, fp, code, msg, headers, newurl)
        if request is not None:
            _authorize(request)
        return request


def _authorize(request):
    """Shows the token of Hugging Face to Hugging Face, and to nobody else."""
    token = os.environ.get("HF_TOKEN", "").strip()
    if token and _origin(request.full_url) == _origin(hub_endpoint()):
        # urllib does not hand unredirected headers on to the address of a redirect.
        request.add_unredirected_header("Authorization", f"Bearer {token}")


def _origin(url):
    parts = urlsplit(url)
    return parts.scheme, parts.hostname, parts.port or {"https": 443}.get(parts.scheme, 80)


def _content_range(response):
    """(first byte, size of the whole file or None), or None."""
    told = re.fullmatch(
        r"bytes (\d+)-\d+/(\d+|\*)", response.headers.get("Content-Range", "").strip()
    )
    return told and (int(told[1]), None if told[2] == "*" else int(told[2]))


def _agree(one, other):
    return one is None or other is None or one == other
