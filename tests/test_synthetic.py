"""The invented clinic: same notes everywhere, exact labels, a domain gap, a usable tokenizer."""

import collections
import json
import math
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from cpt_jax.data import synthetic
from cpt_jax.data.clinic import diseases, grammar, lexicon
from cpt_jax.data.synthetic import SPECIALTIES, notes, save_tokenizer, train_tokenizer

REPO = Path(__file__).parents[1]


def generate(path, *arguments):
    """Runs the command in its own process, where no run-time check of types slows it down."""
    code = (
        "import sys; from cpt_jax.data import synthetic; synthetic.main(sys.argv[1:]);"
        "print(sorted({'jax', 'torch', 'transformers'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "--out", str(path), *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONHASHSEED": "12345"},
        check=True,
        cwd=REPO,
    )
    assert done.stdout.splitlines()[-1] == "[]"  # none of them was imported
    lines = (path / "notes.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    options = ["--seed", "7", "--count", "2000", "--language", "mixed", "--max-words", "1500"]
    return generate(tmp_path_factory.mktemp("clinic"), *options)


@pytest.fixture(scope="module")
def tokenizer(corpus):
    return train_tokenizer((note["text"] for note in corpus[:500]), 1500)


def tokens_of(tokenizer, text):
    ids = tokenizer.encode(text, add_special_tokens=False).ids
    return [tokenizer.id_to_token(i) for i in ids]


def test_same_notes_in_another_process(corpus):
    assert list(notes(7, 30, language="mixed", max_words=1500)) == corpus[:30]


def test_a_note_depends_on_its_index_alone(corpus):
    assert list(notes(7, 3, language="mixed", max_words=1500, first=20)) == corpus[20:23]
    assert next(notes(8, 1, language="mixed", max_words=1500))["text"] != corpus[0]["text"]


def test_entities_are_exact_ordered_and_apart(corpus):
    for note in corpus:
        assert not re.search("[\x00-\x08\x0b-\x1f{}|<>\\[\\]]|  ", note["text"]), note["text"]
        end = 0
        for entity in note["entities"]:
            assert end <= entity["start"] < entity["end"] <= len(note["text"])
            surface = note["text"][entity["start"] : entity["end"]]
            assert surface == surface.strip()
            end = entity["end"]


def test_labels_name_what_they_should(corpus):
    """Independent of the tables' readers: surfaces as a clinician writes them."""
    found = collections.defaultdict(set)
    negated = collections.defaultdict(set)
    for note in corpus:
        for entity in note["entities"]:
            surface = note["text"][entity["start"] : entity["end"]].lower()
            (negated if entity["negated"] else found)[entity["label"]].add(surface)
    assert set(found) == set(synthetic.ENTITY_LABELS)
    assert {"furosémide", "furosemide", "metformine", "metformin"} <= found["DRUG"]
    assert {"2,5 mg", "2.5 mg"} <= found["DOSE"]
    assert {"créatininémie", "serum creatinine", "crp"} <= found["LAB"]
    assert {"fièvre", "fever"} <= found["SYMPTOM"] & negated["SYMPTOM"]
    assert {"hypertension artérielle", "hypertension"} <= found["DISEASE"]
    assert set(negated) == {"SYMPTOM", "DISEASE"}
    assert all(re.match(r"\d[\d.,]*( |%|/|$)", value) for value in found["VALUE"])


def test_negation_is_worded_and_labelled(corpus):
    """A negated symptom stands in a sentence that denies it; a plain one does not follow 'pas'."""
    denial = {
        "fr": re.compile(r"\b(pas|plus|ni|n'|ne|sans|écartée?s?|argument)\b|n'", re.I),
        "en": re.compile(r"\b(no|not|nor|denies|neither|without|excluded|longer|ruled)\b", re.I),
    }
    count = 0
    for note in corpus:
        for entity in note["entities"]:
            text, start, end = note["text"], entity["start"], entity["end"]
            if entity["negated"]:
                count += 1
                sentence = re.split(r"[.\n] ?", text[:start])[-1] + text[start:].split(".")[0]
                assert denial[note["language"]].search(sentence), sentence
            elif entity["label"] == "SYMPTOM":
                assert not re.search(r"\b(pas|plus) (de |d')$|\b(no|denies) $", text[:start], re.I)
            assert end > start
    assert count > len(corpus)


def test_no_two_notes_alike_and_many_types(corpus):
    assert len({note["text"] for note in corpus}) == len(corpus)
    assert len({note["id"] for note in corpus}) == len(corpus)
    for field, values in (
        ("note_type", set(synthetic.NOTE_TYPES)),
        ("specialty", set(SPECIALTIES)),
        ("language", {"fr", "en"}),
    ):
        assert {note[field] for note in corpus} == values


@pytest.mark.parametrize(("low", "high"), [(1, 61), (20, 80), (100, 160), (300, 400), (2000, 2100)])
def test_lengths_stay_within_the_limits(low, high):
    for note in notes(1, 30, language="mixed", min_words=low, max_words=high):
        assert low <= len(note["text"].split()) <= high


def test_default_lengths_are_heavy_tailed(tmp_path):
    records = generate(tmp_path, "--count", "800", "--language", "en")
    lengths = sorted(len(note["text"].split()) for note in records)
    assert 20 <= lengths[0] < 40
    assert 90 < lengths[400] < 220
    assert sum(lengths) / 800 > 1.7 * lengths[400]
    assert 2500 < lengths[-1] <= 4800


@pytest.mark.parametrize("language", ["fr", "en"])
def test_specialties_differ_in_vocabulary(corpus, language):
    """Naive Bayes on single words separates the specialties: a domain gap exists."""
    words = {name: collections.Counter() for name in SPECIALTIES}
    records = [note for note in corpus if note["language"] == language]
    for note in records[:700]:
        words[note["specialty"]].update(re.findall(r"[^\W\d_]+", note["text"].lower()))
    vocabulary = set().union(*words.values())
    totals = {name: sum(counter.values()) + len(vocabulary) for name, counter in words.items()}

    def score(tokens, name):
        return sum(math.log((words[name][w] + 1) / totals[name]) for w in tokens if w in vocabulary)

    def cross_entropy(tokens, name):
        return -score(tokens, name) / len(tokens)

    right, gaps = 0, []
    test = records[700:]
    for note in test:
        tokens = re.findall(r"[^\W\d_]+", note["text"].lower())
        scores = {name: score(tokens, name) for name in SPECIALTIES}
        right += max(scores, key=scores.__getitem__) == note["specialty"]
        if note["specialty"] == "cardiology":
            gaps.append(cross_entropy(tokens, "general") - cross_entropy(tokens, "cardiology"))
    assert right / len(test) > 0.9
    assert sum(gaps) / len(gaps) > 0.2  # nats a word


def test_the_disease_and_its_side_come_back():
    """What the start of a record says, its end says again."""
    for note in notes(5, 12, language="en", min_words=810, max_words=1200):
        assert note["note_type"] == "longitudinal_record"
        named = [
            note["text"][e["start"] : e["end"]].lower()
            for e in note["entities"]
            if e["label"] == "DISEASE" and not e["negated"]
        ]
        assert named[0] in named[len(named) // 2 :]
        patient = re.search(r"(Mr|Mrs) \w+", note["text"])
        assert patient is not None
        assert len(set(re.findall(r"(?:Mr|Mrs) \w+", note["text"]))) == 1


def test_french_and_english_describe_the_same_patient():
    """Same seed and index: same specialty, age and sex."""
    french = notes(2, 40, language="fr", min_words=100, max_words=500)
    english = notes(2, 40, language="en", min_words=100, max_words=500)
    age = re.compile(r"aged (\d+)|(\d+) years|(\d+)-year-old")
    compared = 0
    for a, b in zip(french, english, strict=True):
        assert a["specialty"] == b["specialty"]
        mine, theirs = re.search(r"(?<!il y a )\b(\d+) ans", a["text"]), age.search(b["text"])
        if a["note_type"] == b["note_type"] and mine and theirs:
            compared += 1
            assert mine[1] in theirs.groups()
            assert bool(re.search(r"\bM\. ", a["text"])) == bool(re.search(r"\bMr ", b["text"]))
    assert compared > 20


def test_french_agrees_and_elides(corpus):
    unelided = re.compile(r"\b(de|le|la|ne) ([aeiouéèêœ]\w|hy|hém)|\b[dl]' |\b[dl]'hernie", re.I)
    for note in corpus:
        if note["language"] == "fr":
            text = note["text"]
            wrong = unelided.search(text)
            assert not wrong, text[max(0, wrong.start() - 30) : wrong.end() + 20]
            assert not re.search(r"\bde les?\b|\bà les?\b|\bune? (une?|des)\b", text, re.I)
            assert not re.search(r"\b(la patiente|elle) est (suivi|adressé|admis)\b", text, re.I)
            assert not ("Mme " in text and re.search(r"\bM\. [A-Z]", text))


def test_tables_are_consistent():
    """Every link points at an entry, and both languages draw the same numbers and brackets."""
    tables = grammar.load("fr")
    for key, disease in tables.diseases.items():
        assert disease.specialty in SPECIALTIES
        assert set(disease.symptoms) <= set(tables.symptoms), key
        assert set(disease.drugs) <= set(tables.drugs), key
        assert {name for name, _ in disease.findings} <= set(tables.procedures), key
        assert disease.operation in {None, *tables.operations}
        for lab, sign in disease.labs:
            bounds = tables.labs[lab].high if sign == "+" else tables.labs[lab].low
            assert bounds != (0, 0), (key, lab)
    for table in (diseases.DISEASES, lexicon.OPERATIONS, lexicon.SPECIALTY_SENTENCES):
        for line in grammar.lines(table):
            for term in re.split(" ; | = ", line):
                sides = term.split(" / ")
                if len(sides) == 2:
                    french, english = (len(re.findall(r"\[", side)) for side in sides)
                    numbers = [sorted(re.findall("<[^>]*>", side)) for side in sides]
                    assert numbers[0] == numbers[1], term
                    assert french == english or "s [" in term, term
    assert set(grammar.load("en").sections) == set(tables.sections)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"language": "de"}, "language is 'de'; allowed: fr, en, mixed"),
        ({"specialty": "dentistry"}, "specialty is 'dentistry'; allowed: general"),
        ({"min_words": 100, "max_words": 120}, "max_words at least min_words"),
    ],
)
def test_wrong_arguments_are_refused_at_once(arguments, message):
    with pytest.raises(ValueError, match=message):
        notes(0, 1, **arguments)


def test_specialty_and_language_are_kept():
    for note in notes(0, 20, language="en", specialty=("oncology", "neurology")):
        assert note["language"] == "en"
        assert note["specialty"] in ("oncology", "neurology")


# -- tokenizer ---------------------------------------------------------------------------------


def test_template_adds_cls_and_sep(tokenizer):
    ids = tokenizer.encode("Pas de fièvre.").ids
    assert ids[0] == tokenizer.token_to_id("[CLS]") == 1
    assert ids[-1] == tokenizer.token_to_id("[SEP]") == 2
    assert [tokenizer.token_to_id(t) for t in synthetic.SPECIAL_TOKENS] == [0, 1, 2, 3, 4]
    assert tokenizer.get_vocab_size() == 1500


def test_mask_takes_the_space_before_it(tokenizer):
    """No lone space token before [MASK], and the next word keeps its space."""
    assert tokens_of(tokenizer, "le [MASK] est") == ["le", "[MASK]", "Ġest"]
    # What lstrip=False does:
    assert tokens_of(tokenizer, "le [UNK] est") == ["le", "Ġ", "[UNK]", "Ġest"]


@pytest.mark.parametrize(
    "text", ["Œdème, naïf, 38,5 °C, µmol/L, 10^9 à l'été ; « ça »", "日本 🙂\n\ttab"]
)
def test_tokenizer_round_trip(tokenizer, text):
    ids = tokenizer.encode(text, add_special_tokens=False).ids
    assert tokenizer.decode(ids, skip_special_tokens=False) == text


def test_tokenizer_is_deterministic(tokenizer, corpus):
    again = train_tokenizer((note["text"] for note in corpus[:500]), 1500)
    assert again.to_str() == tokenizer.to_str()


def test_tokenizer_needs_room_for_the_bytes():
    with pytest.raises(ValueError, match="vocab_size is 200; at least 261"):
        train_tokenizer(["texte"], 200)


@pytest.mark.torch
def test_transformers_loads_the_tokenizer(tokenizer, tmp_path):
    transformers = pytest.importorskip("transformers")
    save_tokenizer(tokenizer, tmp_path, 8192)
    loaded = transformers.AutoTokenizer.from_pretrained(tmp_path)
    assert loaded.model_max_length == 8192
    assert loaded.is_fast
    for name in ("pad", "cls", "sep", "unk", "mask"):
        assert getattr(loaded, f"{name}_token") == f"[{name.upper()}]"
    text = "La fièvre [MASK] sous paracétamol."
    assert dict(loaded(text)) == {
        "input_ids": tokenizer.encode(text).ids,
        "attention_mask": tokenizer.encode(text).attention_mask,
    }
    ids = loaded("le [MASK] est", add_special_tokens=False)["input_ids"]
    assert loaded.convert_ids_to_tokens(ids) == ["le", "[MASK]", "Ġest"]
    assert loaded.decode(loaded(text)["input_ids"], skip_special_tokens=True).startswith(
        "La fièvre"
    )
    assert len(loaded("mot " * 9000, truncation=True)["input_ids"]) == 8192
    with pytest.raises(FileExistsError, match="exists"):
        save_tokenizer(tokenizer, tmp_path, 8192)


def test_command_writes_and_never_overwrites(tmp_path, capsys):
    command = ["--out", str(tmp_path), "--count", "12", "--language", "mixed", "--max-words", "200"]
    tokenizer_out = ["--tokenizer-vocab", "300", "--tokenizer-out", str(tmp_path / "tok")]
    synthetic.main(command + tokenizer_out)
    lines = (tmp_path / "notes.jsonl").read_text(encoding="utf-8").splitlines()
    assert [json.loads(line) for line in lines] == list(
        notes(0, 12, language="mixed", max_words=200)
    )
    words = sum(len(json.loads(line)["text"].split()) for line in lines)
    assert f"12 notes, {words:,} words" in capsys.readouterr().out
    assert (tmp_path / "tok" / "tokenizer_config.json").exists()
    with pytest.raises(SystemExit):
        synthetic.main(command)
    assert "exists; choose another directory" in capsys.readouterr().err
