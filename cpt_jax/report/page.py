"""The HTML page about one or more runs: one file, nothing loaded from elsewhere.

Everything that comes from a run (names, samples, configs) is escaped.
"""

import json
import shlex
import statistics
from collections.abc import Sequence
from html import escape
from typing import Any

from cpt_jax.pages import elements
from cpt_jax.pages.svg import SERIES
from cpt_jax.parsing import differences
from cpt_jax.report import figures
from cpt_jax.report.runs import OBJECTIVES, Heldout, PhaseSummary, Run

NAMES = {"mlm": "masked token (MLM)", "clm": "next token (CLM)"}


def render(runs: Sequence[Run]) -> str:
    """Returns the page as one HTML document.

    The samples of a run, where it has some, are a list of
    ``{"text": ..., "answers": [{"token": ..., "probability": ...}, ...]}``: a text with
    ``[MASK]`` and the trained model's best tokens for it; optional are ``"before"``, the same list
    from the model the run began with, and ``"expected"``, the right token.
    """
    names = ", ".join(run.label for run in runs)
    sections = [_results(runs), _heldout(runs), _training(runs), _samples(runs), _provenance(runs)]
    note = (
        "Continued pretraining with cpt_jax. Losses are in nats per target; tokens are counted "
        "from the start of each run."
    )
    return elements.document(names, note, sections)


def _results(runs: Sequence[Run]) -> str:
    rows = []
    for index, run in enumerate(runs):
        name = f'<span class="key" style="background: var({_variable(index)})"></span>'
        rows.append(
            [f"{name}{_link(index, run)}", "before training", "0", *_losses(run.start, {}), "", ""]
        )
        rows += [["", *_phase_cells(run, phase)] for phase in run.phases]
    head = ["run", "phase", "tokens", "held-out MLM loss", "held-out CLM loss", "tokens/s", "time"]
    return elements.section(
        "Results",
        "Held-out losses at the end of each phase, and their change since before training, as "
        "means over the sources. Time is that of training, without evaluation and saving.",
        elements.table(head, rows, text_columns=2),
    )


def _phase_cells(run: Run, phase: PhaseSummary) -> list[str]:
    rate, seconds = phase.tokens_per_second, phase.seconds
    about = phase.objective if phase.finished else f"{phase.objective}, unfinished"
    return [
        f"{escape(phase.name)} <small>{escape(about)}</small>",
        figures.count(phase.last_token - phase.first_token),
        *_losses(phase.heldout, run.start),
        "–" if rate is None else figures.count(rate),
        "–" if seconds is None else duration(seconds),
    ]


def _losses(heldout: Heldout, start: Heldout) -> list[str]:
    cells = []
    for objective in OBJECTIVES:
        value, before = _mean(heldout, objective), _mean(start, objective)
        if value is None:
            cells.append("–")
        elif before is None:
            cells.append(f"{value:.4f}")
        else:
            change = f"{value - before:+.4f}".replace("-", "−")
            cells.append(f"{value:.4f}<small>{change}</small>")
    return cells


def _mean(heldout: Heldout, objective: str) -> float | None:
    return statistics.fmean(x[objective] for x in heldout.values()) if heldout else None


def duration(seconds: float) -> str:
    """Returns a time as people say it: 4 s, 12 min, 3 h 25."""
    minutes = round(seconds / 60)
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{minutes} min" if minutes < 100 else f"{minutes // 60} h {minutes % 60:02}"


def _heldout(runs: Sequence[Run]) -> str:
    cards = []
    for source in dict.fromkeys(source for run in runs for source in run.sources):
        for objective in OBJECTIVES:
            curves = figures.heldout_curves(runs, source, objective)
            title = f"{source}: {NAMES[objective]}"
            ends = ", ".join(f"{_link(c.run, runs[c.run])} {c.values[-1]:.4f}" for c in curves)
            over = min((c.targets for c in curves if c.targets), default=None)
            caption = f"Last: {ends}" + (f", over {over:,.0f} targets." if over else ".")
            figure = figures.draw(runs, curves, title=title, markers=True)
            cards.append(elements.figure(title, figure, caption))
    note = "Each source's held-out rows under both objectives, whichever the run was training on."
    return elements.section("Held-out loss", note, elements.grid(cards)) if cards else ""


def _training(runs: Sequence[Run]) -> str:
    cards = []
    for title, field, unit, caption in (
        ("Training loss", "loss", "{:.4g}".format, "Each phase under its own objective."),
        ("Learning rate", "lr", figures.scientific, "As applied."),
    ):
        curves = figures.training_curves(runs, field)
        if curves:
            cards.append(
                elements.figure(title, figures.draw(runs, curves, title=title, unit=unit), caption)
            )
    note = (
        f"The steps that were reported; more than {figures.MAX_POINTS} of a phase are averaged in "
        "groups. The strips above the curves are the phases."
    )
    return elements.section("Training", note, elements.grid(cards)) if cards else ""


def _samples(runs: Sequence[Run]) -> str:
    parts = []
    for run in runs:
        cards = [_sample(sample) for sample in run.samples]
        if cards:
            parts.append(f"<h3>{escape(run.label)}</h3>" + elements.grid(cards))
    note = "What the model puts in the place of a mask; the expected token is outlined."
    return elements.section("Fill-mask", note, "".join(parts)) if parts else ""


def _sample(sample: dict[str, Any]) -> str:
    text = escape(sample["text"]).replace("[MASK]", "<mark>[MASK]</mark>")
    parts = [f'<div class="sample"><p>{text}</p>']
    for name, key in (("before", "before"), ("after", "answers")):
        if key not in sample:
            continue
        items = []
        for answer in sample[key]:
            token = answer["token"]
            right = ' class="right"' if token.strip() == sample.get("expected") else ""
            share = f"{100 * answer['probability']:.0f} %"
            items.append(f"<li{right}>{escape(token)} <small>{share}</small></li>")
        label = f'<span class="note">{name}</span>' if "before" in sample else ""
        parts.append(f'{label}<ul class="answers">{"".join(items)}</ul>')
    if "expected" in sample:
        parts.append(f'<p class="note">expected: {escape(sample["expected"])}</p>')
    return "".join(parts) + "</div>"


def _provenance(runs: Sequence[Run]) -> str:
    parts = []
    for other in runs[1:]:
        lines = differences(runs[0].config, other.config)
        title = f"From {runs[0].label} to {other.label}: {len(lines)} fields of the config differ"
        parts.append(elements.details(title, "\n".join(lines)))
    parts += [_origins(index, run) for index, run in enumerate(runs)]
    names = sorted({name for run in runs for name in run.versions})
    rows = [[escape(n), *(escape(run.versions.get(n, "–")) for run in runs)] for n in names]
    versions = elements.table(
        ["package", *(escape(run.label) for run in runs)], rows, text_columns=1
    )
    note = (
        "What the runs were told to do, what they read and began with, the code and the versions "
        "they ran with."
    )
    return elements.section("Provenance", note, "".join(parts) + versions)


def _origins(index: int, run: Run) -> str:
    """Returns where the numbers of a run come from, under the id that its name links to."""
    parts = [f'<div id="run-{index}"><h3>{escape(run.label)}</h3>']
    rows = []
    for number, start in enumerate(run.starts):
        code = start["code"].get("commit", "no checkout")[:12]
        changed = " (with changes)" if start["code"].get("changed") else ""
        command = f"<code>{escape(shlex.join(start['argv']))}</code>"
        rows.append(["start" if not number else "resumed", escape(start["time"])])
        rows[-1] += [figures.count(start["step"]), command, escape(code + changed)]
    if rows:
        parts.append(
            elements.table(["", "time", "step", "command", "commit"], rows, text_columns=5)
        )
    inits = [start["init"] for start in run.starts if "init" in start]
    began = {"init": inits[0] if inits else run.config.get("init"), "data": run.data}
    parts.append(elements.details("began with, and read (sha256)", json.dumps(began, indent=2)))
    parts.append(elements.details("config", json.dumps(run.config, indent=2)))
    return "".join(parts) + "</div>\n"


def _link(index: int, run: Run) -> str:
    """Returns the name of a run as a link to where its numbers come from."""
    return f'<a href="#run-{index}">{escape(run.label)}</a>'


def _variable(index: int) -> str:
    return f"--run-{index % len(SERIES)}"
