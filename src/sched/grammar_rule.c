/* grammar_rule.c - see the header. A matcher that cannot follow its text any more (it has become
 * too ambiguous, or there is no memory) allows nothing, and says why. */
#include "sched/grammar_rule.h"

#include <assert.h>

static_assert((int)TOKEN_RULE_BACK <= (int)GRAMMAR_ROLLBACK,
              "as many tokens as a step drafts go back");

static token_mask mask(token_rule *self, uint32_t *bits)
{
    grammar_rule *r = (grammar_rule *)self;
    if (grammar_has_ended(r->matcher)) return TOKEN_MASK_NONE;
    rad_status status = grammar_mask(r->matcher, bits);
    if (status < 0) r->status = status;
    return status == RAD_OK ? TOKEN_MASK_SOME : TOKEN_MASK_NONE;
}

static bool accept(token_rule *self, rad_token token)
{
    grammar_rule *r = (grammar_rule *)self;
    rad_status status = grammar_accept(r->matcher, token);
    if (status < 0) r->status = status;
    return status == RAD_OK;
}

static void roll_back(token_rule *self, uint32_t count)
{
    rad_status status = grammar_rollback(((grammar_rule *)self)->matcher, count);
    RAD_ASSERT(status == RAD_OK);
}

static bool has_ended(const token_rule *self)
{
    return grammar_has_ended(((const grammar_rule *)self)->matcher);
}

static uint32_t forced(token_rule *self, rad_token *out, uint32_t room)
{
    return grammar_forced(((grammar_rule *)self)->matcher, out, room);
}

static const char *problem(const token_rule *self)
{
    switch (((const grammar_rule *)self)->status) {
    case RAD_OK: return NULL;
    case RAD_E_NOMEM: return "there is no memory to follow its grammar";
    default: return "its text has become too deep, or its grammar too ambiguous, to be followed";
    }
}

rad_status grammar_rule_init(grammar_rule *r, grammar *g, rad_error *err)
{
    static const token_rule_ops ops = {.mask = mask,
                                       .accept = accept,
                                       .roll_back = roll_back,
                                       .has_ended = has_ended,
                                       .forced = forced,
                                       .problem = problem};
    *r = (grammar_rule){.base = {&ops}, .matcher = grammar_matcher_create(g)};
    return r->matcher ? RAD_OK : rad_fail(err, RAD_E_NOMEM, "no memory to follow a grammar");
}

void grammar_rule_fini(grammar_rule *r)
{
    grammar_matcher_destroy(r->matcher);
    *r = (grammar_rule){0};
}
