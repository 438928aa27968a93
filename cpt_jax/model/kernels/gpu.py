"""Attention on Hopper and Blackwell GPUs: tokamax's Mosaic GPU kernel, fed with intervals.

tokamax's public function knows windows and lengths, but not several documents in a row. Its
internal operator takes the two vectors of `model.ranges`; it stands in this file alone, and only
in the versions it was read in (`VERSIONS`).

`flash` serves the global layers. The kernel's forward pass skips key blocks outside the intervals,
its backward pass visits all of them, so that for a local layer it would do L / (2 window) times the
work: `fold` makes each block of queries a row of its own, beside the few keys its window reaches.

A query with an empty interval is the kernel's blind spot: tokamax 0.0.12 gives it the mean of
whatever keys its block visited, and where a whole block is empty the backward pass computes
0 * inf. Both functions therefore let such a query see its own key and set its output to 0, which
stops its gradient as well.
"""

import functools
import importlib
import importlib.metadata
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from absl import flags
from jax.typing import DTypeLike
from jaxtyping import Array, Bool, Float, Int

# tokamax's version -> what it runs on. Another is refused: what is called here is not its API.
VERSIONS = {"0.0.12": "Python 3.11", "0.0.17": "Python 3.12 and jax 0.11.1 or later"}
KERNEL = "mosaic_gpu"  # tokamax's name

DTYPES = (jnp.bfloat16, jnp.float16)
HEAD_SIZE = 64
BLOCK = 128  # queries, of the kernel's own blocks and of the folded ones
MAX_STRIP = 4 * BLOCK  # keys: beyond, the copies of keys and values cost more than is saved

Inner = Callable[..., Float[Array, "B Q H K"]]


def missing() -> str | None:
    """Why tokamax cannot be used in this environment, None where it can."""
    known = " and ".join(f"{version} ({needs})" for version, needs in VERSIONS.items())
    try:
        version = importlib.metadata.version("tokamax")
    except importlib.metadata.PackageNotFoundError:
        return f"it needs the package tokamax; supported: {known}"
    if version not in VERSIONS:
        return f"tokamax {version} is installed; supported: {known}"
    return None


def refusal(
    device: Any, *, dtype: DTypeLike, head_size: int, length: int, window: int | None
) -> str | None:
    """Why a device (or a topology's) cannot attend so, None where it can.

    Args:
      device: a JAX device: its platform and compute capability count, whether it is here or not.
      dtype: of q, k and v.
      head_size: K, channels of a head.
      length: L, tokens of a row.
      window: the widest reach of a layer that `fold` is to serve; None without one.
    """
    capability = getattr(device, "compute_capability", None)
    if device.platform != "gpu" or str(capability).split(".")[0] not in ("9", "10"):
        having = f"{device.device_kind!r}" + (f" has {capability}" if capability else " is none")
        return f"it needs a GPU of compute capability 9 or 10 (Hopper, Blackwell), and {having}"
    return missing() or shape_refusal(dtype, head_size, length, window)


def shape_refusal(
    dtype: DTypeLike, head_size: int, length: int, window: int | None = None
) -> str | None:
    """Why arrays of these shapes cannot be attended over; the arguments are `refusal`'s."""
    if jnp.dtype(dtype) not in map(jnp.dtype, DTYPES):
        return f"it computes in bfloat16 or float16, not {jnp.dtype(dtype).name}"
    if head_size != HEAD_SIZE:
        return f"it was checked for heads of {HEAD_SIZE} channels, and these have {head_size}"
    if length % BLOCK:
        return f"rows must be multiples of {BLOCK} tokens, and {length} is not"
    if window is not None and (strip := _strip(window, window)) > min(MAX_STRIP, length):
        return (
            f"a window of {window} needs strips of {strip} keys; allowed: {min(MAX_STRIP, length)}"
        )
    return None


@partial(jax.jit, static_argnames=("causal", "implementation"))
def flash(
    q: Float[Array, "B L H K"],
    k: Float[Array, "B L H K"],
    v: Float[Array, "B L H K"],
    k_start: Int[Array, "B L"],
    k_end: Int[Array, "B L"],
    *,
    causal: bool,
    implementation: str = KERNEL,
) -> Float[Array, "B L H K"]:
    """Attention of a global layer, in q's dtype; softmax in fp32.

    Args:
      causal: every interval that is not empty ends at its query; then the backward pass skips the
        blocks behind, too.
      implementation: tokamax's name of a kernel; "xla" computes the same anywhere, densely.

    Raises: ValueError for what `missing` and `shape_refusal` say.
    """
    if implementation == KERNEL:
        _refuse(shape_refusal(q.dtype, q.shape[-1], q.shape[1]))
    start, end, empty = _own_key_if_empty(k_start, k_end)
    inner = partial(tokamax, implementation=implementation)
    # With k_end given tokamax would turn is_causal into it, and lose what it skips by it.
    out = inner(q, k, v, start, None, causal=True) if causal else inner(q, k, v, start, end)
    return jnp.where(empty[..., None, None], 0, out)


@partial(jax.jit, static_argnames=("window", "causal", "implementation"))
def local(
    q: Float[Array, "B L H K"],
    k: Float[Array, "B L H K"],
    v: Float[Array, "B L H K"],
    k_start: Int[Array, "B L"],
    k_end: Int[Array, "B L"],
    *,
    window: int,
    causal: bool,
    implementation: str = KERNEL,
) -> Float[Array, "B L H K"]:
    """Attention of a local layer: `fold` around the kernel; arguments as in `flash`."""
    if implementation == KERNEL:
        _refuse(shape_refusal(q.dtype, q.shape[-1], q.shape[1], window))
    inner = partial(tokamax, implementation=implementation)
    return fold(inner, q, k, v, k_start, k_end, window=window, causal=causal)


def fold(
    inner: Inner,
    q: Float[Array, "B L H K"],
    k: Float[Array, "B L H K"],
    v: Float[Array, "B L H K"],
    k_start: Int[Array, "B L"],
    k_end: Int[Array, "B L"],
    *,
    window: int,
    causal: bool,
) -> Float[Array, "B L H K"]:
    """Attention within `window` tokens (behind the query, if `causal`), blocks of queries as rows.

    A row of n blocks becomes n rows of `BLOCK` queries, each with the strip of keys around it.

    Args:
      inner: `(q [N, Q, H, K], k [N, S, H, K], v, k_start [N, Q], k_end [N, Q])` to `[N, Q, H, K]`,
        attention with the intervals counted from the strip's first key, none of them empty.
      window: tokens; a key further away is not seen even where an interval names it.
      causal: whether every interval ends at its query.
    """
    rows, length, heads, size = q.shape
    unfit = f"rows must be multiples of {BLOCK} tokens, and {length} is not"
    _refuse(unfit if length % BLOCK else None)
    count, strip = length // BLOCK, _strip(window, 0 if causal else window)
    pieces = strip // BLOCK
    start, end, empty = _own_key_if_empty(k_start, k_end)

    def strips(x):
        pad = (window, strip - BLOCK - window)
        padded = jnp.pad(x, ((0, 0), pad, (0, 0), (0, 0)))
        blocks = padded.reshape(rows, count + pieces - 1, BLOCK, heads, size)
        shifted = [blocks[:, i : i + count] for i in range(pieces)]
        return jnp.concatenate(shifted, axis=2).reshape(rows * count, strip, heads, size)

    first = jnp.arange(count, dtype=jnp.int32)[:, None] * BLOCK - window

    def relative(bound):
        return (bound.reshape(rows, count, BLOCK) - first).reshape(rows * count, BLOCK)

    queries = q.reshape(rows * count, BLOCK, heads, size)
    out = inner(queries, strips(k), strips(v), relative(start), relative(end))
    return jnp.where(empty[..., None, None], 0, out.reshape(q.shape))


def tokamax(
    q: Float[Array, "B Q H K"],
    k: Float[Array, "B S H K"],
    v: Float[Array, "B S H K"],
    k_start: Int[Array, "B Q"],
    k_end: Int[Array, "B Q"] | None,
    *,
    causal: bool = False,
    implementation: str = KERNEL,
) -> Float[Array, "B Q H K"]:
    """tokamax's attention over intervals (None: up to the last key), none of them empty.

    Raises: ValueError where tokamax is missing or of another version.
    """
    operators, mask = _internals()
    ends = None if k_end is None else k_end[:, None]
    seen = mask(k_start=k_start[:, None], k_end=ends, is_causal=causal)
    return operators[implementation](q, k, v, mask=seen, logits_scale=q.shape[-1] ** -0.5)


@functools.cache
def _internals() -> tuple[Any, Any]:
    """tokamax's operators by name, and its mask."""
    _refuse(missing())
    attention = importlib.import_module("tokamax._src.ops.attention.api")
    mask = importlib.import_module("tokamax._src.ops.attention.base").Mask
    if not flags.FLAGS.is_parsed():
        # tokamax would read the whole command line as absl's, whoever's it is, and refuse it.
        flags.FLAGS.mark_as_parsed()
    return attention.IMPLEMENTATIONS, mask


def _refuse(reason: str | None) -> None:
    if reason is not None:
        raise ValueError(f"attention through tokamax: {reason}")


def _strip(behind: int, ahead: int) -> int:
    """Keys beside a block of queries, in whole blocks."""
    return -(-(behind + BLOCK + ahead) // BLOCK) * BLOCK


def _own_key_if_empty(
    k_start: Int[Array, "B L"], k_end: Int[Array, "B L"]
) -> tuple[Int[Array, "B L"], Int[Array, "B L"], Bool[Array, "B L"]]:
    """The intervals, empty ones replaced by the query's own key, and which ones those were."""
    empty = k_start >= k_end
    own = jnp.arange(k_start.shape[1], dtype=jnp.int32)[None]
    return jnp.where(empty, own, k_start), jnp.where(empty, own + 1, k_end), empty
