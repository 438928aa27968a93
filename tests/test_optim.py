"""The update rule: Composer's and torch's AdamW, one state for all phases, skipped steps."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from cpt_jax.config import Optimizer
from cpt_jax.model.spec import SIZES
from cpt_jax.training import optim

SHAPES = {"embedding": (7, 4), "layer.kernel": (4, 5), "norm.scale": (5,), "decoder.bias": (7,)}
DECAYED = {"embedding", "layer.kernel"}
PEAK = 2e-2


def example_params(seed=0):
    rng = np.random.default_rng(seed)
    return {p: jnp.asarray(rng.normal(size=s), jnp.float32) for p, s in SHAPES.items()}


def example_grads(step: int):
    rng = np.random.default_rng([7, step])
    return {p: rng.normal(size=s).astype(np.float32) for p, s in SHAPES.items()}


@functools.cache
def stepper(**options):
    """Returns the chain and a compiled step; one compilation per set of options."""
    frozen = {k: options.pop(k) for k in ("frozen", "freeze_mode") if k in options}
    peak = options.pop("peak", PEAK)
    tx = optim.make_tx(Optimizer(**{"weight_decay": 1e-3, **options}), peak)
    return tx, jax.jit(functools.partial(optim.apply, tx, **frozen))


def train(steps, state=None, *, lr=lambda step: PEAK, grads=example_grads, **options):
    """Returns parameters, optimizer state and each step's UpdateInfo."""
    tx, step_fn = stepper(**options)
    params = example_params() if state is None else state[0]
    opt_state = tx.init(params) if state is None else state[1]
    infos = []
    for step in steps:
        params, opt_state, info = step_fn(jnp.float32(lr(step)), grads(step), opt_state, params)
        infos.append(info)
    return params, opt_state, infos


def adam(opt_state) -> Any:  # optax types moments as trees; ours are dicts by path
    (state,) = [part for part in opt_state if isinstance(part, optax.ScaleByAdamState)]
    return state


def assert_bit_equal(a, b):
    assert jax.tree.structure(a) == jax.tree.structure(b)
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        assert np.asarray(x).tobytes() == np.asarray(y).tobytes()


# The rule


def warmup_then_fall(step: int) -> float:
    return PEAK * min(step / 20, 1.0, (220 - step) / 200)


@pytest.mark.torch
def test_200_steps_of_composers_decoupled_adamw():
    import torch

    decay, b1, b2, eps = 1e-2, 0.9, 0.98, 1e-6
    ours, _, _ = train(range(200), lr=warmup_then_fall, weight_decay=decay)
    params = {p: torch.tensor(np.asarray(leaf)) for p, leaf in example_params().items()}
    first = {p: torch.zeros_like(leaf) for p, leaf in params.items()}
    second = {p: torch.zeros_like(leaf) for p, leaf in params.items()}
    for step in range(200):
        lr = warmup_then_fall(step)
        for path, g in example_grads(step).items():
            g = torch.tensor(g)
            if path in DECAYED:
                params[path].mul_(1 - (lr / PEAK) * decay)
            first[path].lerp_(g, 1 - b1)
            second[path].mul_(b2).addcmul_(g, g, value=1 - b2)
            root = (second[path] / (1 - b2 ** (step + 1))).sqrt()
            params[path].addcdiv_(first[path], root + eps, value=-lr / (1 - b1 ** (step + 1)))
    for path, theirs in params.items():
        np.testing.assert_allclose(ours[path], theirs.numpy(), rtol=1e-5, atol=1e-5)


@pytest.mark.torch
def test_200_steps_of_torchs_adamw():
    import torch

    ours, _, _ = train(range(200), lr=warmup_then_fall, weight_decay=0.5, decay_mode="adamw")
    params = {
        p: torch.nn.Parameter(torch.tensor(np.asarray(leaf)))
        for p, leaf in example_params().items()
    }
    groups = [
        {"params": [params[p] for p in params if p in DECAYED], "weight_decay": 0.5},
        {"params": [params[p] for p in params if p not in DECAYED], "weight_decay": 0.0},
    ]
    adamw = torch.optim.AdamW(groups, lr=PEAK, betas=(0.9, 0.98), eps=1e-6)
    for step in range(200):
        for group in adamw.param_groups:
            group["lr"] = warmup_then_fall(step)
        for path, g in example_grads(step).items():
            params[path].grad = torch.tensor(g)
        adamw.step()
    for path, theirs in params.items():
        np.testing.assert_allclose(ours[path], theirs.detach().numpy(), rtol=1e-5, atol=1e-5)


def test_the_undecayed_parameters_of_base_written_by_hand():
    undecayed = {"model.embeddings.norm.scale", "model.final_norm.scale"}
    undecayed |= {f"model.layers.{i}.attn_norm.scale" for i in range(1, 22)}  # layer 0 has none
    undecayed |= {f"model.layers.{i}.mlp_norm.scale" for i in range(22)}
    assert len(undecayed) == 45  # of the encoder; the head brings one more, and a bias
    undecayed |= {"head.norm.scale", "decoder.bias"}
    shapes = SIZES["base"].param_shapes()
    params = {path: jax.ShapeDtypeStruct(shape, jnp.float32) for path, shape in shapes.items()}
    mask = optim.decay_mask(params)
    assert {path for path, decays in mask.items() if not decays} == undecayed
    assert mask["model.embeddings.tok_embeddings.embedding"]
    assert mask.keys() == params.keys()


def test_clipping_scales_all_gradients_to_the_largest_norm():
    grads = example_grads(0)
    norm = np.sqrt(sum((g.astype(np.float64) ** 2).sum() for g in grads.values()))
    _, state, (info,) = train([0], clip_norm=0.5)
    np.testing.assert_allclose(info.grad_norm, norm, rtol=1e-6)  # before clipping
    for path, g in grads.items():
        np.testing.assert_allclose(adam(state).mu[path], 0.1 * g * 0.5 / norm, rtol=1e-5)
    _, loose, _ = train([0], clip_norm=1e6)
    np.testing.assert_allclose(adam(loose).mu["embedding"], 0.1 * grads["embedding"], rtol=1e-6)


def test_update_norm_is_that_of_the_change():
    before = example_params()
    after, _, (info,) = train([0])
    change = sum(((np.asarray(after[p]) - np.asarray(before[p])) ** 2).sum() for p in before)
    np.testing.assert_allclose(info.update_norm, np.sqrt(change), rtol=1e-4)
    assert info.finite


# One state for all phases


def test_state_has_one_structure_and_float32_moments():
    options = [
        {},
        {"clip_norm": 1.0},
        {"decay_mode": "adamw"},
        {"weight_decay": 0.0, "peak": 1.0},
        {"b1": 0.5, "b2": 0.5, "eps": 1.0},
    ]
    states = [stepper(**o)[0].init(example_params()) for o in options]
    assert len({jax.tree.structure(state) for state in states}) == 1
    # After steps on bf16 gradients too.
    _, state, _ = train(
        range(3), grads=lambda step: jax.tree.map(lambda g: g.astype(jnp.bfloat16), GRADS)
    )
    assert jax.tree.structure(state) == jax.tree.structure(states[0])
    moments = adam(state)
    leaves = jax.tree.leaves((moments.mu, moments.nu))
    assert len(leaves) == 2 * len(SHAPES)
    assert {leaf.dtype for leaf in leaves} == {jnp.dtype(jnp.float32)}


GRADS = {path: jnp.asarray(g) for path, g in example_grads(0).items()}


def test_a_new_phase_takes_over_moments_and_count():
    params, state, infos = train(range(50))
    # The decay starts at the peak rate; it clips (at a norm never reached).
    after, new_state, new_infos = train([50], (params, state), clip_norm=1e6)
    straight, _, _ = train(range(51))
    assert_bit_equal(after, straight)
    assert adam(new_state).count == 51
    norms = np.array([float(info.update_norm) for info in infos[-10:]])
    assert abs(float(new_infos[0].update_norm) - norms.mean()) < 4 * norms.std()
    # What a reset would look like: Adam's first step has every entry at +-lr.
    _, _, (fresh,) = train([50], (params, stepper()[0].init(params)))
    assert fresh.update_norm > norms.mean() + 10 * norms.std()


def test_a_new_peak_changes_the_decay_and_nothing_else():
    quiet = functools.partial(train, [0], grads=lambda step: jax.tree.map(np.zeros_like, GRADS))
    before = example_params()
    for peak in (PEAK, PEAK / 10):
        after, _, _ = quiet(lr=lambda step, peak=peak: peak / 2, peak=peak, weight_decay=0.1)
        for path in SHAPES:  # at half of the peak, half of the decay, whatever the peak
            share = 0.95 if path in DECAYED else 1.0
            np.testing.assert_allclose(after[path], share * before[path], rtol=1e-6)


def test_parameters_in_bf16_are_refused():
    params = {p: leaf.astype(jnp.bfloat16) for p, leaf in example_params().items()}
    tx, _ = stepper()
    with pytest.raises(ValueError, match=r"float32, these are not.*embedding.*bfloat16"):
        optim.apply(tx, jnp.float32(1), params, tx.init(params), params)


# Steps that are not finite


@pytest.mark.parametrize("bad", [np.nan, np.inf, 1e30], ids=str)
def test_a_bad_step_leaves_everything_as_it_was_and_training_goes_on(bad):
    def sometimes_bad(step):
        grads = example_grads(step)
        if step in (3, 4):
            grads["layer.kernel"][1, 2] = bad
        return grads

    params, state, _ = train(range(3))
    same_params, same_state, infos = train([3, 4], (params, state), grads=sometimes_bad)
    assert_bit_equal((params, state), (same_params, same_state))
    assert [bool(info.finite) for info in infos] == [False, False]
    assert [float(info.update_norm) for info in infos] == [0, 0]
    skipped = train(range(8), grads=sometimes_bad)
    without = train([0, 1, 2, 5, 6, 7])
    assert_bit_equal(skipped[:2], without[:2])
    assert all(np.isfinite(leaf).all() for leaf in skipped[0].values())
    assert not np.array_equal(skipped[0]["embedding"], params["embedding"])


# What cannot be meant


def test_paths_that_are_no_parameters_are_refused():
    params = example_params()
    tx, _ = stepper()
    with pytest.raises(ValueError, match=r"no parameters: \['layer\.kernle'\]"):
        optim.apply(
            tx,
            jnp.float32(1),
            params,
            tx.init(params),
            params,
            frozen=frozenset({"layer.kernle"}),
        )
