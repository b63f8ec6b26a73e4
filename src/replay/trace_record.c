/* trace_record.c - the requests of a record: which pages they asked for and left, and when.
 *
 * An element is a page's number. New pages of the file have numbers in a row, so a request's chain
 * is a few pieces of one array that tells each number's page: the pieces are put together at the
 * end, when it is known how far each request came. */
#include "replay/trace_private.h"

#include "base/hash_key.h"
#include "base/map.h"
#include "trace/record_read.h"

enum { FIRST = 1024 };

typedef struct loading {
    trace *t;
    record_reader *reader;
    hash_key secret;
    map by_id; /* rows + 1 by request, newest first to be found */
    uint32_t map_room;
    struct arrival {
        uint64_t id;
        uint32_t page; /* the last one */
        bool admitted;
    } * arrivals; /* beside rows */
    uint64_t cap;
} loading;

static uint32_t find(const loading *l, uint64_t id)
{
    const uint32_t hash = hash_mix(&l->secret, id);
    uint32_t at = map_start(&l->by_id, hash), row = 0;
    for (uint32_t one; l->map_room && (one = map_next(&l->by_id, hash, &at));)
        if (l->arrivals[one - 1].id == id) row = one;
    return row;
}

static bool grow_map(loading *l)
{
    if (l->t->num_rows < l->map_room) return true;
    const uint64_t room = RAD_MAX(2 * (uint64_t)l->map_room, (uint64_t)FIRST);
    if (room > INT32_MAX || !map_move(&l->by_id, &l->t->env, (uint32_t)room)) return false;
    l->map_room = (uint32_t)room;
    return true;
}

static rad_status arrive(loading *l, const record_op *op, uint64_t page_size, rad_error *err)
{
    trace *t = l->t;
    if (find(l, op->field[0]))
        return rad_fail(err, RAD_E_FORMAT, "operation %llu: request %llu arrives twice",
                        (unsigned long long)record_num_ops(l->reader),
                        (unsigned long long)op->field[0]);
    if (!trace_grow(&t->env, (void **)&l->arrivals, t->num_rows, &l->cap, sizeof *l->arrivals,
                    FIRST) ||
        !trace_grow(&t->env, (void **)&t->rows, t->num_rows, &t->cap_rows, sizeof *t->rows,
                    FIRST) ||
        !grow_map(l))
        return rad_fail(err, RAD_E_NOMEM, "no memory for the requests");
    const uint64_t tokens = op->field[4];
    l->arrivals[t->num_rows] = (struct arrival){op->field[0], op->page, false};
    t->rows[t->num_rows++] = (trace_row){
        .number = (uint32_t)op->field[1],
        .prompt_tokens = tokens,
        .num_prompt = (uint32_t)RAD_MIN(tokens / page_size, op->num_pages),
        .num_match = tokens ? (uint32_t)RAD_MIN((tokens - 1) / page_size, op->num_pages) : 0,
        .timestamp_ms = op->time_us / 1000,
        .num_elements = op->num_pages};
    map_insert(&l->by_id, hash_mix(&l->secret, op->field[0]), (uint32_t)t->num_rows);
    return RAD_OK;
}

static rad_status take(loading *l, const record_op *op, uint64_t page_size, rad_error *err)
{
    if (op->kind == RECORD_ARRIVE) return arrive(l, op, page_size, err);
    if (op->kind == RECORD_PRICES) {
        trace_prices *p = &l->t->prices;
        p->prompt_token_s = 1e-12 * (double)op->field[0];
        p->pair_s = 1e-12 * (double)op->field[1];
        p->decode_s = 1e-12 * (double)op->field[2];
    }
    if (op->kind != RECORD_GROW && op->kind != RECORD_ADMIT && op->kind != RECORD_LEAVE)
        return RAD_OK;
    const uint32_t row = find(l, op->field[0]);
    if (!row) return RAD_OK; /* its arrival was lost */
    struct arrival *a = &l->arrivals[row - 1];
    trace_row *r = &l->t->rows[row - 1];
    if (op->kind == RECORD_ADMIT) a->admitted = true;
    if (op->kind == RECORD_LEAVE) r->output_tokens = RAD_MIN(op->field[2], RECORD_MOST_TOKENS);
    if (op->kind != RECORD_GROW) return RAD_OK;
    if (op->num_pages < r->num_elements)
        return rad_fail(err, RAD_E_FORMAT, "operation %llu: request %llu grows shorter",
                        (unsigned long long)record_num_ops(l->reader), (unsigned long long)a->id);
    a->page = op->page;
    r->num_elements = op->num_pages;
    return RAD_OK;
}

static bool add_piece(void *user, uint32_t first, uint32_t count)
{
    trace *t = ((loading *)user)->t;
    if (!trace_grow(&t->env, (void **)&t->pieces, t->num_pieces, &t->cap_pieces, sizeof *t->pieces,
                    FIRST))
        return false;
    t->pieces[t->num_pieces++] = (trace_piece){first, count};
    return true;
}

/* Rows of those that were never admitted go, and pieces come. */
static rad_status put_together(loading *l, rad_error *err)
{
    trace *t = l->t;
    uint64_t kept = 0;
    for (uint64_t i = 0; i < t->num_rows; i++) {
        if (!l->arrivals[i].admitted) continue;
        trace_row *row = &t->rows[kept++];
        *row = t->rows[i];
        row->first_piece = t->num_pieces;
        if (!record_visit_runs(l->reader, l->arrivals[i].page, add_piece, l))
            return rad_fail(err, RAD_E_NOMEM, "no memory for the requests");
        row->num_pieces = (uint32_t)(t->num_pieces - row->first_piece);
        for (uint64_t a = row->first_piece, b = t->num_pieces; a + 1 < b; a++, b--) {
            const trace_piece piece = t->pieces[a];
            t->pieces[a] = t->pieces[b - 1];
            t->pieces[b - 1] = piece;
        }
    }
    t->num_rows = kept;
    t->num_elements = record_num_pages(l->reader) + 1;
    t->cap_elements = t->num_elements;
    t->elements = rad_alloc(&t->env, rad_mul(t->cap_elements, sizeof *t->elements));
    if (!t->elements) return rad_fail(err, RAD_E_NOMEM, "no memory for the pages");
    for (uint32_t i = 1; i < t->num_elements; i++)
        t->elements[i] = (rad_token)record_page_of(l->reader, i);
    return RAD_OK;
}

rad_status trace_parse_record(trace *t, const uint8_t *bytes, uint64_t size, rad_error *err)
{
    loading l = {.t = t};
    record_op op;
    rad_status status = record_open(&t->env, bytes, size, &l.reader, err);
    if (status != RAD_OK) return status;
    const record_head *h = record_get_head(l.reader);
    hash_key_init(&l.secret, &t->env);
    t->format = "RADREC2";
    t->tokens_per_element = (uint32_t)h->page_size;
    t->capacity_tokens = h->max_total_tokens;
    while ((status = record_next(l.reader, &op, err)) == RAD_OK)
        if ((status = take(&l, &op, h->page_size, err)) != RAD_OK) break;
    if (status == RAD_NONE) status = put_together(&l, err);
    map_fini(&l.by_id);
    rad_free(&t->env, l.arrivals, l.cap * sizeof *l.arrivals);
    record_close(l.reader);
    return status;
}
