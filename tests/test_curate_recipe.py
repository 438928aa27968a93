"""Recipes: those that are there are the paper's, and one that cannot be meant is refused."""

from pathlib import Path

import pytest

from configs import en_base_10b, en_base_50b, en_large_50b, fr_base, fr_large
from cpt_jax.curate.recipe import Recipe, Source, needing_grades, read_recipe

REPO = Path(__file__).parents[1]
RECIPES = {
    "fr_base": fr_base,
    "fr_large": fr_large,
    "en_10b": en_base_10b,
    "en_50b": en_base_50b,
}


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_makes_what_the_run_reads(name):
    """The run's sources by name, path and share, and its tokens, phase 1 and decay."""
    recipe = read_recipe(REPO / f"configs/data/{name}.py")
    run = RECIPES[name].get_config()
    weights = {source.name: source.weight for source in run.data.sources}
    assert recipe.shares == pytest.approx(
        {n: w / sum(weights.values()) for n, w in weights.items()}
    )
    assert recipe.tokens == sum(phase.tokens for phase in run.phases)
    assert recipe.seq_len == run.data.seq_len
    root = name.split("_", maxsplit=1)[0]
    assert {source.path for source in run.data.sources} == {f"data/{root}/{n}" for n in weights}


def test_large_reads_what_base_does():
    paths = [
        [s.path for s in config.get_config().data.sources] for config in (en_base_50b, en_large_50b)
    ]
    assert paths[0] == paths[1]


def test_what_needs_a_grader():
    wanted = {
        "fr_base": ["literature"],
        "en_10b": ["biomed_enriched"],
        "en_50b": ["pmc_educational"],
    }
    for name, sources in wanted.items():
        recipe = read_recipe(REPO / f"configs/data/{name}.py")
        assert [source.name for source in needing_grades(recipe.sources)] == sources
    for name in ("en_small", "fr_small"):
        assert not needing_grades(read_recipe(REPO / f"configs/data/{name}.py").sources)


GOOD = 'Source("a", "jsonl", ("*.jsonl",), 1.0)'


@pytest.mark.parametrize(
    ("sources", "more", "fault"),
    [
        ("", "", "recipe.sources: their names are []; each once, and one or more"),
        (f"{GOOD}, {GOOD},", "", "recipe.sources: their names are ['a', 'a']"),
        ('Source("a b", "jsonl", (), 1.0),', "", "recipe.sources[0].name: 'a b' is not letters"),
        ('Source("a", "pdf", (), 1.0),', "", "reader: 'pdf' is not one of jats, pubmed, e3c"),
        ('Source("a", "jsonl", (), 1.0),', "", "recipe.sources[0].files: none"),
        ('Source("a", "jsonl", ("../*",), 1.0),', "", "files: '../*' is not below the directory"),
        ('Source("a", "jsonl", ("/x",), 1.0),', "", "files: '/x' is not below the directory"),
        ('Source("a", "jsonl", ("*",), 0.0),', "", "share: 0.0 is not a number above 0"),
        (
            'Source("a", "jsonl", ("*",), 1.0, language="xx"),',
            "",
            "language: 'xx' is not one",
        ),
        ('Source("a", "jsonl", ("*",), 1.0, least_words=-1),', "", "least_words: -1 is not 0 or"),
        (
            'Source("a", "jsonl", ("*",), 1.0, least_letters=60.0),',
            "",
            "least_letters: 60.0",
        ),
        (
            'Source("a", "jsonl", ("*",), 1.0, rules=Rules(least=7.0)),',
            "",
            "recipe.sources[0].rules.least: 7.0 is not from 1 to 5",
        ),
        (f"{GOOD},", "near=MinHash(buckets=0)", "recipe.near.buckets: 0 is not 1 or more"),
        (f"{GOOD},", "seq_len=1", "recipe.seq_len: 1 is not 2 or more"),
        (f"{GOOD},", "heldout_fraction=1.0", "recipe.heldout_fraction: 1.0 is not from 0"),
        (f"{GOOD},", "colour=1", "got an unexpected keyword argument 'colour'"),
    ],
)
def test_what_cannot_be_meant_is_refused(tmp_path, sources, more, fault):
    path = tmp_path / "recipe.py"
    path.write_text(
        "from cpt_jax.curate.recipe import MinHash, Recipe, Source\n"
        "from cpt_jax.curate.rules import Rules\n"
        f'def get_recipe(): return Recipe("r", 1e6, ({sources}), {more})\n'
    )
    with pytest.raises(ValueError) as caught:
        read_recipe(path)
    assert str(caught.value).startswith(f"{path}:")
    assert fault in str(caught.value)


def test_files_that_are_no_recipe(tmp_path):
    with pytest.raises(FileNotFoundError, match="no such file"):
        read_recipe(tmp_path / "none.py")
    path = tmp_path / "recipe.py"
    for text, fault in (
        ("x = 1\n", "has no function get_recipe"),
        ("def get_recipe(): return 3\n", "get_recipe returned a int, not a Recipe"),
        ("def get_recipe(:\n", "SyntaxError"),
        ("def get_recipe(): return {}['x']\n", "KeyError: 'x'"),
    ):
        path.write_text(text)
        with pytest.raises(ValueError, match=fault):
            read_recipe(path)


def test_shares_sum_to_one():
    sources = tuple(
        Source(name, "jsonl", ("*",), share) for name, share in (("a", 3.0), ("b", 1.0))
    )
    assert Recipe("r", 1e6, sources).shares == {"a": 0.75, "b": 0.25}
