/* args.c - arguments by place and by name, numbers with their limits. */
#include "python.h"

#include <string.h>

static int find_name(signature *s, PyObject *name)
{
    int n = 0;
    for (; s->names[n]; n++) {
        if (!s->interned[n]) s->interned[n] = PyUnicode_InternFromString(s->names[n]);
        if (s->interned[n] == name) return n; /* names in source code are interned */
    }
    PyErr_Clear();
    for (n = 0; s->names[n]; n++)
        if (PyUnicode_CompareWithASCIIString(name, s->names[n]) == 0) return n;
    return -1;
}

bool args_read(signature *s, fast_args args, Py_ssize_t nargs, PyObject *kwnames, PyObject **out)
{
    if (nargs > s->positional) {
        PyErr_Format(PyExc_TypeError, "%s() takes %d arguments by place (%zd given)", s->call,
                     s->positional, nargs);
        return false;
    }
    int count = 0;
    while (s->names[count])
        count++;
    for (int i = 0; i < count; i++)
        out[i] = i < nargs ? args[i] : NULL;
    Py_ssize_t named = kwnames ? PyTuple_Size(kwnames) : 0;
    for (Py_ssize_t i = 0; i < named; i++) {
        PyObject *name = PyTuple_GetItem(kwnames, i);
        int at = find_name(s, name);
        if (at < 0 || out[at]) {
            PyErr_Format(PyExc_TypeError, "%s() got %s argument %R", s->call,
                         at < 0 ? "an unknown" : "twice the", name);
            return false;
        }
        out[at] = args[nargs + i];
    }
    for (int i = 0; i < s->required; i++) {
        if (!out[i]) {
            PyErr_Format(PyExc_TypeError, "%s() lacks the argument '%s'", s->call, s->names[i]);
            return false;
        }
    }
    return true;
}

/* An int, or what says that it is one (numpy.int64, a tensor of one number). */
static bool whole_number(PyObject *value, const char *name, PyObject **number)
{
    if (PyLong_Check(value)) {
        INCREF(value);
        *number = value;
        return true;
    }
    *number = PyNumber_Index(value);
    if (*number) return true;
    PyErr_Clear();
    PyErr_Format(PyExc_TypeError, "%s must be an int, not %R", name, (PyObject *)Py_TYPE(value));
    return false;
}

static bool in_limits(PyObject *value, const char *name, long long least, long long most,
                      long long *out)
{
    PyObject *number;
    if (!whole_number(value, name, &number)) return false;
    int over = 0;
    *out = PyLong_AsLongLongAndOverflow(number, &over);
    bool good = !over && *out >= least && *out <= most;
    if (!good && !PyErr_Occurred())
        PyErr_Format(PyExc_OverflowError, "%s is %S: it must be %lld to %lld", name, number, least,
                     most);
    DECREF(number);
    return good;
}

bool arg_u32(PyObject *value, const char *name, uint32_t *out)
{
    long long number;
    if (!value) return true;
    if (!in_limits(value, name, 0, UINT32_MAX, &number)) return false;
    *out = (uint32_t)number;
    return true;
}

bool arg_i32(PyObject *value, const char *name, int32_t *out)
{
    long long number;
    if (!value) return true;
    if (!in_limits(value, name, INT32_MIN, INT32_MAX, &number)) return false;
    *out = (int32_t)number;
    return true;
}

bool arg_u64(PyObject *value, const char *name, uint64_t *out)
{
    PyObject *number;
    if (!value) return true;
    if (!whole_number(value, name, &number)) return false;
    *out = PyLong_AsUnsignedLongLong(number);
    DECREF(number);
    if (*out != (uint64_t)-1 || !PyErr_Occurred()) return true;
    PyErr_Clear();
    PyErr_Format(PyExc_OverflowError, "%s is %S: it must be 0 to 2**64 - 1", name, value);
    return false;
}

bool arg_flag(PyObject *value, uint32_t *out)
{
    if (!value) return true;
    int truth = PyObject_IsTrue(value);
    if (truth < 0) return false;
    *out = (uint32_t)truth;
    return true;
}

bool arg_name(PyObject *value, const char *name, const char **out)
{
    *out = NULL;
    if (!value || value == Py_None) return true;
    Py_ssize_t bytes = 0;
    char *text;
    if (PyBytes_Check(value)) {
        if (PyBytes_AsStringAndSize(value, &text, &bytes)) return false;
        *out = text;
    } else if (PyUnicode_Check(value)) {
        *out = PyUnicode_AsUTF8AndSize(value, &bytes);
        if (!*out) return false;
    } else {
        PyErr_Format(PyExc_TypeError, "%s must be str, bytes or None, not %R", name,
                     (PyObject *)Py_TYPE(value));
        return false;
    }
    if (strlen(*out) == (size_t)bytes) return true;
    PyErr_Format(PyExc_ValueError, "%s has a zero byte in it", name);
    return false;
}

PyObject *node_new(rad_ref node)
{
    return PyLong_FromUnsignedLongLong(((uint64_t)node.generation << 32) | node.index);
}

bool arg_ref(PyObject *value, const char *name, rad_ref *out)
{
    uint64_t number = 0;
    *out = (rad_ref){0, 0};
    if (!value || value == Py_None) return true;
    if (!arg_u64(value, name, &number)) return false;
    *out = (rad_ref){(uint32_t)number, (uint32_t)(number >> 32)};
    return true;
}

bool name_to_number(PyObject *value, const char *what, const char *const *names, uint32_t *out)
{
    if (!value || value == Py_None) return true;
    if (PyUnicode_Check(value)) {
        for (uint32_t i = 0; names[i]; i++) {
            if (PyUnicode_CompareWithASCIIString(value, names[i])) continue;
            *out = i;
            return true;
        }
    }
    PyObject *list = PyUnicode_FromString("");
    for (uint32_t i = 0; list && names[i]; i++) {
        PyObject *longer = PyUnicode_FromFormat(i ? "%U, %s" : "%U%s", list, names[i]);
        DECREF(list);
        list = longer;
    }
    if (list) PyErr_Format(PyExc_ValueError, "%s: %R is none of: %U", what, value, list);
    XDECREF(list);
    return false;
}

static bool read_one(const param *p, PyObject *value, void *params, PyObject **objects)
{
    void *into = (char *)params + p->at;
    if (p->kind == P_OBJECT) {
        objects[p->at] = value == Py_None ? NULL : value;
        return true;
    }
    if (value == Py_None && p->kind != P_FLAG) return true;
    switch (p->kind) {
    case P_U32: return arg_u32(value, p->name, into);
    case P_U64: return arg_u64(value, p->name, into);
    case P_I32: return arg_i32(value, p->name, into);
    case P_FLAG: return arg_flag(value, into);
    case P_TEXT: return arg_name(value, p->name, into);
    case P_NAME: return name_to_number(value, p->name, p->names, into);
    case P_F64: *(double *)into = PyFloat_AsDouble(value); return !PyErr_Occurred();
    case P_SIZE: {
        uint64_t wide = 0;
        if (!arg_u64(value, p->name, &wide)) return false;
        *(size_t *)into = (size_t)wide;
        return true;
    }
    default: return true;
    }
}

static const param *find_param(const param *table, PyObject *name)
{
    for (; table && table->name; table++)
        if (PyUnicode_CompareWithASCIIString(name, table->name) == 0) return table;
    return NULL;
}

bool params_read(const char *noun, PyObject *args, PyObject *kwargs, const param *table,
                 int required, int positional, const param *others, void *params,
                 PyObject **objects)
{
    Py_ssize_t places = args ? PyTuple_Size(args) : 0;
    if (places > positional) {
        PyErr_Format(PyExc_TypeError, "%s() takes %d arguments by place (%zd given)", noun,
                     positional, places);
        return false;
    }
    for (Py_ssize_t i = 0; i < places; i++)
        if (!read_one(&table[i], PyTuple_GetItem(args, i), params, objects)) return false;
    uint64_t came = places >= 64 ? UINT64_MAX : ((uint64_t)1 << places) - 1;
    PyObject *name, *value;
    Py_ssize_t at = 0;
    while (kwargs && PyDict_Next(kwargs, &at, &name, &value)) {
        const param *p = find_param(table, name);
        if (!p && find_param(others, name)) continue;
        if (!p || p - table < places) {
            PyErr_Format(PyExc_TypeError, "%s() got %s argument %R", noun,
                         p ? "twice the" : "an unknown", name);
            return false;
        }
        came |= (uint64_t)1 << (p - table);
        if (!read_one(p, value, params, objects)) return false;
    }
    for (int i = 0; i < required; i++) {
        if (came >> i & 1) continue;
        PyErr_Format(PyExc_TypeError, "%s() lacks the argument '%s'", noun, table[i].name);
        return false;
    }
    return true;
}
