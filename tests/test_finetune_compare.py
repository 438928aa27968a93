"""The comparison against numbers worked out by hand, scipy, and the files themselves."""

import json
import re

import numpy as np
import pytest
from scipy import stats

from cpt_jax.finetune import published
from cpt_jax.finetune.compare import run
from cpt_jax.finetune.examples import Settings, Task
from cpt_jax.finetune.pairing import read_models
from cpt_jax.finetune.results import write
from cpt_jax.finetune.tasks import TASKS
from cpt_jax.finetune.verdicts import GENERAL, PAPER, THESE, judge
from tests.page_reader import Reader
from tests.tiny_results import result, write_results

NAMES = ("anatem", "bc5cdr", "gad", "hoc", "jnlpba", "ncbi")


def declared(name, title, paper=None):
    about = {"language": "en", "kind": "tagging", "read": list, "files": {}, "folder": ()}
    rest = {"labels": None, "metric": "f1", "settings": Settings(), "source": "", "licence": ""}
    return Task(name=name, title=title, paper=paper, **about, **rest)


def drawn(seed=0, tasks=NAMES, seeds=5):
    generator = np.random.default_rng(seed)
    levels = np.linspace(0.5, 0.9, len(tasks))
    return {
        task: (level + 0.02 * generator.normal(size=seeds)).tolist()
        for task, level in zip(tasks, levels, strict=True)
    }


def tables_of(text):
    """The rows of each table of a Markdown text, by the first cell of its head."""
    found: dict[str, list[list[str]]] = {}
    rows: list[list[str]] = []
    for line in text.splitlines():
        if not line.startswith("| "):
            rows = []
            continue
        cells = [cell.strip() for cell in line.strip("|").split(" | ")]
        if not rows:
            rows = found[cells[0] if cells[0] not in found else f"{cells[0]} 2"] = []
        rows.append(cells)
    return found


def test_scores_and_differences_by_hand(tmp_path):
    """Differences 1, 2, 3 points on one task and -1, -1.5, -2 on the other."""
    a = write_results(tmp_path / "a", {"gad": [0.70, 0.71, 0.72], "ncbi": [0.80, 0.80, 0.80]})
    b = write_results(tmp_path / "b", {"gad": [0.71, 0.73, 0.75], "ncbi": [0.79, 0.785, 0.78]})
    tables = tables_of(run([a, b], None, {}))
    assert tables["task"] == [
        ["task", "metric", "seeds", "a", "b"],
        ["---", "---", "---:", "---:", "---:"],
        # t of 2 degrees is 4.303; / sqrt(3): 2.484 standard deviations to either side
        ["gad", "f1", "3", "71.0 ± 1.0 (68.5 to 73.5)", "73.0 ± 2.0 (68.0 to 78.0)"],
        ["ncbi", "f1", "3", "80.0 ± 0.0 (80.0 to 80.0)", "78.5 ± 0.5 (77.3 to 79.7)"],
        # of b: variances of means 4/3 and 1/12, a quarter of them together 0.354; Welch's degrees
        # 0.354^2 / ((0.333^2 + 0.021^2) / 2) = 2.25, whose t is 3.88
        ["mean of 2 tasks that all have", "", "", "75.5 (74.3 to 76.7)", "75.8 (73.4 to 78.1)"],
        ["best on", "", "", "1", "1"],
    ]
    assert tables["task 2"][2:] == [
        # t = 2 sqrt(3) = 3.46: p = 0.074; -1.5 sqrt(3) / 0.5 = -5.2: p = 0.035, by Holm 0.070
        ["gad", "no difference shown", "3", "+2.0 (−0.5 to +4.5)", "0.074", "0.074"],
        ["ncbi", "no difference shown", "3", "−1.5 (−2.7 to −0.3)", "0.035", "0.070"],
    ]
    text = run([a, b], None, {})
    assert "b against a, 2 tasks: better on 1, worse on 1." in text


def test_tests_are_those_of_the_files(tmp_path):
    """From the JSON files to p values by scipy, without any of our code between."""
    dirs = [write_results(tmp_path / n, drawn(i)) for i, n in enumerate(("a", "b"))]
    scores = [
        np.array(
            [
                [json.loads((d / t / f"seed-{s}.json").read_text())["test"]["f1"] for s in range(5)]
                for t in NAMES
            ]
        )
        for d in dirs
    ]
    d = scores[1] - scores[0]
    (versus,) = judge(read_models(dirs), NAMES)
    these, general, paper = versus.verdicts
    assert [v.question for v in versus.verdicts] == [THESE, GENERAL, PAPER]

    assert general.test == "sign-flip of task means, exact"
    means = d.mean(1)
    theirs = stats.permutation_test(
        (means, np.zeros(6)),
        lambda a, b, axis: (a - b).mean(axis),
        permutation_type="samples",
        vectorized=True,
        n_resamples=2**6,
    )
    assert general.p == pytest.approx(theirs.pvalue)
    interval = stats.ttest_1samp(means, 0).confidence_interval()
    np.testing.assert_allclose(np.array(general.difference), (means.mean(), *interval))

    flips = np.random.default_rng(7).choice((-1, 1), (20_000, 6, 5))
    far = np.abs((flips * d).mean((1, 2))) >= abs(d.mean())
    assert these.p == pytest.approx(far.mean(), abs=0.015)
    assert these.test == "sign-flip permutation over seeds within tasks, 99,999 draws"
    half = stats.t.ppf(0.975, 24) * d.std(1, ddof=1).mean() / np.sqrt(30)
    assert these.difference.high - d.mean() == pytest.approx(half, rel=0.15)

    boot = np.random.default_rng(8).choice(d.ravel(), (20_000, 30)).mean(1)
    assert paper.p == pytest.approx(2 * min((boot <= 0).mean(), (boot >= 0).mean()), abs=0.015)

    for row, verdict in zip(d, versus.tasks, strict=True):
        assert verdict.p == pytest.approx(stats.ttest_1samp(row, 0)[1])


def test_a_difference_is_found_and_has_its_sign(tmp_path):
    scores = drawn()
    more = {t: [x + 0.03 + 0.001 * i for i, x in enumerate(v)] for t, v in scores.items()}
    a, b = write_results(tmp_path / "a", scores), write_results(tmp_path / "b", more)
    for pair, said, sign in (([a, b], "better", "+3.2"), ([b, a], "worse", "−3.2")):
        tables = tables_of(run(pair, None, {}))
        assert [row[2] for row in tables["question"][2:]] == [said] * 3
        assert all(row[4].startswith(sign) for row in tables["question"][2:])
        assert [row[1] for row in tables["task 2"][2:]] == [said] * 6


def test_several_models_are_corrected_for(tmp_path):
    dirs = [write_results(tmp_path / n, drawn(i)) for i, n in enumerate("abc")]
    found = judge(read_models(dirs), NAMES)
    assert [(v.first, v.label) for v in found] == [("a", "b"), ("a", "c")]
    for i in range(3):
        both = [(v.verdicts[i].p, v.verdicts[i].corrected) for v in found]
        raw, corrected = np.sort(np.array(both, float), 0).T
        expected = [min(1, 2 * raw[0]), min(1, max(2 * raw[0], raw[1]))]
        np.testing.assert_allclose(corrected, expected)
    text = run(dirs, None, {})
    assert "by p corrected for 2 comparisons (Holm)" in text
    assert tables_of(text)["question"][0][-2:] == ["p", "corrected p"]


def test_a_verdict_is_by_the_corrected_p(tmp_path):
    """Better on all six tasks: 2 of 64 choices of signs, times two for the second model."""
    scores = drawn()
    more = {t: [x + 0.01 for x in values] for t, values in scores.items()}
    every = {"a": scores, "b": more, "c": {**drawn(2), "hoc": scores["hoc"]}}
    dirs = [write_results(tmp_path / name, each) for name, each in every.items()]
    assert tables_of(run(dirs[:2], None, {}))["question"][3][2:] == (
        ["better", "", "+1.0 (+1.0 to +1.0)", "0.031"]
    )
    assert tables_of(run(dirs, None, {}))["question"][3][2:] == (
        ["no difference shown", "", "+1.0 (+1.0 to +1.0)", "0.031", "0.062"]
    )


def test_seeds_are_paired_by_number(tmp_path):
    """Seeds 1 and 2 are common: differences 1 and 3 points, whatever else lies beside them."""
    for name, first, scores in (("a", 0, (0.1, 0.60, 0.70)), ("b", 1, (0.61, 0.73, 0.9))):
        for seed, score in enumerate(scores, first):
            write(tmp_path / name, result(seed=seed, score=score, model=f"models/{name}"))
    tables = tables_of(run([tmp_path / "a", tmp_path / "b"], None, {}))
    assert tables["task 2"][2][2:4] == ["2", "+2.0 (−10.7 to +14.7)"]  # 12.706 sqrt(2) / sqrt(2)


def test_few_tasks_are_tested_by_t(tmp_path):
    dirs = [write_results(tmp_path / n, drawn(i, NAMES[:3])) for i, n in enumerate("ab")]
    (versus,) = judge(read_models(dirs), NAMES)
    means = [verdict.difference.mean for verdict in versus.tasks]
    assert versus.verdicts[1].test == "t test of task means"
    assert versus.verdicts[1].p == pytest.approx(stats.ttest_1samp(means, 0)[1])
    assert versus.verdicts[0].test.endswith(", exact")  # 15 differences


def test_one_seed_has_no_interval_and_says_so(tmp_path):
    dirs = [write_results(tmp_path / n, drawn(i, seeds=1)) for i, n in enumerate("ab")]
    text = run(dirs, tmp_path / "out", {})
    tables = tables_of(text)
    assert all(row[3].endswith("(one seed: no interval)") for row in tables["task"][2:8])
    these, general, _ = tables["question"][2:]
    assert these[2:4] == ["none", "one seed of each task: nothing says how much seeds vary"]
    assert these[5] == "–"
    assert general[2] != "none"
    assert all(row[4:] == ["–", "–"] for row in tables["task 2"][2:])


def test_one_task(tmp_path):
    dirs = [write_results(tmp_path / n, drawn(i, ("gad",))) for i, n in enumerate("ab")]
    text = run(dirs, None, {})
    assert "b against a, 1 task: " in text
    assert "one task says nothing of how much tasks differ" in text


def test_one_task_of_several_has_one_seed(tmp_path):
    scores = [{**drawn(i), "hoc": [0.5 + i / 10]} for i in (0, 1)]
    dirs = [write_results(tmp_path / n, s) for n, s in zip("ab", scores, strict=True)]
    these = tables_of(run(dirs, None, {}))["question"][2]
    assert these[3] == "no interval: a task has one seed alone"
    assert these[5] != "–"


def test_what_has_no_counterpart_is_told_and_left_out(tmp_path):
    a = write_results(tmp_path / "a", {**drawn(0), "cos": [0.9, 0.9], "hoc": [0.1] * 7})
    b = write_results(tmp_path / "b", {**drawn(1), "deid": [0.8, 0.8]})
    for seed in (3, 4):
        write(a, result(task="rare", seed=seed, model="models/a"))
        write(b, result(task="rare", seed=seed + 2, model="models/b"))
    text = run([a, b], None, {})
    notes = text.split("## To be known")[1]
    assert "- results of a alone, left out (cos)" in notes
    assert "- results of b alone, left out (deid)" in notes
    assert "- seeds 5, 6 have results of a alone, left out (hoc)" in notes
    assert "- no seed in common, left out: a difference of two seeds is one of their heads" in notes
    assert "run the same seeds (rare)" in notes
    tables = tables_of(text)
    assert [row[0] for row in tables["task 2"][2:]] == list(NAMES)
    (hoc,) = (row for row in tables["task 2"] if row[0] == "hoc")
    assert hoc[2] == "5"
    (cos,) = (row for row in tables["task"] if row[0] == "cos")
    assert cos[3:] == ["90.0 ± 0.0 (90.0 to 90.0)", "–"]


def test_differing_settings_are_named(tmp_path):
    a = write_results(tmp_path / "a", drawn(0))
    b = write_results(tmp_path / "b", drawn(1), settings={"learning_rate": 2e-5})
    write(b, result(task="gad", seed=5, model="models/b", settings={"learning_rate": 1e-5}))
    notes = run([a, b], None, {}).split("## To be known")[1]
    assert "settings differ from a to b: learning_rate: 5e-05 -> 2e-05 (anatem, bc5cdr" in notes
    assert "settings differ between seeds of b: learning_rate: 2e-05 -> 1e-05 (gad)" in notes


def test_results_of_one_model_twice(tmp_path):
    dirs = [write_results(tmp_path / n, drawn(), model="models/x") for n in "ab"]
    text = run(dirs, None, {})
    assert "a and b are results of one model, models/x" in text
    assert [row[2] for row in tables_of(text)["question"][2:]] == ["no difference shown"] * 3
    assert "better on 0, worse on 0, the same on 6" in text


def test_what_cannot_be_compared_is_refused(tmp_path):
    a, b = (write_results(tmp_path / n, drawn(i)) for i, n in enumerate("ab"))
    other = write_results(tmp_path / "other", {"morfitt": [0.5, 0.6]})
    with pytest.raises(ValueError, match=r"no task and seed in common: anatem, .*; morfitt"):
        run([a, other], None, {})
    with pytest.raises(ValueError, match="a: given twice"):
        run([a, b, tmp_path / "b" / ".." / "a"], None, {})
    with pytest.raises(ValueError, match="two directories of results are needed"):
        run([a], None, {})
    (tmp_path / "x").mkdir()
    with pytest.raises(ValueError, match=r"x: holds no results"):
        run([a, tmp_path / "x"], None, {})
    for path in (b / "gad").glob("*.json"):
        tree = json.loads(path.read_text())
        path.write_text(json.dumps({**tree, "metric": "acc", "test": {"acc": 0.5, "f1": 0.5}}))
    with pytest.raises(ValueError, match=r"gad: metric f1 in .*/a, acc in .*/b: .*not to be comp"):
        run([a, b], None, {})


def test_directories_of_one_name_are_told_apart(tmp_path):
    dirs = [write_results(tmp_path / n / "out", drawn(i)) for i, n in enumerate("ab")]
    assert list(read_models(dirs)) == [str(path) for path in dirs]


def test_titles_order_and_the_papers_figures(tmp_path):
    dirs = [write_results(tmp_path / n, drawn(i)) for i, n in enumerate("ab")]
    tasks = {
        name: declared(name, title, paper)
        for name, title, paper in (
            ("ncbi", "NCBI-disease", "NCBI"),
            ("gad", "GAD", "GAD"),
            ("hoc", "HoC", None),
        )
    }
    text = run(dirs, None, tasks)
    tables = tables_of(text)
    names = ["NCBI-disease", "GAD", "HoC", "anatem", "bc5cdr", "jnlpba"]
    assert [row[0] for row in tables["task"][2:8]] == names
    beside = tables["model"]
    assert beside[0] == ["model", "NCBI-disease", "GAD"]
    assert [row[0] for row in beside[2:4]] == ["a (here)", "b (here)"]
    assert ["base 10B CLM detour", "80.4", "79.3"] in beside
    assert "arXiv:2605.12438" in text
    assert "English, 5 seeds, macro F1 in percent" in text
    assert "French" not in text
    assert "## Beside" not in run(dirs, None, {})


def test_published_figures_are_those_of_the_paper(shared):
    reference = json.loads((shared / "paper" / "reference_results.json").read_text())
    assert [table.language for table in published.read()] == ["French", "English"]
    for table in published.read():
        theirs = reference[table.language.lower()]
        assert table.tasks == theirs["tasks"]
        assert table.rows == theirs["rows"]
        assert table.seeds == theirs["seeds"]


def test_every_column_of_the_paper_is_a_task():
    columns = [column for table in published.read() for column in table.tasks]
    assert sorted(task.paper for task in TASKS.values() if task.paper) == sorted(columns)


def test_what_the_docs_say_of_the_papers_tables(repo):
    """Means, p values and counts of docs/finetune.md, from the shipped figures by scipy."""
    text = (repo / "docs" / "finetune.md").read_text()
    rows = {
        cells[0]: cells[1:]
        for line in text.splitlines()
        if len(cells := [cell.strip() for cell in line.strip("|").split("|")]) == 5
    }
    for table in published.read():
        for name in (name for name in table.rows if name.endswith(" CLM detour")):
            size = name.removesuffix(" CLM detour")
            pair = (table.rows[name], table.rows[f"{size} MLM baseline"])
            d = np.subtract(*pair)
            mean, better, flip, t = rows[f"{table.language} {size}"]
            test = stats.ttest_1samp(d, 0)
            said = [float(x) for x in re.findall(r"[+-]\d\.\d", mean.replace("−", "-"))]
            interval = (d.mean(), *test.confidence_interval())
            np.testing.assert_allclose(said, interval, atol=0.051)
            assert better == f"{(d > 0.01).sum()} / {(d < -0.01).sum()}"
            assert float(t) == pytest.approx(test[1], abs=6e-4)
            signs = 1 - 2 * (np.arange(2 ** len(d))[:, None] >> np.arange(len(d)) & 1)
            far = np.abs(signs @ d) >= abs(d.sum()) - 1e-9
            assert float(flip) == pytest.approx(far.mean(), abs=6e-4)


def test_the_page(tmp_path):
    names = ("a", "<i>b</i>".replace("/", "|"))
    dirs = [write_results(tmp_path / n, drawn(i)) for i, n in enumerate(names)]
    text = run(dirs, tmp_path / "deep" / "out", {})
    assert (tmp_path / "deep" / "out" / "compare.md").read_text() == text
    page = (tmp_path / "deep" / "out" / "compare.html").read_text()
    reader = Reader(page)
    assert len(reader.ids) == len(set(reader.ids))
    assert all(reference.startswith("#") for reference in reader.references)
    assert not reader.tags & {"script", "i", "img", "link"}
    assert page.count("<svg") == 1
    assert "&lt;i&gt;b&lt;|i&gt; − a" in page
    for name in (*NAMES, "mean, these tasks", "mean, in general"):
        assert f">{name}</text>" in page
    in_markdown = [row for rows in tables_of(text).values() for row in rows if row[0] != "---"]
    assert len(reader.rows) == len(in_markdown)
    assert reader.rows[-1] == in_markdown[-1]
    run(dirs, tmp_path / "again", {})
    assert (tmp_path / "again" / "compare.html").read_text() == page


def test_the_plot_shows_the_numbers(tmp_path, monkeypatch):
    """What is handed to matplotlib: points, and ends of intervals, in points of the metric."""
    from matplotlib.axes import Axes

    drawn_lines = []
    plot = Axes.plot
    monkeypatch.setattr(
        Axes, "plot", lambda self, *a, **k: (drawn_lines.append(a), plot(self, *a, **k))[1]
    )
    a = write_results(tmp_path / "a", {"gad": [0.70, 0.71, 0.72], "ncbi": [0.8]})
    b = write_results(tmp_path / "b", {"gad": [0.71, 0.73, 0.75], "ncbi": [0.79]})
    run([a, b], None, {})
    interval, gad, ncbi = drawn_lines[:3]  # one seed: a point without an interval
    np.testing.assert_allclose(interval[0], (-0.484, 4.484), atol=1e-3)
    np.testing.assert_allclose(gad[0], [2.0])
    np.testing.assert_allclose(ncbi[0], [-1.0])
    assert (interval[1], gad[1], ncbi[1]) == ([0, 0], [0], [1])
