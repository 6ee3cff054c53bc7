"""Settings of the smallest model, and processes that are none."""

from tests.support import BACKEND


def tiny_settings(**changes):
    from architecture import get_architecture
    from settings import Settings

    architecture = get_architecture("Ti/16", 32, depth=1)
    base = Settings("keras_vit", BACKEND, architecture, batch=2, warmup=0)
    return base.replace(**changes)


def run_here(settings, steps, turns=1, **options):
    """`pool.run_once` in this process."""
    from worker import prepare

    turn, facts = prepare(settings)
    return {"until_ready_s": 0.0, **facts}, [turn(steps) for _ in range(turns)]
