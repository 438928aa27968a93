"""SIGTERM and Ctrl-C as a wish to stop: the run saves, and goes on from there another time."""

import contextlib
import os
import signal
from collections.abc import Iterator

import jax
import numpy as np
from jax.experimental import multihost_utils

STOPPING = (signal.SIGTERM, signal.SIGINT)


class StopWish:
    """Asked by the loop after each step: whether to save and stop now.

    Attributes:
      signal: the signal that came; None as long as none did.
    """

    def __init__(self):
        self.signal: signal.Signals | None = None

    def __call__(self, step: int) -> bool:
        """Whether this is the step to stop at: the same in all processes, whichever was told."""
        if jax.process_count() == 1:
            return self.signal is not None
        if not multihost_utils.reached_preemption_sync_point(step):
            return False
        told = multihost_utils.process_allgather(np.int32(self.signal or 0))
        self.signal = signal.SIGINT if signal.SIGINT in told else signal.SIGTERM
        return True


@contextlib.contextmanager
def stop_wish() -> Iterator[StopWish]:
    """Within it the first SIGTERM or SIGINT is a wish; the second acts as it always does.

    Where a run has several processes, SIGTERM belongs to JAX's preemption service, which makes
    them agree on a step; a SIGINT is handed on to it.
    """
    wish = StopWish()
    alone = jax.process_count() == 1
    before = {}

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    def note(number: int, _) -> None:
        wish.signal = signal.Signals(number)
        restore()
        text = f"{wish.signal.name}: saving after this step; once more stops without saving\n"
        with contextlib.suppress(OSError):  # nobody reads it: a Ctrl-C ended `| tee` as well
            os.write(2, text.encode())  # print may be what was interrupted
        if not alone:
            os.kill(os.getpid(), signal.SIGTERM)

    for number in STOPPING if alone else (signal.SIGINT,):
        before[number] = signal.signal(number, note)
    try:
        yield wish
    finally:
        restore()
