"""Model cards, and models on the hub of Hugging Face."""

import contextlib
import json
import os
import pathlib
import re
import tempfile
import warnings

from keras_vit.models.backbone import check_model
from keras_vit.text import unknown
from keras_vit.weights.card import check_card_place, is_untouched, make_card
from keras_vit.weights.fetch import is_offline
from keras_vit.weights.files import FOLDER_FILES
from keras_vit.weights.save import BY_SUFFIX, save_weights
from keras_vit.writing import write_text

CARD = "README.md"
# What a file of each format is called in a repository, "" for the repository itself.
FILES = {"huggingface": "", "timm": "model.safetensors", "google": "model.npz"}


def model_card(
    model,
    path=None,
    *,
    file="model.keras",
    name=None,
    run=None,
    recipe=None,
    report=None,
    data=None,
    test_data=None,
    test_split=None,
    license=None,
    limits=(),
    repository=None,
):
    """The card of a model: what its README.md on the hub of Hugging Face says.

    It tells architecture, data, recipe, accuracy, preparation of images, classes, the code that
    opens the weights, limits and licence, and has metadata that the hub reads. A checkpoint that
    was loaded brings what the catalogue knows of it. What is neither known nor given is unknown.

    Args:
        model: a `VisionTransformer` or a `BiT`, or any model around one, such as one of several
            heads.
        path: the file to write, such as `"README.md"`; `None` writes none. A file that exists is
            replaced only if this function wrote it and nobody has edited it since.
        file: the weights that the card stands beside: a file or folder that `save_weights` wrote,
            or the name of a `.keras` file.
        name: of the model; by default its own.
        run: the folder of a finished run (`output` of `tutorials/train.py`): recipe, data and
            accuracy come from there where they are not given.
        recipe: the `keras_vit.recipes.Recipe` that it was trained with.
        report: of `keras_vit.evaluation.evaluate`, or what its `save` wrote, as a dict.
        data, test_data, test_split: names of the images that it was trained on, of those that the
            report is of, and of their split.
        license: such as `"apache-2.0"`; by default that of the checkpoint, if it is known.
        limits: sentences to add to the section "Limits".
        repository: `"ORG/NAME"` on the hub that the reader shall load from, instead of `file`.

    Returns:
        A `huggingface_hub.ModelCard`: `str(card)` is the text, `card.data` its metadata.

    Raises:
        TypeError: `model` has neither inside, or `recipe` no recipe.
        ValueError: a report of another model; a `run` without a finished run; a `file` that does
            not exist, or of another library for a model with layers around the network; a `path`
            where somebody's own text stands.
    """
    contents = {"recipe": recipe, "report": report, "data": data}
    contents |= {"test_data": test_data, "test_split": test_split}
    if run is not None:
        contents = {key: contents.get(key) or value for key, value in _of_run(run).items()}
    if not hasattr(contents["recipe"], "table") and contents["recipe"] is not None:
        raise TypeError(f"recipe must be a keras_vit.recipes.Recipe. Received: {recipe!r}.")
    file = pathlib.Path(file)
    suffix = "" if file.is_dir() else file.suffix  # of a folder it is part of the name
    format = BY_SUFFIX.get(suffix)
    if suffix != ".keras" and (format is None or not file.exists()):
        raise ValueError(
            "file must be what save_weights wrote, or the name of a .keras file. Received: "
            f"file={str(file)!r}, which {'does not exist' if format else 'is none of these'}."
        )
    contents |= {"format": format, "place": f"hf://{repository}" if repository else None}
    card = make_card(model, file, name=name, license=license, limits=limits, **contents)
    if path is not None:
        check_card_place(path)
        write_text(path, str(card))
    return card


def _of_run(folder):
    """What the folder of a finished run says of recipe, report, data and test data."""
    from keras_vit import recipes

    folder = pathlib.Path(folder)
    if not (folder / "settings.json").is_file():
        raise ValueError(f"There is no finished run in {str(folder)!r}: settings.json is missing.")
    settings = json.loads((folder / "settings.json").read_text("utf-8"))
    recipe, measured = recipes.Recipe.from_dict(settings["recipe"]), folder / "evaluation.json"
    # The folders above somebody's images or teacher are nobody's business.
    source = pathlib.Path(settings["dataset"] or recipe.dataset).name
    teacher = pathlib.Path(settings.get("teacher") or "").name
    return {
        "recipe": recipe,
        "report": json.loads(measured.read_text("utf-8")) if measured.is_file() else None,
        "data": source,
        "test_data": source,
        "test_split": settings["test_split"] or recipe.test_split,
        "outcome": {**settings, **(settings.get("training") or {}), "teacher": teacher},
    }


def push_to_hub(
    model,
    repository,
    format="huggingface",
    *,
    private=None,
    token=None,
    revision=None,
    message="Upload weights with keras_vit",
    force=False,
    replace_card=False,
    **card,
):
    """Uploads a model with its card to the hub of Hugging Face, in one commit.

    `keras_vit.from_checkpoint("hf://ORG/NAME")` opens it, and so do the libraries of the format;
    the card says how. `HF_ENDPOINT` names another hub. Nothing is sent before all files are made.

    Args:
        model, format, force: as in `save_weights`.
        repository: `"ORG/NAME"`, which is made if it is not there.
        private: whether a new repository is private; `None` for the custom of its owner.
        token: of the hub, with the right to write; by default `HF_TOKEN`, or that of `hf auth
            login`.
        revision: the branch; by default `main`.
        message: of the commit.
        replace_card: whether to replace a card that somebody wrote or edited, too, which is
            otherwise kept, with a warning.
        **card: what `model_card` takes to say more, such as `run`, `report`, `license`.

    Returns:
        The address of the repository, as text.

    Raises:
        TypeError: `model` is neither a `VisionTransformer` nor a `BiT`.
        ValueError: a name of no such form, an unknown format, a model that the format cannot hold,
            or a repository whose other weights would be found before these.
        PermissionError: no token, or one without the right to write there.
        ConnectionError: the hub cannot be reached or refuses for another reason.
    """
    import huggingface_hub

    model = check_model(model, whole=True)
    if format not in FILES:
        raise unknown("format", format, FILES)
    owner, _, name = str(repository).partition("/")
    if not all(re.fullmatch(r"[\w.-]+", part, re.ASCII) for part in (owner, name)):
        raise ValueError(
            f"The repository must have the form 'ORG/NAME'. Received: repository={repository!r}."
        )
    if is_offline():
        raise ConnectionError("KERAS_VIT_OFFLINE forbids the network: unset it to upload.")
    if not token and not huggingface_hub.get_token():
        raise PermissionError(
            "There is no token of the hub. Set HF_TOKEN to one with the right to write, call "
            "`hf auth login` in a terminal, or give token=."
        )
    endpoint = os.environ.get("HF_ENDPOINT") or None
    api = huggingface_hub.HfApi(endpoint=endpoint, token=token, library_name="keras_vit")
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary) / name
        weights = save_weights(model, folder / FILES[format], format, force, card=True)
        card = {"name": name, **card, "file": weights, "repository": repository}
        model_card(model, folder / CARD, **card)
        with _plain_errors(repository):
            url = api.create_repo(repository, private=private, exist_ok=True)
            present = api.list_repo_files(repository, revision=revision)
            _check_weights(present, folder, repository)
            if CARD in present and not replace_card:
                _keep_card(api, repository, revision, folder / CARD)
            api.upload_folder(
                repo_id=repository, folder_path=folder, commit_message=message, revision=revision
            )
    return str(url)


def _check_weights(present, folder, repository):
    """Raises a ValueError where a reader of the repository would find its old weights first."""
    new = {file.name for file in folder.iterdir()}
    older = [name for name in FOLDER_FILES if name in present]
    if older and not new & set(FOLDER_FILES):
        raise ValueError(
            f"{repository} holds {older}, which would be found before {sorted(new - {CARD})}. "
            "Nothing was uploaded; choose another repository, or delete these files there first."
        )


def _keep_card(api, repository, revision, card):
    """Takes the new card out of the upload where somebody wrote or edited the present one."""
    place = card.parent.parent  # the temporary folder: a cache may have an earlier card
    present = api.hf_hub_download(repository, CARD, revision=revision, local_dir=place)
    if not is_untouched(pathlib.Path(present).read_text("utf-8", errors="replace")):
        card.unlink()
        warnings.warn(
            f"{repository} has a card that was written or edited by somebody, and keeps it; "
            "replace_card=True replaces it.",
            stacklevel=3,
        )


@contextlib.contextmanager
def _plain_errors(repository):
    """Turns what goes wrong with the hub into one line that says what to do."""
    try:
        yield
    except Exception as error:  # of the library that speaks HTTP, too
        status = getattr(getattr(error, "response", None), "status_code", None)
        if status is None and isinstance(error, ValueError):
            raise
        reason = (str(error).strip().splitlines() or [type(error).__name__])[-1]
        if status in (401, 403):
            raise PermissionError(
                f"The hub refuses to write to {repository} (HTTP {status}): {reason} Check the "
                "name of the owner, and that the token has the right to write there."
            ) from error
        raise ConnectionError(f"Could not upload to {repository}: {reason}") from error
