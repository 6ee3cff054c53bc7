"""A step of each kind, timed on this backend; processes that fail say why."""

import stat

import pytest

from tests.benchmarks.tiny import tiny_settings
from tests.support import BACKEND


@pytest.mark.parametrize("task, optimizer", [("infer", "keras"), ("train", "keras")])
@pytest.mark.parametrize("resident", [False, True])
def test_steps_are_timed(task, optimizer, resident):
    from worker import prepare

    settings = tiny_settings(task=task, optimizer=optimizer, resident=resident)
    turn, facts = prepare(settings)
    answer = turn(2)
    assert facts["parameters"] == settings.architecture.parameters
    assert len(answer["wall"]) == len(answer["cpu"]) == 2 and min(answer["wall"]) > 0
    assert facts["versions"]["keras"]


def test_our_optimizer_and_rematerialisation():
    from worker import prepare

    turn, _ = prepare(tiny_settings(task="train", optimizer="ours", remat="true"))
    assert turn(1)["wall"]


def test_products_are_timed():
    from products import make_products

    rates = make_products(tiny_settings())()
    assert len(rates["wall"]) % 4 == 0 and min(rates["wall"].values()) > 0


@pytest.mark.any_backend
def test_another_model_is_refused():
    from jobs import Job, check

    settings = tiny_settings()
    parameters, classes = settings.architecture.parameters, settings.architecture.num_classes
    with pytest.raises(ValueError, match="another model"):
        check(Job(None, None, 2 * parameters, lambda: (2, classes)), settings)
    with pytest.raises(ValueError, match="logits"):
        check(Job(None, None, parameters, lambda: (2, 5, classes)), settings)


@pytest.mark.any_backend
def test_a_missing_peer_is_named():
    from peers import why_missing

    error = ModuleNotFoundError("No module named 'keras_hub'", name="keras_hub")
    assert why_missing("kerashub", error).endswith("pip install keras-hub")
    error = ModuleNotFoundError("No module named 'torch'", name="torch")
    assert why_missing("timm", error).endswith("pip install torch")


def interpreter(tmp_path, script):
    path = tmp_path / "python"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


@pytest.mark.any_backend
@pytest.mark.parametrize(
    "script, options, says, memory",
    [
        ("echo first >&2; echo last words >&2; exit 3", {}, "died (3): last words", False),
        ("kill -9 $$", {}, "died (SIGKILL)", True),
        ("echo RESOURCE_EXHAUSTED: OOM >&2; exit 1", {}, "RESOURCE_EXHAUSTED", True),
        ("sleep 60", {"timeout": 0.2}, "no answer in 0.2 s", False),
        ("sleep 60", {"memory_limit": 1}, "GiB of memory", True),
        ('echo \'{"error": "E: broken", "whole": ""}\'', {}, "E: broken", False),
    ],
)
def test_a_process_that_fails_is_named(tmp_path, script, options, says, memory):
    from pool import Pool, Worker, WorkerError

    python = interpreter(tmp_path, script)
    worker = Worker(tiny_settings(), python, **options)
    with pytest.raises(WorkerError) as error:
        worker.ready()
    worker.end()
    assert says in str(error.value) and error.value.memory == memory
    said = []
    with Pool(said.append) as pool:
        assert pool.start(tiny_settings(), python=python, **options) is None
        assert says in pool.failed["keras_vit"] and not pool.workers and len(said) == 1


@pytest.mark.any_backend
def test_all_processes_end_with_the_pool(tmp_path):
    from pool import Pool

    python = interpreter(tmp_path, "echo '{\"ready\": true}'; sleep 60")
    with pytest.raises(KeyboardInterrupt), Pool(lambda text: None) as pool:
        worker = pool.start(tiny_settings(), python=python)
        raise KeyboardInterrupt
    assert worker.process.poll() is not None


@pytest.mark.skipif(BACKEND == "tensorflow", reason="TensorFlow has no fused attention")
@pytest.mark.parametrize("flash, asked", [("true", None), ("false", False), ("auto", None)])
def test_flash_attention_is_asked_for(flash, asked, monkeypatch):
    from keras import ops
    from keras_jobs import prepare_keras

    from keras_vit.layers import kernels

    monkeypatch.setattr(kernels, "OWN", None)
    monkeypatch.setattr(ops, "dot_product_attention", lambda *_, **options: options)
    prepare_keras(tiny_settings(flash=flash))
    x = ops.ones((1, 2, 1, 8))
    assert kernels.attention(x, x, x)["flash_attention"] is asked
