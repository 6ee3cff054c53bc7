"""What the benchmarks count: parameters, operations, medians, ratios, peaks."""

import pytest

import keras_vit

pytestmark = pytest.mark.any_backend


def test_sizes_are_those_of_the_library():
    from architecture import SIZES, get_architecture

    for name in SIZES:
        a = get_architecture(name, image_size=a_size(name))
        variant = keras_vit.get_variant(f"{name[:-2]}/{name[-2:]}")
        for field in ("width", "depth", "num_heads", "mlp_dim"):
            assert getattr(a, field) == getattr(variant, field)
        assert (a.patch_size,) * 2 == variant.patch_size


def a_size(name):
    return 8 * int(name[-2:])


def test_parameters_are_those_of_the_model():
    from architecture import get_architecture

    a = get_architecture("Ti/16", 48, depth=2)
    model = keras_vit.VisionTransformer("Ti/16", image_size=48, depth=2)
    assert a.parameters == model.count_params()


def test_operations_are_the_published_ones():
    from architecture import get_architecture

    assert get_architecture("S16").multiply_adds / 1e9 == pytest.approx(4.6, abs=0.02)
    assert get_architecture("B16").multiply_adds / 1e9 == pytest.approx(17.56, abs=0.05)
    b16 = get_architecture("B16")
    assert b16.operations("train") == 3 * b16.operations("infer") == 6 * b16.multiply_adds


@pytest.mark.parametrize("name, size", [("S17", 224), ("S16", 100), ("S16", 0)])
def test_an_impossible_model_is_refused(name, size):
    from architecture import get_architecture

    with pytest.raises(ValueError, match="Received"):
        get_architecture(name, size)


def test_specs():
    from compare import split_specs
    from settings import parse_spec

    assert split_specs("timm, kerashub[jit=true,dtype=bfloat16],hf") == [
        "timm",
        "kerashub[jit=true,dtype=bfloat16]",
        "hf",
    ]
    assert parse_spec("kerashub[jit=true]") == ("kerashub", {"jit": "true"})
    for wrong in ("timm[jit=maybe]", "timm[fast]", "timm[", "timm[speed=true]"):
        with pytest.raises(ValueError, match="xpected"):
            parse_spec(wrong)


def test_settings_survive_a_command_line():
    from settings import Settings

    from tests.benchmarks.tiny import tiny_settings

    settings = tiny_settings(jit="true", gelu="tanh")
    assert Settings.from_json(settings.to_json()) == settings
    assert settings.label == "keras_vit[jit=true,gelu=tanh]"


def test_ratios_are_taken_turn_by_turn():
    from tables import ratios, summary

    # The machine is three times as slow in the second turn, for both.
    found = ratios([[1.0, 1.0], [3.0, 3.0], [1.0, 1.0]], [[2.0, 2.0], [6.0, 6.0], [2.0, 2.2]])
    assert found["low"] == found["median"] == found["min"] == 2.0
    assert summary([4.0]) == dict.fromkeys(("min", "low", "median", "high", "max"), 4.0)


def test_the_peak_of_a_device_is_found_by_its_name():
    from peaks import peak_of

    assert peak_of("NVIDIA H200") == peak_of("NVIDIA H100 80GB HBM3") == 989.4e12
    assert peak_of("NVIDIA H100 PCIe") == 756e12
    assert peak_of("NVIDIA A100-SXM4-80GB") == 312e12
    assert peak_of("NVIDIA L4") == 121e12
    assert peak_of("TPU v5 lite") == 197e12
    for unknown in ("NVIDIA H200 MIG 1g.18gb", "Some GPU", None):
        assert peak_of(unknown) is None
