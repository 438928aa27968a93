"""COS and SocialHistory: BRAT's files, cut into snippets, and entities that overlap taken apart."""

import re
from pathlib import Path

import pytest

from cpt_jax.finetune.examples import Annotated, Span
from cpt_jax.finetune.tasks import TASKS, washington
from cpt_jax.finetune.tasks.loading import load

# As its README shows them.
SNIPPETS = "Slight increase in opacity at the left base.\nNo change since prior.\n"
CHANGES = """T1\tCos 0 15\tSlight increase
T2\tSnippet 0 44\tSlight increase in opacity at the left base.
T3\tAttr 19 26\topacity
T4\tLoc 34 43\tleft base
R5\tLocation Arg1:T3 Arg2:T4
T6\tSnippet 45 67\tNo change since prior.
T7\tCos 45 54\tNo change
T8\tRef 61 66\tprior
"""


def write(folder: Path, name: str, text: str, annotations: str) -> list[Path]:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.txt").write_text(text)
    path = folder / f"{name}.ann"
    path.write_text(annotations)
    return [path]


def surfaces(example) -> list[tuple[str, str]]:
    assert isinstance(example, Annotated)
    return [(example.text[start:end], label) for start, end, label in example.spans]


def test_changes(tmp_path):
    first, second = washington.read_changes(write(tmp_path, "snippet1_2", SNIPPETS, CHANGES))
    assert (first.id, second.id) == ("snippet1_2:0", "snippet1_2:45")
    assert surfaces(first) == [
        ("Slight increase", "Cos"),
        ("opacity", "Attr"),
        ("left base", "Loc"),
    ]
    assert surfaces(second) == [("No change", "Cos"), ("prior", "Ref")]
    assert isinstance(second, Annotated)
    assert second.text == "No change since prior."


def test_changes_without_snippets_are_told(tmp_path):
    files = write(tmp_path, "a", SNIPPETS, CHANGES.replace("Snippet", "Passage"))
    with pytest.raises(ValueError, match=re.escape(f"{tmp_path}/a.txt: no Snippet in its annot")):
        washington.read_changes(files)


def test_the_task_is_found_in_its_archive_and_split(tmp_path):
    folder = tmp_path / "events-COS-corpus" / "release_Jan_1_2015" / "data"
    for number in range(10):
        text, notes = SNIPPETS, CHANGES
        write(folder, f"snippet{number}", text, notes)
    splits = load(TASKS["cos"], tmp_path).splits
    assert {split: len(examples) for split, examples in splits.items()} == {
        "train": 14,
        "dev": 3,
        "test": 3,
    }


def test_history(tmp_path):
    text = "SOCIAL: smokes 1 pack, daily.\n"
    notes = "T1\tTobacco 8 28\tsmokes 1 pack, daily\nT2\tAmount 15 21\t1 pack\n"
    (example,) = washington.read_history(write(tmp_path, "a", text, notes))
    assert surfaces(example) == [
        ("smokes", "Tobacco"),
        ("1 pack", "Amount"),
        (", daily", "Tobacco"),
    ]


@pytest.mark.parametrize(
    ("spans", "expected"),
    [
        ([(0, 4, "A"), (4, 8, "B")], [(0, 4, "A"), (4, 8, "B")]),
        ([(0, 4, "A"), (0, 4, "A")], [(0, 4, "A")]),
        ([(0, 7, "A"), (3, 9, "B")], [(0, 3, "A"), (3, 9, "B")]),
        ([(3, 9, "B"), (0, 7, "A")], [(0, 3, "A"), (3, 9, "B")]),
        ([(0, 9, "A"), (0, 3, "B")], [(0, 3, "B"), (3, 9, "A")]),
        ([(0, 11, "A"), (3, 9, "B")], [(0, 3, "A"), (3, 9, "B")]),  # a dot is left, no entity
        ([(9, 11, "A")], [(9, 10, "A")]),
        ([], []),
    ],
)
def test_flat(spans, expected):
    text = "abcdefghi. "
    assert washington.flat(text, [Span(*span) for span in spans]) == tuple(map(tuple, expected))
