import pytest

from cpt_jax import trees

PATHS = [
    "model.embeddings.norm.scale",
    "model.layers.1.attn.Wo.kernel",
    "model.layers.11.attn.Wo.kernel",
    "model.layers.1.mlp.Wo.kernel",
    "decoder.bias",
]


@pytest.mark.parametrize(
    ("pattern", "named"),
    [
        ("model.layers.1.**", [1, 3]),
        ("model.layers.*.attn.Wo.kernel", [1, 2]),
        ("model.layers.1*.attn.**", [1, 2]),
        ("*.bias", [4]),
        ("**.kernel", [1, 2, 3]),
        ("**", [0, 1, 2, 3, 4]),
    ],
)
def test_patterns(pattern, named):
    assert trees.select(PATHS, [pattern]) == {PATHS[i] for i in named}


def test_a_dot_is_a_dot():
    assert not trees.matches("decoder.bias", "decoderxbias")


def test_a_pattern_that_matches_nothing_is_an_error_with_the_nearest_names():
    with pytest.raises(ValueError, match=r"'decoder.bais' \(nearest parameters: decoder.bias"):
        trees.select(PATHS, ["**.kernel", "decoder.bais"])


def test_layer_sets():
    assert trees.layer_patterns("0-1+5") == (
        "model.layers.0.**",
        "model.layers.1.**",
        "model.layers.5.**",
    )
