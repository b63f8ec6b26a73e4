/* fuzz_gguf.c - any bytes as a GGUF file: refused in words, or every string, array and
 * tensor that it names can be read. What opens is also offered as a vocabulary. */
#include "gguf/gguf.h"
#include "text/tokenizer.h"

#include <stdlib.h>
#include <string.h>

static volatile uint64_t sink;

static void touch(const void *bytes, size_t len)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < len; i++)
        sum += ((const uint8_t *)bytes)[i];
    sink += sum;
}

static void touch_kv(const gguf_kv *kv)
{
    touch(kv->key.data, kv->key.len);
    if (kv->type == GGUF_STR) touch(kv->str.data, kv->str.len);
    if (kv->type != GGUF_ARR) return;
    for (uint64_t i = 0; i < kv->arr.count; i++) {
        if (kv->arr.type == GGUF_STR) touch(kv->arr.strs[i].data, kv->arr.strs[i].len);
        if (kv->arr.type == GGUF_I32) sink += (uint32_t)gguf_arr_i32(&kv->arr, i);
        if (kv->arr.type == GGUF_F32) sink += gguf_arr_f32(&kv->arr, i) > 0;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t *copy = malloc(size ? size : 1); /* its own block: its end is guarded */
    if (!copy) return 0;
    if (size) memcpy(copy, data, size);
    rad_error err = {0};
    gguf_file *f = NULL;
    rad_status status = gguf_open_memory(NULL, copy, size, &f, &err);
    if ((status == RAD_OK) != (f != NULL) || (status && !err.text[0])) abort();
    if (f) {
        for (uint64_t i = 0; i < gguf_num_kvs(f); i++)
            touch_kv(gguf_kv_at(f, i));
        for (uint64_t i = 0; i < gguf_num_tensors(f); i++) {
            const gguf_tensor *t = gguf_tensor_at(f, i);
            touch(t->name.data, t->name.len);
            touch(t->data, (size_t)t->bytes);
        }
        tokenizer *tok = NULL;
        status = tokenizer_create(NULL, f, &tok, &err);
        if ((status == RAD_OK) != (tok != NULL)) abort();
        if (tok) {
            token_buf ids = {0};
            tokenizer_encode(tok, "Hello, w\xc3\xb6rld 123\n\xff", 20, 3, 0, &ids, NULL);
            token_buf_fini(&ids);
        }
        tokenizer_destroy(tok);
    }
    gguf_close(f);
    free(copy);
    return 0;
}
