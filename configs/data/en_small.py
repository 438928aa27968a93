"""A small English mixture of public text: MedQuAD, PLOS and CRAFT articles, PubMed abstracts."""

from cpt_jax.curate.recipe import Recipe, Source

ARTICLES = ("en_bio/plos_starter.jsonl", "en_bio/craft_fulltext.jsonl")
QUESTIONS = ("en_bio/medquad.jsonl",)
ABSTRACTS = ("en_bio/pubmed_abstracts_pubtator_train.jsonl",)


def get_recipe() -> Recipe:
    """Returns the recipe; docs/curate.md says where its raw inputs are from."""
    return Recipe(
        name="en_small",
        tokens=20e6,
        sources=(
            Source("articles", "jsonl", ARTICLES, 0.5, language="en"),
            Source(
                *("questions", "jsonl", QUESTIONS, 0.3),
                licence="CC BY 4.0",
                language="en",
                least_words=10,
            ),
            Source("abstracts", "jsonl", ABSTRACTS, 0.2, language="en"),
        ),
    )
