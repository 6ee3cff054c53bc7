"""The grammar of the AugReg file names, the index, and the authors' rule for the best model."""

import csv
import dataclasses
import itertools

import pytest

from keras_vit.weights import augreg
from keras_vit.weights.augreg import AugregName, choose, parse_name, read_index

pytestmark = pytest.mark.any_backend

# The README's recommended files: pre-trained on ImageNet-21k and fine-tuned on ImageNet.
RECOMMENDED = {
    "L/16": ("L_16-i21k-300ep-lr_0.001-aug_strong1-wd_0.1-do_0.0-sd_0.0", "0.01", 85.59),
    "B/16": ("B_16-i21k-300ep-lr_0.001-aug_medium1-wd_0.1-do_0.0-sd_0.0", "0.03", 85.49),
    "S/16": ("S_16-i21k-300ep-lr_0.001-aug_light1-wd_0.03-do_0.0-sd_0.0", "0.03", 83.73),
    "R50+L/32": ("R50_L_32-i21k-300ep-lr_0.001-aug_medium1-wd_0.1-do_0.1-sd_0.1", "0.01", 85.99),
    "R26+S/32": ("R26_S_32-i21k-300ep-lr_0.001-aug_light1-wd_0.1-do_0.0-sd_0.0", "0.01", 83.85),
    "Ti/16": ("Ti_16-i21k-300ep-lr_0.001-aug_none-wd_0.03-do_0.0-sd_0.0", "0.03", 78.22),
    "B/32": ("B_32-i21k-300ep-lr_0.001-aug_light1-wd_0.1-do_0.0-sd_0.0", "0.01", 83.59),
    "S/32": ("S_32-i21k-300ep-lr_0.001-aug_none-wd_0.1-do_0.0-sd_0.0", "0.01", 79.58),
    "R+Ti/16": ("R_Ti_16-i21k-300ep-lr_0.001-aug_none-wd_0.03-do_0.0-sd_0.0", "0.03", 75.40),
}
B_16 = RECOMMENDED["B/16"][0]
B_16_TUNED = f"{B_16}--imagenet2012-steps_20k-lr_0.03-res_384"
# In the order of the published file.
COLUMNS = (
    "name ds epochs lr aug wd do sd best_val final_val final_test adapt_ds adapt_lr adapt_steps "
    "adapt_resolution adapt_final_val adapt_final_test params infer_samples_per_sec filename "
    "adapt_filename"
).split()


def row(filename, final_val, adapt="", adapt_final_val="", **cells):
    """A row as the index has it, with the columns that the name says taken from the name."""
    name = parse_name(filename + adapt)
    said = {field: value for field, value in dataclasses.asdict(name).items() if value is not None}
    return {
        **dict.fromkeys(COLUMNS, ""),
        **said,
        "best_val": final_val,
        "final_val": final_val,
        "adapt_final_val": adapt_final_val,
        "filename": filename,
        "adapt_filename": filename + adapt,
        **cells,
    }


@pytest.fixture
def write(tmp_path):
    def write(rows, columns=COLUMNS):
        path = tmp_path / "index.csv"
        with open(path, "w", newline="") as file:
            writer = csv.DictWriter(file, columns, extrasaction="ignore")
            writer.writeheader()
            writer.writerows(rows)
        return path

    return write


@pytest.fixture
def rows(write):
    """The recommended files, and worse or better ones that only the rule keeps apart."""
    table = []
    for stem, lr, accuracy in RECOMMENDED.values():
        tune = "--imagenet2012-steps_20k-lr_{}-res_384"
        table.append(row(stem, 0.5, tune.format(lr), accuracy / 100))
        table.append(row(stem, 0.5, tune.format("0.001"), 0.7))
        table.append(row(stem, 0.5, "--cifar100-steps_2k-lr_0.01-res_224", 0.93))
    worse = B_16.replace("medium1", "none")
    # Worse at pre-training, better at fine-tuning: not its fine-tune is asked for.
    table.append(row(worse, 0.4, "--imagenet2012-steps_10k-lr_0.01-res_224", 0.9))
    table.append(row(worse, 0.4, "--resisc45-steps_0k-lr_0.003-res_384", 0.97))
    # Better than all, but on other data than the rule's.
    table.append(row(B_16.replace("i21k", "i1k"), 0.8, "--kitti-steps_0k-lr_0.01-res_224", 0.8))
    table.append(row(B_16.replace("i21k", "i21k_30"), "", "--kitti-steps_0k-lr_0.01-res_224"))
    return read_index(write(table))


def test_every_part_of_a_name():
    assert parse_name(f"{B_16_TUNED}.npz") == AugregName(
        name="B/16",
        ds="i21k",
        epochs=300,
        lr=0.001,
        aug="medium1",
        wd=0.1,
        do=0.0,
        sd=0.0,
        adapt_ds="imagenet2012",
        adapt_steps=20000,
        adapt_lr=0.03,
        adapt_resolution=384,
    )
    assert parse_name(B_16).adapt_ds is None


@pytest.mark.parametrize("prefix", ["", "augreg/", "gs://vit_models/augreg/", "/elsewhere/"])
@pytest.mark.parametrize("suffix", ["", ".npz"])
def test_folder_and_suffix_do_not_matter(prefix, suffix):
    name = parse_name(prefix + B_16_TUNED + suffix)
    assert str(name) == B_16_TUNED
    assert name.url == f"gs://vit_models/augreg/{B_16_TUNED}.npz"


def test_the_recommended_names():
    for name, (stem, lr, _) in RECOMMENDED.items():
        assert parse_name(stem).name == name
        tuned = f"{stem}--imagenet2012-steps_20k-lr_{lr}-res_384"
        assert str(parse_name(tuned)) == tuned


def test_round_trip_over_the_grid_of_the_grammar():
    pretraining = itertools.product(
        augreg.NAMES,
        augreg.DATA_SETS,
        (30, 300),
        ("0.001", "0.003", "1e-05"),
        augreg.AUGMENTATIONS,
        ("0.03", "0.1"),
        ("0.0", "0.1"),
    )
    tunes = itertools.product(
        ("cifar100", "imagenet2012", "kitti", "oxford_iiit_pet", "resisc45"),
        ("0k", "2k", "10k", "20k"),
        ("0.001", "0.003", "0.01", "0.03"),
        augreg.RESOLUTIONS,
    )
    tunes = itertools.cycle(f"--{d}-steps_{s}-lr_{lr}-res_{px}" for d, s, lr, px in tunes)
    seen = set()
    for (name, ds, epochs, lr, aug, wd, do), tune in zip(pretraining, tunes):
        token = name.replace("/", "_").replace("+", "_")
        stem = f"{token}-{ds}-{epochs}ep-lr_{lr}-aug_{aug}-wd_{wd}-do_{do}-sd_{do}"
        for text in (stem, stem + tune):
            parsed = parse_name(text)
            assert str(parsed) == text
            assert (parsed.name, parsed.ds, parsed.epochs) == (name, ds, epochs)
            seen.add(parsed)
    assert len(seen) == 2 * 10 * 3 * 2 * 3 * 7 * 2 * 2


@pytest.mark.parametrize("text, steps", [("0k", 500), ("2k", 2500), ("10k", 10000), ("1k", 1000)])
def test_steps_are_written_rounded_down(text, steps):
    name = B_16_TUNED.replace("20k", text)
    assert parse_name(name).adapt_steps == steps
    assert str(parse_name(name)) == name


@pytest.mark.parametrize(
    "part, other",
    [
        ("B_16-", "B_17-"),
        ("i21k", "i22k"),
        ("300ep", "300"),
        ("lr_0.001", "lr_fast"),
        ("medium1", "medium3"),
        ("wd_0.1", "0.1"),
        ("do_0.0", "do_"),
        ("imagenet2012", "ImageNet"),
        ("steps_20k", "steps_20"),
        ("res_384", "res_512"),
        ("-res_384", ""),
        ("res_384", "res_384-x"),
        ("lr_0.001", "lr_0.0010"),
        ("B_16-", "ViT-B_16-"),
    ],
)
def test_an_error_shows_how_a_name_looks(part, other):
    assert part in B_16_TUNED
    with pytest.raises(ValueError, match=r"Received: .*expected such as B_16-i21k-300ep"):
        parse_name(B_16_TUNED.replace(part, other, 1))


@pytest.mark.parametrize(
    "change",
    [
        {"name": "B/17"},
        {"adapt_lr": None},
        {"adapt_steps": 2000},
        {"adapt_steps": 1500},
        {"adapt_resolution": 512},
    ],
    ids=str,
)
def test_values_that_no_name_can_hold(change):
    with pytest.raises(ValueError, match="No file name can hold"):
        dataclasses.replace(parse_name(B_16_TUNED), **change)


def test_the_index_is_typed(write):
    cells = {"best_val": "nan", "params": "86567656.0", "infer_samples_per_sec": "659.4"}
    path = write([row(B_16, 0.5, "--cifar100-steps_2k-lr_0.01-res_224", 0.93, **cells)])
    (read,) = read_index(path)
    assert list(read) == list(augreg.COLUMNS) == COLUMNS
    assert read["params"] == 86567656 and isinstance(read["params"], int)
    assert read["adapt_steps"] == 2500 and isinstance(read["epochs"], int)
    assert (read["lr"], read["infer_samples_per_sec"]) == (0.001, 659.4)
    assert (read["name"], read["aug"]) == ("B/16", "medium1")
    assert read["best_val"] is None  # as some tables write an empty cell
    assert read["final_test"] is None and read["adapt_final_test"] is None


def test_the_order_of_the_columns_does_not_matter(write):
    table = [row(B_16, 0.5)]
    first = read_index(write(table))
    assert read_index(write(table, COLUMNS[::-1])) == first


def test_missing_columns_are_named(write):
    path = write([row(B_16, 0.5)], [name for name in COLUMNS if name not in ("ds", "params")])
    with pytest.raises(ValueError, match=r"without the columns \['ds', 'params'\]"):
        read_index(path)


def test_an_empty_file_is_no_index(tmp_path):
    path = tmp_path / "empty.csv"
    path.write_text("")
    with pytest.raises(ValueError, match="not the index"):
        read_index(path)


@pytest.mark.parametrize("cells", [{"final_val": "high"}, {"params": "1.5"}, {"epochs": "inf"}])
def test_a_damaged_cell_is_named(write, cells):
    ((column, text),) = cells.items()
    with pytest.raises(ValueError, match=f"{column}='{text}' in line 3"):
        read_index(write([row(B_16, 0.5), {**row(B_16, 0.5), **cells}]))


@pytest.mark.parametrize("name", RECOMMENDED)
def test_the_rule_finds_the_recommended_files(rows, name):
    stem, lr, accuracy = RECOMMENDED[name]
    best = choose(rows, name)
    assert best["url"] == f"gs://vit_models/augreg/{stem}.npz"
    assert {value for key, value in best.items() if key.startswith("adapt_")} == {None}
    tuned = choose(rows, name, adapt_ds="imagenet2012")
    assert tuned["url"].endswith(f"{stem}--imagenet2012-steps_20k-lr_{lr}-res_384.npz")
    assert tuned["adapt_final_val"] == pytest.approx(accuracy / 100)


def test_choosing_by_the_fine_tuning_itself(rows):
    best = choose(rows, adapt_ds="imagenet2012", best_by="adapt_final_val")
    assert best["aug"] == "none" and best["adapt_final_val"] == 0.9


def test_filters_take_one_value_or_several(rows):
    assert choose(rows, ds="i1k")["final_val"] == 0.8
    assert choose(rows, ds=("i1k", "i21k"))["ds"] == "i1k"
    assert choose(rows, aug="none", adapt_ds="resisc45")["adapt_steps"] == 500
    chosen = choose(rows, adapt_ds="imagenet2012", adapt_lr=0.001)
    assert chosen["adapt_filename"].endswith("lr_0.001-res_384")


def test_ties_do_not_depend_on_the_order(rows):
    tied = [other for other in rows if other["name"] == "B/16" and other["ds"] == "i21k"]
    tied = [{**other, "final_val": 0.5, "adapt_final_val": 0.5} for other in tied]
    chosen = {choose(order, adapt_ds="imagenet2012")["url"] for order in (tied, tied[::-1])}
    assert len(chosen) == 1


@pytest.mark.parametrize(
    "filters, messages",
    [
        ({"name": "B/17"}, ("name='B/17'", "'R26+S/32'")),
        ({"ds": "i22k"}, ("ds='i22k'", "['i1k', 'i21k', 'i21k_30']")),
        ({"adapt_ds": "resisc45", "adapt_lr": 9.0}, ("adapt_lr=9.0", "0.03")),
        ({"adapt_ds": "svhn"}, ("adapt_ds='svhn'", "'cifar100', 'imagenet2012', 'resisc45'")),
        ({"colour": 1}, ("Unknown column", "'colour'")),
        ({"best_by": "name"}, ("Unknown best_by", "'final_val'")),
        ({"best_by": "adapt_final_val"}, ("without adapt_ds",)),
        ({"ds": "i21k_30"}, ("None of the 1 checkpoints", "'final_val'")),
    ],
)
def test_nothing_left_says_why(rows, filters, messages):
    with pytest.raises(ValueError) as error:
        choose(rows, **filters)
    for message in (*messages, "Received: "):
        assert message in str(error.value)


def test_an_error_does_not_print_thousands_of_values(rows):
    many = [{**rows[0], "filename": str(number)} for number in range(1000)]
    with pytest.raises(ValueError, match="and more") as error:
        choose(many, rows[0]["name"], filename="none of them")
    assert len(str(error.value)) < 600
