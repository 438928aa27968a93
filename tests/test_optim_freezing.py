"""Freezing, in the paper's reading (gradients zeroed: drift) and the strict one (bit-identical)."""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from cpt_jax.config import Optimizer
from cpt_jax.training import optim

SHAPES = {"low.kernel": (6, 4), "low.scale": (4,), "high.kernel": (4, 3), "high.scale": (3,)}
LOW = frozenset({"low.kernel", "low.scale"})
PEAK, DECAY, B1, B2, EPS = 1e-2, 0.05, 0.9, 0.98, 1e-6
OPTIMIZER = Optimizer(weight_decay=DECAY, b1=B1, b2=B2, eps=EPS)
TX = optim.make_tx(OPTIMIZER, PEAK)


def grads_of(step: int):
    rng = np.random.default_rng([11, step])
    return {p: rng.normal(size=s).astype(np.float32) for p, s in SHAPES.items()}


@functools.cache
def compiled(mode, frozen, clip):
    tx = optim.make_tx(dataclasses.replace(OPTIMIZER, clip_norm=clip), PEAK)
    return jax.jit(functools.partial(optim.apply, tx, frozen=frozen, freeze_mode=mode))


def train(steps, state=None, mode="zero_grad", frozen=frozenset(), clip=None):
    if state is None:
        rng = np.random.default_rng(3)
        params = {p: rng.normal(size=s).astype(np.float32) for p, s in SHAPES.items()}
        params["low.kernel"][0] = [0.0, -0.0, 1e-40, -1.0]  # bits that adding zero may change
        params = {p: jnp.asarray(leaf) for p, leaf in params.items()}
        state = params, TX.init(params)
    params, opt_state = state
    for step in steps:
        lr = jnp.float32(PEAK * (1 - step / 400))
        params, opt_state, info = compiled(mode, frozen, clip)(
            lr, grads_of(step), opt_state, params
        )
    return params, opt_state, info


def adam(opt_state) -> Any:  # optax types moments as trees; ours are dicts by path
    (state,) = [part for part in opt_state if isinstance(part, optax.ScaleByAdamState)]
    return state


def bits(tree):
    return {path: np.asarray(leaf).tobytes() for path, leaf in sorted(tree.items())}


def only(tree, paths):
    return {path: leaf for path, leaf in tree.items() if path in paths}


def test_zero_grad_drifts_by_the_closed_form():
    params, state, _ = train(range(20))
    end, end_state, _ = train(range(20, 120), (params, state), "zero_grad", LOW)
    for path in LOW:
        p, m0, v0 = (
            np.asarray(tree[path], np.float64) for tree in (params, adam(state).mu, adam(state).nu)
        )
        for k in range(1, 101):  # the k-th frozen step is Adam's 20 + k-th
            lr = PEAK * (1 - (19 + k) / 400)
            m = B1**k * m0 / (1 - B1 ** (20 + k))
            v = B2**k * v0 / (1 - B2 ** (20 + k))
            decay = DECAY if p.ndim == 2 else 0
            p = p - lr * m / (np.sqrt(v) + EPS) - lr / PEAK * decay * p
        np.testing.assert_allclose(end[path], p, rtol=1e-5, atol=1e-6)
        assert np.abs(np.asarray(end[path]) - params[path]).max() > 1e-3, "it should drift"
        np.testing.assert_allclose(adam(end_state).mu[path], B1**100 * m0, rtol=1e-4, atol=1e-12)
    assert adam(end_state).count == 120


def test_strict_leaves_every_bit_for_100_steps_with_weight_decay():
    params, state, _ = train(range(1))
    params = {**params, "low.kernel": params["low.kernel"].at[0].set([0.0, -0.0, 1e-40, -1.0])}
    end, _, _ = train(range(1, 101), (params, state), "strict", LOW)
    assert bits(only(end, LOW)) == bits(only(params, LOW))
    for path in SHAPES.keys() - LOW:
        assert np.abs(np.asarray(end[path]) - params[path]).max() > 1e-3


def test_strict_leaves_every_bit_uncompiled_too():
    # XLA drops the addition of a zero from a compiled step; on its own it would turn -0.0 into
    # 0.0, and flush the denormal.
    params, state, _ = train(range(1))
    params = {**params, "low.kernel": params["low.kernel"].at[0].set([0.0, -0.0, 1e-40, -1.0])}
    grads = {path: jnp.asarray(leaf) for path, leaf in grads_of(1).items()}
    end, _, _ = optim.apply(
        TX, jnp.float32(PEAK), grads, state, params, frozen=LOW, freeze_mode="strict"
    )
    assert bits(only(end, LOW)) == bits(only(params, LOW))


def test_the_others_never_notice():
    high = SHAPES.keys() - LOW
    free, free_state, _ = train(range(30))
    for mode in ("zero_grad", "strict"):
        params, state, _ = train(range(30), None, mode, LOW)
        assert bits(only(params, high)) == bits(only(free, high))
        for moment in ("mu", "nu"):
            ours, theirs = getattr(adam(state), moment), getattr(adam(free_state), moment)
            assert bits(only(ours, high)) == bits(only(theirs, high))


def test_strict_moments_keep_receiving_true_gradients():
    _, state, _ = train(range(30), None, "strict", LOW)
    _, free, _ = train(range(30))
    assert bits(adam(state).mu) == bits(adam(free).mu)
    assert bits(adam(state).nu) == bits(adam(free).nu)


@pytest.mark.parametrize("mode", ["zero_grad", "strict"])
def test_an_unfreeze_starts_warm(mode):
    before = train(range(20))[:2]
    frozen = train(range(20, 30), before, mode, LOW)[:2]
    after, state, _ = train([30], frozen)
    assert adam(state).count == 31
    for path in SHAPES:  # a cold start would have mu = (1 - b1) * gradient
        mu = B1 * np.asarray(adam(frozen[1]).mu[path]) + (1 - B1) * grads_of(30)[path]
        np.testing.assert_allclose(adam(state).mu[path], mu, rtol=1e-5, atol=1e-7)
        assert np.abs(np.asarray(adam(frozen[1]).mu[path])).max() > 1e-3
        assert not np.array_equal(after[path], frozen[0][path])


def test_what_the_clip_norm_counts():
    grads = grads_of(0)
    squares = {path: (g.astype(np.float64) ** 2).sum() for path, g in grads.items()}
    rest = np.sqrt(sum(squares[path] for path in SHAPES.keys() - LOW))
    for mode, norm in (("zero_grad", rest), ("strict", np.sqrt(sum(squares.values())))):
        _, state, info = train([0], None, mode, LOW, clip=0.1)
        np.testing.assert_allclose(info.grad_norm, norm, rtol=1e-6)
        clipped = grads["high.kernel"] * 0.1 / norm
        np.testing.assert_allclose(adam(state).mu["high.kernel"], 0.1 * clipped, rtol=1e-5)


def test_update_norm_leaves_out_what_strict_freezes():
    before, state, _ = train(range(5))
    after, _, info = train([5], (before, state), "strict", LOW)
    moved = [np.asarray(after[p]) - np.asarray(before[p]) for p in SHAPES.keys() - LOW]
    expected = np.sqrt(sum((m.astype(np.float64) ** 2).sum() for m in moved))
    np.testing.assert_allclose(info.update_norm, expected, rtol=1e-4)
