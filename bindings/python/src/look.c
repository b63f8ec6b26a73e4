/* look.c - what a cache holds, and why: statistics, walks, dumps, explanations. */
#include "python.h"

#include <string.h>

/* ---- statistics and nodes ---- */

#define STAT(name)                                                                                 \
    {                                                                                              \
#name, F_U64, offsetof(rad_cache_stats, name), NULL, NULL                                  \
    }
static const record_field stats_fields[] = {
    STAT(num_nodes),       STAT(num_namespaces), STAT(metadata_bytes), STAT(evicted_tokens),
    STAT(inserted_tokens), STAT(splits),         STAT(merges),         STAT(host_evicted_tokens),
    STAT(states_put),      STAT(states_evicted), STAT(states_dropped), {0},
};

#define SPACE(name, kind)                                                                          \
    {                                                                                              \
#name, kind, offsetof(rad_namespace_stats, name), NULL, NULL                               \
    }
static const record_field namespace_fields[] = {
    SPACE(most, F_U32),
    SPACE(used, F_U32),
    SPACE(given_up, F_U64),
    SPACE(host_most, F_U32),
    SPACE(host_used, F_U32),
    SPACE(host_given_up, F_U64),
    {0},
};

#define NODE(name, kind)                                                                           \
    {                                                                                              \
#name, kind, offsetof(rad_node_info, name), NULL, NULL                                     \
    }
static const record_field node_fields[] = {
    NODE(parent, F_REF),
    NODE(num_tokens, F_U32),
    NODE(depth_tokens, F_U32),
    NODE(num_children, F_U32),
    NODE(is_evictable, F_FLAG),
    NODE(hit_count, F_U32),
    NODE(priority, F_I32),
    NODE(on_device, F_FLAG),
    NODE(lock_ref, F_U32),
    NODE(window_tokens, F_U32),
    NODE(window_lock_ref, F_U32),
    NODE(on_host, F_FLAG),
    NODE(host_lock_ref, F_U32),
    NODE(host_window_tokens, F_U32),
    NODE(host_window_lock_ref, F_U32),
    NODE(last_access, F_U64),
    NODE(created, F_U64),
    NODE(state, F_I32),
    NODE(state_lock_ref, F_U32),
    NODE(host_state, F_I32),
    NODE(host_state_lock_ref, F_U32),
    {0},
};

static PyTypeObject *stats_type, *namespace_type, *node_type, *tree_node_type, *eviction_type,
    *explanation_type;

static PyObject *call_stats(PyObject *self, PyObject *none)
{
    (void)none;
    cache_object *c = (cache_object *)self;
    if (!cache_enter(c, "stats")) return NULL;
    rad_cache_stats stats;
    rad_cache_get_stats(c->cache, &stats);
    if (!cache_leave(c)) return NULL;
    return record_new(stats_type, stats_fields, &stats);
}

static PyObject *call_namespace_stats(PyObject *self, PyObject *none)
{
    (void)none;
    cache_object *c = (cache_object *)self;
    if (!cache_enter(c, "namespace_stats")) return NULL;
    rad_namespace_stats stats = {.struct_size = sizeof stats};
    rad_status status = rad_cache_get_namespace_stats(c->cache, &stats);
    if (!cache_leave(c)) return NULL;
    if (status) return raise_status(status, NULL, "namespace_stats");
    return record_new(namespace_type, namespace_fields, &stats);
}

static PyObject *call_node_info(PyObject *self, PyObject *node_arg)
{
    cache_object *c = (cache_object *)self;
    rad_ref node;
    if (!arg_ref(node_arg, "node", &node) || !cache_enter(c, "node_info")) return NULL;
    rad_node_info info = {.struct_size = sizeof info};
    rad_error err;
    rad_status status = rad_cache_get_node_info(c->cache, node, &info, &err);
    if (!cache_leave(c)) return NULL;
    if (status) return raise_status(status, &err, "node_info");
    return record_new(node_type, node_fields, &info);
}

static const char *const tree_node_extra[] = {"node",     "depth",     "tokens",     "slots",
                                              "lock_ref", "hit_count", "num_tokens", NULL};

static PyObject *ints_copy(const int32_t *from, size_t count)
{
    void *to;
    PyObject *a = array_new(E_I32, (Py_ssize_t)count, &to);
    if (a && count) memcpy(to, from, count * sizeof *from);
    return a;
}

typedef struct walk_state {
    PyObject *list;
    bool is_eagle, failed;
} walk_state;

static void add_node(void *user, rad_ref node, uint32_t depth, const rad_token *tokens,
                     const rad_slot *slots, uint32_t num_tokens, uint32_t lock_ref,
                     uint32_t hit_count)
{
    walk_state *w = user;
    if (w->failed) return;
    PyObject *record = record_new(tree_node_type, NULL, NULL);
    PyObject *values[] = {record ? node_new(node) : NULL,
                          PyLong_FromUnsignedLong(depth),
                          ints_copy(tokens, num_tokens + (w->is_eagle && num_tokens ? 1 : 0)),
                          ints_copy(slots, num_tokens),
                          PyLong_FromUnsignedLong(lock_ref),
                          PyLong_FromUnsignedLong(hit_count),
                          PyLong_FromUnsignedLong(num_tokens)};
    bool good = record != NULL;
    for (size_t i = 0; i < COUNT_OF(values); i++) {
        good = good && values[i];
        if (record)
            PyStructSequence_SetItem(record, (Py_ssize_t)i, values[i]);
        else
            XDECREF(values[i]);
    }
    w->failed = !good || PyList_Append(w->list, record);
    XDECREF(record);
}

static PyObject *call_walk(PyObject *self, PyObject *none)
{
    (void)none;
    cache_object *c = (cache_object *)self;
    walk_state w = {PyList_New(0), c->is_eagle, false};
    if (!w.list) return NULL;
    rad_status status = RAD_OK;
    bool good = cache_enter(c, "walk");
    if (good) {
        status = rad_cache_walk(c->cache, add_node, &w);
        good = cache_leave(c);
    }
    if (good && !status && !w.failed) return w.list;
    DECREF(w.list);
    return good && status ? raise_status(status, NULL, "walk: there is no memory for it") : NULL;
}

static PyObject *call_flatten(PyObject *self, fast_args args, Py_ssize_t nargs, PyObject *kwnames)
{
    static signature s = {"all_values_flatten", 0, 1, {"out"}, {0}};
    cache_object *c = (cache_object *)self;
    PyObject *a[1], *result = NULL;
    if (!args_read(&s, args, nargs, kwnames, a) || !cache_enter(c, "all_values_flatten"))
        return NULL;
    PyObject *into = arg_into(a[0]);
    uint64_t count = 0;
    rad_status status = rad_cache_all_values_flatten(c->cache, NULL, 0, &count);
    ints_out out;
    if (!status && ints_place(into, "out", (Py_ssize_t)count, &out)) {
        status = rad_cache_all_values_flatten(c->cache, out.data, count, &count);
        result = ints_done(&out, into, (Py_ssize_t)count);
    }
    if (!cache_leave(c)) Py_CLEAR(result);
    if (status) {
        Py_CLEAR(result);
        raise_status(status, NULL, "all_values_flatten");
    }
    return result;
}

typedef struct text {
    char *bytes;
    size_t used, room;
} text;

static rad_status add_text(void *user, const char *piece, size_t bytes)
{
    text *t = user;
    if (bytes > t->room - t->used) {
        size_t room = 2 * t->room + bytes + 1024;
        char *longer = realloc(t->bytes, room);
        if (!longer) return RAD_E_NOMEM;
        t->bytes = longer;
        t->room = room;
    }
    memcpy(t->bytes + t->used, piece, bytes);
    t->used += bytes;
    return RAD_OK;
}

static PyObject *call_dump(PyObject *self, fast_args args, Py_ssize_t nargs, PyObject *kwnames)
{
    static signature s = {"dump", 0, 1, {"format"}, {0}};
    static const char *const formats[] = {"text", "json", NULL};
    cache_object *c = (cache_object *)self;
    PyObject *a[1];
    uint32_t format = RAD_CACHE_DUMP_TEXT;
    if (!args_read(&s, args, nargs, kwnames, a) ||
        !name_to_number(a[0], "format", formats, &format) || !cache_enter(c, "dump"))
        return NULL;
    text t = {0};
    rad_status status;
    WITHOUT_GIL(status = rad_cache_dump(c->cache, format, add_text, &t));
    PyObject *result = NULL;
    if (cache_leave(c))
        result = status
                     ? raise_status(status, NULL, "dump: there is no memory for it")
                     : PyUnicode_DecodeUTF8(t.bytes ? t.bytes : "", (Py_ssize_t)t.used, "replace");
    free(t.bytes);
    return result;
}

static PyObject *call_check(PyObject *self, PyObject *none)
{
    (void)none;
    cache_object *c = (cache_object *)self;
    if (!cache_enter(c, "check")) return NULL;
    rad_error err;
    rad_status status;
    WITHOUT_GIL(status = rad_cache_check(c->cache, &err));
    if (!cache_leave(c)) return NULL;
    if (status) return raise_status(status, &err, "check");
    Py_RETURN_NONE;
}

/* ---- explanations ---- */

const char *const match_ends[] = {"complete", "page_rounding",   "never_seen",
                                  "evicted",  "other_namespace", "too_long_name",
                                  "window",   "state",           NULL};
static const char *const causes[] = {"asked", "room", NULL};

static const record_field eviction_fields[] = {
    {"operation", F_U64, offsetof(rad_eviction, operation), NULL, NULL},
    {"time_ns", F_U64, offsetof(rad_eviction, time_ns), NULL, NULL},
    {"policy", F_TEXT, offsetof(rad_eviction, policy), NULL, NULL},
    {"cause", F_NAME, offsetof(rad_eviction, cause), causes, NULL},
    {0},
};

PyObject *eviction_new(const rad_eviction *e, bool is_one)
{
    if (is_one) return record_new(eviction_type, eviction_fields, e);
    Py_RETURN_NONE;
}

static const record_field explanation_fields[] = {
    {"prefix_tokens", F_U32, offsetof(rad_explanation, prefix_tokens), NULL,
     "What a match would answer."},
    {"why", F_NAME, offsetof(rad_explanation, why), match_ends, "Why it ends there."},
    {"rounded_tokens", F_U32, offsetof(rad_explanation, rounded_tokens), NULL,
     "There, but lost to page rounding."},
    {"evicted_tokens", F_U32, offsetof(rad_explanation, evicted_tokens), NULL,
     "Behind the prefix, known to be evicted."},
    {"other_namespace_tokens", F_U32, offsetof(rad_explanation, other_namespace_tokens), NULL,
     "Longest prefix elsewhere, if longer."},
    {"num_nodes", F_U32, offsetof(rad_explanation, num_nodes), NULL, "Of the whole path."},
    {0},
};
static const char *const explanation_extra[] = {"eviction", "nodes", NULL};

static PyObject *path_of(const rad_explanation *e)
{
    uint32_t count = e->num_nodes < RAD_EXPLAIN_NODES ? e->num_nodes : RAD_EXPLAIN_NODES;
    PyObject *list = PyList_New(count);
    for (uint32_t i = 0; list && i < count; i++) {
        PyObject *node = node_new(e->nodes[i].node);
        PyObject *pair = node ? Py_BuildValue("(NI)", node, e->nodes[i].tokens) : NULL;
        if (!pair || PyList_SetItem(list, i, pair)) Py_CLEAR(list);
    }
    return list;
}

static PyObject *call_explain(PyObject *self, fast_args args, Py_ssize_t nargs, PyObject *kwnames)
{
    static signature s = {"explain", 1, 1, {"tokens", "extra_key", "cache_salt", "session"}, {0}};
    cache_object *c = (cache_object *)self;
    PyObject *a[4], *record = NULL;
    ints_in tokens;
    rad_key key;
    if (!args_read(&s, args, nargs, kwnames, a) || !key_take(a[0], a[1], a[2], a[3], &tokens, &key))
        return NULL;
    if (cache_enter(c, "explain")) {
        rad_explanation e;
        rad_status status;
        WITHOUT_GIL(status = rad_cache_explain(c->cache, &key, &e));
        if (cache_leave(c)) {
            if (status)
                raise_status(status, NULL, "explain: the key has no tokens, or the cache no tree");
            else
                record = record_new(explanation_type, explanation_fields, &e);
        }
        if (record) {
            record_set(record, explanation_fields, 0,
                       eviction_new(&e.eviction, e.why == RAD_END_EVICTED));
            record_set(record, explanation_fields, 1, path_of(&e));
        }
    }
    ints_give_back(&tokens);
    return record;
}

PyMethodDef look_calls[] = {
    {"stats", call_stats, METH_NOARGS, "stats() -> CacheStats"},
    {"namespace_stats", call_namespace_stats, METH_NOARGS, "namespace_stats() -> NamespaceStats"},
    {"node_info", call_node_info, METH_O,
     "node_info(node) -> NodeInfo\n\nWhat a node is now; its parent leads on to the root, 0."},
    {"walk", call_walk, METH_NOARGS,
     "walk() -> list[TreeNode]\n\nAll nodes below the roots, parents first."},
    FAST("all_values_flatten", call_flatten,
         "all_values_flatten(out='int32') -> Array | out\n\nEvery cached slot."),
    FAST("dump", call_dump,
         "dump(format='text') -> str\n\nThe tree for a person (SGLang's pretty_print), or as "
         "'json'."),
    {"check", call_check, METH_NOARGS,
     "check() -> None\n\nWalks everything; CorruptError names what is wrong."},
    FAST("explain", call_explain,
         "explain(tokens, *, extra_key=None, cache_salt=None, session=0) -> Explanation\n\nWhere a "
         "match would end, and why."),
    {0},
};

bool look_init(PyObject *module)
{
    stats_type =
        record_type(module, "radish.CacheStats", "Counters of a cache.", stats_fields, NULL);
    namespace_type = record_type(module, "radish.NamespaceStats", "Places for namespaces.",
                                 namespace_fields, NULL);
    node_type = record_type(module, "radish.NodeInfo", "What a node is.", node_fields, NULL);
    tree_node_type =
        record_type(module, "radish.TreeNode", "A node of a walk.", NULL, tree_node_extra);
    eviction_type = record_type(module, "radish.Eviction", "When and why a page was evicted.",
                                eviction_fields, NULL);
    explanation_type = record_type(module, "radish.Explanation", "Where a match ends, and why.",
                                   explanation_fields, explanation_extra);
    return stats_type && namespace_type && node_type && tree_node_type && eviction_type &&
           explanation_type;
}
