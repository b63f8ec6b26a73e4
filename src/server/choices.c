/* choices.c - which of a prompt's answers are told, and what stands before them.
 *
 * `best_of` answers are made and the `n` told whose tokens the model found likeliest on average,
 * best first. With `echo` an answer begins with its prompt: a text as it was sent, ids as they
 * read. */
#include "server/call_parts.h"
#include "text/detokenize.h"

#include <math.h>

/* Answers that are equally likely stay in their order. One without a token comes last. */
static bool is_better(const call_item *a, const call_item *b)
{
    const double of_a = item_mean_logprob(a), of_b = item_mean_logprob(b);
    return of_a > of_b || (of_a == of_b && a->index < b->index);
}

void choices_rank(call *c)
{
    const uint32_t n = c->request.n, best = c->request.best;
    if (!best) return;
    for (uint32_t i = 0; i < c->num_items; i++) {
        const uint32_t first = i - i % n;
        uint32_t rank = 0;
        for (uint32_t k = first; k < first + n; k++)
            rank += k != i && is_better(&c->items[k], &c->items[i]);
        c->items[i].place = rank < best ? i / n * best + rank : CALL_UNTOLD;
    }
}

call_item *choices_nth(call *c, uint32_t nth)
{
    const uint32_t n = c->request.n, best = c->request.best;
    if (!best) return &c->items[nth];
    const uint32_t first = nth - nth % n, place = nth / n * best + nth % n;
    for (uint32_t i = first; i < first + n && nth % n < best; i++)
        if (c->items[i].place == place) return &c->items[i];
    return NULL;
}

static bool echo_ids(call_item *item, const engine_request *r)
{
    const tokenizer *tok = engine_tokenizer(item->call->server->engine);
    text_buf text = {0};
    detokenizer d;
    rad_status status = RAD_OK;
    if (!tok) return true;
    detokenizer_init(&d, tok, true, !r->keep_special);
    for (uint32_t i = 0; i < r->num_ids && !status; i++)
        if ((uint32_t)r->ids[i] < tokenizer_vocab_size(tok)) /* else the engine refuses it */
            status = detokenizer_push(&d, r->ids[i], &text);
    if (!status) status = detokenizer_finish(&d, &text);
    const bool done = !status && byte_buf_append(item->call->server->params.request_memory,
                                                 &item->text, text.data, text.len);
    text_buf_fini(&text);
    return done;
}

bool choices_echo(call_item *item, const engine_request *r)
{
    if (!item->call->request.echo) return true;
    if (!r->text) return echo_ids(item, r);
    return byte_buf_append(item->call->server->params.request_memory, &item->text, r->text,
                           r->text_len);
}
