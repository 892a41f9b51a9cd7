#!/usr/bin/env python3
"""Fails where files of a crate import each other in a circle. Reads `use` items and paths that begin with crate, self or super."""

import os
import re
import sys


def modules(src):
    """Maps each module path of a crate, as a tuple, to its source without comments and test modules."""
    found = {}
    for folder, _, names in os.walk(src):
        for name in names:
            if not name.endswith(".rs"):
                continue
            path = os.path.join(folder, name)
            module = tuple(os.path.relpath(path, src)[:-3].split(os.sep))
            module = () if module in [("lib",), ("main",)] else module
            if "tests" in module:
                continue
            with open(path, encoding="utf-8") as file:
                text = re.sub(r"//.*", "", file.read())
            text = re.sub(r"pub\(in [^)]*\)", "pub", text)
            found[module] = re.sub(r"#\[cfg\(test\)\]\s*mod \w+ \{.*\Z", "", text, flags=re.S)
    return found


def leaves(tree, prefix=()):
    """Returns the paths of a use tree such as `a::{b, c::d}`."""
    tree = tree.strip()
    start = tree.find("{")
    if start < 0:
        return [prefix + tuple(re.sub(r"\s+as\s+\w+", "", tree).replace(" ", "").split("::"))]
    head = tuple(part for part in tree[:start].replace(" ", "").split("::") if part)
    parts, depth, current = [], 0, ""
    for char in tree[start + 1 : tree.rfind("}")]:
        depth += (char == "{") - (char == "}")
        if char == "," and depth == 0:
            parts.append(current)
            current = ""
        else:
            current += char
    return [path for part in parts + [current] if part.strip() for path in leaves(part, prefix + head)]


def inline_modules(text):
    """Returns a function from an offset to the names of the inline modules around it."""
    spans = []
    for item in re.finditer(r"\bmod (\w+) \{", text):
        depth, end = 1, item.end()
        while depth and end < len(text):
            depth += (text[end] == "{") - (text[end] == "}")
            end += 1
        spans.append((item.start(), end, item[1]))
    return lambda offset: tuple(name for start, end, name in spans if start < offset < end)


def imports(crate):
    """Maps each module of a crate to those that it imports."""

    def absolute(module, path):
        if path[0] == "crate":
            return path[1:]
        if path[0] == "self":
            return module + path[1:]
        up = 0
        while up < len(path) and path[up] == "super":
            up += 1
        if up:
            return module[:-up] + path[up:]
        return module + path if module + path[:1] in crate else None

    def resolve(path):
        while path and path not in crate:
            path = path[:-1]
        return path

    exports, uses = {}, {}
    for module, text in crate.items():
        used = uses.setdefault(module, set())
        inline = inline_modules(text)
        for item in re.finditer(r"(pub(?:\([^)]*\))?\s+)?use\s+([^;]+);", text):
            for path in leaves(item[2]):
                target = absolute(module + inline(item.start()), path)
                if target is None:
                    continue
                if item[1]:
                    exports[module, path[-1]] = target
                else:
                    used.add(target)
        for item in re.finditer(r"\b(?:crate|super)(?:::\w+)+", text):
            used.add(absolute(module + inline(item.start()), tuple(item[0].split("::"))))
    edges = {}
    for module, used in uses.items():
        edges[module] = set()
        for path in used:
            # follows re-exports to the file that has the definition
            for _ in range(5):
                target = resolve(path)
                rest = path[len(target) :]
                if not rest or (target, rest[0]) not in exports:
                    break
                path = exports[target, rest[0]] + rest[1:]
            edges[module].add(resolve(path))
        edges[module].discard(module)
    return edges


def cycles(edges):
    """Returns the strongly connected components of two or more modules (Tarjan's algorithm)."""
    index, low, stack, found = {}, {}, [], []

    def visit(module):
        index[module] = low[module] = len(index)
        stack.append(module)
        for other in edges.get(module, ()):
            if other not in index:
                visit(other)
                low[module] = min(low[module], low[other])
            elif other in stack:
                low[module] = min(low[module], index[other])
        if low[module] == index[module]:
            component = stack[stack.index(module) :]
            del stack[stack.index(module) :]
            if len(component) > 1:
                found.append(component)

    for module in edges:
        if module not in index:
            visit(module)
    return found


def main():
    os.chdir(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
    sources = sorted(f"crates/{name}/src" for name in os.listdir("crates")) + ["native/src"]
    failed = False
    for src in sources:
        edges = imports(modules(src))
        for component in cycles(edges):
            failed = True
            print(f"error: {src}: {len(component)} files import each other:", file=sys.stderr)
            for module in sorted(component):
                for other in sorted(edges[module] & set(component)):
                    print(f"  {'::'.join(module) or '(root)'} -> {'::'.join(other) or '(root)'}", file=sys.stderr)
    sys.exit(failed)


if __name__ == "__main__":
    main()
