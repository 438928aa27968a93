"""What the C library does with memory that is freed."""

import ctypes
import resource
from pathlib import Path

# Of glibc's malloc.h; another C library has no mallopt, or none that knows them.
_TRIM_THRESHOLD, _MMAP_MAX, _ARENA_MAX = -1, -4, -8

_kept = False


def keep_freed() -> None:
    """Makes this process keep the memory it frees; where the C library cannot, does nothing.

    A training step on the CPU allocates gigabytes and frees them at its end. glibc hands blocks of
    that size back to the system, and the next step meets every page of them as a fault: a sixth of
    the step's time (`docs/performance.md`).
    """
    global _kept
    try:
        libc = ctypes.CDLL(None)
        mallopt, _ = libc.mallopt, libc.malloc_trim
    except (AttributeError, OSError):
        return
    for parameter, value in ((_MMAP_MAX, 0), (_TRIM_THRESHOLD, -1), (_ARENA_MAX, 1)):
        mallopt(parameter, value)
    _kept = True


def keeps_freed() -> bool:
    """Whether `keep_freed` took effect."""
    return _kept


def hand_back_if_short() -> None:
    """Between two steps, hands back what is free if the next might take more than there is left.

    A block that was freed can be broken by a small one that stays, and the next step then takes
    more from the system, though it needs no more: it is given half as much again as is held.
    """
    left = available()
    if _kept and left is not None and _held() > 2 * left:
        ctypes.CDLL(None).malloc_trim(0)


def _held() -> int:
    """Bytes of this process in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def available() -> int | None:
    """Bytes that the system can still give; None where it does not tell."""
    told = Path("/proc/meminfo")
    if not told.exists():
        return None
    lines = told.read_text().splitlines()
    (kib,) = (line.split()[1] for line in lines if line.startswith("MemAvailable:"))
    return int(kib) * 1024
