/* jinja.c - a template from its text, and its rendering.
 *
 *     source -> jinja_lex -> jparse_template -> tree  (kept)
 *     tree + variables -> jexec -> text               (an arena of its own, thrown away)
 *
 * setjmp is here and nowhere else: whatever fails below ends up behind it, and the arena is
 * all there is to free. */
#include "text/jinja.h"

#include "base/utf8.h"
#include "text/jinja_ast.h"

#include <stdio.h>

static void report(const jctx *c, jinja_fault *fault)
{
    if (fault) *fault = (jinja_fault){.line = c->line, .raised = c->raised};
}

/* The source as the lexer wants it: \n only, and without one at the very end. */
static char *normalize(jctx *c, const char *source, size_t len, size_t *out_len)
{
    char *text = jalloc(c, len + 1, 1);
    size_t n = 0;
    if (len > UINT32_MAX / 4) jinja_fail(c, RAD_E_LIMIT, "the template is too long");
    for (size_t i = 0; i < len; i++) {
        utf8_char ch = utf8_next((const unsigned char *)source + i, len - i);
        if (!ch.valid) jinja_fail(c, RAD_E_FORMAT, "the template is not UTF-8");
        c->line += source[i] == '\n';
        if (source[i] == '\r') {
            text[n++] = '\n';
            i += i + 1 < len && source[i + 1] == '\n';
            continue;
        }
        memcpy(text + n, source + i, ch.len);
        n += ch.len;
        i += ch.len - 1u;
    }
    if (n && text[n - 1] == '\n') n--;
    *out_len = n;
    c->line = 1;
    return text;
}

static void parse(jinja_template *t, const char *source, size_t len)
{
    size_t n;
    const char *text = normalize(&t->c, source, len, &n);
    jtoken *tokens = jinja_lex(&t->c, text, n);
    t->tokens = tokens;
    t->source = text;
    t->source_len = n;
    t->root = jparse_template(&t->c, tokens, &t->names);
    const jnode *unknown = t->names.unknown;
    if (unknown)
        snprintf(t->unknown, sizeof t->unknown, "%s '%.*s' (line %u)", t->names.unknown_is,
                 (int)RAD_MIN(unknown->name->len, 60u), unknown->name->p, unknown->line);
}

rad_status jinja_parse(const rad_env *env, const char *source, size_t len, jinja_template **out,
                       jinja_fault *fault, rad_error *err)
{
    *out = NULL;
    rad_env full = rad_env_or_default(env);
    jinja_template *t = rad_alloc(&full, sizeof *t);
    if (!t) return rad_fail(err, RAD_E_NOMEM, "chat template: no memory");
    jctx_init(&t->c, &full, &(jinja_limits){0}, err);
    if (setjmp(t->c.out)) {
        rad_status status = t->c.status;
        report(&t->c, fault);
        jinja_destroy(t);
        return status;
    }
    parse(t, source, len);
    t->c.err = NULL;
    *out = t;
    return RAD_OK;
}

void jinja_destroy(jinja_template *t)
{
    if (!t) return;
    rad_env env = t->c.env;
    jctx_fini(&t->c);
    rad_free(&env, t, sizeof *t);
}

bool jinja_names(const jinja_template *t, const char *word)
{
    size_t len = strlen(word);
    for (const jtoken *at = t->tokens; at->type != T_END; at++)
        if ((at->type == T_NAME || at->type == T_STRING) && at->s->len == len &&
            memcmp(at->s->p, word, len) == 0)
            return true;
    return false;
}

const char *jinja_source(const jinja_template *t, size_t *len)
{
    *len = t->source_len;
    return t->source;
}

const char *jinja_unknown(const jinja_template *t)
{
    return t->unknown;
}

/* ---- rendering ---- */

/* The variables that the template names; the others are not even converted. */
static void set_vars(jctx *c, const jinja_template *t, const jinja_input *input)
{
    c->scope = jalloc(c, 1, sizeof *c->scope);
    for (uint32_t i = 0; i < input->num_vars; i++) {
        const jinja_var *v = &input->vars[i];
        for (uint32_t id = 0; id < t->names.len; id++) {
            const jstr *name = t->names.names[id];
            if (strlen(v->name) == name->len && memcmp(v->name, name->p, name->len) == 0)
                jset(c, c->scope, id, v->value ? jfrom_json(c, v->value, v->user) : jnone());
        }
    }
    /* set and macro at the top of the template go into a scope of their own */
    jscope *top = jalloc(c, 1, sizeof *top);
    top->parent = c->scope;
    c->scope = top;
}

static void run(jctx *c, const jinja_template *t, const jinja_input *input, jinja_text *out)
{
    jbuf b = {.c = c};
    set_vars(c, t, input);
    jexec(c, t->root, &b);
    const jstr *s = jbuf_value(&b).u.s;
    out->data = rad_alloc(&c->env, (size_t)s->len + 1);
    if (s->taint != CLEAN && s->len) out->user = rad_alloc(&c->env, s->len);
    if (!out->data || (s->taint != CLEAN && s->len && !out->user)) {
        rad_free(&c->env, out->data, (size_t)s->len + 1);
        *out = (jinja_text){0};
        jinja_fail(c, RAD_E_NOMEM, "no memory");
    }
    memcpy(out->data, s->p, s->len);
    if (out->user && s->mark)
        memcpy(out->user, s->mark, s->len);
    else if (out->user)
        memset(out->user, 1, s->len);
    out->len = s->len;
    out->steps = c->max_steps - c->steps;
    out->env = c->env;
}

rad_status jinja_render(const jinja_template *t, const jinja_input *input, jinja_text *out,
                        jinja_fault *fault, rad_error *err)
{
    rad_env env = t->c.env;
    *out = (jinja_text){0};
    jctx *c = rad_alloc(&env, sizeof *c); /* not a local variable: longjmp would lose it */
    if (!c) return rad_fail(err, RAD_E_NOMEM, "chat template: no memory");
    jctx_init(c, &env, &input->limits, err);
    c->now_unix = input->now_unix;
    if (setjmp(c->out))
        report(c, fault);
    else
        run(c, t, input, out);
    rad_status status = c->status;
    jctx_fini(c);
    rad_free(&env, c, sizeof *c);
    return status;
}

void jinja_text_fini(jinja_text *text)
{
    if (!text->data) return;
    rad_free(&text->env, text->user, text->len);
    rad_free(&text->env, text->data, text->len + 1);
    *text = (jinja_text){0};
}
