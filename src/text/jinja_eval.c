/* jinja_eval.c - expressions to values.
 *
 * Names are looked up along the scopes, innermost first; then come the functions that every
 * template has. What is not there is an undefined value: it may be printed (as nothing),
 * tested and iterated over (as nothing), and everything else fails with its name. */
#include "text/jinja_ast.h"

#include <stdio.h>

/* "'name'", or "'name' of a dict", for the words of a later failure. */
static jval missing(jctx *c, const char *name, size_t len, const char *of)
{
    char text[128];
    jwork(c, JINJA_PRINT);
    int n = snprintf(text, sizeof text, "'%.*s'%s%s", (int)RAD_MIN(len, (size_t)60), name,
                     of ? " of a " : "", of ? of : "");
    char *hint = jalloc(c, (size_t)n + 1, 1);
    memcpy(hint, text, (size_t)n + 1);
    return jundefined(hint);
}

static _Noreturn void fail_undefined(jctx *c, jval v)
{
    jinja_fail(c, RAD_E_INVAL, "%s is undefined", v.u.hint);
}

/* ---- attributes and items ---- */

static jval find_method(jctx *c, jval v, const char *name, size_t len)
{
    if (v.type == J_STR) return jstr_method(c, v, name, len);
    if (v.type == J_DICT) return jdict_method(c, v, name, len);
    if (v.type == J_LIST) return jlist_method(c, v, name, len);
    if (v.type == J_LOOP) return jloop_attribute(c, v.u.loop, name, len);
    if (v.type == J_MACRO && len == 4 && memcmp(name, "name", 4) == 0)
        return (jval){.type = J_STR, .u.s = v.u.macro->node->name};
    if (jis_number(v)) return jnumber_method(c, v, name, len);
    return (jval){.type = J_UNSET};
}

jval jattribute(jctx *c, jval v, const jstr *name)
{
    if (v.type == J_UNDEFINED) fail_undefined(c, v);
    jval found = find_method(c, v, name->p, name->len);
    if (found.type != J_UNSET) return found;
    if (v.type == J_DICT || v.type == J_NAMESPACE) {
        const jval *item = jdict_get(c, v.u.d, name->p, name->len);
        if (item) return *item;
    }
    return missing(c, name->p, name->len, jtype_name(v));
}

static bool hashable(jval key)
{
    if (key.type == J_DICT) return false;
    return key.type != J_LIST || key.u.l->kind == TUPLE;
}

jval jitem(jctx *c, jval v, jval key)
{
    if (v.type == J_UNDEFINED) fail_undefined(c, v);
    if (v.type == J_DICT && hashable(key)) {
        const jval *item = jdict_find(c, v.u.d, key);
        if (item) return *item;
    }
    if (v.type == J_NAMESPACE && key.type == J_STR) return jattribute(c, v, key.u.s);
    if (jis_int(key) && (v.type == J_STR || (v.type == J_LIST && v.u.l->kind <= RANGE))) {
        int64_t i = jas_int(key), n = jlength(c, v);
        if (i < 0) i += n;
        if (i >= 0 && i < n && v.type == J_LIST) return v.u.l->items[i];
        if (i >= 0 && i < n) {
            jwork(c, (uint64_t)v.u.s->len * JINJA_LOOK / 2);
            size_t at = jchar_at(v.u.s, (size_t)i);
            const jstr rest = {.p = v.u.s->p + at, .len = v.u.s->len - (uint32_t)at};
            return jsub(c, v.u.s, at, jchar_at(&rest, 1));
        }
    }
    if (key.type == J_STR) {
        jval found = find_method(c, v, key.u.s->p, key.u.s->len);
        if (found.type != J_UNSET) return found;
        return missing(c, key.u.s->p, key.u.s->len, jtype_name(v));
    }
    return missing(c, "that item", 9, jtype_name(v));
}

/* A bound of v[start:stop:step], as Python clips it. */
static int64_t clip(jctx *c, jval bound, int64_t n, int64_t step, bool is_start)
{
    if (bound.type == J_UNSET || bound.type == J_NONE)
        return is_start == (step > 0) ? (step > 0 ? 0 : -1) : (step > 0 ? n : n - 1);
    int64_t i = jwant_int(c, bound, "a slice");
    if (i < 0) i = i < -n ? -1 : i + n;
    if (i < 0) return step > 0 ? 0 : -1;
    return i >= n ? (step > 0 ? n : n - 1) : i;
}

jval jslice(jctx *c, jval v, jval start, jval stop, jval step)
{
    if (v.type == J_UNDEFINED) fail_undefined(c, v);
    if (v.type != J_STR && !(v.type == J_LIST && v.u.l->kind <= RANGE))
        jinja_fail(c, RAD_E_INVAL, "a %s cannot be sliced", jtype_name(v));
    int64_t by = step.type == J_UNSET || step.type == J_NONE ? 1 : jwant_int(c, step, "a slice");
    if (!by) jinja_fail(c, RAD_E_INVAL, "the step of a slice is zero");
    int64_t n = jlength(c, v);
    int64_t from = clip(c, start, n, by, true), to = clip(c, stop, n, by, false);
    if (by < 0 && (start.type == J_UNSET || start.type == J_NONE)) from = n - 1;
    if (by < 0 && (stop.type == J_UNSET || stop.type == J_NONE)) to = -1;
    if (v.type == J_STR && by == 1) {
        jwork(c, (uint64_t)v.u.s->len * JINJA_LOOK);
        size_t a = jchar_at(v.u.s, (size_t)from), b = jchar_at(v.u.s, (size_t)RAD_MAX(to, from));
        return jsub(c, v.u.s, a, b - a);
    }
    const jlist *items = jiterate(c, v);
    jval list = jlist_new(c, v.type == J_LIST && v.u.l->kind == TUPLE ? TUPLE : LIST, 0);
    jbuf text = {.c = c};
    for (int64_t i = from; by > 0 ? i < to : i > to;) {
        jsteps(c, 1);
        if (v.type == J_STR)
            jbuf_show(&text, items->items[i]);
        else
            jlist_push(c, list.u.l, items->items[i]);
        if (__builtin_add_overflow(i, by, &i)) break;
    }
    if (v.type == J_LIST && v.u.l->kind == RANGE) {
        jlist *r = list.u.l;
        r->kind = RANGE;
        if (__builtin_mul_overflow(v.u.l->step, by, &r->step) ||
            __builtin_mul_overflow(v.u.l->step, from, &r->start) ||
            __builtin_mul_overflow(v.u.l->step, to, &r->stop) ||
            __builtin_add_overflow(v.u.l->start, r->start, &r->start) ||
            __builtin_add_overflow(v.u.l->start, r->stop, &r->stop))
            jinja_fail(c, RAD_E_LIMIT, "an integer does not fit 64 bits");
    }
    return v.type == J_STR ? jlike(c, v.u.s, jbuf_value(&text)) : list;
}

/* ---- calls ---- */

static void add_named(jctx *c, jargs *a, uint32_t *cap, const jstr *name, jval v)
{
    jwork(c, (uint64_t)a->num_named * (JINJA_LOOK + name->len));
    for (uint32_t i = 0; i < a->num_named; i++)
        if (a->names[i]->len == name->len && memcmp(a->names[i]->p, name->p, name->len) == 0)
            jinja_fail(c, RAD_E_INVAL, "the argument '%.*s' is given twice",
                       (int)RAD_MIN(name->len, 60u), name->p);
    if (a->num_named == *cap) {
        *cap = *cap ? *cap * 2 : 4;
        const jstr **names = jalloc(c, *cap, sizeof *names);
        jval *named = jalloc(c, *cap, sizeof *named);
        for (uint32_t i = 0; i < a->num_named; i++) {
            names[i] = a->names[i];
            named[i] = a->named[i];
        }
        a->names = names;
        a->named = named;
    }
    jsteps(c, 1);
    a->names[a->num_named] = name;
    ((jval *)(uintptr_t)a->named)[a->num_named++] = v;
}

void jeval_args(jctx *c, const jnode *list, jargs *out)
{
    jlist *pos = jlist_new(c, LIST, 0).u.l;
    uint32_t cap = 0;
    *out = (jargs){0};
    for (const jnode *n = list; n; n = n->next) {
        jval v =
            jeval(c, n->kind == N_KEYWORD || n->kind == N_STAR || n->kind == N_STARSTAR ? n->a : n);
        if (n->kind == N_KEYWORD) {
            add_named(c, out, &cap, n->name, v);
        } else if (n->kind == N_STAR) {
            const jlist *more = jiterate(c, v);
            for (uint32_t i = 0; i < more->len; i++)
                jlist_push(c, pos, more->items[i]);
        } else if (n->kind == N_STARSTAR) {
            if (v.type != J_DICT) jinja_fail(c, RAD_E_INVAL, "** wants a dict");
            for (uint32_t i = 0; i < v.u.d->len; i++)
                add_named(c, out, &cap, jwant_str(c, v.u.d->keys[i], "**"), v.u.d->values[i]);
        } else {
            jlist_push(c, pos, v);
        }
    }
    out->pos = pos->items;
    out->num_pos = pos->len;
}

static bool named(const jstr *name, const char *p, size_t len)
{
    return name->len == len && memcmp(name->p, p, len) == 0;
}

void jbind(jctx *c, const char *who, const char *spec, const jargs *args, jval *out)
{
    uint32_t n = 0, used = 0;
    for (const char *at = spec; *at; n++) {
        jwork(c, JINJA_LOOK * (1 + (uint64_t)args->num_named));
        size_t len = strcspn(at, ",?");
        bool optional = at[len] == '?';
        out[n] = (jval){.type = J_UNSET};
        if (n < args->num_pos) out[n] = args->pos[n];
        for (uint32_t i = 0; i < args->num_named; i++) {
            if (!named(args->names[i], at, len)) continue;
            if (out[n].type != J_UNSET)
                jinja_fail(c, RAD_E_INVAL, "%s: '%.*s' is given twice", who, (int)len, at);
            out[n] = args->named[i];
            used++;
        }
        if (out[n].type == J_UNSET && !optional)
            jinja_fail(c, RAD_E_INVAL, "%s wants the argument '%.*s'", who, (int)len, at);
        at += len + optional;
        at += *at == ',';
    }
    if (args->num_pos > n) jinja_fail(c, RAD_E_INVAL, "%s takes at most %u arguments", who, n);
    if (used < args->num_named) {
        for (uint32_t i = 0; i < args->num_named; i++) {
            bool known = false;
            jwork(c, JINJA_MAX_PARAMS * JINJA_LOOK);
            for (const char *at = spec; *at && !known;) {
                size_t len = strcspn(at, ",?");
                known = named(args->names[i], at, len);
                at += len + (at[len] == '?');
                at += *at == ',';
            }
            if (!known)
                jinja_fail(c, RAD_E_INVAL, "%s has no argument '%.*s'", who,
                           (int)RAD_MIN(args->names[i]->len, 60u), args->names[i]->p);
        }
    }
}

jval jcall_function(jctx *c, const jfunction *f, jval self, const jargs *args)
{
    jval bound[JINJA_MAX_PARAMS];
    jsteps(c, 1);
    if (f->spec) jbind(c, f->name, f->spec, args, bound);
    return f->call(c, self, bound, args);
}

jval jcall(jctx *c, jval callee, const jargs *args)
{
    switch ((jtype)callee.type) {
    case J_MACRO: return jmacro_call(c, callee.u.macro, args, NULL);
    case J_FUNCTION: return jcall_function(c, callee.u.function, jnone(), args);
    case J_METHOD: return jcall_function(c, callee.u.method->function, callee.u.method->self, args);
    case J_LOOP: jinja_fail(c, RAD_E_UNSUPPORTED, "recursive loops are not supported");
    case J_UNDEFINED: fail_undefined(c, callee);
    default: jinja_fail(c, RAD_E_INVAL, "a %s cannot be called", jtype_name(callee));
    }
}

/* `caller`: what a call block brings, or NULL. */
jval jcall_node(jctx *c, const jnode *call, const jval *caller)
{
    jargs args;
    jval callee = jeval(c, call->a);
    jeval_args(c, call->list, &args);
    c->line = call->line;
    if (callee.type == J_MACRO) return jmacro_call(c, callee.u.macro, &args, caller);
    if (caller)
        jinja_fail(c, RAD_E_INVAL, "a call block calls a macro, not a %s", jtype_name(callee));
    return jcall(c, callee, &args);
}

/* As in Jinja, where a branch that is not taken may name what is not there. */
static _Noreturn void fail_unknown(jctx *c, const char *what, const jnode *n)
{
    c->line = n->line;
    jinja_fail(c, RAD_E_UNSUPPORTED, "there is no %s '%.*s'", what, (int)RAD_MIN(n->name->len, 60u),
               n->name->p);
}

jval jfilter_node(jctx *c, const jnode *n, jval body)
{
    jval self;
    jargs args = {0};
    if (!n->function) fail_unknown(c, "filter", n);
    jenter(c);
    if (n->a->kind == N_BODY)
        self = body;
    else if (n->a->kind == N_FILTER)
        self = jfilter_node(c, n->a, body);
    else
        self = jeval(c, n->a);
    if (n->list) jeval_args(c, n->list, &args);
    c->line = n->line;
    self = jcall_function(c, n->function, self, &args);
    jleave(c);
    return self;
}

/* ---- expressions ---- */

static jval eval_name(jctx *c, const jnode *n)
{
    const jval *found = jscope_find(c, c->scope, n->id);
    if (found) return *found;
    const jfunction *f = jinja_find_global(n->name);
    if (f) return (jval){.type = J_FUNCTION, .u.function = f};
    return missing(c, n->name->p, n->name->len, NULL);
}

static bool compare(jctx *c, uint16_t op, jval a, jval b)
{
    switch (op) {
    case JOP('=', '='): return jequal(c, a, b);
    case JOP('!', '='): return !jequal(c, a, b);
    case JOP('i', 0): return jcontains(c, a, b);
    case JOP('n', 0): return !jcontains(c, a, b);
    default: break;
    }
    const char name[3] = {(char)(op & 0xff), (char)(op >> 8), 0};
    int order = jcompare(c, a, b, name);
    if (order == 2) return false;
    if (op == JOP('<', 0)) return order < 0;
    if (op == JOP('>', 0)) return order > 0;
    return op == JOP('<', '=') ? order <= 0 : order >= 0;
}

static jval eval_compare(jctx *c, const jnode *n)
{
    jval left = jeval(c, n->a);
    for (const jnode *o = n->list; o; o = o->next) {
        jval right = jeval(c, o->a);
        c->line = o->line;
        if (!compare(c, o->op, left, right)) return jbool(false);
        left = right;
    }
    return jbool(true);
}

static jval eval_list(jctx *c, const jnode *n, jlist_kind kind)
{
    jval list = jlist_new(c, kind, 0);
    for (const jnode *item = n->list; item; item = item->next)
        jlist_push(c, list.u.l, jeval(c, item));
    return list;
}

static jval eval_dict(jctx *c, const jnode *n)
{
    jval dict = jdict_new(c, J_DICT);
    for (const jnode *key = n->list; key; key = key->next->next) {
        jval k = jeval(c, key);
        jdict_set(c, dict.u.d, k, jeval(c, key->next));
    }
    return dict;
}

static jval eval_item(jctx *c, const jnode *n)
{
    jval v = jeval(c, n->a), none = {.type = J_UNSET};
    if (n->b->kind != N_SLICE) {
        jval key = jeval(c, n->b);
        c->line = n->line;
        return jitem(c, v, key);
    }
    const jnode *s = n->b;
    jval start = s->a ? jeval(c, s->a) : none, stop = s->b ? jeval(c, s->b) : none;
    jval step = s->c ? jeval(c, s->c) : none;
    c->line = n->line;
    return jslice(c, v, start, stop, step);
}

static jval eval_concat(jctx *c, const jnode *n)
{
    jbuf b = {.c = c};
    for (const jnode *part = n->list; part; part = part->next)
        jbuf_show(&b, jeval(c, part));
    return jbuf_value(&b);
}

static jval eval_test(jctx *c, const jnode *n)
{
    jargs args = {0};
    if (!n->function) fail_unknown(c, "test", n);
    jval self = jeval(c, n->a);
    if (n->list) jeval_args(c, n->list, &args);
    c->line = n->line;
    return jcall_function(c, n->function, self, &args);
}

static jval eval_positive(jctx *c, jval v)
{
    if (jis_int(v)) return jint(jas_int(v));
    if (v.type != J_FLOAT)
        jinja_fail(c, RAD_E_INVAL, "'+' does not take %s",
                   v.type == J_UNDEFINED ? v.u.hint : jtype_name(v));
    return v;
}

static jval eval(jctx *c, const jnode *n)
{
    jval a, b;
    switch ((jkind)n->kind) {
    case N_CONST: return n->value;
    case N_NAME: return eval_name(c, n);
    case N_TUPLE: return eval_list(c, n, TUPLE);
    case N_LIST: return eval_list(c, n, LIST);
    case N_DICT: return eval_dict(c, n);
    case N_GETATTR:
        a = jeval(c, n->a);
        c->line = n->line;
        return jattribute(c, a, n->name);
    case N_GETITEM: return eval_item(c, n);
    case N_CALL: return jcall_node(c, n, NULL);
    case N_FILTER: return jfilter_node(c, n, jnone());
    case N_TEST: return eval_test(c, n);
    case N_NOT: return jbool(!jtrue(jeval(c, n->a)));
    case N_NEG:
        a = jeval(c, n->a);
        c->line = n->line;
        return jnegate(c, a);
    case N_POS: return eval_positive(c, jeval(c, n->a));
    case N_AND: a = jeval(c, n->a); return jtrue(a) ? jeval(c, n->b) : a;
    case N_OR: a = jeval(c, n->a); return jtrue(a) ? a : jeval(c, n->b);
    case N_COND:
        if (jtrue(jeval(c, n->b))) return jeval(c, n->a);
        return n->c ? jeval(c, n->c) : jundefined("an if without else");
    case N_COMPARE: return eval_compare(c, n);
    case N_CONCAT: return eval_concat(c, n);
    case N_BINARY:
        a = jeval(c, n->a);
        b = jeval(c, n->b);
        c->line = n->line;
        return jbinary(c, (joperator)n->op, a, b);
    default: jinja_fail(c, RAD_E_UNSUPPORTED, "an expression of kind %d", n->kind);
    }
}

jval jeval(jctx *c, const jnode *n)
{
    jenter(c);
    c->line = n->line;
    jval v = eval(c, n);
    jleave(c);
    return v;
}
