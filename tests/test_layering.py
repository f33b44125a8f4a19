"""Imports point one way: every file of the project is read, not run, and each of its imports is judged.

    errors, types <- settings <- kernels | text | wire <- checkpoints, model <- engine <- generation <- handlers <- server

A package may import itself and whatever stands left of it; packages that share a place do not know each other, except
checkpoints and model. `conformance` is a black box and imports nothing of ours.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

BASE = {"maple_spec", "errors", "types"}  # maple_spec alone is the version in its __init__.py
LOWER = BASE | {"settings"}
BELOW_ENGINE = LOWER | {"kernels", "text", "wire", "checkpoints", "model"}
SERVING = BELOW_ENGINE | {"engine", "generation", "handlers"}

MAY_IMPORT: dict[str, set[str]] = {
    "maple_spec": set(),
    "errors": {"maple_spec"},
    "types": {"maple_spec"},
    "settings": BASE,
    "kernels": LOWER,
    "text": LOWER,
    "wire": LOWER,
    "checkpoints": LOWER | {"kernels", "text", "model"},
    "model": LOWER | {"kernels", "text", "checkpoints"},
    "engine": BELOW_ENGINE,
    "generation": BELOW_ENGINE | {"engine"},
    "handlers": BELOW_ENGINE | {"engine", "generation"},
    "server": SERVING | {"bench"},  # the command line offers it
    "__main__": SERVING | {"server"},
    "tiny": BELOW_ENGINE | {"engine", "generation"},  # the recipe of the embedded model, which nothing else needs
    "bench": BELOW_ENGINE,
    "conformance": set(),
}

# One file, one import: plain `connexion run` imports handlers, and handlers must then wire the server.
EXCEPTIONS = {("handlers/__init__.py", "maple_spec.server.wiring")}

# library -> the parts that may import it; where a set holds a file, only that file.
ONLY_IN: dict[str, set[str]] = {
    "torch": {"kernels", "checkpoints", "model", "engine", "tiny", "server"},
    "safetensors": {"checkpoints", "tiny"},
    "transformers": {"maple_spec/model/auto.py"},
    "connexion": {"handlers", "server"},
    "starlette": {"handlers", "server"},
    "uvicorn": {"server", "__main__"},
    "pydantic_settings": {"settings"},
}


def source_files() -> list[Path]:
    """Every Python file that is shipped."""
    return sorted(path for top in ("maple_spec", "handlers", "conformance") for path in (ROOT / top).rglob("*.py"))


def part_of(module: str) -> str | None:
    """The part of the project that a dotted module name belongs to; None for other people's modules."""
    names = module.split(".")
    if names[0] == "maple_spec":
        return names[1] if len(names) > 1 else "maple_spec"
    return names[0] if names[0] in ("handlers", "conformance", "tests") else None


def module_of(path: Path) -> str:
    """The dotted name of a source file."""
    names = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(names[:-1] if names[-1] == "__init__" else names)


def imported_modules(path: Path) -> Iterator[tuple[int, str]]:
    """Line and dotted name of everything that a file imports, wherever it does so, import_module with a literal included."""
    package = module_of(path) if path.name == "__init__.py" else module_of(path).rpartition(".")[0]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            origin = ".".join([*base, *([node.module] if node.module else [])])
            modules = [f"{origin}.{alias.name}" for alias in node.names if is_module(origin, alias.name)]
            yield from ((node.lineno, module) for module in modules)
            if len(modules) < len(node.names):  # some of the names are values of the origin itself
                yield node.lineno, origin
        elif isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if name in ("import_module", "__import__") and isinstance(node.args[0].value, str):
                yield node.lineno, node.args[0].value


def is_module(package: str, name: str) -> bool:
    """Whether package.name is a module of ours rather than a value."""
    folder = ROOT.joinpath(*package.split("."))
    return (folder / name).is_dir() or (folder / f"{name}.py").is_file()


@pytest.mark.parametrize("path", source_files(), ids=lambda path: str(path.relative_to(ROOT)))
def test_a_file_imports_only_what_stands_below_it(path: Path) -> None:
    part = part_of(module_of(path))
    assert part in MAY_IMPORT, f"{path} belongs to no layer: give {part} its place in MAY_IMPORT"
    file = path.relative_to(ROOT).as_posix()
    for line, module in imported_modules(path):
        target = part_of(module)
        if target is not None and target != part and (file, module) not in EXCEPTIONS:
            assert target in MAY_IMPORT[part], f"{file}:{line}: {part} must not import {module}"
        library = module.split(".")[0]
        if library in ONLY_IN:
            assert {part, file} & ONLY_IN[library], f"{file}:{line}: {library} is imported in {sorted(ONLY_IN[library])} only"


def test_the_order_of_the_layers_has_no_cycle_but_checkpoints_and_model() -> None:
    for part, below in MAY_IMPORT.items():
        for target in below:
            if {part, target} != {"checkpoints", "model"}:
                assert part not in MAY_IMPORT[target], f"{part} and {target} import each other"


def modules_after(statement: str) -> set[str]:
    """The top-level modules in a fresh interpreter after a statement."""
    program = f"{statement}\nimport sys\nprint(*{{name.split('.')[0] for name in sys.modules}})"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT, check=True)
    return set(done.stdout.split())


def test_torch_enters_at_the_kernels() -> None:
    loaded = modules_after("import maple_spec.settings, maple_spec.text, maple_spec.wire, maple_spec.types, maple_spec.errors")
    assert "maple_spec" in loaded
    assert "torch" not in loaded


def test_serving_never_imports_transformers() -> None:
    loaded = modules_after("import maple_spec.server.app, maple_spec.checkpoints, maple_spec.engine.maple_adapter")
    assert "torch" in loaded
    assert "transformers" not in loaded
