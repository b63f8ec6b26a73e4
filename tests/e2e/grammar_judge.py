"""Whether a value satisfies a JSON Schema: python3-jsonschema's answer, for test_grammar.py and test_structured.py.

Numbers are decimal, so that multipleOf and bounds are exact; patterns are ECMA's; formats are checked here, by other
means than the server's expressions. Importing it where there is no python3-jsonschema raises ImportError."""
import datetime
import decimal
import json
import re

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
format_check("uri", "[A-Za-z][A-Za-z0-9+.-]*:\\S+")


def number(text):
    try:
        return decimal.Decimal(text)
    except decimal.InvalidOperation:  # its exponent is too large
        return float(text)


def check_pattern(_, pattern, instance, __):
    """As ECMA 262 means it: ASCII, and $ is the very end."""
    pattern = re.sub(r"\$(?=$|[|)])", r"\\Z", pattern)
    if isinstance(instance, str) and not re.search(pattern, instance, re.ASCII):
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
