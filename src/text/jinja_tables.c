/* jinja_tables.c - which filters, tests and functions there are, and the tests themselves.
 *
 * Tables are short and looked through from the start: filters and tests are looked up when a
 * template is parsed, not when it runs. */
#include "text/jinja_filters.h"

#include <math.h>
#include <time.h>

const jfunction *jfind(const jfunction *table, size_t count, const char *name, size_t len)
{
    for (size_t i = 0; len && i < count; i++) {
        const char *is = table[i].name;
        if (is[0] == name[0] && strlen(is) == len && memcmp(is, name, len) == 0) return &table[i];
    }
    return NULL;
}

const jfunction *jinja_find_filter(const jstr *name)
{
#define ROW(name, spec) {#name, jfilter_##name, spec},
    static const jfunction filters[] = {
        JFILTERS(ROW){"d", jfilter_default, "default_value?,boolean?"},
        {"count", jfilter_length, ""},
        {"e", jfilter_escape, ""},
    };
#undef ROW
    return jfind(filters, RAD_COUNT(filters), name->p, name->len);
}

/* ---- tests ---- */

#define TEST(name) static jval test_##name(jctx *c, jval self, const jval *args, const jargs *all)
#define UNUSED     (void)c, (void)self, (void)args, (void)all

TEST(defined)
{
    UNUSED;
    return jbool(self.type != J_UNDEFINED);
}
TEST(undefined)
{
    UNUSED;
    return jbool(self.type == J_UNDEFINED);
}
TEST(none)
{
    UNUSED;
    return jbool(self.type == J_NONE);
}
TEST(boolean)
{
    UNUSED;
    return jbool(self.type == J_BOOL);
}
TEST(true)
{
    UNUSED;
    return jbool(self.type == J_BOOL && self.u.b);
}
TEST(false)
{
    UNUSED;
    return jbool(self.type == J_BOOL && !self.u.b);
}
TEST(integer)
{
    UNUSED;
    return jbool(self.type == J_INT);
}
TEST(float)
{
    UNUSED;
    return jbool(self.type == J_FLOAT);
}
TEST(number)
{
    UNUSED;
    return jbool(jis_number(self));
}
TEST(string)
{
    UNUSED;
    return jbool(self.type == J_STR);
}
TEST(escaped)
{
    UNUSED;
    return jbool(self.type == J_STR && self.u.s->markup);
}
TEST(mapping)
{
    UNUSED;
    return jbool(self.type == J_DICT);
}

TEST(sequence)
{
    UNUSED;
    return jbool(self.type == J_STR || self.type == J_DICT || self.type == J_UNDEFINED ||
                 (self.type == J_LIST && self.u.l->kind <= RANGE));
}

TEST(iterable)
{
    UNUSED;
    return jbool(self.type == J_STR || self.type == J_DICT || self.type == J_UNDEFINED ||
                 self.type == J_LIST || self.type == J_LOOP);
}

TEST(callable)
{
    UNUSED;
    return jbool(self.type == J_MACRO || self.type == J_FUNCTION || self.type == J_METHOD ||
                 self.type == J_UNDEFINED || self.type == J_LOOP);
}

/* 0, 1 or something else. */
static int64_t modulo(jctx *c, jval self, jval by)
{
    jval rest = jbinary(c, OP_MOD, self, by);
    if (jis_int(rest)) return jas_int(rest);
    if (rest.type != J_FLOAT) return -1;
    return rest.u.f == 0 ? 0 : rest.u.f == 1 ? 1 : -1; /* all that is asked for */
}

TEST(odd)
{
    UNUSED;
    return jbool(modulo(c, self, jint(2)) == 1);
}
TEST(even)
{
    UNUSED;
    return jbool(modulo(c, self, jint(2)) == 0);
}
TEST(divisibleby)
{
    UNUSED;
    return jbool(modulo(c, self, args[0]) == 0);
}
TEST(lower)
{
    UNUSED;
    return jbool(jall_case(c, jshow(c, self), LOWER));
}
TEST(upper)
{
    UNUSED;
    return jbool(jall_case(c, jshow(c, self), UPPER));
}
TEST(in)
{
    UNUSED;
    return jbool(jcontains(c, self, args[0]));
}
TEST(eq)
{
    UNUSED;
    return jbool(jequal(c, self, args[0]));
}
TEST(ne)
{
    UNUSED;
    return jbool(!jequal(c, self, args[0]));
}
TEST(lt)
{
    UNUSED;
    return jbool(jcompare(c, self, args[0], "<") == -1);
}
TEST(gt)
{
    UNUSED;
    return jbool(jcompare(c, self, args[0], ">") == 1);
}
TEST(le)
{
    UNUSED;
    return jbool(jcompare(c, self, args[0], "<=") <= 0);
}

TEST(ge)
{
    UNUSED;
    int order = jcompare(c, self, args[0], ">=");
    return jbool(order == 0 || order == 1);
}

/* Python's `is`: for what a template can tell apart. */
TEST(sameas)
{
    UNUSED;
    jval b = args[0];
    if (self.type != b.type) return jbool(false);
    if (self.type == J_LIST || self.type == J_DICT || self.type == J_NAMESPACE)
        return jbool(self.u.d == b.u.d);
    return jbool(jequal(c, self, b));
}

static jval has_function(const jfunction *f)
{
    return jbool(f != NULL);
}
TEST(filter)
{
    UNUSED;
    return has_function(self.type == J_STR ? jinja_find_filter(self.u.s) : NULL);
}
TEST(test)
{
    UNUSED;
    return has_function(self.type == J_STR ? jinja_find_test(self.u.s) : NULL);
}

const jfunction *jinja_find_test(const jstr *name)
{
    static const jfunction tests[] = {
        {"!=", test_ne, "other"},
        {"<", test_lt, "other"},
        {"<=", test_le, "other"},
        {"==", test_eq, "other"},
        {">", test_gt, "other"},
        {">=", test_ge, "other"},
        {"boolean", test_boolean, ""},
        {"callable", test_callable, ""},
        {"defined", test_defined, ""},
        {"divisibleby", test_divisibleby, "num"},
        {"eq", test_eq, "other"},
        {"equalto", test_eq, "other"},
        {"escaped", test_escaped, ""},
        {"even", test_even, ""},
        {"false", test_false, ""},
        {"filter", test_filter, ""},
        {"float", test_float, ""},
        {"ge", test_ge, "other"},
        {"greaterthan", test_gt, "other"},
        {"gt", test_gt, "other"},
        {"in", test_in, "seq"},
        {"integer", test_integer, ""},
        {"iterable", test_iterable, ""},
        {"le", test_le, "other"},
        {"lessthan", test_lt, "other"},
        {"lower", test_lower, ""},
        {"lt", test_lt, "other"},
        {"mapping", test_mapping, ""},
        {"ne", test_ne, "other"},
        {"none", test_none, ""},
        {"number", test_number, ""},
        {"odd", test_odd, ""},
        {"sameas", test_sameas, "other"},
        {"sequence", test_sequence, ""},
        {"string", test_string, ""},
        {"test", test_test, ""},
        {"true", test_true, ""},
        {"undefined", test_undefined, ""},
        {"upper", test_upper, ""},
    };
    return jfind(tests, RAD_COUNT(tests), name->p, name->len);
}

/* ---- functions ---- */

static jval call_range(jctx *c, jval self, const jval *args, const jargs *all)
{
    (void)self, (void)args;
    if (all->num_named || !all->num_pos || all->num_pos > 3)
        jinja_fail(c, RAD_E_INVAL, "range takes one to three numbers");
    int64_t start = 0, stop, step = 1;
    stop = jwant_int(c, all->pos[all->num_pos > 1], "range");
    if (all->num_pos > 1) start = jwant_int(c, all->pos[0], "range");
    if (all->num_pos > 2) step = jwant_int(c, all->pos[2], "range");
    if (!step) jinja_fail(c, RAD_E_INVAL, "range: the step is zero");
    jval range = jlist_new(c, RANGE, 0);
    range.u.l->start = start;
    range.u.l->stop = stop;
    range.u.l->step = step;
    for (int64_t i = start; step > 0 ? i < stop : i > stop;) {
        if (range.u.l->len == JINJA_MAX_RANGE)
            jinja_fail(c, RAD_E_LIMIT, "range: more than %d numbers", JINJA_MAX_RANGE);
        jlist_push(c, range.u.l, jint(i));
        if (__builtin_add_overflow(i, step, &i)) break;
    }
    return range;
}

static jval make_dict(jctx *c, const jargs *all, jtype type)
{
    jval dict = jdict_new(c, type);
    if (all->num_pos > 1) jinja_fail(c, RAD_E_INVAL, "dict takes at most one argument");
    if (all->num_pos && (all->pos[0].type == J_DICT || all->pos[0].type == J_NAMESPACE)) {
        const jdict *from = all->pos[0].u.d;
        for (uint32_t i = 0; i < from->len; i++)
            jdict_append(c, dict.u.d, from->keys[i], from->values[i]);
    } else if (all->num_pos) {
        if (all->pos[0].type == J_UNDEFINED)
            jinja_fail(c, RAD_E_INVAL, "%s is undefined", all->pos[0].u.hint);
        const jlist *pairs = jiterate(c, all->pos[0]);
        for (uint32_t i = 0; i < pairs->len; i++) {
            const jlist *pair = jiterate(c, pairs->items[i]);
            if (pair->len != 2) jinja_fail(c, RAD_E_INVAL, "dict wants pairs");
            jdict_set(c, dict.u.d, pair->items[0], pair->items[1]);
        }
    }
    for (uint32_t i = 0; i < all->num_named; i++)
        jdict_set(c, dict.u.d, (jval){.type = J_STR, .u.s = all->names[i]}, all->named[i]);
    return dict;
}

static jval call_dict(jctx *c, jval self, const jval *args, const jargs *all)
{
    (void)self, (void)args;
    return make_dict(c, all, J_DICT);
}

static jval call_namespace(jctx *c, jval self, const jval *args, const jargs *all)
{
    (void)self, (void)args;
    return make_dict(c, all, J_NAMESPACE);
}

static jval call_raise(jctx *c, jval self, const jval *args, const jargs *all)
{
    (void)self, (void)all;
    const jstr *message = jshow(c, args[0]);
    c->raised = true;
    jinja_fail(c, RAD_E_INVAL, "%.*s", (int)RAD_MIN(message->len, 380u), message->p);
}

static jval call_strftime(jctx *c, jval self, const jval *args, const jargs *all)
{
    (void)self, (void)all;
    const jstr *format = jwant_str(c, args[0], "strftime_now");
    char bytes[128], text[512];
    jwork(c, 8 * JINJA_PRINT);
    struct tm tm;
    time_t now = (time_t)c->now_unix;
    if (format->len >= sizeof bytes - 1 || memchr(format->p, 0, format->len))
        jinja_fail(c, RAD_E_LIMIT, "strftime_now: the format is too long");
    size_t n = 0;
    for (size_t i = 0; i < format->len; i++) {
        bool pair = format->p[i] == '%' && i + 1 < format->len;
        if (pair && (format->p[i + 1] == 'Z' || format->p[i + 1] == 'z')) {
            i++; /* Python's now() has no zone */
            continue;
        }
        bytes[n++] = format->p[i];
        if (pair) bytes[n++] = format->p[++i];
    }
    bytes[n] = ' '; /* so that an empty answer is not taken for a failure */
    bytes[n + 1] = 0;
    gmtime_r(&now, &tm);
    size_t len = strftime(text, sizeof text, bytes, &tm);
    if (!len) jinja_fail(c, RAD_E_LIMIT, "strftime_now: the date is too long");
    return jstring(c, text, len - 1, NULL, 0);
}

static jval call_absent(jctx *c, jval self, const jval *args, const jargs *all)
{
    UNUSED;
    jinja_fail(c, RAD_E_UNSUPPORTED, "cycler, joiner and lipsum are not supported");
}

const jfunction *jinja_find_global(const jstr *name)
{
    static const jfunction globals[] = {
        {"cycler", call_absent, NULL},       {"dict", call_dict, NULL},
        {"joiner", call_absent, NULL},       {"lipsum", call_absent, NULL},
        {"namespace", call_namespace, NULL}, {"raise_exception", call_raise, "message"},
        {"range", call_range, NULL},         {"strftime_now", call_strftime, "format"},
    };
    return jfind(globals, RAD_COUNT(globals), name->p, name->len);
}
