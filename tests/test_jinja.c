/* test_jinja.c - chat templates render as Python's Jinja renders them, what is not known is
 * refused by name and line, nothing a template does is unbounded, and every byte of the text
 * knows whether a conversation brought it. The random comparison with jinja2 itself is
 * tests/e2e/test_render_oracle.py. */
#include "test.h"

#include "text/chat_render.h"

static json_t *parse_json(const char *text)
{
    json_error_t where;
    json_t *json = json_loads(text, JSON_DECODE_ANY, &where);
    CHECKF(json, "%s: %s\n", where.text, text);
    return json;
}

static json_t *load_json(const char *path)
{
    json_error_t where;
    json_t *json = json_load_file(path, 0, &where);
    CHECKF(json, "%s: %s\n", path, where.text);
    return json;
}

/* Renders with the variables of a JSON object. */
static rad_status render(const char *source, const char *vars, jinja_limits limits, jinja_text *out,
                         jinja_fault *fault, rad_error *err)
{
    jinja_template *t = NULL;
    *out = (jinja_text){0};
    rad_status status = jinja_parse(NULL, source, strlen(source), &t, fault, err);
    if (status != RAD_OK) return status;
    json_t *json = parse_json(vars), *value;
    const char *key;
    jinja_var list[16];
    jinja_input in = {.vars = list, .now_unix = 1736942400, .limits = limits};
    json_object_foreach(json, key, value)
        list[in.num_vars++] = (jinja_var){.name = key, .value = value, .user = true};
    status = jinja_render(t, &in, out, fault, err);
    json_decref(json);
    jinja_destroy(t);
    return status;
}

static void expect(const char *source, const char *vars, const char *wanted)
{
    jinja_text text;
    rad_error err = {0};
    rad_status status = render(source, vars, (jinja_limits){0}, &text, NULL, &err);
    CHECKF(status == RAD_OK, "%s: %s\n", source, err.text);
    CHECKF(strcmp(text.data, wanted) == 0 && strlen(wanted) == text.len, "%s: \"%s\", not \"%s\"\n",
           source, text.data, wanted);
    jinja_text_fini(&text);
}

static void expect_error(const char *source, rad_status wanted, uint32_t line, const char *words)
{
    jinja_text text;
    rad_error err = {0};
    jinja_fault fault = {0};
    rad_status status = render(source, "{}", (jinja_limits){0}, &text, &fault, &err);
    CHECKF(status == wanted && fault.line == line && strstr(err.text, words),
           "%.200s: %d, line %u: %s\n", source, status, fault.line, err.text);
    jinja_text_fini(&text);
}

TEST(white_space_is_what_hugging_face_makes_of_it)
{
    expect("a\n  {% if true %}\n  b\n  {% endif %}\nc\n", "{}", "a\n  b\nc");
    expect("a  {%- if true -%}  b  {%- endif -%}  c", "{}", "abc");
    expect("x\n  {%+ if true +%}\n{% endif %}", "{}", "x\n  \n");
    expect("  {{ 1 }}\n{# note #}\n  {# note -#}  z", "{}", "  1\nz");
    expect("{% raw %}{{ x }}{% endraw %}", "{}", "{{ x }}");
    expect("a\r\nb\rc\n\n", "{}", "a\nb\nc\n");
    expect("{{ '}}' }}{{ {'a': {'b': 1}}['a']['b'] }}", "{}", "}}1");
}

TEST(values_print_as_in_python)
{
    expect("{{ [1, 2.0, 'a', true, none, {'k': (1,)}] }}", "{}",
           "[1, 2.0, 'a', True, None, {'k': (1,)}]");
    expect("{{ 1e16 }} {{ 1e-5 }} {{ 0.1 + 0.2 }} {{ 123456789.125 }}", "{}",
           "1e+16 1e-05 0.30000000000000004 123456789.125");
    expect("{{ -7 // 2 }} {{ -7 % 3 }} {{ 7 / 2 }} {{ 2 ** 10 }} {{ 7.5 // 2 }}", "{}",
           "-4 2 3.5 1024 3.0");
    expect("{{ s }}|{{ [s] }}", "{\"s\": \"it's \\n\\u00e9\"}",
           "it's \n\xc3\xa9|[\"it's \\n\xc3\xa9\"]");
    expect("{{ x|tojson }} {{ x|tojson(indent=1) }}",
           "{\"x\": {\"b\": [1, \"\\u00e9<\\\"\"], \"a\": {}}}",
           "{\"b\": [1, \"\xc3\xa9<\\\"\"], \"a\": {}} {\n \"b\": [\n  1,\n  \"\xc3\xa9<\\\"\"\n "
           "],\n \"a\": {}\n}");
    expect("{{ undefined_thing }}{{ strftime_now('%d %b %Y') }}", "{}", "15 Jan 2025");
}

TEST(methods_and_views_are_equal_as_in_python)
{
    const char *vars = "{\"d\": {\"a\": 1, \"b\": [2]}, \"e\": {\"b\": [2], \"a\": 1}}";
    expect("{{ d == e }} {{ d.get == d.get }} {{ d.get == e.get }} {{ d.get == d.items }}", vars,
           "True True False False");
    expect("{{ 's'.upper == 't'.upper }} {{ d.get in [e.get, d.get] }}", vars, "False True");
    expect("{{ d.items() == e.items() }} {{ d.keys() == e.keys() }} {{ d.values() == d.values() }}",
           vars, "True True False");
    expect("{{ d.keys() == {'a': 1, 'c': 2}.keys() }} {{ d.items() == {'a': 1}.items() }}", vars,
           "False False");
    expect("{{ ('b', [2]) in d.items() }} {{ ('b', 2) in d.items() }} {{ [] in d.items() }}", vars,
           "True False False");
    expect("{{ ([], 1, 2) in d.items() }} {{ [] in d.values() }} {{ range(2) in {} }}", vars,
           "False False False");
    expect_error("{{ ([], 1) in {'a': 1}.items() }}", RAD_E_INVAL, 1, "a list cannot be a key");
    expect_error("\n{{ {} in {'a': 1}.keys() }}", RAD_E_INVAL, 2, "a dict cannot be a key");
    expect_error("{{ {{}.keys(): 1} }}", RAD_E_INVAL, 1, "a dict_keys cannot be a key");
}

TEST(split_by_space_keeps_what_is_behind_the_last_cut)
{
    expect("{{ ' a b  c '.split(none, 1) }}{{ ' a b  c '.rsplit(none, 1) }}{{ ' a b '.split() }}",
           "{}", "['a', 'b  c '][' a b', 'c']['a', 'b']");
}

TEST(sets_loops_and_macros_have_jinjas_scopes)
{
    expect("{% set x = 1 %}{% for i in [1, 2] %}{{ x }}{% set x = 9 %}{{ x }}{% endfor %}{{ x }}",
           "{}", "19191");
    expect(
        "{% set ns = namespace(n=0) %}{% for i in range(5) %}{% set ns.n = ns.n + i %}{% endfor %}"
        "{{ ns.n }}",
        "{}", "10");
    expect(
        "{% for i in [1, 2, 3, 4] if i is even %}{{ loop.index }}:{{ i }}{{ ',' if not loop.last }}"
        "{% else %}none{% endfor %}",
        "{}", "1:2,2:4");
    expect("{% for i in [] %}{% else %}none{% endfor %}{% for i in range(9) %}{% if i == 2 %}"
           "{% continue %}{% elif i == 4 %}{% break %}{% endif %}{{ i }}{% endfor %}",
           "{}", "none013");
    expect("{% macro m(a, b='x') %}{{ a }}{{ b }}{{ late }}{% endmacro %}{% set late = '!' %}"
           "{{ m(1) }}{{ m(b=2, a=3) }}",
           "{}", "1x!32!");
    expect("{% macro m() %}<{{ caller(1) }}>{% endmacro %}{% call(n) m() %}in{{ n }}{% endcall %}",
           "{}", "<in1>");
}

/* DeepSeek V3.2's has a filter of its own in a branch for tools. */
TEST(an_unknown_filter_or_test_fails_where_it_is_reached)
{
    static const char source[] = "{% if x %}a\n{{ x|frob(1)|trim }}{% else %}fine{% endif %}"
                                 "{{ 1 if true else 2 is prime }}{% for i in [] %}{{ i|nix }}"
                                 "{% endfor %}";
    expect(source, "{}", "fine1");
    expect_error("{% set x = 1 %}{% if x %}a\n{{ x|frob(1)|trim }}{% endif %}", RAD_E_UNSUPPORTED,
                 2, "filter 'frob'");
    expect_error("{{ [1]|map('frob')|list }}", RAD_E_UNSUPPORTED, 1, "filter 'frob'");
    expect_error("\n{% filter frob %}x{% endfilter %}", RAD_E_UNSUPPORTED, 2, "filter 'frob'");
    jinja_template *t = NULL;
    CHECK_OK(jinja_parse(NULL, source, strlen(source), &t, NULL, NULL));
    CHECKF(strcmp(jinja_unknown(t), "filter 'frob' (line 2)") == 0, "%s\n", jinja_unknown(t));
    jinja_destroy(t);
    CHECK_OK(jinja_parse(NULL, "{{ 1|abs is odd }}", 18, &t, NULL, NULL));
    CHECK(!*jinja_unknown(t));
    jinja_destroy(t);
}

/* strncmp stops at a NUL that both have, and a name's end was looked for behind it. */
TEST(a_name_with_a_nul_in_it_is_no_other_name)
{
    expect_error("{{ [1]|select('eq\\0zzzzzzzzzzzzzzzzzzzz', 1)|list }}", RAD_E_UNSUPPORTED, 1,
                 "there is no test");
    expect_error("{{ ['a']|map('upper\\0')|list }}", RAD_E_UNSUPPORTED, 1, "there is no filter");
    expect("{{ ''['upper\\0'] is defined }}", "{}", "False");
}

TEST(from_json_reads_what_json_loads_reads)
{
    expect("{{ s|from_json }}",
           "{\"s\": \" {\\\"a\\\": [1, -2.5, 1e3, true, null], \\\"b\\\": {}, \\\"a\\\": "
           "\\\"x\\\"} \"}",
           "{'a': 'x', 'b': {}}");
    expect("{{ '[NaN, -Infinity, 9223372036854775807, -9223372036854775808]'|from_json }}", "{}",
           "[nan, -inf, 9223372036854775807, -9223372036854775808]");
    expect("{{ s|from_json }}", "{\"s\": \"\\\"\\\\ud83d\\\\ude00\\\\u00e9\\\\n\\\\/\\\"\"}",
           "\xf0\x9f\x98\x80\xc3\xa9\n/");
    static const char *const wrong[] = {
        "",       "{",          "[1,]",    "{'a': 1}",    "01",  "1 2",
        "-",      "nul",        "[1 2]",   "{\"a\"}",     "\"a", "+1",
        "\"\n\"", "{\"a\":1,}", "\"\\x\"", "\"\\ud800\"", "[",   ".5"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        char vars[64], *at = vars;
        at += sprintf(at, "{\"s\": \"");
        for (const char *p = wrong[i]; *p; p++)
            at += sprintf(at, *p == '\n' ? "\\n" : *p == '"' || *p == '\\' ? "\\%c" : "%c", *p);
        sprintf(at, "\"}");
        jinja_text text;
        rad_error err = {0};
        CHECKF(render("{{ s|from_json }}", vars, (jinja_limits){0}, &text, NULL, &err) ==
                       RAD_E_INVAL &&
                   strstr(err.text, "from_json"),
               "%s: %s\n", vars, err.text);
    }
    expect_error("{{ '9223372036854775808'|from_json }}", RAD_E_LIMIT, 1, "64 bits");
    expect_error("{{ ('[' * 1000)|from_json }}", RAD_E_LIMIT, 1, "deep");
    expect_error("{{ {}|from_json }}", RAD_E_INVAL, 1, "wants a str");
}

TEST(filters_over_what_is_false_give_nothing)
{
    expect("{{ none|map('upper')|list }}{{ none|selectattr('a')|list }}{{ nix|reject('x')|list }}"
           "{{ 0|select|list }}{{ ''|rejectattr('a')|list }}{{ false|map|list }}",
           "{}", "[][][][][][]");
    expect_error("{{ 1|map('upper')|list }}", RAD_E_INVAL, 1, "cannot be iterated");
}

TEST(markup_escapes_what_joins_it)
{
    const char *vars = "{\"s\": \"<&\"}";
    expect("{{ '<b>'|safe + s }} {{ s + '<b>'|safe }} {{ '<b>'|safe ~ s }} {{ s|safe + s|safe }}",
           vars, "<b>&lt;&amp; &lt;&amp;<b> <b><& <&<&");
    expect("{{ s|e + s }} {{ s|e|e }} {{ s|e|forceescape }} {{ s|safe|e }}", vars,
           "&lt;&amp;&lt;&amp; &lt;&amp; &amp;lt;&amp;amp; <&");
    expect(
        "{{ (s|safe).upper() + '<' }} {{ (s|safe)[1:] + '<' }} {{ (s|safe).split('&')[0] + '<' }} "
        "{{ s|safe|list|join + '<' }}",
        vars, "<&&lt; &&lt; <&lt; <&<");
    expect("{{ (s|safe).replace('<', '>') }} {{ s|safe|replace('<', '>') }} {{ '%s'|safe % s }}",
           vars, "<& >& &lt;&amp;");
    expect("{{ [s|safe] }} {{ s|safe is escaped }} {{ s is escaped }} {{ s|safe == s }}", vars,
           "[Markup('<&')] True False True");
}

TEST(what_is_not_known_is_named_with_its_line)
{
    expect_error("a\nb{{ x|frobnicate }}", RAD_E_UNSUPPORTED, 2, "filter 'frobnicate'");
    expect_error("\n\n{% include 'x' %}", RAD_E_UNSUPPORTED, 3, "'include'");
    expect_error("{{ 1 is prime }}", RAD_E_UNSUPPORTED, 1, "test 'prime'");
    expect_error("{{ foo.bar() }}", RAD_E_INVAL, 1, "'foo' is undefined");
    expect_error("x\n{{ 'a'.encode() }}", RAD_E_UNSUPPORTED, 2, "method of str");
    expect_error("{{ [].append(1) }}", RAD_E_INVAL, 1, "changes a list");
    expect_error("{% if x %}\n", RAD_E_FORMAT, 1, "endif");
    expect_error("{% endfor %}", RAD_E_FORMAT, 1, "'endfor'");
    expect_error("{{ 'abc }}", RAD_E_FORMAT, 1, "closing quote");
    expect_error("{{ 1 + }}", RAD_E_FORMAT, 1, "expression expected");
    expect_error("{% break %}", RAD_E_FORMAT, 1, "outside of a loop");
    expect_error("\n{{ raise_exception('No ' + 'way') }}", RAD_E_INVAL, 2, "No way");
    expect_error("\xff", RAD_E_FORMAT, 1, "UTF-8");
}

TEST(nothing_grows_without_bound)
{
    static const char *const bombs[] = {
        "{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}",
        "{{ range(100000000) }}",
        "{% set ns = namespace(s='x') %}{% for i in range(99) %}{% set ns.s = ns.s ~ ns.s %}{% "
        "endfor %}",
        "{{ 'ab' * 999999999999 }}",
        "{{ 'x'.ljust(99999999999) }}",
        "{{ 'x'|indent(99999999999) }}",
        "{% macro m(n) %}{{ m(n + 1) }}{% endmacro %}{{ m(0) }}",
        "{% set ns = namespace(l=[]) %}{% for i in range(999) %}{% set ns.l = [ns.l] %}{% endfor "
        "%}{{ ns.l }}",
        "{% set ns = namespace(l=[1]) %}{% for i in range(99) %}{% set ns.l = ns.l + ns.l %}{% "
        "endfor %}",
        "{% set ns = namespace(l=[1]) %}{% for i in range(99) %}{% set ns.l = [ns.l, ns.l] %}{% "
        "endfor %}{{ ns.l == ns.l|list }}{{ ns.l|tojson }}",
        "{{ 9999999999 ** 9 }}",
        "{% set ns = namespace() %}{% set ns.me = ns %}{{ ns }}",
        "{{ ('a' * 5000)|replace('a', 'b' * 50000) }}",
        "{{ 'a'|center(9999999999) }}",
        "{{ [1]|batch(9999999999, 0)|list }}",
    };
    for (size_t i = 0; i < sizeof bombs / sizeof *bombs; i++) {
        jinja_text text;
        rad_error err = {0};
        jinja_limits limits = {.steps = 1000000, .memory = 64 << 20, .output = 16 << 20};
        rad_status status = render(bombs[i], "{}", limits, &text, NULL, &err);
        CHECKF(status == RAD_E_LIMIT, "%s: %d %s\n", bombs[i], status, err.text);
    }
    char deep[4000];
    memset(deep, '(', sizeof deep - 1);
    memcpy(deep, "{{", 2);
    deep[sizeof deep - 1] = 0;
    expect_error(deep, RAD_E_FORMAT, 1, "brackets");
    for (size_t i = 2; i + 4 < sizeof deep; i += 4)
        memcpy(deep + i, "not ", 4);
    memcpy(deep + sizeof deep - 5, "1 }}", 4);
    expect_error(deep, RAD_E_LIMIT, 1, "nested");
}

/* Looking through a long text costs steps whatever looks, and so do many names: a thousand
 * looks at a megabyte were free for some methods, and a template could hold up the server. */
TEST(long_texts_cost_steps_wherever_they_are_looked_at)
{
    static const char *const looks[] = {
        "s|length",
        "s.isalpha()",
        "s.isascii()",
        "s.islower()",
        "s is upper",
        "s|wordcount",
        "s.zfill(3)",
        "s.ljust(3)",
        "s|center(3)",
        "s|truncate(3)",
        "s.startswith(s)",
        "s.endswith(s)",
        "s.count('b')",
        "s.rfind('b')",
        "s.rpartition('b')",
        "s.strip('a')",
        "s.strip('b' * 9000 ~ 'a')",
        "s.replace('b', '')",
        "s.format()",
        "s|title",
        "s == (s ~ '')",
        "'b' in s",
        "s.rfind('a' * 500000 ~ 'b')",
        "s[5:9]",
        "s.split()",
        "s|trim('a')",
    };
    for (size_t i = 0; i < sizeof looks / sizeof *looks; i++) {
        char source[300];
        jinja_text text;
        rad_error err = {0};
        jinja_limits limits = {.steps = 1000000};
        snprintf(source, sizeof source,
                 "{%% set s = 'a' * 1000000 %%}{%% for i in range(1000) %%}{%% if %s %%}{%% endif "
                 "%%}{%% endfor %%}",
                 looks[i]);
        rad_status status = render(source, "{}", limits, &text, NULL, &err);
        CHECKF(status == RAD_E_LIMIT, "%s: %d %s\n", looks[i], status, err.text);
        jinja_text_fini(&text);
    }
    enum { NAMES = 2000 };
    char *many = malloc(NAMES * 32 + 200), *end = many;
    for (int i = 0; i < NAMES; i++)
        end += sprintf(end, "{%% set v%d = 1 %%}", i);
    strcpy(end, "{% for i in range(10000) %}{{ v0 }}{% endfor %}");
    jinja_text text;
    rad_error err = {0};
    jinja_limits limits = {.steps = 1000000};
    CHECK(render(many, "{}", limits, &text, NULL, &err) == RAD_E_LIMIT);
    free(many);
}

/* What an operation costs goes with the bytes and items it handles: each of these handles
 * 100,000 bytes or 10,000 items, and pays at least so many steps. Once a tojson, a padding or the
 * search for 200 equal letters cost a fiftieth of that, and a template of one line held a worker
 * for a minute. */
TEST(operations_pay_for_the_work_they_do)
{
    static const struct {
        const char *set, *what;
        uint32_t least;
    } prices[] = {
        {"'a' * 100000", "v ~ 'x'", 1600},
        {"'a' * 100000", "v + 'x'", 1600},
        {"'a'", "v * 100000", 25000},
        {"'a'", "v|center(100000)", 25000},
        {"'a'", "v.ljust(100000)", 25000},
        {"'1'", "v.zfill(100000)", 25000},
        {"'a'", "v|indent(100000, true)", 25000},
        {"'a' * 100000", "v|replace('a', 'b')", 50000},
        {"'a' * 100000", "v.replace('', '')", 30000},
        {"'a' * 100000", "('a' * 200 ~ 'b') in v", 100000},
        {"'ab' * 50000", "'ac' in v", 10000},
        {"'a' * 100000", "'b' in v", 390},
        {"'a' * 100000", "v.rfind('b' ~ 'a' * 200)", 390},
        {"'a' * 100000", "v.count('a')", 25000},
        {"'a,' * 50000", "v.split(',')", 25000},
        {"'a,' * 50000", "v.rsplit(',')", 25000},
        {"'a ' * 50000", "v.split()", 25000},
        {"'a\n' * 50000", "v.splitlines()", 25000},
        {"' ' * 100000", "v.strip()", 25000},
        {"'x' * 100000", "v.strip('xyz')", 25000},
        {"'a' * 100000", "v[::-1]", 100000},
        {"'a' * 100000", "v[7:]", 6000},
        {"'a' * 100000", "v|list", 100000},
        {"'a' * 100000", "v|length", 3000},
        {"'a' * 100000", "v == 'a' * 100000", 390},
        {"'a' * 100000", "v <= 'a' * 100000", 390},
        {"'a' * 100000", "v.startswith(v)", 390},
        {"'a' * 100000", "v|upper", 45000},
        {"'a' * 100000", "v.title()", 45000},
        {"'a' * 100000", "v is lower", 25000},
        {"'a' * 100000", "v.isalnum()", 25000},
        {"'a' * 100000", "v|wordcount", 25000},
        {"'<' * 100000", "v|e", 25000},
        {"'a' * 100000", "v|tojson", 30000},
        {"'\n' * 100000", "v|tojson", 400000},
        {"['\n' * 100000]", "v|string", 400000},
        {"'{}' * 1000", "v.format(*range(1000))", 1000},
        {"'%d' * 1000", "v|format(*range(1000))", 8000},
        {"[0.1] * 1000", "v|string", 64000},
        {"['0.1'] * 1000", "v|map('float')|list", 8000},
        {"'%.99f'", "v % 1e308", 128},
        {"range(10000)", "v|list", 1200},
        {"range(10000)|list", "v + v", 2500},
        {"range(10000)|list", "v * 2", 2500},
        {"range(10000)|list", "v[:]", 10000},
        {"range(10000)|list", "v|reverse|list", 2500},
        {"range(10000)|list", "v|sort", 60000},
        {"range(1000)|list", "v|unique|list", 480000},
        {"range(10000)|list", "-1 in v", 10000},
        {"range(10000)|list", "v|join", 10000},
        {"range(10000)|list", "v|sum", 10000},
        {"range(10000)|list", "v|batch(7)|list", 10000},
        {"range(10000)|list", "v|map('string')|list", 20000},
        {"range(10000)|list", "v|select('odd')|list", 20000},
        {"range(1000)|map('string')|list", "dict(v|map('list')|list|map('join')|batch(2)|list)",
         8000},
        {"['a'] * 10000", "v|join(',')", 10000},
        {"1", "range(10000)", 1200},
    };
    for (size_t i = 0; i < sizeof prices / sizeof *prices; i++) {
        uint64_t steps[2];
        for (int with = 0; with < 2; with++) {
            char source[300];
            jinja_text text;
            rad_error err = {0};
            snprintf(source, sizeof source, "{%% set v = %s %%}{%% set w = %s %%}", prices[i].set,
                     with ? prices[i].what : "1");
            rad_status status = render(source, "{}", (jinja_limits){0}, &text, NULL, &err);
            CHECKF(status == RAD_OK, "%s: %d %s\n", source, status, err.text);
            steps[with] = text.steps;
            jinja_text_fini(&text);
        }
        CHECKF(steps[1] - steps[0] >= prices[i].least, "%s: %llu steps, at least %u\n",
               prices[i].what, (unsigned long long)(steps[1] - steps[0]), prices[i].least);
    }
}

/* A megabyte of a thousand messages, with what templates do to each, is far from the limit. */
TEST(long_conversations_cost_a_small_part_of_the_limit)
{
    static const char source[] =
        "{%- set ns = namespace(last = 0) %}{{ tools|tojson(indent=2) }}"
        "{%- for m in messages %}{% if m.role == 'user' %}{% set ns.last = loop.index0 %}{% endif "
        "%}"
        "{% endfor %}"
        "{%- for m in messages %}{% set content = m.content if m.content is string else '' %}"
        "{% if '</think>' in content %}{% set content = content.split('</think>')[-1].lstrip('\n') "
        "%}"
        "{% endif %}{{ '<|im_start|>' + m.role + '\n' + content|trim + '<|im_end|>\n' }}"
        "{% if m.tool_calls %}{% for call in m.tool_calls %}{{ call.function.arguments|tojson }}"
        "{% endfor %}{% endif %}{% endfor %}";
    enum { MESSAGES = 1000, BYTES = 1000 };
    char content[BYTES + 1];
    for (int i = 0; i < BYTES; i++)
        content[i] = "some words, <b>one</b> line\n"[i % 28];
    content[BYTES] = 0;
    json_t *vars =
        parse_json("{\"messages\": [], \"tools\": [{\"a\": [1, 2, {\"b\": \"c\\n\"}]}]}");
    json_t *messages = json_object_get(vars, "messages");
    for (int i = 0; i < MESSAGES; i++)
        json_array_append_new(
            messages,
            json_pack("{s:s, s:s}", "role", i % 2 ? "assistant" : "user", "content", content));
    char *text_of = json_dumps(vars, JSON_COMPACT);
    jinja_text text;
    rad_error err = {0};
    rad_status status = render(source, text_of, (jinja_limits){0}, &text, NULL, &err);
    CHECKF(status == RAD_OK, "%d %s\n", status, err.text);
    CHECK(text.len > (size_t)MESSAGES * BYTES);
    CHECKF(text.steps < 400000, "%llu steps\n", (unsigned long long)text.steps); /* of 20 million */
    jinja_text_fini(&text);
    free(text_of);
    json_decref(vars);
}

/* The error says what there was too much of, and how much that is. */
TEST(too_much_work_is_named)
{
    jinja_text text;
    rad_error err = {0};
    CHECK(render("{% set l = range(10000)|list %}{% for i in l %}{% for j in l %}{{ j }}{% endfor "
                 "%}{% endfor %}",
                 "{}", (jinja_limits){0}, &text, NULL, &err) == RAD_E_LIMIT);
    CHECKF(strstr(err.text, "more than 20000000"), "%s\n", err.text);
}

TEST(what_percent_cannot_show_is_refused)
{
    expect("{{ '%-5d|%+d|%05.1f|% d|%5.2f%%' % (3, 4, 5.25, 6, 1.005) }}", "{}",
           "3    |+4|005.2| 6| 1.00%");
    expect("{{ '%d' % -9.1e18 }}", "{}", "-9100000000000000000");
    expect_error("{{ '%d' % 1e20 }}", RAD_E_LIMIT, 1, "64 bits");
    expect_error("{{ '%d' % (1e308 * 10) }}", RAD_E_INVAL, 1, "none");
    expect_error("{{ '%.5.5d' % 3 }}", RAD_E_UNSUPPORTED, 1, "not supported");
    expect_error("{{ '%5-d' % 3 }}", RAD_E_UNSUPPORTED, 1, "not supported");
    expect_error("{{ '%123d' % 3 }}", RAD_E_UNSUPPORTED, 1, "not supported");
    expect("{{ ('%.99f' % 1e308)|length }}", "{}", "409");
    expect("{{ 5.5|round(-9223372036854775807 - 1) }}", "{}", "0.0");
    expect("{{ -0.3|round(0, 'ceil') }} {{ -0.0|round(1, 'floor') }} {{ -1.5|round(0, 'ceil') }}",
           "{}", "0.0 0.0 -1.0");
    expect_error("{{ (1e308 * 10)|round(0, 'floor') }}", RAD_E_INVAL, 1, "too large");
    expect("{{ 7e300 is divisibleby(2) }}{{ 7.0 is odd }}{{ 7.5 is odd }}", "{}", "TrueTrueFalse");
    expect_error("{{ 'a' is odd }}", RAD_E_INVAL, 1, "arguments");
}

TEST(now_has_no_zone)
{
    expect("{{ strftime_now('%H:%M%z %Z|%%Z %d %b %Y') }}", "{}", "12:00 |%Z 15 Jan 2025");
    expect("{{ strftime_now('') }}", "{}", "");
}

/* The marks of the text as a string of 0 and 1. */
static void expect_marks(const char *source, const char *vars, const char *wanted,
                         const char *marks)
{
    jinja_text text;
    rad_error err = {0};
    CHECKF(render(source, vars, (jinja_limits){0}, &text, NULL, &err) == RAD_OK, "%s\n", err.text);
    CHECKF(strcmp(text.data, wanted) == 0, "\"%s\"\n", text.data);
    for (size_t i = 0; i < text.len; i++)
        CHECKF((text.user && text.user[i]) == (marks[i] == '1'), "%s: byte %zu\n", source, i);
    jinja_text_fini(&text);
}

TEST(every_byte_knows_where_it_came_from)
{
    const char *vars = "{\"s\": \" ab \", \"l\": \"<\", \"m\": {\"role\": \"user\", \"x\": \"k\"}, "
                       "\"e\": {\"role\": \"im_end\"}}";
    expect_marks("<{{ s }}>", vars, "< ab >", "011110");
    expect_marks("<{{ s|trim|upper ~ '!' }}>", vars, "<AB!>", "01100");
    expect_marks("{{ ('x' + s.strip() + 'y')[1:-1] }}", vars, "ab", "11");
    expect_marks("{{ ('x' + s)|replace(' ', '_') }}", vars, "x_ab_", "00110");
    expect_marks("{{ '<' + m.role + '>' }}", vars, "<user>", "000000");
    expect_marks("{{ '<' + e.role + '>' }}", vars, "<im_end>", "01111110");
    expect_marks("{{ m|tojson }}", vars, "{\"role\": \"user\", \"x\": \"k\"}",
                 "00111100000000000010000100");
    expect_marks("{% set t %}a{{ s[1] }}{% endset %}{{ t * 2 }}{{ t.split('a')[1] }}", vars, "aaaa",
                 "0101");
    expect_marks("{{ '{\"a\": \"b'|safe ~ s ~ '\"}' }}", vars, "{\"a\": \"b ab \"}",
                 "00000000111100");
    expect_marks("{{ ('[\"b' ~ s ~ '\\\\n\", \"c\"]')|from_json|join('<') }}", vars, "b ab \n<c",
                 "01111000");
    expect_marks("{{ s|e ~ '&'|e }}", vars, " ab &amp;", "111100000");
    expect_marks("{{ '<'|e ~ ('<b>'|safe + l) }}", vars, "&lt;<b>&lt;", "00000001111");
    expect_marks("{% macro q(x) %}[{{ x }}]{% endmacro %}{{ q(s|first) }}{{ s|list|join('-') }}",
                 vars, "[ ] -a-b- ", "0101010101");
}

TEST_WITH_DATA(public_templates_render_as_hugging_face_renders_them, "chat")
{
    static const char *const names[] = {"Qwen-Qwen2.5-7B-Instruct", "google-gemma-2-2b-it",
                                        "microsoft-Phi-3.5-mini-instruct"};
    int cases = 0, refused = 0;
    for (size_t i = 0; i < 3; i++) {
        char path[512];
        snprintf(path, sizeof path, "%s/chat/%s.jinja", test_data(), names[i]);
        FILE *f = fopen(path, "rb");
        CHECKF(f, "%s\n", path);
        static char source[1 << 16];
        size_t len = fread(source, 1, sizeof source, f), at;
        fclose(f);
        jinja_template *t = NULL;
        rad_error err = {0};
        CHECKF(jinja_parse(NULL, source, len, &t, NULL, &err) == RAD_OK, "%s\n", err.text);
        snprintf(path, sizeof path, "%s/chat/%s.golden.json", test_data(), names[i]);
        json_t *golden = load_json(path), *one;
        json_array_foreach(golden, at, one)
        {
            const json_t *input = json_object_get(one, "input");
            const char *wanted = json_string_value(json_object_get(one, "expected"));
            const char *error = json_string_value(json_object_get(one, "error"));
            chat_input in = {.messages = json_object_get(input, "messages"),
                             .tools = json_object_get(input, "tools"),
                             .bos_token = json_string_value(json_object_get(one, "bos_token")),
                             .eos_token = json_string_value(json_object_get(one, "eos_token")),
                             .add_generation_prompt =
                                 json_is_true(json_object_get(input, "add_generation_prompt"))};
            jinja_text text;
            jinja_fault fault;
            rad_status status = chat_render(t, &in, &text, &fault, &err);
            if (wanted)
                CHECKF(status == RAD_OK && strcmp(text.data, wanted) == 0, "%s %zu: %s\n", names[i],
                       at, text.data ? text.data : err.text);
            else
                CHECKF(status == RAD_E_INVAL && fault.raised && strcmp(err.text, error) == 0,
                       "%s %zu: %s\n", names[i], at, err.text);
            jinja_text_fini(&text);
            cases++;
            refused += !wanted;
        }
        json_decref(golden);
        jinja_destroy(t);
    }
    CHECKF(cases >= 18 && refused >= 3, "%d cases, %d refused\n", cases, refused);
}

TEST(every_allocation_may_fail)
{
    static const char source[] =
        "{% macro m(a) %}{{ a|upper }}{% endmacro %}{% for x in messages %}{{ m(x.content) }}"
        "{{ x|tojson(indent=2) }}{{ [x] * 2000 }}{{ (x|tojson)|from_json }}{{ x.content|e + '<' }}"
        "{% endfor %}{{ 1|nix if false }}";
    json_t *messages = parse_json("[{\"role\": \"user\", \"content\": \"abc\"}]");
    bool done = false;
    for (long n = 0; !done; n++) {
        test_env e;
        rad_env env = test_env_failing_at(&e, n);
        jinja_template *t = NULL;
        jinja_text text = {0};
        rad_error err = {0};
        chat_input in = {.messages = messages};
        rad_status status = jinja_parse(&env, source, strlen(source), &t, NULL, &err);
        CHECK(status == RAD_OK || (status == RAD_E_NOMEM && !t && err.text[0]));
        if (status == RAD_OK) status = chat_render(t, &in, &text, NULL, &err);
        CHECK(status == RAD_OK || (status == RAD_E_NOMEM && !text.data));
        done = status == RAD_OK;
        jinja_text_fini(&text);
        jinja_destroy(t);
        CHECK(e.bytes == 0);
    }
    json_decref(messages);
}

TEST_MAIN()
