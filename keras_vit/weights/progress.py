"""One line on a terminal that tells how far a download is."""

import shutil
import sys
import time

_MB = 1e6
_INTERVAL = 0.1  # seconds between two redrawings


class ProgressBar:
    """Name, percent, MB, MB/s and remaining time, as far as they are known.

    Args:
        name: what is being downloaded.
        shown: True or False; None shows it where stderr is a terminal.
    """

    def __init__(self, name, shown=None):
        self.name, self.quiet = name, shown is False
        if shown is None:
            shown = sys.stderr is not None and sys.stderr.isatty()
        self.shown = shown and sys.stderr is not None

    def start(self, done, total):
        """Begins at `done` bytes of `total`, which is None where nobody knows."""
        self.done = self.first = done
        self.total, self.began, self.drawn = total, time.monotonic(), 0.0
        self._draw()

    def advance(self, count):
        """Counts further bytes."""
        self.done += count
        if time.monotonic() - self.drawn > _INTERVAL:
            self._draw()

    def stop(self):
        """Leaves the last state on a line of its own."""
        self._draw("\n")

    def say(self, text):
        """Puts a message below the bar."""
        if self.shown:
            print(text, file=sys.stderr, flush=True)

    def line(self):
        """The present state in words."""
        rate = (self.done - self.first) / max(time.monotonic() - self.began, 1e-6)
        speed = f"{rate / _MB:.1f} MB/s"
        if not self.total:
            return f"{self.name}  {self.done / _MB:.1f} MB  {speed}"
        share = int(100 * self.done / self.total)  # rounded down: 100% is the whole file
        left = _clock((self.total - self.done) / rate) if rate else "--:--"
        size = f"{self.done / _MB:.1f}/{self.total / _MB:.1f} MB"
        return f"{self.name}  {share:3d}%  {size}  {speed}  {left} left"

    def _draw(self, end=""):
        self.drawn = time.monotonic()
        if self.shown:
            width = shutil.get_terminal_size().columns - 1
            line = self.line()
            # The numbers stand at the end, so a narrow terminal loses part of the name.
            print("\r" + line[-width:].ljust(width), end=end, file=sys.stderr, flush=True)


def _clock(seconds):
    minutes, seconds = divmod(int(min(max(seconds, 0), 359999)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{seconds:02d}" if hours else f"{minutes:02d}:{seconds:02d}"
