"""Published checkpoints by address: https files through pooch, hf:// names through huggingface_hub.

A file gets its name in the cache when it is whole: it has the size that the server announced or the
catalogue knows, and the hash where one is known (Google's servers send the MD5 of most files).
"""

import base64
import functools
import hashlib
import os
import re
import time
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit

from keras_vit.checks import positive_float

_FORMS = "https://HOST/PATH, gs://BUCKET/PATH, hf://ORG/REPO[@REVISION][/FILE]"
_GCS = re.compile(r"gs://([a-z0-9][\w.-]*)/(.*[^/])", re.ASCII | re.DOTALL)
_HF = re.compile(
    r"hf://(?P<repo>[\w.-]+/[\w.-]+)(?:@(?P<revision>refs/\w+/[^/@]+|[^/@]+))?(?:/(?P<file>.+)|/)?",
    re.ASCII,
)
# What a model needs of a repository.
_HF_FILES = [*("config.json", "preprocessor_config.json", "model.safetensors"),
             *("model.safetensors.index.json", "model-*-of-*.safetensors")]  # fmt: skip
_PIECE = 1 << 20  # bytes in memory at a time
_PATIENCE, _MIN_SPEED = 60.0, 2000.0  # after so many seconds, so many bytes per second are due
_PASSING = (408, 425, 429, 500, 502, 503, 504)  # HTTP statuses that may be gone the next time


class DownloadError(OSError):
    """A file could not be had, or is not the one it should be.

    Attributes:
        url: what was to be downloaded.
        path: where the file lies, or would.
        status: the HTTP status, where that was the reason.
    """

    def __init__(self, message, *, url=None, path=None, status=None):
        super().__init__(message)
        self.url, self.path, self.status = url, path, status


def cache_dir():
    """`$KERAS_VIT_CACHE`, or else `$XDG_CACHE_HOME/keras_vit`, or else `~/.cache/keras_vit`."""
    if own := os.environ.get("KERAS_VIT_CACHE"):
        return Path(own).expanduser().absolute()
    if shared := os.environ.get("XDG_CACHE_HOME"):
        return Path(shared).expanduser().absolute() / "keras_vit"
    return Path.home() / ".cache" / "keras_vit"


def fetch(
    source,
    *,
    size=None,
    sha256=None,
    offline=None,
    progress=None,
    timeout=30.0,
    retries=4,
):
    """The local path of a published checkpoint, which is downloaded if it is not there yet.

    Of two processes one waits for the other. hf:// names go into the cache of huggingface_hub,
    which heeds `HF_ENDPOINT`, `HF_HOME` and `HF_TOKEN`.

    Args:
        source: `https://HOST/PATH` or `http://…`, `gs://BUCKET/PATH`, `hf://ORG/REPO/FILE`, or
            `hf://ORG/REPO` for all that a model needs; `@REVISION` may follow REPO. A subtree
            after the name, as in `….npz:img`, is left aside.
        size: exact size of the file in bytes; `None` takes the server's word.
        sha256: hash of the file in hexadecimal.
        offline: `True` uses only the cache; `None` asks the environment variable
            `KERAS_VIT_OFFLINE`; huggingface_hub also heeds its own, `HF_HUB_OFFLINE`.
        progress: whether to show a bar on stderr; `None` shows it where stderr is a terminal.
        timeout: seconds to wait for the server to send something.
        retries: how many further attempts may follow one that failed in passing.

    Returns:
        A `pathlib.Path`: a file, or, for `hf://ORG/REPO`, a folder.

    Raises:
        ValueError: `source` or another argument has a form that is not understood.
        DownloadError: the file cannot be had or is not what it should be; says what to do.
    """
    name = re.sub(r"(?<=\.npz):[\w./-]+$", "", os.fspath(source), flags=re.ASCII)
    positive_float(timeout, "timeout")
    if sha256 is not None and not re.fullmatch("[0-9a-fA-F]{64}", sha256):
        raise ValueError(f"sha256 must be 64 hexadecimal digits. Received: {sha256!r}.")
    for argument, value in (("size", size), ("retries", retries)):
        optional = argument == "size" and value is None
        if not optional and (isinstance(value, bool) or not isinstance(value, int) or value < 0):
            raise ValueError(f"{argument} must be an integer of at least 0. Received: {value!r}.")
    if offline is None:
        offline = os.environ.get("KERAS_VIT_OFFLINE", "").lower() in ("1", "true", "yes", "on")
    if name.startswith("hf://"):
        path = _fetch_hub(name, offline, timeout)
    else:
        url = _https(name)
        path = _place(url)
        if not path.is_file():
            if offline:
                text = (
                    f"{url} is not in the cache, and nothing is downloaded in offline mode. Unset "
                    f"KERAS_VIT_OFFLINE, or get the file by other means and put it at {path}."
                )
                raise DownloadError(text, url=url, path=path)
            _fetch_url(url, path, size, sha256, progress, timeout, retries)
    _check_file(path, name, size, sha256)
    return path


def _check_file(path, name, size, sha256):
    if size is None and sha256 is None:
        return
    if path.is_dir():
        raise ValueError(
            f"size and sha256 are those of one file, and {name!r} names a folder. Received: "
            f"size={size}, sha256={sha256}; add the name of the file."
        )
    import pooch

    digest = sha256 and pooch.file_hash(str(path))
    for expected, received in ((size, path.stat().st_size), (sha256 and sha256.lower(), digest)):
        if expected not in (None, received):
            text = (
                f"The file {path} is not what it should be, or has been altered since it came from "
                f"{name}. Delete it, and it will be downloaded anew.\n"
                f"  Expected: {expected}\n  Received: {received}"
            )
            raise DownloadError(text, url=name, path=path)


# ---- https


def _https(name):
    """The https address of a source."""
    if name.startswith("kaggle://"):
        raise ValueError(
            "Presets of Kaggle are not downloaded here: download this one with "
            f"kagglehub.model_download and pass the folder that it returns. Received: {name!r}."
        )
    if found := _GCS.fullmatch(name):
        return f"https://storage.googleapis.com/{found[1]}/{quote(found[2])}"
    parts = urlsplit(name)
    if parts.scheme not in ("https", "http") or not parts.hostname or parts.path in ("", "/"):
        raise ValueError(f"The source must be {_FORMS}. Received: {name!r}.")
    if parts.username or parts.password:
        raise ValueError(f"A URL must not hold a password. Received: one for {parts.hostname}.")
    # What is percent-encoded already stays as it is.
    path, query = (quote(part, safe="/%:=&~+!$,;'()*@?") for part in (parts.path, parts.query))
    return parts._replace(path=path, query=query, fragment="").geturl()


def _place(url):
    """The place of a URL in the cache: its hash, and the name of the file to be readable."""
    name = re.sub(r"[^\w.-]", "_", unquote(urlsplit(url).path).split("/")[-1], flags=re.ASCII)
    return cache_dir() / f"{hashlib.sha256(url.encode()).hexdigest()[:16]}-{name[-100:]}"


def _fetch_url(url, path, size, sha256, progress, timeout, retries):
    import pooch
    from huggingface_hub.utils import WeakFileLock

    pooch.get_logger().setLevel("WARNING")
    download = functools.partial(_download, size=size, timeout=timeout, progress=progress)
    store = pooch.create(
        path=path.parent,
        base_url="",
        registry={path.name: sha256 and f"sha256:{sha256.lower()}"},
        urls={path.name: url},
        retry_if_failed=retries,
    )
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with WeakFileLock(path.with_name(path.name + ".lock")):
            if not path.is_file():  # whoever had the lock before us may have brought it
                store.fetch(path.name, downloader=download)
    except Exception as error:  # of pooch, of requests and what it uses, of the disk
        reason = str(error) or type(error).__name__
        raise DownloadError(
            f"Could not download {url}: {reason}.\nNothing was kept. A file got by other means "
            f"belongs at {path}; KERAS_VIT_CACHE names another folder for downloads, and "
            "KERAS_VIT_OFFLINE=1 forbids them.",
            url=url,
            path=path,
            status=getattr(error, "status", None),
        ) from error


def _download(url, target, _pooch, size, timeout, progress):
    """Downloads a file for pooch, which tries again after a `RequestException` or `ValueError`."""
    import requests
    import urllib3
    from requests import exceptions as errors
    from tqdm import tqdm

    headers = {"Accept-Encoding": "identity"}
    try:
        response = requests.get(url, headers=headers, stream=True, timeout=timeout)
    except (errors.InvalidSchema, errors.InvalidURL, errors.TooManyRedirects) as error:
        raise DownloadError(f"the server redirects to nowhere ({error})") from error
    with response:
        expected = _check_answer(url, response, size)
        received, digest, start = 0, hashlib.md5(usedforsecurity=False), time.monotonic()
        bar = tqdm(
            total=expected,
            desc=url.split("/")[-1],
            unit="B",
            unit_scale=True,
            disable=None if progress is None else not progress,
        )
        with open(target, "wb") as file, bar:
            while received < expected:
                try:
                    piece = response.raw.read1(_PIECE, decode_content=False)
                except urllib3.exceptions.HTTPError as error:
                    raise errors.ConnectionError(f"the connection broke off ({error})") from error
                if not piece:
                    text = f"the connection broke off after {received} of {expected} bytes"
                    raise errors.ConnectionError(text)
                received += len(piece)
                seconds = time.monotonic() - start
                if seconds > _PATIENCE and received < _MIN_SPEED * seconds:
                    raise DownloadError(f"the server sent {received} bytes in {seconds:.0f} s")
                file.write(piece)
                digest.update(piece)
                bar.update(len(piece))
        if received > expected:
            raise DownloadError(f"the server sent more than the {expected} bytes of the file")
        known = re.search(r"md5=([\w+/=]+)", response.headers.get("x-goog-hash", ""))
        if known and base64.b64decode(known[1]) != digest.digest():
            raise ValueError(f"its MD5 is not the announced one, {known[1]}")


def _check_answer(url, response, size):
    """The number of bytes to come, after a look at whether it is a file that comes."""
    status, hops = response.status_code, [r.url for r in (*response.history, response)]
    if status in _PASSING:
        response.raise_for_status()
    if status != 200:
        raise DownloadError(f"the server answers with HTTP {status}. Check the name", status=status)
    if url.startswith("https:") and any(hop.startswith("http:") for hop in hops):
        raise DownloadError(f"the server redirects to {hops[-1]}, which is not as safe as https")
    kind = response.headers.get("Content-Type", "")
    if "html" in kind:
        raise DownloadError(f"a web page ({kind}) came instead of the file. Check the URL")
    if response.headers.get("Content-Encoding", "identity") != "identity":
        raise DownloadError("the server packed the file, which it was not asked to do")
    announced = response.headers.get("Content-Length", "")
    announced = int(announced) if announced.isdecimal() else None
    expected = announced if size is None else size
    if expected is None:
        raise DownloadError(
            "the server does not say how large the file is, so that a part could pass for the "
            "whole. Say it with keras_vit.weights.fetch(url, size=...)"
        )
    if announced not in (None, expected):
        raise DownloadError(f"it has {announced} bytes instead of {expected}")
    return expected


# ---- Hugging Face


def _fetch_hub(name, offline, timeout):
    """Path of a file or folder of Hugging Face."""
    import huggingface_hub

    found = _HF.fullmatch(name)
    parts = [] if found is None else f"{found['repo']}/{found['file'] or 'x'}".split("/")
    if found is None or {"", ".", ".."} & set(parts):
        raise ValueError(
            "A name of Hugging Face must have the form hf://ORG/REPO[@REVISION][/FILE]. "
            f"Received: {name!r}."
        )
    options = {
        "repo_id": found["repo"],
        "revision": unquote(found["revision"] or "main"),
        "local_files_only": offline,
        "etag_timeout": timeout,
        "endpoint": os.environ.get("HF_ENDPOINT") or None,
    }
    try:
        if found["file"] is not None:
            return Path(huggingface_hub.hf_hub_download(filename=found["file"], **options))
        return Path(huggingface_hub.snapshot_download(allow_patterns=_HF_FILES, **options))
    except Exception as error:  # of the library, and of what it uses for HTTP
        advice = "unset KERAS_VIT_OFFLINE and HF_HUB_OFFLINE" if offline else "call again"
        raise DownloadError(
            f"huggingface_hub could not get {name}: {type(error).__name__}: {error}\nCheck the "
            f"name and HF_TOKEN, then {advice}, or pass the path of a copy of its folder.",
            url=name,
        ) from error
