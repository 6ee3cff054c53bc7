"""The script that writes measured tables into docs/performance.md."""

import sys

import pytest

from tests.support import BACKEND

TINY = "--model Ti16 --depth 1 --image-size 32 --turns 1 --steps 1 --batch 1 --warmup 0"


@pytest.fixture
def run(monkeypatch, tmp_path):
    """Runs the script on a file, and returns what that holds afterwards."""
    import report

    file = tmp_path / "performance.md"
    file.write_text("# Performance\n\nText.\n")

    def run(commands, *arguments):
        monkeypatch.setattr(report, "commands", lambda: commands)
        monkeypatch.setattr(sys, "argv", ["report.py", "--file", str(file), *arguments])
        report.main()
        return file.read_text()

    run.file = file
    return run


@pytest.mark.any_backend  # what they run is tested on each
def test_sections_are_added_and_replaced(run):
    compare = f"compare.py {TINY} --backend {BACKEND} --peers none"
    python = ["--python", sys.executable]
    first = run({"a": compare, "b": compare}, "a", "b", "--", *python)
    assert first.startswith("# Performance\n\nText.\n\n<!-- a -->\n### Ti16, 32 px, infer")
    assert f"Measured by `python benchmarks/{compare}`." in first
    assert sys.executable not in first and first.count("images/s") == 2
    second = run({"a": compare}, "--", "--gelu", "tanh")
    assert second.count("images/s") == 2 and second.count("| tanh |") == 1
    assert second.index("<!-- end of a -->") < second.index("<!-- b -->")


@pytest.mark.any_backend
def test_a_command_that_fails_leaves_its_section(run):
    before = run.file.read_text()
    with pytest.raises(SystemExit, match="left as they were: a"):
        run({"a": "compare.py --backend none"})
    assert run.file.read_text() == before


@pytest.mark.any_backend
def test_unknown_sections_are_named(run, capsys):
    with pytest.raises(SystemExit):
        run({"a": "compare.py"}, "c")
    assert "unknown sections ['c']; expected some of ['a']" in capsys.readouterr().err


@pytest.mark.any_backend
def test_every_command_is_one_that_its_script_takes(monkeypatch):
    """Those of the scripts whose arguments depend on each other."""
    import compare
    import distribution_cost
    import plan
    import report

    for name, command in report.commands().items():
        _, script, arguments = report.split(command)
        assert (report.HERE / script).is_file(), name
        if script == "compare.py":
            assert len(compare.parse(arguments).all_settings[0]) >= 2, name
        if script in ("plan.py", "distribution_cost.py"):
            {"plan.py": plan, "distribution_cost.py": distribution_cost}[script].parse(arguments)
            assert report.page(command).name == "distribution.md", name


TABLE = """### S16, 224 px, infer, batch 4, torch, bfloat16

| implementation | GELU | ms: min / quartiles / median | images/s | GFLOP/s | of peak | MiB: steps / ever | first call s | import s | build s |
|---|---|---|---|---|---|---|---|---|---|
| `keras_vit[dtype=bfloat16,weights=bfloat16]` | erf | 1.0 / 1.0-1.0 / 1.0 | 1 | 1 | 1% | 437 / 438 | 1 | 1 | 1 |
| `keras_vit` | erf | 1.0 / 1.0-1.0 / 1.0 | 1 | 1 | 1% | 600 / 601 | 1 | 1 | 1 |
| `timm[dtype=bfloat16]` | erf | 1.0 / 1.0-1.0 / 1.0 | 1 | 1 | 1% | 1427 / 1500 | 1 | 1 | 1 |
| `hf[dtype=bfloat16]` | erf | 1.0 / 1.0-1.0 / 1.0 | 1 | 1 | 1% | 927 / 930 | 1 | 1 | 1 |

`keras_vit[dtype=bfloat16,weights=bfloat16]` is 1.28 times as fast as the best peer, `timm[dtype=bfloat16]` (0.94 by the shortest steps).
`keras_vit` is 0.41 times as fast as the best peer, `timm[dtype=bfloat16]` (0.30 by the shortest steps).

A processor, 2 cores, 23.5 GiB, keras 3.15.1, Python 3.11.7, 2026-11-22.
"""  # noqa: E501


@pytest.mark.any_backend
def test_the_summary_has_a_row_for_each_ratio_of_the_same_dtype():
    from report_summary import summary

    header, _, row = summary([TABLE], ["torch"]).splitlines()
    assert header.startswith("| backend | task | model |")
    assert row == (
        "| torch | infer | S16 | 4 | bfloat16 | `keras_vit[weights=bfloat16]` | 1.28 | `timm` "
        "| 437 / 927 | A processor, 2026-11-22 |"
    )


@pytest.mark.any_backend
def test_the_summary_of_the_page_is_that_of_its_tables(tmp_path, monkeypatch):
    import report

    for file in report.DOCS.glob("performance*.md"):
        (tmp_path / file.name).write_text(file.read_text())
    page = tmp_path / "performance.md"
    before = page.read_text()
    head = before.split("<!-- end of summary -->")[0]
    page.write_text(before.replace(head, "<!-- summary -->\n"))
    monkeypatch.setattr(sys, "argv", ["report.py", "--summary", "--file", str(page)])
    report.main()
    assert page.read_text().split("<!-- end of summary -->")[0] == head[head.index("<!-- summ") :]
