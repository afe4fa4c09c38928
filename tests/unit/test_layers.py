"""Rules that can be read off the source: import layers, file names, no work at import."""

from __future__ import annotations

import ast
import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

import elmokit

ROOT = Path(elmokit.__file__).parent
PACKAGES = [
    *("core", "report", "corpora", "text", "training", "bilm", "published", "vectors", "static"),
    *("translation", "tasks", "comparison", "serve", "cli"),
]
FILES = sorted(ROOT.rglob("*.py"))


def _package(path: Path) -> str:
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def _imported_packages(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            names = [node.module or ""]
            if node.module == "elmokit":
                names = [f"elmokit.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            continue
        found |= {name.split(".")[1] for name in names if name.startswith("elmokit.")}
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_module_imports_only_from_packages_to_its_left(path: Path) -> None:
    package = _package(path)
    if package in ("__init__", "__main__", "settings", "results"):
        return  # the public names, and the program
    assert _imported_packages(path) <= {*PACKAGES[: PACKAGES.index(package)], package}


def test_modules_are_few_named_for_what_they_hold_and_without_lists_of_names() -> None:
    modules = [path for path in FILES if path.stem != "__init__"]
    assert len(modules) <= 125
    assert not [path for path in FILES if path.stem in ("utils", "helpers", "misc", "common")]
    lists = {str(path.relative_to(ROOT)) for path in modules if "\n__all__ = " in path.read_text("utf-8")}
    assert lists == {"settings.py", "results.py"}


def test_no_process_with_live_threads_is_forked() -> None:
    assert not [path for path in FILES if re.search(r"os\.fork\(|\"fork\"", path.read_text("utf-8"))]


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_functions_are_short_or_say_why_not(path: Path) -> None:
    lines = path.read_text(encoding="utf-8").splitlines()
    for node in ast.walk(ast.parse("\n".join(lines))):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        first, given = lines[node.lineno - 1], node.args
        names = [one.arg for one in (*given.posonlyargs, *given.args, *given.kwonlyargs)]
        n_parameters = len(set(names) - {"self", "cls"}) + bool(given.vararg) + bool(given.kwarg)
        n_lines = (node.end_lineno or 0) - node.lineno + 1
        assert n_lines <= 80 or "# long because " in first, f"{node.name}: {n_lines} lines"
        assert n_parameters <= 10 or "# many parameters because " in first, f"{node.name}: {n_parameters}"


def test_public_names_exist_and_have_docstrings() -> None:
    assert sorted(elmokit.__all__) == sorted(" ".join(elmokit._HOMES.values()).split())
    assert len(elmokit.__all__) == 28
    assert set(elmokit.__all__) < set(dir(elmokit))
    for name in elmokit.__all__:
        assert getattr(elmokit, name).__doc__, name
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        getattr(elmokit, "nothing")  # noqa: B009


def test_all_settings_are_in_one_place() -> None:
    defined = {
        node.name
        for path in FILES
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.ClassDef) and node.name.endswith("Config")
    }
    assert defined - set(elmokit.settings.__all__) == {"VectorsConfig", "CountingConfig", "PredictingConfig"}


def test_what_verbs_return_is_in_results_or_public() -> None:
    public = {*elmokit.results.__all__, *elmokit.__all__, "Model", "Plan"}
    for name in elmokit.__all__:
        if inspect.isfunction(verb := getattr(elmokit, name)):
            types = re.findall(r"\w+", str(inspect.signature(verb).return_annotation))
            assert set(types) <= {*public, "list"}, name


def test_help_of_every_verb_imports_no_large_library() -> None:
    code = (
        "import sys\n"
        "from elmokit.cli.main import VERBS, app\n"
        "import elmokit.settings\n"
        "for words in (['--version'], ['--help'], *([verb, '--help'] for verb in VERBS)):\n"
        "    app(words, standalone_mode=False)\n"
        "sys.exit(str({'torch', 'numpy', 'pyarrow', 'sklearn', 'scipy'} & set(sys.modules) or ''))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert not done.stderr.strip()
    assert "elmokit" in done.stdout


@pytest.mark.parametrize(
    ("kind", "tie"), [("char", False), ("word", False), ("word", True), ("subword", False)]
)
def test_making_a_model_to_read_weights_into_loads_no_compiler(kind: str, tie: bool) -> None:
    """Torch has one, which takes seconds to load; a draw of weights that are never used was enough."""
    n_pieces = 20 if kind == "subword" else 0
    code = (
        "import sys, torch\n"
        "from elmokit.bilm.model import Bilm\n"
        "from elmokit.bilm.settings import BilmConfig\n"
        "from elmokit.tasks.model import Network\n"
        "from elmokit.tasks.settings import ClassifierConfig\n"
        "from elmokit.tasks.task import Labels, get_task\n"
        "task, labels = get_task('classify'), Labels(('a', 'b'))\n"
        "with torch.device('meta'):\n"
        f"    Bilm(BilmConfig(input={kind!r}, tie={tie}, dim=8, hidden_dim=8), 20, {n_pieces})\n"
        "    for mix in ('trainable', 'frozen', 'function'):\n"
        "        for head in ('pool', 'bilstm', 'linear'):\n"
        "            Network(task, ClassifierConfig.from_flat(mix=mix, head=head), 3, 8, labels)\n"
        "sys.exit('torch._dynamo' in sys.modules or 'sympy' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
