/* kv_allocator.c - KVAllocator: who has which pages. */
#include "python.h"

PyTypeObject *kv_type;

static const param kv_params[] = {
    {"num_pages", P_U32, offsetof(rad_kv_allocator_params, num_pages), NULL},
    {"page_size", P_U32, offsetof(rad_kv_allocator_params, page_size), NULL},
    {"need_sort", P_FLAG, offsetof(rad_kv_allocator_params, need_sort), NULL},
    {"swa_num_pages", P_U32, offsetof(rad_kv_allocator_params, swa_num_pages), NULL},
    {0},
};

static PyObject *kv_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    rad_kv_allocator_params p = {.struct_size = sizeof p};
    if (!params_read("KVAllocator", args, kwargs, kv_params, 1, 2, NULL, &p, NULL)) return NULL;
    kv_object *k = (kv_object *)PyType_GenericAlloc(type, 0);
    rad_error err;
    rad_status status = RAD_OK;
    if (k && handle_init(&k->h, "KVAllocator"))
        status = rad_kv_allocator_create(module_env(), &p, &k->kv, &err);
    if (k && k->kv) return (PyObject *)k;
    XDECREF(k);
    return status ? raise_status(status, &err, NULL) : NULL;
}

static void kv_end(PyObject *self)
{
    kv_object *k = (kv_object *)self;
    rad_kv_allocator_destroy(k->kv);
    k->kv = NULL;
}

static void kv_dealloc(PyObject *self)
{
    handle_gone(self, kv_end);
}

static PyObject *kv_close(PyObject *self, PyObject *none)
{
    (void)none;
    return handle_close(self, kv_end);
}

/* alloc_tail, and without `window_arg` alloc. */
static PyObject *take_pages(kv_object *k, const char *call, PyObject *count_arg, PyObject *into,
                            PyObject *window_arg)
{
    uint32_t count = 0, window = 0;
    if (!arg_u32(count_arg, "count", &count) || !arg_u32(window_arg, "num_window", &window))
        return NULL;
    if (!handle_enter(&k->h, call)) return NULL;
    if (count > rad_kv_num_pages(k->kv)) { /* no array for what there cannot be */
        handle_leave(&k->h);
        Py_RETURN_NONE;
    }
    PyObject *where = arg_into(into), *result = NULL;
    ints_out out;
    if (ints_place(where, "out", count, &out)) {
        rad_status status = window_arg ? rad_kv_alloc_tail(k->kv, out.data, count, window)
                                       : rad_kv_alloc(k->kv, out.data, count);
        result = ints_told(&out, where, count, status, NULL,
                           "KVAllocator.alloc_tail: num_window is more than count, or there is no "
                           "window side");
    }
    handle_leave(&k->h);
    return result;
}

static PyObject *kv_alloc(PyObject *self, fast_args args, Py_ssize_t nargs, PyObject *kwnames)
{
    static signature s = {"alloc", 1, 2, {"count", "out"}, {0}};
    PyObject *a[2];
    if (!args_read(&s, args, nargs, kwnames, a)) return NULL;
    return take_pages((kv_object *)self, "alloc", a[0], a[1], NULL);
}

static PyObject *kv_alloc_slots(PyObject *self, fast_args args, Py_ssize_t nargs, PyObject *kwnames)
{
    static signature s = {"alloc_slots", 1, 2, {"count", "dtype"}, {0}};
    kv_object *k = (kv_object *)self;
    PyObject *a[2], *result = NULL;
    uint32_t count = 0;
    if (!args_read(&s, args, nargs, kwnames, a) || !arg_u32(a[0], "count", &count) ||
        !handle_enter(&k->h, "alloc_slots"))
        return NULL;
    uint32_t ps = rad_kv_page_size(k->kv), num_pages = count / ps + (count % ps != 0);
    rad_page *pages = NULL;
    if (num_pages <= rad_kv_num_pages(k->kv)) { /* no array for what there cannot be */
        pages = malloc(((size_t)num_pages + 1) * sizeof *pages);
        if (!pages) PyErr_NoMemory();
    }
    if (pages && rad_kv_alloc(k->kv, pages, num_pages) == RAD_OK) {
        result = ints_of_pages(pages, num_pages, ps, arg_wide(a[1]));
        if (!result) rad_kv_free(k->kv, pages, num_pages, NULL);
    } else if (!PyErr_Occurred()) {
        INCREF(Py_None);
        result = Py_None;
    }
    free(pages);
    handle_leave(&k->h);
    return result;
}

static PyObject *kv_alloc_tail(PyObject *self, fast_args args, Py_ssize_t nargs, PyObject *kwnames)
{
    static signature s = {"alloc_tail", 2, 3, {"count", "num_window", "out"}, {0}};
    PyObject *a[3];
    if (!args_read(&s, args, nargs, kwnames, a)) return NULL;
    return take_pages((kv_object *)self, "alloc_tail", a[0], a[2], a[1]);
}

typedef rad_status free_fn(rad_kv_allocator *a, const int32_t *indices, uint32_t count,
                           rad_error *err);

static PyObject *give_pages(PyObject *self, const char *call, free_fn *f, PyObject *indices)
{
    kv_object *k = (kv_object *)self;
    ints_in in;
    if (!ints_take(indices, "pages", INTS_SLOTS, &in)) return NULL;
    rad_error err;
    rad_status status = RAD_OK;
    bool entered = handle_enter(&k->h, call);
    if (entered) {
        status = f(k->kv, in.data, (uint32_t)in.count, &err);
        handle_leave(&k->h);
    }
    ints_give_back(&in);
    if (!entered) return NULL;
    if (status) return raise_status(status, &err, call);
    Py_RETURN_NONE;
}

static PyObject *kv_free(PyObject *self, PyObject *pages)
{
    return give_pages(self, "free", rad_kv_free, pages);
}

static PyObject *kv_free_window(PyObject *self, PyObject *pages)
{
    return give_pages(self, "free_window", rad_kv_free_window, pages);
}

static PyObject *kv_move_window(PyObject *self, fast_args args, Py_ssize_t nargs, PyObject *kwnames)
{
    static signature s = {"move_window", 2, 2, {"source", "target"}, {0}};
    kv_object *k = (kv_object *)self;
    PyObject *a[2];
    int32_t source = 0, target = 0;
    if (!args_read(&s, args, nargs, kwnames, a) || !arg_i32(a[0], "source", &source) ||
        !arg_i32(a[1], "target", &target) || !handle_enter(&k->h, "move_window"))
        return NULL;
    rad_error err;
    rad_status status = rad_kv_move_window(k->kv, source, target, &err);
    handle_leave(&k->h);
    if (status) return raise_status(status, &err, "move_window");
    Py_RETURN_NONE;
}

static PyObject *kv_free_slots(PyObject *self, PyObject *slots)
{
    return give_pages(self, "free_slots", rad_kv_free_slots, slots);
}

static int by_number(const void *a, const void *b)
{
    rad_page x = *(const rad_page *)a, y = *(const rad_page *)b;
    return x < y ? -1 : x > y;
}

static uint32_t without_repeats(rad_page *pages, uint32_t count)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < count; i++)
        if (!kept || pages[i] != pages[kept - 1]) pages[kept++] = pages[i];
    return kept;
}

/* Slots of one page mostly stand together; where a page comes twice all the same, sorting tells. */
static rad_status free_pages_of(rad_kv_allocator *kv, const int32_t *slots, uint32_t count,
                                rad_error *err)
{
    int32_t ps = (int32_t)rad_kv_page_size(kv);
    rad_page *pages = malloc(((size_t)count + 1) * sizeof *pages);
    if (!pages) return rad_fail(err, RAD_E_NOMEM, "KVAllocator.free_pages_of: no memory");
    for (uint32_t i = 0; i < count; i++)
        pages[i] = slots[i] < 0 ? slots[i] : slots[i] / ps;
    count = without_repeats(pages, count);
    rad_status status = rad_kv_free(kv, pages, count, err);
    if (status == RAD_E_STATE) {
        qsort(pages, count, sizeof *pages, by_number);
        status = rad_kv_free(kv, pages, without_repeats(pages, count), err);
    }
    free(pages);
    return status;
}

static PyObject *kv_free_pages_of(PyObject *self, PyObject *slots)
{
    return give_pages(self, "free_pages_of", free_pages_of, slots);
}

static bool same_length(const ints_in *in, int arrays, const char *call)
{
    for (int i = 1; i < arrays; i++) {
        if (in[i].count == in[0].count) continue;
        PyErr_Format(PyExc_ValueError, "%s: one entry for each request: %zd and %zd of them", call,
                     in[0].count, in[i].count);
        return false;
    }
    return true;
}

/* alloc_extend (lens: prefix, seq, last) and alloc_decode (lens: seq, last). */
static PyObject *take_slots(kv_object *k, const char *call, PyObject *const *a, int arrays)
{
    static const char *const of_extend[] = {"prefix_lens", "seq_lens", "last_loc"};
    const char *const *names = of_extend + (3 - arrays);
    ints_in in[3];
    int taken = 0;
    PyObject *result = NULL;
    while (taken < arrays && ints_take(a[taken], names[taken],
                                       taken == arrays - 1 ? INTS_SLOTS : INTS_LENGTHS, &in[taken]))
        taken++;
    if (taken < arrays || !same_length(in, arrays, call)) goto done;

    uint64_t room = (uint64_t)in[0].count;
    if (arrays == 3) {
        room = 0;
        for (Py_ssize_t i = 0; i < in[0].count; i++)
            room += in[1].data[i] > in[0].data[i] ? (uint32_t)(in[1].data[i] - in[0].data[i]) : 0;
    }
    if (!handle_enter(&k->h, call)) goto done;
    if (room >
        ((uint64_t)rad_kv_num_pages(k->kv) + (uint64_t)in[0].count) * rad_kv_page_size(k->kv)) {
        INCREF(Py_None);
        result = Py_None;
        goto leave;
    }
    PyObject *into = arg_into(a[arrays]);
    ints_out out;
    if (!ints_place(into, "out", (Py_ssize_t)room, &out)) goto leave;
    rad_error err;
    rad_status status =
        arrays == 3
            ? rad_kv_alloc_extend(k->kv, (uint32_t)in[0].count, (const uint32_t *)in[0].data,
                                  (const uint32_t *)in[1].data, in[2].data, out.data, &err)
            : rad_kv_alloc_decode(k->kv, (uint32_t)in[0].count, (const uint32_t *)in[0].data,
                                  in[1].data, out.data, &err);
    result = ints_told(&out, into, (Py_ssize_t)room, status, &err, call);
leave:
    handle_leave(&k->h);
done:
    while (taken)
        ints_give_back(&in[--taken]);
    return result;
}

static PyObject *kv_alloc_extend(PyObject *self, fast_args args, Py_ssize_t nargs,
                                 PyObject *kwnames)
{
    static signature s = {
        "alloc_extend", 3, 4, {"prefix_lens", "seq_lens", "last_loc", "out"}, {0}};
    PyObject *a[4];
    if (!args_read(&s, args, nargs, kwnames, a)) return NULL;
    return take_slots((kv_object *)self, "alloc_extend", a, 3);
}

static PyObject *kv_alloc_decode(PyObject *self, fast_args args, Py_ssize_t nargs,
                                 PyObject *kwnames)
{
    static signature s = {"alloc_decode", 2, 3, {"seq_lens", "last_loc", "out"}, {0}};
    PyObject *a[3];
    if (!args_read(&s, args, nargs, kwnames, a)) return NULL;
    return take_slots((kv_object *)self, "alloc_decode", a, 2);
}

static PyObject *kv_group(PyObject *self, const char *call, rad_status (*f)(rad_kv_allocator *),
                          const char *words)
{
    kv_object *k = (kv_object *)self;
    if (!handle_enter(&k->h, call)) return NULL;
    rad_status status = f(k->kv);
    handle_leave(&k->h);
    if (status) return raise_status(status, NULL, words);
    Py_RETURN_NONE;
}

static PyObject *kv_group_begin(PyObject *self, PyObject *none)
{
    (void)none;
    return kv_group(self, "free_group_begin", rad_kv_free_group_begin,
                    "KVAllocator.free_group_begin: a group is open already; they do not nest");
}

static PyObject *kv_group_end(PyObject *self, PyObject *none)
{
    (void)none;
    return kv_group(self, "free_group_end", rad_kv_free_group_end,
                    "KVAllocator.free_group_end: no group is open");
}

static PyObject *kv_ask_page(PyObject *self, const char *call, PyObject *page_arg,
                             int (*f)(const rad_kv_allocator *, rad_page))
{
    kv_object *k = (kv_object *)self;
    int32_t page = 0;
    if (!arg_i32(page_arg, "page", &page) || !handle_enter(&k->h, call)) return NULL;
    int answer = f(k->kv, page);
    handle_leave(&k->h);
    return PyBool_FromLong(answer);
}

static PyObject *kv_is_taken(PyObject *self, PyObject *page)
{
    return kv_ask_page(self, "is_taken", page, rad_kv_is_taken);
}

static PyObject *kv_has_window(PyObject *self, PyObject *page)
{
    return kv_ask_page(self, "has_window", page, rad_kv_has_window);
}

static PyObject *kv_clear(PyObject *self, PyObject *none)
{
    (void)none;
    kv_object *k = (kv_object *)self;
    if (!handle_enter(&k->h, "clear")) return NULL;
    rad_kv_clear(k->kv);
    handle_leave(&k->h);
    Py_RETURN_NONE;
}

static PyObject *kv_check(PyObject *self, PyObject *none)
{
    (void)none;
    kv_object *k = (kv_object *)self;
    if (!handle_enter(&k->h, "check")) return NULL;
    rad_error err;
    rad_status status;
    status = rad_kv_check(k->kv, &err); /* a cache that goes meanwhile gives pages back */
    handle_leave(&k->h);
    if (status) return raise_status(status, &err, "KVAllocator.check");
    Py_RETURN_NONE;
}

enum {
    KV_PAGE_SIZE,
    KV_NUM_PAGES,
    KV_AVAILABLE_PAGES,
    KV_AVAILABLE_SIZE,
    KV_HIGHEST,
    KV_WINDOW_PAGES,
    KV_WINDOW_AVAILABLE
};

static PyObject *kv_get(PyObject *self, void *what)
{
    kv_object *k = (kv_object *)self;
    uint64_t n = 0;
    if (!handle_enter(&k->h, "a property")) return NULL;
    switch ((intptr_t)what) {
    case KV_PAGE_SIZE: n = rad_kv_page_size(k->kv); break;
    case KV_NUM_PAGES: n = rad_kv_num_pages(k->kv); break;
    case KV_AVAILABLE_PAGES: n = rad_kv_available_pages(k->kv); break;
    case KV_AVAILABLE_SIZE: n = rad_kv_available_size(k->kv); break;
    case KV_HIGHEST: n = (uint64_t)rad_kv_highest_page(k->kv); break;
    case KV_WINDOW_PAGES: n = rad_kv_window_num_pages(k->kv); break;
    case KV_WINDOW_AVAILABLE: n = rad_kv_window_available_pages(k->kv); break;
    }
    handle_leave(&k->h);
    return PyLong_FromUnsignedLongLong(n);
}

static PyObject *kv_window_map(PyObject *self, void *closure)
{
    (void)closure;
    kv_object *k = (kv_object *)self;
    if (!handle_enter(&k->h, "window_page_map")) return NULL;
    const rad_page *map = rad_kv_window_page_map(k->kv);
    Py_ssize_t shape = (Py_ssize_t)rad_kv_num_pages(k->kv) + 1, stride = sizeof *map;
    handle_leave(&k->h);
    if (!map) Py_RETURN_NONE;
    return array_view(self, E_I32, (void *)(uintptr_t)map, 1, &shape, &stride, true);
}

static PyObject *kv_close_at_exit(PyObject *self, PyObject *args)
{
    return kv_close(self, args);
}

static PyMethodDef kv_methods[] = {
    FAST("alloc", kv_alloc,
         "alloc(count, out=None) -> Array | out | None\n\nTakes `count` pages. All or nothing: "
         "None means that there are not so many: evict and ask again. O(count)."),
    FAST("alloc_tail", kv_alloc_tail,
         "alloc_tail(count, num_window, out=None) -> Array | out | None\n\nTakes pages of which "
         "only the last num_window get a window side."),
    FAST("alloc_slots", kv_alloc_slots,
         "alloc_slots(count, dtype='int32') -> Array | None\n\nThe slots of as many pages as hold "
         "`count` tokens; None as above."),
    {"free", kv_free, METH_O,
     "free(pages) -> None\n\nGives pages back. StateError names the first that is not handed out "
     "(a double free, say); then nothing was freed."},
    {"free_window", kv_free_window, METH_O,
     "free_window(pages) -> None\n\nGives back only the window side; the pages stay handed out."},
    FAST("move_window", kv_move_window,
         "move_window(source, target) -> None\n\nThe window side of one page becomes that of "
         "another, which has none; both hold the same tokens."),
    {"free_slots", kv_free_slots, METH_O,
     "free_slots(slots) -> None\n\nFrees the pages under the slots of consecutive positions of "
     "one row, of which the first starts a page."},
    {"free_pages_of", kv_free_pages_of, METH_O,
     "free_pages_of(slots) -> None\n\nFrees the pages that these slots are in, each once, whatever "
     "their order."},
    FAST("alloc_extend", kv_alloc_extend,
         "alloc_extend(prefix_lens, seq_lens, last_loc, out=None) -> Array | out | None\n\nSlots "
         "for extending requests from prefix_lens[i] to seq_lens[i] tokens; last_loc[i] is the "
         "slot of position prefix_lens[i] - 1, or -1. One request's behind the other's. None: "
         "there is no room, and nothing was taken."),
    FAST("alloc_decode", kv_alloc_decode,
         "alloc_decode(seq_lens, last_loc, out=None) -> Array | out | None\n\nOne slot for each "
         "request's position seq_lens[i] - 1. None: there is no room."),
    {"free_group_begin", kv_group_begin, METH_NOARGS,
     "free_group_begin() -> None\n\nWhat is freed from now on becomes available at "
     "free_group_end()."},
    {"free_group_end", kv_group_end, METH_NOARGS, "free_group_end() -> None"},
    {"is_taken", kv_is_taken, METH_O, "is_taken(page) -> bool\n\nWhether it is handed out."},
    {"has_window", kv_has_window, METH_O, "has_window(page) -> bool"},
    {"clear", kv_clear, METH_NOARGS, "clear() -> None\n\nEvery page is free again."},
    {"check", kv_check, METH_NOARGS,
     "check() -> None\n\nWalks everything; CorruptError names the first page that is wrong."},
    HANDLE_CALLS(kv_close),
    {0},
};

static PyGetSetDef kv_getters[] = {
    {"page_size", kv_get, NULL, "Tokens of a page.", (void *)KV_PAGE_SIZE},
    {"num_pages", kv_get, NULL, "Pages to hand out.", (void *)KV_NUM_PAGES},
    {"available_pages", kv_get, NULL, "Pages that are free.", (void *)KV_AVAILABLE_PAGES},
    {"available_size", kv_get, NULL, "The same in tokens.", (void *)KV_AVAILABLE_SIZE},
    {"highest_page", kv_get, NULL, "The highest page that was ever handed out.",
     (void *)KV_HIGHEST},
    {"window_num_pages", kv_get, NULL, "Pages of the window side.", (void *)KV_WINDOW_PAGES},
    {"window_available_pages", kv_get, NULL, "Those that are free.", (void *)KV_WINDOW_AVAILABLE},
    {"window_page_map", kv_window_map, NULL,
     "map[page] is the page's window page or 0: the allocator's own, not a copy. None without a "
     "window side.",
     NULL},
    HANDLE_CLOSED,
    {0},
};

static PyType_Slot kv_slots[] = {
    {Py_tp_doc,
     "KVAllocator(num_pages, page_size=1, *, need_sort=False, swa_num_pages=0)\n\nHands out pages "
     "of the KV pool: page p names the slots [p * page_size, (p + 1) * page_size). Page 0 is never "
     "handed out."},
    {Py_tp_new, kv_new},
    {Py_tp_dealloc, kv_dealloc},
    {Py_tp_methods, kv_methods},
    {Py_tp_getset, kv_getters},
    {0},
};
static PyType_Spec kv_spec = {"radish.KVAllocator", sizeof(kv_object), 0,
                              Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, kv_slots};

bool kv_allocator_init(PyObject *module)
{
    return add_type(module, &kv_spec, NULL, &kv_type);
}
