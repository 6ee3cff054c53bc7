"""VTAB-1k, where its data are: fine-tunes a model on each task and sets the paper's values beside.

    python studies/vtab.py --variant L/16 --weights imagenet21k/ViT-L_16 --data-dir DIR
    python studies/vtab.py ... --group structured      (or natural, specialized)

DIR holds the sets as TensorFlow Datasets prepares them. Each task is a run in a folder of its own
under OUTPUT: one that was stopped goes on, and a finished one is only read. The protocol is the
paper's (appendix B.1.1): 1,000 images, 2,500 updates, one learning rate for all tasks.
"""

import argparse
import json
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))  # run from a checkout

# Table 9 of the paper, percent, in the order of `evaluation.VTAB_GROUPS`.
PAPER = {
    "H/14, JFT": "95.3 85.5 75.2 99.7 97.2 65.0 88.9  83.3 96.7 91.4 76.6  "
    "91.7 63.8 53.1 79.4 63.3 84.5 33.2 51.2",
    "L/16, JFT": "95.4 81.9 74.3 99.7 96.7 63.5 87.4  83.6 96.5 89.7 77.1  "
    "86.4 63.1 49.7 74.5 60.5 82.2 36.2 51.1",
    "L/16, I21k": "90.8 84.1 74.1 99.3 92.7 61.0 80.9  82.5 95.6 85.2 75.3  "
    "70.3 56.1 41.9 74.7 64.9 79.9 30.5 41.7",
}


def paper(tasks):
    """{model: the paper's `VTABScore`}."""
    from keras_vit import evaluation

    rows = {name: [float(value) / 100 for value in row.split()] for name, row in PAPER.items()}
    return {name: evaluation.vtab_mean(dict(zip(tasks, row))) for name, row in rows.items()}


def accuracy(task, args):
    """Test accuracy of one task, of a run or of the files that a finished one has left.

    Raises:
        ValueError: the finished run is one of another model, or with other settings.
    """
    from keras_vit import recipes
    from keras_vit.job import Job, configure

    output = pathlib.Path(args.output) / task
    recipe = recipes.vtab(task, args.variant).scale(args.batch_size)
    job = Job(recipe, str(output), data_dir=args.data_dir, model=args.variant, weights=args.weights)
    if (output / "evaluation.json").exists():
        past = Job.read(output)
        for name in ("model", "weights", "recipe"):
            if getattr(past, name) != getattr(job, name):
                raise ValueError(
                    f"The finished run in {output} has another {name}; give another --output. "
                    f"Received: {getattr(job, name)}; there it is {getattr(past, name)}"
                )
        return json.loads((output / "evaluation.json").read_text())["top1"]
    configure(recipe)
    return job.run()["test_accuracy"]


def table(score, tasks, groups):
    """Ours beside the paper's, percent: each task, then the means of groups and of all."""
    from keras_vit.text import table

    published = paper(tasks)
    rows = [("", "ours", *PAPER)]
    for task in score.tasks:
        rows.append((task, score.tasks[task], *(p.tasks[task] for p in published.values())))
    for group in groups:
        rows.append(
            (f"mean, {group}", score.groups[group], *(p.groups[group] for p in published.values()))
        )
    if not score.missing:
        rows.append(("mean", score.mean, *(p.mean for p in published.values())))
    shown = [[x if isinstance(x, str) else f"{100 * x:.1f}" for x in row] for row in rows[1:]]
    return table(shown, header=rows[0])


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    add = parser.add_argument
    add("--variant", required=True, help="a published variant, such as L/16 or R50x1")
    add("--weights", required=True, help="a checkpoint to begin from: a name, a path, or a URL")
    add("--data-dir", required=True, help="where the prepared sets of TFDS lie")
    add("--group", help="natural, specialized or structured, instead of all tasks")
    add("--batch-size", type=int, help="images in an update; what follows from it is scaled too")
    add("--output", default="output/vtab", help="folder of the runs")
    args = parser.parse_args()
    from keras_vit import evaluation

    groups = evaluation.VTAB_GROUPS
    if args.group is not None and args.group not in groups:
        parser.error(f"--group is one of {list(groups)}. Received: {args.group!r}.")
    groups = {args.group: groups[args.group]} if args.group else groups
    found = {task: accuracy(task, args) for tasks in groups.values() for task in tasks}
    score = evaluation.vtab_mean(found, allow_missing=True)
    score.save(pathlib.Path(args.output) / "vtab.json")
    tasks = [task for tasks in evaluation.VTAB_GROUPS.values() for task in tasks]
    print(table(score, tasks, groups))


if __name__ == "__main__":
    main()
