#!/usr/bin/env python3
"""Longest files and functions, unsafe blocks and their SAFETY notes, leftovers.

usage: sizes.py [--check]    with --check, exit 1 when a budget is broken
"""
import pathlib, re, sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
MAX_FILE, MAX_FUNCTION, MAX_WIDTH, MAX_UNSAFE = 600, 80, 100, 14
LEFTOVERS = re.compile(r"\b(TODO|FIXME|XXX|todo!|dbg!|unimplemented!)")


def code_lines(text):
    """The lines before the unit tests, which end a file."""
    return text.split("\n#[cfg(test)]")[0].splitlines()


def functions(lines):
    """(length, name) of every function, by the indentation that rustfmt guarantees."""
    for start, line in enumerate(lines):
        head = re.match(r"( *)(?:pub(?:\([a-z]+\))? )?(?:const |unsafe )*fn (\w+)", line)
        # A declaration in a trait has no body.
        if head and not line.endswith(";"):
            end = next((i for i in range(start, len(lines)) if lines[i] == head[1] + "}"), start)
            yield end - start + 1, head[2]


def main():
    sources = sorted((ROOT / "crates").rglob("src/**/*.rs"))
    sources = [path for path in sources if path.name != "tests.rs" and "tests" not in path.parts]
    broken, files, longest, unsafe = [], [], [], 0
    for path in sources:
        text, name = path.read_text(), path.relative_to(ROOT)
        lines = code_lines(text)
        files.append((len(lines), name))
        longest += [(length, f"{name}: {function}") for length, function in functions(lines)]
        blocks = [i for i, line in enumerate(lines) if re.search(r"\bunsafe\s*\{", line)]
        unsafe += len(blocks)
        broken += [f"{name}:{i + 1}: unsafe without SAFETY" for i in blocks if "SAFETY" not in "\n".join(lines[max(0, i - 9) : i])]
        broken += [f"{name}:{i}: {line.strip()}" for i, line in enumerate(text.splitlines(), 1) if LEFTOVERS.search(line)]
        broken += [f"{name}:{i}: over {MAX_WIDTH} columns" for i, line in enumerate(text.splitlines(), 1) if len(line) > MAX_WIDTH]
    broken += [f"{name}: {n} lines, more than {MAX_FILE}" for n, name in files if n > MAX_FILE]
    broken += [f"{name}: {n} lines, more than {MAX_FUNCTION}" for n, name in longest if n > MAX_FUNCTION]
    if unsafe > MAX_UNSAFE:
        broken.append(f"{unsafe} unsafe blocks, more than {MAX_UNSAFE}: raise the budget with a reason in CHANGELOG.md")
    lengths = sorted(n for n, _ in longest)
    print(f"{sum(n for n, _ in files)} lines in {len(files)} files, {len(lengths)} functions, {unsafe} unsafe blocks")
    print(f"function length: median {lengths[len(lengths) // 2]}, 90th percentile {lengths[len(lengths) * 9 // 10]}")
    for n, name in sorted(files, reverse=True, key=lambda f: f[0])[:5] + sorted(longest, reverse=True)[:8]:
        print(f"{n:5} {name}")
    if "--check" in sys.argv and broken:
        print("\n".join(["over budget:"] + broken))
        sys.exit(1)


if __name__ == "__main__":
    main()
