"""Files of the web: whole and right in the cache, or not there, and why one cannot be had.

A file gets its name in the cache when it is whole: it has the size that the server announced or
the catalogue knows, and the MD5 that the server announces, as it does for most files of Google.
"""

import base64
import contextlib
import functools
import hashlib
import os
import re
import time
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit

from keras_vit.writing import output_place

_GCS = re.compile(r"gs://([a-z0-9][\w.-]*)/(.*[^/])", re.ASCII | re.DOTALL)
_SLOWEST = 10_000  # bytes per second; from a slower server nothing is taken
_PASSING = (408, 425, 429, 500, 502, 503, 504)  # HTTP statuses that may be gone the next time


class DownloadError(OSError):
    """A file could not be had, or is not the one it should be."""


def cache_dir() -> Path:
    """`$KERAS_VIT_CACHE`, or else `$XDG_CACHE_HOME/keras_vit`, or else `~/.cache/keras_vit`."""
    folder = os.environ.get("KERAS_VIT_CACHE")
    folder = folder or os.path.join(os.environ.get("XDG_CACHE_HOME") or "~/.cache", "keras_vit")
    return Path(folder).expanduser().absolute()


def reason_of(error, address, retries=0):
    """Why a download failed, without the words of the libraries below."""
    chain = [error]
    while (cause := chain[-1].__cause__ or chain[-1].__context__) and cause not in chain:
        chain.append(cause)
    names = {each.__name__ for error in chain for each in type(error).__mro__}
    host, tried = urlsplit(address).hostname, f", tried {retries + 1} times" if retries else ""
    if names & {"MaxRetryError", "ConnectError", "NameResolutionError", "NewConnectionError"}:
        if "SSLError" in names:
            return f"{host} has no certificate that is trusted here{tried}"
        return f"{host} cannot be reached{tried}: check the network, and the proxy if there is one"
    if names & {"Timeout", "TimeoutException", "ReadTimeoutError"}:
        return f"{host} did not answer in time{tried}"
    return str(error) or type(error).__name__


def https_address(name):
    """The https address of a source."""
    if name.startswith("kaggle://"):
        raise ValueError(
            "Presets of Kaggle are not downloaded here: download this one with "
            f"kagglehub.model_download and pass the folder that it returns. Received: {name!r}."
        )
    if bucket := _GCS.fullmatch(name):
        return f"https://storage.googleapis.com/{bucket[1]}/{quote(bucket[2])}"
    parts = urlsplit(name)
    is_url = parts.scheme in ("https", "http") and parts.hostname and parts.path not in ("", "/")
    if not is_url or parts.username or parts.password:
        received = "a URL with a password" if parts.password else repr(name)
        raise ValueError(
            "The source must be https://HOST/PATH, gs://BUCKET/PATH or "
            f"hf://ORG/REPO[@REVISION][/FILE], without a password. Received: {received}."
        )
    # What is percent-encoded already stays as it is.
    path, query = (quote(part, safe="/%:=&~+!$,;'()*@?") for part in (parts.path, parts.query))
    return parts._replace(path=path, query=query, fragment="").geturl()


def place_of(url):
    """The place of a URL in the cache: its hash, and the name of the file to be readable."""
    name = re.sub(r"[^\w.-]", "_", unquote(urlsplit(url).path).split("/")[-1], flags=re.ASCII)
    return cache_dir() / f"{hashlib.sha256(url.encode()).hexdigest()[:16]}-{name[-100:]}"


def download(url, path, size, sha256, timeout, retries):
    """Downloads a file, while other processes that want it wait."""
    import pooch
    from huggingface_hub.utils import WeakFileLock

    pooch.get_logger().setLevel("WARNING")
    store = pooch.create(
        path=path.parent,
        base_url="",
        registry={path.name: sha256 and f"sha256:{sha256.lower()}"},
        urls={path.name: url},
        retry_if_failed=retries,
    )
    lock = path.with_name(path.name + ".lock")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        output_place(path)
        with WeakFileLock(lock):
            try:
                if not path.is_file():  # whoever had the lock before us may have brought it
                    downloader = functools.partial(_receive, size=size, timeout=timeout)
                    store.fetch(path.name, downloader=downloader)
            finally:
                with contextlib.suppress(OSError):  # Windows keeps what is open
                    lock.unlink()
    except Exception as error:  # of pooch, of requests and what it uses, of the disk
        raise DownloadError(
            f"Could not download {url}: {reason_of(error, url, retries)}.\nNothing was kept. A "
            f"file got by other means belongs at {path}; KERAS_VIT_CACHE names another folder for "
            "downloads, and KERAS_VIT_OFFLINE=1 forbids them."
        ) from error


def _receive(url, target, _pooch, size, timeout):
    """Downloads a file for pooch, which tries again after a `RequestException` or `ValueError`.

    pooch's own downloader takes what comes for the file: a part of it, or a web page.
    """
    import requests
    import urllib3
    from tqdm import tqdm

    headers = {"Accept-Encoding": "identity"}
    try:
        response = requests.get(url, headers=headers, stream=True, timeout=timeout)
    except (requests.exceptions.InvalidSchema, requests.exceptions.TooManyRedirects) as error:
        raise DownloadError(f"the server redirects to nowhere ({error})") from error
    expected, name = _check_answer(url, response, size), url.split("/")[-1]
    received, digest, start = 0, hashlib.md5(usedforsecurity=False), time.monotonic()
    # read1 gives what has come, so that a server which sends a byte now and then is noticed.
    read = getattr(response.raw, "read1", response.raw.read)
    # disable=None: a bar where stderr is a terminal
    bar = tqdm(total=expected, desc=name, unit="B", unit_scale=True, disable=None)
    try:
        with response, open(target, "wb") as file, bar:
            while piece := read(1 << 16):
                received += len(piece)
                if received > expected:
                    raise DownloadError(f"the server sent more than the {expected} bytes expected")
                if time.monotonic() - start > timeout + received / _SLOWEST:
                    raise DownloadError(f"the server sent only {received} bytes in {timeout:g} s")
                file.write(piece)
                digest.update(piece)
                bar.update(len(piece))
    except urllib3.exceptions.HTTPError as error:
        raise requests.exceptions.ConnectionError(str(error)) from error
    if received < expected:
        raise ValueError(f"the connection broke off after {received} of {expected} bytes")
    announced = re.search(r"md5=([\w+/=]+)", response.headers.get("x-goog-hash", ""))
    if announced and base64.b64decode(announced[1]) != digest.digest():
        raise ValueError(f"its MD5 is not the announced one, {announced[1]}")


def _check_answer(url, response, size):
    """The number of bytes to come, where the answer is a file; else a `DownloadError`."""
    if response.status_code in _PASSING:
        response.raise_for_status()
    headers = response.headers
    hops = [r.url for r in (*response.history, response) if r.url.startswith("http:")]
    announced = headers.get("Content-Length", "")
    announced = int(announced) if announced.isdecimal() else size
    signs = (
        (response.status_code != 200, f"the server answers with HTTP {response.status_code}"),
        (url.startswith("https:") and hops, f"the server redirects to {hops}, which is not https"),
        ("html" in headers.get("Content-Type", ""), "a web page came instead of the file"),
        (headers.get("Content-Encoding", "identity") != "identity", "the server packed the file"),
        (announced is None, "the server does not say how large the file is: fetch(url, size=...)"),
        (size not in (None, announced), f"it has {announced} bytes instead of {size}"),
    )
    for is_so, reason in signs:
        if is_so:
            raise DownloadError(f"{reason}; check the address")
    return announced
