"""Models side by side: scores, who is better and how sure that is, as Markdown and as a page.

Shown are percent and percentage points with one decimal; files hold fractions.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from cpt_jax.finetune import effects, published
from cpt_jax.finetune.examples import Task
from cpt_jax.finetune.pairing import mixed_settings, read_models
from cpt_jax.finetune.results import Results
from cpt_jax.finetune.significance import LEVEL, ROUNDING
from cpt_jax.finetune.verdicts import Estimate, Versus, estimate, judge, mean_over
from cpt_jax.pages.blocks import Block, Figure, Heading, Items, Paragraph, Table, markdown, page

NAME = "compare"
UNITS = (
    "Scores are percent and differences percentage points, to one decimal: mean ± standard "
    "deviation over seeds (95 % interval of the mean)."
)
READING = """\
On these tasks: what varies is the seeds' noise. The test rejects that the models do the same on
every task; what it finds holds for these tasks and no others.

Would other tasks say the same: what counts is how far the tasks' differences lie apart, which more
seeds do not mend.

The paired bootstrap over tasks x seeds is the paper's test. Where tasks differ it is no test of
other tasks: it sees far too many differences (docs/finetune.md has figures).

Of single tasks, p is that of a paired t test over seeds, and then corrected by Holm for the number
of tasks: judge by the corrected one."""


def run(directories: Sequence[Path], out: Path | None, tasks: Mapping[str, Task]) -> str:
    """Returns the comparison as Markdown, and writes ``compare.md`` and ``compare.html``.

    Args:
      directories: of results, one a model; the first is what the others are compared with.
      out: where to write the two; None: nowhere.
      tasks: known ones by name, for their titles, order, and columns in the paper.

    Raises:
      ValueError: what is in a directory is no result, or not to be compared; names the file.
      OSError: a directory cannot be read or written.
    """
    models = read_models(directories)
    blocks = describe(models, tasks)
    title = " and ".join(models)
    text = markdown([Paragraph(UNITS), *blocks], title)
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        (out / f"{NAME}.md").write_text(text, encoding="utf-8")
        (out / f"{NAME}.html").write_text(page(title, UNITS, blocks), encoding="utf-8")
    return text


def describe(models: Mapping[str, Results], tasks: Mapping[str, Task]) -> list[Block]:
    """Returns all that is to be said of some models' results.

    Raises:
      ValueError: two are not to be compared.
    """
    there = {task for results in models.values() for task in results.tasks}
    order = [t for t in tasks if t in there] + sorted(there - tasks.keys())
    titles = {task: tasks[task].title if task in tasks else task for task in order}
    found = judge(models, order)
    notes = [note for label, results in models.items() for note in mixed_settings(label, results)]
    notes += [note for versus in found for note in versus.notes]
    return [
        Heading("Verdicts"),
        *(block for versus in found for block in _verdicts(versus, len(found))),
        Items(READING.split("\n\n")),
        Heading("Scores"),
        _scores(models, titles),
        Heading("Differences"),
        *(_figure(versus, titles) for versus in found),
        *(block for versus in found for block in _differences(versus, titles)),
        *_published(models, tasks, titles),
        *((Heading("To be known"), Items(list(dict.fromkeys(notes)))) if notes else ()),
        Heading("Where the numbers come from"),
        Items([f"{name}: {each.directory}, of {each.model}" for name, each in models.items()]),
    ]


def _verdicts(versus: Versus, comparisons: int) -> list[Block]:
    """Returns the tests of the mean over tasks, as a sentence and a table."""
    n, ties = len(versus.tasks), len(versus.tasks) - versus.wins - versus.losses
    said = (
        f"{versus.label} against {versus.first}, {n} {'task' if n == 1 else 'tasks'}: better on "
        f"{versus.wins}, worse on {versus.losses}" + (f", the same on {ties}" if ties else "") + "."
    )
    if comparisons > 1:
        said += f" The verdict is by p corrected for {comparisons} comparisons (Holm)."
    several = ["corrected p"] if comparisons > 1 else []
    rows = [
        [
            verdict.question,
            verdict.test,
            _says(verdict.corrected, verdict.difference.mean),
            verdict.remark,
            _interval(verdict.difference, signed=True),
            _p(verdict.p),
            *([_p(verdict.corrected)] if several else []),
        ]
        for verdict in versus.verdicts
    ]
    head = ["question", "test", "verdict", "remark", "mean difference", "p", *several]
    return [Paragraph(said), Table(head, rows, text_columns=4)]


def _scores(models: Mapping[str, Results], titles: Mapping[str, str]) -> Table:
    rows, bests = [], dict.fromkeys(models, 0)
    for task, title in titles.items():
        have = {label: each.tasks[task] for label, each in models.items() if task in each.tasks}
        values = {k: np.array([r.score for r in seeds.values()]) for k, seeds in have.items()}
        best = max(value.mean() for value in values.values())
        if len(have) == len(models):
            for label, value in values.items():
                bests[label] += bool(value.mean() >= best - ROUNDING)
        counts = list(dict.fromkeys(str(len(seeds)) for seeds in have.values()))
        metric = next(iter(next(iter(have.values())).values())).metric
        cells = [_score(values[label]) if label in values else "–" for label in models]
        rows.append([title, metric, ", ".join(counts), *cells])
    shared = [task for task in titles if all(task in each.tasks for each in models.values())]
    if shared:
        means = [
            mean_over([np.array([r.score for r in each.tasks[task].values()]) for task in shared])
            for each in models.values()
        ]
        name = f"mean of {len(shared)} {'task' if len(shared) == 1 else 'tasks'} that all have"
        rows.append([name, "", "", *(_interval(mean) for mean in means)])
        rows.append(["best on", "", "", *map(str, bests.values())])
    return Table(["task", "metric", "seeds", *models], rows, text_columns=2)


def _score(values: np.ndarray) -> str:
    if len(values) == 1:
        return f"{100 * values[0]:.1f} (one seed: no interval)"
    each = estimate(values)
    spread = f"{100 * values.std(ddof=1):.1f}"
    return _interval(each).replace(" (", f" ± {spread} (")


def _figure(versus: Versus, titles: Mapping[str, str]) -> Figure:
    title = f"{versus.label} − {versus.first}"
    rows = [(titles[each.task], each.difference) for each in versus.tasks]
    these, general, *_ = versus.verdicts
    means = [("mean, these tasks", these.difference), ("mean, in general", general.difference)]
    caption = (
        f"Right of 0, {versus.label} is better. Intervals are not corrected for the number of "
        "tasks; that of the mean is wider where it is to hold for other tasks too."
    )
    return Figure(title, effects.draw(title, [*rows, *means], len(means)), caption)


def _differences(versus: Versus, titles: Mapping[str, str]) -> list[Block]:
    rows = [
        [
            titles[each.task],
            _says(each.corrected, each.difference.mean),
            str(each.seeds),
            _interval(each.difference, signed=True),
            _p(each.p),
            _p(each.corrected),
        ]
        for each in versus.tasks
    ]
    head = ["task", "verdict", "seeds", "difference", "p", f"p, Holm over {len(rows)}"]
    return [Paragraph(f"{versus.label} − {versus.first}, task by task."), Table(head, rows, 2)]


def _published(
    models: Mapping[str, Results], tasks: Mapping[str, Task], titles: Mapping[str, str]
) -> list[Block]:
    """Returns ours beside the paper's figures, for the tasks that are in its tables."""
    columns = {task: tasks[task].paper for task in titles if task in tasks}
    blocks: list[Block] = []
    for table in published.read():
        ours = [task for task, column in columns.items() if column in table.tasks]
        if not ours:
            continue
        rows = []
        for label, each in models.items():
            values = [
                100 * float(np.mean([r.score for r in each.tasks[task].values()]))
                if task in each.tasks
                else None
                for task in ours
            ]
            rows.append([f"{label} (here)", *map(_figure_of, values)])
        for name, figures in table.rows.items():
            by_column = dict(zip(table.tasks, figures, strict=True))
            rows.append([name, *(_figure_of(by_column[columns[task] or ""]) for task in ours)])
        said = f"{table.language}, {table.seeds} seeds, {table.metric}; {table.source}."
        blocks += [Paragraph(said), Table(["model", *(titles[task] for task in ours)], rows)]
    if not blocks:
        return []
    caution = (
        "As printed there, from other runs: other hardware, code, seeds and maybe splits. What "
        "differs from ours is not the models alone."
    )
    return [Heading("Beside the paper's"), Paragraph(caution), *blocks]


def _figure_of(percent: float | None) -> str:
    return "–" if percent is None else f"{percent:.1f}"


def _says(p: float | None, difference: float) -> str:
    if p is None:
        return "none"
    if p > LEVEL:
        return "no difference shown"
    return "better" if difference > 0 else "worse"


def _interval(each: Estimate, *, signed: bool = False) -> str:
    def points(value: float) -> str:
        text = f"{100 * value:{'+' if signed else ''}.1f}"
        return text[1:] if text in ("-0.0", "+0.0") else text.replace("-", "−")

    if each.low is None or each.high is None:
        return points(each.mean)
    return f"{points(each.mean)} ({points(each.low)} to {points(each.high)})"


def _p(p: float | None) -> str:
    if p is None:
        return "–"
    return "<0.001" if p < 0.001 else f"{p:.3f}"
