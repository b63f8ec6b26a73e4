/* row.c - publish_row: for engines whose requests, and whose table of rows, are Python's.
 *
 * An engine like SGLang keeps, for each request, its token ids, a row of slots, how many of these
 * belong to the tree (protected) and the node that ends them. What it does when a prefill is
 * complete, or the request ends, is a dozen steps, each small and each a call of its own:
 *
 *     tokens  0 ......... P ............ X ............. A ........ n
 *             | protected | duplicates   | the tree's    | partial page
 *                           [P, X): another request was faster; the tree's slots replace ours,
 *                                   which are freed
 *
 *     insert [P, A) at the node, look for X, move the row to the tree's slots, free ours;
 *     not finished: lock the new end, unlock the old one, tell the row's slots
 *     finished:     free what is behind A, unlock
 *
 * Here they are one. With a KVAllocator behind the cache what is freed goes there; with a free list
 * (free_list=NUMBER) its slots are told, and the caller frees them. */
#include "python.h"

#include <string.h>

typedef struct publication {
    cache_object *c;
    rad_key key;     /* all n tokens */
    int32_t *row;    /* n slots */
    uint32_t before; /* P */
    rad_ref node;    /* ends the protected ones; afterwards the tree's */
    rad_insert_params how;
    uint32_t is_insert, finished;
    uint32_t kept;        /* tokens that are the tree's: P, then A */
    int32_t *theirs;      /* room for n - P slots of the tree */
    rad_page *duplicates; /* and for as many pages */
    uint32_t num_duplicates;
} publication;

/* Gives [P, A) to the tree and points the row at what it has. */
static rad_status insert_row(publication *p, uint32_t whole, rad_error *err)
{
    cache_object *c = p->c;
    uint32_t from = p->before, ps = c->page_size;
    rad_key key = p->key;
    key.num_tokens = whole + c->is_eagle;
    rad_match_handle at = {.node = p->node, .num_tokens = p->node.index ? from : 0};
    rad_inserted in;
    rad_status status =
        rad_cache_insert_from(c->cache, &at, &key, p->row + at.num_tokens, &p->how, &in, err);
    if (status == RAD_E_STATE &&
        at.num_tokens) { /* the node is not on this key's path (any more) */
        at = (rad_match_handle){0};
        status = rad_cache_insert_from(c->cache, &at, &key, p->row, &p->how, &in, err);
    }
    if (status) return status;
    p->kept = whole;
    p->node = in.node;
    uint32_t known = in.prefix_tokens > from ? in.prefix_tokens - from : 0;
    if (!known) return RAD_OK;
    rad_match_handle_slots(c->cache, &at, from, known, p->theirs); /* `at` is this insert's end */
    for (uint32_t i = 0; i < known; i += ps) {
        int32_t *ours = p->row + from + i;
        if (*ours == p->theirs[i]) continue; /* published before */
        p->duplicates[p->num_duplicates++] = *ours / (int32_t)ps;
        memcpy(ours, p->theirs + i, ps * sizeof *ours);
    }
    return RAD_OK;
}

/* All whole pages are protected: the request came back to them, and brings none. */
static void count_hit(publication *p)
{
    rad_match_handle at = {.node = p->node, .num_tokens = p->before};
    rad_key key = p->key;
    key.num_tokens = p->before + p->c->is_eagle;
    rad_inserted in;
    /* No page is new, so nothing is lost where the node is not (or no more) on the key's path. */
    (void)rad_cache_insert_from(p->c->cache, &at, &key, p->row + p->before, &p->how, &in, NULL);
}

/* What the request no longer needs goes to the cache's allocator. */
static rad_status free_row(publication *p, rad_error *err)
{
    rad_kv_allocator *kv = p->c->kv->kv;
    uint32_t rest = p->key.num_tokens - p->kept;
    rad_status status = rad_kv_free(kv, p->duplicates, p->num_duplicates, err), freed = RAD_OK;
    if (p->finished && rest)
        freed = rad_kv_free_slots(kv, p->row + p->kept, rest, status ? NULL : err);
    return status ? status : freed;
}

static rad_status publish(publication *p, rad_error *err)
{
    cache_object *c = p->c;
    uint32_t pairs = p->key.num_tokens - (c->is_eagle && p->key.num_tokens);
    uint32_t whole = pairs - pairs % c->page_size;
    rad_ref old = p->node;
    rad_status status = RAD_OK;
    int64_t change;
    if (c != cache_base(c))
        return rad_fail(err, RAD_E_STATE,
                        "publish_row: rows go into a tree, not through a wrapper: use a Request "
                        "with unfinished_req and finished_req");
    if (!c->kv && !c->collects)
        return rad_fail(err, RAD_E_STATE,
                        "publish_row: the cache has neither a KVAllocator nor a number of pages "
                        "as its free_list");
    p->kept = p->before;
    if (p->is_insert && whole > p->kept) status = insert_row(p, whole, err);
    else if (p->is_insert && !p->how.chunked && whole && whole == p->kept && p->node.index)
        count_hit(p);
    if (status < 0) return status; /* nothing changed; RAD_FULL: the request goes on by itself */
    status = RAD_OK;
    bool moved = p->node.index != old.index || p->node.generation != old.generation;
    if (!p->finished && moved) status = node_lock(c, p->node, &change, err);
    if (status) { /* the tree has the row: only the lock stays where it was */
        p->node = old;
        return status;
    }
    if (c->kv) status = free_row(p, err);
    if (old.index && (p->finished || moved)) {
        rad_status unlocked = node_unlock(c, old, &change, status ? NULL : err);
        if (!status) status = unlocked;
    }
    return status;
}

/* Slots that the caller frees: of pages that left the tree, of duplicates, of what is behind the
 * tree's. Whole pages first: all together they are like a row that begins with a page. */
static PyObject *freed_slots(const publication *p, bool wide)
{
    cache_object *c = p->c;
    uint32_t ps = c->page_size, rest = p->finished ? p->key.num_tokens - p->kept : 0;
    size_t pages = (size_t)c->num_freed + p->num_duplicates, count = pages * ps + rest;
    if (!count) Py_RETURN_NONE;
    int32_t *slots = malloc(count * sizeof *slots), *to = slots;
    if (!slots) return PyErr_NoMemory();
    for (size_t i = 0; i < pages; i++) {
        rad_page page = i < c->num_freed ? c->freed[i] : p->duplicates[i - c->num_freed];
        for (uint32_t j = 0; j < ps; j++)
            *to++ = page * (int32_t)ps + (int32_t)j;
    }
    memcpy(to, p->row + p->kept, rest * sizeof *to);
    PyObject *result = ints_array(slots, (Py_ssize_t)count, wide);
    free(slots);
    if (result) c->num_freed = 0;
    return result;
}

static PyObject *tell(const publication *p, bool wide)
{
    PyObject *freed = p->c->collects ? freed_slots(p, wide) : NULL;
    PyObject *slots = p->finished ? NULL : ints_array(p->row, p->key.num_tokens, wide);
    PyObject *node = node_new(p->node), *kept = PyLong_FromUnsignedLong(p->kept), *result = NULL;
    if (node && kept && !PyErr_Occurred())
        result = PyTuple_Pack(4, node, kept, slots ? slots : Py_None, freed ? freed : Py_None);
    XDECREF(node);
    XDECREF(kept);
    XDECREF(slots);
    XDECREF(freed);
    return result;
}

static bool lengths_fit(const publication *p)
{
    if (p->before % p->c->page_size == 0 && p->before <= p->key.num_tokens) return true;
    PyErr_Format(PyExc_ValueError,
                 "protected_tokens is %u: it must be whole pages of %u, and at most the %u tokens",
                 p->before, p->c->page_size, p->key.num_tokens);
    return false;
}

/* The tokens of a request, which may be in two pieces: a prompt, and what was generated. */
typedef struct pieces {
    ints_in in[2];
    int32_t *joined;
    bool second;
} pieces;

static void pieces_give_back(pieces *t)
{
    ints_give_back(&t->in[0]);
    if (t->second) ints_give_back(&t->in[1]);
    free(t->joined);
}

/* At most `most` of them. */
static bool pieces_take(pieces *t, PyObject *tokens, PyObject *more, PyObject *most, rad_key *key)
{
    uint32_t count = UINT32_MAX;
    t->second = false;
    t->joined = NULL;
    if (!arg_u32(most == Py_None ? NULL : most, "num_tokens", &count) ||
        !ints_take(tokens, "tokens", INTS_TOKENS, &t->in[0]))
        return false;
    uint64_t sum = (uint64_t)t->in[0].count;
    key->tokens = t->in[0].data;
    if (more && more != Py_None && sum < count) {
        t->second = ints_take(more, "more_tokens", INTS_TOKENS, &t->in[1]);
        if (!t->second) goto fail;
        sum += (uint64_t)t->in[1].count;
    }
    if (t->second && t->in[1].count) {
        t->joined = malloc(sum * sizeof *t->joined);
        if (!t->joined) {
            PyErr_NoMemory();
            goto fail;
        }
        memcpy(t->joined, t->in[0].data, (size_t)t->in[0].count * sizeof *t->joined);
        memcpy(t->joined + t->in[0].count, t->in[1].data,
               (size_t)t->in[1].count * sizeof *t->joined);
        key->tokens = t->joined;
    }
    if (sum > UINT32_MAX) sum = UINT32_MAX; /* more than any table has columns */
    key->num_tokens = sum < count ? (uint32_t)sum : count;
    return true;
fail:
    pieces_give_back(t);
    return false;
}

static PyObject *call_publish_row(PyObject *self, fast_args args, Py_ssize_t nargs,
                                  PyObject *kwnames)
{
    static signature s = {"publish_row",
                          3,
                          5,
                          {"tokens", "table", "row", "node", "protected_tokens", "more_tokens",
                           "num_tokens", "extra_key", "cache_salt", "priority", "chunked",
                           "finished", "is_insert", "dtype"},
                          {0}};
    PyObject *a[14], *result = NULL;
    publication p = {.c = (cache_object *)self, .is_insert = 1};
    pieces tokens;
    ints_row row;
    if (!args_read(&s, args, nargs, kwnames, a) || !arg_ref(a[3], "node", &p.node) ||
        !arg_u32(a[4], "protected_tokens", &p.before) ||
        !arg_i32(a[9], "priority", &p.how.priority) || !arg_flag(a[10], &p.how.chunked) ||
        !arg_flag(a[11], &p.finished) || !arg_flag(a[12], &p.is_insert) ||
        !key_words(a[7], a[8], NULL, &p.key) || !pieces_take(&tokens, a[0], a[5], a[6], &p.key))
        return NULL;
    if (!lengths_fit(&p) || !ints_row_begin(a[1], a[2], p.key.num_tokens, &row)) goto give_back;
    p.row = row.data;
    size_t news = p.key.num_tokens - p.before + 1;
    p.theirs = malloc(2 * news * sizeof *p.theirs);
    p.duplicates = p.theirs ? p.theirs + news : NULL;
    if (!p.theirs) {
        PyErr_NoMemory();
    } else if (cache_enter(p.c, "publish_row")) {
        rad_error err;
        rad_status status;
        LONG_CALL(news >= LONG_TOKENS || p.c->has_threads, status = publish(&p, &err));
        if (!cache_leave(p.c))
            ; /* a callback raised */
        else if (status)
            raise_status(status, &err, "publish_row");
        else
            result = tell(&p, arg_wide(a[13]));
    }
    free(p.theirs);
    ints_row_end(&row);
give_back:
    pieces_give_back(&tokens);
    return result;
}

PyMethodDef row_calls[] = {
    FAST(
        "publish_row", call_publish_row,
        "publish_row(tokens, table, row, node=0, protected_tokens=0, *, more_tokens=None, "
        "num_tokens=None, extra_key=None, cache_salt=None, priority=0, chunked=False, "
        "finished=False, is_insert=True, dtype='int32') -> (node, kept_tokens, slots | None, freed "
        "| None)\n\nA request publishes its tokens (and more_tokens behind them; the first "
        "num_tokens of all), of which table[row] has the slots. The first protected_tokens are "
        "the tree's already, up to `node`, which is locked by lock_node. The others are inserted; "
        "where the tree had them, the row is moved to its slots and the request's own are freed. "
        "Not finished: the lock moves to the new end, `node`; kept_tokens are the tree's, and "
        "`slots` are the row's. What it passes in the tree is hit once more, also where it brings "
        "nothing new; chunked counts no hit. finished: what is not the tree's is freed, too, and the lock goes; "
        "is_insert=False frees all but the protected ones. `freed`: with free_list=NUMBER, slots "
        "that are the caller's to free."),
    {0},
};
