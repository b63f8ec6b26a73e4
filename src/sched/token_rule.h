/* token_rule.h - what the scheduler knows of a constraint on an answer.
 *
 * A rule stands at a place in a request's answer and says which tokens may come next; the scheduler
 * tells it which one came. A request without one may say anything.
 *
 *     mask -> sample -> accept -> mask -> ...          roll_back forgets the last ones again
 *
 * The rule is its request's alone and lives as long. One thread calls it at a time: masks may be
 * asked for on another thread than the rest, which runs beside the forward pass (rule_masks.h).
 *
 * A request that is thrown back into the queue keeps its outputs, and its rule where it stands. */
#ifndef SCHED_TOKEN_RULE_H
#define SCHED_TOKEN_RULE_H

#include <radish/types.h>
#include <stdbool.h>

typedef enum token_mask {
    TOKEN_MASK_NONE, /* no token may come: the request fails, unless it had ended */
    TOKEN_MASK_SOME, /* those whose bit is set */
    TOKEN_MASK_ALL   /* every one; the bits are not looked at */
} token_mask;

/* Tokens that roll_back must be able to forget: as many as a step may draft. */
enum { TOKEN_RULE_BACK = 64 };

typedef struct token_rule token_rule;
typedef struct token_rule_ops {
    /* Sets bit i % 32 of bits[i / 32] for each token i that may come next, and clears all others,
     * bits[(vocab_size + 31) / 32]. End tokens are among them where the answer may end. */
    token_mask (*mask)(token_rule *self, uint32_t *bits);

    /* The answer goes on with this token. False: it may not come here, and nothing changed. */
    bool (*accept)(token_rule *self, rad_token token);

    /* Forgets the last `count` tokens that were accepted, TOKEN_RULE_BACK at most. */
    void (*roll_back)(token_rule *self, uint32_t count);

    /* Nothing may follow any more: the answer ends here, also under ignore_eos. */
    bool (*has_ended)(const token_rule *self);

    /* Up to `room` tokens that the text must, or is all but sure to, go on with; a guess, of which
     * nothing depends but how fast it goes. NULL: it never knows. */
    uint32_t (*forced)(token_rule *self, rad_token *out, uint32_t room);

    /* Why there was no mask, or why a token was refused, for a person; NULL, also as a function:
     * for no other reason than that it may not come. */
    const char *(*problem)(const token_rule *self);
} token_rule_ops;

/* First member of every implementation. */
struct token_rule {
    const token_rule_ops *ops;
};

#endif
