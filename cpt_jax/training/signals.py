"""SIGTERM and Ctrl-C as a wish to stop: the run saves, and goes on from there another time."""

import contextlib
import os
import signal
from collections.abc import Iterator

import jax
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
        """Whether this is the step to stop at: the same on all hosts, whichever got the signal."""
        if jax.process_count() > 1 and multihost_utils.reached_preemption_sync_point(step):
            self.signal = signal.SIGTERM
        return self.signal is not None


@contextlib.contextmanager
def stop_wish() -> Iterator[StopWish]:
    """Within it the first SIGTERM or SIGINT is a wish; the second acts as it always does.

    Of several hosts' processes, SIGTERM belongs to JAX's preemption service, which makes them agree
    on a step.
    """
    wish = StopWish()
    before = {}

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    def note(number: int, _) -> None:
        wish.signal = signal.Signals(number)
        restore()
        text = f"{wish.signal.name}: saving after this step; once more stops without saving\n"
        os.write(2, text.encode())  # print may be what was interrupted

    if jax.process_count() == 1:
        before.update({number: signal.signal(number, note) for number in STOPPING})
    try:
        yield wish
    finally:
        restore()
