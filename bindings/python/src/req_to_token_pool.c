/* req_to_token_pool.c - ReqToTokenPool: the rows of running requests. */
#include "python.h"

PyTypeObject *rows_type;

static const param rows_params[] = {
    {"num_rows", P_U32, offsetof(rad_req_to_token_pool_params, num_rows), NULL},
    {"row_tokens", P_U32, offsetof(rad_req_to_token_pool_params, row_tokens), NULL},
    {0},
};

static PyObject *rows_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    rad_req_to_token_pool_params p = {.struct_size = sizeof p};
    if (!params_read("ReqToTokenPool", args, kwargs, rows_params, 2, 2, NULL, &p, NULL))
        return NULL;
    rows_object *r = (rows_object *)PyType_GenericAlloc(type, 0);
    rad_error err;
    rad_status status = RAD_OK;
    if (r && handle_init(&r->h, "ReqToTokenPool"))
        status = rad_req_to_token_pool_create(module_env(), &p, &r->rows, &err);
    if (r && r->rows) return (PyObject *)r;
    XDECREF(r);
    return status ? raise_status(status, &err, NULL) : NULL;
}

static void rows_end(PyObject *self)
{
    rows_object *r = (rows_object *)self;
    rad_req_to_token_pool_destroy(r->rows);
    r->rows = NULL;
}

static void rows_dealloc(PyObject *self)
{
    handle_gone(self, rows_end);
}

static PyObject *rows_close(PyObject *self, PyObject *none)
{
    (void)none;
    return handle_close(self, rows_end);
}

static PyObject *rows_close_at_exit(PyObject *self, PyObject *args)
{
    return rows_close(self, args);
}

static PyObject *rows_alloc(PyObject *self, PyObject *none)
{
    (void)none;
    rows_object *r = (rows_object *)self;
    if (!handle_enter(&r->h, "alloc")) return NULL;
    rad_row row = 0;
    rad_status status = rad_req_to_token_alloc(r->rows, &row);
    handle_leave(&r->h);
    if (status) Py_RETURN_NONE;
    return PyLong_FromUnsignedLong(row);
}

static PyObject *rows_free(PyObject *self, PyObject *row_arg)
{
    rows_object *r = (rows_object *)self;
    uint32_t row = 0;
    if (!arg_u32(row_arg, "row", &row) || !handle_enter(&r->h, "free")) return NULL;
    rad_status status = rad_req_to_token_free(r->rows, row);
    handle_leave(&r->h);
    if (status) return raise_status(status, NULL, "ReqToTokenPool.free: the row is not handed out");
    Py_RETURN_NONE;
}

static PyObject *rows_row(PyObject *self, PyObject *row_arg)
{
    rows_object *r = (rows_object *)self;
    uint32_t row = 0;
    if (!arg_u32(row_arg, "row", &row) || !handle_enter(&r->h, "row")) return NULL;
    rad_slot *slots = rad_req_to_token_row(r->rows, row);
    Py_ssize_t shape = rad_req_to_token_row_tokens(r->rows), stride = sizeof *slots;
    handle_leave(&r->h);
    if (!slots) {
        PyErr_Format(PyExc_IndexError, "ReqToTokenPool.row: there is no row %u", row);
        return NULL;
    }
    return array_view(self, E_I32, slots, 1, &shape, &stride, false);
}

static PyObject *rows_is_taken(PyObject *self, PyObject *row_arg)
{
    rows_object *r = (rows_object *)self;
    uint32_t row = 0;
    if (!arg_u32(row_arg, "row", &row) || !handle_enter(&r->h, "is_taken")) return NULL;
    int answer = rad_req_to_token_is_taken(r->rows, row);
    handle_leave(&r->h);
    return PyBool_FromLong(answer);
}

static PyObject *rows_check(PyObject *self, PyObject *none)
{
    (void)none;
    rows_object *r = (rows_object *)self;
    if (!handle_enter(&r->h, "check")) return NULL;
    rad_error err;
    rad_status status = rad_req_to_token_check(r->rows, &err);
    handle_leave(&r->h);
    if (status) return raise_status(status, &err, "ReqToTokenPool.check");
    Py_RETURN_NONE;
}

static PyObject *rows_get(PyObject *self, void *what)
{
    rows_object *r = (rows_object *)self;
    if (!handle_enter(&r->h, "a property")) return NULL;
    uint32_t n = !what                 ? rad_req_to_token_num_rows(r->rows)
                 : (intptr_t)what == 1 ? rad_req_to_token_row_tokens(r->rows)
                                       : rad_req_to_token_available(r->rows);
    handle_leave(&r->h);
    return PyLong_FromUnsignedLong(n);
}

static PyObject *rows_table(PyObject *self, void *closure)
{
    (void)closure;
    rows_object *r = (rows_object *)self;
    if (!handle_enter(&r->h, "table")) return NULL;
    rad_slot *first = rad_req_to_token_row(r->rows, 0), *second = rad_req_to_token_row(r->rows, 1);
    Py_ssize_t shape[2] = {(Py_ssize_t)rad_req_to_token_num_rows(r->rows) + 1,
                           rad_req_to_token_row_tokens(r->rows)};
    Py_ssize_t strides[2] = {(char *)second - (char *)first, sizeof *first};
    handle_leave(&r->h);
    return array_view(self, E_I32, first, 2, shape, strides, false);
}

static PyMethodDef rows_methods[] = {
    {"alloc", rows_alloc, METH_NOARGS, "alloc() -> int | None\n\nTakes a row; None: none is left."},
    {"free", rows_free, METH_O, "free(row) -> None"},
    {"row", rows_row, METH_O,
     "row(row) -> Array\n\nThe row's slots, int32, where they are: writing to it writes the row."},
    {"is_taken", rows_is_taken, METH_O, "is_taken(row) -> bool"},
    {"check", rows_check, METH_NOARGS, "check() -> None"},
    HANDLE_CALLS(rows_close),
    {0},
};

static PyGetSetDef rows_getters[] = {
    {"num_rows", rows_get, NULL, "Rows to hand out.", (void *)0},
    {"row_tokens", rows_get, NULL, "Tokens of the longest request.", (void *)1},
    {"available", rows_get, NULL, "Rows that are free.", (void *)2},
    {"table", rows_table, NULL,
     "All rows as one matrix of int32, where it is: what SGLang calls req_to_token. Row 0 is the "
     "dummy.",
     NULL},
    HANDLE_CLOSED,
    {0},
};

static PyType_Slot rows_slots[] = {
    {Py_tp_doc, "ReqToTokenPool(num_rows, row_tokens)\n\nA row for each running request: row[i] is "
                "the slot of its position i."},
    {Py_tp_new, rows_new},
    {Py_tp_dealloc, rows_dealloc},
    {Py_tp_methods, rows_methods},
    {Py_tp_getset, rows_getters},
    {0},
};
static PyType_Spec rows_spec = {"radish.ReqToTokenPool", sizeof(rows_object), 0,
                                Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, rows_slots};

bool req_to_token_pool_init(PyObject *module)
{
    return add_type(module, &rows_spec, NULL, &rows_type);
}
