/* gguf.c - a GGUF file becomes tables of keys and tensors.
 *
 *     "GGUF" version  num_tensors num_kvs | kv ... | tensor info ... | pad | data
 *            u32      u64         u64       key type value   name dims type offset
 *
 * One cursor walks the metadata once. It is the only thing that reads bytes, and it
 * compares what is asked with what remains before it moves: `need` never adds, so a
 * length of 2^64 - 1 cannot wrap. Counts are compared with the bytes that their entries
 * must at least take before anything is allocated for them.
 *
 * Names are sorted once (heap sort: no bad input makes it slow), which finds
 * duplicates and lets lookups be binary searches.
 *
 * Invariant after open: every pointer in kvs and tensors, with its length, lies inside
 * [bytes, bytes + num_bytes). */
#include "gguf/gguf_file.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    MOST_KVS = 1 << 20,
    MOST_TENSORS = 1 << 20,
    DEFAULT_ALIGNMENT = 32,
    LEAST_ALIGNMENT = 8, /* the format's; keeps every element type aligned */
    MOST_ALIGNMENT = 1 << 16,
    LEAST_KV_BYTES = 8 + 4 + 1,             /* an empty key, its type, a byte */
    LEAST_TENSOR_BYTES = 8 + 4 + 8 + 4 + 8, /* an empty name, one dim, type, offset */
};

typedef struct cursor {
    const uint8_t *bytes;
    size_t num_bytes;
    size_t pos;
    rad_error *err;
} cursor;

static inline size_t remaining(const cursor *c)
{
    return c->num_bytes - c->pos;
}

static rad_status need(const cursor *c, uint64_t bytes, const char *what)
{
    if (bytes <= remaining(c)) return RAD_OK;
    return rad_fail(c->err, RAD_E_FORMAT,
                    "gguf: %s at byte %zu needs %llu bytes, but only %zu are left of the file",
                    what, c->pos, (unsigned long long)bytes, remaining(c));
}

/* Little-endian, so that a big-endian host reads files as well. */
static uint64_t load_le(const uint8_t *bytes, size_t size)
{
    uint64_t value = 0;
    for (size_t i = size; i-- > 0;)
        value = value << 8 | bytes[i];
    return value;
}

static rad_status read_u32(cursor *c, const char *what, uint32_t *out)
{
    rad_status status = need(c, 4, what);
    if (status) return status;
    *out = (uint32_t)load_le(c->bytes + c->pos, 4);
    c->pos += 4;
    return RAD_OK;
}

static rad_status read_u64(cursor *c, const char *what, uint64_t *out)
{
    rad_status status = need(c, 8, what);
    if (status) return status;
    *out = load_le(c->bytes + c->pos, 8);
    c->pos += 8;
    return RAD_OK;
}

static rad_status read_str(cursor *c, const char *what, gguf_str *out)
{
    uint64_t len;
    rad_status status = read_u64(c, what, &len);
    if (status) return status;
    status = need(c, len, what);
    if (status) return status;
    *out = (gguf_str){(const char *)c->bytes + c->pos, (size_t)len};
    c->pos += (size_t)len;
    return RAD_OK;
}

gguf_shown gguf_show(gguf_str str)
{
    gguf_shown shown = {0};
    size_t n = RAD_MIN(str.len, 64);
    for (size_t i = 0; i < n; i++)
        shown.text[i] = str.data[i] >= 32 && str.data[i] < 127 ? str.data[i] : '?';
    if (n < str.len) memcpy(shown.text + n, "...", 3);
    return shown;
}

int gguf_str_compare(gguf_str a, gguf_str b)
{
    size_t n = RAD_MIN(a.len, b.len);
    int order = n ? memcmp(a.data, b.data, n) : 0;
    return order ? order : (a.len > b.len) - (a.len < b.len);
}

/* ---- values ---- */

static size_t scalar_bytes(uint32_t type)
{
    switch (type) {
    case GGUF_U8:
    case GGUF_I8:
    case GGUF_BOOL: return 1;
    case GGUF_U16:
    case GGUF_I16: return 2;
    case GGUF_U32:
    case GGUF_I32:
    case GGUF_F32: return 4;
    case GGUF_U64:
    case GGUF_I64:
    case GGUF_F64: return 8;
    default: return 0;
    }
}

static rad_status read_scalar(cursor *c, gguf_kv *kv, size_t size)
{
    rad_status status = need(c, size, "a value");
    if (status) return status;
    uint64_t raw = load_le(c->bytes + c->pos, size);
    switch (kv->type) {
    case GGUF_I8: kv->i = (int8_t)raw; break;
    case GGUF_I16: kv->i = (int16_t)raw; break;
    case GGUF_I32: kv->i = (int32_t)raw; break;
    case GGUF_I64: kv->i = (int64_t)raw; break;
    case GGUF_F32: {
        uint32_t bits = (uint32_t)raw;
        float f;
        memcpy(&f, &bits, sizeof f);
        kv->f = f;
        break;
    }
    case GGUF_F64: memcpy(&kv->f, &raw, sizeof kv->f); break;
    case GGUF_BOOL:
        if (raw > 1)
            return rad_fail(c->err, RAD_E_FORMAT, "gguf: key '%s' at byte %zu: a bool of %u",
                            gguf_show(kv->key).text, c->pos, (unsigned)raw);
        kv->u = raw;
        break;
    default: kv->u = raw; break;
    }
    c->pos += size;
    return RAD_OK;
}

static rad_status read_array(gguf_file *f, cursor *c, gguf_kv *kv)
{
    size_t start = c->pos;
    uint32_t type;
    uint64_t count;
    rad_status status = read_u32(c, "an array's type", &type);
    if (!status) status = read_u64(c, "an array's count", &count);
    if (status) return status;
    if (type == GGUF_ARR)
        return rad_fail(c->err, RAD_E_UNSUPPORTED, "gguf: key '%s' at byte %zu: array of arrays",
                        gguf_show(kv->key).text, start);

    size_t least = type == GGUF_STR ? 8 : scalar_bytes(type);
    if (!least)
        return rad_fail(c->err, RAD_E_FORMAT, "gguf: key '%s' at byte %zu: unknown array type %u",
                        gguf_show(kv->key).text, start, type);
    if (count > remaining(c) / least)
        return rad_fail(c->err, RAD_E_FORMAT,
                        "gguf: key '%s' at byte %zu: %llu elements do not fit into the %zu bytes "
                        "that are left of the file",
                        gguf_show(kv->key).text, start, (unsigned long long)count, remaining(c));

    gguf_array *arr = &kv->arr;
    *arr = (gguf_array){.type = (gguf_type)type, .data = c->bytes + c->pos};
    if (type != GGUF_STR) {
        arr->count = count;
        c->pos += (size_t)count * least;
        return RAD_OK;
    }
    if (!count) return RAD_OK;
    gguf_str *strs = rad_alloc(&f->env, rad_mul((size_t)count, sizeof *strs));
    if (!strs)
        return rad_fail(c->err, RAD_E_NOMEM, "gguf: no memory for %llu strings",
                        (unsigned long long)count);
    arr->strs = strs; /* from here on gguf_close frees them */
    arr->count = count;
    for (uint64_t i = 0; i < count && !status; i++)
        status = read_str(c, "an array's string", &strs[i]);
    return status;
}

static rad_status read_kv(gguf_file *f, cursor *c, gguf_kv *kv)
{
    uint32_t type;
    rad_status status = read_str(c, "a key", &kv->key);
    if (!status) status = read_u32(c, "a value's type", &type);
    if (status) return status;
    kv->type = (gguf_type)type;
    if (type == GGUF_STR) return read_str(c, "a string value", &kv->str);
    if (type == GGUF_ARR) return read_array(f, c, kv);
    size_t size = scalar_bytes(type);
    if (size) return read_scalar(c, kv, size);
    kv->type = GGUF_U8;
    return rad_fail(c->err, RAD_E_FORMAT, "gguf: key '%s': unknown value type %u at byte %zu",
                    gguf_show(kv->key).text, type, c->pos - 4);
}

/* ---- names in order ---- */

typedef struct names { /* the i-th name is at base + i * stride */
    const uint8_t *base;
    size_t stride;
} names;

static gguf_str name_at(const names *n, uint32_t i)
{
    return *(const gguf_str *)(n->base + n->stride * i);
}

static void sift_down(const names *n, uint32_t *heap, size_t count, size_t i)
{
    uint32_t moving = heap[i];
    for (size_t child; (child = 2 * i + 1) < count; i = child) {
        if (child + 1 < count &&
            gguf_str_compare(name_at(n, heap[child]), name_at(n, heap[child + 1])) < 0)
            child++;
        if (gguf_str_compare(name_at(n, moving), name_at(n, heap[child])) >= 0) break;
        heap[i] = heap[child];
    }
    heap[i] = moving;
}

/* The indices 0..count) in the order of their names. RAD_E_FORMAT names a duplicate,
 * with the byte where one of the two stands. */
static rad_status sort_names(const gguf_file *f, names n, size_t count, const char *what,
                             uint32_t **out, rad_error *err)
{
    if (!count) return RAD_OK;
    uint32_t *sorted = *out = rad_alloc(&f->env, count * sizeof *sorted);
    if (!sorted) return rad_fail(err, RAD_E_NOMEM, "gguf: no memory for %zu names", count);
    for (size_t i = 0; i < count; i++)
        sorted[i] = (uint32_t)i;
    for (size_t i = count / 2; i-- > 0;)
        sift_down(&n, sorted, count, i);
    for (size_t end = count - 1; end > 0; end--) {
        uint32_t greatest = sorted[0];
        sorted[0] = sorted[end];
        sorted[end] = greatest;
        sift_down(&n, sorted, end, 0);
    }
    for (size_t i = 1; i < count; i++) {
        gguf_str name = name_at(&n, sorted[i]);
        if (gguf_str_compare(name_at(&n, sorted[i - 1]), name) == 0)
            return rad_fail(err, RAD_E_FORMAT, "gguf: %s '%s' is there twice (once at byte %zu)",
                            what, gguf_show(name).text,
                            (size_t)((const uint8_t *)name.data - f->bytes));
    }
    return RAD_OK;
}

/* ---- the parts of the file ---- */

static rad_status read_header(gguf_file *f, cursor *c)
{
    rad_status status = need(c, 4, "the magic");
    if (status) return status;
    if (memcmp(c->bytes, "GGUF", 4) != 0)
        return rad_fail(c->err, RAD_E_FORMAT,
                        "gguf: not a GGUF file (it does not begin with GGUF)");
    c->pos = 4;
    status = read_u32(c, "the version", &f->version);
    if (status) return status;
    if (f->version == 2u << 24 || f->version == 3u << 24)
        return rad_fail(c->err, RAD_E_UNSUPPORTED, "gguf: a big-endian file");
    if (f->version != 2 && f->version != 3)
        return rad_fail(c->err, RAD_E_UNSUPPORTED, "gguf: version %u; we read 2 and 3", f->version);

    uint64_t num_tensors, num_kvs;
    status = read_u64(c, "the tensor count", &num_tensors);
    if (!status) status = read_u64(c, "the key count", &num_kvs);
    if (status) return status;
    if (num_tensors > MOST_TENSORS || num_tensors > remaining(c) / LEAST_TENSOR_BYTES)
        return rad_fail(c->err, RAD_E_FORMAT,
                        "gguf: the header (byte 8) claims %llu tensors in a file of %zu bytes",
                        (unsigned long long)num_tensors, f->num_bytes);
    if (num_kvs > MOST_KVS || num_kvs > remaining(c) / LEAST_KV_BYTES)
        return rad_fail(c->err, RAD_E_FORMAT,
                        "gguf: the header (byte 16) claims %llu keys in a file of %zu bytes",
                        (unsigned long long)num_kvs, f->num_bytes);
    f->num_kvs = num_kvs;
    f->num_tensors = num_tensors;
    return RAD_OK;
}

static rad_status read_kvs(gguf_file *f, cursor *c)
{
    if (!f->num_kvs) return RAD_OK;
    f->kvs = rad_alloc(&f->env, (size_t)f->num_kvs * sizeof *f->kvs);
    if (!f->kvs)
        return rad_fail(c->err, RAD_E_NOMEM, "gguf: no memory for %llu keys",
                        (unsigned long long)f->num_kvs);
    for (uint64_t i = 0; i < f->num_kvs; i++) {
        rad_status status = read_kv(f, c, &f->kvs[i]);
        if (status) return status;
    }
    names keys = {(const uint8_t *)&f->kvs[0].key, sizeof f->kvs[0]};
    return sort_names(f, keys, (size_t)f->num_kvs, "key", &f->kvs_by_key, c->err);
}

static rad_status read_alignment(gguf_file *f, rad_error *err)
{
    f->alignment = DEFAULT_ALIGNMENT;
    rad_status status = gguf_get_u32(f, "general.alignment", &f->alignment, err);
    if (status < 0) return status;
    uint32_t a = f->alignment;
    if (a < LEAST_ALIGNMENT || a > MOST_ALIGNMENT || (a & (a - 1)))
        return rad_fail(err, RAD_E_FORMAT,
                        "gguf: general.alignment is %u, not a power of two from %d to %d", a,
                        LEAST_ALIGNMENT, MOST_ALIGNMENT);
    return RAD_OK;
}

/* `data` is not known before all infos are read: the offset waits in `bytes`. */
static rad_status read_tensor_info(cursor *c, gguf_tensor *t)
{
    rad_status status = read_str(c, "a tensor's name", &t->name);
    if (!status) status = read_u32(c, "a tensor's number of dimensions", &t->num_dims);
    if (status) return status;
    if (t->num_dims < 1 || t->num_dims > 4)
        return rad_fail(c->err, RAD_E_FORMAT,
                        "gguf: tensor '%s' has %u dimensions (byte %zu); 1 to 4 are possible",
                        gguf_show(t->name).text, t->num_dims, c->pos - 4);
    uint64_t values = 1;
    for (uint32_t i = 0; i < 4; i++) {
        t->dims[i] = 1;
        if (i >= t->num_dims) continue;
        status = read_u64(c, "a tensor's dimension", &t->dims[i]);
        if (status) return status;
        /* Signed, so that nobody downstream overflows on a count of values. */
        if (!t->dims[i] || __builtin_mul_overflow(values, t->dims[i], &values) ||
            values > INT64_MAX)
            return rad_fail(c->err, RAD_E_FORMAT,
                            "gguf: tensor '%s': dimension %u of %llu (byte %zu) is not possible",
                            gguf_show(t->name).text, i, (unsigned long long)t->dims[i], c->pos - 8);
    }
    status = read_u32(c, "a tensor's type", &t->type);
    if (!status) status = read_u64(c, "a tensor's offset", &t->bytes);
    return status;
}

/* Finds the tensor's bytes in the data section, which is [start, end of file). */
static rad_status place_tensor(const gguf_file *f, size_t start, gguf_tensor *t, rad_error *err)
{
    uint64_t offset = t->bytes, bytes = 0;
    uint32_t block_values, block_bytes;
    t->bytes = 0;
    if (ggml_type_layout(t->type, &block_values, &block_bytes)) {
        if (t->dims[0] % block_values)
            return rad_fail(err, RAD_E_FORMAT,
                            "gguf: tensor '%s': rows of %llu values, but %s comes in blocks of %u",
                            gguf_show(t->name).text, (unsigned long long)t->dims[0],
                            ggml_type_name(t->type), block_values);
        uint64_t values = t->dims[0] * t->dims[1] * t->dims[2] * t->dims[3];
        if (__builtin_mul_overflow(values / block_values, (uint64_t)block_bytes, &bytes))
            return rad_fail(err, RAD_E_FORMAT, "gguf: tensor '%s': its size overflows",
                            gguf_show(t->name).text);
    }
    if (offset % f->alignment)
        return rad_fail(err, RAD_E_FORMAT,
                        "gguf: tensor '%s': offset %llu is not a multiple of the alignment %u",
                        gguf_show(t->name).text, (unsigned long long)offset, f->alignment);
    uint64_t room = f->num_bytes - start;
    if (offset > room || bytes > room - offset)
        return rad_fail(err, RAD_E_FORMAT,
                        "gguf: tensor '%s': %llu bytes at byte %zu + %llu end behind the file's "
                        "%zu bytes",
                        gguf_show(t->name).text, (unsigned long long)bytes, start,
                        (unsigned long long)offset, f->num_bytes);
    t->data = f->bytes + start + (size_t)offset;
    t->bytes = bytes;
    return RAD_OK;
}

static rad_status read_tensors(gguf_file *f, cursor *c)
{
    if (!f->num_tensors) return RAD_OK;
    f->tensors = rad_alloc(&f->env, (size_t)f->num_tensors * sizeof *f->tensors);
    if (!f->tensors)
        return rad_fail(c->err, RAD_E_NOMEM, "gguf: no memory for %llu tensors",
                        (unsigned long long)f->num_tensors);
    for (uint64_t i = 0; i < f->num_tensors; i++) {
        rad_status status = read_tensor_info(c, &f->tensors[i]);
        if (status) return status;
    }
    size_t padding = -c->pos & (f->alignment - 1);
    rad_status status = need(c, padding, "the padding before the tensor data");
    if (status) return status;
    c->pos += padding;
    for (uint64_t i = 0; i < f->num_tensors; i++) {
        status = place_tensor(f, c->pos, &f->tensors[i], c->err);
        if (status) return status;
    }
    names tensor_names = {(const uint8_t *)&f->tensors[0].name, sizeof f->tensors[0]};
    return sort_names(f, tensor_names, (size_t)f->num_tensors, "tensor", &f->tensors_by_name,
                      c->err);
}

/* ---- open and close ---- */

/* Takes the mapping over, also when it fails. */
static rad_status open_bytes(const rad_env *env, const void *bytes, size_t num_bytes, bool mapped,
                             gguf_file **out, rad_error *err)
{
    rad_env full = rad_env_or_default(env);
    *out = NULL;
    gguf_file *f = rad_alloc(&full, sizeof *f);
    if (!f) {
        if (mapped) munmap((void *)bytes, num_bytes);
        return rad_fail(err, RAD_E_NOMEM, "gguf: no memory");
    }
    f->env = full;
    f->bytes = bytes;
    f->num_bytes = num_bytes;
    f->mapped = mapped;

    cursor c = {.bytes = bytes, .num_bytes = num_bytes, .err = err};
    rad_status status = read_header(f, &c);
    if (!status) status = read_kvs(f, &c);
    if (!status) status = read_alignment(f, err);
    if (!status) status = read_tensors(f, &c);
    if (status) {
        gguf_close(f);
        return status;
    }
    *out = f;
    return RAD_OK;
}

rad_status gguf_open_memory(const rad_env *env, const void *bytes, size_t num_bytes,
                            gguf_file **out, rad_error *err)
{
    return open_bytes(env, bytes, num_bytes, false, out, err);
}

rad_status gguf_open(const rad_env *env, const char *path, gguf_file **out, rad_error *err)
{
    *out = NULL;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return rad_fail(err, RAD_E_IO, "gguf: cannot open %s: %s", path, strerror(errno));
    struct stat st;
    void *bytes = MAP_FAILED;
    rad_status status = RAD_OK;
    if (fstat(fd, &st) != 0)
        status = rad_fail(err, RAD_E_IO, "gguf: cannot read %s: %s", path, strerror(errno));
    else if (!S_ISREG(st.st_mode))
        status = rad_fail(err, RAD_E_IO, "gguf: %s is not a file", path);
    else if (st.st_size == 0)
        status = rad_fail(err, RAD_E_FORMAT, "gguf: %s is empty", path);
    else if ((uint64_t)st.st_size > SIZE_MAX)
        status = rad_fail(err, RAD_E_LIMIT, "gguf: %s does not fit into memory", path);
    else if ((bytes = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0)) == MAP_FAILED)
        status = rad_fail(err, RAD_E_IO, "gguf: cannot map %s: %s", path, strerror(errno));
    close(fd);
    return status ? status : open_bytes(env, bytes, (size_t)st.st_size, true, out, err);
}

/* Of the pages that the tensor's bytes touch, or lie in alone. */
static void advise(const gguf_file *f, const gguf_tensor *t, bool whole_pages, int advice)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), start = (uintptr_t)t->data;
    uintptr_t end = start + t->bytes;
    if (!f->mapped) return;
    start = whole_pages ? (start + page - 1) & -page : start & -page;
    end = whole_pages ? end & -page : end;
    if (start < end) (void)madvise((void *)start, end - start, advice);
}

void gguf_will_need(const gguf_file *f, const gguf_tensor *t)
{
    advise(f, t, false, MADV_WILLNEED);
}

void gguf_forget(const gguf_file *f, const gguf_tensor *t)
{
    advise(f, t, true, MADV_DONTNEED); /* read-only: it can always be read again */
}

void gguf_close(gguf_file *f)
{
    if (!f) return;
    rad_env env = f->env;
    size_t kvs = (size_t)f->num_kvs, tensors = (size_t)f->num_tensors;
    for (size_t i = 0; f->kvs && i < kvs; i++)
        if (f->kvs[i].type == GGUF_ARR)
            rad_free(&env, (void *)f->kvs[i].arr.strs,
                     (size_t)f->kvs[i].arr.count * sizeof(gguf_str));
    rad_free(&env, f->kvs, kvs * sizeof *f->kvs);
    rad_free(&env, f->tensors, tensors * sizeof *f->tensors);
    rad_free(&env, f->kvs_by_key, kvs * sizeof *f->kvs_by_key);
    rad_free(&env, f->tensors_by_name, tensors * sizeof *f->tensors_by_name);
    if (f->mapped) munmap((void *)f->bytes, f->num_bytes);
    rad_free(&env, f, sizeof *f);
}
