/* record.c - structs of the library as named tuples, by a table of their fields. */
#include "python.h"

PyTypeObject *record_type(PyObject *module, const char *name, const char *doc,
                          const record_field *fields, const char *const *extra)
{
    enum { MOST_FIELDS = 64 };
    PyStructSequence_Field all[MOST_FIELDS + 1] = {0};
    int count = 0;
    for (; fields && fields[count].name; count++)
        all[count] = (PyStructSequence_Field){fields[count].name, fields[count].doc};
    for (int i = 0; extra && extra[i]; i++)
        all[count++] = (PyStructSequence_Field){extra[i], NULL};
    PyStructSequence_Desc desc = {name, doc, all, count};
    PyTypeObject *type = PyStructSequence_NewType(&desc);
    const char *bare = name + sizeof "radish." - 1;
    if (type && PyModule_AddObjectRef(module, bare, (PyObject *)type)) Py_CLEAR(type);
    return type;
}

static PyObject *value_of(const record_field *f, const char *from)
{
    const void *at = from + f->offset;
    switch (f->kind) {
    case F_U32: return PyLong_FromUnsignedLong(*(const uint32_t *)at);
    case F_U64: return PyLong_FromUnsignedLongLong(*(const uint64_t *)at);
    case F_I32: return PyLong_FromLong(*(const int32_t *)at);
    case F_I64: return PyLong_FromLongLong(*(const int64_t *)at);
    case F_F64: return PyFloat_FromDouble(*(const double *)at);
    case F_SIZE: return PyLong_FromSize_t(*(const size_t *)at);
    case F_FLAG: return PyBool_FromLong(*(const uint32_t *)at != 0);
    case F_REF: return node_new(*(const rad_ref *)at);
    case F_NAME: return PyUnicode_FromString(f->names[*(const uint32_t *)at]);
    case F_TEXT:
        if (*(const char *const *)at) return PyUnicode_FromString(*(const char *const *)at);
        Py_RETURN_NONE;
    }
    return NULL;
}

PyObject *record_new(PyTypeObject *type, const record_field *fields, const void *from)
{
    PyObject *record = PyStructSequence_New(type);
    for (int i = 0; record && fields && fields[i].name; i++) {
        PyObject *value = value_of(&fields[i], from);
        if (value)
            PyStructSequence_SetItem(record, i, value);
        else
            Py_CLEAR(record);
    }
    return record;
}

void record_set(PyObject *record, const record_field *fields, int extra, PyObject *value)
{
    int first = 0;
    while (fields && fields[first].name)
        first++;
    PyStructSequence_SetItem(record, first + extra, value);
}
