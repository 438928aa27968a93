"""Small tokenizers of the kinds that encoders come with, made on the spot."""

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from cpt_jax.finetune.encode import Vocabulary

SPECIAL = ["[PAD]", "[CLS]", "[SEP]", "[UNK]"]
CORPUS = [
    "The patient was given 5 mg of aspirin for Alzheimer's disease, and BRCA1 was found.",
    "Une hépatite virale aiguë a été traitée par la lamivudine; l'anti-CD20 n'a rien donné.",
    "Non-Hodgkin lymphoma (NHL) cells were treated with 0.5 mM of TNF-alpha at 37 °C.",
]


def _finish(tokenizer: Tokenizer) -> Vocabulary:
    tokenizer.encode_special_tokens = True
    pad, cls, sep = map(tokenizer.get_vocab().__getitem__, SPECIAL[:3])
    return Vocabulary(tokenizer, cls, sep, pad)


def byte_level() -> Vocabulary:
    """As ModernBERT's: a space belongs to the token after it; no text is unknown."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()  # pyright: ignore
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)  # pyright: ignore
    tokenizer.decoder = decoders.ByteLevel()  # pyright: ignore
    trainer = trainers.BpeTrainer(
        vocab_size=340,
        special_tokens=SPECIAL,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    return _finish(tokenizer)


def word_pieces() -> Vocabulary:
    """As BERT's, cased: control characters vanish."""
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))  # pyright: ignore
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=False)  # pyright: ignore
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()  # pyright: ignore
    trainer = trainers.WordPieceTrainer(vocab_size=140, special_tokens=SPECIAL, show_progress=False)
    tokenizer.train_from_iterator(CORPUS, trainer)
    return _finish(tokenizer)


def metaspace() -> Vocabulary:
    """As SentencePiece's: a space is a character of the token after it, or a token of its own."""
    tokenizer = Tokenizer(models.BPE(unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()  # pyright: ignore
    trainer = trainers.BpeTrainer(vocab_size=90, special_tokens=SPECIAL, show_progress=False)
    tokenizer.train_from_iterator(CORPUS, trainer)
    return _finish(tokenizer)


def one_token_a_word(words: list[str]) -> Vocabulary:
    """Ids that can be read: 4 and on for the words in their order, 3 for others."""
    vocab = {token: i for i, token in enumerate([*SPECIAL, *words])}
    tokenizer = Tokenizer(models.WordLevel(vocab, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()  # pyright: ignore
    return _finish(tokenizer)
