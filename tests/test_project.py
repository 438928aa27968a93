"""The rules of the house that a reader would otherwise have to trust."""

import ast
import graphlib
import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

REPO = Path(__file__).parents[1]
PACKAGE = REPO / "cpt_jax"
PROJECT = tomllib.loads((REPO / "pyproject.toml").read_text())["project"]

# Arrays flow one way: a module imports from its own room and from rooms to the left of it.
ROAD = (
    *("addresses", "directories", "memory", "repositories", "seeds", "parsing"),
    *("pages", "config", "relay"),
    *(
        "peers",
        "hosts",
        "command",
        "trees",
        "gathering",
        "sharding",
        "lock",
        "remote",
        "checkpoint",
    ),
    *("saving", "telemetry", "data", "model", "provenance"),
    *("training", "finetune", "analysis", "curate", "report", "preflight", "twin", "main"),
)
# What only `convert/` and tests may import, and what the data path does without as well.
NEVER = {"torch", "transformers"}
NEVER_IN_DATA = NEVER | {"jax", "jaxlib", "flax", "optax", "orbax", "chex"}

MAX_FILE, MAX_FUNCTION = 400, 60  # lines; a function's without its docstring
# "path" or "path::function" -> why it may be longer
LONG: dict[str, str] = {}

MODULES = sorted(PACKAGE.rglob("*.py"))
CHECKED = MODULES + [
    path
    for folder in ("convert", "configs", "launch", "benchmarks", "docs")
    for path in sorted((REPO / folder).rglob("*.py"))
]


def name_of(path: Path) -> str:
    """The dotted name of a module of ours: `cpt_jax.model.spec`; a package has its own name."""
    parts = path.relative_to(REPO).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports_of(path: Path) -> Iterator[tuple[str, int]]:
    """Every module that a file names in an import, those inside functions too, with its line."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: a relative import"
            assert node.module is not None
            for alias in node.names:
                name = f"{node.module}.{alias.name}"
                is_module = name in {name_of(module) for module in MODULES}
                yield (name if is_module else node.module), node.lineno


def test_imports_go_one_way():
    graph: dict[str, set[str]] = {}
    faults = []
    for path in MODULES:
        source = name_of(path)
        if source == "cpt_jax":
            continue  # the front door: it opens other rooms lazily
        room = source.split(".")[1]
        assert room in ROAD, f"{source} is in no room of the road: {ROAD}"
        for target, line in imports_of(path):
            if not target.startswith("cpt_jax."):
                continue
            graph.setdefault(source, set()).add(target)
            if ROAD.index(target.split(".")[1]) > ROAD.index(room):
                faults.append(f"{path}:{line}: {source} imports {target}, further down the road")
    assert not faults, "\n".join(faults)
    assert graph, "no import found at all: the walk is broken"
    list(graphlib.TopologicalSorter(graph).static_order())  # raises CycleError within a room


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_imports_only_what_the_room_may(path):
    forbidden = NEVER_IN_DATA if "data" in path.relative_to(PACKAGE).parts[:1] else NEVER
    faults = [(n, line) for n, line in imports_of(path) if n.split(".")[0] in forbidden]
    assert not faults, f"{path}: {faults}"


def test_imports_are_declared():
    declared = {canonicalize_name(Requirement(line).name) for line in PROJECT["dependencies"]}
    providers = importlib.metadata.packages_distributions()
    faults = []
    for path in MODULES:
        for target, line in imports_of(path):
            top = target.split(".")[0]
            if top in sys.stdlib_module_names or top == "cpt_jax":
                continue
            if not declared & {canonicalize_name(name) for name in providers.get(top, ())}:
                faults.append(f"{path}:{line}: {top}")
    assert not faults, "imported but not in [project] dependencies:\n" + "\n".join(faults)


@pytest.mark.slow
def test_everything_imports_without_torch():
    """With torch and transformers as good as uninstalled, every module of cpt_jax imports."""
    script = (
        "import importlib, sys\n"
        "sys.modules['torch'] = sys.modules['transformers'] = None\n"
        "for name in sys.argv[1:]: importlib.import_module(name)\n"
    )
    command = [sys.executable, "-c", script, *map(name_of, MODULES)]
    done = subprocess.run(command, cwd=REPO, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def lines_of(node: ast.FunctionDef) -> int:
    assert node.end_lineno is not None
    return node.end_lineno - node.lineno + 1


@pytest.mark.parametrize("path", CHECKED, ids=lambda path: str(path.relative_to(REPO)))
def test_files_and_functions_are_short(path):
    text, name = path.read_text(), str(path.relative_to(REPO))
    assert path.stem != "utils", f"{name}: say what is in it"
    sizes = {name: len(text.splitlines())}
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef):
            contract = ast.get_docstring(node, clean=False) or ""
            sizes[f"{name}::{node.name}"] = lines_of(node) - len(contract.splitlines())
    too_long = {
        key: size
        for key, size in sizes.items()
        if size > (MAX_FUNCTION if "::" in key else MAX_FILE) and key not in LONG
    }
    assert not too_long


def test_dependencies_are_bounded_and_the_tested_set_is_within():
    pins = {}
    for line in (REPO / "constraints.txt").read_text().splitlines():
        if not line.startswith("#"):
            assert re.fullmatch(r"[\w.-]+==[\w.]+", line), f"constraints.txt: {line!r}"
            name, version = line.split("==")
            pins[canonicalize_name(name)] = version
    groups = PROJECT["optional-dependencies"]
    for line in PROJECT["dependencies"] + groups["convert"] + groups["test"]:
        requirement = Requirement(line)
        assert "<" in str(requirement.specifier) or "==" in str(requirement.specifier), line
        pinned = pins[canonicalize_name(requirement.name)]
        assert requirement.specifier.contains(pinned), f"{line}, but the tested is {pinned}"
    assert pins["torch"] == "2.13.0"


def test_wheel_holds_cpt_jax_only(tmp_path):
    """Built from a copy of the tree by the build backend itself, so without a network."""
    ignored = shutil.ignore_patterns("__pycache__", ".*", "runs", "build", "*.egg-info")
    shutil.copytree(REPO, tmp_path / "tree", ignore=ignored)
    script = "import setuptools.build_meta as b; b.build_wheel('..')"
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, cwd=tmp_path / "tree", capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    (wheel,) = tmp_path.glob("*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    ours = {name for name in names if not re.match(r"cpt_jax-[\w.]+\.dist-info/", name)}
    others = (path for kind in ("css", "json", "txt") for path in PACKAGE.rglob(f"*.{kind}"))
    files = [*MODULES, *others]
    assert ours == {str(path.relative_to(REPO)) for path in files}
    assert any(name.endswith("/LICENSE") for name in names)


RUN = ["README.md", "docs/data.md", "docs/tutorial.md"]
PAGES = ["README.md", *(f"docs/{path.name}" for path in sorted((REPO / "docs").glob("*.md")))]


def blocks_of(page: str, info: str) -> list[tuple[str, str]]:
    """The page's fenced blocks whose first line is ``` and something with `info`: (line, text)."""
    fences = re.findall(r"^```([^\n]*)\n(.*?)^```$", (REPO / page).read_text(), re.M | re.S)
    assert all(text for _, text in fences), f"{page}: an empty block, or the search is broken"
    return [(first, text) for first, text in fences if info in first]


@pytest.mark.parametrize("page", PAGES)
def test_readme_names_what_exists(page):
    """Each `make X` and `python -m X` in a page's shell blocks is there to be run."""
    targets = re.findall(r"^([a-z]+):", (REPO / "Makefile").read_text(), re.M)
    for _, text in blocks_of(page, "bash"):
        for target in re.findall(r"\bmake ([a-z]+)", text):
            assert target in targets, f"{page}: make {target}"
        for module in re.findall(r"\bpython -m ([\w.]+)", text):
            path = REPO / module.replace(".", "/")
            found = path.with_suffix(".py").is_file() or (path / "__main__.py").is_file()
            assert found or module in ("venv", "pip", "pytest"), f"{page}: python -m {module}"
        for config in re.findall(r"\bconfigs/\w+\.py", text):
            assert (REPO / config).is_file(), f"{page}: {config}"


def test_faults_name_tests_that_exist():
    """docs/faults.md says which test would notice a fault; it must be there to notice it."""
    named = re.findall(r"`(test_\w+\.py)::(\w+)`", (REPO / "docs" / "faults.md").read_text())
    assert len(named) > 60
    for file, test in named:
        code = (REPO / "tests" / file).read_text()
        assert re.search(rf"^def {test}\(", code, re.M), f"docs/faults.md: {file}::{test}"


@pytest.mark.slow
@pytest.mark.parametrize("page", RUN)
def test_readme_commands_run(tmp_path, page):
    """Runs, in their order and in one folder, blocks marked `bash test` or `python test`.

    The folder shows the checkout through links, so that what commands write stays out of it.
    """
    blocks = blocks_of(page, " test")
    assert blocks, f"{page} marks no block as ```bash test"
    shells = {"bash test": ["bash", "-euo", "pipefail"], "python test": [sys.executable]}
    for entry in REPO.iterdir():
        if entry.name not in ("runs", "build", ".git"):
            (tmp_path / entry.name).symlink_to(entry)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    for first, text in blocks:
        done = subprocess.run(
            [*shells[first], "-c", text],
            cwd=tmp_path,
            env=os.environ | {"PATH": path},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, f"{text}\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
