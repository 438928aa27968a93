"""Tests and intervals for differences between two models, over seeds and over tasks.

A difference is that of two scores of one seed on one task. Two questions can be asked of the mean
over tasks of the mean over seeds, and no test answers both:

  these tasks       would other seeds say the same? What varies is the seeds' noise;
                    ``sign_flip`` of all differences, ``mean_interval``.
  tasks in general  would other tasks say the same? What varies is how far the tasks' true
                    differences lie apart, which more seeds do not help;
                    ``sign_flip``, ``t_test`` and ``t_interval`` of the tasks' means.

``bootstrap`` over tasks x seeds, the paper's, asks a third: it takes each of the differences as one
drawn from all that there could be. Where tasks differ, those of one task go together, and it is too
sure (``calibration`` has the figures).

Leading axes are repetitions, such as simulations; p values are two-sided.
"""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float
from scipy import special

ENUMERATED = 16  # values: up to that many, all of their signs are tried
DRAWS = 99_999
CONFIDENCE = 0.95
LEVEL = 0.05  # p values up to it are called significant
FEWEST = 6  # values: of fewer, the least p value of `sign_flip` is above LEVEL
ROUNDING = 1e-12  # of the sum of sizes: sums that near are equal


def sign_flip(
    values: Float[np.ndarray, "*r n"], *, draws: int = DRAWS, seed: int = 0
) -> Float[np.ndarray, "*r"]:
    """Returns the p value of the sum of values, had each been as likely to be its negative.

    It is the share of all 2^n choices of signs that give a sum as far from 0 or farther; above
    ``ENUMERATED`` values that of ``draws`` random ones, and of the one seen. Holds its level,
    whatever the distribution, if under the null hypothesis each value is independent of the others
    and symmetric about 0: of pairs, if the two of a pair could be exchanged.
    """
    n = _count(values, least=1)
    seen = np.abs(values.sum(-1, keepdims=True))
    near = seen - ROUNDING * np.abs(values).sum(-1, keepdims=True)
    exact = n <= ENUMERATED
    # A choice and its opposite are as far from 0: of all, those with a first sign of + will do.
    choices = 2 ** (n - 1) if exact else draws
    generator = np.random.default_rng(seed)
    hits, done = np.zeros(values.shape[:-1]), 0
    for size in _portions(choices, values):
        if exact:
            negative = np.arange(done, done + size)[:, None] >> np.arange(n)[None] & 1
        else:
            negative = generator.integers(0, 2, (size, n), dtype=np.int8)
        sums = values @ (1.0 - 2 * negative).T
        hits += (np.abs(sums) >= near).sum(-1)
        done += size
    return np.asarray(hits / choices if exact else (hits + 1) / (draws + 1))


def bootstrap(
    values: Float[np.ndarray, "*r n"], *, draws: int = 9_999, seed: int = 0
) -> Float[np.ndarray, "*r"]:
    """Returns the p value of the sum of values by resampling them with replacement.

    Twice the share of resampled sums on the other side of 0, or on it; never 0, as the values seen
    count as one more.
    """
    n = _count(values, least=1)
    below, above = np.zeros(values.shape[:-1]), np.zeros(values.shape[:-1])
    zero = ROUNDING * np.abs(values).sum(-1, keepdims=True)
    generator = np.random.default_rng(seed)
    for size in _portions(draws, values):
        counts = generator.multinomial(n, np.full(n, 1 / n), size).astype(float)
        sums = values @ counts.T
        below += (sums <= zero).sum(-1)
        above += (sums >= -zero).sum(-1)
    return np.asarray(np.minimum(1.0, 2 * (np.minimum(below, above) + 1) / (draws + 1)))


def _portions(draws: int, values: np.ndarray) -> list[int]:
    """Returns how many draws to make at a time, so that memory stays at some 100 MB."""
    n = values.shape[-1]
    size = max(1, 4_000_000 // (n + values.size // n))
    return [min(size, draws - done) for done in range(0, draws, size)]


def t_test(values: Float[np.ndarray, "*r n"]) -> Float[np.ndarray, "*r"]:
    """Returns the p value of the mean of normal values by Student's t.

    Values that are all the same have 0, or 1 where they are 0.
    """
    n = _count(values, least=2)
    mean, error = values.mean(-1), values.std(-1, ddof=1) / np.sqrt(n)
    with np.errstate(divide="ignore", invalid="ignore"):
        p = 2 * special.stdtr(n - 1, -np.abs(mean / error))
    return np.where(error > 0, p, np.where(mean == 0, 1.0, 0.0))


def t_interval(
    values: Float[np.ndarray, "*r n"], confidence: float = CONFIDENCE
) -> tuple[Float[np.ndarray, "*r"], Float[np.ndarray, "*r"]]:
    """Returns the ends of the confidence interval of the mean of normal values."""
    n = _count(values, least=2)
    half = special.stdtrit(n - 1, (1 + confidence) / 2) * values.std(-1, ddof=1) / np.sqrt(n)
    return np.asarray(values.mean(-1) - half), np.asarray(values.mean(-1) + half)


def mean_interval(
    groups: Sequence[Float[np.ndarray, "*r _"]], confidence: float = CONFIDENCE
) -> tuple[Float[np.ndarray, "*r"], Float[np.ndarray, "*r"]]:
    """Returns the ends of the confidence interval of the mean of the groups' true means.

    The groups (tasks) are those that are meant, none a sample of others: what is uncertain is the
    mean of each, by its own standard deviation. Degrees of freedom by Welch and Satterthwaite.

    Args:
      groups: each group's normal values, two or more.
    """
    sizes = np.array([_count(group, least=2) for group in groups])
    mean = np.mean([group.mean(-1) for group in groups], axis=0)
    shares = np.stack([group.var(-1, ddof=1) for group in groups], -1) / (sizes * len(groups) ** 2)
    variance = shares.sum(-1)
    with np.errstate(divide="ignore", invalid="ignore"):
        freedom = variance**2 / (shares**2 / (sizes - 1)).sum(-1)
    freedom = np.where(variance > 0, freedom, 1.0)
    half = special.stdtrit(freedom, (1 + confidence) / 2) * np.sqrt(variance)
    return np.asarray(mean - half), np.asarray(mean + half)


def shares_of_mean(groups: Sequence[Float[np.ndarray, "*r _"]]) -> Float[np.ndarray, "*r n"]:
    """Returns all groups' values, so weighted that their sum is the mean of the groups' means."""
    parts = [group / (_count(group, least=1) * len(groups)) for group in groups]
    return np.concatenate(parts, -1)


def holm(p_values: Float[np.ndarray, "*r n"]) -> Float[np.ndarray, "*r n"]:
    """Returns p values corrected for being n: to reject those below 5 % errs in 5 % of families.

    Holm's: the least times n, the next times n - 1, ..., none below the one before it. Whatever
    the dependence between them.
    """
    order = np.argsort(p_values, -1, kind="stable")
    ranked = np.take_along_axis(p_values, order, -1)
    n = p_values.shape[-1]
    raised = np.minimum(1.0, np.maximum.accumulate(ranked * np.arange(n, 0, -1), axis=-1))
    corrected = np.empty_like(raised)
    np.put_along_axis(corrected, order, raised, -1)
    return corrected


def least_p(n: int) -> float:
    """Returns the smallest p value that ``sign_flip`` can have for n values that are enumerated."""
    return 2.0 ** (1 - n)


def _count(values: np.ndarray, least: int) -> int:
    n = values.shape[-1]
    if n < least:
        raise ValueError(f"{n} values: {least} or more are needed")
    return n
