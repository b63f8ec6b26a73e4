/* jinja_exec.c - statements: what they write, and the scopes they open.
 *
 * A loop's round, a with, a macro and a captured block have scopes of their own, an if has
 * not: so a set inside a loop is gone after its round, as in Jinja. A macro sees the scopes
 * around its definition, as they are when it is called. */
#include "text/jinja_ast.h"

typedef struct jloop {
    jctx *c;
    const jnode *node;
    jscope *outer;
    jlist *items; /* from here on: items[at..] */
    uint32_t at;
    bool filtered; /* node->c decides about each */
    bool has_next, has_previous;
    jval next, current, previous;
    int64_t index0;
    uint32_t depth0;
    jval changed;
    struct jloop *around;
} jloop;

static jscope *open_scope(jctx *c, jscope *parent)
{
    jscope *s = jalloc(c, 1, sizeof *s);
    s->parent = parent;
    return s;
}

void jset(jctx *c, jscope *s, uint32_t id, jval v)
{
    jbinding *b = s->first;
    uint32_t passed = 0;
    for (; b && b->id != id; b = b->next)
        passed++;
    jwork(c, (uint64_t)passed * JINJA_LOOK);
    if (!b) {
        b = jalloc(c, 1, sizeof *b);
        b->id = id;
        b->next = s->first;
        s->first = b;
    }
    b->value = v;
}

const jval *jscope_find(jctx *c, const jscope *s, uint32_t id)
{
    uint32_t passed = 0; /* paid for: a template may set thousands of names */
    const jbinding *b = NULL;
    for (; s && !b; s = s->parent)
        for (b = s->first; b && b->id != id; b = b->next)
            passed++;
    jwork(c, (uint64_t)passed * JINJA_LOOK);
    return b ? &b->value : NULL;
}

static void assign(jctx *c, const jnode *target, jval v)
{
    c->line = target->line;
    if (target->kind == N_NAME) {
        jset(c, c->scope, target->id, v);
        return;
    }
    if (target->kind == N_NSREF) {
        const jval *ns = jscope_find(c, c->scope, target->id);
        if (!ns || ns->type != J_NAMESPACE)
            jinja_fail(c, RAD_E_INVAL, "only a namespace's attributes can be set");
        jdict_set(c, ns->u.d, (jval){.type = J_STR, .u.s = target->name}, v);
        return;
    }
    const jlist *parts = jiterate(c, v);
    uint32_t i = 0;
    for (const jnode *part = target->list; part; part = part->next, i++) {
        if (i == parts->len) jinja_fail(c, RAD_E_INVAL, "too few values to unpack: %u", i);
        jval item = parts->items[i];
        assign(c, part, item);
    }
    c->line = target->line;
    if (i < parts->len) jinja_fail(c, RAD_E_INVAL, "too many values to unpack: %u", parts->len);
}

/* ---- loops ---- */

static bool passes(jloop *l, jval item)
{
    jctx *c = l->c;
    jscope *here = c->scope;
    c->scope = open_scope(c, l->outer);
    assign(c, l->node->a, item);
    bool yes = jtrue(jeval(c, l->node->c));
    c->scope = here;
    return yes;
}

/* The next item that passes, without going there. */
static bool peek(jloop *l)
{
    while (!l->has_next && l->at < l->items->len) {
        l->next = l->items->items[l->at++];
        l->has_next = !l->filtered || passes(l, l->next);
    }
    return l->has_next;
}

static bool advance(jloop *l)
{
    if (!peek(l)) return false;
    l->has_previous = l->index0 >= 0;
    l->previous = l->current;
    l->current = l->next;
    l->has_next = false;
    l->index0++;
    return true;
}

static int64_t loop_length(jloop *l)
{
    if (l->filtered) { /* ask about all that is left, now */
        jlist *rest = jlist_new(l->c, LIST, 0).u.l;
        uint32_t before = (uint32_t)l->index0 + 1 + l->has_next;
        while (l->at < l->items->len) {
            jval item = l->items->items[l->at++];
            if (passes(l, item)) jlist_push(l->c, rest, item);
        }
        l->items = rest;
        l->at = 0;
        l->filtered = false;
        return (int64_t)before + rest->len;
    }
    return l->index0 + 1 + l->has_next + (l->items->len - l->at);
}

static jval loop_cycle(jctx *c, jval self, const jval *args, const jargs *all)
{
    (void)args;
    if (!all->num_pos) jinja_fail(c, RAD_E_INVAL, "loop.cycle wants something to cycle through");
    return all->pos[self.u.loop->index0 % all->num_pos];
}

static jval loop_changed(jctx *c, jval self, const jval *args, const jargs *all)
{
    (void)args;
    jval now = jlist_new(c, TUPLE, all->num_pos);
    for (uint32_t i = 0; i < all->num_pos; i++)
        jlist_push(c, now.u.l, all->pos[i]);
    jloop *l = self.u.loop;
    bool changed = l->changed.type == J_UNSET || !jequal(c, l->changed, now);
    if (changed) l->changed = now;
    return jbool(changed);
}

jval jloop_attribute(jctx *c, jloop *l, const char *name, size_t len)
{
    static const jfunction methods[] = {{"changed", loop_changed, NULL},
                                        {"cycle", loop_cycle, NULL}};
    const jfunction *method = jfind(methods, RAD_COUNT(methods), name, len);
    if (method) {
        jmethod *m = jalloc(c, 1, sizeof *m);
        *m = (jmethod){.self = {.type = J_LOOP, .u.loop = l}, .function = method};
        return (jval){.type = J_METHOD, .u.method = m};
    }
    const jstr s = {.p = name, .len = (uint32_t)len};
#define IS(word) (s.len == sizeof(word) - 1 && memcmp(s.p, word, sizeof(word) - 1) == 0)
    if (IS("index0")) return jint(l->index0);
    if (IS("index")) return jint(l->index0 + 1);
    if (IS("first")) return jbool(l->index0 == 0);
    if (IS("last")) return jbool(!peek(l));
    if (IS("length")) return jint(loop_length(l));
    if (IS("revindex")) return jint(loop_length(l) - l->index0);
    if (IS("revindex0")) return jint(loop_length(l) - l->index0 - 1);
    if (IS("depth0")) return jint(l->depth0);
    if (IS("depth")) return jint(l->depth0 + 1);
    if (IS("previtem"))
        return l->has_previous ? l->previous : jundefined("there is no previtem: it");
    if (IS("nextitem")) return peek(l) ? l->next : jundefined("there is no nextitem: it");
#undef IS
    return (jval){.type = J_UNSET};
}

static jflow exec_for(jctx *c, const jnode *n, jbuf *out)
{
    jscope *outer = c->scope;
    jloop *l = jalloc(c, 1, sizeof *l);
    *l = (jloop){.c = c,
                 .node = n,
                 .outer = outer,
                 .filtered = n->c != NULL,
                 .index0 = -1,
                 .changed = {.type = J_UNSET}};
    l->items = jiterate(c, jeval(c, n->b));
    bool broken = false;
    while (!broken && advance(l)) {
        c->scope = open_scope(c, outer);
        jset(c, c->scope, ID_LOOP, (jval){.type = J_LOOP, .u.loop = l});
        assign(c, n->a, l->current);
        broken = jexec(c, n->list, out) == FLOW_BREAK;
    }
    c->scope = outer;
    if (l->index0 >= 0 || !n->other) return FLOW_NEXT;
    c->scope = open_scope(c, outer);
    jflow flow = jexec(c, n->other, out);
    c->scope = outer;
    return flow;
}

/* ---- macros ---- */

static void bind_parameters(jctx *c, const jmacro *m, const jargs *args, jscope *scope)
{
    uint32_t i = 0, used = 0;
    const jstr *who = m->node->name;
    for (const jnode *p = m->node->other; p; p = p->next, i++) {
        jval v = {.type = J_UNSET};
        jwork(c, (1 + (uint64_t)args->num_named) * JINJA_LOOK);
        if (i < args->num_pos) v = args->pos[i];
        for (uint32_t k = 0; k < args->num_named; k++) {
            if (args->names[k]->len != p->name->len ||
                memcmp(args->names[k]->p, p->name->p, p->name->len) != 0)
                continue;
            if (v.type != J_UNSET)
                jinja_fail(c, RAD_E_INVAL, "macro %.*s: '%.*s' is given twice", (int)who->len,
                           who->p, (int)p->name->len, p->name->p);
            v = args->named[k];
            used++;
        }
        if (v.type == J_UNSET)
            v = p->b ? jeval(c, p->b) : jundefined("a parameter that was not given");
        jset(c, scope, p->id, v);
    }
    jval rest = jlist_new(c, TUPLE, 0), more = jdict_new(c, J_DICT);
    for (uint32_t k = i; k < args->num_pos; k++)
        jlist_push(c, rest.u.l, args->pos[k]);
    for (uint32_t k = 0; k < args->num_named && used < args->num_named; k++) {
        bool known = false;
        for (const jnode *p = m->node->other; p && !known; p = p->next)
            known = args->names[k]->len == p->name->len &&
                    memcmp(args->names[k]->p, p->name->p, p->name->len) == 0;
        jwork(c, (uint64_t)i * JINJA_LOOK);
        if (!known)
            jdict_append(c, more.u.d, (jval){.type = J_STR, .u.s = args->names[k]}, args->named[k]);
    }
    if (rest.u.l->len && !(m->node->op & JMACRO_VARARGS))
        jinja_fail(c, RAD_E_INVAL, "macro %.*s takes at most %u arguments", (int)who->len, who->p,
                   i);
    if (more.u.d->len && !(m->node->op & JMACRO_KWARGS))
        jinja_fail(c, RAD_E_INVAL, "macro %.*s has no parameter '%.*s'", (int)who->len, who->p,
                   (int)RAD_MIN(more.u.d->keys[0].u.s->len, 60u), more.u.d->keys[0].u.s->p);
    if (m->node->op & JMACRO_VARARGS) jset(c, scope, ID_VARARGS, rest);
    if (m->node->op & JMACRO_KWARGS) jset(c, scope, ID_KWARGS, more);
}

jval jmacro_call(jctx *c, jmacro *m, const jargs *args, const jval *caller)
{
    jbuf out = {.c = c};
    jscope *here = c->scope;
    uint32_t line = c->line;
    if (caller && !(m->node->op & JMACRO_CALLER))
        jinja_fail(c, RAD_E_INVAL, "macro %.*s does not use its caller", (int)m->node->name->len,
                   m->node->name->p);
    jenter(c);
    c->scope = open_scope(c, m->scope);
    bind_parameters(c, m, args, c->scope);
    if (m->node->op & JMACRO_CALLER)
        jset(c, c->scope, ID_CALLER, caller ? *caller : jundefined("the caller"));
    jexec(c, m->node->list, &out);
    c->scope = here;
    c->line = line;
    jleave(c);
    return jbuf_value(&out);
}

static jval define(jctx *c, const jnode *n)
{
    jmacro *m = jalloc(c, 1, sizeof *m);
    *m = (jmacro){.node = n, .scope = c->scope};
    return (jval){.type = J_MACRO, .u.macro = m};
}

/* ---- the rest ---- */

static jflow exec_body(jctx *c, const jnode *list, jbuf *out)
{
    jscope *outer = c->scope;
    c->scope = open_scope(c, outer);
    jflow flow = jexec(c, list, out);
    c->scope = outer;
    return flow;
}

/* set x %}...{% endset, and filter blocks: the text is caught, and lost by a break. */
static jflow exec_captured(jctx *c, const jnode *n, jbuf *out)
{
    jbuf text = {.c = c};
    jflow flow = exec_body(c, n->list, &text);
    if (flow != FLOW_NEXT) return flow;
    jval v = jbuf_value(&text);
    if (n->b) v = jfilter_node(c, n->b, v);
    if (n->kind == N_SET_BLOCK)
        assign(c, n->a, v);
    else
        jbuf_show(out, v);
    return FLOW_NEXT;
}

static jflow exec_with(jctx *c, const jnode *n, jbuf *out)
{
    jscope *outer = c->scope, *inner = open_scope(c, outer);
    for (const jnode *set = n->other; set; set = set->next) {
        jval v = jeval(c, set->b); /* sees what is outside only */
        c->scope = inner;
        assign(c, set->a, v);
        c->scope = outer;
    }
    c->scope = inner;
    jflow flow = jexec(c, n->list, out);
    c->scope = outer;
    return flow;
}

static jflow exec_if(jctx *c, const jnode *n, jbuf *out)
{
    for (;;) {
        if (jtrue(jeval(c, n->a))) return jexec(c, n->list, out);
        const jnode *other = n->other;
        if (!other || other->kind != N_IF || other->next) return jexec(c, other, out);
        n = other; /* a long chain of elif costs no depth */
    }
}

static jflow exec(jctx *c, const jnode *n, jbuf *out)
{
    switch ((jkind)n->kind) {
    case N_TEXT: jbuf_str(out, n->value.u.s); return FLOW_NEXT;
    case N_PRINT: jbuf_show(out, jeval(c, n->a)); return FLOW_NEXT;
    case N_IF: return exec_if(c, n, out);
    case N_FOR: return exec_for(c, n, out);
    case N_SET: assign(c, n->a, jeval(c, n->b)); return FLOW_NEXT;
    case N_SET_BLOCK:
    case N_FILTER_BLOCK: return exec_captured(c, n, out);
    case N_MACRO: jset(c, c->scope, n->id, define(c, n)); return FLOW_NEXT;
    case N_CALL_BLOCK: {
        jval caller = define(c, n->b);
        jbuf_show(out, jcall_node(c, n->a, &caller));
        return FLOW_NEXT;
    }
    case N_WITH: return exec_with(c, n, out);
    case N_BREAK: return FLOW_BREAK;
    case N_CONTINUE: return FLOW_CONTINUE;
    default: jinja_fail(c, RAD_E_UNSUPPORTED, "a statement of kind %d", n->kind);
    }
}

jflow jexec(jctx *c, const jnode *first, jbuf *out)
{
    jflow flow = FLOW_NEXT;
    jenter(c);
    for (const jnode *n = first; n && flow == FLOW_NEXT; n = n->next) {
        jsteps(c, 1);
        c->line = n->line;
        flow = exec(c, n, out);
    }
    jleave(c);
    return flow;
}
