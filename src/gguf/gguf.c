/* gguf.c - a GGUF file becomes tables of keys and tensors.
 *
 *     "GGUF" version  num_tensors num_kvs | kv ... | tensor info ... | pad | data
 *            u32      u64         u64       key type value   name dims type offset
 *
 * gguf_cursor.c reads, here is what must be where. Counts are compared with the bytes that their
 * entries must at least take before anything is allocated for them.
 *
 * Invariant after open: every pointer in kvs and tensors, with its length, lies inside
 * [bytes, bytes + num_bytes). */
#include "gguf/gguf_cursor.h"
#include "gguf/gguf_file.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    MOST_KVS = 1 << 20,
    DEFAULT_ALIGNMENT = 32,
    LEAST_ALIGNMENT = 8, /* the format's; keeps every element type aligned */
    MOST_ALIGNMENT = 1 << 16,
    LEAST_KV_BYTES = 8 + 4 + 1,             /* an empty key, its type, a byte */
    LEAST_TENSOR_BYTES = 8 + 4 + 8 + 4 + 8, /* an empty name, one dim, type, offset */
};

/* ---- the parts of the file ---- */

static rad_status read_header(gguf_file *f, gguf_cursor *c)
{
    rad_status status = gguf_need(c, 4, "the magic");
    if (status) return status;
    if (memcmp(c->bytes, "GGUF", 4) != 0)
        return rad_fail(c->err, RAD_E_FORMAT,
                        "gguf: not a GGUF file (it does not begin with GGUF)");
    c->pos = 4;
    status = gguf_read_u32(c, "the version", &f->version);
    if (status) return status;
    if (f->version == 2u << 24 || f->version == 3u << 24)
        return rad_fail(c->err, RAD_E_UNSUPPORTED, "gguf: a big-endian file");
    if (f->version != 2 && f->version != 3)
        return rad_fail(c->err, RAD_E_UNSUPPORTED, "gguf: version %u; we read 2 and 3", f->version);

    uint64_t num_tensors, num_kvs;
    status = gguf_read_u64(c, "the tensor count", &num_tensors);
    if (!status) status = gguf_read_u64(c, "the key count", &num_kvs);
    if (status) return status;
    if (num_tensors > GGUF_MOST_TENSORS || num_tensors > gguf_remaining(c) / LEAST_TENSOR_BYTES)
        return rad_fail(c->err, RAD_E_FORMAT,
                        "gguf: the header (byte 8) claims %llu tensors in a file of %zu bytes",
                        (unsigned long long)num_tensors, f->num_bytes);
    if (num_kvs > MOST_KVS || num_kvs > gguf_remaining(c) / LEAST_KV_BYTES)
        return rad_fail(c->err, RAD_E_FORMAT,
                        "gguf: the header (byte 16) claims %llu keys in a file of %zu bytes",
                        (unsigned long long)num_kvs, f->num_bytes);
    f->num_kvs = num_kvs;
    f->num_tensors = num_tensors;
    return RAD_OK;
}

static rad_status read_kvs(gguf_file *f, gguf_cursor *c)
{
    if (!f->num_kvs) return RAD_OK;
    f->kvs = rad_alloc(&f->env, (size_t)f->num_kvs * sizeof *f->kvs);
    if (!f->kvs)
        return rad_fail(c->err, RAD_E_NOMEM, "gguf: no memory for %llu keys",
                        (unsigned long long)f->num_kvs);
    for (uint64_t i = 0; i < f->num_kvs; i++) {
        rad_status status = gguf_read_kv(c, &f->env, &f->kvs[i]);
        if (status) return status;
    }
    return gguf_names_init(&f->keys, &f->env, &f->kvs[0].key, sizeof f->kvs[0], (size_t)f->num_kvs,
                           "key", f->bytes, c->err);
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
static rad_status read_tensor_info(gguf_cursor *c, gguf_tensor *t)
{
    rad_status status = gguf_read_str(c, "a tensor's name", &t->name);
    if (!status) status = gguf_read_u32(c, "a tensor's number of dimensions", &t->num_dims);
    if (status) return status;
    if (t->num_dims < 1 || t->num_dims > 4)
        return rad_fail(c->err, RAD_E_FORMAT,
                        "gguf: tensor '%s' has %u dimensions (byte %zu); 1 to 4 are possible",
                        gguf_show(t->name).text, t->num_dims, c->pos - 4);
    uint64_t values = 1;
    for (uint32_t i = 0; i < 4; i++) {
        t->dims[i] = 1;
        if (i >= t->num_dims) continue;
        status = gguf_read_u64(c, "a tensor's dimension", &t->dims[i]);
        if (status) return status;
        /* Signed, so that nobody downstream overflows on a count of values. */
        if (!t->dims[i] || __builtin_mul_overflow(values, t->dims[i], &values) ||
            values > INT64_MAX)
            return rad_fail(c->err, RAD_E_FORMAT,
                            "gguf: tensor '%s': dimension %u of %llu (byte %zu) is not possible",
                            gguf_show(t->name).text, i, (unsigned long long)t->dims[i], c->pos - 8);
    }
    status = gguf_read_u32(c, "a tensor's type", &t->type);
    if (!status) status = gguf_read_u64(c, "a tensor's offset", &t->bytes);
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

static rad_status read_tensors(gguf_file *f, gguf_cursor *c)
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
    rad_status status = gguf_need(c, padding, "the padding before the tensor data");
    if (status) return status;
    c->pos += padding;
    for (uint64_t i = 0; i < f->num_tensors; i++) {
        status = place_tensor(f, c->pos, &f->tensors[i], c->err);
        if (status) return status;
    }
    return gguf_names_init(&f->tensor_names, &f->env, &f->tensors[0].name, sizeof f->tensors[0],
                           (size_t)f->num_tensors, "tensor", f->bytes, c->err);
}

/* ---- open and close ---- */

/* Parses what `from` names. Takes its mapping and descriptor over, also when it fails. */
static rad_status open_bytes(const rad_env *env, const gguf_file *from, gguf_file **out,
                             rad_error *err)
{
    rad_env full = rad_env_or_default(env);
    *out = NULL;
    gguf_file *f = rad_alloc(&full, sizeof *f);
    if (!f) {
        if (from->mapped) munmap((void *)from->bytes, from->num_bytes);
        if (from->mapped) close(from->fd);
        return rad_fail(err, RAD_E_NOMEM, "gguf: no memory");
    }
    *f = *from;
    f->env = full;

    gguf_cursor c = {.bytes = f->bytes, .num_bytes = f->num_bytes, .err = err};
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
    rad_status status =
        open_bytes(env, &(gguf_file){.bytes = bytes, .num_bytes = num_bytes}, out, err);
    uint32_t count = 0;
    if (!status) status = gguf_split_count(*out, &count, err);
    if (!status && count)
        status = rad_fail(err, RAD_E_UNSUPPORTED,
                          "gguf: one of %u parts of a model: bytes in memory must be all of it",
                          count);
    if (status) {
        gguf_close(*out);
        *out = NULL;
    }
    return status;
}

rad_status gguf_open(const rad_env *env, const char *path, gguf_file **out, rad_error *err)
{
    gguf_file *one;
    rad_status status = gguf_open_one(env, path, &one, err);
    *out = NULL;
    return status ? status : gguf_join(one, path, out, err);
}

rad_status gguf_open_one(const rad_env *env, const char *path, gguf_file **out, rad_error *err)
{
    *out = NULL;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return rad_fail(err, RAD_E_IO, "gguf: cannot open %s: %s", path, strerror(errno));
    struct stat st;
    gguf_file from = {.mapped = true, .fd = fd};
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
    if (status) {
        close(fd);
        return status;
    }
    from.bytes = bytes;
    from.num_bytes = (size_t)st.st_size;
    from.stamp = gguf_stamp_of(&st);
    return open_bytes(env, &from, out, err);
}

/* Of the pages that these bytes touch, or lie in alone. */
static void advise(const gguf_file *f, const void *bytes, uint64_t count, bool whole_pages,
                   int advice)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), start = (uintptr_t)bytes;
    uintptr_t end = start + count;
    if (!f->mapped) return;
    start = whole_pages ? (start + page - 1) & -page : start & -page;
    end = whole_pages ? end & -page : end;
    if (start < end) (void)madvise((void *)start, end - start, advice);
}

void gguf_will_need(const gguf_file *f, const gguf_tensor *t, uint64_t first, uint64_t count)
{
    first = RAD_MIN(first, t->bytes);
    advise(f, (const char *)t->data + first, RAD_MIN(count, t->bytes - first), false,
           MADV_WILLNEED);
}

void gguf_forget(const gguf_file *f, const gguf_tensor *t)
{
    advise(f, t->data, t->bytes, true, MADV_DONTNEED); /* read-only: it can always be read again */
}

void gguf_close(gguf_file *f)
{
    if (!f) return;
    rad_env env = f->env;
    size_t kvs = (size_t)f->num_kvs, tensors = (size_t)f->num_tensors;
    for (size_t i = 0; f->kvs && i < kvs; i++)
        gguf_kv_fini(&f->kvs[i], &env);
    rad_free(&env, f->kvs, kvs * sizeof *f->kvs);
    rad_free(&env, f->tensors, tensors * sizeof *f->tensors);
    gguf_names_fini(&f->keys, &env);
    gguf_names_fini(&f->tensor_names, &env);
    for (uint32_t i = 0; i < f->num_others; i++)
        gguf_close(f->others[i]);
    rad_free(&env, f->others, f->num_others * sizeof *f->others);
    if (f->mapped) munmap((void *)f->bytes, f->num_bytes);
    if (f->mapped) close(f->fd);
    rad_free(&env, f, sizeof *f);
}
