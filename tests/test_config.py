"""The schema refuses what cannot be meant, and every config file of the project is one it takes."""

import copy
import importlib

import pytest

from cpt_jax import config as config_lib
from cpt_jax import parsing

PAPER = {  # As published: tokens of phase 1 and of the decay, optimizer steps, sources
    "fr_base": (10e9, 1e9, (3179, 318), 4),
    "fr_large": (25e9, 2.5e9, (7948, 795), 4),
    "en_base_10b": (10e9, 1e9, (3179, 318), 2),
    "en_base_50b": (50e9, 5e9, (15895, 1590), 3),
    "en_large_50b": (50e9, 5e9, (15895, 1590), 3),
}
ARGUMENTS = ("", "mlm", "mlm,seed=42,shuffle=7", "freeze=0-7@clm", "decay=0.2,strict", "quick")


def minimal() -> dict:
    return {
        "name": "run",
        "data": {"sources": [{"name": "notes", "path": "data/notes", "weight": 1}], "seq_len": 64},
        "init": {"source": "model"},
        "phases": [
            {
                "name": "clm",
                "objective": "clm",
                "tokens": 1e6,
                "batch_size": 8,
                "learning_rate": {"kind": "warmup_constant", "peak": 2e-4},
            },
            {
                "name": "decay",
                "objective": "mlm",
                "mask_rate": 0.15,
                "tokens": 100_000,
                "batch_size": 8,
                "learning_rate": {"kind": "one_minus_sqrt", "peak": 2e-4},
            },
        ],
    }


def put(config: dict, path: str, value) -> dict:
    config = copy.deepcopy(config)
    *parents, last = path.split(".")
    at = config
    for key in parents:
        at = at[int(key)] if key.isdigit() else at.setdefault(key, {})
    at[last] = value
    return config


def test_numbers_are_read_as_what_the_field_is():
    config = config_lib.parse(minimal())
    assert config.phases[0].tokens == 1_000_000
    assert isinstance(config.phases[0].tokens, int)
    assert isinstance(config.data.sources[0].weight, float)
    assert config_lib.phase_steps(config.phases[0], 64) == 1954  # 1e6 / 512 = 1953.1


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("phases.0.batchsize", 3, r"config.phases\[0\].batchsize.*did you mean.*batch_size"),
        ("optimiser", {}, "config.optimiser: unknown field; did you mean config.optimizer"),
        ("name", 3, "config.name: 3 is a int, not a str"),
        ("data.seq_len", "64", "config.data.seq_len: '64' is a str, not a int"),
        ("data.seq_len", 64.5, "config.data.seq_len: 64.5 is a float"),
        ("data.seq_len", True, "config.data.seq_len: True is a bool"),
        ("data.sources", "notes", "config.data.sources: 'notes' is not a list"),
        ("data.sources", [], "at least one source"),
        ("phases.0.objective", "lm", r"config.phases\[0\].objective: 'lm' is not one of 'clm'"),
        ("phases.1.mask_rate", 1.5, r"config.phases\[1\].mask_rate: 1.5 is not between 0 and 1"),
        ("phases.1.mask_rate", None, r"config.phases\[1\].mask_rate: None"),
        ("phases.0.mask_rate", 0.3, r"config.phases\[0\].mask_rate: 0.3 is not None"),
        ("phases.0.mask_mode", "bidirectional", "next-token targets are visible"),
        ("phases.0.mask_mode", "causl", "'causl' is not one of 'bidirectional', 'causal'"),
        ("phases.0.name", "a@b", "'a@b' is not a name of letters"),
        ("phases.0.name", "100", "'100' is not a name"),
        ("phases.0.learning_rate.peak", float("inf"), "inf is not above 0 and finite"),
        ("optimizer.clip_norm", 0.0, "0.0 is not above 0, or None"),
        ("phases.0.microbatches", 3, "a divisor of the batch size 8"),
        ("phases.1.name", "clm", "distinct names"),
        ("phases.1.mixture", {"note": 1.0}, "'note' is not one of the sources"),
        ("phases.0.learning_rate.warmup_tokens", 2e6, "between 0 and the phase's 1000000 tokens"),
        ("optimizer.b2", 1.0, r"config.optimizer.b2: 1.0 is not in \[0, 1\)"),
        ("model.size", "base", "config.model.size: 'base' is not None"),
        ("init.source", "scratch", "config.model.size: None is not given"),
        ("checkpoint.every_steps", 0, "config.checkpoint.every_steps: 0 is not at least 1"),
        ("checkpoint.every_steps", 1e300, r"every_steps: 1\d+ is not below 2\^31"),
        ("data.reader_threads", 10**5, "reader_threads: 100000 is not at most 1024"),
        ("data.sources.0.weight", 1e300, r"weight: 1e\+300 is not at least 0 and below 1e100"),
        ("optimizer.eps", 10**400, "config.optimizer.eps: 10+ is a int, not a float"),
        ("name", "caf\udce9", r"config.name: 'caf\\udce9' is not one line of Unicode text"),
        ("data.sources.0.name", "a\n# b", r"sources\[0\].name: .* is not one line"),
        ("export.license", "mit\nx: y", "config.export.license: .* is not one line"),
    ],
)
def test_faults_name_path_value_and_what_is_allowed(path, value, message):
    with pytest.raises(ValueError, match=message):
        config_lib.parse(put(minimal(), path, value))


@pytest.mark.parametrize(
    "path", ["data.sources.0.raw", "data.sources.0.path", "data.tokenizer", "init.source"]
)
def test_keys_in_addresses_are_refused_and_not_quoted(path):
    for address in ("s3://user:hunter2@bucket/notes", "https://host/a.jsonl?token=hunter2"):
        with pytest.raises(ValueError, match="not to carry a key or password") as caught:
            config_lib.parse(put(minimal(), path, address))
        assert "hunter2" not in str(caught.value)
    config_lib.parse(put(minimal(), path, "s3://bucket/notes?.jsonl"))


def test_all_faults_are_reported_together():
    config = put(put(minimal(), "nam", 1), "phases.1.mask_rate", "x")
    with pytest.raises(ValueError) as error:
        config_lib.parse(config)
    assert "config.nam:" in str(error.value)
    assert "config.phases[1].mask_rate:" in str(error.value)


def test_a_config_survives_its_json_form():
    config = config_lib.parse(put(minimal(), "phases.1.mixture", {"notes": 2}))
    assert config_lib.parse(config_lib.to_dict(config)) == config


def test_differences_name_the_field_and_both_values():
    old = config_lib.to_dict(config_lib.parse(minimal()))
    new = config_lib.to_dict(config_lib.parse(put(minimal(), "phases.1.batch_size", 16)))
    assert parsing.differences(old, new) == ["phases.1.batch_size: 8 -> 16"]
    assert parsing.differences(old, old) == []


@pytest.mark.parametrize("arguments", ARGUMENTS)
@pytest.mark.parametrize("name", [*PAPER, "cpt"])
def test_every_config_parses(name, arguments):
    module = importlib.import_module(f"configs.{name}")
    config = config_lib.parse(module.get_config(arguments or None))
    assert config.phases[0].objective == ("mlm" if "mlm" in arguments else "clm")


@pytest.mark.parametrize("name", PAPER)
def test_the_papers_values(name):
    module = importlib.import_module(f"configs.{name}")
    first, decay, steps, sources = PAPER[name]
    for arguments in (None, "mlm"):
        config = config_lib.parse(module.get_config(arguments))
        assert tuple(p.tokens for p in config.phases) == (first, decay)
        assert tuple(config_lib.phase_steps(p, 8192) for p in config.phases) == steps
        assert len(config.data.sources) == sources
        assert sum(s.weight for s in config.data.sources) == pytest.approx(1)
        assert (config.data.seq_len, config.phases[0].batch_size) == (8192, 384)
        assert (config.seed, config.data.shuffle_seed) == (17, 42)
        optimizer = config.optimizer
        assert (optimizer.b1, optimizer.b2, optimizer.eps) == (0.9, 0.98, 1e-6)
        assert (optimizer.weight_decay, optimizer.decay_mode) == (1e-5, "composer")
        assert config.phases[0].mask_rate == (0.3 if arguments else None)
        assert config.phases[1].mask_rate == 0.15
        rates = [phase.learning_rate for phase in config.phases]
        assert [rate.kind for rate in rates] == ["warmup_constant", "one_minus_sqrt"]
        assert [rate.peak for rate in rates] == [2e-4, 2e-4]
        assert (rates[0].warmup_tokens, rates[1].warmup_tokens) == (100_000_000, 0)
        assert rates[1].peak * rates[1].end_fraction == pytest.approx(2e-5)


def test_twins_differ_in_phase_one_alone():
    module = importlib.import_module("configs.fr_large")
    detour, twin = (
        config_lib.to_dict(config_lib.parse(module.get_config(a))) for a in (None, "mlm")
    )
    assert parsing.differences(detour, twin) == [
        "name: 'fr_large' -> 'fr_large,mlm'",
        "phases.0.mask_rate: None -> 0.3",
        "phases.0.name: 'clm' -> 'mlm'",
        "phases.0.objective: 'clm' -> 'mlm'",
    ]


def test_a_fork_is_the_decay_alone():
    module = importlib.import_module("configs.fr_large")
    whole, fork = (
        config_lib.parse(module.get_config(arguments))
        for arguments in ("decay=0.2", "decay=0.2,fork=runs/fr_large@clm")
    )
    assert fork.phases == whole.phases[1:]
    assert fork.init == config_lib.Init("runs/fr_large@clm", "params+opt_state")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("mml", "config argument 'mml' is unknown; known: mlm, "),
        ("decay=a", "'a' is no float"),
        ("decay=2", "decay=2.0"),
        ("freeze=7-0@clm", "layer set '7-0'"),
        ("freeze=0-7@mlm", "the phases here are clm and decay"),
    ],
)
def test_bad_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        importlib.import_module("configs.fr_base").get_config(arguments)
