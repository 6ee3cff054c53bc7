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
