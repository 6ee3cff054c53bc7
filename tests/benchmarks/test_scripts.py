"""The scripts from end to end, at tiny sizes."""

import json
import subprocess
import sys

import pytest

from tests.benchmarks.tiny import run_here
from tests.support import BACKEND, ROOT

TINY = ["--model", "Ti16", "--depth", "1", "--image-size", "32"]


def run(script, *arguments):
    command = [sys.executable, str(ROOT / "benchmarks" / script), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return done


def test_compare(tmp_path):
    """Two processes, and a peer whose interpreter does not have it."""
    peer = {"torch": "timm", "tensorflow": "kimm", "jax": "flax"}[BACKEND]
    files = [str(tmp_path / name) for name in ("all.json", "all.md")]
    outputs = ["--json", files[0], "--markdown", files[1]]
    turns = ["--turns", "2", "--steps", "2", "--batch", "2", "--warmup", "0"]
    done = run("compare.py", "--backend", BACKEND, *TINY, *turns, "--peers", peer, *outputs)
    (report,) = json.loads((tmp_path / "all.json").read_text())["runs"]
    rows = {row["implementation"]: row for row in report["rows"]}
    assert rows["keras_vit"]["parameters"] == report["expected_parameters"]
    assert [len(turn) for turn in rows["keras_vit"]["turns"]] == [2, 2]
    assert 0 < rows["keras_vit"]["share_of_peak"] < 10
    assert peer in rows or "not installed" in report["failed"][peer]
    assert (tmp_path / "all.md").read_text().strip() == done.stdout.strip()


@pytest.mark.any_backend
@pytest.mark.parametrize(
    "arguments, says",
    [
        (["--backend", "jax", "--peers", "timm"], "timm computes on"),
        (["--backend", "jax", "--peers", "unknown"], "Unknown implementation"),
        (["--backend", "jax", "--image-size", "100"], "must divide"),
        (["--backend", "jax", "--pin", "100000"], "--pin must be"),
    ],
)
def test_compare_refuses_what_cannot_be(arguments, says, capsys):
    import compare

    with pytest.raises(SystemExit):
        compare.parse(arguments)
    assert says in capsys.readouterr().err


@pytest.mark.any_backend
def test_kerashub_on_tensorflow_runs_with_and_without_xla():
    import compare

    args = compare.parse(["--backend", "tensorflow", "--gelu", "both"])
    labels = [settings.label for settings in args.all_settings[0]]
    assert {"keras_vit", "keras_vit[gelu=tanh]"} <= set(labels)
    assert {"kerashub[jit=true]", "kerashub[jit=false]", "vitkeras", "kimm"} <= set(labels)


def test_gpu(monkeypatch, tmp_path, capsys):
    """On whatever there is: the sweep, a variation, a point that does not fit."""
    import gpu
    from pool import WorkerError

    def without_much_memory(settings, steps, turns, **options):
        if settings.batch == 4:
            raise WorkerError("RESOURCE_EXHAUSTED", memory=True)
        return run_here(settings, steps, turns)

    monkeypatch.setattr(gpu, "run_once", without_much_memory)
    arguments = ["--models", *TINY[1:], "--backends", BACKEND, "--batches", "1", "4", "8"]
    arguments += ["--vary", "remat", "--steps", "2", "--turns", "1", "--warmup", "0"]
    arguments += ["--peers", "none", "--peak-tflops", "1", "--json", str(tmp_path / "gpu.json")]
    monkeypatch.setattr(sys, "argv", ["gpu.py", *arguments])
    gpu.main()
    report = json.loads((tmp_path / "gpu.json").read_text())
    points = [(p["dtype"], p["remat"], p["batch"], "error" in p) for p in report["points"]]
    assert points == [
        ("bfloat16", "false", 1, False),
        ("bfloat16", "false", 4, True),
        ("bfloat16", "true", 1, False),
        ("bfloat16", "true", 4, True),
    ]
    first = report["points"][0]
    assert 0 < first["utilisation"] == pytest.approx(first["tflops"])
    assert "does not fit in memory" in capsys.readouterr().out
    assert set(report["products"]) == {f"{BACKEND} Ti16 {d}" for d in ("bfloat16", "float32")}


def test_growth(monkeypatch, capsys):
    import growth
    from pool import WorkerError

    def without_much_memory(settings, steps, **options):
        if settings.architecture.image_size > 48:
            raise WorkerError("needs more than 1.0 GiB of memory", memory=True)
        return run_here(settings, steps)

    monkeypatch.setattr(growth, "run_once", without_much_memory)
    arguments = ["--backend", BACKEND, *TINY, "--curves", "image", "--remat", "true"]
    arguments += ["--image-points", "32", "64", "96", "--steps", "1", "--warmup", "0"]
    monkeypatch.setattr(sys, "argv", ["growth.py", *arguments])
    growth.main()
    lines = capsys.readouterr().out.splitlines()
    assert "| 64 | 17 | does not fit | does not fit |" in lines
    assert not [line for line in lines if line.startswith("| 96")]


@pytest.mark.slow
def test_startup():
    arguments = ["--backend", BACKEND, *TINY, "--peers", "none", "--repeats", "1"]
    assert "| `keras_vit` |" in run("startup.py", *arguments).stdout


@pytest.mark.slow
def test_input_cost():
    arguments = [*TINY, "--batch", "2", "--images", "16", "--turns", "1", "--steps", "2"]
    printed = run("input_cost.py", *arguments, "--jpeg", "40x30").stdout
    assert "JPEGs of 40 x 30" in printed and "| infer |" in printed
