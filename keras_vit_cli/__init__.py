"""The command line: `keras-vit COMMAND ...`, or `python -m keras_vit_cli COMMAND ...`.

It stands beside the library, which a command imports when it runs: `--help` waits for no Keras.
"""

import argparse
import contextlib
import functools
import importlib
import os
import re
import shutil
import signal
import sys
import textwrap
import threading
import warnings

from keras_vit_cli.arguments import ARGUMENTS, FLAG
from keras_vit_cli.backend import BACKENDS, choose_backend, versions, without_keras

# The module of each command: it has `add_COMMAND`, which adds the arguments, and `run_COMMAND`,
# whose docstring is the help, with an example below.
COMMANDS = {"train": "train_command", "sweep": "recipe_commands", "predict": "image_commands"}
COMMANDS |= {"evaluate": "evaluate_command", "embed": "image_commands", "probe": "evaluate_command"}
COMMANDS |= {"explore": "image_commands", "convert": "file_commands", "export": "file_commands"}
COMMANDS |= dict.fromkeys(("list", "info", "fetch"), "catalogue_commands")
COMMANDS |= {"recipes": "recipe_commands"}
WITHOUT_BACKEND = ("list", "info")  # `info` chooses it where it opens a model


def main(arguments=None):
    """Runs one command.

    Args:
        arguments: list of text; `None` takes those of the process.

    Returns:
        The exit code: 0 if all went well; 1 after an error, a line on stderr; 130 after Ctrl-C; 141
        if nobody reads the output any more. Wrong usage exits with 2.
    """
    form = parser()
    args = form.parse_args(arguments)
    if args.command is None:
        form.print_help()
        return 0
    try:
        import absl.logging

        if hasattr(sys.stdout, "reconfigure"):  # or what its encoding lacks would be an error
            sys.stdout.reconfigure(errors="backslashreplace")
        if args.command not in WITHOUT_BACKEND:
            choose_backend(args.backend)
        absl.logging.set_verbosity(absl.logging.ERROR)  # Grain warns that there is no JAX
        with warnings.catch_warnings(), _interruptible():
            warnings.showwarning = _warn
            code = args.run(args)
        sys.stdout.flush()
        return code or 0
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 128 + signal.SIGINT
    except BrokenPipeError:
        with contextlib.suppress(OSError, ValueError):  # or Python complains when it ends
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + 13  # the number of SIGPIPE, which not every system has
    except Exception as error:
        if args.traceback:
            raise
        text = _one_line(error)
        expected = isinstance(error, (ValueError, OSError, ImportError)) and text
        name = "" if expected else f"{type(error).__name__}: "
        print(f"error: {name}{text}", file=sys.stderr)
        return 1


def parser():
    """The parser of all commands."""
    form = argparse.RawDescriptionHelpFormatter
    top = argparse.ArgumentParser(
        prog="keras-vit",
        description="Vision Transformers in Keras 3: published weights, predictions, conversions.",
        epilog="keras-vit COMMAND --help tells what a command takes, with an example. What stands "
        "in [brackets] may be left out; flags without a value are off by default.",
        formatter_class=form,
    )
    text = "print the versions and the backend"
    top.add_argument("--version", action="version", version=versions(), help=text)
    commands = top.add_subparsers(dest="command", metavar="COMMAND")
    width = shutil.get_terminal_size().columns - 2
    for name, place in COMMANDS.items():
        module = importlib.import_module(f"keras_vit_cli.{place}")
        run = getattr(module, f"run_{name}")
        text, example = (run.__doc__ or "\n").split("\n", 1)
        command = commands.add_parser(
            name,
            help=text[:1].lower() + text[1:-1],
            description=textwrap.fill(text, width),
            epilog=f"What stands in [brackets] may be left out.\n\nexample:\n  {example.strip()}",
            formatter_class=form,
        )
        getattr(module, f"add_{name}")(functools.partial(_add, command))
        group = command.add_argument_group("of every command")
        text = "what Keras computes with (default: $KERAS_BACKEND, or Keras's own if installed)"
        group.add_argument("--backend", choices=BACKENDS, help=text)
        group.add_argument("--traceback", help="show where an error came from", **FLAG)
        # What the parser cannot tell, a command refuses itself: as wrong usage, with this text.
        command.set_defaults(run=run, refuse=command.error)
    return top


def _add(command, names, text=None, default_text=None, **options):
    """Adds an argument whose help says whether it may be left out, and what holds then.

    `names` are one, or several parted by spaces: those of one argument, or, without more, those of
    several in `ARGUMENTS`. What the help `text` and the `options` leave out is said there, too.
    `default_text` is of a default that is decided later.
    """
    names = names.split()
    if not text and len(names) > 1:
        for name in names:
            _add(command, name)
        return
    options = ARGUMENTS.get(names[0], {}) | options
    options["help"] = text or options["help"]
    may_be_left_out = names[0].startswith("-") or options.get("nargs") in ("?", "*")
    takes_a_value = options.get("action") not in ("store_true", "store_const")
    if may_be_left_out and takes_a_value and not re.search("default:|optional", options["help"]):
        default = options.get("default") or default_text
        options["help"] += f" (default: {default})" if default else " (optional)"
    command.add_argument(*names, **options)


def _one_line(text):
    """A text of several lines in one: "; " parts what no punctuation parts."""
    with without_keras():
        from keras_vit.text import abridged, visible

    line = " ".join(re.sub(r"(?<=[^.,:;\s])\s*\n", "; ", str(text).strip()).split())
    return abridged(visible(line))


def _warn(message, category, filename, lineno, file=None, line=None):
    if not issubclass(category, (DeprecationWarning, FutureWarning)):
        print(f"warning: {_one_line(message)}", file=sys.stderr)


@contextlib.contextmanager
def _interruptible():
    """Ctrl-C stops a command also while JAX's hook runs, which would swallow KeyboardInterrupt."""

    # It wakes a thread that waits; Windows does not have it.
    again = getattr(signal, "pthread_kill", lambda _, number: signal.raise_signal(number))

    def interrupt(number, frame):
        if frame is not None and frame.f_code.co_name == "_xla_gc_callback":
            threading.Timer(0.05, again, [threading.main_thread().ident, number]).start()
        else:
            raise KeyboardInterrupt

    usual = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if usual and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    finally:
        if signal.getsignal(signal.SIGINT) is interrupt:
            signal.signal(signal.SIGINT, signal.default_int_handler)
