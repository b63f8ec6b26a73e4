/* grammar_rule.h - a grammar's matcher (grammar/grammar.h) as the rule of a request. */
#ifndef SCHED_GRAMMAR_RULE_H
#define SCHED_GRAMMAR_RULE_H

#include "grammar/grammar.h"
#include "sched/token_rule.h"

typedef struct grammar_rule {
    token_rule base; /* req_params.rule */
    grammar_matcher *matcher;
    rad_status status; /* of the call of the matcher that failed; RAD_OK: none did */
} grammar_rule;

/* At the beginning of an answer. RAD_E_NOMEM in words; fini in any case, when the request has
 * ended. */
rad_status grammar_rule_init(grammar_rule *r, grammar *g, rad_error *err);
void grammar_rule_fini(grammar_rule *r);

#endif
