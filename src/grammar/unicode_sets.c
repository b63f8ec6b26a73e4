/* unicode_sets.c - what \\p{...} names.
 *
 * General categories, by their short and long names, are utf8proc's. Of the properties of emoji the
 * small ones stand here, and Extended_Pictographic as Unicode 17 has it: it has been cut down since
 * the version that utf8proc knows, and a client that checks an answer may have either. */
#include "grammar/regex.h"

#include <string.h>
#include <utf8proc.h>

typedef struct unicode_set {
    const char *name;
    const char_range *ranges;
    uint32_t count;
} unicode_set;

static const char_range any[] = {{0, CHARS_LAST}};
static const char_range ascii[] = {{0, 0x7f}};
static const char_range indicators[] = {{0x1f1e6, 0x1f1ff}};
static const char_range components[] = {{'#', '#'},         {'*', '*'},         {'0', '9'},
                                        {0x200d, 0x200d},   {0x20e3, 0x20e3},   {0xfe0f, 0xfe0f},
                                        {0x1f1e6, 0x1f1ff}, {0x1f3fb, 0x1f3ff}, {0x1f9b0, 0x1f9b3},
                                        {0xe0020, 0xe007f}};
static const char_range pictures[] = {
    {0xa9, 0xa9},       {0xae, 0xae},       {0x203c, 0x203c},   {0x2049, 0x2049},
    {0x2122, 0x2122},   {0x2139, 0x2139},   {0x2194, 0x2199},   {0x21a9, 0x21aa},
    {0x231a, 0x231b},   {0x2328, 0x2328},   {0x23cf, 0x23cf},   {0x23e9, 0x23f3},
    {0x23f8, 0x23fa},   {0x24c2, 0x24c2},   {0x25aa, 0x25ab},   {0x25b6, 0x25b6},
    {0x25c0, 0x25c0},   {0x25fb, 0x25fe},   {0x2600, 0x2604},   {0x260e, 0x260e},
    {0x2611, 0x2611},   {0x2614, 0x2615},   {0x2618, 0x2618},   {0x261d, 0x261d},
    {0x2620, 0x2620},   {0x2622, 0x2623},   {0x2626, 0x2626},   {0x262a, 0x262a},
    {0x262e, 0x262f},   {0x2638, 0x263a},   {0x2640, 0x2640},   {0x2642, 0x2642},
    {0x2648, 0x2653},   {0x265f, 0x2660},   {0x2663, 0x2663},   {0x2665, 0x2666},
    {0x2668, 0x2668},   {0x267b, 0x267b},   {0x267e, 0x267f},   {0x2692, 0x2697},
    {0x2699, 0x2699},   {0x269b, 0x269c},   {0x26a0, 0x26a1},   {0x26a7, 0x26a7},
    {0x26aa, 0x26ab},   {0x26b0, 0x26b1},   {0x26bd, 0x26be},   {0x26c4, 0x26c5},
    {0x26c8, 0x26c8},   {0x26ce, 0x26cf},   {0x26d1, 0x26d1},   {0x26d3, 0x26d4},
    {0x26e9, 0x26ea},   {0x26f0, 0x26f5},   {0x26f7, 0x26fa},   {0x26fd, 0x26fd},
    {0x2702, 0x2702},   {0x2705, 0x2705},   {0x2708, 0x270d},   {0x270f, 0x270f},
    {0x2712, 0x2712},   {0x2714, 0x2714},   {0x2716, 0x2716},   {0x271d, 0x271d},
    {0x2721, 0x2721},   {0x2728, 0x2728},   {0x2733, 0x2734},   {0x2744, 0x2744},
    {0x2747, 0x2747},   {0x274c, 0x274c},   {0x274e, 0x274e},   {0x2753, 0x2755},
    {0x2757, 0x2757},   {0x2763, 0x2764},   {0x2795, 0x2797},   {0x27a1, 0x27a1},
    {0x27b0, 0x27b0},   {0x27bf, 0x27bf},   {0x2934, 0x2935},   {0x2b05, 0x2b07},
    {0x2b1b, 0x2b1c},   {0x2b50, 0x2b50},   {0x2b55, 0x2b55},   {0x3030, 0x3030},
    {0x303d, 0x303d},   {0x3297, 0x3297},   {0x3299, 0x3299},   {0x1f004, 0x1f004},
    {0x1f02c, 0x1f02f}, {0x1f094, 0x1f09f}, {0x1f0af, 0x1f0b0}, {0x1f0c0, 0x1f0c0},
    {0x1f0cf, 0x1f0d0}, {0x1f0f6, 0x1f0ff}, {0x1f170, 0x1f171}, {0x1f17e, 0x1f17f},
    {0x1f18e, 0x1f18e}, {0x1f191, 0x1f19a}, {0x1f1ae, 0x1f1e5}, {0x1f201, 0x1f20f},
    {0x1f21a, 0x1f21a}, {0x1f22f, 0x1f22f}, {0x1f232, 0x1f23a}, {0x1f23c, 0x1f23f},
    {0x1f249, 0x1f25f}, {0x1f266, 0x1f321}, {0x1f324, 0x1f393}, {0x1f396, 0x1f397},
    {0x1f399, 0x1f39b}, {0x1f39e, 0x1f3f0}, {0x1f3f3, 0x1f3f5}, {0x1f3f7, 0x1f3fa},
    {0x1f400, 0x1f4fd}, {0x1f4ff, 0x1f53d}, {0x1f549, 0x1f54e}, {0x1f550, 0x1f567},
    {0x1f56f, 0x1f570}, {0x1f573, 0x1f57a}, {0x1f587, 0x1f587}, {0x1f58a, 0x1f58d},
    {0x1f590, 0x1f590}, {0x1f595, 0x1f596}, {0x1f5a4, 0x1f5a5}, {0x1f5a8, 0x1f5a8},
    {0x1f5b1, 0x1f5b2}, {0x1f5bc, 0x1f5bc}, {0x1f5c2, 0x1f5c4}, {0x1f5d1, 0x1f5d3},
    {0x1f5dc, 0x1f5de}, {0x1f5e1, 0x1f5e1}, {0x1f5e3, 0x1f5e3}, {0x1f5e8, 0x1f5e8},
    {0x1f5ef, 0x1f5ef}, {0x1f5f3, 0x1f5f3}, {0x1f5fa, 0x1f64f}, {0x1f680, 0x1f6c5},
    {0x1f6cb, 0x1f6d2}, {0x1f6d5, 0x1f6e5}, {0x1f6e9, 0x1f6e9}, {0x1f6eb, 0x1f6f0},
    {0x1f6f3, 0x1f6ff}, {0x1f7da, 0x1f7ff}, {0x1f80c, 0x1f80f}, {0x1f848, 0x1f84f},
    {0x1f85a, 0x1f85f}, {0x1f888, 0x1f88f}, {0x1f8ae, 0x1f8af}, {0x1f8bc, 0x1f8bf},
    {0x1f8c2, 0x1f8cf}, {0x1f8d9, 0x1f8ff}, {0x1f90c, 0x1f93a}, {0x1f93c, 0x1f945},
    {0x1f947, 0x1f9ff}, {0x1fa58, 0x1fa5f}, {0x1fa6e, 0x1faff}, {0x1fc00, 0x1fffd}};

#define SET(name, ranges)                                                                          \
    {                                                                                              \
        name, ranges, sizeof(ranges) / sizeof *(ranges)                                            \
    }
static const unicode_set sets[] = {
    SET("ASCII", ascii),      SET("Any", any),
    SET("EComp", components), SET("Emoji_Component", components),
    SET("ExtPict", pictures), SET("Extended_Pictographic", pictures),
    SET("RI", indicators),    SET("Regional_Indicator", indicators),
};

static const struct {
    const char *name, *category;
} long_names[] = {
    {"Letter", "L"},
    {"Uppercase_Letter", "Lu"},
    {"Lowercase_Letter", "Ll"},
    {"Titlecase_Letter", "Lt"},
    {"Modifier_Letter", "Lm"},
    {"Other_Letter", "Lo"},
    {"Mark", "M"},
    {"Nonspacing_Mark", "Mn"},
    {"Spacing_Mark", "Mc"},
    {"Enclosing_Mark", "Me"},
    {"Number", "N"},
    {"Decimal_Number", "Nd"},
    {"Letter_Number", "Nl"},
    {"Other_Number", "No"},
    {"Punctuation", "P"},
    {"Connector_Punctuation", "Pc"},
    {"Dash_Punctuation", "Pd"},
    {"Open_Punctuation", "Ps"},
    {"Close_Punctuation", "Pe"},
    {"Initial_Punctuation", "Pi"},
    {"Final_Punctuation", "Pf"},
    {"Other_Punctuation", "Po"},
    {"Symbol", "S"},
    {"Math_Symbol", "Sm"},
    {"Currency_Symbol", "Sc"},
    {"Modifier_Symbol", "Sk"},
    {"Other_Symbol", "So"},
    {"Separator", "Z"},
    {"Space_Separator", "Zs"},
    {"Line_Separator", "Zl"},
    {"Paragraph_Separator", "Zp"},
    {"Other", "C"},
    {"Control", "Cc"},
    {"Format", "Cf"},
    {"Private_Use", "Co"},
    {"Unassigned", "Cn"},
};

/* Every character is asked for its category. False: none has it. */
static bool add_category(char_set *set, const char *category, size_t len)
{
    uint32_t from = UINT32_MAX;
    bool known = false;
    gr_work(set->mem, 1000000);
    for (uint32_t code = 0; code <= CHARS_LAST + 1 && !set->mem->status; code++) {
        const char *is = code <= CHARS_LAST ? utf8proc_category_string((int32_t)code) : "--";
        const bool in = strncmp(is, category, len) == 0;
        known |= in;
        if (in && from == UINT32_MAX) from = code;
        if (!in && from != UINT32_MAX) {
            chars_add(set, from, code - 1);
            from = UINT32_MAX;
        }
    }
    return known;
}

bool regex_property(char_set *set, const char *name, size_t len)
{
    static const char *const categories[] = {"General_Category=", "gc="};
    bool category = len && len <= 2;
    for (size_t i = 0; i < RAD_COUNT(categories); i++) {
        const size_t lead = strlen(categories[i]);
        if (len <= lead || strncmp(name, categories[i], lead) != 0) continue;
        name += lead, len -= lead;
        category = true;
    }
    for (size_t i = 0; i < RAD_COUNT(sets); i++) {
        if (category || strlen(sets[i].name) != len || strncmp(name, sets[i].name, len) != 0)
            continue;
        for (uint32_t k = 0; k < sets[i].count; k++)
            chars_add(set, sets[i].ranges[k].lo, sets[i].ranges[k].hi);
        return true;
    }
    for (size_t i = 0; i < RAD_COUNT(long_names); i++)
        if (strlen(long_names[i].name) == len && strncmp(name, long_names[i].name, len) == 0)
            return add_category(set, long_names[i].category, strlen(long_names[i].category));
    return category && len <= 2 && add_category(set, name, len);
}
