"""The card of an exported model: true numbers, valid on the Hub, and nothing private."""

import pytest
import tiny_run
from huggingface_hub import ModelCard

from cpt_jax import checkpoint, config, provenance
from cpt_jax.telemetry import RunLog
from cpt_jax.training.card import model_card

STEP = tiny_run.STEP
SIGNED = "https://someone:very-secret@host/a.jsonl?signature=very-secret"


def run(root, **changes):
    """A run of six steps of CLM and four of decay, as its directory tells of it."""
    raw = tiny_run.raw_config(root / "very-secret-hospital") | changes
    raw["phases"][1]["mixture"] = {"a": 1.0, "b": 0.0}
    directory = root / "run"
    description = {"config": config.to_dict(config.parse(raw)), "model": {}}
    checkpoint.open_run(directory, description)
    source = raw["init"]["source"]
    init = {"source": source, **({"commit": "8949b9"} if source.startswith("answerdotai") else {})}
    argv = ["main.py", "--workdir=/home/very-secret/run", f"--config.x=['{SIGNED}']"]
    provenance.record_start(directory, init, step=0, argv=argv)
    with RunLog(directory, tensorboard=False) as log:
        for step, loss in ((0, 5.0), (6, 4.0), (10, 3.25)):
            for source in ("a", "b"):
                losses = {"mlm_loss": loss, "clm_loss": loss + 1}
                losses |= {"mlm_targets": 150, "clm_targets": 1270}
                log.write("eval", step=step, source=source, tokens=step * STEP, **losses)
    return directory


def test_numbers_of_the_card_by_hand(tmp_path):
    text = model_card(run(tmp_path), 10)
    assert f"Training took {10 * STEP:,} tokens." in text
    assert f"| clm | next token (CLM) | - | causal | {6 * STEP:,} | 0.01, warmup_constant |" in text
    assert f"| decay | masked tokens (MLM) | 15% | bidirectional | {4 * STEP:,} |" in text
    assert f"| a | 70.0%, {0.7 * 6 * STEP:,.0f} | 100.0%, {4 * STEP:,} |" in text
    assert f"| b | 30.0%, {0.3 * 6 * STEP:,.0f} | 0.0%, 0 |" in text
    assert "| a | 0 | 5.0000 (150) | 6.0000 (1,270) |" in text
    assert f"| b | {10 * STEP:,} | 3.2500 (150) | 4.2500 (1,270) |" in text
    assert "jax 0." in text


def test_a_checkpoint_half_way_tells_of_its_own_half(tmp_path):
    text = model_card(run(tmp_path), 6)
    assert f"Training took {6 * STEP:,} tokens." in text
    assert "decay" not in text
    assert "3.25" not in text


@pytest.mark.parametrize(
    ("init", "license", "base", "named"),
    [
        ("answerdotai/ModernBERT-base@main", "apache-2.0", *["answerdotai/ModernBERT-base"] * 2),
        ("/home/very-secret/models/own-encoder", None, None, "own-encoder"),
        ("very-secret/own-encoder", None, None, "own-encoder"),  # a path, though written like an id
        ("scratch", "no", None, "random parameters"),  # YAML's own idea of "no" is false
    ],
)
def test_the_hub_reads_its_front_matter(tmp_path, init, license, base, named):
    size = {"size": "base"} if init == "scratch" else {}
    directory = run(tmp_path, init={"source": init}, model=size, export={"license": license})
    text = model_card(directory, 10)
    front = ModelCard(text).data.to_dict()
    assert (front.get("license"), front.get("base_model")) == (license, base)
    assert (front["library_name"], front["pipeline_tag"]) == ("transformers", "fill-mask")
    assert f"from **{named}**" in text
    assert ("Licence: not stated" in text) == (license is None)
    assert ("commit of the base model: 8949b9" in text) == (base is not None)
    assert "secret" not in text, "a path"
    (start,) = provenance.read_starts(directory)
    assert start["argv"][2] == "--config.x=['https://host/a.jsonl']"


def test_a_torn_line_of_starts_is_dropped(tmp_path):
    for step in (0, 3):
        provenance.record_start(tmp_path, {}, step=step)
        with (tmp_path / provenance.STARTS).open("a") as file:
            file.write('{"time": "20')  # killed while it wrote
    assert [line["step"] for line in provenance.read_starts(tmp_path)] == [0, 3]
