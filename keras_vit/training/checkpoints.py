"""The checkpoints of a run: the last few, each whole or not there."""

import collections
import os
import pathlib
import shutil

from keras_vit.training import checkpoint_file
from keras_vit.training.checkpoint_file import DamagedCheckpoint


class CheckpointError(OSError):
    """A checkpoint could not be written, or none that is left can be read."""


class Checkpoints:
    """A folder of files `step-<number>.npz`, of which the last ones are kept.

    A file is written beside its place, read back, and only then moved there; the one before stays
    until that has happened. So the process may be killed, or the disk fill up, at any moment.

    Args:
        folder: where the files are; it is created.
        keep: how many of the newest stay.
        say: called with each message.
        writes: whether this process does; of several that train one model, one writes.

    Raises:
        ValueError: `keep` is less than 1.
    """

    def __init__(self, folder, keep=2, say=print, writes=True):
        if isinstance(keep, bool) or not isinstance(keep, int) or keep < 1:
            raise ValueError(f"keep must be a whole number of at least 1. Received: {keep!r}")
        self.folder, self.keep, self.say = pathlib.Path(folder), keep, say
        self.writes, self._damaged = writes, set()
        if not writes:
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        for partial in self.folder.glob("step-*.partial"):
            partial.unlink()  # of a run that was killed while it wrote

    def paths(self):
        """The files, oldest first."""
        return sorted(self.folder.glob("step-*.npz"))

    def save(self, step, arrays, meta):
        """Writes the checkpoint of a step, and removes those that are no longer kept.

        Args:
            step: updates done so far.
            arrays: pairs of a key and an array.
            meta: what JSON can hold.

        Raises:
            CheckpointError: the disk is full or fails. The earlier checkpoints are untouched.
        """
        path = self.folder / f"step-{step:010d}.npz"
        if not self.writes:
            collections.deque(arrays, maxlen=0)  # reading a value may need all processes
            return path
        partial = path.with_name(path.name + ".partial")
        try:
            checkpoint_file.write(partial, arrays, meta)
            checkpoint_file.verify(partial)
            os.replace(partial, path)
            _flush_folder(self.folder)
        except (OSError, DamagedCheckpoint) as error:
            raise self._cannot_write(path, partial, error) from error
        self._damaged.discard(path)
        for old in [*self._damaged, *self._good()[: -self.keep]]:
            old.unlink(missing_ok=True)
        self._damaged.clear()
        return path

    def latest(self):
        """The newest checkpoint that is whole: (path, meta, arrays), or None if there is none yet.

        Raises:
            CheckpointError: there are files, and all are damaged.
        """
        for path in reversed(self.paths()):
            try:
                return path, *checkpoint_file.read(path)
            except DamagedCheckpoint as error:
                self._damaged.add(path)
                self.say(f"The checkpoint {path} is damaged: {error}. Looking at the one before.")
        if self._damaged:
            raise CheckpointError(
                f"Every checkpoint in {self.folder} is damaged: "
                f"{', '.join(sorted(path.name for path in self._damaged))}. Delete the folder to "
                "begin the run anew."
            )
        return None

    def _good(self):
        return [path for path in self.paths() if path not in self._damaged]

    def _cannot_write(self, path, partial, error):
        written = partial.stat().st_size if partial.exists() else 0
        partial.unlink(missing_ok=True)
        sizes = [old.stat().st_size for old in self._good()]
        needed = f"It needs {max(sizes)} bytes" if sizes else f"It had {written} bytes so far"
        kept = f"{self._good()[-1]} is untouched" if sizes else "there is none before it"
        return CheckpointError(
            getattr(error, "errno", None),
            f"The checkpoint {path} could not be written: {error}. {needed}; "
            f"{shutil.disk_usage(self.folder).free} bytes are free; {kept}. Make room and run the "
            "same command again: it continues from there.",
        )


def _flush_folder(folder):
    """Waits until the disk has the folder's new entry, where the system lets folders be opened."""
    if os.name != "posix":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
