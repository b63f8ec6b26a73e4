/* test_gguf.c - the GGUF reader believes nothing: what is in a good file comes out, and
 * a cut, bent or lying file gives an error in words. Files lie at the very end of a page
 * with a guard page behind it, so that reading one byte too far ends the test. */
#include "gguf_builder.h"
#include "test.h"

#include <math.h>
#include <sys/mman.h>
#include <unistd.h>

/* A copy of bytes that ends where readable memory ends. */
typedef struct guarded {
    uint8_t *map, *bytes;
    size_t map_bytes, len;
} guarded;

static guarded guard(const void *bytes, size_t len)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), body = (len + page - 1) / page * page;
    guarded g = {.map_bytes = body + page, .len = len};
    g.map = mmap(NULL, g.map_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(g.map != MAP_FAILED);
    CHECK(mprotect(g.map + body, page, PROT_NONE) == 0);
    g.bytes = g.map + body - len;
    if (len) memcpy(g.bytes, bytes, len);
    return g;
}

static void unguard(guarded *g)
{
    munmap(g->map, g->map_bytes);
}

/* Every value type, strings, arrays, three tensors. */
static void build_sample(gguf_builder *b, uint32_t version)
{
    gguf_builder_init(b, version);
    gguf_put_kv_str(b, "general.architecture", "llama");
    gguf_put_kv_u32(b, "general.alignment", 32);
    gguf_put_key(b, "a.u8", GGUF_U8);
    gguf_put(b, "\xff", 1);
    gguf_put_key(b, "a.i8", GGUF_I8);
    gguf_put(b, "\xff", 1);
    gguf_put_key(b, "a.u16", GGUF_U16);
    gguf_put(b, "\xff\xff", 2);
    gguf_put_key(b, "a.i16", GGUF_I16);
    gguf_put(b, "\xfe\xff", 2);
    gguf_put_key(b, "a.i32", GGUF_I32);
    gguf_put_u32(b, (uint32_t)-7);
    gguf_put_key(b, "a.u64", GGUF_U64);
    gguf_put_u64(b, 1ull << 40);
    gguf_put_key(b, "a.i64", GGUF_I64);
    gguf_put_u64(b, 77);
    gguf_put_key(b, "a.f32", GGUF_F32);
    gguf_put(b, &(float){0.5f}, 4);
    gguf_put_key(b, "a.f64", GGUF_F64);
    gguf_put(b, &(double){1e300}, 8);
    gguf_put_kv_bool(b, "a.bool", true);
    gguf_put_kv_arr(b, "a.strs", GGUF_STR, 3);
    gguf_put_str(b, "one");
    gguf_put_str(b, "");
    gguf_put_strn(b, "th\0ee", 5);
    gguf_put_kv_arr(b, "a.ints", GGUF_I32, 2);
    gguf_put_u32(b, 5);
    gguf_put_u32(b, (uint32_t)-5);
    gguf_put_kv_arr(b, "a.floats", GGUF_F32, 1);
    gguf_put(b, &(float){-2.0f}, 4);
    gguf_put_kv_arr(b, "a.empty", GGUF_STR, 0);
    gguf_put_tensor(b, "w.f32", GGML_F32, 2, (uint64_t[]){4, 2}, 0);
    gguf_put_tensor(b, "w.q8", GGML_Q8_0, 1, (uint64_t[]){64}, 32);
    gguf_put_tensor(b, "w.odd", 99, 1, (uint64_t[]){3}, 96);
    uint8_t data[104];
    for (size_t i = 0; i < sizeof data; i++)
        data[i] = (uint8_t)i;
    gguf_builder_end(b, data, sizeof data);
}

/* Reads all that a file holds, so that a bad pointer faults here. */
static uint64_t touch_str(gguf_str s)
{
    uint64_t sum = s.len;
    for (size_t i = 0; i < s.len; i++)
        sum += (uint8_t)s.data[i];
    return sum;
}

static uint64_t touch_all(const gguf_file *f)
{
    uint64_t sum = 0;
    for (uint64_t i = 0; i < gguf_num_kvs(f); i++) {
        const gguf_kv *kv = gguf_kv_at(f, i);
        sum += touch_str(kv->key);
        if (kv->type == GGUF_STR) sum += touch_str(kv->str);
        if (kv->type == GGUF_ARR && kv->arr.strs)
            for (uint64_t k = 0; k < kv->arr.count; k++)
                sum += touch_str(kv->arr.strs[k]);
        if (kv->type == GGUF_ARR && (kv->arr.type == GGUF_I32 || kv->arr.type == GGUF_U32))
            for (uint64_t k = 0; k < kv->arr.count; k++)
                sum += (uint32_t)gguf_arr_i32(&kv->arr, k);
    }
    for (uint64_t i = 0; i < gguf_num_tensors(f); i++) {
        const gguf_tensor *t = gguf_tensor_at(f, i);
        sum += touch_str(t->name);
        sum += touch_str((gguf_str){t->data, (size_t)t->bytes});
    }
    return sum;
}

TEST(a_good_file_gives_what_is_in_it)
{
    for (uint32_t version = 2; version <= 3; version++) {
        gguf_builder b;
        build_sample(&b, version);
        guarded g = guard(b.bytes, b.len);
        gguf_file *f = NULL;
        rad_error err = {0};
        rad_status status = gguf_open_memory(NULL, g.bytes, g.len, &f, &err);
        CHECKF(status == RAD_OK, "%s\n", err.text);
        CHECK(gguf_version(f) == version && gguf_file_bytes(f) == b.len);
        CHECK(gguf_num_kvs(f) == b.num_kvs && gguf_num_tensors(f) == 3);
        touch_all(f);

        uint32_t u = 0;
        float x = 0;
        bool yes = false;
        gguf_str s;
        gguf_array arr;
        CHECK_OK(gguf_get_u32(f, "a.u8", &u, NULL));
        CHECK(u == 255);
        CHECK_OK(gguf_get_u32(f, "a.u16", &u, NULL));
        CHECK(u == 65535);
        CHECK_OK(gguf_get_u32(f, "a.i64", &u, NULL));
        CHECK(u == 77);
        CHECK(gguf_find_kv(f, "a.i8")->i == -1 && gguf_find_kv(f, "a.i16")->i == -2);
        CHECK(gguf_find_kv(f, "a.i32")->i == -7 && gguf_find_kv(f, "a.u64")->u == 1ull << 40);
        CHECK_OK(gguf_get_f32(f, "a.f32", &x, NULL));
        CHECK(x == 0.5f);
        CHECK_OK(gguf_get_bool(f, "a.bool", &yes, NULL));
        CHECK(yes);
        CHECK_OK(gguf_get_str(f, "general.architecture", &s, NULL));
        CHECK(s.len == 5 && memcmp(s.data, "llama", 5) == 0);
        CHECK_OK(gguf_get_arr(f, "a.strs", GGUF_STR, &arr, NULL));
        CHECK(arr.count == 3 && arr.strs[1].len == 0 && arr.strs[2].len == 5);
        CHECK(memcmp(arr.strs[2].data, "th\0ee", 5) == 0);
        CHECK_OK(gguf_get_arr(f, "a.ints", GGUF_I32, &arr, NULL));
        CHECK(gguf_arr_i32(&arr, 0) == 5 && gguf_arr_i32(&arr, 1) == -5);
        CHECK_OK(gguf_get_arr(f, "a.floats", GGUF_F32, &arr, NULL));
        CHECK(gguf_arr_f32(&arr, 0) == -2.0f);
        CHECK_OK(gguf_get_arr(f, "a.empty", GGUF_STR, &arr, NULL));
        CHECK(arr.count == 0);

        const gguf_tensor *t = gguf_find_tensor(f, "w.f32");
        CHECK(t && t->bytes == 32 && t->dims[0] == 4 && t->dims[1] == 2 && t->dims[3] == 1);
        CHECK(*(const uint8_t *)t->data == 0);
        t = gguf_find_tensor(f, "w.q8");
        CHECK(t && t->bytes == 68 && *(const uint8_t *)t->data == 32);
        t = gguf_find_tensor(f, "w.odd");
        CHECK(t && t->bytes == 0 && t->type == 99 && *(const uint8_t *)t->data == 96);
        CHECK(strcmp(ggml_type_name(99), "type 99") == 0);
        CHECK(strcmp(ggml_type_name(GGML_Q8_0), "Q8_0") == 0);
        CHECK(!gguf_find_tensor(f, "w") && !gguf_find_kv(f, "") && !gguf_find_kv(f, "zzz"));
        gguf_close(f);
        unguard(&g);
        gguf_builder_fini(&b);
    }
}

TEST(a_key_of_another_type_is_an_error_and_an_absent_one_is_none)
{
    gguf_builder b;
    build_sample(&b, 3);
    gguf_file *f = NULL;
    CHECK_OK(gguf_open_memory(NULL, b.bytes, b.len, &f, NULL));
    uint32_t u = 42;
    float x = 42;
    bool yes = true;
    gguf_str s;
    gguf_array arr;
    rad_error err = {0};
    CHECK(gguf_get_u32(f, "nothing", &u, &err) == RAD_NONE && u == 42 && !err.text[0]);
    CHECK(gguf_get_u32(f, "a.f32", &u, &err) == RAD_E_FORMAT && u == 42);
    CHECK(strstr(err.text, "'a.f32' is f32; wanted an integer"));
    CHECK(gguf_get_u32(f, "a.i32", &u, &err) == RAD_E_FORMAT);
    CHECK(gguf_get_u32(f, "a.u64", &u, &err) == RAD_E_FORMAT && u == 42);
    CHECK(gguf_get_f32(f, "a.f64", &x, &err) == RAD_E_FORMAT && x == 42);
    CHECK(gguf_get_f32(f, "a.u8", &x, &err) == RAD_E_FORMAT);
    CHECK(gguf_get_bool(f, "a.u8", &yes, &err) == RAD_E_FORMAT);
    CHECK(gguf_get_str(f, "a.strs", &s, &err) == RAD_E_FORMAT);
    CHECK(gguf_get_arr(f, "a.strs", GGUF_I32, &arr, &err) == RAD_E_FORMAT);
    CHECK(strstr(err.text, "array of string; wanted array of i32"));
    CHECK(gguf_get_arr(f, "a.u8", GGUF_I32, &arr, &err) == RAD_E_FORMAT);
    gguf_close(f);
    gguf_builder_fini(&b);
}

TEST(every_truncation_is_an_error)
{
    gguf_builder b;
    build_sample(&b, 3);
    /* The last tensor's type is unknown, so its size is too: the file may end at its offset. */
    size_t least = b.len - 8;
    for (size_t len = 0; len < b.len; len++) {
        guarded g = guard(b.bytes, len);
        gguf_file *f = NULL;
        rad_error err = {0};
        rad_status status = gguf_open_memory(NULL, g.bytes, g.len, &f, &err);
        if (len >= least + 4) { /* w.q8 ends 4 bytes behind w.odd's offset */
            CHECK(status == RAD_OK);
            touch_all(f);
        } else {
            CHECKF(status == RAD_E_FORMAT && !f, "length %zu\n", len);
            CHECK(strncmp(err.text, "gguf: ", 6) == 0);
        }
        gguf_close(f);
        unguard(&g);
    }
    gguf_builder_fini(&b);
}

TEST(flipped_bits_never_lead_outside)
{
    uint64_t seed = test_seed(), state = seed;
    gguf_builder b;
    build_sample(&b, 3);
    guarded g = guard(b.bytes, b.len);
    uint64_t opened = 0, rounds = test_scale(50000, 2000000);
    for (uint64_t round = 0; round < rounds; round++) {
        memcpy(g.bytes, b.bytes, b.len);
        for (uint64_t n = 1 + test_random(&state) % 3; n > 0; n--) {
            size_t at = test_random(&state) % b.len;
            uint64_t r = test_random(&state);
            g.bytes[at] = r & 1 ? (uint8_t)(r >> 8) : g.bytes[at] ^ (uint8_t)(1u << (r >> 8) % 8);
        }
        gguf_file *f = NULL;
        rad_error err = {0};
        rad_status status = gguf_open_memory(NULL, g.bytes, g.len, &f, &err);
        CHECKF((status == RAD_OK) == (f != NULL), "seed %llu\n", (unsigned long long)seed);
        if (f) {
            opened++;
            touch_all(f);
        } else {
            CHECK(status == RAD_E_FORMAT || status == RAD_E_UNSUPPORTED);
        }
        gguf_close(f);
    }
    CHECK(opened > 0 && opened < rounds);
    unguard(&g);
    gguf_builder_fini(&b);
}

/* Opens b's bytes, wants `status` and words that contain `words`. */
static void expect_bad(gguf_builder *b, rad_status wanted, const char *words)
{
    guarded g = guard(b->bytes, b->len);
    gguf_file *f = NULL;
    rad_error err = {0};
    rad_status status = gguf_open_memory(NULL, g.bytes, g.len, &f, &err);
    CHECKF(status == wanted && !f && strstr(err.text, words), "status %d, \"%s\", wanted \"%s\"\n",
           status, err.text, words);
    unguard(&g);
    gguf_builder_fini(b);
}

TEST(lies_in_the_header_are_told_apart)
{
    gguf_builder b;
    gguf_builder_init(&b, 3);
    memcpy(b.bytes, "GGML", 4);
    expect_bad(&b, RAD_E_FORMAT, "not a GGUF file");
    gguf_builder_init(&b, 1);
    expect_bad(&b, RAD_E_UNSUPPORTED, "version 1");
    gguf_builder_init(&b, 3u << 24);
    expect_bad(&b, RAD_E_UNSUPPORTED, "big-endian");
    for (int field = 8; field <= 16; field += 8) {
        gguf_builder_init(&b, 3);
        memset(b.bytes + field, 0xff, 8);
        expect_bad(&b, RAD_E_FORMAT, "claims 18446744073709551615");
        gguf_builder_init(&b, 3);
        b.bytes[field] = 1;
        expect_bad(&b, RAD_E_FORMAT, "claims 1 ");
    }
}

TEST(lies_about_strings_and_arrays_are_refused)
{
    const uint64_t lies[] = {UINT64_MAX, INT64_MAX, UINT64_MAX - 7, 1ull << 61, 1ull << 32, 100};
    for (size_t i = 0; i < sizeof lies / sizeof lies[0]; i++) {
        gguf_builder b;
        gguf_builder_init(&b, 3);
        gguf_put_u64(&b, lies[i]);
        gguf_put(&b, "key and enough bytes", 20);
        b.num_kvs = 1;
        gguf_builder_end(&b, NULL, 0);
        expect_bad(&b, RAD_E_FORMAT, "a key at byte 32 needs");

        gguf_builder_init(&b, 3);
        gguf_put_key(&b, "k", GGUF_STR);
        gguf_put_u64(&b, lies[i]);
        gguf_builder_end(&b, "abc", 3);
        expect_bad(&b, RAD_E_FORMAT, "a string value at byte");

        for (uint32_t type = GGUF_U8; type <= GGUF_F64; type++) {
            if (type == GGUF_ARR) continue;
            gguf_builder_init(&b, 3);
            gguf_put_kv_arr(&b, "k", type, lies[i]);
            gguf_builder_end(&b, "12345678", 8);
            expect_bad(&b, RAD_E_FORMAT, "elements do not fit");
        }
    }
    gguf_builder b;
    gguf_builder_init(&b, 3);
    gguf_put_kv_arr(&b, "k", GGUF_STR, 2);
    gguf_put_str(&b, "fine");
    gguf_put_u64(&b, 1000);
    gguf_builder_end(&b, NULL, 0);
    expect_bad(&b, RAD_E_FORMAT, "an array's string");
    gguf_builder_init(&b, 3);
    gguf_put_kv_arr(&b, "k", GGUF_ARR, 1);
    gguf_builder_end(&b, "0123456789abcdef", 16);
    expect_bad(&b, RAD_E_UNSUPPORTED, "array of arrays");
    gguf_builder_init(&b, 3);
    gguf_put_kv_arr(&b, "k", 13, 1);
    gguf_builder_end(&b, "0123456789abcdef", 16);
    expect_bad(&b, RAD_E_FORMAT, "unknown array type 13");
    gguf_builder_init(&b, 3);
    gguf_put_key(&b, "k", 13);
    gguf_builder_end(&b, "01234567", 8);
    expect_bad(&b, RAD_E_FORMAT, "unknown value type 13");
    gguf_builder_init(&b, 3);
    gguf_put_key(&b, "k", GGUF_BOOL);
    gguf_builder_end(&b, "\2", 1);
    expect_bad(&b, RAD_E_FORMAT, "a bool of 2");
}

TEST(names_that_stand_twice_are_refused)
{
    gguf_builder b;
    gguf_builder_init(&b, 3);
    gguf_put_kv_u32(&b, "same", 1);
    gguf_put_kv_u32(&b, "other", 1);
    gguf_put_kv_u32(&b, "same", 2);
    gguf_builder_end(&b, NULL, 0);
    expect_bad(&b, RAD_E_FORMAT, "key 'same' is there twice");
    gguf_builder_init(&b, 3);
    for (uint64_t i = 0; i < 3; i++)
        gguf_put_tensor(&b, i == 1 ? "b" : "a", GGML_F32, 1, (uint64_t[]){1}, i * 32);
    gguf_builder_end(&b, (char[96]){0}, 96);
    expect_bad(&b, RAD_E_FORMAT, "tensor 'a' is there twice");
}

TEST(alignments_that_are_none_are_refused)
{
    const uint32_t bad[] = {0, 1, 4, 24, 33, 48, 1u << 17, 1u << 31, UINT32_MAX};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        gguf_builder b;
        gguf_builder_init(&b, 3);
        gguf_put_kv_u32(&b, "general.alignment", bad[i]);
        gguf_builder_end(&b, NULL, 0);
        expect_bad(&b, RAD_E_FORMAT, "not a power of two");
    }
    gguf_builder b;
    gguf_builder_init(&b, 3);
    gguf_put_kv_str(&b, "general.alignment", "32");
    gguf_builder_end(&b, NULL, 0);
    expect_bad(&b, RAD_E_FORMAT, "'general.alignment' is string");
}

TEST(tensors_that_do_not_fit_are_refused)
{
    static const struct {
        uint32_t type, num_dims;
        uint64_t dims[6];
        uint64_t offset;
        const char *words;
    } bad[] = {
        {GGML_F32, 0, {0}, 0, "has 0 dimensions"},
        {GGML_F32, 5, {1, 1, 1, 1, 1}, 0, "has 5 dimensions"},
        {GGML_F32, UINT32_MAX, {1}, 0, "dimensions"},
        {GGML_F32, 1, {0}, 0, "dimension 0 of 0"},
        {GGML_F32, 2, {1ull << 32, 1ull << 32}, 0, "dimension 1"},
        {GGML_F32, 4, {1ull << 16, 1ull << 16, 1ull << 16, 1ull << 16}, 0, "dimension 3"},
        {GGML_F32, 2, {1ull << 62, 2}, 0, "dimension 1"},
        {GGML_F32, 1, {1ull << 62}, 0, "size overflows"},
        {GGML_F32, 1, {UINT64_MAX}, 0, "dimension 0"},
        {GGML_F32, 1, {17}, 0, "end behind the file"},
        {GGML_F32, 1, {16}, 32, "end behind the file"},
        {GGML_F32, 1, {1}, 64, "end behind the file"},
        {GGML_F32, 1, {1}, UINT64_MAX - 31, "end behind the file"},
        {GGML_F32, 1, {1}, 16, "not a multiple of the alignment"},
        {GGML_Q8_0, 2, {33, 32}, 0, "blocks of 32"},
        {99, 1, {1}, 96, "end behind the file"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        gguf_builder b;
        gguf_builder_init(&b, 3);
        gguf_put_tensor(&b, "t", bad[i].type, bad[i].num_dims > 5 ? 1 : bad[i].num_dims,
                        bad[i].dims, bad[i].offset);
        if (bad[i].num_dims > 5) memcpy(b.bytes + 24 + 9, &bad[i].num_dims, 4);
        gguf_builder_end(&b, (char[64]){0}, 64);
        expect_bad(&b, RAD_E_FORMAT, bad[i].words);
    }
}

TEST(hostile_names_in_errors_are_printable)
{
    gguf_builder b;
    gguf_builder_init(&b, 3);
    char key[300];
    memset(key, '\033', sizeof key - 1);
    key[sizeof key - 1] = 0;
    gguf_put_key(&b, key, 77);
    gguf_builder_end(&b, "0", 1);
    gguf_file *f = NULL;
    rad_error err = {0};
    CHECK(gguf_open_memory(NULL, b.bytes, b.len, &f, &err) == RAD_E_FORMAT);
    CHECK(!strchr(err.text, '\033') && strstr(err.text, "???..."));
    gguf_builder_fini(&b);
}

TEST(many_names_are_found_whatever_their_order)
{
    uint64_t seed = test_seed(), state = seed;
    enum { MANY = 3000 };
    gguf_builder b;
    gguf_builder_init(&b, 3);
    char key[64];
    uint32_t order[MANY];
    for (uint32_t i = 0; i < MANY; i++) {
        uint32_t k = (uint32_t)(test_random(&state) % (i + 1));
        order[i] = order[k];
        order[k] = i;
    }
    for (uint32_t i = 0; i < MANY; i++) {
        snprintf(key, sizeof key, "k%u", order[i]);
        gguf_put_kv_u32(&b, key, order[i]);
    }
    gguf_builder_end(&b, NULL, 0);
    gguf_file *f = NULL;
    CHECK_OK(gguf_open_memory(NULL, b.bytes, b.len, &f, NULL));
    for (uint32_t i = 0; i < MANY; i++) {
        uint32_t value = 0;
        snprintf(key, sizeof key, "k%u", i);
        CHECKF(gguf_get_u32(f, key, &value, NULL) == RAD_OK && value == i, "seed %llu\n",
               (unsigned long long)seed);
        snprintf(key, sizeof key, "k%u.", i);
        CHECK(gguf_get_u32(f, key, &value, NULL) == RAD_NONE);
    }
    gguf_close(f);
    gguf_builder_fini(&b);
}

TEST(open_survives_every_allocation_failing)
{
    gguf_builder b;
    build_sample(&b, 3);
    gguf_file *f = NULL;
    for (long n = 0; !f; n++) {
        test_env t;
        rad_env env = test_env_failing_at(&t, n);
        rad_status status = gguf_open_memory(&env, b.bytes, b.len, &f, NULL);
        CHECK(status == (f ? RAD_OK : RAD_E_NOMEM));
        gguf_close(f);
        CHECK(t.bytes == 0);
    }
    gguf_builder_fini(&b);
}

TEST(files_that_cannot_be_opened_are_named)
{
    gguf_file *f = NULL;
    rad_error err = {0};
    CHECK(gguf_open(NULL, "/nonexistent/x.gguf", &f, &err) == RAD_E_IO && !f);
    CHECK(strstr(err.text, "/nonexistent/x.gguf"));
    CHECK(gguf_open(NULL, "/", &f, &err) == RAD_E_IO && !f);
    CHECK(gguf_open(NULL, "/dev/null", &f, &err) == RAD_E_IO && !f);

    char path[] = "/tmp/test_gguf_XXXXXX";
    int fd = mkstemp(path);
    CHECK(fd >= 0);
    CHECK(gguf_open(NULL, path, &f, &err) == RAD_E_FORMAT && strstr(err.text, "is empty"));
    gguf_builder b;
    build_sample(&b, 3);
    CHECK(write(fd, b.bytes, b.len) == (ssize_t)b.len);
    CHECK_OK(gguf_open(NULL, path, &f, &err));
    CHECK(((uintptr_t)gguf_find_tensor(f, "w.q8")->data & 31) == 0);
    touch_all(f);
    gguf_close(f);
    close(fd);
    unlink(path);
    gguf_builder_fini(&b);
}

/* As many strings as the largest vocabularies have: what looks at all strings for each of them
 * would not come to an end. */
TEST(a_large_vocabulary_is_read_once)
{
    enum { TOKENS = 300000 };
    gguf_builder b;
    char token[16];
    gguf_builder_init(&b, 3);
    gguf_put_kv_arr(&b, "tokenizer.ggml.tokens", GGUF_STR, TOKENS);
    for (int i = 0; i < TOKENS; i++) {
        snprintf(token, sizeof token, "t%d", i);
        gguf_put_str(&b, token);
    }
    gguf_builder_end(&b, NULL, 0);
    gguf_file *f = NULL;
    gguf_array arr;
    CHECK_OK(gguf_open_memory(NULL, b.bytes, b.len, &f, NULL));
    CHECK_OK(gguf_get_arr(f, "tokenizer.ggml.tokens", GGUF_STR, &arr, NULL));
    CHECK(arr.count == TOKENS);
    gguf_close(f);
    gguf_builder_fini(&b);
}

TEST_MAIN()
