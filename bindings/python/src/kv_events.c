/* kv_events.c - events of a cache as Python sees them: what entered and what left. */
#include "python.h"

static const char *const event_types[] = {"BlockStored", "BlockRemoved", "AllBlocksCleared", "Lost",
                                          NULL};
static const record_field event_fields[] = {
    {"type", F_NAME, offsetof(rad_kv_event, type), event_types,
     "'BlockStored', 'BlockRemoved', 'AllBlocksCleared', or 'Lost': events were dropped, start "
     "again from snapshot_events()."},
    {"block_size", F_U32, offsetof(rad_kv_event, block_size), NULL, "Tokens of a block."},
    {"medium", F_TEXT, offsetof(rad_kv_event, medium), NULL, "'GPU', 'CPU_PINNED', ..."},
    {"has_extra_key", F_FLAG, offsetof(rad_kv_event, has_extra_key), NULL, NULL},
    {"has_cache_salt", F_FLAG, offsetof(rad_kv_event, has_cache_salt), NULL, NULL},
    {"namespace_id", F_U64, offsetof(rad_kv_event, namespace_id), NULL, "0: the default one."},
    {"lost_blocks", F_U64, offsetof(rad_kv_event, lost_blocks), NULL, "Of 'Lost'."},
    {0},
};
static const char *const event_extra[] = {"block_hashes", "parent_block_hash", "token_ids", NULL};
static PyTypeObject *event_type;

typedef struct event_list {
    PyObject *list;
    bool failed;
} event_list;

static PyObject *hash_list(const rad_kv_event *e)
{
    PyObject *list = PyList_New(e->num_blocks);
    for (uint32_t i = 0; list && i < e->num_blocks; i++)
        if (PyList_SetItem(list, i, PyLong_FromLongLong(e->block_hashes[i]))) Py_CLEAR(list);
    return list;
}

static PyObject *token_list(const rad_kv_event *e)
{
    PyObject *list = PyList_New(e->num_token_ids);
    for (uint32_t i = 0; list && i < e->num_token_ids; i++)
        if (PyList_SetItem(list, i, PyLong_FromLong(e->token_ids[i]))) Py_CLEAR(list);
    return list;
}

static void add_event(void *user, const rad_kv_event *e)
{
    event_list *l = user;
    if (l->failed) return;
    PyObject *record = record_new(event_type, event_fields, e);
    PyObject *hashes = record ? hash_list(e) : NULL, *tokens = record ? token_list(e) : NULL;
    PyObject *parent = Py_None;
    if (e->type == RAD_KV_STORED && e->has_parent)
        parent = PyLong_FromLongLong(e->parent_block_hash);
    else
        INCREF(parent);
    if (hashes && tokens && parent) {
        record_set(record, event_fields, 0, hashes);
        record_set(record, event_fields, 1, parent);
        record_set(record, event_fields, 2, tokens);
        l->failed = PyList_Append(l->list, record) != 0;
    } else {
        l->failed = true;
        XDECREF(hashes);
        XDECREF(tokens);
        XDECREF(parent);
    }
    XDECREF(record);
}

static PyObject *events(PyObject *self, const char *call,
                        rad_status (*f)(rad_cache *, rad_kv_event_fn, void *))
{
    cache_object *c = (cache_object *)self;
    event_list l = {PyList_New(0), false};
    if (!l.list) return NULL;
    rad_status status = RAD_OK;
    bool good = cache_enter(c, call);
    if (good) {
        status = f(c->cache, add_event, &l);
        good = cache_leave(c);
    }
    if (good && !status && !l.failed) return l.list;
    DECREF(l.list);
    return good && status
               ? raise_status(status, NULL, "the cache was made without enable_kv_events")
               : NULL;
}

static PyObject *call_take_events(PyObject *self, PyObject *none)
{
    (void)none;
    return events(self, "take_events", rad_cache_take_events);
}

static PyObject *call_snapshot_events(PyObject *self, PyObject *none)
{
    (void)none;
    return events(self, "snapshot_events", rad_cache_snapshot_events);
}

PyMethodDef event_calls[] = {
    {"take_events", call_take_events, METH_NOARGS,
     "take_events() -> list[KVEvent]\n\nWhat entered and left since the last call."},
    {"snapshot_events", call_snapshot_events, METH_NOARGS,
     "snapshot_events() -> list[KVEvent]\n\nAll that is cached, as events; forgets the queue."},
    {0},
};

bool kv_events_init(PyObject *module)
{
    event_type = record_type(module, "radish.KVEvent", "What entered or left the cache.",
                             event_fields, event_extra);
    return event_type != NULL;
}
