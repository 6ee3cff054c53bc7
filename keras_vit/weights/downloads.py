"""What downloads have in common: the check of a file, the error, and why one failed."""

from urllib.parse import urlsplit

from keras_vit.weights.packaged import PACKAGE


class DownloadError(OSError):
    """A file could not be had, or is not the one it should be."""


def check_file(path, name, size, sha256):
    """Raises a DownloadError where a file has another size or hash than it should have."""
    import pooch

    if path.is_dir():
        raise ValueError(
            f"size and sha256 are those of one file, and {name!r} names a folder. Received: "
            f"size={size}, sha256={sha256}; add the name of the file."
        )
    expected = (size, sha256 and sha256.lower())
    received = (
        None if size is None else path.stat().st_size,
        sha256 and pooch.file_hash(str(path)),
    )
    if expected != received:
        advice = "Delete it, and it will be downloaded anew."
        advice = "Install keras3-vit anew." if name.startswith(PACKAGE) else advice
        raise DownloadError(
            f"The file {path} is not what it should be, or has been altered since it came from "
            f"{name}. {advice}\n"
            f"  Expected: {expected}\n  Received: {received}"
        )


def reason_of(error, address, retries=0):
    """Why a download failed, without the words of the libraries below."""
    chain = [error]
    while (cause := chain[-1].__cause__ or chain[-1].__context__) and cause not in chain:
        chain.append(cause)
    names = {each.__name__ for error in chain for each in type(error).__mro__}
    host, tried = urlsplit(address).hostname, f", tried {retries + 1} times" * bool(retries)
    if names & {"MaxRetryError", "ConnectError", "NameResolutionError", "NewConnectionError"}:
        if names & {"SSLError"}:
            return f"{host} has no certificate that is trusted here{tried}"
        return f"{host} cannot be reached{tried}: check the network, and the proxy if there is one"
    if names & {"Timeout", "TimeoutException", "ReadTimeoutError"}:
        return f"{host} did not answer in time{tried}"
    return str(error) or type(error).__name__
