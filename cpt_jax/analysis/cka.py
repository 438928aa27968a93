"""Linear centred kernel alignment of two models' states of the same texts (Kornblith et al., 2019).

In Gram form and in float64: of deep layers, whose states have a large common part, single precision
loses what is left after centring (arXiv 2605.12438, section 5.4).
"""

import numpy as np
from jaxtyping import Float

LEAST = 4  # texts: the debiased form divides by n - 3

States = Float[np.ndarray, "n d"]
Gram = Float[np.ndarray, "n n"]


def gram(states: States) -> Gram:
    """Inner products of the centred states of all pairs of texts, float64.

    Raises: ValueError where there are fewer than `LEAST` texts, or numbers that are not finite.
    """
    if len(states) < LEAST:
        raise ValueError(f"{len(states)} texts; allowed: {LEAST} or more")
    wide = np.asarray(states, np.float64)
    if not np.isfinite(wide).all():
        raise ValueError("states that are not finite")
    wide = wide - wide.mean(0)
    return wide @ wide.T


def cka(k: Gram, l: Gram) -> float:  # noqa: E741
    """tr(KL) / sqrt(tr(K^2) tr(L^2)), from 0 to 1; biased upwards where texts are few.

    1 for states that are one another turned, mirrored, moved or scaled; NaN where a model's states
    are all alike.
    """
    norms = np.sum(k * k) * np.sum(l * l)
    return float(np.sum(k * l) / np.sqrt(norms)) if norms > 0 else float("nan")


def debiased(k: Gram, l: Gram) -> float:  # noqa: E741
    """The same of U-centred Gram matrices (Szekely and Rizzo, 2014): about 0 where independent.

    May be below 0; NaN where a model's states are all alike, or say no more than chance.
    """
    return cka(_u_centred(k), _u_centred(l))


def _u_centred(k: Gram) -> Gram:
    n = len(k)
    bare = k - np.diag(np.diag(k))
    means = bare.sum(0) / (n - 2)
    centred = bare - means[:, None] - means[None, :] + bare.sum() / ((n - 1) * (n - 2))
    np.fill_diagonal(centred, 0)
    return centred
