"""A page about a directory of records: what is in it, how good it is, how well it packs.

    python -m cpt_jax.curate.report selected/
    python -m cpt_jax.curate.report selected/ --tokenizer TOK --seq-len 8192 --out page.html

One HTML file that loads nothing. Lengths are of words; with ``--tokenizer`` of tokens, as
`data.prepare` counts them by its usual template, and then the page says how well rows are filled.
Records are read once. Text may be private: none is shown, unless ``--samples`` asks for some, and
of the reasons in aside/ only what stands before a quoted value.

Exit codes: 0 done; 1 something outside (a full disk); 2 refused, nothing written.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

from cpt_jax.curate.grades import CONTENTS, DOMAINS
from cpt_jax.curate.survey import Lengths, Survey, survey
from cpt_jax.data.packing import plan_rows
from cpt_jax.directories import whole_file
from cpt_jax.pages import blocks, svg

MOST_REASONS = 20
VALUES = np.arange(1, 5.75, 0.5)  # of educational: edges of the bars, the last for 5 alone


def figures(found: Survey) -> list[blocks.Block]:
    """The histograms of lengths and, where there are any, of educational values."""
    drawn: list[blocks.Block] = []
    for source in sorted(found.sources):
        tally = np.array([found.lengths[source, power] for power in range(33)])
        last = int(np.flatnonzero(tally).max(initial=0))
        names = [f"{2**power:,}" for power in range(last + 1)]
        title = f"Length: {source or '(no source)'}"
        caption = f"{found.unit.capitalize()} of a record, from each number to below its double."
        picture = _bars(title, names, tally[: last + 1], found.unit)
        drawn.append(blocks.Figure(title, picture, caption))
    if found.educational:
        counts = np.histogram(found.educational, VALUES)[0]
        names = [f"{value:g}" for value in VALUES[:-1]]
        picture = _bars("Educational value", names, counts, "educational value")
        caption = "Records, from each value to below the next; of graded ones."
        drawn.append(blocks.Figure("Educational value", picture, caption))
    return drawn


def _bars(title: str, names: Sequence[str], counts: np.ndarray, label: str) -> str:
    """A bar chart of records as an ``<svg>`` element."""
    with mpl.rc_context(svg.STYLE):
        figure = Figure(figsize=(svg.WIDTH, 2.4), layout="constrained")
        axes = figure.add_subplot()
        places = range(len(counts))
        axes.set_axisbelow(True)
        axes.bar(places, counts, width=0.85, color=svg.SERIES[0])
        step = -(-len(names) // 7)  # more names would run into one another
        axes.set_xticks(list(places)[::step], names[::step])
        axes.set_xlabel(label)
        axes.yaxis.set_major_formatter("{x:,.0f}")
    return svg.element(figure, title)


def packing(lengths: Lengths, seq_len: int) -> list[blocks.Block]:
    """How well rows of ``seq_len`` tokens are filled, by `plan_rows` itself."""
    plan = plan_rows(np.array(lengths.tokens), np.array(lengths.factors), seq_len, seed=0)
    rows = len(plan.row_offsets) - 1
    distance = "–" if plan.copy_distance is None else f"{plan.copy_distance:,}"
    cells = [f"{len(lengths.tokens):,}", f"{plan.tokens:,}", f"{rows:,}"]
    cells += [f"{100 * plan.efficiency:.2f} %", f"{plan.cuts:,}", distance]
    head = ["records", "tokens with repeats", "rows", "filled", "cuts", "between copies, rows"]
    said = f"Rows of {seq_len:,} tokens."
    if lengths.seen > len(lengths.tokens):
        said += f" Of {lengths.seen:,} records, a sample of {len(lengths.tokens):,}."
    return [blocks.Heading("Packing"), blocks.Paragraph(said), blocks.Table(head, [cells], 0)]


def page(found: Survey, seq_len: int) -> list[blocks.Block]:
    """All of the page but its title."""
    said = ", ".join(f"{n:,} {what}" for what, n in found.counts.items())
    unit = found.unit
    total = sum(source.repeated for source in found.sources.values()) or 1
    shares = [
        [name or "(none)", f"{one.records:,}", f"{one.size:,}", f"{one.repeated:,.0f}"]
        + [f"{100 * one.repeated / total:.2f} %", f"{one.repeated / max(one.size, 1):.2f}"]
        for name, one in sorted(found.sources.items())
    ]
    head = ["source", "records", unit, "with repeats", "share", "epochs"]
    parts: list[blocks.Block] = [
        blocks.Paragraph(f"Records: {said}."),
        blocks.Heading("Sources"),
        blocks.Table(head, shares),
        *figures(found),
    ]
    if found.educational:
        labels = [
            [kind, label, f"{found.labels[kind, label]:,}"]
            for kind, allowed in (("content", CONTENTS), ("domain", DOMAINS))
            for label in allowed
        ]
        parts += [
            blocks.Heading("Grades"),
            blocks.Table(["grade", "label", "records"], labels, text_columns=2),
        ]
    if found.packed is not None and found.packed.tokens:
        parts += packing(found.packed, seq_len)
    parts += _provenance(found)
    for (value, content), texts in sorted(found.samples.items()):
        parts += [blocks.Heading(f"Samples: {content}, {value}"), blocks.Items(texts)]
    return parts


def _provenance(found: Survey) -> list[blocks.Block]:
    """Licences, duplicates, and what was set aside."""
    licences = [
        [licence or "(none)", source or "(none)", f"{records:,}", f"{size:,}"]
        for (licence, source), (records, size) in sorted(found.licences.items())
    ]
    head = ["licence", "source", "records", found.unit]
    parts: list[blocks.Block] = [
        blocks.Heading("Licences"),
        blocks.Table(head, licences, text_columns=2),
        blocks.Heading("Duplicates and records set aside"),
        blocks.Paragraph(
            f"Set aside as duplicates: {found.duplicates_removed:,}. Still here with the text of"
            f" one before them: {found.duplicates_left():,}."
        ),
    ]
    if found.reasons:
        most = found.reasons.most_common(MOST_REASONS)
        rows = [[reason, f"{count:,}"] for reason, count in most]
        left = len(found.reasons) - len(most)
        parts.append(blocks.Table(["reason", "records"], rows))
        parts += [blocks.Items([f"and {left:,} other reasons"])] if left else []
    return parts


def main(arguments: Sequence[str]) -> int:
    """Writes the page; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m cpt_jax.curate.report",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("records", type=Path, help="directory of records")
    parser.add_argument("--out", type=Path, help="the page; default: DIR/report.html")
    parser.add_argument("--tokenizer", help="directory, tokenizer.json or Hub id; for packing")
    parser.add_argument("--seq-len", type=int, default=8192, help="tokens of a row (8192)")
    parser.add_argument("--samples", type=int, default=0, help="texts shown of each bucket (0)")
    options = parser.parse_args(arguments)
    try:
        for name, value, least in (
            ("--seq-len", options.seq_len, 2),
            ("--samples", options.samples, 0),
        ):
            if value < least:
                raise ValueError(f"{name} {value}; allowed: at least {least}")
        out = options.out or options.records / "report.html"
        if out.is_dir():
            raise ValueError(f"--out {out}: a directory; allowed: a file")
        found = survey(options.records, options.tokenizer, options.samples)
        title = f"Records: {options.records.resolve().name}"
        with whole_file(out) as file:
            file.write(blocks.page(title, "", page(found, options.seq_len)))
    except (ValueError, FileNotFoundError, NotADirectoryError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(out)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
