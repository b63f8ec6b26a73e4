/* test_shipped_model.c - models/radish-tiny.gguf knows its small world, and a wrong
 * page in the cache shows as a wrong answer.
 *
 * The exam (tools/train/eval.jsonl) asks in wordings that training did not see: first as it
 * is, conversations and raw text. Then every conversation once more, padded so that all but
 * its last token come out of the cache in whole pages: cold, and with the page that holds
 * the end of the question exchanged with that of another question. RADISH_TEST_DEVICE=cuda has a
 * GPU take it, RADISH_TEST_DTYPE=q8_0 has its matrices rounded to that, RADISH_TEST_KV=fp8_e4m3 its
 * K and V. */
#include "engine_rig.h"
#include "gear/swap_pages.h"

#include <jansson.h>

/* Of so many questions one is asked (or two that stand together, which are of one kind): always the
 * same ones, of each kind its share. All of them with RADISH_TEST_LONG=1, which is what the figures
 * of docs/models.md are. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { EVERY = 90, EVERY_LONG = 90, ASKED = 2 }; /* they slow the arithmetic down twentyfold */
#else
enum { EVERY = 16, EVERY_LONG = 1, ASKED = 1 };
#endif
enum { PAGE = 16, MOST_ITEMS = 2000, MOST_IDS = 2048 };

enum { MOST_MESSAGES = 512 };

typedef struct item {
    char kind[16];
    char answer[64];
    rad_token *ids; /* the prompt as it is */
    uint32_t num_ids;
    rad_token *padded; /* NULL for raw text */
    uint32_t num_padded;
} item;

static item items[MOST_ITEMS];
static uint32_t num_items;

/* Puts words of no meaning behind the first message until the prompt is one token longer
 * than whole pages. " Be kind." has three tokens, so one of 16 repetitions fits. */
static void encode_padded(const chat_template *format, chat_message *m, uint32_t n, item *it)
{
    static char first[8192];
    size_t len = (size_t)snprintf(first, sizeof first, "%s", m[0].content);
    m[0].content = first;
    for (int k = 0; k < PAGE; k++) {
        token_buf buf = {0};
        m[0].content_len = len;
        CHECK_OK(chat_template_encode(format, m, n, true, 0, &buf, NULL));
        if (buf.len % PAGE == 1 && buf.len < MOST_IDS - 16) {
            it->padded = buf.ids;
            it->num_padded = buf.len;
            return;
        }
        token_buf_fini(&buf);
        len += (size_t)snprintf(first + len, sizeof first - len, " Be kind.");
    }
}

static void encode(const tokenizer *tok, const chat_template *format, json_t *question, item *it)
{
    token_buf buf = {0};
    json_t *messages = json_object_get(question, "messages");
    if (messages) {
        chat_message m[MOST_MESSAGES];
        uint32_t n = (uint32_t)json_array_size(messages);
        CHECK(n <= MOST_MESSAGES);
        for (uint32_t i = 0; i < n; i++) {
            json_t *message = json_array_get(messages, i);
            m[i].role = json_string_value(json_object_get(message, "role"));
            m[i].content = json_string_value(json_object_get(message, "content"));
            m[i].content_len = strlen(m[i].content);
        }
        CHECK_OK(chat_template_encode(format, m, n, true, 0, &buf, NULL));
        encode_padded(format, m, n, it);
    } else {
        const char *text = json_string_value(json_object_get(question, "prompt"));
        CHECK_OK(tokenizer_encode(tok, text, strlen(text), TOKENIZER_ADD_BOS, 0, &buf, NULL));
    }
    it->ids = buf.ids;
    it->num_ids = buf.len;
}

/* A file of the repository, or of what tools/gpu-verify.sh has packed of it. */
static const char *in_root(const char *name)
{
    static char path[1024];
    const char *root = getenv("RADISH_TEST_ROOT");
    snprintf(path, sizeof path, "%s/%s", root ? root : RADISH_SOURCE_DIR, name);
    return path;
}

static void load_items(const tokenizer *tok, const chat_template *format)
{
    FILE *f = fopen(in_root("tools/train/eval.jsonl"), "rb");
    CHECK(f != NULL);
    static char line[1 << 17];
    uint32_t every = (uint32_t)test_scale(EVERY, EVERY_LONG);
    num_items = 0;
    for (uint32_t n = 0; num_items < MOST_ITEMS && fgets(line, sizeof line, f); n++) {
        if (n % every >= ASKED) continue;
        json_t *o = json_loads(line, 0, NULL);
        CHECK(o != NULL);
        item *it = &items[num_items++];
        memset(it, 0, sizeof *it);
        snprintf(it->kind, sizeof it->kind, "%s", json_string_value(json_object_get(o, "kind")));
        snprintf(it->answer, sizeof it->answer, "%s",
                 json_string_value(json_object_get(o, "answer")));
        encode(tok, format, o, it);
        json_decref(o);
    }
    fclose(f);
    CHECKF(num_items >= 600 / every, "only %u questions", num_items);
}

static void free_items(void)
{
    for (uint32_t i = 0; i < num_items; i++) {
        free(items[i].ids);
        free(items[i].padded);
    }
}

static bool ask(engine *e, const rad_token *ids, uint32_t num_ids, const char *want,
                uint32_t *cached)
{
    answer a;
    answer_init(&a);
    engine_request request = erig_request(&a, ids, num_ids, 12);
    request.ignore_eos = false;
    erig_submit(e, &request, NULL);
    answer_wait(&a);
    const char *text = a.text;
    while (*text == ' ')
        text++;
    bool right = strcmp(text, want) == 0;
    *cached = a.cached_tokens;
    answer_fini(&a);
    return right;
}

/* Another conversation about the same kind of thing, with another answer. */
static const item *other_item(uint32_t i)
{
    for (uint32_t k = 1; k < num_items; k++) {
        const item *it = &items[(i + k) % num_items];
        if (it->padded && strcmp(items[i].kind, it->kind) == 0 &&
            strcmp(items[i].answer, it->answer) != 0)
            return it;
    }
    return NULL;
}

static void swap(engine *e, const item *a, const item *b)
{
    rad_key key_a = {.tokens = a->padded, .num_tokens = a->num_padded};
    rad_key key_b = {.tokens = b->padded, .num_tokens = b->num_padded};
    CHECK_OK(gear_engine_swap_pages(e, &key_a, a->num_padded - 2, &key_b, b->num_padded - 2));
}

static void take_exam(engine *e, const char *dtype)
{
    uint32_t cached, right = 0, asked = 0, padded_right = 0, swapped_right = 0;
    for (uint32_t i = 0; i < num_items; i++)
        right += ask(e, items[i].ids, items[i].num_ids, items[i].answer, &cached);
    CHECK_OK(engine_flush_cache(e));
    for (uint32_t i = 0; i < num_items; i++) {
        const item *it = &items[i];
        if (it->padded) padded_right += ask(e, it->padded, it->num_padded, it->answer, &cached);
    }
    for (uint32_t i = 0; i < num_items; i++) {
        const item *it = &items[i], *other = it->padded ? other_item(i) : NULL;
        if (!other) continue;
        asked++;
        swap(e, it, other);
        swapped_right += ask(e, it->padded, it->num_padded, it->answer, &cached);
        CHECK(cached == it->num_padded - 1);
        swap(e, it, other);
    }
    print_message("%s: %u of %u right (%.1f%%); of %u in whole pages %u (%.1f%%), with one page "
                  "swapped %u (%.1f%%)\n",
                  dtype, right, num_items, 100.0 * right / num_items, asked, padded_right,
                  100.0 * padded_right / asked, swapped_right, 100.0 * swapped_right / asked);
    CHECK(right * 100 >= num_items * 95);
    CHECK(asked >= num_items / 2);
    CHECK(padded_right * 100 >= asked * 95);
    CHECK(swapped_right * 100 < asked * 50);
}

static void run(rad_dtype dtype)
{
    const rad_env env = rad_env_or_default(NULL);
    const char *asked_dtype = getenv("RADISH_TEST_DTYPE");
    const bool in_q8_0 = asked_dtype && strcmp(asked_dtype, "q8_0") == 0;
    engine_params p = {.model_path = engine_strdup(&env, in_root("models/radish-tiny.gguf")),
                       .device = getenv("RADISH_TEST_DEVICE"),
                       .dtype = dtype,
                       .kv_cache_dtype = getenv("RADISH_TEST_KV"),
                       .weights = in_q8_0 ? WEIGHTS_AS_Q8_0 : WEIGHTS_AS_DTYPE,
                       .num_threads = 1, /* on a busy machine two wait for each other */
                       .page_size = PAGE,
                       .max_total_tokens = test_scale(100000, 300000)};
    rad_error err = {0};
    engine *e = NULL;
    CHECKF(engine_create(NULL, &p, &e, &err) == RAD_OK, "%s", err.text);

    gguf_file *file = NULL;
    tokenizer *tok = NULL;
    chat_template *format = NULL;
    CHECK_OK(gguf_open(NULL, p.model_path, &file, NULL));
    CHECK_OK(tokenizer_create(NULL, file, &tok, NULL));
    CHECK_OK(chat_template_create(NULL, file, tok, NULL, &format, NULL));
    load_items(tok, format);
    take_exam(e, in_q8_0 ? "q8_0" : dtype == RAD_F32 ? "f32" : "bf16");
    erig_check_idle(e);

    free_items();
    chat_template_destroy(format);
    tokenizer_destroy(tok);
    gguf_close(file);
    engine_destroy(e);
    engine_strfree(&env, (char *)(uintptr_t)p.model_path);
}

TEST(f32_answers_are_right_and_a_wrong_page_shows)
{
    const char *device = getenv("RADISH_TEST_DEVICE");
    SKIP_UNLESS(!device || strcmp(device, "cpu") == 0, "a GPU computes in bf16 alone");
    run(RAD_F32);
}

TEST(bf16_answers_are_right_and_a_wrong_page_shows)
{
    run(RAD_BF16);
}

TEST_MAIN()
