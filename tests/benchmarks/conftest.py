"""The benchmarks are scripts that import each other by name from their own folder."""

import sys

from tests.support import ROOT

sys.path.insert(0, str(ROOT / "benchmarks"))
