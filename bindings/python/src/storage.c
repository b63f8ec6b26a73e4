/* storage.c - storage backends written in Python.
 *
 * A backend is any object with
 *
 *     batch_exists(keys, deadline_ns)         -> int     how many are there, from the first on
 *     batch_get(keys, deadline_ns)            -> list    a record (bytes) or None for each
 *     batch_set(keys, records, deadline_ns)   -> list    a bool for each, or None: all are stored
 *
 * and, if it likes, remove(key), clear(), flush(), stats() -> dict, name and medium ("DISK" or
 * "EXTERNAL"). Keys are 32 bytes. deadline_ns is of time.monotonic_ns(), 0: none.
 *
 * The transfer workers call it, several at a time, each with the interpreter's lock. Records are
 * copied on the way: a view of the library's memory could outlive the call. What a backend raises
 * is an error of the store, in the exception's words, and a miss. */
#include "python.h"

#include <stdio.h>
#include <string.h>

typedef struct py_storage {
    rad_storage_ops ops;
    PyObject *backend;
    char name[64];
} py_storage;

/* The exception that is set, as the library's words. */
static rad_status to_words(rad_error *err, const char *call)
{
    PyObject *type, *value, *trace, *text = NULL;
    PyErr_Fetch(&type, &value, &trace);
    if (value) text = PyObject_Str(value);
    PyObject *name = type ? PyObject_GetAttrString(type, "__name__") : NULL;
    PyErr_Clear();
    const char *words = text ? PyUnicode_AsUTF8AndSize(text, NULL) : NULL;
    const char *kind = name ? PyUnicode_AsUTF8AndSize(name, NULL) : NULL;
    PyErr_Clear();
    rad_status status = rad_fail(err, RAD_E_IO, "%s raised %s: %s", call, kind ? kind : "something",
                                 words ? words : "");
    XDECREF(text);
    XDECREF(name);
    XDECREF(type);
    XDECREF(value);
    XDECREF(trace);
    return status;
}

static PyObject *key_list(const rad_storage_batch *batch)
{
    PyObject *list = PyList_New(batch->count);
    for (uint32_t i = 0; list && i < batch->count; i++) {
        PyObject *key = PyBytes_FromStringAndSize((const char *)batch->keys[i].bytes,
                                                  sizeof batch->keys[i].bytes);
        if (!key || PyList_SetItem(list, i, key)) Py_CLEAR(list);
    }
    return list;
}

static rad_status exists(void *self, const rad_storage_batch *batch, uint32_t *present,
                         rad_error *err)
{
    py_storage *s = self;
    PyGILState_STATE state = PyGILState_Ensure();
    PyObject *keys = key_list(batch), *answer = NULL;
    uint32_t count = 0;
    if (keys)
        answer = PyObject_CallMethod(s->backend, "batch_exists", "OK", keys,
                                     (unsigned long long)batch->deadline_ns);
    bool good = answer && arg_u32(answer, "what batch_exists returned", &count);
    rad_status status = good ? RAD_OK : to_words(err, "batch_exists");
    *present = count < batch->count ? count : batch->count;
    XDECREF(answer);
    XDECREF(keys);
    PyGILState_Release(state);
    return status;
}

static bool copy_record(PyObject *from, void *record, size_t bytes)
{
    bytes_in in;
    if (!bytes_take(from, "a record", false, false, &in)) return false;
    bool whole = in.bytes == bytes;
    if (whole) memcpy(record, in.data, bytes);
    bytes_give_back(&in);
    return whole;
}

static rad_status get(void *self, const rad_storage_batch *batch, rad_error *err)
{
    py_storage *s = self;
    PyGILState_STATE state = PyGILState_Ensure();
    PyObject *keys = key_list(batch), *answer = NULL;
    if (keys)
        answer = PyObject_CallMethod(s->backend, "batch_get", "OK", keys,
                                     (unsigned long long)batch->deadline_ns);
    for (uint32_t i = 0; answer && i < batch->count && !PyErr_Occurred(); i++) {
        PyObject *record = PySequence_GetItem(answer, i);
        bool done = record && record != Py_None &&
                    copy_record(record, batch->records[i], batch->record_bytes);
        if (batch->done) batch->done[i] = done;
        XDECREF(record);
    }
    rad_status status = PyErr_Occurred() ? to_words(err, "batch_get") : RAD_OK;
    XDECREF(answer);
    XDECREF(keys);
    PyGILState_Release(state);
    return status;
}

static rad_status set(void *self, const rad_storage_batch *batch, rad_error *err)
{
    py_storage *s = self;
    PyGILState_STATE state = PyGILState_Ensure();
    PyObject *keys = key_list(batch), *records = PyList_New(batch->count), *answer = NULL;
    for (uint32_t i = 0; records && i < batch->count; i++) {
        PyObject *record =
            PyBytes_FromStringAndSize(batch->records[i], (Py_ssize_t)batch->record_bytes);
        if (!record || PyList_SetItem(records, i, record)) Py_CLEAR(records);
    }
    if (keys && records)
        answer = PyObject_CallMethod(s->backend, "batch_set", "OOK", keys, records,
                                     (unsigned long long)batch->deadline_ns);
    for (uint32_t i = 0; answer && batch->done && i < batch->count && !PyErr_Occurred(); i++) {
        PyObject *one = answer == Py_None ? NULL : PySequence_GetItem(answer, i);
        batch->done[i] = answer == Py_None || (one && PyObject_IsTrue(one) == 1);
        XDECREF(one);
    }
    rad_status status = PyErr_Occurred() ? to_words(err, "batch_set") : RAD_OK;
    XDECREF(answer);
    XDECREF(records);
    XDECREF(keys);
    PyGILState_Release(state);
    return status;
}

static rad_status drop(void *self, const rad_storage_key *key, rad_error *err)
{
    py_storage *s = self;
    PyGILState_STATE state = PyGILState_Ensure();
    PyObject *answer = PyObject_CallMethod(s->backend, "remove", "y#", (const char *)key->bytes,
                                           (Py_ssize_t)sizeof key->bytes);
    rad_status status = answer ? RAD_OK : to_words(err, "remove");
    XDECREF(answer);
    PyGILState_Release(state);
    return status;
}

static rad_status plain(py_storage *s, const char *method, rad_error *err)
{
    PyGILState_STATE state = PyGILState_Ensure();
    PyObject *answer = PyObject_CallMethod(s->backend, method, NULL);
    rad_status status = answer ? RAD_OK : to_words(err, method);
    XDECREF(answer);
    PyGILState_Release(state);
    return status;
}

static rad_status clear(void *self, rad_error *err)
{
    return plain(self, "clear", err);
}

static rad_status flush(void *self, rad_error *err)
{
    return plain(self, "flush", err);
}

static void get_stats(void *self, rad_storage_stats *stats)
{
    static const struct {
        const char *name;
        size_t at;
    } fields[] = {
        {"pages", offsetof(rad_storage_stats, pages)},
        {"bytes", offsetof(rad_storage_stats, bytes)},
        {"max_bytes", offsetof(rad_storage_stats, max_bytes)},
        {"gets", offsetof(rad_storage_stats, gets)},
        {"hits", offsetof(rad_storage_stats, hits)},
        {"sets", offsetof(rad_storage_stats, sets)},
        {"evicted", offsetof(rad_storage_stats, evicted)},
    };
    py_storage *s = self;
    *stats = (rad_storage_stats){0};
    PyGILState_STATE state = PyGILState_Ensure();
    PyObject *answer = PyObject_CallMethod(s->backend, "stats", NULL);
    for (size_t i = 0; answer && i < COUNT_OF(fields); i++) {
        PyObject *value = PyMapping_GetItemString(answer, fields[i].name);
        PyErr_Clear();
        if (value)
            arg_u64(value, fields[i].name, (uint64_t *)(void *)((char *)stats + fields[i].at));
        PyErr_Clear();
        XDECREF(value);
    }
    PyErr_Clear();
    XDECREF(answer);
    PyGILState_Release(state);
}

static void leave_open(void *self)
{
    (void)self; /* whose the backend is closes it */
}

static void storage_gone(PyObject *capsule)
{
    py_storage *s = PyCapsule_GetPointer(capsule, "radish.storage");
    DECREF(s->backend);
    PyMem_Free(s);
}

static bool has(PyObject *backend, const char *method)
{
    return PyObject_HasAttrString(backend, method);
}

PyObject *storage_of(PyObject *backend, rad_storage *storage)
{
    static const char *const needed[] = {"batch_exists", "batch_get", "batch_set"};
    for (size_t i = 0; i < COUNT_OF(needed); i++) {
        if (has(backend, needed[i])) continue;
        PyErr_Format(PyExc_TypeError, "a storage backend needs the method %s(); %R has none",
                     needed[i], (PyObject *)Py_TYPE(backend));
        return NULL;
    }
    py_storage *s = PyMem_Calloc(1, sizeof *s);
    if (!s) return PyErr_NoMemory();
    INCREF(backend);
    s->backend = backend;
    PyObject *name =
        PyObject_GetAttrString(has(backend, "name") ? backend : (PyObject *)Py_TYPE(backend),
                               has(backend, "name") ? "name" : "__name__");
    const char *words = name && PyUnicode_Check(name) ? PyUnicode_AsUTF8AndSize(name, NULL) : NULL;
    snprintf(s->name, sizeof s->name, "%s", words ? words : "python");
    XDECREF(name);
    PyErr_Clear();
    s->ops = (rad_storage_ops){
        .struct_size = sizeof s->ops,
        .name = s->name,
        .batch_exists = exists,
        .batch_get = get,
        .batch_set = set,
        .remove = has(backend, "remove") ? drop : NULL,
        .clear = has(backend, "clear") ? clear : NULL,
        .flush = has(backend, "flush") ? flush : NULL,
        .get_stats = has(backend, "stats") ? get_stats : NULL,
        .close = leave_open,
    };
    PyObject *medium = has(backend, "medium") ? PyObject_GetAttrString(backend, "medium") : NULL;
    if (medium && PyUnicode_Check(medium) && !PyUnicode_CompareWithASCIIString(medium, "DISK"))
        s->ops.medium = RAD_STORAGE_DISK;
    XDECREF(medium);
    PyErr_Clear();
    PyObject *capsule = PyCapsule_New(s, "radish.storage", storage_gone);
    if (!capsule) {
        DECREF(backend);
        PyMem_Free(s);
        return NULL;
    }
    *storage = (rad_storage){&s->ops, s};
    return capsule;
}

bool storage_init(PyObject *module)
{
    return !PyModule_AddIntConstant(module, "STORAGE_HEADER_BYTES", RAD_STORAGE_HEADER_BYTES);
}
