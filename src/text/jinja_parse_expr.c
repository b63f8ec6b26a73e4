/* jinja_parse_expr.c - expressions, by recursive descent, one function per level:
 *
 *     if-else < or < and < not < comparisons < + - < ~ < * / // % < ** < unary < postfix
 *
 * Filters and tests bind to the operand before them, also to a negative number: -1|abs is 1.
 * Filters and tests are looked up here; an unknown one fails where it is reached, and the first
 * is noted, for a warning at start. */
#include "text/jinja_ast.h"

/* ---- primaries ---- */

static jnode *constant(jparser *p, jval value)
{
    jnode *n = jnode_new(p, N_CONST);
    n->value = value;
    return n;
}

static jnode *parse_list(jparser *p, jkind kind, uint16_t end)
{
    jnode *n = jnode_new(p, kind), **last = &n->list;
    p->at++;
    while (!jtoken_op(p, end)) {
        if (n->list) jexpect_op(p, JOP(',', 0));
        if (jtoken_op(p, end)) break;
        *last = jparse_expression(p, true);
        last = &(*last)->next;
        if (kind != N_DICT) continue;
        jexpect_op(p, JOP(':', 0));
        *last = jparse_expression(p, true);
        last = &(*last)->next;
    }
    p->at++;
    return n;
}

static jnode *parse_strings(jparser *p)
{
    jbuf b = {.c = p->c};
    jnode *n = jnode_new(p, N_CONST);
    while (p->at->type == T_STRING)
        jbuf_str(&b, (p->at++)->s);
    n->value = jbuf_value(&b);
    return n;
}

static jnode *parse_name(jparser *p)
{
    if (jtoken_is(p, "true") || jtoken_is(p, "True") || jtoken_is(p, "false") ||
        jtoken_is(p, "False")) {
        jnode *n = constant(p, jbool(jtoken_is(p, "true") || jtoken_is(p, "True")));
        p->at++;
        return n;
    }
    if (jtoken_is(p, "none") || jtoken_is(p, "None")) {
        jnode *n = constant(p, jnone());
        p->at++;
        return n;
    }
    jnode *n = jnode_name(p, p->at->s);
    p->at++;
    if (n->id == ID_CALLER) p->macro_flags |= JMACRO_CALLER;
    if (n->id == ID_VARARGS) p->macro_flags |= JMACRO_VARARGS;
    if (n->id == ID_KWARGS) p->macro_flags |= JMACRO_KWARGS;
    return n;
}

jnode *jparse_primary(jparser *p)
{
    switch (p->at->type) {
    case T_NAME: return parse_name(p);
    case T_STRING: return parse_strings(p);
    case T_NUMBER: {
        jnode *n = constant(p, p->at->number);
        p->at++;
        return n;
    }
    default: break;
    }
    if (jtoken_op(p, JOP('[', 0))) return parse_list(p, N_LIST, JOP(']', 0));
    if (jtoken_op(p, JOP('{', 0))) return parse_list(p, N_DICT, JOP('}', 0));
    if (!jskip_op(p, JOP('(', 0))) junexpected(p, "an expression");
    jnode *n = jparse_tuple(p, true, true);
    jexpect_op(p, JOP(')', 0));
    return n;
}

/* ---- postfix: .name [index] (arguments) |filter, is test ---- */

static jnode *parse_subscribed(jparser *p)
{
    jnode *first = NULL, *slice;
    if (!jtoken_op(p, JOP(':', 0))) first = jparse_expression(p, true);
    if (!jskip_op(p, JOP(':', 0))) return first;
    slice = jnode_with(p, N_SLICE, 0, first);
    if (!jtoken_op(p, JOP(':', 0)) && !jtoken_op(p, JOP(']', 0)) && !jtoken_op(p, JOP(',', 0)))
        slice->b = jparse_expression(p, true);
    if (jskip_op(p, JOP(':', 0)) && !jtoken_op(p, JOP(']', 0)) && !jtoken_op(p, JOP(',', 0)))
        slice->c = jparse_expression(p, true);
    return slice;
}

static jnode *parse_subscript(jparser *p, jnode *of)
{
    if (jskip_op(p, JOP('.', 0))) {
        if (p->at->type == T_NAME) {
            jnode *n = jnode_with(p, N_GETATTR, 0, of);
            n->name = (p->at++)->s;
            return n;
        }
        if (p->at->type != T_NUMBER || p->at->number.type != J_INT)
            junexpected(p, "a name or a number");
        jnode *n = jnode_with(p, N_GETITEM, 0, of);
        n->b = jparse_primary(p);
        return n;
    }
    jnode *n = jnode_with(p, N_GETITEM, 0, of);
    p->at++;
    n->b = parse_subscribed(p);
    if (jtoken_op(p, JOP(',', 0))) {
        p->c->line = p->at->line;
        jinja_fail(p->c, RAD_E_UNSUPPORTED, "an index of several parts is not supported");
    }
    jexpect_op(p, JOP(']', 0));
    return n;
}

static jnode *parse_argument(jparser *p)
{
    jnode *n = NULL;
    if (jtoken_op(p, JOP('*', 0)) || jtoken_op(p, JOP('*', '*'))) {
        n = jnode_new(p, jtoken_op(p, JOP('*', 0)) ? N_STAR : N_STARSTAR);
        p->at++;
        n->a = jparse_expression(p, true);
        return n;
    }
    if (p->at->type == T_NAME && p->at[1].type == T_OP && p->at[1].op == JOP('=', 0)) {
        n = jnode_new(p, N_KEYWORD);
        n->name = p->at->s;
        p->at += 2;
        n->a = jparse_expression(p, true);
        return n;
    }
    return jparse_expression(p, true);
}

/* What may stand behind what: expressions, then keywords, * and ** in this order. */
static uint32_t argument_rank(const jnode *n)
{
    return n->kind == N_STARSTAR ? 3 : n->kind == N_STAR ? 2 : n->kind == N_KEYWORD ? 1 : 0;
}

static jnode *parse_arguments(jparser *p)
{
    jnode *list = NULL, **last = &list;
    uint32_t rank = 0;
    jexpect_op(p, JOP('(', 0));
    while (!jtoken_op(p, JOP(')', 0))) {
        if (list) jexpect_op(p, JOP(',', 0));
        if (list && jtoken_op(p, JOP(')', 0))) break;
        jnode *n = *last = parse_argument(p);
        uint32_t now = argument_rank(n);
        if (rank == 3 || (now == 0 && rank > 0) || (now == 2 && rank == 2)) {
            p->c->line = p->at->line;
            jinja_fail(p->c, RAD_E_FORMAT, "the arguments of a call are in the wrong order");
        }
        rank = RAD_MAX(rank, now);
        last = &n->next;
    }
    p->at++;
    return list;
}

static jnode *parse_call(jparser *p, jnode *callee)
{
    jnode *n = jnode_with(p, N_CALL, 0, callee);
    n->list = parse_arguments(p);
    return n;
}

static jnode *parse_postfix(jparser *p, jnode *n)
{
    for (;;) {
        if (jtoken_op(p, JOP('.', 0)) || jtoken_op(p, JOP('[', 0)))
            n = parse_subscript(p, n);
        else if (jtoken_op(p, JOP('(', 0)))
            n = parse_call(p, n);
        else
            return n;
    }
}

static void note_unknown(jparser *p, const char *what, const jnode *n)
{
    if (n->function || p->names->unknown) return;
    p->names->unknown = n;
    p->names->unknown_is = what;
}

static jnode *parse_filter(jparser *p, jnode *input)
{
    jnode *n = jnode_with(p, N_FILTER, 0, input);
    n->name = jexpect_name(p);
    n->function = jinja_find_filter(n->name);
    note_unknown(p, "filter", n);
    if (jtoken_op(p, JOP('(', 0))) n->list = parse_arguments(p);
    return n;
}

/* |filter|filter around input; at_name: the first one has no bar. */
jnode *jparse_filters(jparser *p, jnode *input, bool at_name)
{
    if (at_name) input = parse_filter(p, input);
    while (jskip_op(p, JOP('|', 0)))
        input = parse_filter(p, input);
    return input;
}

static bool begins_operand(const jparser *p)
{
    if (p->at->type == T_STRING || p->at->type == T_NUMBER) return true;
    if (jtoken_op(p, JOP('[', 0)) || jtoken_op(p, JOP('{', 0))) return true;
    return p->at->type == T_NAME && !jtoken_is(p, "else") && !jtoken_is(p, "or") &&
           !jtoken_is(p, "and");
}

static jnode *parse_test(jparser *p, jnode *input)
{
    p->at++; /* is */
    bool negated = jskip_name(p, "not");
    jnode *n = jnode_with(p, N_TEST, 0, input);
    n->name = jexpect_name(p);
    n->function = jinja_find_test(n->name);
    note_unknown(p, "test", n);
    if (jtoken_op(p, JOP('(', 0))) {
        n->list = parse_arguments(p);
    } else if (begins_operand(p)) {
        if (jtoken_is(p, "is")) junexpected(p, "something else than a second 'is'");
        n->list = parse_postfix(p, jparse_primary(p));
    }
    return negated ? jnode_with(p, N_NOT, 0, n) : n;
}

static jnode *parse_unary(jparser *p, bool with_filter)
{
    jnode *n;
    jenter(p->c);
    if (jtoken_op(p, JOP('-', 0)) || jtoken_op(p, JOP('+', 0))) {
        n = jnode_new(p, jtoken_op(p, JOP('-', 0)) ? N_NEG : N_POS);
        p->at++;
        n->a = parse_unary(p, false);
    } else {
        n = jparse_primary(p);
    }
    n = parse_postfix(p, n);
    while (with_filter) {
        if (jtoken_op(p, JOP('|', 0)))
            n = jparse_filters(p, n, false);
        else if (jtoken_is(p, "is"))
            n = parse_test(p, n);
        else if (jtoken_op(p, JOP('(', 0)))
            n = parse_call(p, n);
        else
            break;
    }
    jleave(p->c);
    return n;
}

/* ---- operators ---- */

static jnode *parse_pow(jparser *p)
{
    jnode *n = parse_unary(p, true);
    while (jtoken_op(p, JOP('*', '*'))) {
        n = jnode_with(p, N_BINARY, OP_POW, n);
        p->at++;
        n->b = parse_unary(p, true);
    }
    return n;
}

static jnode *parse_product(jparser *p)
{
    jnode *n = parse_pow(p);
    for (;;) {
        uint16_t op;
        if (jtoken_op(p, JOP('*', 0)))
            op = OP_MUL;
        else if (jtoken_op(p, JOP('/', 0)))
            op = OP_DIV;
        else if (jtoken_op(p, JOP('/', '/')))
            op = OP_FLOORDIV;
        else if (jtoken_op(p, JOP('%', 0)))
            op = OP_MOD;
        else
            return n;
        n = jnode_with(p, N_BINARY, op, n);
        p->at++;
        n->b = parse_pow(p);
    }
}

static jnode *parse_concat(jparser *p)
{
    jnode *first = parse_product(p);
    if (!jtoken_op(p, JOP('~', 0))) return first;
    jnode *n = jnode_new(p, N_CONCAT), **last = &n->list;
    for (;;) {
        *last = first;
        last = &first->next;
        if (!jskip_op(p, JOP('~', 0))) return n;
        first = parse_product(p);
    }
}

static jnode *parse_sum(jparser *p)
{
    jnode *n = parse_concat(p);
    while (jtoken_op(p, JOP('+', 0)) || jtoken_op(p, JOP('-', 0))) {
        n = jnode_with(p, N_BINARY, jtoken_op(p, JOP('+', 0)) ? OP_ADD : OP_SUB, n);
        p->at++;
        n->b = parse_concat(p);
    }
    return n;
}

/* The comparison at p->at, skipped; 0: none. */
static uint16_t compare_operator(jparser *p)
{
    static const uint16_t ops[] = {JOP('=', '='), JOP('!', '='), JOP('<', '='),
                                   JOP('>', '='), JOP('<', 0),   JOP('>', 0)};
    for (size_t i = 0; i < RAD_COUNT(ops); i++)
        if (jskip_op(p, ops[i])) return ops[i];
    if (jskip_name(p, "in")) return JOP('i', 0);
    if (!jtoken_is(p, "not")) return 0;
    p->at++;
    if (jskip_name(p, "in")) return JOP('n', 0);
    p->at--;
    return 0;
}

static jnode *parse_compare(jparser *p)
{
    jnode *first = parse_sum(p), *n = NULL, **last = NULL;
    for (uint16_t op; (op = compare_operator(p));) {
        if (!n) {
            n = jnode_with(p, N_COMPARE, 0, first);
            last = &n->list;
        }
        *last = jnode_with(p, N_OPERAND, op, parse_sum(p));
        last = &(*last)->next;
    }
    return n ? n : first;
}

static jnode *parse_not(jparser *p)
{
    if (!jtoken_is(p, "not")) return parse_compare(p);
    jenter(p->c);
    jnode *n = jnode_new(p, N_NOT);
    p->at++;
    n->a = parse_not(p);
    jleave(p->c);
    return n;
}

static jnode *parse_and(jparser *p)
{
    jnode *n = parse_not(p);
    while (jtoken_is(p, "and")) {
        n = jnode_with(p, N_AND, 0, n);
        p->at++;
        n->b = parse_not(p);
    }
    return n;
}

static jnode *parse_or(jparser *p)
{
    jnode *n = parse_and(p);
    while (jtoken_is(p, "or")) {
        n = jnode_with(p, N_OR, 0, n);
        p->at++;
        n->b = parse_and(p);
    }
    return n;
}

jnode *jparse_expression(jparser *p, bool with_condition)
{
    jenter(p->c);
    jnode *n = parse_or(p);
    while (with_condition && jtoken_is(p, "if")) {
        n = jnode_with(p, N_COND, 0, n);
        p->at++;
        n->b = parse_or(p);
        if (jskip_name(p, "else")) n->c = jparse_expression(p, true);
    }
    jleave(p->c);
    return n;
}

static bool tuple_ends(const jparser *p)
{
    return p->at->type == T_VAR_END || p->at->type == T_BLOCK_END || jtoken_op(p, JOP(')', 0)) ||
           jtoken_is(p, "recursive");
}

jnode *jparse_tuple(jparser *p, bool with_condition, bool parentheses)
{
    jnode *tuple = jnode_new(p, N_TUPLE), **last = &tuple->list;
    bool is_tuple = false;
    while (!tuple_ends(p)) {
        *last = jparse_expression(p, with_condition);
        last = &(*last)->next;
        if (!jskip_op(p, JOP(',', 0))) break;
        is_tuple = true;
    }
    if (is_tuple) return tuple;
    if (tuple->list) return tuple->list;
    if (!parentheses) junexpected(p, "an expression");
    return tuple;
}
