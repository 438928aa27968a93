"""Learning rates in tokens: exact where phases begin and end, on host and device."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cpt_jax import config
from cpt_jax.training import optim
from cpt_jax.training.optim import learning_rate

PEAK = 2e-4
ROWS = 384 * 8192  # tokens of the paper's batch


def phase(tokens=10_000_000_000, **rate):
    return config.Phase(
        name="clm",
        objective="clm",
        tokens=tokens,
        batch_size=384,
        learning_rate=config.LearningRate(**{"peak": PEAK, **rate}),
    )


def rate_of(phase):
    return functools.partial(learning_rate, phase)


def exactly(value, expected):
    assert value.dtype == jnp.float32
    assert float(value) == float(np.float32(expected))


@pytest.mark.parametrize("kind", optim.DESCENTS)
@pytest.mark.parametrize("total", [1_000_000_000, 49_999_999_991])  # a prime of no fp32 value
@pytest.mark.parametrize("warmup", [0, 99_999_989])
def test_exact_at_the_start_the_end_of_warmup_and_the_end(kind, total, warmup):
    schedule = rate_of(phase(total, kind=kind, end_fraction=0.1, warmup_tokens=warmup))
    end = PEAK if kind == "warmup_constant" else 0.1 * PEAK
    for call in (schedule, jax.jit(schedule)):
        exactly(call(jnp.float32(0)), 0 if warmup else PEAK)
        exactly(call(jnp.float32(warmup)), PEAK)
        exactly(call(jnp.float32(total)), end)
        exactly(call(jnp.float32(1.5 * total)), end)


def test_half_way_by_hand():
    # With a warmup of 100, the second half of 1,100 begins at 600.
    at: dict[config.ScheduleKind, float] = {
        "warmup_constant": 1.0,
        "one_minus_sqrt": 0.1 + 0.9 * (1 - math.sqrt(0.5)),
        "linear": 0.55,
        "cosine": 0.55,
    }
    for kind, share in at.items():
        schedule = rate_of(phase(1100, kind=kind, end_fraction=0.1, warmup_tokens=100))
        np.testing.assert_allclose(schedule(600), share * PEAK, rtol=1e-6)
        np.testing.assert_allclose(schedule(50), 0.5 * PEAK, rtol=1e-6)
    quarter = learning_rate(phase(1000, kind="cosine"), 250)
    np.testing.assert_allclose(quarter, PEAK * (1 + math.sqrt(0.5)) / 2, rtol=1e-6)


def test_the_papers_two_phases_step_by_step():
    # Steps as the train step counts them: int32 on the device, 3.1M tokens each.
    steps = jnp.arange(3179, dtype=jnp.int32)
    first = phase(kind="warmup_constant", warmup_tokens=100_000_000)
    rates = jax.jit(jax.vmap(rate_of(first)))(steps * jnp.float32(ROWS))
    exact = [min(s * ROWS / 1e8, 1.0) * PEAK for s in range(3179)]
    np.testing.assert_allclose(rates, exact, rtol=3e-7)
    assert (np.asarray(rates[32:]) == np.float32(PEAK)).all()

    decay = phase(1_000_000_000, kind="one_minus_sqrt", end_fraction=0.1)
    rates = jax.jit(jax.vmap(rate_of(decay)))(steps[:318] * jnp.float32(ROWS))
    exact = [2e-5 + 1.8e-4 * (1 - math.sqrt(s * ROWS / 1e9)) for s in range(318)]
    np.testing.assert_allclose(rates, exact, rtol=2e-6)
    exactly(rates[0], PEAK)
    assert rates[-1] > 2e-5, "the last step is taken before the end"


def test_50_billion_tokens_fit_in_float32():
    schedule = rate_of(phase(50_000_000_000, kind="linear"))
    steps = np.arange(0, 15_895, 97)
    exact = PEAK * (1 - steps * ROWS / 5e10)
    rates = jax.vmap(schedule)(jnp.asarray(steps) * jnp.float32(ROWS))
    np.testing.assert_allclose(rates, exact, atol=2e-7 * PEAK)
