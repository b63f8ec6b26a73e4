/* jinja_parse.c - statements, and a whole template.
 *
 * A tag that does not exist here (include, import, block, ...) is refused by its name. break
 * and continue are found to be inside a loop now, so that running needs not look. */
#include "text/jinja_ast.h"

uint32_t jnames_id(jctx *c, jnames *names, const char *p, size_t len)
{
    jsteps(c, names->len / 8); /* every name is compared with all */
    for (uint32_t i = 0; i < names->len; i++)
        if (names->names[i]->len == len && memcmp(names->names[i]->p, p, len) == 0) return i;
    if (names->len == names->cap) {
        uint32_t cap = names->cap ? names->cap * 2 : 32;
        const jstr **more = jalloc(c, cap, sizeof *more);
        if (names->len) memcpy(more, names->names, names->len * sizeof *more);
        names->names = more;
        names->cap = cap;
    }
    jstr *name = jalloc(c, 1, sizeof *name);
    *name = (jstr){.p = p, .len = (uint32_t)len};
    names->names[names->len] = name;
    return names->len++;
}

static void expect_end(jparser *p)
{
    if (p->at->type != T_BLOCK_END) junexpected(p, "%}");
    p->at++;
}

static void expect_word(jparser *p, const char *word)
{
    if (!jtoken_is(p, word)) junexpected(p, word);
    p->at++;
}

static jnode *parse_statement(jparser *p);

/* The tag at p->at, behind its {%, is one of these (separated by spaces). */
static bool at_word(const jparser *p, const char *words)
{
    if (p->at->type != T_NAME) return false;
    const jstr *s = p->at->s;
    for (const char *w = words; *w;) {
        size_t n = strcspn(w, " ");
        if (n == s->len && memcmp(w, s->p, n) == 0) return true;
        w += n + (w[n] == ' ');
    }
    return false;
}

/* Everything up to a tag of `until` (NULL: the end of the template); p->at is then the
 * tag's name. */
static jnode *parse_body(jparser *p, const char *until)
{
    jnode *list = NULL, **last = &list;
    uint32_t line = p->at->line;
    jenter(p->c);
    for (;;) {
        jnode *n = NULL;
        const jtoken *t = p->at;
        if (t->type == T_END) {
            p->c->line = line;
            if (until)
                jinja_fail(p->c, RAD_E_FORMAT, "a block without its %s",
                           strrchr(until, ' ') ? strrchr(until, ' ') + 1 : until);
            break;
        }
        if (t->type == T_DATA) {
            n = jnode_new(p, N_TEXT);
            n->value = (jval){.type = J_STR, .u.s = t->s};
            p->at++;
        } else if (t->type == T_VAR_BEGIN) {
            n = jnode_new(p, N_PRINT);
            p->at++;
            n->a = jparse_tuple(p, true, false);
            if (p->at->type != T_VAR_END) junexpected(p, "}}");
            p->at++;
        } else { /* T_BLOCK_BEGIN: nothing else begins here */
            p->at++;
            if (until && at_word(p, until)) break;
            n = parse_statement(p);
            expect_end(p);
        }
        *last = n;
        last = &n->next;
    }
    jleave(p->c);
    return list;
}

/* ": %} body {% end", an optional colon in front. */
static jnode *parse_block(jparser *p, const char *until)
{
    if (jtoken_op(p, JOP(':', 0))) p->at++;
    expect_end(p);
    return parse_body(p, until);
}

static jnode *parse_whole_block(jparser *p, const char *until)
{
    jnode *body = parse_block(p, until);
    p->at++;
    return body;
}

/* ---- targets ---- */

static jnode *parse_target_name(jparser *p, bool with_namespace)
{
    if (jtoken_op(p, JOP('(', 0)) || jtoken_op(p, JOP('[', 0)))
        junexpected(p, "a name to assign to");
    if (jtoken_is(p, "true") || jtoken_is(p, "false") || jtoken_is(p, "none") ||
        jtoken_is(p, "True") || jtoken_is(p, "False") || jtoken_is(p, "None"))
        junexpected(p, "a name to assign to");
    jnode *n = jnode_name(p, jexpect_name(p));
    if (with_namespace && jtoken_op(p, JOP('.', 0))) {
        p->at++;
        n->kind = N_NSREF;
        n->name = jexpect_name(p);
    }
    return n;
}

static jnode *parse_target(jparser *p, bool with_namespace);

/* A name, or targets in parentheses. */
static jnode *parse_target_part(jparser *p, bool with_namespace)
{
    if (!jtoken_op(p, JOP('(', 0))) return parse_target_name(p, with_namespace);
    jenter(p->c);
    p->at++;
    jnode *n = parse_target(p, with_namespace);
    jexpect_op(p, JOP(')', 0));
    jleave(p->c);
    return n;
}

static jnode *parse_target(jparser *p, bool with_namespace)
{
    jnode *first = parse_target_part(p, with_namespace);
    if (!jtoken_op(p, JOP(',', 0))) return first;
    jnode *tuple = jnode_new(p, N_TUPLE), **last = &tuple->list;
    *last = first;
    last = &first->next;
    while (jtoken_op(p, JOP(',', 0))) {
        p->at++;
        if (p->at->type != T_NAME && !jtoken_op(p, JOP('(', 0))) break; /* a comma at the end */
        if (jtoken_is(p, "in")) break;
        *last = parse_target_part(p, with_namespace);
        last = &(*last)->next;
    }
    return tuple;
}

/* ---- statements ---- */

static jnode *parse_for(jparser *p)
{
    jnode *n = jnode_new(p, N_FOR);
    p->at++;
    n->a = parse_target(p, false);
    expect_word(p, "in");
    n->b = jparse_tuple(p, false, false);
    if (jtoken_is(p, "if")) {
        p->at++;
        n->c = jparse_expression(p, true);
    }
    if (jtoken_is(p, "recursive")) {
        p->c->line = p->at->line;
        jinja_fail(p->c, RAD_E_UNSUPPORTED, "recursive loops are not supported");
    }
    p->loops++;
    n->list = parse_block(p, "else endfor");
    p->loops--;
    bool more = jtoken_is(p, "else");
    p->at++;
    if (more) n->other = parse_whole_block(p, "endfor");
    return n;
}

static jnode *parse_if(jparser *p)
{
    jnode *first = NULL, **place = &first;
    for (;;) {
        jnode *n = *place = jnode_new(p, N_IF);
        p->at++; /* if, elif */
        n->a = jparse_tuple(p, false, false);
        n->list = parse_block(p, "elif else endif");
        place = &n->other;
        if (jtoken_is(p, "elif")) continue;
        bool more = jtoken_is(p, "else");
        p->at++;
        if (more) *place = parse_whole_block(p, "endif");
        return first;
    }
}

static jnode *parse_set(jparser *p)
{
    jnode *n = jnode_new(p, N_SET);
    p->at++;
    n->a = parse_target(p, true);
    if (jtoken_op(p, JOP('=', 0))) {
        p->at++;
        n->b = jparse_tuple(p, true, false);
        return n;
    }
    n->kind = N_SET_BLOCK;
    if (jtoken_op(p, JOP('|', 0))) n->b = jparse_filters(p, jnode_new(p, N_BODY), false);
    n->list = parse_whole_block(p, "endset");
    return n;
}

/* (a, b=1) */
static jnode *parse_parameters(jparser *p)
{
    jnode *list = NULL, **last = &list;
    bool defaults = false;
    jexpect_op(p, JOP('(', 0));
    while (!jtoken_op(p, JOP(')', 0))) {
        if (list) jexpect_op(p, JOP(',', 0));
        jnode *n = *last = parse_target_name(p, false);
        last = &n->next;
        if (jtoken_op(p, JOP('=', 0))) {
            p->at++;
            n->b = jparse_expression(p, true);
            defaults = true;
        } else if (defaults) {
            p->c->line = n->line;
            jinja_fail(p->c, RAD_E_FORMAT, "a parameter without default behind one with");
        }
    }
    p->at++;
    return list;
}

/* The parameters (if any) and body of a macro. */
static void parse_macro_body(jparser *p, jnode *macro, const char *end)
{
    jparser outer = *p;
    p->loops = 0;
    p->macro_flags = 0;
    macro->list = parse_whole_block(p, end);
    macro->op = p->macro_flags;
    p->loops = outer.loops;
    p->macro_flags = outer.macro_flags;
}

static jnode *parse_macro(jparser *p)
{
    jnode *n = jnode_new(p, N_MACRO);
    p->at++;
    const jstr *name = jexpect_name(p);
    n->name = name;
    n->id = jnames_id(p->c, p->names, name->p, name->len);
    n->other = parse_parameters(p);
    parse_macro_body(p, n, "endmacro");
    return n;
}

static jnode *parse_call_block(jparser *p)
{
    jnode *n = jnode_new(p, N_CALL_BLOCK);
    p->at++;
    n->b = jnode_new(p, N_MACRO);
    n->b->name = p->names->names[ID_CALLER];
    n->b->id = ID_CALLER;
    if (jtoken_op(p, JOP('(', 0))) n->b->other = parse_parameters(p);
    n->a = jparse_expression(p, true);
    if (n->a->kind != N_CALL) junexpected(p, "a call");
    parse_macro_body(p, n->b, "endcall");
    return n;
}

static jnode *parse_with(jparser *p)
{
    jnode *n = jnode_new(p, N_WITH), **last = &n->other;
    p->at++;
    while (p->at->type != T_BLOCK_END) {
        if (n->other) jexpect_op(p, JOP(',', 0));
        jnode *set = *last = jnode_new(p, N_SET);
        last = &set->next;
        set->a = parse_target_part(p, false);
        jexpect_op(p, JOP('=', 0));
        set->b = jparse_expression(p, true);
    }
    n->list = parse_whole_block(p, "endwith");
    return n;
}

/* What the assistant says, marked for training: rendered as it stands. */
static jnode *parse_generation(jparser *p)
{
    jnode *n = jnode_new(p, N_WITH);
    uint32_t loops = p->loops;
    p->at++;
    p->loops = 0; /* a function of its own in Hugging Face's: no break out of it */
    n->list = parse_whole_block(p, "endgeneration");
    p->loops = loops;
    return n;
}

static jnode *parse_jump(jparser *p, jkind kind)
{
    jnode *n = jnode_new(p, kind);
    p->c->line = n->line;
    if (!p->loops)
        jinja_fail(p->c, RAD_E_FORMAT, "%s outside of a loop",
                   kind == N_BREAK ? "break" : "continue");
    p->at++;
    return n;
}

static jnode *parse_print(jparser *p)
{
    jnode *n = jnode_new(p, N_PRINT);
    p->at++;
    n->a = jnode_new(p, N_CONCAT);
    jnode **last = &n->a->list;
    while (p->at->type != T_BLOCK_END) {
        if (n->a->list) jexpect_op(p, JOP(',', 0));
        *last = jparse_expression(p, true);
        last = &(*last)->next;
    }
    return n;
}

static jnode *parse_filter_block(jparser *p)
{
    jnode *n = jnode_new(p, N_FILTER_BLOCK);
    p->at++;
    n->b = jparse_filters(p, jnode_new(p, N_BODY), true);
    n->list = parse_whole_block(p, "endfilter");
    return n;
}

static jnode *parse_statement(jparser *p)
{
    if (p->at->type != T_NAME) junexpected(p, "the name of a tag");
    if (jtoken_is(p, "for")) return parse_for(p);
    if (jtoken_is(p, "if")) return parse_if(p);
    if (jtoken_is(p, "set")) return parse_set(p);
    if (jtoken_is(p, "macro")) return parse_macro(p);
    if (jtoken_is(p, "call")) return parse_call_block(p);
    if (jtoken_is(p, "filter")) return parse_filter_block(p);
    if (jtoken_is(p, "with")) return parse_with(p);
    if (jtoken_is(p, "print")) return parse_print(p);
    if (jtoken_is(p, "generation")) return parse_generation(p);
    if (jtoken_is(p, "break")) return parse_jump(p, N_BREAK);
    if (jtoken_is(p, "continue")) return parse_jump(p, N_CONTINUE);
    const jstr *name = p->at->s;
    p->c->line = p->at->line;
    if (name->len > 3 && memcmp(name->p, "end", 3) == 0)
        jinja_fail(p->c, RAD_E_FORMAT, "'%.*s' without its beginning", (int)RAD_MIN(name->len, 60u),
                   name->p);
    jinja_fail(p->c, RAD_E_UNSUPPORTED, "the tag '%.*s' is not supported",
               (int)RAD_MIN(name->len, 60u), name->p);
}

jnode *jparse_template(jctx *c, jtoken *tokens, jnames *names)
{
    static const char *const own[NUM_OWN_IDS] = {"loop", "caller", "varargs", "kwargs"};
    for (uint32_t i = 0; i < NUM_OWN_IDS; i++)
        jnames_id(c, names, own[i], strlen(own[i]));
    jparser p = {.c = c, .at = tokens, .names = names};
    return parse_body(&p, NULL);
}
