/* gguf.h - reads GGUF v2 and v3 files (metadata and where the tensors are).
 *
 * The file is mapped read-only and its bytes are not trusted: every length,
 * count, offset and type is checked against the file's end before it is used,
 * and numbers are compared before they are added or multiplied. After open
 * nothing fails any more: getters answer from checked places.
 *
 * A gguf_file is immutable after open and may be read by many threads. Strings
 * and tensor data point into the mapping and live as long as the file does;
 * strings are NOT NUL-terminated. */
#ifndef GGUF_GGUF_H
#define GGUF_GGUF_H

#include <radish/env.h>
#include <stdbool.h>

typedef struct gguf_file gguf_file;

typedef struct gguf_str {
    const char *data;
    size_t len;
} gguf_str;

/* Of metadata values, as in the file. */
typedef enum gguf_type {
    GGUF_U8 = 0,
    GGUF_I8 = 1,
    GGUF_U16 = 2,
    GGUF_I16 = 3,
    GGUF_U32 = 4,
    GGUF_I32 = 5,
    GGUF_F32 = 6,
    GGUF_BOOL = 7,
    GGUF_STR = 8,
    GGUF_ARR = 9,
    GGUF_U64 = 10,
    GGUF_I64 = 11,
    GGUF_F64 = 12
} gguf_type;

/* Of tensors; only those that we name in words or load. */
typedef enum ggml_type {
    GGML_F32 = 0,
    GGML_F16 = 1,
    GGML_Q4_0 = 2,
    GGML_Q4_1 = 3,
    GGML_Q5_0 = 6,
    GGML_Q5_1 = 7,
    GGML_Q8_0 = 8,
    GGML_Q2_K = 10,
    GGML_Q3_K = 11,
    GGML_Q4_K = 12,
    GGML_Q5_K = 13,
    GGML_Q6_K = 14,
    GGML_IQ2_XXS = 16,
    GGML_IQ2_XS = 17,
    GGML_IQ3_XXS = 18,
    GGML_IQ1_S = 19,
    GGML_IQ4_NL = 20,
    GGML_IQ3_S = 21,
    GGML_IQ2_S = 22,
    GGML_IQ4_XS = 23,
    GGML_IQ1_M = 29,
    GGML_BF16 = 30,
    GGML_TQ1_0 = 34,
    GGML_TQ2_0 = 35,
    GGML_MXFP4 = 39
} ggml_type;

typedef struct gguf_array {
    gguf_type type; /* of the elements; never GGUF_ARR */
    uint64_t count;
    const uint8_t *data;
    const struct gguf_str *strs; /* count entries when type is GGUF_STR, else NULL */
} gguf_array;

typedef struct gguf_tensor {
    gguf_str name;
    uint32_t type; /* ggml_type; may be one we do not know */
    uint32_t num_dims;
    uint64_t dims[4]; /* dims[0] is the fastest (columns); unused ones are 1 */
    const void *data; /* aligned as the file says, up to a page */
    uint64_t bytes;   /* 0 for an unknown type */
} gguf_tensor;

typedef struct gguf_kv { /* for listing; scalars are in u/i/f by type */
    gguf_str key;
    gguf_type type;
    union {
        uint64_t u;
        int64_t i;
        double f;
        gguf_str str;
        gguf_array arr;
    };
} gguf_kv;

/* Enough of a name for an error message: printable, cut after 64 bytes. */
typedef struct gguf_shown {
    char text[72];
} gguf_shown;
gguf_shown gguf_show(gguf_str str);

/* Errors: RAD_E_IO (cannot open, with the path), RAD_E_FORMAT (what is wrong and
 * at which byte), RAD_E_UNSUPPORTED (version other than 2 or 3, big endian, arrays
 * of arrays), RAD_E_NOMEM. Memory is bounded by a small multiple of the metadata's
 * size in the file; time is O(metadata * log(keys)), tensor data is not touched.
 * A file that somebody truncates while it is open faults on access, as any mapping.
 *
 * A model may lie in several files, NAME-00001-of-00003.gguf and so on: any of them opens all (512
 * at most), which then are one gguf_file with the first one's keys and the tensors of all. RAD_E_IO
 * names a part that is missing, RAD_E_FORMAT one that does not belong to the others: its number or
 * count differs (split.no, split.count, split.tensors.count), or the value of another key, or a
 * tensor is there twice. Where parts of two files of one model have the same tensors in the same
 * places, nothing tells them apart. */
rad_status gguf_open(const rad_env *env, const char *path, gguf_file **out, rad_error *err);

/* The same over bytes in memory, which must outlive the file (tests, fuzzing).
 * They need not be aligned beyond 1; tensor data then is not either. RAD_E_UNSUPPORTED for one of
 * several parts. */
rad_status gguf_open_memory(const rad_env *env, const void *bytes, size_t num_bytes,
                            gguf_file **out, rad_error *err);
void gguf_close(gguf_file *file); /* NULL is fine */

uint32_t gguf_version(const gguf_file *file);
uint64_t gguf_file_bytes(const gguf_file *file); /* of all parts */
uint32_t gguf_num_parts(const gguf_file *file);
uint64_t gguf_num_kvs(const gguf_file *file);
const gguf_kv *gguf_kv_at(const gguf_file *file, uint64_t i);
const gguf_kv *gguf_find_kv(const gguf_file *file, const char *key); /* NULL: absent */

/* RAD_OK, RAD_NONE when the key is absent (*out untouched), RAD_E_FORMAT with the
 * key's name when it is there with a type or value that does not fit. get_u32
 * takes any integer type whose value fits; get_f32 takes F32 and F64. */
rad_status gguf_get_u32(const gguf_file *f, const char *key, uint32_t *out, rad_error *err);
rad_status gguf_get_f32(const gguf_file *f, const char *key, float *out, rad_error *err);
rad_status gguf_get_bool(const gguf_file *f, const char *key, bool *out, rad_error *err);
rad_status gguf_get_str(const gguf_file *f, const char *key, gguf_str *out, rad_error *err);
rad_status gguf_get_arr(const gguf_file *f, const char *key, gguf_type type, gguf_array *out,
                        rad_error *err);

/* Array elements, i < count; the type was checked by gguf_get_arr. Unaligned
 * data is fine. */
int32_t gguf_arr_i32(const gguf_array *arr, uint64_t i);
float gguf_arr_f32(const gguf_array *arr, uint64_t i);

uint64_t gguf_num_tensors(const gguf_file *file);
const gguf_tensor *gguf_tensor_at(const gguf_file *file, uint64_t i);
const gguf_tensor *gguf_find_tensor(const gguf_file *file, const char *name); /* NULL: absent */

/* Advice to the kernel about a tensor's bytes, without effect on what they are: `count` of them
 * from `first` on will be read soon (starts reading ahead), or all will not be read again (gives the mapping's memory back; the
 * page cache keeps what it likes). Nothing for gguf_open_memory. */
void gguf_will_need(const gguf_file *file, const gguf_tensor *tensor, uint64_t first,
                    uint64_t count);
void gguf_forget(const gguf_file *file, const gguf_tensor *tensor);

/* "Q8_0", or "type 99" for one we do not know (static or per-thread storage). */
const char *ggml_type_name(uint32_t type);

/* How `type` is stored: *block_values values in *block_bytes bytes (F32: 1 in 4, Q8_0:
 * 32 in 34). false for a type we do not know; then nothing is written. */
bool ggml_type_layout(uint32_t type, uint32_t *block_values, uint32_t *block_bytes);

#endif
