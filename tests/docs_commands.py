"""docs_commands.py - what README and docs tell a reader to run: who reads it out of them, and a check that it
is there. e2e/test_docs.py runs it.

A command stands in a block of shell, or indented by four spaces, or in a span of code, and begins with a program of
ours (tools/NAME, bench/NAME, build/release/NAME, tests/NAME.py, `make TARGET`, radish), or with curl, openssl or cc;
VARIABLE=value before it where there is one. A program of ours must exist, and know the options, sections and
variables that the command gives it."""
import re
import shlex
import subprocess

VARIABLE = re.compile(r"^([A-Z_]+)=")
OTHERS = ("curl", "openssl", "cc")
COMMAND = re.compile(r"^(?:[A-Z_]+=\S* )*(?:/usr/bin/python3 )?"
                     r"(?:build/release/|tools/|bench/|tests/\S+\.py|make(?: |$)|radish |%s )" % " |".join(OTHERS))
SPAN = re.compile(r"`([^`\n]+)`")
FENCED = re.compile(r"^```(\w*)\n(.*?)^```$", re.M | re.S)
INDENTED = re.compile(r"(?:^    .*\n)+", re.M)
SHELL = ("sh", "console", "")


def logical_lines(block):
    """Lines, put together where a backslash or an open quote says that they go on."""
    have = ""
    for line in block.splitlines():
        have = f"{have}{line}"
        if have.endswith("\\"):
            have = have[:-1]
            continue
        try:
            shlex.split(have, comments=True)
        except ValueError:
            if COMMAND.match(re.sub(r"^\$ ", "", have.strip())):
                have += "\n"
                continue
        yield have
        have = ""


def commands(text):
    """Every command in a document: (its line, whether it is a span within a sentence)."""
    blocks, rest = [], text
    for fence in FENCED.finditer(text):
        rest = rest.replace(fence[0], "")
        if fence[1] in SHELL:
            blocks += logical_lines(fence[2])
    for block in INDENTED.findall(rest):
        blocks += logical_lines(block)
    found = [(line, False) for line in blocks] + [(span, True) for span in SPAN.findall(INDENTED.sub("", rest))]
    for line, is_span in found:
        line = re.sub(r"^\$ ", "", line.strip())
        line = re.sub(r"\s+#(?: .*)?$", "", line)
        if COMMAND.match(line):
            yield (re.sub(r"\s+", " ", line) if "'" not in line else line), is_span


def words_of(line):
    """What a shell makes of it."""
    try:
        words = shlex.split(line)
    except ValueError:  # a quote that goes on elsewhere
        words = line.split()
    return [word.rstrip(";,") for word in words]


def help_of(program):
    done = subprocess.run([*program, "--help"], capture_output=True, text=True)
    return done.stdout


class Checker:
    def __init__(self, root, build):
        self.root, self.build, self.helps = root, build, {}
        self.targets = set(re.findall(r"^([\w-]+):", (root / "Makefile").read_text(), re.M))

    def knows(self, program, text_of, option):
        """Whether an option of ours stands in a program's own words."""
        if program not in self.helps:
            self.helps[program] = text_of()
        return re.search(rf"(?<![\w-]){re.escape(option)}(?![\w-])", self.helps[program])

    def sections(self, script):
        named = re.search(r'^sections="([^"]*)"', script.read_text(), re.M)
        return named[1].split() if named else None

    def problem(self, words):
        """What is wrong with a command, or None."""
        variables = []
        while VARIABLE.match(words[0]):
            variables.append(VARIABLE.match(words.pop(0))[1])
        if words[0] == "/usr/bin/python3":
            words.pop(0)
        name, rest = words[0], words[1:]
        if name in OTHERS:
            return None
        if name == "make":
            return self.make(variables, rest)
        if name == "radish":
            name = "build/release/radish"
        inside = name.startswith("build/release/")
        path = self.build / name[len("build/release/"):] if inside else self.root / name
        if path.is_dir():
            return None
        if not path.is_file():
            return f"{name} is not there"
        if path.name == "radish":
            command = rest[0] if rest and re.fullmatch(r"[a-z]+", rest[0]) else ""
            program, text_of = f"radish {command}", lambda: help_of([path] + [command] * bool(command))
        elif path.suffix == ".py":
            program, text_of = name, lambda: path.read_text()
        elif path.suffix == ".sh":
            program, text_of = name, lambda: path.read_text()
            wanted = self.sections(path)
            for word in rest if wanted else ():
                if word not in wanted and not word.startswith("[") and word.islower():
                    return f"{name} has no section {word}"
        else:
            source = next((self.root / folder / f"{path.name}.c" for folder in ("bench", "tests", "examples")
                           if (self.root / folder / f"{path.name}.c").is_file()), None)
            program, text_of = name, lambda: source.read_text() if source else ""
        for word in rest:
            option = word.split("=")[0].strip("[]")
            if re.fullmatch(r"--?[a-z][\w-]*", option) and not self.knows(program, text_of, option):
                return f"{program} has no {option}"
        for variable in variables:
            if not variable.startswith("RADISH") and not self.knows(program, text_of, variable):
                return f"{name} reads no {variable}"
        return None

    def make(self, variables, words):
        scripts = "".join(f.read_text() for f in (self.root / "tools").glob("*.sh"))
        programs = "".join(f.read_text() for f in (self.root / "tools").glob("*.py"))
        for variable in variables:
            if f"${{{variable}" not in scripts and f'environ.get("{variable}"' not in programs:
                return f"no script of tools/ reads {variable}"
        for word in words:
            if VARIABLE.match(word):
                name = VARIABLE.match(word)[1]
                if name not in (self.root / "Makefile").read_text() and name != "DESTDIR":
                    return f"the Makefile has no {name}"
            elif word not in self.targets:
                return f"the Makefile has no target {word}"
        return None


def check_commands(root, build, documents, wrong):
    checker = Checker(root, build)
    count = 0
    for path in documents:
        for line, _ in commands(path.read_text()):
            count += 1
            problem = checker.problem(words_of(line))
            if problem:
                wrong.append(f"{path}: `{line}`: {problem}")
    if count < 40:
        wrong.append(f"only {count} commands were found in the documents")
    return count


# ---- beside the clone ----

CLIMBS = re.compile(r"(?<![\w./])((?:\.\./)+[\w./-]*)")
PARENT = re.compile(r"\b(?:ROOT|root|SOURCE_DIR|PWD)\b[})]?(?:/\.\.|\.parent)(?![\w.])")
# Here RADISH_TESTDATA is given its default, in these files or in a line that names it; nothing else may look there.
TEST_DATA = ("tests/test.h", "tests/e2e/radish_e2e.py")


def check_beside(root, wrong):
    """No text, script or source names a file outside the repository by a path from within: one that
    climbs leads to a file of ours, from where the text lies."""
    seen = 0
    files = [root / "README.md", root / "Makefile", root / "CMakeLists.txt"]
    for folder in ("docs", "tools", "bench", "src", "include", "examples", "cmake", "tests"):
        files += [f for f in sorted((root / folder).rglob("*"))
                  if f.suffix in (".md", ".1", ".sh", ".py", ".c", ".h", ".txt", ".cmake", ".in")]
    for path in files:
        seen += 1
        for number, line in enumerate(path.read_text().splitlines(), 1):
            if "RADISH_TESTDATA" in line or "shared/data" in line and str(path.relative_to(root)) in TEST_DATA:
                continue
            outside = [climb for climb in CLIMBS.findall(line)
                       if not (path.parent / climb).resolve().is_relative_to(root) or
                       not (path.parent / climb).exists()]
            if outside or PARENT.search(line):
                wrong.append(f"{path}:{number}: names something beside the clone: {line.strip()}")
    if seen < 300:
        wrong.append(f"only {seen} files were looked at")
