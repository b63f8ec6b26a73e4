/* test_model_replaced.c - a model file that is replaced or written to while it loads: what is
 * filed under its digest is what came out of the bytes that were loaded, or nothing is.
 *
 * The load's progress callback is the moment at which somebody else acts. */
#include "engine/engine_impl.h"
#include "test.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#define MODEL RADISH_SOURCE_DIR "/models/radish-tiny.gguf"

typedef enum act {
    ACT_NONE,
    ACT_RENAME, /* another file takes the name */
    ACT_REMOVE, /* the name goes */
    ACT_WRITE,  /* bytes of the open file change */
    ACT_FORGE,  /* likewise, and the time of change is set back */
    ACT_TOUCH   /* its inode changes, no byte does */
} act;

typedef struct scene {
    char dir[32], model[64], other[64], store[64];
    act act;
    bool acted;
} scene;

/* A copy of the shipped model; `flip` alters a weight. Written long ago, or `fresh`: its time of change
 * lies ahead, so that it is new however long this machine takes from here to the load. */
static void copy_model(const char *path, bool flip, bool fresh)
{
    char command[1200];
    snprintf(command, sizeof command, "cp %s %s && chmod u+w %s", MODEL, path, path);
    CHECK(system(command) == 0);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    struct stat st;
    CHECK(fd >= 0 && fstat(fd, &st) == 0);
    uint8_t byte;
    CHECK(pread(fd, &byte, 1, st.st_size - 4000) == 1);
    byte ^= flip ? 1 : 0;
    CHECK(pwrite(fd, &byte, 1, st.st_size - 4000) == 1);
    const struct timespec when = {fresh ? 4000000000 : 1700000000, 5}, times[2] = {when, when};
    CHECK(futimens(fd, times) == 0);
    close(fd);
}

static void set_scene(scene *s, act what, bool fresh)
{
    *s = (scene){.dir = "/tmp/radish-replaced-XXXXXX", .act = what};
    CHECK(mkdtemp(s->dir) != NULL);
    snprintf(s->model, sizeof s->model, "%s/model.gguf", s->dir);
    snprintf(s->other, sizeof s->other, "%s/other.gguf", s->dir);
    snprintf(s->store, sizeof s->store, "file:%s/store", s->dir);
    copy_model(s->model, false, fresh);
    copy_model(s->other, true, fresh);
}

static void end_scene(scene *s)
{
    char command[64];
    snprintf(command, sizeof command, "rm -rf %s", s->dir);
    CHECK(system(command) == 0);
}

static void take_part(void *user, uint64_t done, uint64_t total)
{
    scene *s = user;
    struct stat st;
    (void)total;
    if (s->acted || !done) return;
    s->acted = true;
    if (s->act == ACT_RENAME) CHECK(rename(s->other, s->model) == 0);
    if (s->act == ACT_REMOVE) CHECK(unlink(s->model) == 0);
    if (s->act == ACT_TOUCH) CHECK(chmod(s->model, 0600) == 0);
    if (s->act != ACT_WRITE && s->act != ACT_FORGE) return;
    int fd = open(s->model, O_RDWR | O_CLOEXEC);
    CHECK(fd >= 0 && fstat(fd, &st) == 0);
    CHECK(pwrite(fd, "other weights", 13, st.st_size - 4000) == 13);
    const struct timespec times[2] = {st.st_atim, st.st_mtim};
    if (s->act == ACT_FORGE) CHECK(futimens(fd, times) == 0);
    close(fd);
}

static rad_status start(scene *s, bool with_store, engine **e, rad_error *err)
{
    engine_params p = {.model_path = s->model,
                       .max_total_tokens = 512,
                       .num_threads = 1,
                       .enable_hierarchical_cache = true,
                       .hicache_storage_backend = with_store ? s->store : NULL,
                       .progress = take_part,
                       .progress_user = s};
    return engine_create(NULL, &p, e, err);
}

static void digest_of(const char *path, char digest[GGUF_DIGEST_BYTES])
{
    rad_env env = rad_env_or_default(NULL);
    gguf_file *file;
    gguf_source *source;
    const char *text;
    rad_error err;
    CHECK_OK(gguf_open(&env, path, &file, &err));
    CHECK_OK(gguf_source_create(&env, file, true, &source, &err));
    CHECK_OK(gguf_source_digest(source, &text, &err));
    snprintf(digest, GGUF_DIGEST_BYTES, "%s", text);
    gguf_source_destroy(source);
    gguf_close(file);
}

/* The path names another model when the load ends: pages must be under the digest of the first. */
TEST(a_name_that_another_model_takes_does_not_matter)
{
    char loaded[GGUF_DIGEST_BYTES], other[GGUF_DIGEST_BYTES];
    for (int with_store = 0; with_store < 2; with_store++)
        for (act a = ACT_RENAME; a <= ACT_REMOVE; a++) {
            scene s;
            rad_error err = {0};
            engine *e;
            set_scene(&s, a, false);
            digest_of(s.model, loaded);
            digest_of(s.other, other);
            CHECK(strcmp(loaded, other) != 0);
            rad_status status = start(&s, with_store, &e, &err);
            CHECKF(status == RAD_OK && s.acted, "%s\n", err.text);
            if (!with_store) CHECK_OK(engine_attach_storage(e, s.store, NULL, &err));
            CHECKF(strcmp(e->tiers.model, loaded) == 0, "%s\n", e->tiers.model);
            engine_destroy(e);
            end_scene(&s);
        }
}

/* Bytes of the open file itself change: nobody can say what was loaded. With a store that is known
 * before, and is found also where the times were set back. */
TEST(a_file_that_is_written_to_while_it_loads_is_refused)
{
    for (int with_store = 0; with_store < 2; with_store++)
        for (act a = ACT_WRITE; a <= ACT_FORGE; a++) {
            scene s;
            rad_error err = {0};
            engine *e = NULL;
            set_scene(&s, a, false);
            CHECK(start(&s, with_store, &e, &err) == RAD_E_IO && !e);
            CHECKF(strstr(err.text, "has been changed"), "%s\n", err.text);
            end_scene(&s);
        }
}

/* Written so shortly before that its times cannot tell one write from the next: the bytes do. */
TEST(a_file_that_is_new_is_read_twice)
{
    for (act a = ACT_NONE; a <= ACT_TOUCH; a++) {
        scene s;
        rad_error err = {0};
        engine *e = NULL;
        set_scene(&s, a, true);
        bool changes = a == ACT_WRITE || a == ACT_FORGE;
        rad_status status = start(&s, false, &e, &err);
        CHECKF(status == (changes ? RAD_E_IO : RAD_OK), "%d: %s\n", a, err.text);
        if (e) CHECK(strncmp(e->tiers.model, "xxh3", 4) != 0); /* for the first store */
        engine_destroy(e);
        end_scene(&s);
    }
}

TEST(bytes_in_memory_have_no_source)
{
    rad_env env = rad_env_or_default(NULL);
    rad_error err = {0};
    gguf_source *source;
    gguf_file *file;
    static const uint8_t none[24] = {'G', 'G', 'U', 'F', 3};
    CHECK_OK(gguf_open_memory(&env, none, sizeof none, &file, &err));
    CHECK(gguf_source_create(&env, file, true, &source, &err) == RAD_E_INVAL && !source);
    gguf_close(file);
}

TEST_MAIN()
