/* answer_form.h - from the words of a form to the rule that one answer follows.
 *
 *     engine_request.form    the caller's words: a schema, an expression
 *          | copy, shared by a batch                       the submitting thread
 *     form_words
 *          | compile, unless the engine knows these words  the tokenizer thread
 *     grammar
 *          | stands at a place of one answer
 *     token_rule             the scheduler's, until the job ends
 *
 * Compiled forms are kept, the newest FORMS_MOST of them below FORMS_BYTES: an agent sends the same
 * schemas with each turn. They are kept by namespace, too: how long a compilation takes must not
 * say what others ask for.
 *
 * Reasoning comes before a form and is free (rule_place in answer_form.c). */
#ifndef ENGINE_ANSWER_FORM_H
#define ENGINE_ANSWER_FORM_H

#include "base/memory_budget.h"
#include "engine/engine.h"
#include "sched/grammar_rule.h"
#include "text/tokenizer.h"

#include <stdatomic.h>

enum { FORMS_MOST = 64, FORMS_BYTES = 64 << 20 };

/* A form as it was given. */
typedef struct form_words {
    struct engine *engine;
    _Atomic uint32_t refs;
    size_t bytes; /* of the block */
    engine_form form;
    grammar *compiled; /* for other requests of the batch; the tokenizer thread's */
    char text[];       /* what form points to */
} form_words;

/* A copy with one reference (job_share_form has them). RAD_E_NOMEM, RAD_FULL. */
rad_status form_words_create(struct engine *e, const engine_form *form, form_words **out,
                             rad_error *err);
void form_words_unref(form_words *w); /* NULL is fine */

typedef struct kept_form {
    grammar *grammar;
    grammar_spec spec; /* its text is text + space_len */
    char *text;
    size_t space_len;
    uint64_t used, bytes;
} kept_form;

/* What was compiled. The tokenizer thread's. */
typedef struct answer_forms {
    grammar_vocab *vocab; /* NULL: nobody has asked for a form yet */
    kept_form *kept;      /* [FORMS_MOST] */
    uint32_t count;
    uint64_t bytes, clock;
} answer_forms;

void answer_forms_fini(struct engine *e);

/* The rule of the job's answer, by its form, markers and the end of its prompt (prompt_tail).
 * RAD_E_INVAL and RAD_E_UNSUPPORTED: the form is wrong, too large or not served, in words that
 * begin with its name; RAD_E_NOMEM. */
struct engine_job;
rad_status answer_rule_create(struct engine *e, const struct engine_job *job, token_rule **out,
                              rad_error *err);
void answer_rule_destroy(struct engine *e, token_rule *rule); /* NULL is fine */

#endif
