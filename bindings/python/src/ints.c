/* ints.c - token ids and slots, from and to whatever holds int32 or int64.
 *
 * The library's integers are int32. What a caller has is looked at in this order:
 *
 *     the buffer protocol     numpy, array, memoryview, Array; int32 is used where it lies
 *     data_ptr()              torch tensors on the CPU; likewise
 *     __dlpack__()            others; likewise
 *     a sequence of ints      list, tuple, range; copied
 *
 * int64 is narrowed into a copy and checked on the way, 4 values an instruction. torch has no
 * buffer protocol; asking a tensor for its pointer, length and type takes six calls of some 50 ns,
 * a capsule of its __dlpack__ (which is written in Python) some microseconds. */
#include "python.h"

#include <string.h>

static PyObject *torch_int32, *torch_int64;

/* A word for looking up an attribute, made once. */
#define WORD(variable, text)                                                                       \
    static PyObject *variable;                                                                     \
    if (!variable && !(variable = PyUnicode_InternFromString(text))) return false

static bool know_torch(void)
{
    if (torch_int32) return true;
    PyObject *torch = PyImport_ImportModule("torch"); /* there is a tensor, so it is loaded */
    if (!torch) return false;
    torch_int64 = PyObject_GetAttrString(torch, "int64");
    torch_int32 = torch_int64 ? PyObject_GetAttrString(torch, "int32") : NULL;
    DECREF(torch);
    return torch_int32 != NULL;
}

/* Bytes of an integer of a buffer's format, 0 for what is none of ours. */
static int integer_bytes(const Py_buffer *view)
{
    const char *f = view->format ? view->format : "B";
    if (*f == '@' || *f == '=' || *f == '<')
        f++; /* all machines that we run on are little-endian */
    if (!*f || f[1] || !strchr("ilqILQnN", *f)) return 0;
    return view->itemsize == 4 || view->itemsize == 8 ? (int)view->itemsize : 0;
}

/* `bytes` of an element: 4 or 8. */
typedef struct ints_seen {
    void *data;
    Py_ssize_t count;
    int bytes;
} ints_seen;

static bool see_buffer(PyObject *from, const char *name, bool writable, Py_buffer *view,
                       ints_seen *seen)
{
    int flags = PyBUF_FORMAT | PyBUF_ND | (writable ? PyBUF_WRITABLE : 0);
    if (PyObject_GetBuffer(from, view, flags)) {
        PyObject *type, *value, *trace;
        PyErr_Fetch(&type, &value, &trace);
        PyErr_Format(PyExc_TypeError, "%s: %S (a contiguous%s array is needed)", name,
                     value ? value : type, writable ? ", writable" : "");
        XDECREF(type);
        XDECREF(value);
        XDECREF(trace);
        return false;
    }
    int bytes = integer_bytes(view);
    if (!bytes || view->ndim != 1) {
        PyErr_Format(PyExc_TypeError,
                     "%s: format '%s' in %d dimensions: it must be one row of int32 or int64", name,
                     view->format ? view->format : "B", view->ndim);
        PyBuffer_Release(view);
        return false;
    }
    *seen = (ints_seen){view->buf, view->len / view->itemsize, bytes};
    return true;
}

static bool ask_number(PyObject *tensor, PyObject *method, Py_ssize_t *out)
{
    PyObject *number = PyObject_CallMethodObjArgs(tensor, method, NULL);
    if (!number) return false;
    *out = (Py_ssize_t)PyLong_AsUnsignedLongLong(number);
    DECREF(number);
    return !PyErr_Occurred();
}

static bool see_tensor(PyObject *from, const char *name, ints_seen *seen)
{
    WORD(data_ptr, "data_ptr");
    WORD(dtype, "dtype");
    WORD(is_cpu, "is_cpu");
    WORD(is_contiguous, "is_contiguous");
    WORD(dim, "dim");
    WORD(numel, "numel");
    if (!know_torch()) return false;

    PyObject *flag = PyObject_GetAttr(from, is_cpu);
    if (!flag) return false;
    bool on_cpu = flag == Py_True;
    DECREF(flag);
    if (!on_cpu) {
        PyErr_Format(PyExc_TypeError,
                     "%s: the tensor is not in the host's memory, where the tree is: pass a copy "
                     "on the CPU, pinned if it is copied often",
                     name);
        return false;
    }
    PyObject *type = PyObject_GetAttr(from, dtype);
    if (!type) return false;
    seen->bytes = type == torch_int64 ? 8 : type == torch_int32 ? 4 : 0;
    if (!seen->bytes)
        PyErr_Format(PyExc_TypeError, "%s: a tensor of %S: it must be int32 or int64", name, type);
    DECREF(type);
    if (!seen->bytes) return false;

    Py_ssize_t dims, address;
    PyObject *together = PyObject_CallMethodObjArgs(from, is_contiguous, NULL);
    if (!together || !ask_number(from, dim, &dims)) {
        XDECREF(together);
        return false;
    }
    bool row = together == Py_True && dims == 1;
    DECREF(together);
    if (!row) {
        PyErr_Format(PyExc_TypeError,
                     "%s: the tensor has %zd dimensions or gaps: it must be one contiguous row",
                     name, dims);
        return false;
    }
    if (!ask_number(from, numel, &seen->count) || !ask_number(from, data_ptr, &address))
        return false;
    seen->data = (void *)address;
    return true;
}

/* ---- DLPack, as its specification draws the structs ---- */

typedef struct dl_tensor {
    void *data;
    struct {
        int32_t type, id;
    } device;
    int32_t ndim;
    struct {
        uint8_t code, bits;
        uint16_t lanes;
    } dtype;
    int64_t *shape, *strides;
    uint64_t byte_offset;
} dl_tensor;

static bool see_capsule(PyObject *from, const char *name, PyObject **keeps, ints_seen *seen)
{
    PyObject *capsule = PyObject_CallMethod(from, "__dlpack__", NULL);
    if (!capsule) return false;
    const dl_tensor *t = PyCapsule_GetPointer(capsule, "dltensor");
    if (!t) {
        DECREF(capsule);
        return false;
    }
    bool ours = t->device.type == 1 && t->ndim == 1 && t->dtype.code <= 1 && t->dtype.lanes == 1 &&
                (t->dtype.bits == 32 || t->dtype.bits == 64) &&
                (!t->strides || t->strides[0] == 1 || t->shape[0] < 2);
    if (!ours) {
        DECREF(capsule);
        PyErr_Format(
            PyExc_TypeError,
            "%s: what its __dlpack__ gives must be one contiguous row of int32 or int64 in "
            "the host's memory",
            name);
        return false;
    }
    *seen = (ints_seen){(char *)t->data + t->byte_offset, t->shape[0], t->dtype.bits / 8};
    *keeps = capsule; /* not renamed: its destructor gives the memory back */
    return true;
}

static bool has(PyObject *from, const char *attribute)
{
    return PyObject_HasAttrString(from, attribute);
}

/* Where the integers lie. 1: seen; 0: it is none of these, no exception; -1: an exception. */
static int see(PyObject *from, const char *name, bool writable, Py_buffer *view, bool *viewed,
               PyObject **keeps, ints_seen *seen)
{
    if (PyObject_CheckBuffer(from)) {
        *viewed = see_buffer(from, name, writable, view, seen);
        return *viewed ? 1 : -1;
    }
    if (PyList_Check(from) || PyTuple_Check(from)) return 0;
    if (has(from, "data_ptr")) {
        if (!see_tensor(from, name, seen)) return -1;
        INCREF(from);
        *keeps = from;
        return 1;
    }
    if (!writable && has(from, "__dlpack__")) return see_capsule(from, name, keeps, seen) ? 1 : -1;
    return 0;
}

/* ---- in ---- */

static bool bad_value(const char *name, ints_what what, Py_ssize_t at, long long value)
{
    const char *must = what == INTS_TOKENS  ? "token ids are 0 to 2**31 - 1"
                       : what == INTS_SLOTS ? "slots and pages are below 2**31"
                                            : "lengths are 0 to 2**31 - 1";
    PyErr_Format(PyExc_ValueError, "%s[%zd] is %lld: %s", name, at, value, must);
    return false;
}

/* Slots and last places may be -1 (nothing before); the library says what is wrong with them. Of
 * `from` into `to`; where the first stands that is out of its limits, `count` if none. */
static Py_ssize_t narrow(const int64_t *from, Py_ssize_t count, int32_t *to, ints_what what)
{
    uint64_t all = 0;
    for (Py_ssize_t i = 0; i < count; i++) {
        to[i] = (int32_t)from[i];
        all |= (uint64_t)from[i];
    }
    if (all <= INT32_MAX) return count;
    int64_t least = what == INTS_SLOTS ? INT32_MIN : 0;
    for (Py_ssize_t i = 0; i < count; i++)
        if (from[i] < least || from[i] > INT32_MAX) return i;
    return count;
}

static Py_ssize_t first_negative(const int32_t *data, Py_ssize_t count, ints_what what)
{
    int32_t all = 0;
    for (Py_ssize_t i = 0; i < count; i++)
        all |= data[i];
    if (all >= 0 || what == INTS_SLOTS) return count;
    for (Py_ssize_t i = 0; i < count; i++)
        if (data[i] < 0) return i;
    return count;
}

static int32_t *copy_place(int32_t *few, int32_t **copy, Py_ssize_t count)
{
    if (count <= (Py_ssize_t)COUNT_OF(((ints_in *)0)->few)) return few;
    *copy = malloc((size_t)count * sizeof(int32_t));
    if (!*copy) PyErr_NoMemory();
    return *copy;
}

/* Any sequence's; what is past an int64 comes as the nearest one. */
static bool take_item(PyObject *from, Py_ssize_t i, long long *value)
{
    PyObject *item = PyList_Check(from) ? PyList_GetItem(from, i) : NULL; /* borrowed */
    int over = 0;
    if (item && Py_TYPE(item) == &PyLong_Type) { /* runs no code of anybody's */
        *value = PyLong_AsLongLongAndOverflow(item, &over);
    } else {
        PyErr_Clear();
        item = PySequence_GetItem(from, i);
        PyObject *number = item ? PyNumber_Index(item) : NULL;
        XDECREF(item);
        if (!number) return false;
        *value = PyLong_AsLongLongAndOverflow(number, &over);
        DECREF(number);
    }
    if (over) *value = over > 0 ? INT64_MAX : INT64_MIN;
    return true;
}

/* The first entries of a list that are plain ints of 31 bits, as tokens are: how many. Nothing of
 * Python's code runs, so the list stays as it is. */
static Py_ssize_t take_plain(PyObject *list, Py_ssize_t count, int32_t *to)
{
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *item = PyList_GetItem(list, i); /* borrowed */
        if (Py_TYPE(item) != &PyLong_Type) return i;
        int over;
        long value = PyLong_AsLongAndOverflow(item, &over);
        if (value < 0 || value > INT32_MAX) return i; /* over: it is -1 */
        to[i] = (int32_t)value;
    }
    return count;
}

static bool take_sequence(PyObject *from, const char *name, ints_what what, ints_in *in)
{
    if (!PySequence_Check(from) || PyUnicode_Check(from)) {
        PyErr_Format(PyExc_TypeError, "%s must be an array, a tensor or a sequence of ints, not %R",
                     name, (PyObject *)Py_TYPE(from));
        return false;
    }
    in->count = PySequence_Size(from);
    if (in->count < 0) return false;
    int32_t *to = copy_place(in->few, &in->copy, in->count);
    if (!to) return false;
    for (Py_ssize_t i = PyList_Check(from) ? take_plain(from, in->count, to) : 0; i < in->count;
         i++) {
        long long value;
        if (!take_item(from, i, &value)) {
            PyErr_Clear();
            PyErr_Format(PyExc_TypeError, "%s[%zd] is not an int", name, i);
            return false;
        }
        if (value < (what == INTS_SLOTS ? INT32_MIN : 0) || value > INT32_MAX)
            return bad_value(name, what, i, value);
        to[i] = (int32_t)value;
    }
    in->data = to;
    return true;
}

bool ints_take(PyObject *from, const char *name, ints_what what, ints_in *in)
{
    in->copy = NULL;
    in->keeps = NULL;
    in->viewed = false;
    ints_seen seen;
    int how = see(from, name, false, &in->view, &in->viewed, &in->keeps, &seen);
    bool good = how > 0;
    if (how == 0) {
        good = take_sequence(from, name, what, in);
    } else if (good && seen.count > UINT32_MAX) {
        PyErr_Format(PyExc_OverflowError, "%s: %zd integers are more than 2**32", name, seen.count);
        good = false;
    } else if (good) {
        Py_ssize_t fine = 0;
        in->count = seen.count;
        int32_t *to = seen.bytes == 4 ? seen.data : copy_place(in->few, &in->copy, seen.count);
        in->data = to;
        if (to && seen.bytes == 4)
            LONG_CALL(seen.count >= LONG_TOKENS, fine = first_negative(to, seen.count, what));
        else if (to)
            LONG_CALL(seen.count >= LONG_TOKENS, fine = narrow(seen.data, seen.count, to, what));
        good = to && fine == seen.count;
        if (to && !good)
            bad_value(name, what, fine,
                      seen.bytes == 4 ? to[fine] : ((const int64_t *)seen.data)[fine]);
    }
    if (!good) ints_give_back(in);
    return good;
}

void ints_give_back(ints_in *in)
{
    if (in->viewed) PyBuffer_Release(&in->view);
    if (in->copy) free(in->copy);
    XDECREF(in->keeps);
    in->viewed = false;
    in->copy = NULL;
    in->keeps = NULL;
}

/* ---- a row of a matrix ---- */

/* What a matrix must be, and where its rows are. */
typedef struct matrix {
    char *data;
    long long rows, columns, step, next; /* step, next: bytes */
} matrix;

static bool see_matrix_tensor(PyObject *from, matrix *m)
{
    WORD(data_ptr, "data_ptr");
    WORD(dtype, "dtype");
    WORD(is_cpu, "is_cpu");
    WORD(shape, "shape");
    WORD(stride, "stride");
    if (!know_torch()) return false;
    PyObject *flag = PyObject_GetAttr(from, is_cpu), *type = PyObject_GetAttr(from, dtype);
    PyObject *lengths = PyObject_GetAttr(from, shape);
    PyObject *steps = PyObject_CallMethodObjArgs(from, stride, NULL);
    Py_ssize_t address = 0;
    if (flag == Py_True && type == torch_int32 && lengths && steps && PyTuple_Check(lengths) &&
        PyTuple_Check(steps) && PyTuple_Size(lengths) == 2 && PyTuple_Size(steps) == 2 &&
        ask_number(from, data_ptr, &address)) {
        m->rows = PyLong_AsLongLong(PyTuple_GetItem(lengths, 0));
        m->columns = PyLong_AsLongLong(PyTuple_GetItem(lengths, 1));
        m->step = PyLong_AsLongLong(PyTuple_GetItem(steps, 0)) * 4;
        m->next = PyLong_AsLongLong(PyTuple_GetItem(steps, 1)) * 4;
        m->data = (char *)address;
    }
    XDECREF(flag);
    XDECREF(type);
    XDECREF(lengths);
    XDECREF(steps);
    return !PyErr_Occurred();
}

static bool see_matrix_buffer(PyObject *from, Py_buffer *view, matrix *m)
{
    if (PyObject_GetBuffer(from, view, PyBUF_FORMAT | PyBUF_STRIDES | PyBUF_WRITABLE)) return false;
    if (integer_bytes(view) == 4 && view->ndim == 2)
        *m =
            (matrix){view->buf, view->shape[0], view->shape[1], view->strides[0], view->strides[1]};
    return true;
}

bool ints_row_begin(PyObject *table, PyObject *index_arg, Py_ssize_t count, ints_row *row)
{
    uint32_t index = 0;
    matrix m = {0};
    bool viewed = PyObject_CheckBuffer(table);
    row->keeps = NULL;
    if (!arg_u32(index_arg, "row", &index)) return false;
    if (viewed ? !see_matrix_buffer(table, &row->view, &m)
               : has(table, "data_ptr") && !see_matrix_tensor(table, &m))
        return false;
    if (m.next != 4) {
        PyErr_Format(PyExc_TypeError,
                     "table must be a writable matrix of int32 in the host's memory (numpy, torch, "
                     "Array), its rows without gaps; this %R is none",
                     (PyObject *)Py_TYPE(table));
    } else if (index >= m.rows || count > m.columns) {
        PyErr_Format(PyExc_IndexError, "table[%u] with %zd slots: it has %lld rows of %lld", index,
                     count, m.rows, m.columns);
    } else {
        row->data = (int32_t *)(void *)(m.data + index * m.step);
        if (!viewed) INCREF(table);
        row->keeps = viewed ? NULL : table;
        return true;
    }
    if (viewed) PyBuffer_Release(&row->view);
    return false;
}

void ints_row_end(ints_row *row)
{
    if (row->keeps)
        DECREF(row->keeps);
    else
        PyBuffer_Release(&row->view);
}

/* ---- out ---- */

bool arg_wide(PyObject *dtype)
{
    return dtype && PyUnicode_Check(dtype) && !PyUnicode_CompareWithASCIIString(dtype, "int64");
}

PyObject *arg_into(PyObject *into)
{
    return into == Py_None ? NULL : into;
}

static int new_one(PyObject *into)
{
    if (!into) return 4;
    if (!PyUnicode_Check(into)) return 0;
    if (arg_wide(into)) return 8;
    if (!PyUnicode_CompareWithASCIIString(into, "int32")) return 4;
    return 0;
}

bool ints_place(PyObject *into, const char *name, Py_ssize_t room, ints_out *out)
{
    out->wide = NULL;
    out->copy = NULL;
    out->keeps = out->fresh = NULL;
    out->viewed = out->is_fresh = out->fresh_wide = false;
    out->room = room;
    int fresh = new_one(into);
    if (fresh) {
        out->is_fresh = true;
        out->fresh_wide = fresh == 8;
        out->data = copy_place(out->few, &out->copy, room);
        return out->data != NULL;
    }
    ints_seen seen;
    int how = see(into, name, true, &out->view, &out->viewed, &out->keeps, &seen);
    if (how == 0)
        PyErr_Format(PyExc_TypeError,
                     "%s must be a writable array or tensor of int32 or int64, or \"int32\" or "
                     "\"int64\" for a new one, not %R",
                     name, (PyObject *)Py_TYPE(into));
    bool good = how > 0;
    if (good && seen.count < room) {
        PyErr_Format(PyExc_ValueError, "%s has room for %zd, and there may be %zd", name,
                     seen.count, room);
        good = false;
    }
    if (good && seen.bytes == 4) {
        out->data = seen.data;
    } else if (good) {
        out->wide = seen.data;
        out->data = copy_place(out->few, &out->copy, room);
        good = out->data != NULL;
    }
    if (!good) ints_drop(out);
    return good;
}

static void widen(const int32_t *from, Py_ssize_t count, int64_t *to)
{
    for (Py_ssize_t i = 0; i < count; i++)
        to[i] = from[i];
}

PyObject *ints_array(const int32_t *from, Py_ssize_t count, bool wide)
{
    void *to;
    PyObject *result = array_new(wide ? E_I64 : E_I32, count, &to);
    if (result && wide)
        widen(from, count, to);
    else if (result && count)
        memcpy(to, from, (size_t)count * sizeof *from);
    return result;
}

PyObject *ints_of_pages(const rad_page *pages, Py_ssize_t count, uint32_t page_size, bool wide)
{
    void *to;
    PyObject *result = array_new(wide ? E_I64 : E_I32, count * page_size, &to);
    int32_t *slots = to;
    int64_t *wide_slots = to;
    for (Py_ssize_t i = 0; result && i < count; i++) {
        for (uint32_t j = 0; j < page_size; j++) {
            rad_slot slot = pages[i] * (int32_t)page_size + (int32_t)j;
            if (wide)
                *wide_slots++ = slot;
            else
                *slots++ = slot;
        }
    }
    return result;
}

void ints_drop(ints_out *out)
{
    if (out->viewed) PyBuffer_Release(&out->view);
    if (out->copy) free(out->copy);
    XDECREF(out->keeps);
    out->viewed = false;
    out->copy = NULL;
    out->keeps = NULL;
}

PyObject *ints_done(ints_out *out, PyObject *into, Py_ssize_t count)
{
    PyObject *result = into;
    if (out->is_fresh) {
        result = ints_array(out->data, count, out->fresh_wide);
    } else {
        if (out->wide) widen(out->data, count, out->wide);
        INCREF(result);
    }
    ints_drop(out);
    return result;
}

PyObject *ints_told(ints_out *out, PyObject *into, Py_ssize_t count, rad_status status,
                    const rad_error *err, const char *what)
{
    if (status == RAD_OK) return ints_done(out, into, count);
    ints_drop(out);
    if (status == RAD_FULL) Py_RETURN_NONE;
    return raise_status(status, err, what);
}
