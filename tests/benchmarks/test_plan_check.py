"""The plan's memory and traffic beside what is measured, and how measurements are read."""

import json

import pytest

from tests.support import BACKEND, run_in_fresh_process

TINY = {"width": 64, "depth": 3, "num_heads": 4, "patch_size": 8, "image_size": 32}
of_torch = pytest.mark.skipif(BACKEND != "torch", reason="hooks of PyTorch")
of_jax = pytest.mark.skipif(BACKEND != "jax", reason="XLA's account")


@of_torch
@pytest.mark.parametrize(
    "precision, remat, options",
    [
        ("float32", False, {}),
        ("float32", True, {}),
        ("mixed_bfloat16", False, {}),
        ("mixed_bfloat16", True, {}),
        ("float32", False, {"pool": "mean"}),
        ("float32", False, {"pool": "map"}),
        ("float32", False, {"representation_size": 64}),
    ],
)
def test_autograd_keeps_what_is_computed(precision, remat, options):
    import plan_check

    kept, held = plan_check.check_torch({**TINY, **options}, 4, precision, remat)["kept"]
    assert kept == pytest.approx(held, rel=0.02)


@of_torch
def test_the_stem_of_a_hybrid():
    """Its maps alone: the kernels that are standardised anew add some."""
    import plan_check

    options = {"stem": (1, 1), "patch_size": 1, "width": 64, "depth": 1, "num_heads": 4}
    options["image_size"] = 64
    kept, held = plan_check.check_torch(options, 8, "float32", False)["kept"]
    assert kept == pytest.approx(held, rel=0.15)


CHECKS = """
import json, sys
sys.path.insert(0, "benchmarks")
import plan_check
for place in json.loads('''{places}'''):
    print(json.dumps(plan_check.check_jax({options}, 16, *place)))
"""


@of_jax
def test_xla_takes_what_is_computed():
    import plan_check

    code = CHECKS.format(places=json.dumps(plan_check.PLACES), options=TINY)
    flags = "--xla_force_host_platform_device_count=4"
    printed = run_in_fresh_process(code, XLA_FLAGS=flags).splitlines()
    for place, line in zip(plan_check.PLACES, printed, strict=True):
        found = json.loads(line)
        computed, measured = found["state"]
        assert computed == pytest.approx(measured, rel=0.01), place
        computed, measured = found["step"]
        assert computed == pytest.approx(measured, rel=0.25), place


MESH = "replica_groups=mesh['axis_0'=2,'axis_1'=2]"
HLO = f"""
  %ar = (f32[], /*index=1*/f32[128,2]{{1,0}}) all-reduce(%a, %b), {MESH} {{'axis_0','axis_1'}}, x=1
  ROOT %ag = bf16[4,8]{{1,0}} all-gather(%c), {MESH}, device_ids=([2,2]T(1,0)) {{'axis_1'}}, x=1
  %rs = f32[16]{{0}} reduce-scatter(%d), replica_groups=[2,4]<=[8], dimensions={{0}}
  %at = (f32[8]{{0}}, f32[8]{{0}}) all-to-all(%e, %f), replica_groups={{{{0,1}},{{2,3}}}}
  %cp = s32[8]{{0}} collective-permute(%g), source_target_pairs={{{{0,1}}}}
  %self = f32[8]{{0}} all-reduce(%g), replica_groups={{{{0}},{{1}}}}
  %fusion = f32[9]{{0}} fusion(%all-reduce.1), kind=kLoop
"""


@pytest.mark.any_backend
def test_collectives_of_a_program():
    import collectives

    found = collectives.of_hlo(HLO)
    assert [(each["kind"], each["bytes"], each["chips"]) for each in found] == [
        ("all-reduce", 4 + 1024, 4),
        ("all-gather", 64, 2),
        ("reduce-scatter", 64, 4),
        ("all-to-all", 64, 2),
        ("collective-permute", 32, 2),
        ("all-reduce", 32, 1),
    ]
    assert [each["sent"] for each in found] == [2 * 3 / 4 * 1028, 32, 3 * 64, 32, 32, 0]
    with pytest.raises(ValueError, match="unknown form"):
        collectives.group_size("replica_groups=what")


@pytest.mark.any_backend
@pytest.mark.parametrize(
    "arguments, says",
    [
        (["--devices", "3"], "divide --batch"),
        (["--devices", "1"], "must be 2 or more"),
        (["--devices", "8"], "divide --num-heads"),
    ],
)
def test_what_cannot_be_cut_is_refused(arguments, says, capsys):
    import distribution_cost

    with pytest.raises(SystemExit):
        distribution_cost.parse(arguments)
    assert says in capsys.readouterr().err


@pytest.mark.any_backend
def test_plan_check_takes_two_backends(monkeypatch, capsys):
    import plan_check

    monkeypatch.setenv("KERAS_BACKEND", "tensorflow")
    with pytest.raises(SystemExit):
        plan_check.parse([])
    assert "must be jax or torch. Received: 'tensorflow'" in capsys.readouterr().err


SMALL = ["--width", "32", "--depth", "2", "--image-size", "32", "--batch", "8"]


def run_small(*place):
    """What a mode on some devices, of which some share a model, comes to; and its table."""
    import distribution_cost

    args = distribution_cost.parse([*SMALL, "--steps", "1", "--turns", "1"])
    facts = distribution_cost.run(BACKEND, *place, args)
    names = ("mode", "devices", "model_devices")
    row = {**facts, **dict(zip(names, place)), "backend": BACKEND, "one_device_ms": 1.0}
    table = distribution_cost.markdown([{**row, "drift": (1.0, 2.0)}], args, facts["versions"])
    return facts, table


def test_data_parallel_sends_the_least_possible():
    """Beside it the losses and metrics: some numbers."""
    facts, table = run_small("data_parallel", 2, 1)
    assert facts["least"] <= facts["sent"] < facts["least"] + 200
    assert len(facts["ms"]) == 1 and set(facts["kinds"]) == {"all-reduce"}
    least = f"{facts['least'] / 1e6:.3f}"
    assert f"| {least} | 1.0" in table and "all-reduce 100%" in table


@of_jax
@pytest.mark.parametrize(
    "mode, devices, shared",
    [
        ("model_parallel", 4, 2),
        pytest.param("model_parallel", 4, 4, marks=pytest.mark.slow),
        ("fully_sharded", 4, 1),
    ],
)
def test_cut_models_send_little_more_than_they_must(mode, devices, shared):
    """XLA sends more than twice as much where outputs of layers are left to it."""
    facts, _ = run_small(mode, devices, shared)
    assert facts["sent"] < 1.15 * facts["least"]
