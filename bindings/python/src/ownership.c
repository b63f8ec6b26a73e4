/* ownership.c - who owns which slot: check_ownership and report_ownership. */
#include "python.h"

/* The records of a caller's sequence. Each request is kept, and busy, until they are given back:
 * the sequence may make them as it is asked, and another thread may empty it during the call. */
typedef struct records {
    const rad_req_kv **all;
    request_object **requests;
    Py_ssize_t count;
} records;

static void records_give_back(records *r)
{
    for (Py_ssize_t i = 0; i < r->count; i++) {
        r->requests[i]->busy = false;
        DECREF(r->requests[i]);
    }
    PyMem_Free(r->requests);
    PyMem_Free(r->all);
}

static bool records_take(records *r, cache_object *c, PyObject *list, const char *call)
{
    Py_ssize_t count = list && list != Py_None ? PySequence_Size(list) : 0;
    *r = (records){0};
    if (count < 0) return false;
    r->all = PyMem_Calloc((size_t)count + 1, sizeof *r->all);
    r->requests = PyMem_Calloc((size_t)count + 1, sizeof *r->requests);
    bool good = r->all && r->requests;
    if (!good) PyErr_NoMemory();
    for (; good && r->count < count; r->count += good) {
        PyObject *item = PySequence_GetItem(list, r->count);
        request_object *one = item ? request_of(c, item, call) : NULL;
        good = one != NULL;
        if (good) {
            r->requests[r->count] = one;
            r->all[r->count] = &one->kv;
        } else {
            XDECREF(item);
        }
    }
    for (Py_ssize_t i = 0; good && i < count; i++)
        r->requests[i]->busy = true; /* only now: the sequence may name one twice */
    if (!good) records_give_back(r);
    return good;
}

static PyObject *call_check_ownership(PyObject *self, fast_args args, Py_ssize_t nargs,
                                      PyObject *kwnames)
{
    static signature s = {"check_ownership", 0, 1, {"reqs"}, {0}};
    cache_object *c = (cache_object *)self;
    PyObject *a[1];
    records reqs;
    if (!args_read(&s, args, nargs, kwnames, a) || !records_take(&reqs, c, a[0], s.call))
        return NULL;
    bool entered = cache_enter(c, s.call), good = false;
    rad_error err;
    rad_status status = RAD_OK;
    if (entered) {
        WITHOUT_GIL(
            status = rad_cache_check_ownership(c->cache, reqs.all, (uint32_t)reqs.count, &err));
        good = cache_leave(c);
    }
    records_give_back(&reqs);
    if (!good) return NULL;
    if (status) return raise_status(status, &err, "check_ownership");
    Py_RETURN_NONE;
}

static void add_fault(void *user, const char *words)
{
    PyObject *text = PyUnicode_FromString(words);
    if (text) PyList_Append(user, text);
    XDECREF(text);
}

static PyObject *call_report_ownership(PyObject *self, fast_args args, Py_ssize_t nargs,
                                       PyObject *kwnames)
{
    static signature s = {"report_ownership", 0, 1, {"reqs"}, {0}};
    cache_object *c = (cache_object *)self;
    PyObject *a[1], *list = NULL;
    records reqs;
    if (!args_read(&s, args, nargs, kwnames, a) || !records_take(&reqs, c, a[0], s.call))
        return NULL;
    rad_error err = {0};
    rad_status status = RAD_OK;
    bool good = false;
    if (cache_enter(c, s.call)) {
        list = PyList_New(0);
        if (list)
            status = rad_cache_report_ownership(c->cache, reqs.all, (uint32_t)reqs.count, add_fault,
                                                list, &err);
        good = cache_leave(c);
    }
    records_give_back(&reqs);
    if (list && good && !PyErr_Occurred() && (!status || status == RAD_E_CORRUPT)) return list;
    XDECREF(list);
    return status && good ? raise_status(status, &err, "report_ownership") : NULL;
}

PyMethodDef ownership_calls[] = {
    FAST("check_ownership", call_check_ownership,
         "check_ownership(reqs=()) -> None\n\nEach slot is free, cached, or one request's; "
         "CorruptError names the first that is not."),
    FAST("report_ownership", call_report_ownership,
         "report_ownership(reqs=()) -> list[str]\n\nThe same, all faults."),
    {0},
};
