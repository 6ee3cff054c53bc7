"""Published checkpoints by name: from the web, from Google Cloud Storage, from Hugging Face."""

import os
import re
from urllib.parse import quote, urlsplit

from keras_vit.checks import positive_float
from keras_vit.weights import cache, hub
from keras_vit.weights.cache import DownloadError, cache_dir
from keras_vit.weights.progress import ProgressBar
from keras_vit.weights.transfer import Transfer

__all__ = ["DownloadError", "cache_dir", "fetch", "split_subtree"]

_FORMS = (
    "https://HOST/PATH, gs://BUCKET/PATH, hf://ORG/REPO[@REVISION] or hf://ORG/REPO[@REVISION]/FILE"
)
_GCS = re.compile(r"gs://([a-z0-9][\w.-]*)/(.*[^/])", re.ASCII | re.DOTALL)
_SUBTREE = re.compile(r"(.+\.npz):([\w./-]+)", re.ASCII | re.DOTALL)


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

    A download that broke off goes on where it stopped. Two processes or threads never download
    the same file twice: one waits for the other. Without `sha256`, the hash of the first download
    is recorded, and a file that has changed on disk since then is refused. With huggingface_hub
    installed, hf:// names go through it, into its own cache and with its own progress bars and
    retries; otherwise `HF_ENDPOINT` and `HF_TOKEN` are honoured.

    Args:
        source: `https://HOST/PATH` or `http://…`, `gs://BUCKET/PATH`, `hf://ORG/REPO/FILE`, or
            `hf://ORG/REPO` for all that a model needs; `@REVISION` may follow REPO. A subtree
            after the name, as in `….npz:img`, is left aside.
        size: exact size of the file in bytes; None takes the server's word.
        sha256: hash of the file in hexadecimal.
        offline: True uses only the cache; None asks the environment variable `KERAS_VIT_OFFLINE`
            and, for hf:// names, `HF_HUB_OFFLINE`.
        progress: whether to show a bar on stderr; None shows it where stderr is a terminal.
        timeout: seconds to wait for the server to send something.
        retries: how many further attempts may follow one that failed in passing.

    Returns:
        A `pathlib.Path`: a file, or, for `hf://ORG/REPO`, a folder with `config.json`, with
        `preprocessor_config.json` if there is one, and with `model.safetensors` or else
        `model.safetensors.index.json` and the files that it names.

    Raises:
        ValueError: `source` or another argument has a form that is not understood.
        DownloadError: the file cannot be had or is not what it should be; says what to do.
    """
    name, _ = split_subtree(source)
    _check(size, sha256, retries)
    options = {
        "offline": _is_offline(offline, "KERAS_VIT_OFFLINE"),
        "progress": progress,
        "timeout": positive_float(timeout, "timeout"),
        "retries": retries,
    }
    expected = {"size": size, "sha256": sha256 and sha256.lower()}
    if name.startswith("hf://"):
        options["offline"] = options["offline"] or _is_offline(offline, "HF_HUB_OFFLINE")
        return hub.fetch(name, expected, options, fetch_url)
    return fetch_url(_url(name), **expected, **options)


def split_subtree(source):
    """Splits `file.npz:img`, which names a part of a file, into its two halves.

    Args:
        source: a URL, a name or a path.

    Returns:
        (what stands before the colon, what stands after it); the latter is None where `source`
        names a whole file.
    """
    source = os.fspath(source)
    found = _SUBTREE.fullmatch(source)
    return (found[1], found[2]) if found else (source, None)


def fetch_url(url, *, size=None, sha256=None, offline, progress, timeout, retries):
    """Path of the file of an https or http URL; the arguments are those of `fetch`."""
    path = cache.path_for(url)
    try:
        if not path.is_file():
            if offline:
                raise _not_here(url, path)
            if path.is_dir():
                raise IsADirectoryError(f"{path} is a folder, and should be a file")
            path.parent.mkdir(parents=True, exist_ok=True)
            with cache.locked(path, quiet=progress is False):
                if not path.is_file():  # whoever had the lock before us may have brought it
                    bar = ProgressBar(path.name, progress)
                    Transfer(url, path, size, sha256, timeout, retries, bar).run()
        cache.check_cached(path, url, size, sha256)
    except DownloadError:
        raise
    except OSError as error:
        raise DownloadError(
            f"The cache cannot take or give {path}, the place of {url}. Set KERAS_VIT_CACHE to "
            f"another folder, or mend this one. Received: {error}",
            url=url,
            path=path,
        ) from error
    return path


def _not_here(url, path):
    return DownloadError(
        f"{url} is not in the cache, and nothing is downloaded in offline mode. Unset "
        "KERAS_VIT_OFFLINE (and HF_HUB_OFFLINE), or get the file by other means and put it "
        f"at {path}.",
        url=url,
        path=path,
    )


def _url(name):
    if name.startswith("kaggle://"):
        raise ValueError(
            "Presets of Kaggle are not downloaded here: download this one with "
            f"kagglehub.model_download and pass the folder that it returns. Received: {name!r}."
        )
    if found := _GCS.fullmatch(name):
        return f"https://storage.googleapis.com/{found[1]}/{quote(found[2])}"
    if not name.startswith(("https://", "http://")):
        raise ValueError(f"The source must be {_FORMS}. Received: {name!r}.")
    parts = urlsplit(name)
    if parts.username or parts.password:
        raise ValueError(
            "The URL must not hold a user name or password, which would end up in messages and "
            f"file names. Received: one for {parts.hostname}."
        )
    # What is percent-encoded already stays as it is.
    path = quote(parts.path, safe="/%:=&~+!$,;'()*@")
    query = quote(parts.query, safe="/%:=&~+!$,;'()*@?")
    return parts._replace(path=path, query=query, fragment="").geturl()


def _is_offline(offline, variable):
    if offline is not None:
        return bool(offline)
    return os.environ.get(variable, "").strip().lower() in ("1", "true", "yes", "on")


def _check(size, sha256, retries):
    if sha256 is not None and not re.fullmatch("[0-9a-fA-F]{64}", sha256):
        raise ValueError(f"sha256 must be 64 hexadecimal digits. Received: {sha256!r}.")
    for name, value in (("size", size), ("retries", retries)):
        optional = name == "size" and value is None
        if not optional and (isinstance(value, bool) or not isinstance(value, int) or value < 0):
            raise ValueError(f"{name} must be an integer of at least 0. Received: {value!r}.")
