"""The folder of downloaded files: where each lies, what is known of it, and whose turn it is.

Beside a file NAME there may be NAME.json (its record: url, size, sha256, etag, date), and while
it is being downloaded NAME.part, NAME.part.json (what the part is a part of) and NAME.lock.
NAME.absent stands for a file that the server was asked for and does not have.
"""

import contextlib
import errno
import hashlib
import json
import os
import re
import sys
import threading
import time
from pathlib import Path, PurePosixPath
from urllib.parse import unquote, urlsplit

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None
    import msvcrt

PIECE = 1 << 20  # bytes in memory at a time
_LOCK_POLL = 0.1  # seconds
_PLAIN = re.compile(r"[\w+=@,-][\w+=@,.-]{0,119}", re.ASCII)
# Names that could be taken for the files that stand beside another file.
_RESERVED = re.compile(
    r"\.(part|lock|absent|tmp)$|\.(npz|h5|keras|safetensors|bin|json|part)\.json$", re.IGNORECASE
)
_LONGEST = 1000  # characters of a path below the cache directory


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
    """The folder for downloaded files, which need not exist yet.

    Returns:
        `$KERAS_VIT_CACHE`, or else `$XDG_CACHE_HOME/keras_vit`, or else `~/.cache/keras_vit`.
    """
    if own := os.environ.get("KERAS_VIT_CACHE"):
        return Path(own).expanduser().absolute()
    if shared := os.environ.get("XDG_CACHE_HOME"):
        return Path(shared).expanduser().absolute() / "keras_vit"
    return Path.home() / ".cache" / "keras_vit"


def path_for(url):
    """The place of a URL in the cache: cache_dir()/host/path/of/the/file.

    A part of the URL that is no harmless file name (such as "..", or one that is too long) is
    replaced by one that is, with a hash after a "~" so that different URLs stay apart.

    Raises:
        ValueError: the URL names no file.
    """
    parts = urlsplit(url)
    *folders, name = parts.path.split("/")[1:] or [""]
    if not parts.hostname or not name:
        raise ValueError(f"The URL must name a host and a file. Received: {url!r}.")
    # What came over plain HTTP must not pass for what HTTPS has vouched for.
    host = parts.hostname if parts.scheme == "https" else f"http+{parts.hostname}"
    host = f"{host}+{parts.port}" if parts.port else host
    places = [_harmless(folder) for folder in (host, *folders)] + [_harmless(name, parts.query)]
    if len("/".join(places)) > _LONGEST:
        places = [places[0], _harmless(name, url)]
    return cache_dir().joinpath(*places)


def _harmless(raw, query=""):
    """A file name for one part of a URL: the part itself wherever that is one."""
    name = unquote(raw)
    reserved = _RESERVED.search(name)
    if _PLAIN.fullmatch(name) and not reserved and not query:
        return name
    tag = hashlib.sha256(f"{raw}?{query}".encode()).hexdigest()[:16]
    clean = re.sub(r"[^\w+=@,.-]", "_", name, flags=re.ASCII).strip(".") or "_"
    suffix = "" if reserved else PurePosixPath(clean).suffix[:16]
    return f"{clean.removesuffix(suffix)[:80]}~{tag}{suffix}"


def beside(path, ending):
    """The path of NAME + ending, such as NAME.part."""
    return path.with_name(path.name + ending)


def read_json(path):
    """The dict in a JSON file; empty where there is none that can be read."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def write_json(path, content):
    """Writes a JSON file that others see either as it was or complete."""
    fresh = beside(path, f".{os.getpid()}-{threading.get_ident()}.tmp")
    fresh.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    os.replace(fresh, path)


def hash_file(path):
    """sha256 of a file, in hexadecimal."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while piece := file.read(PIECE):
            digest.update(piece)
    return digest.hexdigest()


def write_record(path, file, url, digest, etag=None):
    """Records what `file`, which is or will be renamed to `path`, is."""
    stat = file.stat()
    record = {
        "url": url,
        "size": stat.st_size,
        "sha256": digest,
        "etag": etag,
        "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "mtime_ns": stat.st_mtime_ns,
    }
    write_json(beside(path, ".json"), record)


def check_cached(path, url, size, sha256):
    """Compares a file of the cache with its record and with what the caller expects.

    The content is read only if the file has changed since it was last checked. A file without a
    record, as one that was put there by hand, gets one.

    Raises:
        DownloadError: the file is another than it was, or than it should be.
    """
    record, stat = read_json(beside(path, ".json")), path.stat()
    if size is not None and stat.st_size != size:
        raise _altered(path, url, f"{size} bytes", f"{stat.st_size} bytes")
    digest = record.get("sha256")
    if (record.get("size"), record.get("mtime_ns")) != (stat.st_size, stat.st_mtime_ns):
        expected, digest = sha256 or digest, hash_file(path)
        if expected not in (None, digest):
            raise _altered(path, url, f"sha256 {expected}", f"{digest} ({stat.st_size} bytes)")
        with contextlib.suppress(OSError):  # a cache that others keep may be read-only
            write_record(path, path, url, digest, record.get("etag"))
    if sha256 not in (None, digest):
        raise _altered(path, url, f"sha256 {sha256}", digest)


def _altered(path, url, expected, received):
    return DownloadError(
        f"The file {path} in the cache is not what it should be, or has been altered since it "
        f"was downloaded from {url}.\n  Expected: {expected}\n  Received: {received}\n"
        f"Delete it and {path.name}.json beside it, and it will be downloaded anew.",
        url=url,
        path=path,
    )


@contextlib.contextmanager
def locked(path, quiet=False):
    """Keeps all other threads and processes from downloading `path` meanwhile.

    The system itself lets go of the lock when its process ends, however that comes about.
    """
    place, told = beside(path, ".lock"), quiet
    while (lock := _try_lock(place)) is None:
        if not told and sys.stderr is not None:
            print(f"Waiting for another download of {path.name} to end.", file=sys.stderr)
        told = True
        time.sleep(_LOCK_POLL)
    try:
        yield
    finally:
        if fcntl:
            place.unlink(missing_ok=True)  # before letting go: afterwards it may be another's
        os.close(lock)


def _try_lock(place):
    """A descriptor that holds the lock, or None while another one does."""
    descriptor = os.open(place, os.O_RDWR | os.O_CREAT, 0o666)
    with contextlib.ExitStack() as undo:
        undo.callback(os.close, descriptor)
        if _acquire(descriptor) and _is_at(descriptor, place):
            undo.pop_all()
            return descriptor
    return None


def _acquire(descriptor):
    try:
        if fcntl:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        else:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
    except OSError as error:
        if error.errno in (errno.EAGAIN, errno.EACCES, errno.EDEADLK):
            return False
        raise
    return True


def _is_at(descriptor, place):
    """Whether the file is still there: its last owner removes it, perhaps after we opened it."""
    try:
        return not fcntl or os.path.samestat(os.fstat(descriptor), os.stat(place))
    except FileNotFoundError:
        return False
