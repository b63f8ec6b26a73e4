/* fuzz_tokenizer.c - any bytes as a text: encoding and decoding gives the bytes back, ids
 * are in range, and without special parsing no control token comes out. */
#include "tiny_vocab.h"

#include "text/chat_template.h"
#include "text/detokenize.h"

enum { BPE = 10, MODELS = BPE + 2, NFC = 2 };
static tokenizer *models[MODELS];

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc;
    (void)argv;
    static const char *const pre[] = {"gpt-2",  "llama-bpe", "qwen2",   "deepseek-llm", "gpt-4o",
                                      "tekken", "default",   "kimi-k2", "deepseek-v3",  "falcon"};
    rad_error err = {0};
    gguf_builder b;
    for (int i = 0; i < MODELS; i++) {
        if (i < BPE)
            tiny_bpe(&b, pre[i]);
        else
            tiny_spm(&b, true, i > BPE);
        models[i] = tiny_open(NULL, &b, &err);
        if (!models[i]) abort();
    }
    return 0;
}

/* The bytes of all ids; with SPM, U+2581 in the text has become a space. */
static void check_bytes(const tokenizer *t, const token_buf *ids, const uint8_t *text, size_t len,
                        bool spm)
{
    size_t at = 0;
    for (uint32_t i = 0; i < ids->len; i++) {
        char piece[TOKENIZER_MAX_PIECE];
        size_t n = tokenizer_piece(t, ids->ids[i], true, piece, sizeof piece);
        for (size_t k = 0; k < n; k++) {
            if (spm && piece[k] == ' ' && len - at >= 3 && !memcmp(text + at, "\xe2\x96\x81", 3))
                at += 3;
            else if (at < len && text[at] == (uint8_t)piece[k])
                at++;
            else
                abort();
        }
    }
    if (at != len) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    for (int i = 0; i < MODELS; i++) {
        const tokenizer *t = models[i];
        for (unsigned flags = TOKENIZER_NO_PREFIX; flags <= (TOKENIZER_NO_PREFIX | 3u); flags++) {
            token_buf ids = {0};
            text_buf text = {0};
            detokenizer d;
            detokenizer_init(&d, t, false, true);
            if (tokenizer_encode(t, (const char *)data, size, flags, 0, &ids, NULL)) abort();
            for (uint32_t k = 0; k < ids.len; k++) {
                if (ids.ids[k] < 0 || (uint32_t)ids.ids[k] >= tokenizer_vocab_size(t)) abort();
                if (flags == TOKENIZER_NO_PREFIX && tokenizer_is_control(t, ids.ids[k])) abort();
                if (detokenizer_push(&d, ids.ids[k], &text)) abort();
            }
            if (detokenizer_finish(&d, &text)) abort();
            if (flags == TOKENIZER_NO_PREFIX && i != NFC)
                check_bytes(t, &ids, data, size, i >= BPE);
            token_buf_fini(&ids);
            text_buf_fini(&text);
        }
    }
    return 0;
}
