"""Where weights are that somebody names: a path, or a file of the web, the hub or this package."""

import hashlib
import os
import re
from pathlib import Path
from urllib.parse import unquote

from keras_vit.weights import augreg, catalog
from keras_vit.weights.downloads import DownloadError, download, https_address, place_of, reason_of

PACKAGE = "package://"
SCHEMES = ("https://", "http://", "gs://", "hf://", "kaggle://", PACKAGE)
SUFFIXES = """.npz .safetensors .pt .pth .bin .h5 .keras .ckpt .pkl .onnx .msgpack .json .tar
.zip""".split()  # of files
_HF = re.compile(
    r"hf://(?P<repo>[\w.-]+/[\w.-]+)(?:@(?P<revision>refs/\w+/[^/@]+|[^/@]+))?(?:/(?P<file>.+)|/)?",
    re.ASCII,
)
# What a model needs of a repository.
_HF_FILES = """config.json preprocessor_config.json model.safetensors model.safetensors.index.json
model.npz adapter_config.json adapter_model.safetensors model-*-of-*.safetensors""".split()
_DELETE = "Delete it, and it will be downloaded anew."


def locate(weights):
    """A `Path` that exists or the URL of a checkpoint, and its record or `None`."""
    if not isinstance(weights, (str, os.PathLike)) or not str(weights):
        raise ValueError(
            "weights must be the path of a checkpoint, a URL or a name that `keras-vit list` or "
            f"keras_vit.list_weights() prints. Received: {weights!r}."
        )
    path, text = Path(weights).expanduser(), str(weights)
    if os.path.exists(path):
        return path, None
    records = catalog.lookup(text)
    record = records[0] if len(records) == 1 else None
    if text.startswith(SCHEMES):
        return text, record
    if record is not None and not path.is_absolute():
        return record.url, record
    # The catalogue lists the best of the files of "How to train your ViT?"; all have names.
    if url := augreg.augreg_url(text):
        return url, None
    is_path = path.is_absolute() or text[0] in ".~" or text[-1] in "/\\"
    if isinstance(weights, os.PathLike) or path.suffix in SUFFIXES or is_path:
        folders = [folder for folder in path.absolute().parents if not folder.exists()]
        which = f" (there is no folder {str(folders[-1])!r})" if folders else ""
        raise FileNotFoundError(
            f"There is no checkpoint file or folder {text!r}{which}, and no published one has that "
            "name."
        )
    try:
        return catalog.find(text).url, None
    except ValueError as error:  # which proposes names
        hub = f" hf://{text} would be a repository of the hub." if text.count("/") == 1 else ""
        raise ValueError(f"{error}{hub}") from None


def local_path(place, record=None):
    """The path of what `locate` returned; a URL is downloaded."""
    if not isinstance(place, str):
        return place
    try:
        return fetch(place, size=record and record.size)
    except DownloadError as error:  # which tells the URL, and not for which published weights
        raise DownloadError(f"{record.name}: {error}" if record else str(error)) from error


def unfetched(weights):
    """The record of published weights that would have to be downloaded; `None` for all others."""
    url, record = locate(weights)
    try:
        if record is not None:
            fetch(url, size=record.size, offline=True)
    except OSError:
        return record
    return None


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
            `hf://ORG/REPO` for all that a model needs; `@REVISION` may follow REPO. A subtree, as
            in `….npz:img`, is left aside. `package://digits/FILE` comes with this package.
        size: exact size of the file in bytes; `None` takes the server's word.
        sha256: hash of the file in hexadecimal.
        offline: `True` uses only the cache; `None` asks the environment variable
            `KERAS_VIT_OFFLINE`; huggingface_hub also heeds its own, `HF_HUB_OFFLINE`.
        timeout: seconds to wait for the server; a download may take a second more for every
            10,000 bytes.
        retries: how many further attempts may follow one that failed in passing.

    Returns:
        A `pathlib.Path`: a file, or, for `hf://ORG/REPO`, a folder.

    Raises:
        ValueError: `source` has a form that is not understood, or `size` or `sha256` is that of a
            folder.
        DownloadError: the file cannot be had or is not what it should be; says what to do.
    """
    name = re.sub(r"(?<=\.npz):[\w./-]+$", "", os.fspath(source), flags=re.ASCII)
    offline = is_offline() if offline is None else offline
    remedy = _DELETE
    if name.startswith(PACKAGE):
        path, remedy = _packaged(name), "Install keras3-vit anew."
    elif name.startswith("hf://"):
        path = _fetch_hub(name, offline, timeout)
    else:
        url = https_address(name)
        path = place_of(url)
        if offline and not path.is_file():
            raise DownloadError(
                f"{url} is not in the cache, and nothing is downloaded in offline mode. Unset "
                f"KERAS_VIT_OFFLINE, or get the file by other means and put it at {path}."
            )
        if not path.is_file():
            download(url, path, size, sha256=sha256, timeout=timeout, retries=retries)
    if size is not None or sha256 is not None:
        _check_file(path, name, size=size, sha256=sha256, remedy=remedy)
    return path


def _check_file(path, name, size, sha256, remedy):
    """Raises a DownloadError where a file has another size or hash than it should have."""
    if path.is_dir():
        raise ValueError(
            f"size and sha256 are those of one file, and {name!r} names a folder. Received: "
            f"size={size}, sha256={sha256}; add the name of the file."
        )
    digest = sha256
    if sha256:
        with open(path, "rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
    expected = (size, sha256 and sha256.lower())
    received = (None if size is None else path.stat().st_size, digest)
    if expected != received:
        raise DownloadError(
            f"The file {path} is not what it should be, or has been altered since it came from "
            f"{name}. {remedy}\n"
            f"  Expected: {expected}\n  Received: {received}"
        )


def _fetch_hub(name, offline, timeout):
    """Path of a file or folder of Hugging Face."""
    import huggingface_hub

    address = _HF.fullmatch(name)
    parts = f"{address['repo']}/{address['file'] or 'x'}".split("/") if address else [""]
    if {"", ".", ".."} & set(parts):
        raise ValueError(
            "A name of Hugging Face must have the form hf://ORG/REPO[@REVISION][/FILE]. "
            f"Received: {name!r}."
        )
    options = {
        "repo_id": address["repo"],
        "revision": unquote(address["revision"] or "main"),
        "local_files_only": offline,
        "etag_timeout": timeout,
        "endpoint": os.environ.get("HF_ENDPOINT") or None,
    }
    try:
        if address["file"] is not None:
            path = Path(huggingface_hub.hf_hub_download(filename=address["file"], **options))
        else:
            path = Path(huggingface_hub.snapshot_download(allow_patterns=_HF_FILES, **options))
    except Exception as error:  # of the library, and of what it uses for HTTP
        host = options["endpoint"] or "https://huggingface.co"
        reason, remedy = reason_of(error, host), "call again"
        if offline:
            reason = "it is not in the cache, and nothing is downloaded in offline mode"
            remedy = "unset KERAS_VIT_OFFLINE and HF_HUB_OFFLINE"
        elif reason == str(error):
            reason = f"{type(error).__name__}: {error}"
        raise DownloadError(
            f"huggingface_hub could not get {name}: {reason}\nCheck the name and HF_TOKEN, then "
            f"{remedy}; or put the files of {host}/{address['repo']} (config.json, "
            "model.safetensors, preprocessor_config.json where there is one) into a folder, and "
            "pass its path."
        ) from error
    for file in path.iterdir() if path.is_dir() else [path]:
        # The hub calls a large file by its SHA-256, and so does the cache, which does not check it.
        if re.fullmatch("[0-9a-f]{64}", file.resolve().name):
            _check_file(file.resolve(), name, size=None, sha256=file.resolve().name, remedy=_DELETE)
    return path


def _packaged(source):
    """The path of a file that comes with this package: `keras_vit/weights/NAME/FILE`."""
    address = re.fullmatch(PACKAGE + r"(\w+)/(\w[\w.-]*)", source, re.ASCII)
    path = address and Path(__file__).parent / address[1] / address[2]
    if not path or not path.is_file():
        raise FileNotFoundError(
            f"No such file comes with this package. Received: {source!r}. If it should, as "
            "package://digits/model.safetensors does, install keras3-vit anew."
        )
    return path
