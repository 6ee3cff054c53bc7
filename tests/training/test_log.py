"""What a run draws of itself."""

import pytest

from keras_vit.training import log

pytestmark = pytest.mark.any_backend


@pytest.mark.parametrize("epochs", [1, 2, 3, 40])
def test_epochs_are_whole_numbers(tmp_path, monkeypatch, epochs):
    drawn = []
    monkeypatch.setattr(log, "save_figure", lambda figure, path, **_: drawn.append(figure))
    log.plot_history([{"epoch": i, "loss": 1 / (i + 1)} for i in range(epochs)], tmp_path)
    drawn[0].draw_without_rendering()
    ticks = drawn[0].axes[0].get_xticks()
    assert len(ticks) > 0 and (ticks == ticks.round()).all()
