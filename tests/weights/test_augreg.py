"""The grammar of the AugReg file names, the index, and the authors' rule for the best model."""

import csv

import pytest

from keras_vit.weights.augreg import COLUMNS, augreg_url, choose_augreg, read_augreg_index
from tests.support import refuses

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


def row(name, stem, final_val, tune="", lr=None, adapt_final_val="", **cells):
    """A row as the index has it; `tune` is what follows the name of a pre-trained file."""
    values = {"name": name, "ds": stem.split("-")[1], "aug": stem.split("aug_")[1].split("-")[0]}
    values |= {"final_val": final_val, "filename": stem, "adapt_filename": stem + tune}
    if tune:
        values |= {"adapt_ds": tune[2:].split("-")[0], "adapt_lr": lr}
        values |= {"adapt_final_val": adapt_final_val}
    return {**dict.fromkeys(COLUMNS, ""), **values, **cells}


@pytest.fixture
def write(tmp_path):
    def write(rows, columns=tuple(COLUMNS)):
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
    for name, (stem, lr, accuracy) in RECOMMENDED.items():
        tune = "--imagenet2012-steps_20k-lr_{}-res_384"
        table.append(row(name, stem, 0.5, tune.format(lr), lr, accuracy / 100))
        table.append(row(name, stem, 0.5, tune.format("0.001"), 0.001, 0.7))
        table.append(row(name, stem, 0.5, "--cifar100-steps_2k-lr_0.01-res_224", 0.01, 0.93))
    worse = B_16.replace("medium1", "none")
    # Worse at pre-training, better at fine-tuning: not its fine-tune is asked for.
    table.append(row("B/16", worse, 0.4, "--imagenet2012-steps_10k-lr_0.01-res_224", 0.01, 0.9))
    table.append(row("B/16", worse, 0.4, "--resisc45-steps_0k-lr_0.003-res_384", 0.003, 0.97))
    # Better than all, but on other data than the rule's.
    table.append(row("B/16", B_16.replace("i21k", "i1k"), 0.8))
    table.append(row("B/16", B_16.replace("i21k", "i21k_30"), ""))
    return read_augreg_index(write(table))


@pytest.mark.parametrize("stem", [B_16, B_16_TUNED, *(stem for stem, _, _ in RECOMMENDED.values())])
def test_names(stem):
    for prefix in ("", "augreg/", "gs://vit_models/augreg/"):
        for suffix in ("", ".npz"):
            assert augreg_url(prefix + stem + suffix) == f"gs://vit_models/augreg/{stem}.npz"


WRONG = [("i21k", "i22k"), ("300ep", "300"), ("lr_0.001", "lr_fast"), ("medium1", "medium3")]
WRONG += [("do_0.0", "do_"), ("imagenet2012", "ImageNet"), ("steps_20k", "steps_20")]
WRONG += [("res_384", "res_512"), ("-res_384", "")]
WRONG += [("B_16-", other) for other in ("B_17-", "ViT-B_16-", "/elsewhere/B_16-")]


@pytest.mark.parametrize("part, other", WRONG)
def test_what_is_no_name(part, other):
    assert part in B_16_TUNED
    assert augreg_url(B_16_TUNED.replace(part, other, 1)) is None


def test_the_index_is_typed(write):
    cells = {"best_val": "nan", "params": "86567656.0", "infer_samples_per_sec": "659.4"}
    table = [row("B/16", B_16, 0.5, "--cifar100-steps_2k-lr_0.01-res_224", 0.01, 0.93, **cells)]
    (read,) = read_augreg_index(write(table))
    assert list(read) == list(COLUMNS)
    assert read["params"] == 86567656 and isinstance(read["params"], int)
    assert (read["adapt_lr"], read["infer_samples_per_sec"]) == (0.01, 659.4)
    assert (read["name"], read["aug"]) == ("B/16", "medium1")
    assert read["best_val"] is None  # as some tables write an empty cell
    assert read["final_test"] is None and read["adapt_final_test"] is None
    assert read_augreg_index(write(table, tuple(COLUMNS)[::-1])) == [read]


def test_a_damaged_index_is_named(write, tmp_path):
    path = write([row("B/16", B_16, 0.5)], [n for n in COLUMNS if n not in ("ds", "params")])
    refuses(r"without the columns \['ds', 'params'\]", read_augreg_index, path)
    (tmp_path / "empty.csv").write_text("")
    refuses("not the index", read_augreg_index, tmp_path / "empty.csv")
    for column, text in (("final_val", "high"), ("params", "1.5"), ("epochs", "inf")):
        damaged = {**row("B/16", B_16, 0.5), column: text}
        with pytest.raises(ValueError, match=f"{column}='{text}' in line 3"):
            read_augreg_index(write([row("B/16", B_16, 0.5), damaged]))


@pytest.mark.parametrize("name", RECOMMENDED)
def test_the_rule_finds_the_recommended_files(rows, name):
    stem, lr, accuracy = RECOMMENDED[name]
    best = choose_augreg(rows, name)
    assert best["url"] == f"gs://vit_models/augreg/{stem}.npz"
    assert {value for key, value in best.items() if key.startswith("adapt_")} == {None}
    tuned = choose_augreg(rows, name, adapt_ds="imagenet2012")
    assert tuned["url"].endswith(f"{stem}--imagenet2012-steps_20k-lr_{lr}-res_384.npz")
    assert tuned["adapt_final_val"] == pytest.approx(accuracy / 100)


def test_filters(rows):
    by_tune = choose_augreg(rows, adapt_ds="imagenet2012", best_by="adapt_final_val")
    assert by_tune["aug"] == "none" and by_tune["adapt_final_val"] == 0.9
    assert choose_augreg(rows, ds="i1k")["final_val"] == 0.8
    assert choose_augreg(rows, ds=("i1k", "i21k"))["ds"] == "i1k"
    chosen = choose_augreg(rows, adapt_ds="imagenet2012", adapt_lr=0.001)
    assert chosen["adapt_filename"].endswith("lr_0.001-res_384")


def test_ties_do_not_depend_on_the_order(rows):
    tied = [other for other in rows if other["name"] == "B/16" and other["ds"] == "i21k"]
    tied = [{**other, "final_val": 0.5, "adapt_final_val": 0.5} for other in tied]
    chosen = {choose_augreg(order, adapt_ds="imagenet2012")["url"] for order in (tied, tied[::-1])}
    assert len(chosen) == 1


@pytest.mark.parametrize(
    "filters, messages",
    [
        ({"name": "B/17"}, ("name='B/17'", "'R26+S/32'")),
        ({"ds": "i22k"}, ("ds='i22k'", "['i1k', 'i21k', 'i21k_30']")),
        ({"adapt_ds": "resisc45", "adapt_lr": 9.0}, ("adapt_lr=9.0", "0.003")),
        ({"colour": 1}, ("Unknown column", "'colour'")),
        ({"best_by": "name"}, ("Unknown best_by", "'final_val'")),
        ({"best_by": "adapt_final_val"}, ("without adapt_ds",)),
        ({"ds": "i21k_30"}, ("None of the 1 checkpoints", "'final_val'")),
    ],
)
def test_nothing_left_says_why(rows, filters, messages):
    with pytest.raises(ValueError) as error:
        choose_augreg(rows, **filters)
    for message in (*messages, "Received: "):
        assert message in str(error.value)


def test_an_error_does_not_print_thousands_of_values(rows):
    many = [{**rows[0], "filename": str(number)} for number in range(1000)]
    with pytest.raises(ValueError, match=r"and \d+ more") as error:
        choose_augreg(many, rows[0]["name"], filename="none of them")
    assert len(str(error.value)) < 600
