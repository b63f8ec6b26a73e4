#!/usr/bin/env python3
"""check_man.py ROOT BUILD - --help, the manual pages and the names of a config file agree.

 - `radish man --write` makes a page of every command that --help lists, with the options of the
   command's own --help, all of them and in their order, and with the sections of docs/man/COMMAND.mdoc;
   each of those belongs to a command.
 - radish(1) lists the commands, each with --help's words; what the prose says of options is of options that
   are there, and a number in parentheses behind one is its default.
 - radish-chat(1) has the commands of a conversation.
 - mandoc's lint and groff's warnings, where they are there, find nothing in any page.
 - Every name in packaging/radish.conf, also of those that are commented out, is an option of serve;
   docs/serve.md names what serve lets choose.
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

HELP_OPTION = re.compile(r"^  (?:-(\w), |    )--([\w-]+)", re.M)  # as cli_parse prints a manual
PAGE_OPTION = re.compile(r"^\.It (?:Fl (\w) , )?Fl -([\w-]+)", re.M)


def output(*words, **more):
    return subprocess.run(words, capture_output=True, text=True, check=True, **more).stdout


class Commands:
    """What --help says: names and their words, options, and the manual itself."""

    def __init__(self, radish):
        self.radish = radish
        self.about = dict(re.findall(r"^  (\w+) {2,}(.+)$", output(radish, "--help"), re.M))
        del self.about["help"]
        subjects = re.findall(r"^  (\w+) {2,}(.+)$", output(radish, "inspect", "--help").split("usage:")[1], re.M)
        del self.about["inspect"]
        self.about |= {f"inspect-{subject}": about for subject, about in subjects}
        self.help = {name: output(radish, *name.split("-"), "--help") for name in self.about}
        self.options = {name: HELP_OPTION.findall(text)[:-1] for name, text in self.help.items()}  # --help is the last


def options_named(mdoc):
    """The long options after .Fl in some lines of a page: `.Fl -a , -b`, `.Op Fl -c`."""
    names = set()
    for line in mdoc.splitlines():
        words = line.split()
        if line.startswith(".") and "Fl" in [word.lstrip(".") for word in words]:
            names |= {word[1:] for word in words if re.fullmatch(r"-[a-z][\w-]+", word)}
    return names


def section(page, name):
    found = re.search(rf"^\.Sh {name}\n((?:(?!\.Sh ).*\n)*)", page, re.M)
    return found[1] if found else ""


def check_pages(root, commands, pages, wrong):
    prose = {path.stem: path.read_text() for path in (root / "docs/man").glob("*.mdoc")}
    wrong += [f"docs/man/{name}.mdoc: there is no such command" for name in sorted(set(prose) - set(commands.about))]
    if set(pages) != {f"radish-{name}" for name in commands.about}:
        wrong.append(f"radish man --write made {sorted(pages)}")
    for name, about in commands.about.items():
        page = pages.get(f"radish-{name}", "")
        if PAGE_OPTION.findall(section(page, "OPTIONS")) != commands.options[name]:
            wrong.append(f"radish-{name}(1) has other options than --help")
        if f".Nd {about}\n" not in page or prose.get(name, "") not in page:
            wrong.append(f"radish-{name}(1) lacks its line of --help, or docs/man/{name}.mdoc")
    return prose


def check_prose(root, commands, prose, wrong):
    first = (root / "docs/man/radish.1").read_text()
    listed = re.findall(r"^\.It Xr radish-(\S+) 1\n(.*)$", section(first, "COMMANDS"), re.M)
    if sorted(listed) != sorted(commands.about.items()):
        wrong.append(f"docs/man/radish.1 lists other commands than --help, or with other words: {listed}")
    known = {long for options in commands.options.values() for _, long in options} | {"help"}
    said = {}
    for entry in re.split(r"^ +--", commands.help["serve"], flags=re.M)[1:]:
        default = re.search(r"Default (\d+)(?:;|\.\s| \()", entry)
        if default:
            said[entry.split()[0]] = default[1]
    for name, text in [("radish.1", first), *((f"{name}.mdoc", text) for name, text in prose.items())]:
        wrong += [f"docs/man/{name}: no command has --{option}" for option in sorted(options_named(text) - known)]
        for option, number in re.findall(r"^\.Fl -([\w-]+)(?: Ar \w+)?\n\((\d+)", text, re.M):
            if said.get(option, number) != number:
                wrong.append(f"docs/man/{name}: --{option} is {number} by default there, {said[option]} in --help")
    if len(said) < 10 or len(known) < 100:
        wrong.append(f"only {len(known)} options and the defaults {said} were found in --help")


def check_chat(root, prose, wrong):
    """The commands within a conversation."""
    there = re.findall(r'^    \{"(/\w+)", "(\w*)"', (root / "src/cli/chat.c").read_text(), re.M)
    told = [(name, arg.upper()) for names, arg in re.findall(r"^\.It Li ([/\w ,]+?)(?: Ar (\w+))?$", prose["chat"], re.M)
            for name in names.split(" , ")]
    if told != there or len(there) < 5:
        wrong.append(f"docs/man/chat.mdoc has {told}, chat.c {there}")


def check_lint(paths, wrong):
    """How many programs have looked."""
    lints = []
    if shutil.which("mandoc"):
        lints.append(["mandoc", "-T", "lint", "-W", "warning", *paths])
    if shutil.which("man") and shutil.which("groff"):
        lints += [["man", "--warnings", "-E", "UTF-8", "-l", "-Tutf8", "-Z", path] for path in paths]
    for command in lints:
        done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "MANROFFSEQ": ""})
        said = done.stderr + (done.stdout if command[0] == "mandoc" else "")
        if done.returncode or said:
            wrong.append(f"{command[0]}: {said or done.returncode}")
    return {command[0] for command in lints}


def check_config(root, commands, wrong):
    """A commented line is an option where it would be one without its #."""
    known = {long for _, long in commands.options["serve"]}
    names = re.findall(r"^#?([a-z][a-z-]+)(?: = .*)?$", (root / "packaging/radish.conf").read_text(), re.M)
    wrong += [f"packaging/radish.conf: serve has no {name}" for name in sorted(set(names) - known)]
    if len(names) < 8:
        wrong.append(f"only {names} were found in packaging/radish.conf")


def policies(manual, option):
    """What --help says can be chosen: "...: lru (default), lfu or cost (how)"."""
    entry = re.search(rf"^ +--{option} \w+\n((?:     .*\n)+)", manual, re.M)
    choices = re.sub(r"\([^)]*\)", "", re.sub(r"\s+", " ", entry[1])).split(":", 1)[1]
    return set(re.findall(r"[a-z][a-z-]+", choices.split(".")[0])) - {"or"}


def check_choices(root, commands, wrong):
    words = set(re.findall(r"[\w-]+", (root / "docs/serve.md").read_text()))
    for option in ("radix-eviction-policy", "schedule-policy"):
        names = policies(commands.help["serve"], option)
        wrong += [f"docs/serve.md: {name} of --{option} is not there" for name in sorted(names - words)]
        if len(names) < 6:
            wrong.append(f"only {names} are choices of --{option}")


def main():
    root, radish = pathlib.Path(sys.argv[1]).resolve(), f"{sys.argv[2]}/radish"
    wrong = []
    commands = Commands(radish)
    with tempfile.TemporaryDirectory(prefix="radish-man-") as tmp:
        subprocess.run([radish, "man", "--write", tmp, "--prose", root / "docs/man"], check=True)
        paths = sorted(pathlib.Path(tmp).iterdir())
        pages = {path.stem: path.read_text() for path in paths}
        prose = check_pages(root, commands, pages, wrong)
        looked = check_lint([root / "docs/man/radish.1", *paths], wrong)
    check_prose(root, commands, prose, wrong)
    check_chat(root, prose, wrong)
    check_config(root, commands, wrong)
    check_choices(root, commands, wrong)
    for line in wrong:
        print(line)
    print(f"{len(pages)} pages, {sum(map(len, commands.options.values()))} options, looked over by "
          f"{' and '.join(sorted(looked)) or 'nobody'}: " + (f"{len(wrong)} things are wrong" if wrong else "right"))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
