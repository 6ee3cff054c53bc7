"""hf:// names: through huggingface_hub where it is installed, over plain HTTPS where it is not."""

import re
from pathlib import Path
from urllib.parse import quote, unquote

from keras_vit.weights import cache, web
from keras_vit.weights.cache import DownloadError

_NAME = re.compile(
    r"hf://(?P<repo>[\w.-]+/[\w.-]+)(?:@(?P<revision>refs/\w+/[^/@]+|[^/@]+))?(?:/(?P<file>.+)|/)?",
    re.ASCII,
)
_SHARD = re.compile(r"[\w-][\w.-]*\.safetensors", re.ASCII)
_CONFIG, _PREPROCESSOR = "config.json", "preprocessor_config.json"
_WEIGHTS = "model.safetensors"
_INDEX = "model.safetensors.index.json"


def fetch(name, expected, options, fetch_url):
    """Path of a file or folder of Hugging Face.

    Args:
        name: `hf://ORG/REPO[@REVISION][/FILE]`.
        expected: `size` and `sha256` of the file.
        options: `offline`, `progress`, `timeout` and `retries`.
        fetch_url: what downloads one URL, as `download.fetch_url` does.

    Raises:
        ValueError: the name has another form, or a whole folder is given one size or hash.
        DownloadError: what it names cannot be had.
    """
    repo, revision, file = _parse(name)
    if file is None and any(value is not None for value in expected.values()):
        raise ValueError(
            f"size and sha256 are those of one file, and {name!r} names a folder. Received: "
            f"{expected}; add the name of the file."
        )
    try:
        import huggingface_hub
    except ImportError:
        base = f"{web.hub_endpoint()}/{repo}/resolve/{quote(revision, safe='')}"
        if file is not None:
            return fetch_url(f"{base}/{quote(file)}", **expected, **options)
        return _Folder(base, options, fetch_url).fetch()
    client = _Client(huggingface_hub, name, repo, revision, options)
    return client.folder() if file is None else client.file(file, expected)


def _parse(name):
    """(repository, revision, file or None)."""
    found = _NAME.fullmatch(name)
    parts = [] if found is None else f"{found['repo']}/{found['file'] or 'x'}".split("/")
    if found is None or {"", ".", ".."} & set(parts):
        raise ValueError(
            "A name of Hugging Face must have the form hf://ORG/REPO[@REVISION][/FILE]. "
            f"Received: {name!r}."
        )
    return found["repo"], unquote(found["revision"] or "main"), found["file"]


def _shards(index_path, url):
    """Names of the files that an index spreads the weights over."""
    weight_map = cache.read_json(index_path).get("weight_map")
    names = sorted(set(map(str, weight_map.values()))) if isinstance(weight_map, dict) else []
    strange = [name for name in names if not _SHARD.fullmatch(name)]
    if strange or not names:
        raise DownloadError(
            f"{index_path}, from {url}, must name files of its own folder that end in "
            f".safetensors. Received: {strange[:3] or 'no names'}.",
            url=url,
            path=index_path,
        )
    return names


class _Folder:
    """A repository over plain HTTPS."""

    def __init__(self, base, options, fetch_url):
        self.base, self.options, self.fetch_url = base, options, fetch_url

    def fetch(self):
        config = self._get(_CONFIG)
        self._get_if_there(_PREPROCESSOR)
        if self._get_if_there(_WEIGHTS) is None:
            index = self._get_if_there(_INDEX)
            if index is None:
                # Perhaps the repository is not finished: the next call asks for all again.
                for name in (_PREPROCESSOR, _WEIGHTS, _INDEX):
                    self._absence(name).unlink(missing_ok=True)
                return self._get(_WEIGHTS).parent  # says that this one is missing
            for name in _shards(index, f"{self.base}/{_INDEX}"):
                self._get(name)
        return config.parent

    def _get(self, name):
        return self.fetch_url(f"{self.base}/{name}", **self.options)

    def _get_if_there(self, name):
        """Path of a file that a repository need not have; None if it has not."""
        known = cache.path_for(f"{self.base}/{name}").is_file()
        absence = self._absence(name)
        if not known and (self.options["offline"] or absence.is_file()):
            return None
        try:
            return self._get(name)
        except DownloadError as error:
            if error.status not in (404, 410):
                raise
        # Without this, a folder that is complete would still need the network at every use.
        cache.write_json(absence, {"url": f"{self.base}/{name}"})
        return None

    def _absence(self, name):
        """The file that stands for what the repository has not."""
        return cache.beside(cache.path_for(f"{self.base}/{name}"), ".absent")


class _Client:
    """A repository by way of huggingface_hub, which has a cache of its own."""

    def __init__(self, library, name, repo, revision, options):
        self.library, self.name = library, name
        self.options = {
            "repo_id": repo,
            "revision": revision,
            "local_files_only": options["offline"],
            "etag_timeout": options["timeout"],
        }

    def file(self, file, expected):
        path = Path(self._call("hf_hub_download", filename=file))
        size, sha256 = expected["size"], expected["sha256"]
        if size not in (None, path.stat().st_size):
            self._refuse(path, f"{size} bytes", f"{path.stat().st_size} bytes")
        if sha256 is not None and (digest := cache.hash_file(path)) != sha256:
            self._refuse(path, f"sha256 {sha256}", digest)
        return path

    def folder(self):
        common = [_CONFIG, _PREPROCESSOR, _WEIGHTS, _INDEX]
        folder, needed = self._snapshot(common), [_CONFIG, _WEIGHTS]
        if not (folder / _WEIGHTS).is_file() and (folder / _INDEX).is_file():
            shards = _shards(folder / _INDEX, self.name)
            # All names again: if the revision has moved on meanwhile, this is another folder.
            folder, needed = self._snapshot(common + shards), [_CONFIG, *shards]
        missing = [name for name in needed if not (folder / name).is_file()]
        if missing:
            raise DownloadError(
                f"{self.name} must hold {_CONFIG} and {_WEIGHTS}, or {_INDEX} and what it names. "
                f"Received: {folder} without {', '.join(missing)}.",
                url=self.name,
                path=folder,
            )
        return folder

    def _snapshot(self, names):
        return Path(self._call("snapshot_download", allow_patterns=names))

    def _call(self, function, **arguments):
        try:
            return getattr(self.library, function)(**self.options, **arguments)
        except Exception as error:  # of the library, and of what it uses for HTTP
            offline = self.options["local_files_only"]
            advice = "unset KERAS_VIT_OFFLINE and HF_HUB_OFFLINE" if offline else "call again"
            raise DownloadError(
                f"huggingface_hub could not get {self.name}: {web.in_words(error)}\n"
                f"Check the name and HF_TOKEN, then {advice}, or download the repository by other "
                "means and pass the path of its folder.",
                url=self.name,
            ) from error

    def _refuse(self, path, expected, received):
        raise DownloadError(
            f"{self.name} is not the file that was expected. Delete {path}, and it will be "
            f"downloaded anew.\n  Expected: {expected}\n  Received: {received}",
            url=self.name,
            path=path,
        )
