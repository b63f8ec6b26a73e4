/* storage.c - names and seals of stored pages; see storage.h.
 *
 *     offset  0   8         12       16           48   80         88      92        96
 *           | magic | version | bytes | fingerprint | key | namespace | tokens | reserved |
 *     offset  96       104        112        120
 *           | payload | checksum  | zero     | checksum of the 120 bytes before |
 *
 * Numbers are little-endian, so that a store can move between machines. Checksums are
 * XXH3's 64 bits: they find accidents. Nobody who can write to the store is kept from
 * forging a page; a key is only as good as the store is private. */
#define OPENSSL_SUPPRESS_DEPRECATED
#include <radish/storage.h>

#define XXH_INLINE_ALL
#include <openssl/evp.h>
#include <openssl/sha.h>
#include <stdio.h>
#include <xxhash.h>

#include "base/base.h"
#include "hicache/record_sum.h"

enum { VERSION = 1 };

static const char magic[8] = {'R', 'A', 'D', 'P', 'A', 'G', 'E', '\n'};

static void put32(uint8_t *to, uint32_t x)
{
    for (int i = 0; i < 4; i++)
        to[i] = (uint8_t)(x >> 8 * i);
}

static void put64(uint8_t *to, uint64_t x)
{
    put32(to, (uint32_t)x);
    put32(to + 4, (uint32_t)(x >> 32));
}

static uint32_t get32(const uint8_t *from)
{
    return (uint32_t)from[0] | (uint32_t)from[1] << 8 | (uint32_t)from[2] << 16 |
           (uint32_t)from[3] << 24;
}

static uint64_t get64(const uint8_t *from)
{
    return get32(from) | (uint64_t)get32(from + 4) << 32;
}

/* XXH3 is compiled for several instruction sets; its value is the same. */
uint64_t record_sum(const void *bytes, size_t count)
{
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f")) return record_sum_avx512(bytes, count);
    if (__builtin_cpu_supports("avx2")) return record_sum_avx2(bytes, count);
#endif
    return XXH3_64bits(bytes, count);
}

/* A string goes in with its length, so that no two identities give the same bytes. */
static int feed_name(EVP_MD_CTX *state, const char *name)
{
    uint8_t len[8];
    put64(len, name ? strlen(name) + 1 : 0);
    return EVP_DigestUpdate(state, len, sizeof len) &&
           (!name || EVP_DigestUpdate(state, name, strlen(name)));
}

rad_status rad_storage_fingerprint_of(const rad_storage_identity *id, rad_storage_fingerprint *out,
                                      rad_error *err)
{
    if (!id || !out || id->struct_size < sizeof *id)
        return rad_fail(err, RAD_E_INVAL, "storage: no identity, or of another version");
    if (!id->model) return rad_fail(err, RAD_E_INVAL, "storage: an identity without a model");
    static const char title[] = "radish-store-v1";
    const uint32_t numbers[] = {id->dtype,      id->kind,        id->page_size,
                                id->num_layers, id->start_layer, id->num_kv_heads,
                                id->head_dim,   id->v_head_dim,  id->is_eagle};
    uint8_t bytes[4 * RAD_COUNT(numbers)];
    for (size_t i = 0; i < RAD_COUNT(numbers); i++)
        put32(bytes + 4 * i, numbers[i]);
    EVP_MD_CTX *state = EVP_MD_CTX_new();
    int ok = state && EVP_DigestInit_ex(state, EVP_sha256(), NULL) &&
             EVP_DigestUpdate(state, title, sizeof title) && feed_name(state, id->model) &&
             feed_name(state, id->build) && EVP_DigestUpdate(state, bytes, sizeof bytes) &&
             EVP_DigestFinal_ex(state, out->bytes, NULL);
    EVP_MD_CTX_free(state);
    return ok ? RAD_OK : rad_fail(err, RAD_E_UNSUPPORTED, "storage: libcrypto has no SHA-256");
}

rad_status rad_storage_key_of(const rad_storage_fingerprint *fingerprint, const rad_page_hash *page,
                              rad_storage_key *key)
{
    uint8_t both[64];
    memcpy(both, fingerprint->bytes, 32);
    memcpy(both + 32, page->bytes, 32);
    /* Not by EVP, which takes memory for every digest: see page_hash.c. */
    SHA256_CTX state;
    return SHA256_Init(&state) && SHA256_Update(&state, both, sizeof both) &&
                   SHA256_Final(key->bytes, &state)
               ? RAD_OK
               : RAD_E_UNSUPPORTED;
}

void rad_storage_seal(void *record, const rad_storage_record *about)
{
    uint8_t *h = record;
    memcpy(h, magic, sizeof magic);
    put32(h + 8, VERSION);
    put32(h + 12, RAD_STORAGE_HEADER_BYTES);
    memcpy(h + 16, about->fingerprint.bytes, 32);
    memcpy(h + 48, about->key.bytes, 32);
    put64(h + 80, about->namespace_digest);
    put32(h + 88, about->num_tokens);
    put32(h + 92, 0);
    put64(h + 96, about->payload_bytes);
    put64(h + 104, record_sum(h + RAD_STORAGE_HEADER_BYTES, (size_t)about->payload_bytes));
    put64(h + 112, 0);
    put64(h + 120, XXH3_64bits(h, 120));
}

rad_status rad_storage_peek(const void *header, rad_storage_record *about, rad_error *err)
{
    const uint8_t *h = header;
    if (memcmp(h, magic, sizeof magic) != 0)
        return rad_fail(err, RAD_E_FORMAT, "storage: not a stored page");
    if (get64(h + 120) != XXH3_64bits(h, 120))
        return rad_fail(err, RAD_E_FORMAT, "storage: the header of a stored page is damaged");
    if (get32(h + 8) != VERSION || get32(h + 12) != RAD_STORAGE_HEADER_BYTES)
        return rad_fail(err, RAD_E_FORMAT, "storage: a stored page of version %u, we read %u",
                        get32(h + 8), VERSION);
    *about = (rad_storage_record){.namespace_digest = get64(h + 80),
                                  .num_tokens = get32(h + 88),
                                  .payload_bytes = get64(h + 96)};
    memcpy(about->fingerprint.bytes, h + 16, 32);
    memcpy(about->key.bytes, h + 48, 32);
    return RAD_OK;
}

rad_status rad_storage_verify(const void *record, size_t record_bytes, const rad_storage_key *key,
                              const rad_storage_fingerprint *fingerprint, rad_storage_record *about,
                              rad_error *err)
{
    const uint8_t *h = record;
    rad_storage_record seen;
    if (record_bytes < RAD_STORAGE_HEADER_BYTES)
        return rad_fail(err, RAD_E_FORMAT, "storage: not a stored page");
    rad_status status = rad_storage_peek(record, &seen, err);
    if (status) return status;
    if (seen.payload_bytes != record_bytes - RAD_STORAGE_HEADER_BYTES)
        return rad_fail(
            err, RAD_E_FORMAT, "storage: a stored page of %llu bytes where %zu were expected",
            (unsigned long long)seen.payload_bytes, record_bytes - RAD_STORAGE_HEADER_BYTES);
    if (fingerprint && memcmp(fingerprint, &seen.fingerprint, sizeof *fingerprint) != 0)
        return rad_fail(err, RAD_E_FORMAT, "storage: a page of another model or layout");
    if (key && memcmp(key, &seen.key, sizeof *key) != 0)
        return rad_fail(err, RAD_E_FORMAT, "storage: a page that was stored under another key");
    if (get64(h + 104) != record_sum(h + RAD_STORAGE_HEADER_BYTES, (size_t)seen.payload_bytes))
        return rad_fail(err, RAD_E_FORMAT, "storage: the bytes of a stored page are damaged");
    if (about) *about = seen;
    return RAD_OK;
}
