"""Blocks as Markdown and as HTML: the same text in both, nothing of it taken for markup."""

from cpt_jax.pages.blocks import Figure, Heading, Items, Paragraph, Table, markdown, page
from tests.page_reader import Reader

HOSTILE = '<script>alert("x")</script> & &lt; [a](javascript:b) | *c* `d` \\'
BLOCKS = [
    Heading("H"),
    Paragraph("one\ntwo"),
    Items(["first", "second"]),
    Table(["task", "score"], [["a|b", "1.0"], ["c", "−2.0"]]),
    Figure("drawn", "<svg></svg>", "caption"),
    Figure("again", "<svg></svg>", "caption"),
]


def test_markdown():
    assert markdown(BLOCKS, "T") == (
        "# T\n\n## H\n\none two\n\n- first\n- second\n\n"
        "| task | score |\n| --- | ---: |\n| a\\|b | 1.0 |\n| c | −2.0 |\n"
    )


def test_page():
    text = page("T", "note", BLOCKS)
    reader = Reader(text)
    assert reader.rows == [["task", "score"], ["a|b", "1.0"], ["c", "−2.0"]]
    assert "<h2>H</h2>\n<p>one\ntwo</p>\n<ul>\n<li>first</li>" in text
    assert text.count('<div class="grid"><figure>') == 1  # both figures in it
    assert text.count("<figcaption>caption</figcaption>") == 2
    assert "<title>T</title>" in text


def test_nothing_is_markup():
    blocks = [
        *(Heading(HOSTILE), Paragraph(HOSTILE), Items([HOSTILE])),
        *(Table([HOSTILE], [[HOSTILE]]), Figure(HOSTILE, "<svg></svg>", HOSTILE)),
    ]
    text = page(HOSTILE, HOSTILE, blocks)
    reader = Reader(text)
    assert "script" not in reader.tags
    assert reader.rows == [[HOSTILE], [HOSTILE]]
    assert not reader.references
    quoted = '&lt;script>alert("x")&lt;/script> & &amp;lt; '
    escaped = quoted + r"\[a\](javascript:b) \| \*c\* \`d\` \\"
    assert markdown(blocks[:3]) == f"## {escaped}\n\n{escaped}\n\n- {escaped}\n"


def test_what_begins_like_markup():
    texts = ["> a", ">a", "# a", "- a", "+ a", "#a", "−1", "+1", "a < b > c"]
    lines = markdown([Items(texts)]).splitlines()
    assert lines == [f"- {x}" for x in (r"\> a", r"\>a", r"\# a", r"\- a", r"\+ a", *texts[5:])]
