/* retention.c - what is to stay longer: pins, and priorities of what is cached. */
#include "python.h"

static PyObject *call_pin(PyObject *self, fast_args args, Py_ssize_t nargs, PyObject *kwnames)
{
    static signature s = {"pin_prefix", 2, 2, {"tokens", "ttl_ns", "extra_key", "cache_salt"}, {0}};
    cache_object *c = (cache_object *)self;
    PyObject *a[4], *result = NULL;
    ints_in tokens;
    rad_key key;
    uint64_t ttl = 0;
    if (!args_read(&s, args, nargs, kwnames, a) || !arg_u64(a[1], "ttl_ns", &ttl) ||
        !key_take(a[0], a[2], a[3], NULL, &tokens, &key))
        return NULL;
    if (cache_enter(c, "pin_prefix")) {
        uint32_t pinned = 0;
        rad_status status = rad_cache_pin_prefix(c->cache, &key, ttl, &pinned);
        if (cache_leave(c))
            result = status ? raise_status(status, NULL,
                                           "pin_prefix: the cache was made without "
                                           "max_pinned_tokens, or the key is empty")
                            : PyLong_FromUnsignedLong(pinned);
    }
    ints_give_back(&tokens);
    return result;
}

static PyObject *call_retain(PyObject *self, fast_args args, Py_ssize_t nargs, PyObject *kwnames)
{
    static signature s = {
        "retain_prefix", 2, 3, {"tokens", "priority", "idle_ns", "extra_key", "cache_salt"}, {0}};
    cache_object *c = (cache_object *)self;
    PyObject *a[5], *result = NULL;
    ints_in tokens;
    rad_key key;
    int32_t priority = 0;
    uint64_t idle = 0;
    if (!args_read(&s, args, nargs, kwnames, a) || !arg_i32(a[1], "priority", &priority) ||
        !arg_u64(a[2], "idle_ns", &idle) || !key_take(a[0], a[3], a[4], NULL, &tokens, &key))
        return NULL;
    if (cache_enter(c, "retain_prefix")) {
        uint32_t retained = 0;
        rad_status status = rad_cache_retain_prefix(c->cache, &key, priority, idle, &retained);
        if (cache_leave(c))
            result = status ? raise_status(status, NULL,
                                           "retain_prefix: the cache was made "
                                           "without retention, or the key is empty")
                            : PyLong_FromUnsignedLong(retained);
    }
    ints_give_back(&tokens);
    return result;
}

PyMethodDef retention_calls[] = {
    FAST("pin_prefix", call_pin,
         "pin_prefix(tokens, ttl_ns, *, extra_key=None, cache_salt=None) -> int\n\nKeeps the "
         "cached prefix longer, within the budget of pins; how many tokens are."),
    FAST("retain_prefix", call_retain,
         "retain_prefix(tokens, priority, idle_ns=0, *, extra_key=None, cache_salt=None) -> int"),
    {0},
};
