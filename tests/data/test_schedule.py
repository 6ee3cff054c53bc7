"""What is counted while several threads read."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from keras_vit.data.schedule import Unreadable

any_backend = pytest.mark.any_backend


@any_backend
@pytest.mark.filterwarnings("ignore:row")
def test_threads_that_read_on_report_the_same_excess():
    """The count is that of the first example too many, whatever other threads find meanwhile."""
    total, threads = 400, 8
    unreadable = Unreadable(lambda row: f"row {row}", total)

    def add(row):
        with pytest.raises(ValueError) as caught:
            unreadable.add(row, 0, "damaged")
        return str(caught.value)

    for row in range(100):  # a quarter of them may be
        unreadable.add(row, 0, "damaged")
    with ThreadPoolExecutor(threads) as pool:
        messages = set(pool.map(add, range(100, total)))
    assert len(messages) == 1 and messages.pop().startswith("101 of 400 examples cannot be read")
