"""The comparison of speeds: what it counts, what it measures, and what it refuses."""

import subprocess
import sys
import types

import compare
import keras
import numpy as np
import pytest
import tables
from peers import Settings, get_architecture
from steps import make_step
from worker import Worker, WorkerError

import keras_vit
from tests.support import BACKEND, ROOT, every_backend

pytestmark = pytest.mark.any_backend
TINY = ["--model", "Ti16", "--depth", "1", "--image-size", "32", "--batch", "2"]


def run(script, *arguments):
    command = [sys.executable, str(ROOT / "benchmarks" / script), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return done.stdout


def tiny_settings(**changes):
    return Settings("keras_vit", BACKEND, get_architecture("Ti/16", 32, 1), batch=2, **changes)


def test_compare(tmp_path):
    """Two processes, and a peer whose interpreter does not have it."""
    missing = {"torch": "timm", "tensorflow": "vitkeras", "jax": "flax"}[BACKEND]
    file = tmp_path / "figures.csv"
    specs = ["--ours", "keras_vit", "keras_vit[gelu=tanh]", "--peers", missing]
    turns = ["--turns", "2", "--steps", "1", "--resident", "--save", str(file)]
    printed = run("compare.py", "--backend", BACKEND, *TINY, *specs, *turns)
    assert f"`{missing}`: not installed" in printed
    rows = tables.read(file)
    assert {row["implementation"] for row in rows} == {"keras_vit", "keras_vit[gelu=tanh]"}
    assert all(0 < float(row["ms_min"]) <= float(row["ms_median"]) for row in rows)
    assert all(int(row["peak_mib"]) > 50 and row["image_size"] == "32" for row in rows)


def test_gpu(tmp_path):
    """The batch is doubled, and utilisation is in parts of a product that was measured."""
    file = tmp_path / "figures.csv"
    work = ["--task", "infer", "--dtype", "bfloat16", "--ours", "keras_vit", "--peers", "none"]
    trial = ["--double", "4", "--turns", "1", "--steps", "1", "--product", "64"]
    printed = run("gpu.py", "--backend", BACKEND, *TINY, *work, *trial, "--save", str(file))
    assert "bfloat16: a plain product reaches" in printed and "% |" in printed
    rows = tables.read(file)
    assert [(row["batch"], row["dtype"]) for row in rows] == [("2", "bfloat16"), ("4", "bfloat16")]


@every_backend
@pytest.mark.parametrize("task, resident", [("infer", True), ("train", False), ("train", True)])
def test_a_step_is_one_of_the_model(task, resident):
    """A step of training moves the weights by AdamW's first step; inference leaves them."""
    s = tiny_settings(task=task, resident=resident)
    sizes = {"width": 192, "depth": 1, "num_heads": 3, "mlp_dim": 768, "patch_size": 16}
    model = keras_vit.VisionTransformer(**sizes, image_size=32, num_classes=1000)
    head = model.get_layer("head").kernel
    before = keras.ops.convert_to_numpy(head).copy()
    step, wait, parameters = make_step(model, s)
    step()
    wait()
    assert parameters == s.architecture.parameters == model.count_params()
    if resident and BACKEND == "jax":
        return  # its state is in the arrays that the step carries on
    moved = np.abs(keras.ops.convert_to_numpy(head) - before).max()
    assert moved == (pytest.approx(1e-4, rel=0.05) if task == "train" else 0.0)


@every_backend
def test_another_model_is_refused():
    model = keras_vit.VisionTransformer("Ti/32", image_size=32, depth=1)
    with pytest.raises(ValueError, match="this is another model"):
        make_step(model, tiny_settings())


@pytest.mark.parametrize("name, parameters", [("Ti/16", 5_717_416), ("H/14", 632_045_800)])
def test_parameters_and_operations_are_those_of_the_paper(name, parameters):
    a = get_architecture(name)
    assert a.parameters == parameters
    assert a.operations("train") == 3 * a.operations("infer")
    if name == "Ti/16":
        # fvcore counts 1.258 G multiply-adds: those of LayerNorm besides.
        assert a.operations("infer") == pytest.approx(2 * 1.258e9, rel=5e-3)


@pytest.mark.parametrize(
    "arguments, says",
    [
        (["--backend", "jax", "--peers", "timm"], "timm computes on"),
        (["--backend", "jax", "--peers", "unknown"], "Unknown implementation"),
        (["--backend", "torch", "--peers", "timm[gelu=tanh]"], "Unknown option"),
        (["--backend", "jax", "--image-size", "100"], "must divide"),
        (["--backend", "jax", "--pin", "100000"], "argument --pin: invalid choice"),
        (["--backend", "jax", "--model", "Z16"], "Unknown model"),
    ],
)
def test_compare_refuses_what_cannot_be(arguments, says, capsys):
    with pytest.raises(SystemExit):
        compare.parse(arguments)
    assert says in capsys.readouterr().err


def test_ratios_are_taken_turn_by_turn():
    """A machine that is half as fast in the second turn changes no ratio."""
    report = {"accelerator": None, "versions": {}, "first_call_s": 1, "import_s": 1, "build_s": 1}

    def worker(name, *turns):
        one = tiny_settings().replace(name=name)
        turns = [{"wall": ms, "cpu": ms, "memory": None} for ms in turns]
        return types.SimpleNamespace(settings=one, report=report, turns=turns)

    turns = [("keras_vit", [1, 2, 3], [4]), ("timm", [3], [6]), ("kerashub", [9], [9])]
    rows = compare.figures([worker(*each) for each in turns], "wall")
    assert [row["implementation"] for row in rows] == ["keras_vit", "timm", "kerashub"]
    assert (rows[0]["peer"], rows[0]["ratio"]) == ("timm", "1.500")
    assert (rows[0]["ms_min"], rows[0]["ms_median"]) == ("1.0", "2.5")


def test_the_table_of_the_docs_is_that_of_the_figures():
    assert tables.summaries(tables.read()) in (ROOT / "docs" / "performance.md").read_text()


def test_the_summary_has_the_newest_day_of_each_cpu_task_and_backend():
    usual = {"processor": "A, AVX2", "task": "infer", "backend": "jax", "dtype": "float32"}
    usual |= {"model": "S16", "image_size": "224", "batch": "4", "peer": "flax"}
    days = [("2026-11-01", "9.000"), ("2026-11-02", "1.000"), ("2026-11-02", "1.200")]
    rows = [usual | {"date": date, "ratio": ratio} for date, ratio in days]
    others = [
        usual | {"date": "2026-11-03", "ratio": "5"} | other
        for other in ({"peer": ""}, {"batch": "8"}, {"dtype": "bfloat16"}, {"processor": "A, AMX"})
    ]
    latest = tables.newest(rows + others, "float32")
    assert latest["A, AVX2", "infer", "jax"] == rows[2]
    assert set(latest) == {("A, AVX2", "infer", "jax"), ("A, AMX", "infer", "jax")}


@pytest.mark.parametrize(
    "flags, environment, expected",
    [
        ("fpu avx2 avx512f avx512_bf16 amx_tile", {}, "AMX"),
        ("fpu avx2 avx512f avx512_bf16", {}, "AVX-512 with bfloat16"),
        ("fpu avx2 avx512f", {}, "AVX-512"),
        ("fpu avx2", {}, "AVX2"),
        ("fpu avx2 avx512f", {"ONEDNN_MAX_CPU_ISA": "AVX2"}, "held to AVX2"),
    ],
)
def test_a_processor_is_named_by_its_instructions(flags, environment, expected):
    assert tables.instructions(flags.split(), environment) == expected


def test_a_second_run_of_a_day_replaces_the_first(tmp_path):
    row = {**dict.fromkeys(tables.COLUMNS, ""), "implementation": "keras_vit", "ms_median": "1"}
    for rows in ([row], [{**row, "ms_median": "2"}, {**row, "batch": "8"}]):
        tables.save(rows, tmp_path / "figures.csv")
    rows = tables.read(tmp_path / "figures.csv")
    assert [(each["batch"], each["ms_median"]) for each in rows] == [("", "2"), ("8", "1")]


def test_a_worker_that_fails_is_named_and_its_process_ended():
    with pytest.raises(WorkerError, match=r"The authors' Flax models|not installed"):
        Worker(tiny_settings(dtype="bfloat16").replace(name="flax", backend="jax")).turn(1)
    with pytest.raises(WorkerError, match="died"):
        Worker(tiny_settings(), timeout=0.05).turn(1)
