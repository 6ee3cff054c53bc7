"""Files and mappings of labels: what they may look like, what they mean, and what is refused."""

import numpy as np
import pytest

from keras_vit.data.labels import read_labels
from tests.data.pipeline_cases import as_csv, as_json
from tests.support import refuses

pytestmark = pytest.mark.any_backend

ROWS = np.array([[1, 0, 1], [0, 0, 0], [0, 1, 0], [1, 1, 1]], np.float32)
TAGS = [("file", "tags"), ("a", "sun|sea"), ("b", ""), ("c", "sky"), ("d", "sea | sky|sun")]
COLUMNS = [("image", "sea", "sky", "sun"), ("a", 1, 0, 1), ("b", 0, 0, 0), ("c", 0, 1, 0)]
TREE = {"a": ["sun", "sea"], "b": [], "c": "sky", "d": ["sea", "sky", "sun"]}


@pytest.mark.parametrize("form", ["tags", "semicolons", "spaces", "columns", "json", "map", "0/1"])
def test_the_forms_of_several_labels(tmp_path, form):
    csv, problem = tmp_path / "labels.csv", "multi_label" if form == "spaces" else None
    if form in ("tags", "semicolons", "spaces"):
        mark = {"tags": "|", "semicolons": ";", "spaces": " "}[form]
        plain = [(name, cell.replace(" ", "").replace("|", mark)) for name, cell in TAGS]
        labels = as_csv(csv, *(TAGS if form == "tags" else plain))
    elif form == "columns":
        labels = as_csv(csv, *COLUMNS, ("d", "True", "1.0", "true"))
    elif form == "0/1":
        rows = dict(zip("abcd", ROWS.astype(int).tolist()))
        labels = as_json(tmp_path / "l.json", {"classes": ["sea", "sky", "sun"], "labels": rows})
    else:
        labels = as_json(tmp_path / "labels.json", TREE) if form == "json" else TREE
    found = read_labels(labels, problem)
    assert found.problem == "multi_label" and found.class_names == ("sea", "sky", "sun")
    assert list(found.values) == list("abcd")
    np.testing.assert_array_equal(list(found.values.values()), ROWS)
    assert found.values["a"].dtype == np.float32 and found.parts is None


@pytest.mark.parametrize(
    "rows, problem, names, values",
    [
        ([("id", "breed"), ("a", "pug"), ("b", "golden_retriever")], None, 2, [1, 0]),
        ([("id", "breed"), ("a", "red fox"), ("b", "fox")], "single_label", 2, [1, 0]),
        ([("", "path", "class"), (0, "a", "x|y"), (1, "b", "z")], "single_label", 2, [0, 1]),
        ([("id", "grade"), ("a", 10), ("b", 9)], "single_label", ("9", "10"), [1, 0]),
        ([("id", "cat", "dog"), ("a", 0, 1), ("b", 1, 0)], "single_label", ("cat", "dog"), [1, 0]),
        ([("id", "cat", "dog"), ("a", 0, 1), ("b", 1, 0)], "multi_label", 2, [[0, 1], [1, 0]]),
        ([("id", "ill"), ("a", "True"), ("b", "False")], "multi_label", ("ill",), [[1], [0]]),
        ([("id", "age"), ("a", 31), ("b", 2.5)], "regression", ("age",), [31, 2.5]),
        ([("Unnamed: 0", "id", "age"), (0, "a", 31), (1, "b", 2)], "regression", ("age",), [31, 2]),
        ([("id", "x", "y"), ("a", 0, 1), ("b", -1, 0.5)], "regression", 2, [[0, 1], [-1, 0.5]]),
    ],
)
@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_what_a_file_does_not_say_is_said(tmp_path, rows, problem, names, values, delimiter):
    found = read_labels(as_csv(tmp_path / "labels.csv", *rows, delimiter=delimiter), problem)
    assert found.problem == (problem or "single_label")
    assert found.class_names == names or len(found.class_names) == names
    assert [np.asarray(found.values[name]).tolist() for name in "ab"] == values


def test_a_mapping_of_numbers_classes_or_values():
    listed = {"labels": {"a": 2, "b": 0}, "classes": ["x", "y", "z"]}
    assert read_labels(listed)[:3] == ("single_label", ("x", "y", "z"), {"a": 2, "b": 0})
    assert read_labels({"a": "z", "b": "x"})[:3] == ("single_label", ("x", "z"), {"a": 1, "b": 0})
    assert read_labels({"a": 7, "b": 3}, "single_label").class_names == ("3", "7")
    mixed = {"a": 2.0, "b": 1, "c": True, "d": 1.0, "e": 0.5, "f": 2, "g": False}
    classes, values = read_labels(mixed, "single_label")[1:3]
    assert classes == ("0.5", "1", "2", "False") and [*values.values()] == [2, 1, 1, 1, 0, 2, 3]
    found = read_labels({"a": np.array([0.5, 2]), "b": [1, 2]}, "regression")
    assert found.class_names is None and found.values["a"].tolist() == [0.5, 2]
    assert read_labels({"a": 7, "b": 3}, "regression").values["a"].shape == ()


def test_spaces_that_separate_labels_are_told(tmp_path):
    labels = as_csv(tmp_path / "labels.csv", ("file", "label"), ("a", "red fox"), ("b", "cat"))
    with pytest.warns(UserWarning, match=r"'red fox', which are 2 labels; .*by \| or ;"):
        assert read_labels(labels, "multi_label").class_names == ("cat", "fox", "red")


@pytest.mark.parametrize(
    "labels, problem, expected",
    [
        ("file,label\na,1\nb,0", None, r"numbers, of classes .* say problem=.*'1' for 'a'"),
        ("file,label\na,0.25\nb,n/a", None, "numbers, of classes or values"),
        (
            "file,label\na,cat\nb,red fox",
            None,
            r"one name, or several .* spaces; .*: 'red fox' for 'b'",
        ),
        ('file,label\na,"sea, sky"\nb,sun', None, "one name, or several separated by comma"),
        ("file,cat,dog\na,1,0\nb,0,1", None, r"one class, of several, or values .*say problem="),
        ("file,x,y\na,1,0.5\nb,0,1", None, "or values to estimate; say problem="),
        ("file,x,y\na,1,2\nb,0,1", "multi_label", r"be 0 or 1. .*1 others, .*\[1.0, 2.0\] for"),
        ("file,x,y\na,1,1\nb,0,1", "single_label", r"a single 1 among 0.*\[1.0, 1.0\] for 'a'"),
        ("file,x,y\na,1,\nb,0,1", None, r"be numbers; .*Received: '' in the column 'y' for"),
        ("file,age\na,old\nb,0", "regression", "Received: 'old' in the column 'age' for 'a'"),
        ("file,month\na,2024_01\nb,2024_02", "regression", "Received: '2024_01' in the column"),
        ("file,age\na,nan\nb,0", "regression", "a finite number, .*nan for 'a'"),
        ("file,label\na,cat\nb,", None, "must have one label, or say .*'' for 'b'"),
        ("file,label\na,cat\na,dog", None, r"each file once.*separated by \|.*'a' again in row 3"),
        (
            "file,tags\na,\"['cat', 'dog']\"\nb,[]",
            "multi_label",
            r"separated by \|.*for 'a', '\[\]'",
        ),
        (
            "file,label\na,cat|dog\nb,cat;cow",
            None,
            r"One mark .*\| or ;. Received: 'cat;cow' for 'b'",
        ),
        ("file,label\na,cat\nb,dog,1", None, r"the 2 cells of the first. Received: 3 in row 3"),
        ("a.png,cat\nb.png,dog", None, r"begin with a row of different names.*'a.png', 'cat'"),
        ("a,cat\nb,dog\nc,cat", None, "begin with a row of different names.*'a', 'cat'"),
        ("a,3.5\nb,2", "regression", "begin with a row of different names.*'a', '3.5'"),
        ("file\na\nb", None, "begin with a row of different names"),
        ("", None, "Received: nothing"),
        ("file,label", None, "Received: no labels"),
        ("file,label,split\na,x,train\nb,y,2", None, r"train, validation or test.*'2' for 'b'"),
        ('file,label\na,"cat', None, "cannot be read as CSV"),
        ({"a": "cat", "b": 1}, None, r"of one form. Received: 'cat' for 'a', and 1 for 'b'"),
        ({"a": [1, 0], "b": [1]}, None, r"must be 2 numbers for each file.*\[1\] for 'b'"),
        ({"a": {"x": 1}}, None, r"a name, a finite number, or .*\{'x': 1\} for 'a'"),
        ({"a": 10**400}, "regression", "a finite number, .*for 'a'"),
        ({"a": 1e39}, "regression", "a finite number, .*for 'a'"),
        ({"a": ["", "x"]}, None, "must have names"),
        ({"labels": {"a": "x"}, "classes": ["x", "x"]}, None, "list of different names"),
        ({"a": None}, None, "Received: None for 'a'"),
        ({"a": 3, "b": 0}, None, "could be of one class, of several, or values"),
        ({"a": "cat"}, "regression", r"must be numbers. Received: 'cat' for 'a'"),
        ({"a": ["cat", "dog"]}, "single_label", "say problem='multi_label'"),
        ({"labels": {"a": "cow"}, "classes": ["cat"]}, None, r"its classes cat. Received: 'cow'"),
        ({"labels": {"a": [*"abcdefg"]}, "classes": [*"xy"]}, None, r"'d', 'e' and 2 more$"),
        ({"labels": {"a": 1}, "classes": ["cat"]}, None, r"numbers of classes in 0..0.*1 for 'a'"),
        ({"labels": {"a": "cat"}, "class": ["cat"]}, None, r"and 'split'. Received: 'class'"),
        ({"labels": {"a": "cat"}, "classes": "cat"}, None, "must be a list of diff.*'cat'"),
        ({"labels": {"a": "cat"}, "split": {"b": "test"}}, None, "name the part of each file"),
        ('{"a": "cat", "a": "dog"}', None, "names each file once. Received: 'a' is there twice"),
        ('["a"]', None, "Received: a list"),
        ("[" * 100_000, None, "must be JSON such as"),
    ],
)
def test_labels_that_are_refused(tmp_path, labels, problem, expected):
    if isinstance(labels, str):
        path = tmp_path / ("labels.json" if labels[:1] in ("{", "[") else "labels.csv")
        path.write_text(labels)
        labels = path
    refuses(expected, read_labels, labels, problem)


def test_files_of_labels_that_are_none(tmp_path):
    for labels in (tmp_path / "none.csv", "none.json", tmp_path, "labels.txt", 3):
        refuses(r"a mapping from files to labels, or the path", read_labels, labels)
    (tmp_path / "latin.csv").write_bytes("file,label\na,caf\xe9".encode("latin-1"))
    refuses("cannot be read as CSV in UTF-8", read_labels, tmp_path / "latin.csv")
    with pytest.warns(UserWarning, match="from the column 'label' of .*; 'width' are not read"):
        rows = ("file", "width", "label"), ("a", 4, "cat"), ("b", 5, "dog")
        assert read_labels(as_csv(tmp_path / "l.csv", *rows)).class_names == ("cat", "dog")


def test_columns_that_count_rows_and_cells_that_say_nothing_are_told_of(tmp_path):
    rows = ("id", "file", "age"), (7, "a", 4), (8, "b", 5)
    with pytest.warns(UserWarning, match="from the column 'age' of .*; 'id' are not read"):
        found = read_labels(as_csv(tmp_path / "ages.csv", *rows), "regression")
    assert found.class_names == ("age",)


def test_cells_that_stand_for_no_label_are_no_class(tmp_path):
    """`DataFrame.to_csv` writes some after `astype(str)`, and Excel and databases others."""
    for cell in "nan NaN <NA> #N/A NaT".split():
        breeds = as_csv(tmp_path / "breeds.csv", ("id", "breed"), ("a", "beagle"), ("b", cell))
        for problem in (None, "single_label", "multi_label", {"breed": "single_label"}):
            refuses(
                f"read as one that lacks.*list all.*{cell}.* for 'b'", read_labels, breeds, problem
            )
        labels = {"a": "beagle", "b": cell}
        refuses(f"read as one that lacks.* '{cell}' for 'b'", read_labels, labels)
        listed = {"labels": labels, "classes": [cell, "beagle"]}
        assert read_labels(listed).class_names == (cell, "beagle")


@pytest.mark.parametrize("cell", ["NA", "None", "null", "-1"])
def test_names_of_classes_that_may_stand_for_no_label(cell, tmp_path):
    breeds = as_csv(tmp_path / "breeds.csv", ("id", "breed"), ("a", "beagle"), ("b", cell))
    for labels in (breeds, {"a": "beagle", "b": cell}):
        with pytest.warns(UserWarning, match=f"'{cell}' in .* is read as the name of a class"):
            assert set(read_labels(labels, "single_label").class_names) == {cell, "beagle"}
    with pytest.warns(UserWarning, match="'-1' in .* is read as"):
        assert read_labels({"a": -1, "b": 0, "c": 1}, "single_label").class_names[0] == "-1"


def test_minus_one_beside_one_is_a_class():
    assert read_labels({"a": "-1", "b": "1"}).class_names == ("-1", "1")


def test_columns_of_parts_that_are_no_labels_are_told_of(tmp_path):
    """0 and 1 say there which images are for validation, or the fold of each."""
    for name in ("is_valid", "fold"):
        rows = ("file", name, "cat", "dog"), ("a", 0, 1, 1), ("b", 1, 0, 1)
        with pytest.warns(UserWarning, match=f"'cat', 'dog' of .*; '{name}' are not read"):
            found = read_labels(as_csv(tmp_path / "l.csv", *rows), "multi_label")
        assert found.class_names == ("cat", "dog")
