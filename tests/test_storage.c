/* test_storage.c - a stored page is found under its own name only, and a changed byte is
 * always noticed. */
#include "test.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "hicache/record_sum.h"

#include <radish/storage.h>
#include <string.h>

enum { PAYLOAD = 1000, RECORD = RAD_STORAGE_HEADER_BYTES + PAYLOAD };

static const rad_storage_identity identity = {
    .struct_size = sizeof identity,
    .model = "sha256:abc",
    .dtype = 1,
    .page_size = 16,
    .num_layers = 2,
    .num_kv_heads = 4,
    .head_dim = 64,
    .v_head_dim = 64,
};

static rad_storage_record make_record(uint8_t record[RECORD])
{
    rad_storage_record about = {
        .namespace_digest = 0x1122334455667788, .num_tokens = 16, .payload_bytes = PAYLOAD};
    rad_page_hash page = {{7}};
    CHECK(rad_storage_fingerprint_of(&identity, &about.fingerprint, NULL) == RAD_OK);
    CHECK(rad_storage_key_of(&about.fingerprint, &page, &about.key) == RAD_OK);
    for (int i = 0; i < PAYLOAD; i++)
        record[RAD_STORAGE_HEADER_BYTES + i] = (uint8_t)(i * 31);
    rad_storage_seal(record, &about);
    return about;
}

TEST(a_sealed_record_verifies_and_says_what_it_is)
{
    uint8_t record[RECORD];
    rad_storage_record about = make_record(record), seen;
    CHECK(rad_storage_verify(record, RECORD, &about.key, &about.fingerprint, &seen, NULL) ==
          RAD_OK);
    CHECK(memcmp(&seen, &about, sizeof seen) == 0);
    CHECK(rad_storage_verify(record, RECORD, NULL, NULL, NULL, NULL) == RAD_OK);
}

TEST(every_flipped_bit_is_noticed)
{
    uint8_t record[RECORD];
    make_record(record);
    for (int bit = 0; bit < RECORD * 8; bit++) {
        record[bit / 8] ^= (uint8_t)(1 << bit % 8);
        rad_error err;
        CHECK(rad_storage_verify(record, RECORD, NULL, NULL, NULL, &err) == RAD_E_FORMAT);
        CHECK(strncmp(err.text, "storage: ", 9) == 0);
        record[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
    CHECK(rad_storage_verify(record, RECORD, NULL, NULL, NULL, NULL) == RAD_OK);
}

TEST(a_record_cut_anywhere_is_refused)
{
    uint8_t record[RECORD];
    make_record(record);
    for (size_t bytes = 0; bytes < RECORD; bytes++)
        CHECK(rad_storage_verify(record, bytes, NULL, NULL, NULL, NULL) == RAD_E_FORMAT);
}

TEST(another_key_or_model_is_refused)
{
    uint8_t record[RECORD];
    rad_storage_record about = make_record(record);
    rad_storage_key key = about.key;
    key.bytes[31] ^= 1;
    CHECK(rad_storage_verify(record, RECORD, &key, NULL, NULL, NULL) == RAD_E_FORMAT);
    rad_storage_fingerprint other = about.fingerprint;
    other.bytes[0] ^= 1;
    CHECK(rad_storage_verify(record, RECORD, NULL, &other, NULL, NULL) == RAD_E_FORMAT);
}

TEST(a_header_alone_says_whose_page_it_is)
{
    uint8_t record[RECORD];
    rad_storage_record about = make_record(record), seen;
    record[RECORD - 1] ^= 1; /* not looked at */
    CHECK(rad_storage_peek(record, &seen, NULL) == RAD_OK);
    CHECK(memcmp(&seen, &about, sizeof seen) == 0);
    for (int bit = 0; bit < RAD_STORAGE_HEADER_BYTES * 8; bit++) {
        record[bit / 8] ^= (uint8_t)(1 << bit % 8);
        CHECK(rad_storage_peek(record, &seen, NULL) == RAD_E_FORMAT);
        record[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
}

TEST(the_checksum_is_the_same_for_every_instruction_set)
{
    static uint8_t bytes[3000];
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)(i * i);
    for (size_t count = 0; count + 7 <= sizeof bytes; count += count < 600 ? 1 : 97) {
        uint64_t sum = XXH3_64bits(bytes + 7, count);
        CHECK(record_sum(bytes + 7, count) == sum);
#if defined(__x86_64__)
        if (__builtin_cpu_supports("avx2")) CHECK(record_sum_avx2(bytes + 7, count) == sum);
        if (__builtin_cpu_supports("avx512f")) CHECK(record_sum_avx512(bytes + 7, count) == sum);
#endif
    }
}

TEST(every_part_of_the_identity_changes_the_fingerprint)
{
    rad_storage_identity changed[13];
    for (size_t i = 0; i < 13; i++)
        changed[i] = identity;
    changed[1].model = "sha256:abd";
    changed[2].build = "";
    changed[3].dtype++;
    changed[4].kind++;
    changed[5].page_size++;
    changed[6].num_layers++;
    changed[7].start_layer++;
    changed[8].num_kv_heads++;
    changed[9].head_dim++;
    changed[10].v_head_dim++;
    changed[11].is_eagle++;
    changed[12].build = "avx2";
    rad_storage_fingerprint prints[13];
    for (size_t i = 0; i < 13; i++) {
        CHECK(rad_storage_fingerprint_of(&changed[i], &prints[i], NULL) == RAD_OK);
        for (size_t j = 0; j < i; j++)
            CHECK(memcmp(&prints[i], &prints[j], sizeof prints[i]) != 0);
    }
    rad_storage_identity nameless = identity;
    nameless.model = NULL;
    CHECK(rad_storage_fingerprint_of(&nameless, &prints[0], NULL) == RAD_E_INVAL);
}

TEST_MAIN()
