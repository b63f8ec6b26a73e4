/* attn_strip_sharing.h - one loop for each number of queries that share a KV head. Included behind
 * the definition of strip_of(dtype, sharing, s), which is compiled with both as constants. */
TILE void strip(const uint32_t dtype, attn_strip *s)
{
    switch (s->sharing) {
    case 1: strip_of(dtype, 1, s); break;
    case 2: strip_of(dtype, 2, s); break;
    case 3: strip_of(dtype, 3, s); break;
    case 4: strip_of(dtype, 4, s); break;
    case 5: strip_of(dtype, 5, s); break;
    case 6: strip_of(dtype, 6, s); break;
    case 7: strip_of(dtype, 7, s); break;
    default: strip_of(dtype, 8, s); break;
    }
}
