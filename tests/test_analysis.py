"""States, the page on where models differ, and transplants, of small models and runs."""

import json
import re

import jax
import numpy as np
import pytest
import tiny_run

from cpt_jax import checkpoint
from cpt_jax.analysis import divergence
from cpt_jax.analysis.__main__ import main
from cpt_jax.analysis.models import open_model
from cpt_jax.analysis.states import layer_means
from cpt_jax.analysis.transplant import patterns_of, transplant
from cpt_jax.model import hub
from cpt_jax.model.modernbert import init_params
from cpt_jax.model.spec import SIZES
from cpt_jax.trees import select


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """Models a, b and c of one shape, d of another, a run, and 60 texts."""
    root = tmp_path_factory.mktemp("analysis")
    tokenizer = tiny_run.tokenizer(root / "tokenizer")
    special = {"pad_token_id": 0, "cls_token_id": 1, "sep_token_id": 2}
    sizes = {"vocab_size": len(tiny_run.SPECIAL + tiny_run.WORDS), **tiny_run.MODEL, **special}
    for seed, name in enumerate("abcd"):
        more = {"num_hidden_layers": 3} if name == "d" else {}
        spec = SIZES["base"].override({**sizes, **more}, "model")
        params = init_params(spec, jax.random.key(seed))
        hub.save(root / name, spec, params, tokenizer_dir=tokenizer)
    rng = np.random.default_rng(0)
    with (root / "texts.jsonl").open("w") as file:
        for i in range(60):
            words = rng.choice(tiny_run.WORDS, rng.integers(1, 90))
            file.write(json.dumps({"id": str(i), "text": " ".join(words)}) + "\n")
    return root


def texts_of(root) -> list[str]:
    return [json.loads(line)["text"] for line in (root / "texts.jsonl").read_text().splitlines()]


@pytest.mark.torch
def test_states_are_those_of_transformers(root):
    """Means over each text's own tokens, one text at a time there, in batches here."""
    import torch
    from transformers import AutoModel

    texts = texts_of(root)[:20]
    found = layer_means(open_model(str(root / "a")), texts, 40, None, len, batch_tokens=256)
    model = AutoModel.from_pretrained(root / "a", attn_implementation="eager").eval()
    words = {word: i for i, word in enumerate(tiny_run.SPECIAL + tiny_run.WORDS)}
    for i, text in enumerate(texts):
        ids = [1, *[words[word] for word in text.split()][:38], 2]
        with torch.no_grad():
            states = model(torch.tensor([ids]), output_hidden_states=True).hidden_states
        wanted = np.stack([state[0].mean(0).numpy() for state in states])
        np.testing.assert_allclose(found[:, i], wanted, atol=2e-6)  # fp32 sums in another order


def test_states_are_made_once(root, tmp_path):
    said: list[str] = []
    model, texts = open_model(str(root / "a")), texts_of(root)[:8]
    first = layer_means(model, texts, 64, tmp_path, said.append)
    assert said
    said.clear()
    np.testing.assert_array_equal(layer_means(model, texts, 64, tmp_path, said.append), first)
    assert not said
    others = [(open_model(str(root / "b")), texts, 64), (model, texts[:7], 64), (model, texts, 32)]
    for other in others:
        layer_means(*other, tmp_path, said.append)
        assert said
        said.clear()
    assert len(list(tmp_path.iterdir())) == 4


def run(root, *more, a="a", b="b", out="out"):
    paths = (str(root / a), str(root / b), "--texts", str(root / "texts.jsonl"))
    sizes = ("--count", "20", "--max-length", "48", "--out", str(root / out))
    return main(["cka", *paths, *sizes, *more])


def test_a_page_on_two_models_and_a_control(root, capsys):
    assert run(root, "--control", str(root / "b"), str(root / "c")) == 0
    said = capsys.readouterr().out
    rows = {
        cells[0]: [float(cell) for cell in cells[1:]]
        for line in said.splitlines()
        if len(cells := line.strip("| ").split(" | ")) == 6
        and cells[0] not in ("layer", "layers")
        and not cells[0].startswith("-")
    }
    assert list(rows) == ["embeddings", "0", "1", "0-0", "1-1"]
    sample = divergence.draw([str(root / "texts.jsonl")], 20, 3)
    states = [
        layer_means(open_model(str(root / name)), sample.texts, 48, None, len) for name in "abc"
    ]
    pair, control = (
        divergence.divergence(x, y, sample.draws)
        for x, y in ((states[0], states[1]), (states[1], states[2]))
    )
    for i, name in enumerate(["embeddings", "0", "1"]):
        assert rows[name][0] == pytest.approx(pair.biased[:, i].mean(), rel=1e-3)
        assert rows[name][1] == pytest.approx(pair.biased[:, i].std(ddof=1), rel=1e-3)
        assert rows[name][3] == pytest.approx(control.biased[:, i].mean(), rel=1e-3)
        ratio = pair.biased[:, i].mean() / control.biased[:, i].mean()
        assert rows[name][4] == pytest.approx(ratio, rel=1e-3)
    assert rows["1-1"] == rows["1"]
    page = (root / "out/cka.html").read_text()
    assert len(re.findall("<svg", page)) == 2
    assert "http://www.w3.org" not in page.replace('xmlns="http://www.w3.org', "")


def test_a_model_does_not_differ_from_itself(root):
    sample = divergence.draw([str(root / "texts.jsonl")], 20, 2)
    states = layer_means(open_model(str(root / "a")), sample.texts, 48, None, len)
    same = divergence.divergence(states, states, sample.draws)
    assert np.abs(same.biased).max() < 1e-12
    assert np.abs(same.debiased).max() < 1e-12


@pytest.mark.slow
def test_runs_and_their_checkpoints(root, tmp_path, capsys):
    """A run by its export, by a step and by a phase; along it the end is where its export is."""
    for name in "ab":
        tiny_run.corpus(tmp_path, name, 60, ord(name))
    made = tiny_run.train(tiny_run.raw_config(tmp_path), tmp_path / "run")
    steps = checkpoint.saved_steps(made)
    names = [str(made), f"{made}@{steps[-1]}", f"{made}@decay"]
    params = [open_model(name).params() for name in names]
    for path, array in params[0].items():
        np.testing.assert_array_equal(array, np.asarray(params[1][path]))
        np.testing.assert_array_equal(array, np.asarray(params[2][path]))
    paths = [f"{made}@{steps[0]}", str(made), "--along", str(made)]
    more = ["--texts", str(root / "texts.jsonl"), "--count", "20", "--out", str(tmp_path / "out")]
    assert main(["cka", *paths, *more, "--max-length", "32"]) == 0
    said = capsys.readouterr().out
    along = said[said.index("along the run") :].splitlines()
    rows = {row.split(" | ")[0].strip("| "): row for row in along if row.startswith("| ")}
    assert list(rows)[2:] == [str(step) for step in steps]
    last = [float(cell) for cell in rows[str(steps[-1])].strip("| ").split(" | ")[1:]]
    assert np.abs(last).max() < 1e-9
    first = [float(cell) for cell in rows[str(steps[0])].strip("| ").split(" | ")[1:]]
    assert min(first) > 1e-6


@pytest.mark.parametrize(
    ("more", "names", "said"),
    [
        ((), {"b": "d"}, "not of one shape: num_hidden_layers 2 and 3"),
        ((), {"b": "nothing"}, "nothing"),
        (("--count", "60"), {}, "60 there; 61 or more are needed"),
        (("--count", "3"), {}, "3 texts, 3 seeds; allowed: 4 or more"),
        (("--max-length", "65"), {}, "max_length: 65 is not from 3 to 64"),
        (("--regions", "0-5"), {}, "0-5; the model has layers 0 to 1"),
        (("--texts", "none.jsonl"), {}, "none.jsonl"),
    ],
)
def test_what_cannot_be_compared_is_refused(root, capsys, more, names, said):
    assert run(root, *more, **names, out="refused") == 2
    assert said in capsys.readouterr().err
    assert not (root / "refused").exists()


def test_of_everything_and_of_nothing(root):
    donor, recipient = (open_model(str(root / name)).params() for name in "ab")
    for patterns, source in ((["**"], donor), ([], recipient)):
        mixed = transplant(donor, recipient, patterns)
        assert mixed.keys() == source.keys()
        for path in source:
            np.testing.assert_array_equal(mixed[path], source[path])


@pytest.mark.parametrize(
    ("preset", "inside"),
    [
        ("0", r"model\.layers\.0\..*"),
        ("0-1", r"model\.layers\.[01]\..*"),
        ("attention", r"model\.layers\.\d+\.attn(_norm)?\..*"),
        ("mlp", r"model\.layers\.\d+\.mlp(_norm)?\..*"),
        ("1.mlp", r"model\.layers\.1\.mlp(_norm)?\..*"),
        ("1.attention", r"model\.layers\.1\.attn(_norm)?\..*"),
        ("all", ".*"),
    ],
)
def test_presets_are_of_their_parts(root, preset, inside):
    paths = open_model(str(root / "a")).spec.param_shapes()
    found = select(paths, patterns_of(preset, 2))
    assert found == {path for path in paths if re.fullmatch(inside, path)}


def test_a_transplant_is_a_model(root, capsys):
    out = root / "mixed"
    command = ["transplant", "--donor", str(root / "a"), "--recipient", str(root / "b")]
    assert main([*command, "--preset", "1", "--paths", "head.**", "--out", str(out)]) == 0
    shapes = open_model(str(root / "a")).spec.param_shapes()
    moved = sum(path.startswith(("model.layers.1.", "head.")) for path in shapes)
    assert f"{moved} of {len(shapes)} arrays" in capsys.readouterr().out
    mixed, donor, recipient = (open_model(str(root / n)).params() for n in ("mixed", "a", "b"))
    for path, array in mixed.items():
        given = donor if path.startswith(("model.layers.1.", "head.")) else recipient
        np.testing.assert_array_equal(array, given[path])
    assert main([*command, "--preset", "1", "--out", str(out)]) == 2
    assert "exists and is not empty; it is not overwritten" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ((), "--preset or --paths: what is to be transplanted?"),
        (("--preset", "0-2"), "preset '0-2': the model has layers 0 to 1"),
        (("--preset", "low"), "layer set 'low'"),
        (("--preset", "1.head"), "preset '1.head': allowed"),
        (("--paths", "model.layer.0.**"), "patterns that match no parameter"),
    ],
)
def test_transplants_that_cannot_be_are_refused(root, capsys, more, said):
    command = ["transplant", "--donor", str(root / "a"), "--recipient", str(root / "b")]
    assert main([*command, *more, "--out", str(root / "none")]) == 2
    assert said in capsys.readouterr().err
    assert not (root / "none").exists()
