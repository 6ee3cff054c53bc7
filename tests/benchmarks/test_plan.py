"""The plan for many chips: what XLA's program holds and sends, and what is refused."""

import json

import plan
import pytest

from tests.support import BACKEND, run_in_fresh_process

of_jax = pytest.mark.skipif(BACKEND != "jax", reason="XLA's account of a program")

ROWS = """
import tests.bare
import json, os, sys
sys.path.insert(0, "benchmarks")
import plan
args = plan.parse({arguments})
print(json.dumps(plan.plan(args, lambda text: None)))
"""
SMALL = ["--variant", "B/16", "--depth", "1", "--image-size", "32", "--classes", "10"]
SMALL += ["--devices", "4", "--batch", "16"]


def rows_of(*arguments):
    code = ROWS.format(arguments=json.dumps([*SMALL, *arguments]))
    flags = "--xla_force_host_platform_device_count=4 --xla_backend_optimization_level=0"
    return json.loads(run_in_fresh_process(code, XLA_FLAGS=flags).splitlines()[-1])


@of_jax
def test_layouts_send_little_more_than_they_must():
    """XLA sends more than twice as much where outputs of layers are left to it."""
    rows = rows_of("--model-devices", "4", "--remat", "no", "--ema")
    assert [(row["mode"], row["model_devices"]) for row in rows] == [
        *(("data_parallel", 1), ("model_parallel", 4), ("fully_sharded", 1)),
    ]
    for row in rows:
        assert 0 < row["sent"] < plan.MOST * row["least"], row
    assert all(row["least"] <= row["sent"] for row in rows[:2])
    # Variables, two moments and the average: four times the parameters, whole or cut in four.
    whole, quarter, cut = (row["state"] for row in rows)
    assert cut < 0.3 * whole and quarter < 0.3 * whole


@of_jax
@pytest.mark.slow
def test_what_is_planned_is_what_an_update_takes():
    """The same update with values, compiled as usual, has the same account."""
    code = """
import json, sys
sys.path.insert(0, "benchmarks")
import keras, jax, numpy as np, plan
from keras_vit import distribution
args = plan.parse({arguments})
with distribution.setup("data_parallel", devices=4) as devices:
    with devices.scope():
        model = plan.make_model(args, False, values=True)
    devices.check_model(model)
    groups = (model.trainable_variables, model.non_trainable_variables)
    groups += (model.optimizer.variables, model.metrics_variables)
    state = tuple([v.value for v in group] for group in groups)
    out = (None, tuple([v.sharding for v in group] for group in state))
    mesh = state[0][0].sharding.mesh
    cut = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(mesh.axis_names[0]))
    data = [jax.device_put(np.ones(s, "float32"), cut) for s in ((16, 32, 32, 3), (16, 10))]
    step = jax.jit(model.train_step, donate_argnums=0, out_shardings=out)
    memory = step.lower(state, (*data, None)).compile().memory_analysis()
    inputs = sum(x.nbytes for x in data) // 4
    model.fit(np.ones((16, 32, 32, 3)), np.full((16, 10), 0.1), batch_size=16, verbose=0)
print(json.dumps([memory.argument_size_in_bytes - inputs, memory.temp_size_in_bytes + inputs]))
"""
    flags = "--xla_force_host_platform_device_count=4"
    code = code.format(arguments=json.dumps(SMALL))
    state, step = json.loads(run_in_fresh_process(code, XLA_FLAGS=flags).splitlines()[-1])
    (row,) = rows_of("--modes", "data_parallel", "--remat", "no")
    assert row["state"] == state
    assert row["step"] == pytest.approx(step, rel=0.02)


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
    operations = plan.collectives(HLO)
    assert [(each["operation"], each["bytes"], each["chips"]) for each in operations] == [
        ("all-reduce", 4 + 1024, 4),
        ("all-gather", 64, 2),
        ("reduce-scatter", 64, 4),
        ("all-to-all", 64, 2),
        ("collective-permute", 32, 2),
        ("all-reduce", 32, 1),
    ]
    assert [each["sent"] for each in operations] == [2 * 3 / 4 * 1028, 32, 3 * 64, 32, 32, 0]
    with pytest.raises(ValueError, match="unknown form"):
        plan.group_size("replica_groups=what")


@pytest.mark.any_backend
@pytest.mark.parametrize(
    "arguments, says",
    [
        (["--batch", "100"], "divide --batch"),
        (["--devices", "1"], "must be 2 or more"),
        (["--model-devices", "3"], "divide --devices"),
        (["--hbm", "0"], "positive number of GB"),
        (["--modes", "pipeline"], "invalid choice"),
    ],
)
def test_bad_input_is_named(arguments, says, capsys):
    with pytest.raises(SystemExit):
        plan.parse(arguments)
    assert says in capsys.readouterr().err
