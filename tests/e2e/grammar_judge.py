"""Whether a value satisfies a JSON Schema: python3-jsonschema's answer, for test_grammar.py and test_structured.py.

Numbers are decimal, so that multipleOf and bounds are exact; patterns are ECMA's; formats are checked here, by other
means than the server's expressions. Importing it where there is no python3-jsonschema raises ImportError."""
import datetime
import decimal
import functools
import json
import re
import unicodedata

import jsonschema

decimal.getcontext().prec = 4000
FORMATS = jsonschema.FormatChecker(formats=["ipv4", "ipv6", "uuid"])


def format_check(name, pattern=None, call=None):
    def good(text):
        if not isinstance(text, str):
            return True
        if pattern and not re.fullmatch(pattern, text):
            return False
        if call:
            call(text)
        return True
    FORMATS.checks(name, raises=ValueError)(good)


ZONE = "(Z|[+-]([01]\\d|2[0-3]):[0-5]\\d)"
format_check("date", "[0-9]{4}-[0-9]{2}-[0-9]{2}", lambda t: datetime.date.fromisoformat(t.replace("0000", "0004", 1)))
format_check("time", "([01]\\d|2[0-3]):[0-5]\\d:[0-5]\\d(\\.\\d+)?" + ZONE)
format_check("date-time", "[^T]+T([01]\\d|2[0-3]):[0-5]\\d:[0-5]\\d(\\.\\d+)?" + ZONE,
             lambda t: datetime.date.fromisoformat(t.split("T")[0].replace("0000", "0004", 1)))
format_check("email", "[^@\\s]+@[^@\\s.]+(\\.[^@\\s.]+)+")
format_check("hostname", "(?!-)[A-Za-z0-9-]+(?<!-)(\\.(?!-)[A-Za-z0-9-]+(?<!-))*")
format_check("duration", "P(?=.)(\\d+W|(\\d+Y)?(\\d+M)?(\\d+D)?(T(?=.)(\\d+H)?(\\d+M)?(\\d+S)?)?)")
format_check("jwt", "e[wy][\\w-]+\\.e[wy][\\w-]+\\.[\\w-]*")
format_check("uri", "[A-Za-z][A-Za-z0-9+.-]*:\\S+")


def number(text):
    try:
        return decimal.Decimal(text)
    except decimal.InvalidOperation:  # its exponent is too large
        return float(text)


def categories(wanted, newer):
    """As ranges of a class; with `newer` also what Python's Unicode does not know yet."""
    wanted = (wanted, "Cn") if newer else wanted
    marks = [unicodedata.category(chr(i)).startswith(wanted) for i in range(0x110000)] + [False]
    ends = [i for i in range(0x110001) if marks[i] != (i > 0 and marks[i - 1])]
    return "".join(f"\\U{a:08x}-\\U{b - 1:08x}" for a, b in zip(ends[::2], ends[1::2]))


# Of pictures all that are blocks of symbols: wider than Unicode's, for what comes out of it.
PROPERTIES = {
    "Extended_Pictographic": "\u00a9\u00ae\u203c\u2049\u2122\u2139\u2190-\u27bf\u2934-\u2b55\u3030\u303d\u3297\u3299\U0001f000-\U0001faff\U0001fc00-\U0001fffd",
    "Emoji_Component": "#*0-9\u200d\u20e3\ufe0f\U0001f1e6-\U0001f1ff\U0001f3fb-\U0001f3ff\U0001f9b0-\U0001f9b3\U000e0020-\U000e007f",
    "Regional_Indicator": "\U0001f1e6-\U0001f1ff", "Lowercase_Letter": "Ll", "Letter": "L", "gc=Nd": "Nd", "Dash_Punctuation": "Pd"}


@functools.lru_cache
def ecma(pattern):
    """Python's of ECMA 262's: $ is the very end, and \\p{...}. Characters that Python's Unicode does not know yet
    (a digit of 15.0 is none in 14.0) have each property and lack it; the rest of a text is judged as ever."""
    pattern = re.sub(r"\$(?=$|[|)])", r"\\Z", pattern)
    parts, inside = [], ""
    for part in re.findall(r"\\[pP]\{[^}]*\}|\\.|\[\^?|.", pattern, re.DOTALL):
        if part[:2] in ("\\p", "\\P"):
            assert not inside or part[1] == "p", "no \\P in a class"
            ranges = PROPERTIES.get(part[3:-1], part[3:-1])
            ranges = categories(ranges, part[1] == "p" and inside != "[^") if len(ranges) <= 2 else ranges
            part = ranges if inside else f"[{'^' * (part[1] == 'P')}{ranges}]"
        elif not inside and part in ("[", "[^"):
            inside = part
        elif part == "]":
            inside = ""
        parts.append(part)
    return "".join(parts)


def find_pattern(pattern, text):
    return re.search(ecma(pattern), text, re.ASCII)


def check_pattern(_, pattern, instance, __):
    if isinstance(instance, str) and not find_pattern(pattern, instance):
        yield jsonschema.ValidationError(f"{instance!r} does not match {pattern!r}")


def validator(schema):
    kind = jsonschema.Draft202012Validator
    if "additionalItems" in str(schema):  # an older form
        kind = jsonschema.Draft7Validator
    read = json.loads(json.dumps(schema), parse_float=number)
    return jsonschema.validators.extend(kind, {"pattern": check_pattern})(read, format_checker=FORMATS)


def is_valid(judge, value):
    try:
        return judge.is_valid(value)
    except TypeError:  # 4.10 sorts the additional items for its words, which do not compare
        return False
