#!/usr/bin/env python3
"""check_asserts.py ROOT - assertions only look, and libradish's ask the caller's panic.

 - The condition of a RAD_ASSERT changes nothing: it assigns nothing, counts nothing up or down, and
   calls only functions that take no pointer through which they could. So the code does the same
   where somebody compiles the assertions away.
 - In the rooms of libradish each is a RAD_ASSERT_ENV: env->panic is asked, and not the default
   env's, which ends the process of whoever embeds the library.
"""
import pathlib
import re
import sys

from sources import library_rooms, without_comments

ASSERT = re.compile(r"^(?!#).*?\b(RAD_ASSERT(?:_ENV)?)\(", re.M)
CHANGES = re.compile(r"\+\+|--|(?<![=!<>])=(?!=)")
CALL = re.compile(r"\b([a-z]\w*)\s*\(")
FUNCTION = re.compile(r"^(?:[A-Z_]+ )?[a-z][\w ]*[ *]+(\w+)\(([^()]*(?:\([^()]*\)[^()]*)*)\)\s*[;{]", re.M)
WORDS = {"sizeof", "defined"}


def arguments(text, at):
    """Those of the call whose parenthesis opened before `at`."""
    depth, begin, found = 0, at, []
    for i in range(at, len(text)):
        if text[i] in "([{":
            depth += 1
        elif text[i] in ")]}":
            if not depth:
                return found + [text[begin:i]]
            depth -= 1
        elif text[i] == "," and not depth:
            found, begin = found + [text[begin:i]], i + 1
    return found


def takes_only_const(parameters):
    return all("*" not in p and "[" not in p or re.search(r"\bconst\b", p)
               for p in parameters.split(","))


def main():
    root = pathlib.Path(sys.argv[1])
    library = library_rooms(root)
    texts = {path: without_comments(path.read_text())
             for path in [*root.glob("src/*/*.[ch]"), *root.glob("include/radish/*.h")]}
    pure = {}
    for text in texts.values():
        for name, parameters in FUNCTION.findall(text):
            pure[name] = pure.get(name, True) and takes_only_const(parameters)

    wrong, count = [], 0
    for path, text in sorted(texts.items()):
        for found in ASSERT.finditer(text):
            count += 1
            where = f"{path.relative_to(root)}:{text.count(chr(10), 0, found.end()) + 1}"
            condition = " ".join(arguments(text, found.end())[-1].split())
            if CHANGES.search(re.sub(r'"[^"]*"', "", condition)):
                wrong.append(f"{where}: an assertion with a side effect: {condition}")
            for name in CALL.findall(condition):
                if name not in WORDS and not pure.get(name):
                    wrong.append(f"{where}: an assertion calls {name}, which may change something")
            if found[1] == "RAD_ASSERT" and path.parent.name in library:
                wrong.append(f"{where}: RAD_ASSERT in libradish: the env's panic is not asked")
    print("\n".join(wrong) or f"{count} assertions only look")
    return 1 if wrong or not count or not pure else 0


if __name__ == "__main__":
    sys.exit(main())
