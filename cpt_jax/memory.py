"""What the C library does with memory that is freed."""

import ctypes

# Of glibc's malloc.h; another C library has no mallopt, or none that knows them.
_TRIM_THRESHOLD, _MMAP_MAX, _ARENA_MAX = -1, -4, -8


def keep_freed() -> None:
    """Makes this process keep the memory it frees; where the C library cannot, does nothing.

    A training step on the CPU allocates gigabytes and frees them at its end. glibc hands blocks of
    that size back to the system, and the next step meets every page of them as a fault: a sixth of
    the step's time (`docs/performance.md`). The process stays as large as its largest step.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):
        return
    for parameter, value in ((_MMAP_MAX, 0), (_TRIM_THRESHOLD, -1), (_ARENA_MAX, 1)):
        mallopt(parameter, value)
