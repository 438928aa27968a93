"""Agreement of grades against counts by hand."""

import itertools

import numpy as np
import pytest
from sklearn import metrics

from cpt_jax.curate import agreement
from cpt_jax.curate.grades import CONTENTS, DOMAINS, SCORES, Grade, grade_of


def drawn(count: int, seed: int) -> list[Grade]:
    rng = np.random.default_rng(seed)
    return [
        Grade(float(rng.integers(1, 6)), str(rng.choice(CONTENTS)), str(rng.choice(DOMAINS)))
        for _ in range(count)
    ]


def kappa(pairs: list[tuple[int, int]], classes: int, power: int) -> float:
    """1 - observed / expected disagreement, pair by pair; power 0: any difference is 1."""

    def apart(one: int, other: int) -> float:
        return float(one != other) if power == 0 else float(abs(one - other) ** power)

    n = len(pairs)
    observed = sum(apart(*pair) for pair in pairs) / n
    crossed = itertools.product([a for a, _ in pairs], [b for _, b in pairs])
    return 1 - observed / (sum(apart(*pair) for pair in crossed) / n**2)


def test_agreement_is_what_counting_gives():
    first, second = drawn(40, 0), drawn(40, 1)
    second = [a if i % 2 else b for i, (a, b) in enumerate(zip(first, second, strict=True))]
    found = agreement.measure(first, second)
    for name, labels, power in (
        ("educational", tuple(map(float, SCORES)), 2),
        ("content", CONTENTS, 0),
        ("domain", DOMAINS, 0),
    ):
        pairs = [
            (labels.index(getattr(a, name)), labels.index(getattr(b, name)))
            for a, b in zip(first, second, strict=True)
        ]
        one = found.by_label[name]
        assert one.kappa == pytest.approx(kappa(pairs, len(labels), power))
        assert one.accuracy == sum(a == b for a, b in pairs) / 40
        for place, f1 in enumerate(one.f1):
            hits = sum(a == b == place for a, b in pairs)
            named = sum(a == place for a, _ in pairs) + sum(b == place for _, b in pairs)
            assert f1 == pytest.approx(2 * hits / named)
        assert one.counts.sum() == 40
        assert all(one.counts[a, b] for a, b in pairs)
    values = [(a.educational, b.educational) for a, b in zip(first, second, strict=True)]
    assert found.error == pytest.approx(sum(abs(a - b) for a, b in values) / 40)
    assert sum(count for _, count, _, _ in found.calibration) == 40
    kappas = [one.kappa for one in found.by_label.values()]
    assert agreement.summary(first, second) == pytest.approx(sum(kappas) / 3)


def test_agreement_is_scikit_learns():
    first, second = drawn(60, 5), drawn(60, 6)
    found = agreement.measure(first, second)
    for name, one in found.by_label.items():
        labels = [float(v) if name == "educational" else v for v in one.labels]
        sides = [[labels.index(getattr(g, name)) for g in grades] for grades in (first, second)]
        weights = "quadratic" if name == "educational" else None
        assert one.kappa == pytest.approx(metrics.cohen_kappa_score(*sides, weights=weights))
        for place, f1 in enumerate(one.f1):
            ours = ([label == place for label in side] for side in sides)
            assert f1 == pytest.approx(metrics.f1_score(*ours))
        np.testing.assert_array_equal(one.counts, metrics.confusion_matrix(*sides))


def test_grades_that_agree_and_grades_of_one_kind_alone():
    same = drawn(30, 2)
    found = agreement.measure(same, same)
    assert (found.correlation, found.error, found.good) == (pytest.approx(1), 0, 1)
    assert agreement.summary(same, same) == 1
    alone = [Grade(3.0, "study", "other")] * 4
    found = agreement.measure(alone, alone)
    assert np.isnan(found.correlation)
    assert all(one.kappa == 1 for one in found.by_label.values())
    assert found.by_label["content"].f1 == (0, 1, 0, 0)
    assert found.by_label["content"].macro_f1 == 1  # of the one label there is


def test_a_value_between_two_whole_ones_is_rounded_up_at_the_half():
    first = [Grade(3.0, "study", "other"), Grade(4.0, "study", "other")]
    second = [Grade(2.5, "study", "other"), Grade(3.49, "study", "other")]
    found = agreement.measure(first, second)
    assert [label for label, *_ in found.calibration] == ["3"]
    assert found.calibration[0][1:] == (2, 3.5, pytest.approx(2.995))
    assert found.good == pytest.approx(2 / 3)  # 2.5 is below 3, though it rounds to it


def test_the_page_has_all_figures(tmp_path):
    text = agreement.write(
        agreement.measure(drawn(20, 3), drawn(20, 4)), tmp_path, "that were not trained on"
    )
    assert (tmp_path / "agreement.md").read_text() == text
    assert "20 records that were not trained on" in text
    page = (tmp_path / "agreement.html").read_text()
    assert page.count("<svg") == 3
    assert "clinical case" in page


GOOD = {"educational": 4, "content": "study", "domain": "clinical"}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"educational": 0}, "educational: 0 is not from 1 to 5"),
        ({"educational": 5.1}, "educational: 5.1 is not from 1 to 5"),
        ({"educational": float("nan")}, "educational: nan is not from 1 to 5"),
        ({"educational": True}, "educational: True is not from 1 to 5"),
        ({"educational": "4"}, "educational: '4' is not from 1 to 5"),
        ({"content": "poem"}, "content: 'poem' is not one of clinical_case, study, review, other"),
        ({"domain": None}, "domain: None is not one of clinical, biomedical, other"),
    ],
)
def test_what_is_no_grade_is_named(change, said):
    assert grade_of(GOOD) == Grade(4.0, "study", "clinical")
    with pytest.raises(ValueError, match=said):
        grade_of(GOOD | change)
    with pytest.raises(ValueError, match="no content, domain: not graded"):
        grade_of({"educational": 4})
