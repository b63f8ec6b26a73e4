/* test_gguf_split.c - a model in several files: any of them opens all, and what does not belong
 * together is refused with the part's name. */
#include "gguf_builder.h"
#include "test.h"

#include "base/base.h"
#include "gguf/gguf_source.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PARTS = 3, MOST_PATH = 96 };

/* What a part says, and what it is called. */
typedef struct part {
    uint32_t no, count, tensors; /* its keys */
    bool no_keys;
    const char *architecture; /* NULL: not said */
    const char *names[3];     /* of its tensors */
    uint32_t file_no, file_count;
} part;

static char dir[] = "/tmp/test_gguf_split_XXXXXX";

static const char *path_of(uint32_t no, uint32_t count)
{
    static char path[MOST_PATH];
    snprintf(path, sizeof path, "%s/m-%05u-of-%05u.gguf", dir, no + 1, count);
    return path;
}

static void write_file(const char *path, const void *bytes, size_t len)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    CHECK(fd >= 0 && write(fd, bytes, len) == (ssize_t)len);
    close(fd);
}

/* Tensor number i of a part has 8 floats of value file_no * 10 + i. */
static void write_part(const part *p)
{
    gguf_builder b;
    float data[3][8];
    uint32_t n = 0;
    gguf_builder_init(&b, 3);
    if (p->architecture) gguf_put_kv_str(&b, "general.architecture", p->architecture);
    if (p->file_no == 0) gguf_put_kv_u32(&b, "only.in.the.first", 7);
    if (!p->no_keys) {
        gguf_put_key(&b, "split.no", GGUF_U16);
        gguf_put(&b, &p->no, 2);
        gguf_put_key(&b, "split.count", GGUF_U16);
        gguf_put(&b, &p->count, 2);
        gguf_put_key(&b, "split.tensors.count", GGUF_I32);
        gguf_put_u32(&b, p->tensors);
    }
    for (; n < 3 && p->names[n]; n++) {
        gguf_put_tensor(&b, p->names[n], GGML_F32, 1, (uint64_t[]){8}, n * 32);
        for (int i = 0; i < 8; i++)
            data[n][i] = (float)(p->file_no * 10 + n);
    }
    gguf_builder_end(&b, data, n * sizeof data[0]);
    write_file(path_of(p->file_no, p->file_count), b.bytes, b.len);
    gguf_builder_fini(&b);
}

static void make_dir(void)
{
    memcpy(dir + sizeof dir - 7, "XXXXXX", 6);
    CHECK(mkdtemp(dir) != NULL);
}

static void remove_dir(void)
{
    char command[64];
    snprintf(command, sizeof command, "rm -rf %s", dir);
    CHECK(system(command) == 0);
}

/* Of five tensors: two, none, three. */
static void good_parts(part p[PARTS])
{
    p[0] = (part){0, PARTS, 5, false, "llama", {"a", "b"}, 0, PARTS};
    p[1] = (part){1, PARTS, 5, false, NULL, {0}, 1, PARTS};
    p[2] = (part){2, PARTS, 5, false, "llama", {"c", "d", "e"}, 2, PARTS};
}

static void write_parts(const part p[PARTS])
{
    for (int i = 0; i < PARTS; i++)
        write_part(&p[i]);
}

static float value_of(const gguf_file *f, const char *name)
{
    const gguf_tensor *t = gguf_find_tensor(f, name);
    float value;
    CHECK(t && t->bytes == 32);
    memcpy(&value, (const char *)t->data + 28, sizeof value);
    return value;
}

TEST(any_part_opens_all)
{
    part p[PARTS];
    make_dir();
    good_parts(p);
    write_parts(p);
    for (uint32_t given = 0; given < PARTS; given++) {
        gguf_file *f = NULL;
        rad_error err = {0};
        rad_status status = gguf_open(NULL, path_of(given, PARTS), &f, &err);
        CHECKF(status == RAD_OK, "%s\n", err.text);
        CHECK(gguf_num_tensors(f) == 5 && gguf_num_parts(f) == PARTS);
        uint32_t seven = 0;
        CHECK(gguf_get_u32(f, "only.in.the.first", &seven, NULL) == RAD_OK && seven == 7);
        CHECK(value_of(f, "a") == 0 && value_of(f, "b") == 1);
        CHECK(value_of(f, "c") == 20 && value_of(f, "d") == 21 && value_of(f, "e") == 22);
        CHECK(!gguf_find_tensor(f, "f"));
        uint64_t bytes = 0;
        for (uint32_t i = 0; i < PARTS; i++) {
            struct stat st;
            CHECK(stat(path_of(i, PARTS), &st) == 0);
            bytes += (uint64_t)st.st_size;
        }
        CHECK(gguf_file_bytes(f) == bytes);
        for (uint64_t i = 0; i < 5; i++) { /* advice reaches each part's mapping */
            gguf_will_need(f, gguf_tensor_at(f, i), i, 1000);
            gguf_forget(f, gguf_tensor_at(f, i));
        }
        CHECK(value_of(f, "e") == 22);
        gguf_close(f);
    }
    remove_dir();
}

static void expect_bad(uint32_t given, rad_status want, const char *words, const char *name)
{
    gguf_file *f = (gguf_file *)1;
    rad_error err = {0};
    test_env t;
    rad_env env = test_env_init(&t);
    rad_status status = gguf_open(&env, path_of(given, PARTS), &f, &err);
    CHECKF(status == want && !f, "%d: %s\n", status, err.text);
    CHECKF(strstr(err.text, words), "'%s' is not in '%s'\n", words, err.text);
    CHECKF(strstr(err.text, name), "'%s' is not in '%s'\n", name, err.text);
    CHECK(t.bytes == 0);
}

TEST(what_does_not_belong_together_is_refused_by_name)
{
    static const struct {
        uint32_t which; /* of the parts is like this: */
        part part;
        const char *words, *name;
    } bad[] = {
        {1, {0, 3, 5, false, NULL, {0}, 1, 3}, "says of itself that it is part 1 of 3", "m-00002-"},
        {1, {2, 3, 5, false, NULL, {0}, 1, 3}, "says of itself that it is part 3 of 3", "m-00002-"},
        {1, {1, 4, 5, false, NULL, {0}, 1, 3}, "part 2 of 4", "m-00002-"},
        {1, {1, 3, 6, false, NULL, {0}, 1, 3}, "split.tensors.count is 6", "m-00002-"},
        {1, {1, 3, 5, false, NULL, {"x"}, 1, 3}, "have 6 tensors, split.tensors.count is 5", "m"},
        {2, {2, 3, 5, false, NULL, {"c", "d"}, 2, 3}, "have 4 tensors", "m"},
        {2, {2, 3, 5, false, NULL, {"c", "d", "a"}, 2, 3}, "tensor 'a' is there twice", ""},
        {2, {2, 3, 5, false, "qwen2", {"c", "d", "e"}, 2, 3}, "of another model", "m-00003-"},
        {2, {2, 3, 5, true, NULL, {"c", "d", "e"}, 2, 3}, "no key split.no", "m-00003-"},
        {2, {2, 1, 5, false, NULL, {"c", "d", "e"}, 2, 3}, "part 3 of 1", "m-00003-"},
    };
    for (size_t i = 0; i < RAD_COUNT(bad); i++) {
        part p[PARTS];
        make_dir();
        good_parts(p);
        p[bad[i].which] = bad[i].part;
        write_parts(p);
        expect_bad(0, RAD_E_FORMAT, bad[i].words, bad[i].name);
        remove_dir();
    }
}

/* Counts that no folder of files has are refused before anything is allocated by them. */
TEST(numbers_of_the_file_that_is_given_are_not_believed)
{
    static const struct {
        uint32_t no, count, tensors;
        rad_status status;
        const char *words;
    } bad[] = {
        {0, 65535, 5, RAD_E_LIMIT, "split.count is 65535"},
        {0, 513, 5, RAD_E_LIMIT, "split.count is 513"},
        {65535, 3, 5, RAD_E_FORMAT, "part 65536 of 3"},
        {1, 3, 5, RAD_E_FORMAT, "its name does not end in -00002-of-00003.gguf"},
        {0, 2, 5, RAD_E_FORMAT, "its name does not end in -00001-of-00002.gguf"},
        {0, 3, 4, RAD_E_FORMAT, "of another model"},
        {0, 3, UINT32_MAX, RAD_E_FORMAT, "split.tensors.count"},
    };
    for (size_t i = 0; i < RAD_COUNT(bad); i++) {
        part p[PARTS];
        make_dir();
        good_parts(p);
        p[0].no = bad[i].no, p[0].count = bad[i].count, p[0].tensors = bad[i].tensors;
        write_parts(p);
        expect_bad(0, bad[i].status, bad[i].words, "m-0000");
        remove_dir();
    }
}

TEST(a_part_that_is_missing_or_broken_is_named)
{
    part p[PARTS];
    make_dir();
    good_parts(p);
    for (uint32_t gone = 0; gone < PARTS; gone++) {
        char name[32];
        uint32_t given = gone ? 0 : 1;
        snprintf(name, sizeof name, "m-%05u-of-00003.gguf", gone + 1);
        write_parts(p);
        CHECK(unlink(path_of(gone, PARTS)) == 0);
        expect_bad(given, RAD_E_IO, "No such file", name);
        write_file(path_of(gone, PARTS), "GGUF\3\0\0\0 cut short", 18);
        expect_bad(given, RAD_E_FORMAT, "of 3", name);
        write_file(path_of(gone, PARTS), "", 0);
        expect_bad(given, RAD_E_FORMAT, "is empty", name);
    }
    remove_dir();
}

/* A file that was joined again has the keys still. */
TEST(one_file_with_a_count_of_0_or_1_is_whole)
{
    for (uint32_t count = 0; count < 2; count++) {
        part p = {0, count, 2, false, "llama", {"a", "b"}, 0, PARTS};
        gguf_file *f = NULL;
        make_dir();
        write_part(&p);
        CHECK_OK(gguf_open(NULL, path_of(0, PARTS), &f, NULL));
        CHECK(gguf_num_tensors(f) == 2 && gguf_num_parts(f) == 1);
        gguf_close(f);
        remove_dir();
    }
}

TEST(bytes_in_memory_are_not_one_of_several)
{
    gguf_builder b;
    gguf_file *f = (gguf_file *)1;
    rad_error err = {0};
    gguf_builder_init(&b, 3);
    gguf_put_kv_u32(&b, "split.count", 2);
    gguf_builder_end(&b, NULL, 0);
    CHECK(gguf_open_memory(NULL, b.bytes, b.len, &f, &err) == RAD_E_UNSUPPORTED && !f);
    CHECKF(strstr(err.text, "one of 2 parts"), "%s\n", err.text);
    gguf_builder_fini(&b);
}

/* Bits of each part flipped at random: an error in words, or a file all of whose tensors can be
 * read. */
TEST(bent_parts_never_fault)
{
    part p[PARTS];
    uint64_t state = test_seed();
    uint64_t opened = 0, rounds = test_scale(300, 20000);
    make_dir();
    good_parts(p);
    for (uint64_t round = 0; round < rounds; round++) {
        uint32_t which = (uint32_t)(test_random(&state) % PARTS);
        uint8_t bytes[2048];
        gguf_file *f = NULL;
        rad_error err = {0};
        write_parts(p);
        int fd = open(path_of(which, PARTS), O_RDWR | O_CLOEXEC);
        ssize_t len = read(fd, bytes, sizeof bytes);
        CHECK(fd >= 0 && len > 0);
        for (uint64_t flips = 1 + test_random(&state) % 3; flips; flips--)
            bytes[test_random(&state) % (uint64_t)len] ^= (uint8_t)(1u << test_random(&state) % 8);
        CHECK(pwrite(fd, bytes, (size_t)len, 0) == len);
        close(fd);
        rad_status status =
            gguf_open(NULL, path_of((uint32_t)(test_random(&state) % PARTS), PARTS), &f, &err);
        CHECK((status == RAD_OK) == (f != NULL) && (f || err.text[0]));
        for (uint64_t i = 0; f && i < gguf_num_tensors(f); i++) {
            const gguf_tensor *t = gguf_tensor_at(f, i);
            const volatile uint8_t *data = t->data; /* volatile: all of it is read */
            for (uint64_t k = 0; k < t->bytes; k++)
                (void)data[k];
        }
        opened += f != NULL;
        gguf_close(f);
    }
    CHECK(opened > 0 && opened < rounds);
    remove_dir();
}

TEST(every_allocation_may_fail)
{
    part p[PARTS];
    gguf_file *f = NULL;
    make_dir();
    good_parts(p);
    write_parts(p);
    for (long n = 0; !f; n++) {
        test_env t;
        rad_env env = test_env_failing_at(&t, n);
        rad_status status = gguf_open(&env, path_of(1, PARTS), &f, NULL);
        CHECK(status == (f ? RAD_OK : RAD_E_NOMEM));
        gguf_source *s = NULL;
        if (f && gguf_source_create(&env, f, false, &s, NULL) != RAD_OK) {
            gguf_close(f);
            f = NULL;
        }
        gguf_close(s ? f : NULL);
        gguf_source_destroy(s);
        CHECK(t.bytes == 0);
    }
    remove_dir();
}

static void digest_of(uint32_t given, char digest[GGUF_DIGEST_BYTES])
{
    rad_env env = rad_env_or_default(NULL);
    gguf_file *f = NULL;
    gguf_source *s = NULL;
    const char *text;
    CHECK_OK(gguf_open(NULL, path_of(given, PARTS), &f, NULL));
    CHECK_OK(gguf_source_create(&env, f, true, &s, NULL));
    gguf_close(f); /* it keeps the files that were opened */
    CHECK_OK(gguf_source_check(s, NULL));
    CHECK_OK(gguf_source_digest(s, &text, NULL));
    snprintf(digest, GGUF_DIGEST_BYTES, "%s", text);
    gguf_source_destroy(s);
}

/* The digest is of all parts, whichever was given: a byte in any of them makes another model. */
TEST(the_digest_covers_all_parts)
{
    part p[PARTS];
    char first[GGUF_DIGEST_BYTES], again[GGUF_DIGEST_BYTES];
    make_dir();
    good_parts(p);
    write_parts(p);
    digest_of(0, first);
    for (uint32_t i = 0; i < PARTS; i++) {
        digest_of(i, again);
        CHECK(strcmp(first, again) == 0);
    }
    for (uint32_t i = 0; i < PARTS; i += 2) { /* those with tensors */
        struct stat st;
        write_parts(p);
        int fd = open(path_of(i, PARTS), O_RDWR | O_CLOEXEC);
        CHECK(fd >= 0 && fstat(fd, &st) == 0 && pwrite(fd, "x", 1, st.st_size - 1) == 1);
        close(fd);
        digest_of(1, again);
        CHECK(strcmp(first, again) != 0);
    }
    remove_dir();
}

/* One of them is written to after it was opened: nobody can say which bytes were loaded. */
TEST(a_part_that_changes_while_it_is_open_is_noticed)
{
    part p[PARTS];
    rad_env env = rad_env_or_default(NULL);
    for (uint32_t i = 0; i < PARTS; i++)
        for (int digest_now = 0; digest_now < 2; digest_now++) {
            gguf_file *f = NULL;
            gguf_source *s = NULL;
            rad_error err = {0};
            make_dir();
            good_parts(p);
            write_parts(p);
            const struct timespec when = {1700000000, 5}, times[2] = {when, when};
            for (uint32_t k = 0; k < PARTS; k++)
                CHECK(utimensat(AT_FDCWD, path_of(k, PARTS), times, 0) == 0);
            CHECK_OK(gguf_open(NULL, path_of(0, PARTS), &f, NULL));
            CHECK_OK(gguf_source_create(&env, f, digest_now, &s, NULL));
            CHECK_OK(gguf_source_check(s, NULL));
            int fd = open(path_of(i, PARTS), O_RDWR | O_CLOEXEC);
            CHECK(fd >= 0 && pwrite(fd, "x", 1, 40) == 1);
            CHECK(!digest_now || futimens(fd, times) == 0); /* and the time is set back */
            close(fd);
            CHECK(gguf_source_check(s, &err) == RAD_E_IO);
            CHECKF(strstr(err.text, "has been changed"), "%s\n", err.text);
            gguf_source_destroy(s);
            gguf_close(f);
            remove_dir();
        }
}

TEST_MAIN()
