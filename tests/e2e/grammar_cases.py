"""Schemas for test_grammar.py, each with values of which some satisfy it and some do not: which, says an
independent validator.

A value is written with its properties in the order in which they stand here, so where a schema has
several they stand in the schema's. REFUSED are schemas that are not served, with words of the answer."""

SCALARS = [None, True, False, 0, 1, -1, 7, 1.5, -0.25, "", "a", "abc", "é", "\n", '"', [], [1], ["a"], {}, {"a": 1}]
TEXTS = ["", "a", "ab", "abc", "abcd", "abcde", "éé", "日本語", "a b", "A", "1", "12", "x1", '"q"', "\\", "\t", "\x01",
         "\U0001F600", "aaaaaaaaaaaaaaaaaaaa"]
WHOLES = [0, 1, -1, 2, 3, 5, 7, 9, 10, 11, 12, 42, 99, 100, 101, 105, 120, 127, 128, 199, 200, 255, 256, 999, 1000, 1001,
          -5, -9, -10, -11, -42, -99, -100, -101, -128, -1000, 123456789, -123456789, 2**53, 10**15]
PARTS = [0.5, -0.5, 0.1, 0.25, 0.75, 1.5, -1.5, 2.5, 3.14, 9.99, 10.01, 99.5, 99.99, 100.5, 0.01, -0.01, 0.05, 0.123456, 1e-3]


def obj(properties, required=(), **more):
    return {"type": "object", "properties": properties, "required": list(required),
            "additionalProperties": False, **more}


CASES = []


def case(schema, *values):
    CASES.append((schema, values))


# ---- types ----
for kind in ("null", "boolean", "integer", "number", "string", "array", "object"):
    case({"type": kind}, *SCALARS)
case({"type": ["string", "null"]}, *SCALARS)
case({"type": ["integer", "boolean"]}, *SCALARS)
case({"type": ["array", "object"]}, *SCALARS)
case({"type": ["number", "string", "null"]}, *SCALARS)
case({}, *SCALARS)
case(True, *SCALARS)
case({"title": "anything", "description": "x", "default": 1, "examples": [2], "$comment": "no", "x-own": {}}, *SCALARS)
case({"type": "string", "readOnly": True, "deprecated": False, "$schema": "https://json-schema.org/draft/2020-12/schema"},
     *SCALARS)

# ---- enum and const ----
case({"enum": ["red", "green", "blue"]}, "red", "blue", "re", "redd", "", 1, None)
case({"enum": [1, "1", None, True, 1.5, [1, 2], {"a": [], "b": {}}]}, 1, "1", None, True, 1.5, [1, 2], {"a": [], "b": {}},
     2, False, "2", [1], {"a": []}, {})
case({"enum": ["é", "日本", "\n", '"', "\\", "\x01", "/"]}, "é", "日本", "\n", '"', "\\", "\x01", "/", "e", "n", "")
case({"enum": ["a"]}, "a", "b")
case({"const": 5}, 5, 6, "5")
case({"const": "x y"}, "x y", "xy")
case({"const": None}, *SCALARS)
case({"const": {"k": [1, {"z": None}]}}, {"k": [1, {"z": None}]}, {"k": [1]}, {})
case({"const": False}, *SCALARS)
case({"const": []}, [], [1], {})
case({"type": "string", "enum": ["a", 1, None, "b"]}, "a", "b", 1, None)
case({"type": ["integer", "null"], "enum": ["a", 1, None, 1.5]}, "a", 1, None, 1.5)
case({"enum": [1, 2, 3, 4, 5], "minimum": 3}, 1, 2, 3, 4, 5)
case({"enum": ["a", "bb", "ccc"], "maxLength": 2}, "a", "bb", "ccc")
case({"enum": ["a", "bb", "cb"], "pattern": "b$"}, "a", "bb", "cb")
case({"enum": [[1], [1, 2], [], "x"], "minItems": 1, "type": "array"}, [1], [1, 2], [], "x")
case({"enum": [{"a": 1}, {"b": 1}], "required": ["a"]}, {"a": 1}, {"b": 1})
case({"enum": [10, 15, 20, 2.5], "multipleOf": 5}, 10, 15, 20, 2.5)
case({"const": 3, "type": "integer"}, 3, 4)
case({"enum": ["x" * 50, "x" * 51]}, "x" * 50, "x" * 51, "x" * 49, "x" * 52)
case({"enum": [f"item-{i}" for i in range(300)]}, "item-0", "item-299", "item-300", "item-", "item-17")
case({"enum": list(range(-20, 200, 3))}, *WHOLES)

# ---- strings ----
for least, most in ((0, 0), (0, 1), (0, 3), (1, 1), (2, 4), (3, 20), (5, 5), (1, 300)):
    case({"type": "string", "minLength": least, "maxLength": most}, *TEXTS)
for least in (1, 2, 3):
    case({"type": "string", "minLength": least}, *TEXTS)
for most in (0, 2, 64):
    case({"type": "string", "maxLength": most}, *TEXTS)
# ---- bounds that are counted ----
for most in (9, 2000, 10000, 2**31 - 1):
    case({"type": "string", "maxLength": most}, *TEXTS, *("x" * n for n in (9, 10, 1999, 2000, 2001)))
case({"type": "string", "minLength": 990, "maxLength": 1000}, "", *("é" * n for n in (989, 990, 1000, 1001)), *("\n" * n for n in (990, 1001)),
     "日" * 500 + "a" * 500, "\U0001f600" * 1000, "\U0001f600" * 1001)
case({"type": "string", "minLength": 1500}, "a" * 1499, "a" * 1500, "\\" * 1600)
case(obj({"title": {"type": "string", "maxLength": 255}, "body": {"type": "string", "minLength": 10, "maxLength": 10000}, "tags": {
    "type": "array", "maxItems": 1000, "items": {"type": "string", "maxLength": 40}}}, ["body"]),
     {"body": "x" * 10}, {"body": "x" * 9}, {"title": "é" * 255, "body": "\"" * 200}, {"title": "é" * 256, "body": "x" * 20},
     {"body": "x" * 600, "tags": []}, {"body": "x" * 60, "tags": ["t" * 40] * 30}, {"body": "x" * 60, "tags": ["t", "t" * 41]})
case({"type": "array", "minItems": 12, "maxItems": 14, "items": {"type": "integer"}}, *([7] * n for n in (0, 1, 11, 12, 14, 15)), [True] * 12)
case({"type": "array", "minItems": 20, "items": {"enum": ["a", "ab"]}}, *(["ab"] * n for n in (19, 20, 60)), ["a"] * 19 + ["b"])
case({"type": "array", "maxItems": 11, "items": {"type": "array", "minItems": 9, "maxItems": 10, "items": {"type": "null"}}},
     [], [[None] * 9] * 11, [[None] * 9] * 12, [[None] * 10, [None] * 9], [[None] * 11], [[None] * 8], [[None] * 9, []])
case({"type": "array", "prefixItems": [{"type": "null"}, {"type": "boolean"}], "items": {"type": "integer"}, "minItems": 1, "maxItems": 20},
     [], [None], [None, True], [None, 1], [None, True] + [3] * 18, [None, True] + [3] * 19, [None, True, None])
case({"anyOf": [{"type": "string", "minLength": 30, "maxLength": 40}, {"type": "string", "maxLength": 12}, {"const": "a constant text"}]},
     *("x" * n for n in (0, 12, 13, 29, 30, 40, 41)), "a constant text", "a constant test")
case({"$defs": {"n": {"type": "array", "maxItems": 12, "items": {"$ref": "#/$defs/n"}}}, "$ref": "#/$defs/n"},
     [], [[]] * 12, [[]] * 13, [[[]] * 12] * 12, [[[]] * 13], [[], [[[]] * 3], []])

for pattern in ("^a", "b", "c$", "^abc$", "^[a-c]*$", "^[A-Z]", "[0-9]", "^\\d{1,2}$", "^.{2,3}$", "^$", "^(a|ab)c?$", "a.c",
                "\\S", "^\\w+$", "[^a-z]", "^[^\"]*$", "é", "^é+$", "^[\\u3040-\\u9fff]+$", "^\\u65e5", "b|^$", "(ab){1,}",
                "^(?:x|y)\\d", "\\\\", "\\t", "^[\\x00-\\x1f]$", "a*", "^\\S+ \\S+$", "^(a+)+$", "[\"\\\\]", "^[^a]"):
    case({"type": "string", "pattern": pattern}, *TEXTS)
case({"type": "string", "pattern": "^[a-c]+$", "minLength": 2, "maxLength": 4}, *TEXTS)
case({"type": "string", "pattern": "a", "maxLength": 3}, *TEXTS)
case({"pattern": "^a"}, *SCALARS)
case({"maxLength": 1}, *SCALARS)
DATES = ["2024-02-29", "2023-02-29", "2024-02-30", "1900-02-28", "2000-02-29", "2024-04-31", "2024-13-01", "2024-1-1",
         "2024-12-31", "24-01-01", "", "2024-00-10", "1999-06-30"]
TIMES = ["00:00:00Z", "23:59:59+02:00", "24:00:00Z", "12:60:00Z", "12:30:15.123Z", "12:30:15-23:59", "12:30", "x"]
case({"type": "string", "format": "date"}, *DATES)
case({"type": "string", "format": "time"}, *TIMES)
case({"type": "string", "format": "date-time"}, "2024-02-29T12:00:00Z", "2023-02-29T12:00:00Z", "2024-01-01 12:00:00Z",
     "2024-01-01T12:00:00+01:00", "2024-01-01T12:00:00", "2024-01-01T25:00:00Z", "2024-01-01T23:59:59.5-08:00")
case({"type": "string", "format": "email"}, "a@b.co", "first.last+tag@sub.example.org", "a@", "@b.co", "a.b.co", "")
case({"type": "string", "format": "ipv4"}, "127.0.0.1", "255.255.255.255", "256.0.0.1", "1.2.3", "01.2.3.4", "1.2.3.4.5")
case({"type": "string", "format": "ipv6"}, "::", "::1", "2001:db8::ff00:42:8329", "1:2:3:4:5:6:7:8", "1:2:3:4:5:6:7",
     "1::2::3", "12345::", "fe80::1:2", "g::")
case({"type": "string", "format": "uuid"}, "123e4567-e89b-12d3-a456-426614174000", "123e4567e89b12d3a456426614174000",
     "123e4567-e89b-12d3-a456-42661417400g", "")
case({"type": "string", "format": "hostname"}, "localhost", "a-b.example.com", "-a.com", "a..b", "", "a_b")
case({"type": "string", "format": "duration"}, "P1D", "PT5M", "P1Y2M3DT4H5M6S", "P3W", "P", "PT", "1D", "P1S")
case({"type": "string", "format": "uri"}, "http://example.com/a?b=c#d", "mailto:x@y.z", "no scheme", "://x", "")
case({"type": "string", "format": "date", "minLength": 10}, *DATES)
case({"type": "string", "format": "date", "pattern": "^2024"}, *DATES)
case({"type": "integer", "format": "int32"}, 1, "1", 1.5)

# ---- numbers ----
for low, high in ((0, 0), (0, 9), (1, 10), (5, 105), (0, 255), (-5, 5), (-128, 127), (-100, -10), (99, 1001), (42, 42),
                  (123, 123456), (-1000, 1)):
    case({"type": "integer", "minimum": low, "maximum": high}, *WHOLES)
    case({"type": "number", "minimum": low, "maximum": high}, *WHOLES, *PARTS)
for low in (0, 1, 10, 99, 100, -1, -10, -99):
    case({"type": "integer", "minimum": low}, *WHOLES)
    case({"type": "integer", "exclusiveMinimum": low}, *WHOLES)
for high in (0, 1, 10, 99, 100, -1, -10, -99):
    case({"type": "integer", "maximum": high}, *WHOLES)
    case({"type": "integer", "exclusiveMaximum": high}, *WHOLES)
for low, high in ((0.5, 1.5), (-0.5, 0.5), (0.01, 0.1), (-1.5, -0.5), (0.25, 99.99), (3.14, 100), (-0.25, 0)):
    case({"type": "number", "minimum": low, "maximum": high}, *WHOLES, *PARTS)
    case({"type": "number", "exclusiveMinimum": low, "exclusiveMaximum": high}, *WHOLES, *PARTS)
    if int(high) - int(low) > 0:
        case({"type": "integer", "minimum": low, "maximum": high}, *WHOLES)
case({"type": "number", "exclusiveMinimum": 0}, *WHOLES, *PARTS)
case({"type": "number", "exclusiveMaximum": 0}, *WHOLES, *PARTS)
case({"type": "number", "minimum": 0}, *WHOLES, *PARTS)
case({"type": "number", "maximum": -0.01}, *WHOLES, *PARTS)
case({"type": "number", "minimum": 1, "exclusiveMinimum": 1, "maximum": 10, "exclusiveMaximum": 11}, *WHOLES, *PARTS)
for step in (1, 2, 3, 5, 7, 10, 25, 100):
    case({"type": "integer", "multipleOf": step}, *WHOLES)
for step in (0.5, 0.25, 0.01, 0.1, 1.5, 2):
    case({"type": "number", "multipleOf": step}, *WHOLES, *PARTS)
case({"type": "integer", "multipleOf": 5, "minimum": -10, "maximum": 100}, *WHOLES)
case({"type": "number", "multipleOf": 0.25, "minimum": 0, "exclusiveMaximum": 100}, *WHOLES, *PARTS)
case({"minimum": 3}, *SCALARS, *WHOLES)

# ---- arrays ----
LISTS = [[], [1], [1, 2], [1, 2, 3], [1, 2, 3, 4], ["a"], ["a", 1], ["a", "b", "c"], [[1], [2]], [[]], [None], [{"a": 1}],
         [True, 1], ["a", 1, True], ["a", 1, True, None], "x", 1, {}]
for kind in ("integer", "string", "boolean", "null", "array", "object"):
    case({"type": "array", "items": {"type": kind}}, *LISTS)
for least, most in ((0, 0), (0, 1), (1, 1), (1, 2), (2, 3), (3, 3)):
    case({"type": "array", "items": {"type": "integer"}, "minItems": least, "maxItems": most}, *LISTS)
    case({"type": "array", "minItems": least, "maxItems": most}, *LISTS)
for least in (1, 2, 4):
    case({"type": "array", "minItems": least}, *LISTS)
case({"type": "array", "items": False}, *LISTS)
case({"type": "array", "items": True, "maxItems": 2}, *LISTS)
case({"type": "array", "prefixItems": [{"type": "string"}, {"type": "integer"}]}, *LISTS)
case({"type": "array", "prefixItems": [{"type": "string"}, {"type": "integer"}], "items": False}, *LISTS)
case({"type": "array", "prefixItems": [{"type": "string"}, {"type": "integer"}], "items": {"type": "boolean"}}, *LISTS)
case({"type": "array", "prefixItems": [{"type": "string"}, {"type": "integer"}], "items": False, "minItems": 2}, *LISTS)
case({"type": "array", "prefixItems": [{"type": "string"}, False]}, *LISTS)
case({"type": "array", "items": [{"type": "string"}, {"type": "integer"}], "additionalItems": False}, *LISTS)
case({"type": "array", "items": [{"type": "string"}], "additionalItems": {"type": "integer"}}, *LISTS)
case({"type": "array", "items": {"type": "array", "items": {"type": "integer"}}}, *LISTS)
case({"type": "array", "items": {"enum": [1, 2, "a"]}}, *LISTS)
case({"type": "array", "items": {"type": ["string", "integer"]}, "uniqueItems": False}, *LISTS)
case({"type": "array", "items": {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "integer"}}]}}, *LISTS)
case({"type": "array", "items": {"type": "integer"}, "minItems": 3, "maxItems": 120}, *LISTS, list(range(120)), list(range(121)))
case({"items": {"type": "integer"}}, *LISTS)

# ---- objects ----
OBJECTS = [{}, {"a": 1}, {"a": "x"}, {"b": "x"}, {"a": 1, "b": "x"}, {"a": 1, "b": "x", "c": True}, {"a": 1, "c": True},
           {"b": "x", "c": True}, {"c": True}, {"c": 1}, {"a": 1, "d": 1}, {"d": 1}, {"d": "x", "e": None}, {"a": None},
           {"a": 1, "b": 2}, {"A": 1}, {"aa": 1}, {"": 1}, {"é": 1}, "x", [], None]
ABC = {"a": {"type": "integer"}, "b": {"type": "string"}, "c": {"type": "boolean"}}
for required in ([], ["a"], ["b"], ["c"], ["a", "b"], ["a", "c"], ["b", "c"], ["a", "b", "c"]):
    case(obj(ABC, required), *OBJECTS)
    case({"type": "object", "properties": ABC, "required": required}, *OBJECTS)
    case({"type": "object", "properties": ABC, "required": required, "additionalProperties": {"type": "integer"}}, *OBJECTS)
case({"type": "object", "additionalProperties": False}, *OBJECTS)
case({"type": "object", "additionalProperties": {"type": "integer"}}, *OBJECTS)
case({"type": "object", "additionalProperties": {"type": "string"}, "properties": {"d": {"type": "integer"}}}, *OBJECTS)
case({"type": "object", "required": ["a"]}, *OBJECTS)
case({"type": "object", "required": ["d"], "properties": {"a": {"type": "integer"}}}, *OBJECTS)
case({"type": "object", "required": ["a"], "additionalProperties": {"type": "integer"}}, *OBJECTS)
case({"type": "object", "properties": {"a": False}}, *OBJECTS)
case({"type": "object", "properties": {"a": True, "b": {}}, "additionalProperties": False}, *OBJECTS)
case({"properties": {"a": {"type": "integer"}}}, *OBJECTS, *SCALARS)
for least, most in ((0, 0), (0, 1), (1, 1), (1, 2), (2, 2), (2, 3), (3, 3)):
    if least < 2:
        case({"type": "object", "minProperties": least, "maxProperties": most}, *OBJECTS)
        case({"type": "object", "properties": ABC, "minProperties": least, "maxProperties": most}, *OBJECTS)
    case(obj(ABC, ["b"] if most else [], minProperties=least, maxProperties=most), *OBJECTS)
case({"type": "object", "minProperties": 2, "properties": ABC, "required": ["b"]}, *OBJECTS)
case(obj({"a": {"type": "integer"}, "é\"\\": {"type": "null"}}, ["é\"\\"]), {"é\"\\": None}, {"a": 1, "é\"\\": None}, {"a": 1})
case(obj({"": {"type": "integer"}}, [""]), *OBJECTS)
case(obj({f"p{i}": {"type": "integer"} for i in range(40)}, ["p7"]), {"p7": 1}, {"p0": 1, "p7": 2, "p39": 3}, {"p1": 1}, {})
case(obj({"a": obj({"b": obj({"c": {"type": "integer"}}, ["c"])}, ["b"])}, ["a"]), {"a": {"b": {"c": 1}}}, {"a": {"b": {}}},
     {"a": {}}, {}, {"a": {"b": {"c": "x"}}})
case(obj({"list": {"type": "array", "items": obj({"id": {"type": "integer"}}, ["id"])}}), {}, {"list": []},
     {"list": [{"id": 1}, {"id": 2}]}, {"list": [{}]}, {"list": [{"id": 1}, {"id": "x"}]})

# ---- references ----
TREE = {"$defs": {"tree": obj({"v": {"type": "integer"}, "l": {"$ref": "#/$defs/tree"}, "r": {"$ref": "#/$defs/tree"}}, ["v"])},
        "$ref": "#/$defs/tree"}
case(TREE, {"v": 1}, {"v": 1, "l": {"v": 2, "r": {"v": 3}}, "r": {"v": 4}}, {"v": 1, "l": {}}, {}, {"v": 1, "l": {"v": "x"}})
case({"type": "object", "properties": {"next": {"anyOf": [{"$ref": "#"}, {"type": "null"}]}}, "required": ["next"],
      "additionalProperties": False}, {"next": None}, {"next": {"next": {"next": None}}}, {"next": {}}, {}, {"next": 1})
case({"definitions": {"n": {"type": "integer"}}, "type": "array", "items": {"$ref": "#/definitions/n"}}, *LISTS)
case({"type": "array", "items": {"$ref": "#"}}, [], [[]], [[], [[]]], [1], [[1]], {})
case({"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/c"}, "c": {"type": "integer"}}, "$ref": "#/$defs/a"}, *SCALARS)
case({"$defs": {"a/b~c": {"type": "string"}}, "$ref": "#/$defs/a~1b~0c"}, *SCALARS)
case({"$defs": {"a b": {"type": "string"}}, "$ref": "#/$defs/a%20b"}, *SCALARS)
case({"$defs": {"s": {"type": "string"}}, "$ref": "#/$defs/s", "maxLength": 1}, *SCALARS)
case({"properties": {"a": {"type": "integer"}, "b": {"$ref": "#/properties/a"}}, "additionalProperties": False}, {"a": 1, "b": 2},
     {"b": "x"}, {"a": 1}, {})
case({"$defs": {"v": {"anyOf": [{"type": "integer"}, {"type": "array", "items": {"$ref": "#/$defs/v"}},
                                {"type": "object", "additionalProperties": {"$ref": "#/$defs/v"}}]}}, "$ref": "#/$defs/v"},
     1, [1, [2, {"a": [3]}]], {"a": {"b": []}}, "x", [["x"]], {"a": None})
case({"$defs": {"even": {"anyOf": [{"type": "null"}, obj({"s": {"$ref": "#/$defs/odd"}}, ["s"])]},
                "odd": obj({"s": {"$ref": "#/$defs/even"}}, ["s"])}, "$ref": "#/$defs/even"},
     None, {"s": {"s": None}}, {"s": None}, {"s": {"s": {"s": {"s": None}}}}, {"s": {"s": {"s": None}}})

# ---- anyOf, allOf, oneOf ----
case({"anyOf": [{"type": "integer"}, {"type": "string"}]}, *SCALARS)
case({"anyOf": [{"type": "integer", "minimum": 5}, {"type": "integer", "maximum": -5}]}, *WHOLES)
case({"anyOf": [{"type": "string", "maxLength": 1}, {"type": "string", "pattern": "^ab"}]}, *TEXTS)
case({"anyOf": [obj({"a": {"type": "integer"}}, ["a"]), obj({"b": {"type": "string"}}, ["b"])]}, *OBJECTS)
case({"anyOf": [{"required": ["a"]}, {"required": ["b"]}], "type": "object", "properties": ABC, "additionalProperties": False}, *OBJECTS)
case({"type": "string", "anyOf": [{"pattern": "^a"}, {"pattern": "b$"}]}, *TEXTS)
case({"anyOf": [{"type": "null"}, {"enum": ["x"]}, {"const": 3}]}, *SCALARS, "x", 3)
case({"anyOf": [{}, {"type": "string"}]}, *SCALARS)
case({"anyOf": [False, {"type": "string"}]}, *SCALARS)
case({"anyOf": [{"anyOf": [{"type": "null"}, {"type": "boolean"}]}, {"type": "integer"}]}, *SCALARS)
case({"allOf": [{"type": "integer"}, {"minimum": 3}, {"maximum": 100}]}, *WHOLES)
case({"allOf": [{"minLength": 2}, {"maxLength": 3}], "type": "string"}, *TEXTS)
case({"allOf": [{"pattern": "^a"}, {"pattern": "c$"}], "type": "string"}, *TEXTS)
case({"allOf": [{"type": ["string", "integer"]}, {"type": ["integer", "null"]}]}, *SCALARS)
case({"allOf": [{"enum": [1, 2, 3, "a"]}, {"enum": [2, 3, 4, "a"]}, {"type": "integer"}]}, 1, 2, 3, 4, "a")
case({"allOf": [{"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]},
                {"type": "object", "properties": {"b": {"type": "string"}}, "required": ["b"]}]}, *OBJECTS)
case({"allOf": [{"properties": {"a": {"type": ["integer", "null"]}}}, {"properties": {"a": {"type": ["integer", "string"]}}}],
      "type": "object"}, *OBJECTS)
case({"allOf": [{"type": "array", "items": {"type": "integer"}}, {"items": {"minimum": 2}}, {"maxItems": 3}]}, *LISTS, [2, 3], [7])
case({"allOf": [{"multipleOf": 3}], "type": "integer", "minimum": 2}, *WHOLES)
case({"allOf": [{"anyOf": [{"type": "integer"}, {"type": "string"}]}, {"anyOf": [{"type": "string"}, {"type": "null"}]}]}, *SCALARS)
case({"$defs": {"base": {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}},
      "allOf": [{"$ref": "#/$defs/base"}, {"properties": {"b": {"type": "string"}}}]}, *OBJECTS)
case({"allOf": [True, {"type": "string"}]}, *SCALARS)
case({"oneOf": [{"type": "integer"}, {"type": "string"}]}, *SCALARS)
case({"oneOf": [{"type": "integer", "maximum": 0}, {"type": "integer", "minimum": 1}]}, *WHOLES)
case({"oneOf": [{"enum": ["a", 1]}, {"enum": ["b", 2]}, {"type": "null"}]}, *SCALARS, "b", 2)
case({"oneOf": [{"type": "string", "pattern": "^a"}, {"type": "string", "pattern": "^b"}]}, *TEXTS)
case({"oneOf": [{"type": "string", "maxLength": 2}, {"type": "string", "minLength": 3}]}, *TEXTS)
KINDS = {"oneOf": [obj({"k": {"const": "a"}, "x": {"type": "integer"}}, ["k", "x"]), obj({"k": {"const": "b"}, "y": {"type": "string"}}, ["k"])]}
case(KINDS, {"k": "a", "x": 1}, {"k": "b"}, {"k": "b", "y": "s"}, {"k": "a"}, {"k": "c"}, {"k": "b", "x": 1}, {})
case({"type": "object", "oneOf": [{"properties": {"k": {"const": "a"}}, "required": ["k"]},
                                  {"properties": {"k": {"const": "b"}}, "required": ["k"]}]}, {"k": "a"}, {"k": "b", "z": 1}, {"k": "c"}, {})
case({"oneOf": [{"type": "array", "minItems": 2}, {"type": "array", "maxItems": 1}]}, *LISTS)
case({"oneOf": [{"type": "array", "items": {"type": "string"}, "minItems": 1}, {"type": "array", "items": {"type": "integer"}, "minItems": 1}]}, *LISTS)
case({"oneOf": [obj({"a": {"type": "integer"}}, ["a"]), obj({"b": {"type": "string"}}, ["b"]), {"type": "null"}]}, *OBJECTS)
case({"oneOf": [{"type": "number", "multipleOf": 1, "minimum": 10}, {"type": "number", "exclusiveMaximum": 10}]}, *WHOLES, *PARTS)
case({"anyOf": [{"allOf": [{"type": "string"}, {"maxLength": 2}]}, {"oneOf": [{"type": "null"}, {"type": "boolean"}]}]}, *SCALARS, *TEXTS)

# ---- as tools have them ----
WEATHER = obj({"location": {"type": "string", "description": "City"}, "unit": {"type": "string", "enum": ["c", "f"]},
               "days": {"type": "integer", "minimum": 1, "maximum": 14}}, ["location", "unit"])
case(WEATHER, {"location": "Paris", "unit": "c"}, {"location": "Paris", "unit": "c", "days": 14}, {"location": "Paris", "unit": "c", "days": 15},
     {"location": "Paris", "unit": "k"}, {"unit": "c"}, {"location": 1, "unit": "c"})
case(obj({"steps": {"type": "array", "items": obj({"explanation": {"type": "string"}, "output": {"type": "string"}}, ["explanation", "output"])},
          "final_answer": {"type": "string"}}, ["steps", "final_answer"]),
     {"steps": [], "final_answer": ""}, {"steps": [{"explanation": "a", "output": "b"}], "final_answer": "c"}, {"steps": []},
     {"steps": [{"explanation": "a"}], "final_answer": "c"})
UI = {"type": "object", "properties": {"type": {"type": "string", "enum": ["div", "button"]}, "label": {"type": "string"},
                                       "children": {"type": "array", "items": {"$ref": "#"}}},
      "required": ["type", "label", "children"], "additionalProperties": False}
case(UI, {"type": "div", "label": "x", "children": [{"type": "button", "label": "", "children": []}]}, {"type": "div", "label": "x"},
     {"type": "p", "label": "x", "children": []})
case(obj({"path": {"type": "string", "pattern": "^/([a-z0-9._-]+/?)*$"}, "mode": {"type": ["string", "null"], "pattern": "^[0-7]{3,4}$"},
          "size": {"type": "integer", "minimum": 0}, "when": {"type": "string", "format": "date-time"}}, ["path", "mode"]),
     {"path": "/a/b.txt", "mode": "644"}, {"path": "/", "mode": None, "size": 0, "when": "2024-05-06T07:08:09Z"}, {"path": "a", "mode": None},
     {"path": "/a", "mode": "888"}, {"path": "/a", "mode": "0755", "size": -1})

# ---- what clients say beside it: names of their own, and formats that a pattern says, too ----
case({"$id": "https://example.com/x", "type": ["string", "null"]}, *SCALARS)
case({"type": "string", "format": "nanoid", "pattern": "^[a-z0-9_-]{3}$"}, *TEXTS, "a-1", 1)
case({"type": "string", "format": "starts_with", "pattern": "^ab.*"}, *TEXTS)
case({"type": "string", "format": "base64", "contentEncoding": "base64", "pattern": "^([A-Za-z]{4})*$"}, *TEXTS)
case({"contentEncoding": "base64", "pattern": "b$"}, *TEXTS)
case({"type": "object", "propertyNames": {"type": "string"}, "additionalProperties": {"type": "number"}},
     {}, {"a": 1}, {"a": "1"}, {"a": 1, "b": 2.5}, 1)
case({"type": "object", "propertyNames": True}, {}, {"a": 1}, 1)
NAMED = {"type": "object", "propertyNames": {"type": "string", "enum": ["a", "b"]}, "additionalProperties": {"type": "number"}}
NAMED_VALUES = {}, {"a": 1}, {"b": 1}, {"a": 1, "b": 2}, {"a": "x"}, {"c": 1}, {"a": 1, "c": 2}, {"aa": 1}, None
case(NAMED, *NAMED_VALUES)
case({**NAMED, "required": ["a", "b"]}, *NAMED_VALUES)
case({**NAMED, "minProperties": 1}, *NAMED_VALUES)
case({**NAMED, "minProperties": 2}, *NAMED_VALUES)
case({**NAMED, "maxProperties": 1}, *NAMED_VALUES)
case({**NAMED, "properties": {"a": {"type": "string"}, "c": {}}}, *NAMED_VALUES)
case({**NAMED, "additionalProperties": False}, *NAMED_VALUES)
case({"allOf": [NAMED, {"propertyNames": {"enum": ["b", "c", 5]}}]}, *NAMED_VALUES)
case({"enum": [{"a": 1}, {"c": 1}], "propertyNames": {"enum": ["a"]}}, {"a": 1}, {"c": 1})
case({"type": ["object", "string"], "propertyNames": {"enum": ["a"]}}, {"a": []}, {"b": 1}, "b", 3)

# What zod makes of z.never(), and of records whose keys have a form.
case({"type": "object", "properties": {"a": {"not": {}}, "b": {"type": "null"}}}, {"b": None}, {"a": 1}, {})
case({"type": "object", "additionalProperties": {"not": {}}}, {}, {"a": 1})
case({"type": "array", "items": {"not": {}}}, [], [1])
case({"anyOf": [{"not": {}}, {"type": "null"}]}, None, 1)
case({"type": "object", "propertyNames": {"pattern": "^[a-c]{2}$"}, "additionalProperties": {"type": "null"}},
     {"ab": None, "cc": None}, {"abc": None}, {"ab": 1}, {})
case({"type": "object", "propertyNames": {"type": "string", "minLength": 2, "maxLength": 3}}, {"ab": 1}, {"a": 1}, {"abcd": 1}, {"é\n": {}})
case({"type": "object", "propertyNames": {"maxLength": 2}, "properties": {"a": {"type": "null"}, "abc": True}},
     {"a": None, "b": 1}, {"a": 1}, {"abc": 1}, {})
case({"type": "object", "propertyNames": {"const": "a"}, "additionalProperties": {"type": "integer"}}, {"a": 1}, {"b": 1}, {})
case({"type": "object", "propertyNames": {"format": "ipv4"}, "additionalProperties": {"const": 1}}, {"1.2.3.4": 1}, {"x": 1})
case({"allOf": [{"type": "object", "propertyNames": {"pattern": "a"}}, {"propertyNames": {"pattern": "b"}}],
      "additionalProperties": {"const": 1}}, {"ab": 1}, {"a": 1}, {"b": 1}, {"xbya": 1})

case({"type": "object", "propertyNames": {"$ref": "#/$defs/n"}, "additionalProperties": {"type": "null"},
      "$defs": {"n": {"enum": ["x", "y"], "type": "string"}}}, {"x": None, "y": None}, {"z": None}, {"x": 1})
case({"type": "object", "propertyNames": {"anyOf": [{"const": "a"}, {"type": "string", "enum": ["b"]}]},
      "additionalProperties": {"type": "integer"}, "required": ["a"]}, {"a": 1, "b": 2}, {"b": 1}, {"a": 1, "c": 1})
case({"oneOf": [{"type": "object", "properties": {"k": {"const": "a"}}, "required": ["k"]},
                {"type": "object", "properties": {"k": {"const": "b"}, "v": True}, "required": ["k"]}],
      "discriminator": {"propertyName": "k", "mapping": {}}}, {"k": "a"}, {"k": "b", "v": 1}, {"k": "c"}, {})
case({"type": "string", "format": "includes", "allOf": [{"pattern": "^ab"}, {"pattern": "z$"}]}, "abz", "ab", "z")
case({"type": "string", "pattern": "^(?!^[-+.]*$)[+-]?0*\\d*\\.?\\d*$"}, "1.5", "-.5", "-", ".", "", "1.2.3")
case({"type": "string", "pattern": "^(?!^a|b)(?=^.c)"}, "cc", "ac", "bc", "cd")

# Lookahead, as zod writes it and as it is nested.
case({"type": "string", "pattern": r"^(?!\.)(?!.*\.\.)[a-z.]+@[a-z]+$"}, "a.b@c", ".a@c", "a..b@c", "@c")
case({"type": "string", "pattern": r"^P(?:(\d+W)|(?!.*W)(?=\d|T\d)(\d+Y)?(\d+M)?(T(?=\d)(\d+H)?(\d+S)?)?)$"},
     "P3W", "P", "P1YT", "PT5S", "P1Y2MT3H", "P1YT2H3W", "PT")
case({"type": "string", "pattern": r"^(?=.{1,6}\.?$)[a-z0-9]+(?:\.[a-z0-9]+)*\.?$"}, "ab.cd.", "ab.cdef", "a", "", "abcdef.")
case({"type": "string", "pattern": "(?=a)(?!ab)"}, "xac", "ab", "abac", "")
case({"type": "string", "pattern": "^(a(?!b)|b(?=c)){1,3}c$"}, "ac", "abc", "aac", "bc", "bbc", "aabc")
case({"enum": ["ab", "ac"], "pattern": "a(?!b)"}, "ab", "ac")
for _ in range(3):  # in each form of white space
    case({"enum": [[1, {"a": [], "b": {}}], {"x": [2]}]}, [1, {"a": [], "b": {}}], {"x": [2]}, [1], [])

# No two items are equal, of those that can be few values.
case({"type": "array", "items": {"enum": ["a", "b", "c"]}, "uniqueItems": True}, [], ["a"], ["c", "a", "b"], ["a", "a"], ["a", "b", "a"], ["d"])
case({"type": "array", "items": {"enum": [1, 1.0, "1", None, [1], {"a": 1}]}, "uniqueItems": True, "minItems": 2},
     [1, "1"], [1], [None, [1], {"a": 1}], [1, None, 1], [[1], [1]], [{"a": 1}, {"a": 1}])
case({"type": "array", "items": {"type": ["boolean", "null"]}, "uniqueItems": True, "maxItems": 2}, [], [True, None], [True, True],
     [True, False, None], [1])
case({"type": "array", "items": {"type": "integer", "minimum": -1.5, "maximum": 3}, "uniqueItems": True, "minItems": 1}, [], [3, -1, 0], [2, 2],
     [-2], [1, 2, 3, 0, -1], [1, 2, 3, 0, -1, 1])
case({"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": 18, "multipleOf": 6}, "uniqueItems": True}, [0, 18, 6], [6, 6], [3])
case({"type": "array", "items": {"enum": [f"v{i}" for i in range(19)]}, "uniqueItems": True, "maxItems": 3}, ["v0", "v18", "v3"], ["v1", "v1"],
     ["v1", "v2", "v3", "v4"], ["v19"])
case({"type": "array", "prefixItems": [{"const": "x"}, {"enum": ["x", "y"]}], "items": {"enum": ["y", "z"]}, "uniqueItems": True},
     ["x"], ["x", "x"], ["x", "y"], ["x", "y", "y"], ["x", "y", "z"], ["x", "y", "z", "z"], [])
case({"type": "array", "items": {"anyOf": [{"const": 1}, {"$ref": "#/$defs/w"}]}, "uniqueItems": True, "$defs": {"w": {"enum": ["a", 1]}}},
     [1, "a"], [1, 1], ["a", 1, "a"])
case({"type": "array", "items": {"type": "string", "maxLength": 3}, "uniqueItems": True, "maxItems": 1}, [], ["abc"], ["abcd"], ["a", "a"])
case({"type": "array", "items": {"type": "string"}, "uniqueItems": False, "maxItems": 2}, ["a", "a"], ["a"])
case({"enum": [[1, 1], [1, 2], [1, 1.0], "x"], "uniqueItems": True}, [1, 1], [1, 2], "x")
case({"allOf": [{"type": "array", "items": {"enum": ["a", "b", "c"]}}, {"uniqueItems": True, "items": {"enum": ["b", "c", "d"]}}]},
     ["b", "c"], ["b", "b"], ["a"])

# Names that have a form.
case({"type": "object", "patternProperties": {"^a": {"type": "integer"}}, "additionalProperties": False}, {}, {"a": 1}, {"ab": 1, "a": 2}, {"a": "x"}, {"b": 1})
case({"type": "object", "patternProperties": {"^a": {"type": "integer"}}}, {}, {"a": 1}, {"a": "x"}, {"b": "x"}, {"b": 1, "ab": 1})
case({"type": "object", "patternProperties": {"^a": {"type": "integer"}, "z$": {"maximum": 5}}, "additionalProperties": {"type": "null"}},
     {"a": 7}, {"az": 7}, {"az": 5}, {"z": "x"}, {"z": 9}, {"q": None}, {"q": 1}, {"a": "x"}, {"az": "x"})
case({"type": "object", "properties": {"ab": {"minimum": 3}, "c": {"type": "string"}}, "patternProperties": {"^a": {"type": "integer"}},
      "additionalProperties": False}, {"ab": 3}, {"ab": 2}, {"ab": "x"}, {"c": "x", "aa": 1}, {"c": 1}, {"x": 1}, {"ab": 5, "c": "", "a": 0})
case({"type": "object", "patternProperties": {"^[a-z]{2}$": {"type": "string"}}, "additionalProperties": False, "required": ["en"]},
     {"en": "x"}, {"en": "x", "de": "y"}, {"de": "y"}, {"en": 1}, {"eng": "x"})
case({"type": "object", "patternProperties": {"^a": False, "b": True}, "additionalProperties": {"type": "integer"}}, {"ab": 1}, {"b": "x"}, {"c": 1}, {"c": "x"})
case({"allOf": [{"patternProperties": {"^a": {"type": "integer"}}, "additionalProperties": False}, {"patternProperties": {"b$": {"minimum": 2}}}],
      "type": "object"}, {"ab": 1}, {"ab": 2}, {"a": 1}, {"b": 2}, {})
case({"type": "object", "propertyNames": {"maxLength": 2}, "patternProperties": {"^a": {"type": "null"}}, "additionalProperties": {"type": "boolean"}},
     {"a": None}, {"abc": None}, {"b": True}, {"bcd": True}, {"ab": True})
case({"type": "object", "propertyNames": {"enum": ["ab", "b"]}, "patternProperties": {"^a": {"type": "null"}}, "additionalProperties": False},
     {"ab": None}, {"b": None}, {"a": None}, {"ab": 1}, {})
case({"type": "object", "patternProperties": {"\"": {"type": "null"}}, "additionalProperties": False, "maxProperties": 1}, {"\"": None}, {"a\"b": None},
     {"x": None}, {"\"": 1})
case({"enum": [{"a": 1}, {"a": "x"}, {"b": "x"}, {"c": 1}], "patternProperties": {"^a": {"type": "integer"}, "b": {}}, "additionalProperties": False},
     {"a": 1}, {"a": "x"}, {"b": "x"}, {"c": 1})
case({"oneOf": [{"type": "object", "required": ["ax"], "patternProperties": {"^a": {"type": "string"}}},
                {"type": "object", "required": ["ax"], "patternProperties": {"x$": {"type": "null"}}}]}, {"ax": "s"}, {"ax": None}, {"ax": 1})

# Multiples of two numbers.
case({"type": "integer", "multipleOf": 4, "allOf": [{"multipleOf": 6}]}, *WHOLES, 24, -36, 18, 0)
case({"allOf": [{"multipleOf": 0.25}, {"multipleOf": 0.1}], "type": "number"}, 0.5, 0.25, 0.1, 1, 0.75, 1.5, -2.5, 0)
case({"allOf": [{"multipleOf": 2}, {"multipleOf": 2.0}, {"multipleOf": 3}], "type": "number", "minimum": -7, "maximum": 13}, -6, 0, 6, 12, 18, 4, 9)

# As zod writes what it has names for.
PICTURES = "[\\p{Extended_Pictographic}\\p{Emoji_Component}]"
case({"type": "string", "format": "emoji", "pattern": "^(?=[\\s\\S]*[\\p{Extended_Pictographic}\\p{Regional_Indicator}\\u20E3])" + PICTURES + "+$"},
     "\U0001F600", "1", "1\u20e3", "\U0001F1E6\U0001F1FA", "a\U0001F600", "\U0001F468\u200d\U0001F469", "", "\u2764\ufe0f", "\u260e")
case({"type": "string", "pattern": "^\\p{Lu}\\p{Lowercase_Letter}*\\P{Letter}?$"}, "Ab", "Éé", "ab", "Ab1", "A", "AB", "Ω-")
case({"type": "string", "pattern": "^[\\p{gc=Nd}\\p{Dash_Punctuation}]+$"}, "1-2", "٣", "a", "")
case({"type": "string", "format": "jwt"}, "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2ln", "eyJh.eyJ9.", "a.b.c", "eyJh.eyJ9", "", 1)
case({"type": "string", "format": "hostname", "pattern":
      r"^(?=.{1,253}\.?$)[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?(?:\.[a-zA-Z0-9](?:[-0-9a-zA-Z]{0,61}[0-9a-zA-Z])?)*\.?$"},
     "a.b", "example.com", "-a", "a..b", "x" * 63, "x" * 64)

REFUSED = [
    ({"type": "string", "contentEncoding": "base64"}, '"contentEncoding" is not served where no "pattern"'),
    ({"type": "array", "uniqueItems": True}, '"uniqueItems" is served where an item has few values'),
    ({"type": "array", "uniqueItems": True, "items": {"type": "string"}}, '"uniqueItems" is served where'),
    ({"type": "array", "uniqueItems": True, "items": {"enum": list(range(11))}}, '"uniqueItems" is served where'),
    ({"type": "array", "uniqueItems": True, "items": {"type": "integer", "minimum": 0, "maximum": 10**12}}, '"uniqueItems" is served where'),
    ({"type": "array", "uniqueItems": 1}, "is not true or false"),
    ({"type": "array", "uniqueItems": True, "minItems": 4, "items": {"enum": [1, 2, 3]}}, "no text has this form"),
    ({"type": "array", "contains": {"type": "integer"}}, '"contains" is not served'),
    ({"not": {"type": "string"}}, '"not" is served as {"not": {}}'),
    ({"not": {}}, "no text has this form"),
    ({"if": {}, "then": {}, "else": {}}, '"if" is not served'),
    ({"type": "object", "patternProperties": {"(a": {}}}, '"pattern" (a: at byte 0: this group has no end'),
    ({"type": "object", "patternProperties": []}, "has no names"),
    ({"type": "object", "patternProperties": {"a": {"if": {}}}}, '#/patternProperties/a: "if" is not served'),
    ({"type": "object", "patternProperties": {f"{c}.*{d}": {"const": c + d} for c in "abcd" for d in "efgh"}}, "in more than 64 ways"),
    ({"type": "string", "pattern": "\\p{Script=Greek}"}, "names no general category of Unicode, nor"),
    ({"type": "object", "propertyNames": {"type": "null"}}, '"propertyNames" is served of {"type": "string"} with'),
    ({"propertyNames": {"$ref": "#"}}, '"propertyNames" is served of'),
    ({"propertyNames": {"anyOf": [{"enum": ["a"]}, {"minLength": 2}]}}, '"propertyNames" is served of'),
    ({"$ref": "#/x-n", "x-n": {"$id": "http://x/y"}}, '"$id" is not served below'),
    ({"type": "object", "propertyNames": False}, '"propertyNames" as false'),
    ({"type": "object", "propertyNames": {"enum": ["a"]}, "required": ["b"]}, "no text has this form"),
    ({"type": "object", "dependentRequired": {}}, '"dependentRequired" is not served'),
    ({"type": "object", "unevaluatedProperties": False}, '"unevaluatedProperties" is not served'),
    ({"type": "object", "properties": {"a": {"type": "array", "items": {"minContains": 1}}}},
     '#/properties/a/items: "minContains" is not served'),
    ({"$dynamicRef": "#x"}, '"$dynamicRef" is not served'),
    ({"properties": {"a": {"$id": "http://x/y", "type": "string"}}}, '#/properties/a: "$id" is not served below'),
    ({"$id": 5}, "is no text"),
    ({"maxLenght": 3}, '"maxLenght" is not served'),
    ({"$ref": "http://example.com/schema"}, "only # and #/... are served"),
    ({"$ref": "#/$defs/none"}, "there is no #/$defs/none"),
    ({"$ref": "#anchor"}, "only # and #/..."),
    ({"type": "strin"}, "not a type"),
    ({"type": []}, "has no type"),
    ({"type": "string", "pattern": "(?=a)+"}, '"pattern" (?=a)+: at byte 5: a lookahead that is repeated is not served'),
    ({"type": "string", "pattern": "a("}, "no end"),
    ({"type": "string", "pattern": 5}, "is no text"),
    ({"type": "string", "format": "iri"}, '"iri" is a format that is not served'),
    ({"type": "string", "minLength": -1}, "is no count"),
    ({"type": "string", "minLength": 1.5}, "is no count"),
    ({"type": "integer", "minimum": "3"}, "is no number"),
    ({"type": "integer", "multipleOf": 0}, "not above zero"),
    ({"type": "integer", "multipleOf": 99999999}, "multipleOf"),
    ({"enum": []}, "no list with values"),
    ({"anyOf": []}, "no list of schemas"),
    ({"anyOf": {}}, "no list of schemas"),
    ({"properties": []}, "has no names"),
    ({"required": "a"}, "no list of names"),
    ({"required": [1]}, "no list of names"),
    ({"items": 5}, "no schema"),
    (5, "no schema"),
    ({"oneOf": [{"type": "integer"}, {"type": "number"}]}, "branches 0 and 1"),
    ({"oneOf": [{"required": ["a"]}, {"required": ["b"]}]}, "branches 0 and 1"),
    ({"oneOf": [{"type": "null"}, {"maxLength": 3, "type": "string"}, {"minLength": 3, "type": "string"}]}, "branches 1 and 2"),
    ({"allOf": [{"multipleOf": 19999}, {"multipleOf": 19997}], "type": "integer"}, "multipleOf"),
    ({"allOf": [{"multipleOf": 999999937}, {"multipleOf": 999999929}], "type": "integer"}, "of both numbers it is too large"),
    ({"type": "object", "minProperties": 2}, '"minProperties" is served where'),
    (False, "no text has this form"),
    ({"type": "string", "enum": [1, 2]}, "no text has this form"),
    ({"type": "integer", "minimum": 5, "maximum": 4}, "no text has this form"),
    ({"allOf": [{"type": "string"}, {"type": "null"}]}, "no text has this form"),
    ({"$ref": "#/$defs/a", "$defs": {"a": obj({"a": {"$ref": "#/$defs/a"}}, ["a"])}}, "no text has this form"),
    ({"type": "string", "minLength": 3, "maxLength": 2}, "no text has this form"),
]
