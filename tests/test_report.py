"""The report on runs written by the run log itself, read back from the page."""

import itertools
import json
import re

import numpy as np
import pytest

from cpt_jax.pages import elements, svg
from cpt_jax.report import figures, page
from cpt_jax.report.__main__ import main
from cpt_jax.report.runs import read_runs
from cpt_jax.telemetry import RunLog
from tests.page_reader import Reader

STEP_TOKENS = 1000


def write_run(path, *, name="detour", first="clm", steps=10, decay=4, stop=None, evals=True):
    """A run of two phases; loss is 5 - step / 10, held-out MLM loss of `notes` 3 - step / 10."""
    config = {
        "name": name,
        "seed": 17,
        "phases": [
            {"name": first, "objective": first, "tokens": steps * STEP_TOKENS},
            {"name": "decay", "objective": "mlm", "tokens": decay * STEP_TOKENS},
        ],
    }
    path.mkdir(parents=True)
    about = {"config": config, "versions": {"jax": "0.10.2"}}
    (path / "config.json").write_text(json.dumps(about))
    stop = steps + decay if stop is None else stop
    with RunLog(path, tensorboard=False) as log:

        def write(kind, step, phase, **fields):
            log.write(kind, step=step, phase=phase, tokens=step * STEP_TOKENS, **fields)

        def evaluate(step, phase):
            if evals:
                for source, level in (("notes", 3.0), ("qa", 2.0)):
                    mlm, clm = level - step / 10, 2 * level - step / 10
                    write("eval", step, phase, source=source, mlm_loss=mlm, clm_loss=clm)

        evaluate(0, first)
        for phase, begin, end in ((first, 0, steps), ("decay", steps, steps + decay)):
            if begin >= stop:
                break
            write("phase", begin, phase, event="start")
            for step in range(begin + 1, min(end, stop) + 1):
                seconds = 60.0 if step == 1 else 2.0  # the first step compiles
                rate = STEP_TOKENS / seconds
                loss, lr = 5 - step / 10, 2e-4
                speed = {"seconds": seconds, "tokens_per_second": rate}
                write("train", step, phase, loss=loss, lr=lr, **speed)
            if stop >= end:
                evaluate(end, phase)
                write("phase", end, phase, event="end")
    return path


def rendered(*paths):
    return page.render(read_runs(paths))


def test_results_table(tmp_path):
    rows = Reader(rendered(write_run(tmp_path / "detour"))).rows
    table = [row for row in rows if len(row) == 7]
    assert table == [
        ["run", "phase", "tokens", "held-out MLM loss", "held-out CLM loss", "tokens/s", "time"],
        ["detour", "before training", "0", "2.5000", "5.0000", "", ""],
        ["", "clm clm", "10k", "1.5000−1.0000", "4.0000−1.0000", "500", "78 s"],
        ["", "decay mlm", "4k", "1.1000−1.4000", "3.6000−1.4000", "500", "8 s"],
    ]


def test_a_run_that_is_still_going(tmp_path):
    rows = Reader(rendered(write_run(tmp_path / "a", stop=3))).rows
    assert ["", "clm clm, unfinished", "3k", "–", "–", "500", "64 s"] in rows
    assert not any("decay" in cell for row in rows for cell in row)


@pytest.mark.parametrize("options", [{"evals": False}, {"stop": 0}, {"stop": 1}])
def test_runs_with_little_to_show(tmp_path, options):
    Reader(rendered(write_run(tmp_path / "a", **options)))


def test_curves_hold_the_runs_numbers(tmp_path):
    runs = read_runs([write_run(tmp_path / "a"), write_run(tmp_path / "b", name="x", first="mlm")])
    curves = figures.training_curves(runs, "loss")
    assert [curve.run for curve in curves] == [0, 0, 1, 1]  # a phase each, unconnected
    np.testing.assert_array_equal(curves[0].tokens, 1000 * np.arange(1, 11))
    np.testing.assert_allclose(curves[1].values, [3.9, 3.8, 3.7, 3.6])
    (heldout, _) = figures.heldout_curves(runs, "qa", "clm")
    np.testing.assert_array_equal(heldout.tokens, [0, 10_000, 14_000])
    np.testing.assert_allclose(heldout.values, [4.0, 3.0, 2.6])


def test_long_curves_are_averaged(tmp_path):
    run = read_runs([write_run(tmp_path / "a", steps=6 * figures.MAX_POINTS)])
    curve = figures.training_curves(run, "loss")[0]
    assert len(curve.values) == figures.MAX_POINTS
    np.testing.assert_allclose(curve.tokens[:2], [3500, 9500])  # means of steps 1..6 and 7..12
    np.testing.assert_allclose(curve.values[:2], [5 - 0.35, 5 - 0.95])


def test_the_drawn_points_are_the_values(tmp_path):
    """The path in the SVG, brought back to data units by its own ends, is the loss."""
    runs = read_runs([write_run(tmp_path / "a", decay=1, stop=10)])
    curves = [figures.Curve(0, np.array([0.0, 1.0, 2.0, 4.0]), np.array([1.0, 3.0, 2.0, 5.0]))]
    svg = figures.draw(runs, curves, title="t")
    (path,) = re.findall(r'<path d="([^"]*)"[^>]*stroke: var\(--run-0\); stroke-width: 1.7', svg)
    x, y = np.array(re.findall(r"[ML] (\S+) (\S+)", path), float).T
    np.testing.assert_allclose(4 * (x - x[0]) / (x[-1] - x[0]), curves[0].tokens, atol=1e-4)
    np.testing.assert_allclose(1 + 4 * (y - y[0]) / (y[-1] - y[0]), curves[0].values, atol=1e-4)


def test_phases_are_named_above_the_curves(tmp_path):
    runs = read_runs([write_run(tmp_path / "a"), write_run(tmp_path / "b", name="x", first="mlm")])
    svg = figures.draw(runs, figures.training_curves(runs, "loss"), title="t")
    texts = re.findall(r"<text[^>]*>([^<]*)</text>", svg)
    assert [text for text in texts if text in ("clm", "mlm", "decay")] == [
        *("clm", "decay"),
        *("mlm", "decay"),
    ]
    assert {"a", "b"} <= set(texts)  # the curves' names at their ends


def test_page_stands_alone_and_is_well_formed(tmp_path):
    text = rendered(write_run(tmp_path / "a"), write_run(tmp_path / "b", name="x", first="mlm"))
    reader = Reader(text)
    assert all(reference.startswith("#") for reference in reader.references)
    assert {reference[1:] for reference in reader.references} <= set(reader.ids)
    assert len(set(reader.ids)) == len(reader.ids)
    assert "script" not in reader.tags
    assert not re.search(r"@import|url\((?!#)", text)
    assert set(re.findall(r"url\(#([^)]*)\)", text)) <= set(reader.ids)


def test_what_comes_from_a_run_is_escaped(tmp_path):
    nasty = '<script>"&$x_1$'
    path = write_run(tmp_path / nasty, name=nasty)
    start = {"time": nasty, "step": 0, "argv": ["main", nasty], "code": {"commit": nasty}}
    (path / "starts.jsonl").write_text(json.dumps(start | {"init": {"source": nasty}}) + "\n")
    sample = {
        "text": "<i>[MASK]</i>",
        "expected": "<u>",
        "answers": [{"token": " <u>", "probability": 0.5}],
        "before": [{"token": "</p>", "probability": 0.25}],
    }
    (path / "samples.json").write_text(json.dumps([sample]))
    other = write_run(tmp_path / f"{nasty}2", name=nasty + "2")
    text = rendered(path, other)
    reader = Reader(text)
    assert not reader.tags & {"script", "i", "u"}
    assert "<title>&lt;script&gt;" in text
    assert "<p>&lt;i&gt;<mark>[MASK]</mark>&lt;/i&gt;</p>" in text
    assert '<li class="right"> &lt;u&gt; <small>50 %</small></li>' in text
    assert '<p class="note">expected: &lt;u&gt;</p>' in text


def test_differences_between_runs_are_listed(tmp_path):
    text = rendered(write_run(tmp_path / "a"), write_run(tmp_path / "b", name="x", steps=12))
    assert "2 fields of the config differ" in text
    assert "tokens: 10000 -&gt; 12000" in text


def test_two_runs_of_one_name_are_told_apart(tmp_path):
    paths = [write_run(tmp_path / x / "detour") for x in "ab"]
    assert [run.label for run in read_runs(paths)] == [str(path) for path in paths]


def test_numbers_lead_to_where_they_come_from(tmp_path):
    """Rows of the table and captions link to a section with commands, commit, weights and data."""
    path = write_run(tmp_path / "detour")
    starts = [
        {
            "time": f"2026-11-30T0{i}:00:00+00:00",
            "step": step,
            "argv": ["main.py", "--config=a b.py"],
            "code": {"commit": str(i) * 40, "changed": bool(i)},
            "versions": {},
        }
        for i, step in enumerate((0, 6))
    ]
    starts[0]["init"] = {"source": "model", "sha256": {"model.safetensors": "f" * 64}}
    (path / "starts.jsonl").write_text("".join(json.dumps(x) + "\n" for x in starts))
    text = rendered(path, write_run(tmp_path / "twin"))
    reader = Reader(text)
    assert {"run-0", "run-1"} <= set(reader.ids)
    assert text.count('<a href="#run-0">detour</a>') == 1 + 4  # its row; two sources, two losses
    command = "main.py '--config=a b.py'"
    assert ["start", "2026-11-30T00:00:00+00:00", "0", command, "0" * 12] in reader.rows
    assert ["resumed", "2026-11-30T01:00:00+00:00", "6", command, "1" * 12 + " (with changes)"] in (
        reader.rows
    )
    assert "f" * 64 in text


def test_a_loss_that_is_not_finite(tmp_path):
    path = write_run(tmp_path / "a")
    text = (path / "metrics.jsonl").read_text()
    (path / "metrics.jsonl").write_text(text.replace('"loss": 3.6', '"loss": NaN'))
    Reader(rendered(path, write_run(tmp_path / "b", name="x")))


def test_command(tmp_path, capsys):
    out = tmp_path / "deep" / "report.html"
    assert main([str(write_run(tmp_path / "a")), "--out", str(out)]) == 0
    assert out.read_text().startswith("<!doctype html>")
    assert main([str(tmp_path / "nothing")]) == 2
    assert str(tmp_path / "nothing" / "config.json") in capsys.readouterr().err
    (tmp_path / "a" / "metrics.jsonl").unlink()
    assert main([str(tmp_path / "a")]) == 2
    assert "has the run begun?" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("labels", "short"),
    [
        (["fr_base", "fr_base_mlm"], ["base", "base_mlm"]),
        (["fr base detour", "fr base mlm"], ["detour", "mlm"]),
        (["a" * 30, "b"], ["a" * 15 + "…", "b"]),
    ],
)
def test_short_names(labels, short):
    assert figures.short_names(labels) == short


def test_spread():
    placed = figures.spread([0.0, 0.01, 0.5, 0.97, 0.99, 1.0], gap=0.1)
    np.testing.assert_allclose(placed, [0.0, 0.1, 0.5, 0.8, 0.9, 1.0])


@pytest.mark.parametrize(
    ("number", "text"),
    [(0, "0"), (7, "7"), (1000, "1k"), (999_600, "1M"), (2.5e9, "2.5B"), (3.146e6, "3.15M")],
)
def test_count(number, text):
    assert figures.count(number) == text


@pytest.mark.parametrize(
    ("number", "text"), [(0, "0"), (2e-4, "2e-4"), (1.76e-4, "1.8e-4"), (1e-5, "1e-5")]
)
def test_scientific(number, text):
    assert figures.scientific(number) == text


# --- colours


def palettes():
    """The page's variables, for light and for dark."""
    blocks = re.findall(r":root \{(.*?)\}", elements.CSS, re.S)
    assert len(blocks) == 2
    return [dict(re.findall(r"--([\w-]+): #(\w{6})", block)) for block in blocks]


def linear(colour):
    """Linear RGB of a #rrggbb (sRGB's transfer function)."""
    c = np.array([int(colour[i : i + 2], 16) for i in (0, 2, 4)]) / 255
    return np.where(c <= 0.04045, c / 12.92, ((c + 0.055) / 1.055) ** 2.4)


def contrast(a, b):
    """WCAG 2's contrast ratio."""
    light, dark = sorted((linear(c) @ [0.2126, 0.7152, 0.0722] for c in (a, b)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def test_colours_are_defined_and_stand_out():
    for palette in palettes():
        used = {variable[2:] for variable in svg.VARIABLES.values()}
        assert used <= set(palette)
        for background in (palette["paper"], palette["card"]):
            for name in ("ink", "muted", *(n for n in palette if n.startswith("run-"))):
                assert contrast(palette[name], background) >= 4.5, name


# Simulated dichromacy on linear RGB: Machado, Oliveira and Fernandes 2009, severity 1.
EYES = {
    "normal": np.eye(3),
    "protanopia": [
        [0.152286, 1.052583, -0.204868],
        [0.114503, 0.786281, 0.099216],
        [-0.003882, -0.048116, 1.051998],
    ],
    "deuteranopia": [
        [0.367322, 0.860646, -0.227968],
        [0.280085, 0.672501, 0.047413],
        [-0.011820, 0.042940, 0.968881],
    ],
}


def lab(rgb):
    """CIE L*a*b* (D65) of linear RGB."""
    matrix = [
        [0.4124564, 0.3575761, 0.1804375],
        [0.2126729, 0.7151522, 0.0721750],
        [0.0193339, 0.1191920, 0.9503041],
    ]
    x, y, z = np.cbrt(np.maximum(matrix @ rgb, 0) / [0.95047, 1.0, 1.08883])
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


@pytest.mark.parametrize("eyes", EYES)
def test_runs_differ_to_every_eye(eyes):
    """Twins and a third run by colour alone, further runs by colour or dash.

    A distance of about 2 in L*a*b* is just noticeable.
    """
    for palette in palettes():
        seen = [lab(EYES[eyes] @ linear(palette[f"run-{i}"])) for i in range(6)]
        for i, j in itertools.combinations(range(6), 2):
            same_dash = i % len(svg.DASHES) == j % len(svg.DASHES)
            if j < 3 or same_dash:
                assert np.linalg.norm(seen[i] - seen[j]) > 20, (i, j)
