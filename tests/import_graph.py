"""Who imports whom: the imports of every module of the project, read from its source and held against a table.

The source is parsed, never imported, so an import inside a function or under ``TYPE_CHECKING`` counts as well. A table
names modules in full; ``name.*`` stands for a package and all that lies in it.
"""

import ast
import sys
from collections.abc import Collection, Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from importlib.util import resolve_name
from pathlib import Path

type Graph = dict[str, set[str]]
type Table = Mapping[str, Collection[str]]


def read_imports(root: Path, packages: Collection[str]) -> Graph:
    """For each module of ``packages`` below ``root`` the modules that it imports, the standard library left out.

    A module of ``packages`` appears under its full name, anything else under its first part alone.
    """
    files = {_module_name(path.relative_to(root)): path for name in packages for path in (root / name).rglob("*.py")}
    return {module: _imports_of(module, path, files) for module, path in sorted(files.items())}


def violations(graph: Graph, allowed: Table, third_party: Table) -> list[str]:
    """One line for each module without an entry in ``allowed`` and for each import that the tables do not allow.

    ``allowed`` holds the project's imports of a module, ``third_party`` those from outside of a top-level package.
    """
    found = []
    for module, imports in graph.items():
        entry = _entry(module, allowed)
        if entry is None:
            found.append(f"{module} has no entry in the table of imports")
            continue
        may_import = [*entry, *third_party[_top(module)]]
        found += [
            f"{module} may not import {name}"
            for name in sorted(imports)
            if not any(_covers(pattern, name) for pattern in may_import)
        ]
    return found


def cycle(graph: Graph) -> list[str]:
    """The modules of one import cycle, the first repeated at the end; empty if there is none."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def reachable(graph: Graph, module: str) -> set[str]:
    """All that ``module`` imports, itself or through others."""
    seen: set[str] = set()
    waiting = [module]
    while waiting:
        name = waiting.pop()
        if name not in seen:
            seen.add(name)
            waiting += graph.get(name, ())
    return seen - {module}


def _imports_of(module: str, path: Path, files: Mapping[str, Path]) -> set[str]:
    names = _imported_names(module, path)
    tops = {_top(name) for name in files}
    return {
        _known_module(name, files) if _top(name) in tops else _top(name)
        for name in names
        if _top(name) not in sys.stdlib_module_names
    }


def _imported_names(module: str, path: Path) -> Iterator[str]:
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"), filename=str(path))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            source = "." * node.level + (node.module or "")
            source = resolve_name(source, package) if node.level else source
            yield from (f"{source}.{alias.name}" for alias in node.names)


def _known_module(name: str, files: Mapping[str, Path]) -> str:
    """``name`` without what it names inside a module: a class, say, or the star of ``import *``."""
    parent = name
    while parent not in files and "." in parent:
        parent = parent.rpartition(".")[0]
    return parent if parent in files else name


def _entry(module: str, table: Table) -> Collection[str] | None:
    patterns = [pattern for pattern in table if _covers(pattern, module)]
    return table[max(patterns, key=len)] if patterns else None


def _covers(pattern: str, module: str) -> bool:
    package = pattern.removesuffix(".*")
    return module == package or (pattern.endswith(".*") and module.startswith(f"{package}."))


def _module_name(path: Path) -> str:
    return ".".join(path.with_suffix("").parts).removesuffix(".__init__")


def _top(module: str) -> str:
    return module.partition(".")[0]
