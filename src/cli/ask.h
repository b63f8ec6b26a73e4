/* ask.h - one request to an engine in this process, waited for. */
#ifndef CLI_ASK_H
#define CLI_ASK_H

#include "cli/cli.h"

#include <stdio.h>

typedef struct ask_answer {
    char *text; /* NUL-terminated; never NULL after ask_answer returned 0 */
    size_t text_len;
    rad_token *ids;
    uint32_t num_ids;
    uint32_t prompt_tokens, completion_tokens, cached_tokens;
    engine_finish finish;
    bool matched_stop;    /* a stop string ended it: the ids hold more than the text */
    double first_token_s; /* since the question; 0 = none came */
    double total_s;
} ask_answer;

/* Asks and waits; text goes to `stream` as it comes (NULL: nowhere). While it waits, SIGINT
 * ends the answer (finish ABORT) and not the program. What is wrong goes to `err`; finish is
 * ERROR when it turned out after submit. Give *answer back with ask_answer_fini either way. */
rad_status ask_engine(engine *e, engine_request *request, FILE *stream, ask_answer *answer,
                      rad_error *err);

/* The same; returns 0, or 1 after saying on stderr what is wrong. */
int ask(engine *e, engine_request *request, FILE *stream, ask_answer *answer);
void ask_answer_fini(ask_answer *answer);

#endif
