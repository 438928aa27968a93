"""CKA against other formulas, its invariances, and what few texts and single precision do to it."""

import numpy as np
import pytest

from cpt_jax.analysis.cka import cka, debiased, gram
from cpt_jax.analysis.models import regions_of


def features(rng: np.random.Generator, n: int, d: int) -> np.ndarray:
    return rng.normal(size=(n, d)) * rng.uniform(0.1, 3, d)


def by_features(x: np.ndarray, y: np.ndarray) -> float:
    """||Y'X||^2 / (||X'X|| ||Y'Y||), of features, not texts."""
    x, y = x - x.mean(0), y - y.mean(0)
    norms = np.linalg.norm(x.T @ x) * np.linalg.norm(y.T @ y)
    return float(np.linalg.norm(y.T @ x) ** 2 / norms)


def by_sums(x: np.ndarray, y: np.ndarray) -> float:
    """The unbiased HSIC of Song et al. (2012), by its sums over the texts."""
    n = len(x)

    def hsic(k, l):  # noqa: E741
        k, l = k - np.diag(np.diag(k)), l - np.diag(np.diag(l))  # noqa: E741
        one = np.ones(n)
        middle = (one @ k @ one) * (one @ l @ one) / ((n - 1) * (n - 2))
        return (np.trace(k @ l) + middle - 2 / (n - 2) * (one @ k @ l @ one)) / (n * (n - 3))

    k, l = x @ x.T, y @ y.T  # noqa: E741
    return hsic(k, l) / np.sqrt(hsic(k, k) * hsic(l, l))


@pytest.mark.parametrize(("n", "d", "e"), [(20, 5, 5), (20, 5, 9), (12, 40, 30), (4, 3, 3)])
def test_both_forms_are_what_other_formulas_say(n, d, e):
    rng = np.random.default_rng(n)
    x = features(rng, n, d)
    y = x @ rng.normal(size=(d, e)) + features(rng, n, e)
    assert cka(gram(x), gram(y)) == pytest.approx(by_features(x, y), rel=1e-10)
    # Not of centred states: what is taken from all rows alike is nothing to it.
    assert debiased(gram(x), gram(y)) == pytest.approx(by_sums(x, y), rel=1e-8)


def test_turning_moving_and_scaling_change_nothing():
    rng = np.random.default_rng(1)
    x, y = features(rng, 32, 24), features(rng, 32, 24)
    turn, _ = np.linalg.qr(rng.normal(size=(24, 24)))
    moved = 3.5 * x @ turn + 100
    for form in (cka, debiased):
        assert form(gram(x), gram(x)) == pytest.approx(1, abs=1e-12)
        assert form(gram(x), gram(moved)) == pytest.approx(1, abs=1e-9)
        assert form(gram(moved), gram(y)) == pytest.approx(form(gram(x), gram(y)), rel=1e-9)
        assert form(gram(y), gram(x)) == pytest.approx(form(gram(x), gram(y)), rel=1e-12)


def test_few_texts_bias_one_form_and_not_the_other():
    """Independent normals, 32 texts: 0 is the truth; the mean of 200 pairs, by its own error."""
    rng = np.random.default_rng(2)
    pairs = [[gram(rng.normal(size=(32, 64))) for _ in range(2)] for _ in range(200)]
    biased = np.array([cka(*pair) for pair in pairs])
    fair = np.array([debiased(*pair) for pair in pairs])
    assert biased.mean() > 0.5
    assert abs(fair.mean()) < 4 * fair.std() / np.sqrt(200)


def test_single_precision_would_lose_it():
    """States with a large common part, as deep layers have: a part in a million apart."""
    rng = np.random.default_rng(3)
    x = rng.normal(size=(40, 16)).astype(np.float32)
    common = np.float32(3e3)
    y = x + np.float32(1e-3) * rng.normal(size=(40, 16)).astype(np.float32)
    wide_x, wide_y = ((states + common).astype(np.float64) for states in (x, y))
    exact = 1 - by_features(wide_x, wide_y)
    assert 1 - cka(gram(x + common), gram(y + common)) == pytest.approx(exact, rel=1e-6)
    narrow = [(states + common) - (states + common).mean(0) for states in (x, y)]
    k, l = (states @ states.T for states in narrow)  # noqa: E741
    single = 1 - np.sum(k * l) / np.sqrt(np.sum(k * k) * np.sum(l * l))
    assert abs(single / exact - 1) > 0.01


def test_what_has_no_answer():
    rng = np.random.default_rng(4)
    x = features(rng, 8, 4)
    assert np.isnan(cka(gram(np.ones((8, 4))), gram(x)))
    with pytest.raises(ValueError, match="3 texts; allowed: 4 or more"):
        gram(x[:3])
    x[2, 1] = np.inf
    with pytest.raises(ValueError, match="states that are not finite"):
        gram(x)


def test_regions():
    assert regions_of(None, 22) == {"0-6": range(7), "7-14": range(7, 15), "15-21": range(15, 22)}
    assert regions_of("0-7,8-14,15-21", 22)["8-14"] == range(8, 15)
    assert regions_of("3", 7) == {"3-3": range(3, 4)}
    assert list(regions_of(None, 2)) == ["0-0", "1-1"]
    for text, fault in (("0-7", "0-7; the model has layers 0 to 6"), ("a", "not like 0-7,8-14")):
        with pytest.raises(ValueError, match=fault):
            regions_of(text, 7)
