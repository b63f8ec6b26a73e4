/* jinja_parse_tokens.c - what statements (jinja_parse.c) and expressions (jinja_parse_expr.c) are
 * parsed with: the token at hand, what was expected instead of it, and new nodes.
 *
 * The last token is a T_END, which nothing skips: so p->at, and what stands behind any other token,
 * may be looked at without a bound. */
#include "text/jinja_ast.h"

/* ---- tokens ---- */

bool jtoken_is(const jparser *p, const char *name)
{
    const jtoken *t = p->at;
    size_t len = strlen(name);
    return t->type == T_NAME && t->s->len == len && memcmp(t->s->p, name, len) == 0;
}

bool jtoken_op(const jparser *p, uint16_t op)
{
    return p->at->type == T_OP && p->at->op == op;
}

bool jskip_op(jparser *p, uint16_t op)
{
    bool is = jtoken_op(p, op);
    p->at += is;
    return is;
}

bool jskip_name(jparser *p, const char *name)
{
    bool is = jtoken_is(p, name);
    p->at += is;
    return is;
}

_Noreturn void junexpected(jparser *p, const char *wanted)
{
    const jtoken *t = p->at;
    static const char *const names[] = {
        "the end of the template", "text", "{{", "}}", "{%", "%}", "", "a string", "a number"};
    p->c->line = t->line;
    char op[3] = {(char)(t->op & 0xff), (char)(t->op >> 8), 0};
    if (t->type == T_NAME)
        jinja_fail(p->c, RAD_E_FORMAT, "%s expected, not '%.*s'", wanted,
                   (int)RAD_MIN(t->s->len, 60u), t->s->p);
    jinja_fail(p->c, RAD_E_FORMAT, "%s expected, not %s%s%s", wanted, t->type == T_OP ? "'" : "",
               t->type == T_OP ? op : names[t->type], t->type == T_OP ? "'" : "");
}

void jexpect_op(jparser *p, uint16_t op)
{
    char wanted[6] = {'\'', (char)(op & 0xff), '\'', 0};
    if (!jskip_op(p, op)) junexpected(p, wanted);
}

const jstr *jexpect_name(jparser *p)
{
    if (p->at->type != T_NAME) junexpected(p, "a name");
    return (p->at++)->s;
}

/* ---- nodes ---- */

jnode *jnode_new(jparser *p, jkind kind)
{
    jnode *n = jalloc(p->c, 1, sizeof *n);
    n->kind = (uint8_t)kind;
    n->line = p->at->line;
    return n;
}

jnode *jnode_name(jparser *p, const jstr *name)
{
    jnode *n = jnode_new(p, N_NAME);
    n->name = name;
    n->id = jnames_id(p->c, p->names, name->p, name->len);
    return n;
}

jnode *jnode_with(jparser *p, jkind kind, uint16_t op, jnode *a)
{
    jnode *n = jnode_new(p, kind);
    n->op = op;
    n->a = a;
    return n;
}
