"""Published checkpoints by address: https files through pooch, hf:// names through huggingface_hub.

A file gets its name in the cache when it is whole: it has the size that the server announced or
the catalogue knows, and the hash that the server announces: the MD5 of most files of Google, the
SHA-256 of large ones of the hub.
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

from keras_vit.weights.downloads import DownloadError, check_file, reason_of
from keras_vit.weights.packaged import PACKAGE, packaged
from keras_vit.writing import output_place

_GCS = re.compile(r"gs://([a-z0-9][\w.-]*)/(.*[^/])", re.ASCII | re.DOTALL)
_HF = re.compile(
    r"hf://(?P<repo>[\w.-]+/[\w.-]+)(?:@(?P<revision>refs/\w+/[^/@]+|[^/@]+))?(?:/(?P<file>.+)|/)?",
    re.ASCII,
)
# What a model needs of a repository.
_HF_FILES = """config.json preprocessor_config.json model.safetensors model.safetensors.index.json
model.npz adapter_config.json adapter_model.safetensors"""
_SLOWEST = 10_000  # bytes per second; from a slower server nothing is taken
_PASSING = (408, 425, 429, 500, 502, 503, 504)  # HTTP statuses that may be gone the next time


def cache_dir() -> Path:
    """`$KERAS_VIT_CACHE`, or else `$XDG_CACHE_HOME/keras_vit`, or else `~/.cache/keras_vit`."""
    if own := os.environ.get("KERAS_VIT_CACHE"):
        return Path(own).expanduser().absolute()
    shared = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(shared).expanduser().absolute() / "keras_vit"


def is_offline():
    """Whether `$KERAS_VIT_OFFLINE` forbids the network."""
    return os.environ.get("KERAS_VIT_OFFLINE", "").lower() in ("1", "true", "yes", "on")


def fetch(
    source: str,
    *,
    size: int | None = None,
    sha256: str | None = None,
    offline: bool | None = None,
    timeout: float = 30.0,
    retries: int = 4,
) -> Path:
    """The local path of a published checkpoint, which is downloaded if it is not there yet.

    Of two processes one waits for the other. hf:// names go into the cache of huggingface_hub,
    which heeds `HF_ENDPOINT`, `HF_HOME` and `HF_TOKEN`.

    Args:
        source: `https://HOST/PATH` or `http://…`, `gs://BUCKET/PATH`, `hf://ORG/REPO/FILE`, or
            `hf://ORG/REPO` for all that a model needs; `@REVISION` may follow REPO. A subtree
            after the name, as in `….npz:img`, is left aside. `package://digits/FILE` is a file
            that comes with this package.
        size: exact size of the file in bytes; `None` takes the server's word.
        sha256: hash of the file in hexadecimal.
        offline: `True` uses only the cache; `None` asks the environment variable
            `KERAS_VIT_OFFLINE`; huggingface_hub also heeds its own, `HF_HUB_OFFLINE`.
        timeout: seconds to wait for the server to send something; a download may take that long
            and a second for every 10,000 bytes.
        retries: how many further attempts may follow one that failed in passing.

    Returns:
        A `pathlib.Path`: a file, or, for `hf://ORG/REPO`, a folder.

    Raises:
        ValueError: `source` has a form that is not understood, or `size` or `sha256` is that of a
            folder.
        DownloadError: the file cannot be had or is not what it should be; says what to do.
    """
    name = re.sub(r"(?<=\.npz):[\w./-]+$", "", os.fspath(source), flags=re.ASCII)
    if offline is None:
        offline = is_offline()
    if name.startswith(PACKAGE):
        path = packaged(name)
    elif name.startswith("hf://"):
        path = _fetch_hub(name, offline, timeout)
    else:
        url = _https(name)
        path = _place(url)
        if offline and not path.is_file():
            raise DownloadError(
                f"{url} is not in the cache, and nothing is downloaded in offline mode. Unset "
                f"KERAS_VIT_OFFLINE, or get the file by other means and put it at {path}."
            )
        if not path.is_file():
            _fetch_url(url, path, size, sha256, timeout, retries)
    if size is not None or sha256 is not None:
        check_file(path, name, size, sha256)
    return path


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


def _place(url):
    """The place of a URL in the cache: its hash, and the name of the file to be readable."""
    name = re.sub(r"[^\w.-]", "_", unquote(urlsplit(url).path).split("/")[-1], flags=re.ASCII)
    return cache_dir() / f"{hashlib.sha256(url.encode()).hexdigest()[:16]}-{name[-100:]}"


def _fetch_url(url, path, size, sha256, timeout, retries):
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
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        output_place(path)
        lock = path.with_name(path.name + ".lock")
        with WeakFileLock(lock):
            try:
                if not path.is_file():  # whoever had the lock before us may have brought it
                    download = functools.partial(_download, size=size, timeout=timeout)
                    store.fetch(path.name, downloader=download)
            finally:
                with contextlib.suppress(OSError):  # Windows keeps what is open
                    lock.unlink()
    except Exception as error:  # of pooch, of requests and what it uses, of the disk
        raise DownloadError(
            f"Could not download {url}: {reason_of(error, url, retries)}.\nNothing was kept. A "
            f"file got by other means belongs at {path}; KERAS_VIT_CACHE names another folder for "
            "downloads, and KERAS_VIT_OFFLINE=1 forbids them."
        ) from error


def _download(url, target, _pooch, size, timeout):
    """Downloads a file for pooch, which tries again after a `RequestException` or `ValueError`.

    pooch's own downloader takes what comes for the file: a part of it, or a web page.
    """
    import requests
    from tqdm import tqdm

    headers = {"Accept-Encoding": "identity"}
    try:
        response = requests.get(url, headers=headers, stream=True, timeout=timeout)
    except (requests.exceptions.InvalidSchema, requests.exceptions.TooManyRedirects) as error:
        raise DownloadError(f"the server redirects to nowhere ({error})") from error
    with response, open(target, "wb") as file:
        expected = _check_answer(url, response, size)
        received, digest = 0, hashlib.md5(usedforsecurity=False)
        start = time.monotonic()
        # read1 gives what has come, so that a server which sends a byte now and then is noticed.
        read = getattr(response.raw, "read1", response.raw.read)
        # disable=None: a bar where stderr is a terminal
        options = {"unit": "B", "unit_scale": True, "disable": None}
        with tqdm(total=expected, desc=url.split("/")[-1], **options) as bar:
            while piece := _next_piece(read):
                received += len(piece)
                if received > expected:
                    raise DownloadError(f"the server sent more than the {expected} bytes expected")
                if time.monotonic() - start > timeout + received / _SLOWEST:
                    raise DownloadError(f"the server sent only {received} bytes in {timeout:g} s")
                file.write(piece)
                digest.update(piece)
                bar.update(len(piece))
    if received < expected:
        text = f"the connection broke off after {received} of {expected} bytes"
        raise requests.exceptions.ConnectionError(text)
    known = re.search(r"md5=([\w+/=]+)", response.headers.get("x-goog-hash", ""))
    if known and base64.b64decode(known[1]) != digest.digest():
        raise ValueError(f"its MD5 is not the announced one, {known[1]}")


def _next_piece(read):
    import requests
    import urllib3

    try:
        return read(1 << 16)
    except urllib3.exceptions.HTTPError as error:
        raise requests.exceptions.ConnectionError(str(error)) from error


def _check_answer(url, response, size):
    """The number of bytes to come, after a look at whether it is a file that comes."""
    if response.status_code in _PASSING:
        response.raise_for_status()
    said = response.headers
    hops = [r.url for r in (*response.history, response) if r.url.startswith("http:")]
    announced = said.get("Content-Length", "")
    announced = int(announced) if announced.isdecimal() else size
    signs = (
        (response.status_code != 200, f"the server answers with HTTP {response.status_code}"),
        (url.startswith("https:") and hops, f"the server redirects to {hops}, which is not https"),
        ("html" in said.get("Content-Type", ""), "a web page came instead of the file"),
        (said.get("Content-Encoding", "identity") != "identity", "the server packed the file"),
        (announced is None, "the server does not say how large the file is: fetch(url, size=...)"),
        (size not in (None, announced), f"it has {announced} bytes instead of {size}"),
    )
    for is_so, what in signs:
        if is_so:
            raise DownloadError(f"{what}; check the address")
    return announced


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
            path = Path(huggingface_hub.hf_hub_download(filename=found["file"], **options))
        else:
            wanted = [*_HF_FILES.split(), "model-*-of-*.safetensors"]
            path = Path(huggingface_hub.snapshot_download(allow_patterns=wanted, **options))
    except Exception as error:  # of the library, and of what it uses for HTTP
        advice = "unset KERAS_VIT_OFFLINE and HF_HUB_OFFLINE" if offline else "call again"
        host = options["endpoint"] or "https://huggingface.co"
        reason = reason_of(error, host)
        if offline:
            reason = "it is not in the cache, and nothing is downloaded in offline mode"
        elif reason == str(error):
            reason = f"{type(error).__name__}: {error}"
        raise DownloadError(
            f"huggingface_hub could not get {name}: {reason}\nCheck the name and HF_TOKEN, then "
            f"{advice}; or put the files of {host}/{found['repo']} (config.json, "
            "model.safetensors, preprocessor_config.json where there is one) into a folder, and "
            "pass its path."
        ) from error
    for file in path.iterdir() if path.is_dir() else [path]:
        # The hub calls a large file by its SHA-256, and so does the cache, which does not check it.
        if re.fullmatch("[0-9a-f]{64}", file.resolve().name):
            check_file(file.resolve(), name, None, file.resolve().name)
    return path
