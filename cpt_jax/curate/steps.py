"""Steps of the pipeline that datatrove runs: what is read, and what of it is kept.

They are pickled and sent to where they run: what they need is opened there.
"""

import io
import lzma
import tarfile
import zlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow
from datatrove.data import Document
from datatrove.io import get_datafolder
from datatrove.pipeline.base import PipelineStep
from datatrove.pipeline.filters.base_filter import BaseFilter
from datatrove.pipeline.readers import JsonlReader
from datatrove.pipeline.writers import JsonlWriter
from datatrove.utils.word_tokenizers import WordTokenizer
from py3langid.langid import MODEL_FILE, LanguageIdentifier

from cpt_jax.curate.decontaminate import Index, texts_of_tasks, words_of
from cpt_jax.curate.readers import READERS, Fault, Reader, Record
from cpt_jax.curate.recipe import LANGUAGES, Source

ARCHIVES = (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz")
# What reading a cut or broken archive raises; gzip, bz2 and pyarrow an OSError without a number,
# which a disk's own faults have.
DAMAGED = (EOFError, zlib.error, lzma.LZMAError, tarfile.TarError, OSError)
EndOfArchive: Any = tarfile.EOFHeaderError  # pyright: ignore[reportAttributeAccessIssue]
ZSTD = (".zst", ".zstd")
# Metadata that mean something to datatrove or to us: a file's own go by another name.
OURS = frozenset({"source", "file", "rank", "filter_reason", "duplicate_count"})
NAMED = "${rank}.jsonl.gz"  # a file of each task


class Raw(NamedTuple):
    """A file of raw input: its source, its path below their directory, its bytes."""

    source: str
    path: str
    size: int


def find_raw(root: str, sources: Sequence[Source]) -> list[Raw]:
    """The files of all sources, in their order.

    Raises: FileNotFoundError: a source has none; names its glob.
    """
    folder, found = get_datafolder(root), []
    for source in sources:
        of_source: dict[str, Raw] = {}  # a file once, though two globs name it
        for glob in source.files:
            paths = folder.list_files(glob_pattern=glob)
            if not paths:
                raise FileNotFoundError(f"{source.name}: no file {glob} in {root}")
            of_source |= {path: Raw(source.name, path, folder.size(path)) for path in paths}
        found += of_source.values()
    return found


def writer(folder: str, reason: str | None = None, name: str = NAMED) -> JsonlWriter:
    """Writes records, or, with their reason, those that are set aside.

    Args:
      folder: where, local or remote.
      reason: why all that it writes is set aside, where the step that does it says none.
      name: of the files; fields of the metadata may be in it.
    """

    def form(_: JsonlWriter, document: Document) -> dict[str, Any]:
        about = dict(document.metadata)
        found = about.pop("filter_reason", reason)
        record = {"text": document.text, "id": document.id, "metadata": about}
        return record if found is None else {"reason": found, **record}

    return JsonlWriter(folder, name, compression="gzip", adapter=form)


def records(folder: str) -> JsonlReader:
    """Reads what `writer` wrote."""
    return JsonlReader(folder, glob_pattern="*.jsonl.gz", add_file_path=False)


class _Member(tarfile.TarInfo):
    """A member of an archive; notes that the archive's end was read, which tarfile does not ask."""

    @classmethod
    def fromtarfile(cls, tarfile: Any) -> Any:
        try:
            return super().fromtarfile(tarfile)
        except EndOfArchive:
            tarfile.ended = True
            raise


class ReadSources(PipelineStep):
    """The records of all sources; of files every so many-th is a task's.

    Args:
      root: the directory of raw inputs.
      files: in it.
      sources: that they are of.
      faults: where what cannot be read is written.
    """

    type, name = "READER", "sources"

    def __init__(
        self, root: str, files: Sequence[Raw], sources: Sequence[Source], faults: JsonlWriter
    ):
        super().__init__()
        self.folder, self.files, self.faults = get_datafolder(root), list(files), faults
        self.sources = {source.name: source for source in sources}

    def run(
        self, data: Iterable[Document] | None = None, rank: int = 0, world_size: int = 1
    ) -> Iterator[Document]:
        """Yields records; faults are counted and written."""
        with self.faults as faults:
            for file in self.files[rank::world_size]:
                for name, item in self._items(file, READERS[self.sources[file.source].reader]):
                    self.stat_update("read")
                    if isinstance(item, Fault):
                        self.stat_update("faults")
                        about = {"source": file.source, "file": name, "place": item.place}
                        about["filter_reason"] = item.reason
                        faults.write(Document("", name, metadata=about), rank)
                        continue
                    document = self._document(self.sources[file.source], name, item)
                    self.update_doc_stats(document)
                    yield document

    @staticmethod
    def _document(source: Source, name: str, item: Record) -> Document:
        """A record with its source, file and licence; what is ours is not a file's to say."""
        about = {"file": name}
        for key, value in item["metadata"].items():
            about[f"{key}_there" if key in OURS else key] = value
        about["licence"] = about.get("licence") or source.licence
        return Document(item["text"], item["id"], metadata=about | {"source": source.name})

    def _items(self, file: Raw, reader: Reader) -> Iterator[tuple[str, Record | Fault]]:
        """What a reader finds in a file, or in each file of an archive; with its name."""
        archive = file.path.endswith(ARCHIVES)
        packed = file.path.endswith(ZSTD)
        compression = None if archive or packed else "infer"
        try:
            with self.folder.open(file.path, "rb", compression=compression) as opened:
                if not archive:
                    if packed:  # pyarrow's says that a file is cut, where fsspec's ends
                        opened = io.BufferedReader(pyarrow.CompressedInputStream(opened, "zstd"))
                    yield from ((file.path, item) for item in reader(opened, file.path))
                    return
                with tarfile.open(fileobj=opened, mode="r|*", tarinfo=_Member) as members:
                    for member in members:
                        if content := members.extractfile(member):
                            name = f"{file.path}/{member.name}"
                            yield from ((name, item) for item in reader(content, member.name))
                    if not getattr(members, "ended", False):
                        raise EOFError
        except DAMAGED as error:
            if getattr(error, "errno", None) is not None:
                raise
            yield file.path, Fault(file.path, "a damaged archive: what comes after is not read")


class Keep(BaseFilter):
    """Keeps what is long enough, in its source's language, and in no test split.

    Args:
      sources: what they ask for.
      data: the directory of tasks; None: no test split is looked for.
      tasks: which.
      aside: where the others are written, with the first reason.
    """

    name = "length, language, test splits"

    def __init__(
        self,
        sources: Sequence[Source],
        data: Path | None,
        tasks: Sequence[str],
        aside: JsonlWriter,
    ):
        super().__init__(aside)
        self.sources = {source.name: source for source in sources}
        self.data, self.tasks = data, tuple(tasks)
        self._index: Index | None = None
        self._languages: Any = None

    def filter(self, doc: Document) -> bool | tuple[bool, str]:
        """Whether a record stays, and why not."""
        reason = self._fault(doc.text, self.sources[doc.metadata["source"]])
        return True if reason is None else (False, reason)

    def _fault(self, text: str, source: Source) -> str | None:
        if len(text.split()) < source.least_words:
            return f"fewer than {source.least_words} words"
        if source.least_letters:
            there = [c for c in text if not c.isspace()]
            if sum(map(str.isalpha, there)) < source.least_letters * len(there):
                return f"fewer than {source.least_letters:.0%} of the characters are letters"
        if source.language is not None:
            language = self._language(text)
            if language != source.language:
                return f"language {language}, not {source.language}"
        if self.data is not None:
            if self._index is None:
                texts, known = texts_of_tasks(self.tasks, self.data)
                self._index = Index(texts, known=known)
            owners = self._index.found_in(text)
            return self._index.reason(owners) if owners else None
        return None

    def _language(self, text: str) -> str:
        if self._languages is None:
            self._languages = LanguageIdentifier.from_model_file(MODEL_FILE)
            self._languages.set_languages(LANGUAGES)
        return self._languages.classify(text)[0]


class Words(WordTokenizer):
    """Words for MinHash: runs of letters and digits, in any language, without a model."""

    def word_tokenize(self, text: str) -> list[str]:
        """The words of a text."""
        return words_of(text)

    def sent_tokenize(self, text: str) -> list[str]:
        """The sentences of a text."""
        raise NotImplementedError

    def span_tokenize(self, text: str) -> list[tuple[int, int]]:
        """Where the sentences of a text are."""
        raise NotImplementedError
