/* answer_counts.c - see the header. */
#include "server/answer_counts.h"

#include "base/base.h"

#include <stdlib.h>

/* All that the server answers; anything else is counted in the last column. */
static const char *const codes[ANSWER_CODES] = {
    "200", "204", "400", "401", "403", "404", "405", "408", "409", "413", "415",   "417",
    "421", "429", "431", "499", "500", "501", "502", "503", "504", "505", "other", "0"};

const char *answer_code_name(uint32_t code)
{
    return codes[code];
}

void answer_counts_add(answer_counts *c, uint32_t endpoint, int status)
{
    uint32_t at = status ? 0 : ANSWER_CODES - 1;
    while (at < ANSWER_CODES - 2 && atoi(codes[at]) != status)
        at++;
    c->of[RAD_MIN(endpoint, (uint32_t)ANSWER_ENDPOINTS - 1)][at]++;
}
