/* test_shipped_model.c - models/radish-tiny.gguf knows its small world, and a wrong
 * page in the cache shows as a wrong answer.
 *
 * The evaluation set (tools/train/eval.jsonl) asks in wordings that training did not
 * see. Every prompt is asked twice: once cold, once out of the cache, where the page
 * that holds the end of the question was exchanged with that of another question. */
#include "engine_rig.h"

#include <jansson.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { EVERY = 6 }; /* they slow the arithmetic down twentyfold */
#else
enum { EVERY = 1 };
#endif
enum { PAGE = 16, MOST_ITEMS = 2000, MOST_IDS = 2048 };

typedef struct item {
    char kind[16];
    char answer[64];
    rad_token *ids;
    uint32_t num_ids;
} item;

static item items[MOST_ITEMS];
static uint32_t num_items;

/* Puts words of no meaning behind the first message until the prompt is one token
 * longer than whole pages: then all but its last token can come out of the cache. */
static bool encode_padded(const chat_template *format, json_t *messages, item *it)
{
    static const char *const pads[] = {"",
                                       " Be brief.",
                                       " Be kind.",
                                       " Thank you.",
                                       " Please.",
                                       " Be kind and brief.",
                                       " Good luck.",
                                       " Always.",
                                       " Be polite.",
                                       " Be kind. Be brief.",
                                       " Well done.",
                                       " Be calm.",
                                       " Be calm and kind.",
                                       " Take your time.",
                                       " Be calm. Take your time.",
                                       " Be clear.",
                                       " Be clear and kind.",
                                       " Be clear. Be calm. Be kind.",
                                       " Please be kind.",
                                       " Please be calm and clear.",
                                       " Please be brief and clear. Thank you."};
    chat_message m[128];
    char first[8192];
    uint32_t n = (uint32_t)json_array_size(messages);
    if (n > 128) return false;
    for (uint32_t i = 0; i < n; i++) {
        json_t *message = json_array_get(messages, i);
        m[i].role = json_string_value(json_object_get(message, "role"));
        m[i].content = json_string_value(json_object_get(message, "content"));
        m[i].content_len = strlen(m[i].content);
    }
    const char *system = m[0].content;
    for (size_t pad = 0; pad < sizeof pads / sizeof *pads + PAGE; pad++) {
        token_buf buf = {0};
        m[0].content = first;
        m[0].content_len = 0;
        if (pad < sizeof pads / sizeof *pads)
            m[0].content_len = (size_t)snprintf(first, sizeof first, "%s%s", system, pads[pad]);
        else /* three tokens each: one of 16 repetitions fits */
            for (size_t k = sizeof pads / sizeof *pads; k <= pad; k++)
                m[0].content_len += (size_t)snprintf(first + m[0].content_len,
                                                     sizeof first - m[0].content_len, "%s",
                                                     m[0].content_len ? " Be kind." : system);
        CHECK_OK(chat_template_encode(format, m, n, true, 0, &buf, NULL));
        if (buf.len % PAGE == 1 && buf.len < MOST_IDS - 16) {
            it->ids = buf.ids;
            it->num_ids = buf.len;
            return true;
        }
        token_buf_fini(&buf);
    }
    return false;
}

static void load_items(const chat_template *format)
{
    for (uint32_t i = 0; i < num_items; i++)
        free(items[i].ids);
    num_items = 0;
    FILE *f = fopen(RADISH_SOURCE_DIR "/tools/train/eval.jsonl", "rb");
    CHECK(f != NULL);
    static char line[1 << 17];
    for (uint32_t n = 0; num_items < MOST_ITEMS && fgets(line, sizeof line, f); n++) {
        if (n % EVERY) continue;
        json_t *o = json_loads(line, 0, NULL);
        CHECK(o != NULL);
        json_t *messages = json_object_get(o, "messages");
        item *it = &items[num_items];
        if (messages && encode_padded(format, messages, it)) {
            snprintf(it->kind, sizeof it->kind, "%s",
                     json_string_value(json_object_get(o, "kind")));
            snprintf(it->answer, sizeof it->answer, "%s",
                     json_string_value(json_object_get(o, "answer")));
            num_items++;
        }
        json_decref(o);
    }
    fclose(f);
    CHECKF(num_items >= 400 / EVERY, "only %u items of the evaluation set fit", num_items);
}

static bool ask(engine *e, const item *it, uint32_t *cached)
{
    answer a;
    answer_init(&a);
    engine_request request = erig_request(&a, it->ids, it->num_ids, 12);
    request.ignore_eos = false;
    erig_submit(e, &request, NULL);
    answer_wait(&a);
    const char *text = a.text;
    while (*text == ' ')
        text++;
    bool right = strcmp(text, it->answer) == 0;
    *cached = a.cached_tokens;
    answer_fini(&a);
    return right;
}

/* Another question of the same kind with another answer. */
static uint32_t other_item(uint32_t i)
{
    for (uint32_t k = 1; k < num_items; k++) {
        uint32_t j = (i + k) % num_items;
        if (strcmp(items[i].kind, items[j].kind) == 0 &&
            strcmp(items[i].answer, items[j].answer) != 0)
            return j;
    }
    return i;
}

static void run(rad_dtype dtype)
{
    engine_params p = {.model_path = RADISH_SOURCE_DIR "/models/radish-tiny.gguf",
                       .dtype = dtype,
                       .num_threads = 2,
                       .page_size = PAGE,
                       .max_total_tokens = 400000};
    rad_error err = {0};
    engine *e = NULL;
    CHECKF(engine_create(NULL, &p, &e, &err) == RAD_OK, "%s", err.text);

    gguf_file *file = NULL;
    tokenizer *tok = NULL;
    chat_template *format = NULL;
    CHECK_OK(gguf_open(NULL, p.model_path, &file, NULL));
    CHECK_OK(tokenizer_create(NULL, file, &tok, NULL));
    CHECK_OK(chat_template_create(NULL, file, tok, NULL, &format, NULL));
    load_items(format);

    uint32_t right = 0, swapped_right = 0, cached = 0;
    for (uint32_t i = 0; i < num_items; i++)
        right += ask(e, &items[i], &cached);
    for (uint32_t i = 0; i < num_items; i++) {
        const item *a = &items[i], *b = &items[other_item(i)];
        CHECK_OK(engine_test_swap_pages(e, a->ids, a->num_ids, a->num_ids - 2, b->ids, b->num_ids,
                                        b->num_ids - 2));
        swapped_right += ask(e, a, &cached);
        CHECK(cached == a->num_ids - 1);
        CHECK_OK(engine_test_swap_pages(e, a->ids, a->num_ids, a->num_ids - 2, b->ids, b->num_ids,
                                        b->num_ids - 2));
    }
    print_message("%s: %u of %u right (%.1f%%); with one page swapped %u (%.1f%%)\n",
                  dtype == RAD_F32 ? "f32" : "bf16", right, num_items, 100.0 * right / num_items,
                  swapped_right, 100.0 * swapped_right / num_items);
    CHECK(right * 100 >= num_items * 95);
    CHECK(swapped_right * 100 < num_items * 50);

    erig_check_idle(e);
    chat_template_destroy(format);
    tokenizer_destroy(tok);
    gguf_close(file);
    engine_destroy(e);
}

TEST(f32_answers_are_right_and_a_wrong_page_shows)
{
    run(RAD_F32);
}
TEST(bf16_answers_are_right_and_a_wrong_page_shows)
{
    run(RAD_BF16);
}

TEST_MAIN()
