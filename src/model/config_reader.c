/* config_reader.c - see config_reader.h. */
#include "model/config_reader.h"
#include "base/base.h"

#include <math.h>
#include <stdio.h>

bool config_str_is(gguf_str s, const char *text)
{
    return s.len == strlen(text) && memcmp(s.data, text, s.len) == 0;
}

void config_key(config_reader *r, const char *name)
{
    snprintf(r->key, sizeof r->key, "%s.%s", r->arch, name);
}

static uint32_t read_u32(config_reader *r, const char *name, uint32_t absent, bool needed,
                         uint32_t least, uint32_t most)
{
    uint32_t value = absent;
    if (r->status != RAD_OK) return 0;
    config_key(r, name);
    rad_status status = gguf_get_u32(r->file, r->key, &value, r->err);
    if (status == RAD_NONE && needed)
        r->status = rad_fail(r->err, RAD_E_FORMAT, "model: key %s is missing", r->key);
    else if (status != RAD_NONE && status != RAD_OK)
        r->status = status;
    else if (value < least || value > most)
        r->status = rad_fail(r->err, RAD_E_FORMAT, "model: key %s is %u, expected %u to %u", r->key,
                             value, least, most);
    return value;
}

uint32_t config_u32(config_reader *r, const char *name, uint32_t absent, uint32_t most)
{
    return read_u32(r, name, absent, !absent, 1, most);
}

uint32_t config_u32_or_0(config_reader *r, const char *name, uint32_t most)
{
    return read_u32(r, name, 0, false, 0, most);
}

static float read_f32(config_reader *r, const char *name, float absent, bool needed, bool zero)
{
    float value = absent;
    if (r->status != RAD_OK) return 0;
    config_key(r, name);
    rad_status status = gguf_get_f32(r->file, r->key, &value, r->err);
    if (status == RAD_NONE && needed)
        r->status = rad_fail(r->err, RAD_E_FORMAT, "model: key %s is missing", r->key);
    else if (status != RAD_NONE && status != RAD_OK)
        r->status = status;
    else if (!(value > 0 || (zero && value == 0)) || isinf(value))
        r->status = rad_fail(r->err, RAD_E_FORMAT, "model: key %s is %g, expected a number %s 0",
                             r->key, (double)value, zero ? ">=" : ">");
    return value;
}

float config_f32(config_reader *r, const char *name, float absent)
{
    return read_f32(r, name, absent, absent == 0, false);
}

float config_f32_or_0(config_reader *r, const char *name, float absent)
{
    return read_f32(r, name, absent, false, true);
}

bool config_bool(config_reader *r, const char *name, bool absent)
{
    bool value = absent;
    if (r->status != RAD_OK) return absent;
    config_key(r, name);
    rad_status status = gguf_get_bool(r->file, r->key, &value, r->err);
    if (status != RAD_OK && status != RAD_NONE) r->status = status;
    return value;
}

rad_status config_misfit(config_reader *r, const char *expected)
{
    return rad_fail(r->err, RAD_E_FORMAT, "model: key %s: expected %s", r->key, expected);
}

void config_u32s(config_reader *r, const char *name, uint32_t absent, uint32_t least, uint32_t most,
                 uint32_t *out, uint32_t count)
{
    if (r->status != RAD_OK) return;
    config_key(r, name);
    const gguf_kv *kv = gguf_find_kv(r->file, r->key);
    if (!kv || kv->type != GGUF_ARR) {
        uint32_t value = read_u32(r, name, absent, absent < least, least, most);
        for (uint32_t i = 0; i < count; i++)
            out[i] = value;
        return;
    }
    const gguf_array *a = &kv->arr;
    if (a->count != count || (a->type != GGUF_I32 && a->type != GGUF_U32)) {
        r->status = rad_fail(r->err, RAD_E_FORMAT,
                             "model: key %s has %llu values, expected %u integers, one for each "
                             "layer",
                             r->key, (unsigned long long)a->count, count);
        return;
    }
    for (uint32_t i = 0; i < count; i++) {
        out[i] = (uint32_t)gguf_arr_i32(a, i); /* one below 0 becomes too large */
        if (out[i] >= least && out[i] <= most) continue;
        r->status = rad_fail(r->err, RAD_E_FORMAT, "model: key %s[%u] is %d, expected %u to %u",
                             r->key, i, gguf_arr_i32(a, i), least, most);
        return;
    }
}

void config_refuse(config_reader *r, const char *name, double neutral)
{
    if (r->status != RAD_OK) return;
    config_key(r, name);
    const gguf_kv *kv = gguf_find_kv(r->file, r->key);
    if (!kv) return;
    double value = NAN; /* of a string or an array: never neutral */
    switch (kv->type) {
    case GGUF_F32:
    case GGUF_F64: value = kv->f; break;
    case GGUF_I8:
    case GGUF_I16:
    case GGUF_I32:
    case GGUF_I64: value = (double)kv->i; break;
    case GGUF_U8:
    case GGUF_U16:
    case GGUF_U32:
    case GGUF_U64:
    case GGUF_BOOL: value = (double)kv->u; break;
    default: break;
    }
    if (value == neutral) return;
    if (isnan(value))
        r->status = rad_fail(r->err, RAD_E_UNSUPPORTED, "model: %s is not supported", r->key);
    else
        r->status =
            rad_fail(r->err, RAD_E_UNSUPPORTED, "model: %s = %g is not supported", r->key, value);
}
