/* bench_texts.c - texts by number: the same seed says the same. */
#include "cli/bench_texts.h"

#include <stdarg.h>
#include <stdio.h>

#include "base/base.h"
#include "base/mix64.h"

/* As printf. */
__attribute__((format(printf, 2, 3))) static rad_status put(text_buf *out, const char *format, ...)
{
    char line[256];
    va_list args;
    va_start(args, format);
    int len = vsnprintf(line, sizeof line, format, args);
    va_end(args);
    RAD_ASSERT(len >= 0 && (size_t)len < sizeof line);
    return text_buf_append(out, line, (size_t)len);
}

#define PICK(list, at) ((list)[(at) % RAD_COUNT(list)])

/* ---- a file ---- */

static const char *const nouns[] = {"page",  "table", "order",  "price", "user",  "index",
                                    "route", "event", "record", "cache", "queue", "frame",
                                    "token", "shard", "bucket", "lease", "batch", "signal"};
static const char *const verbs[] = {"find", "open",  "merge", "count", "release", "update",
                                    "scan", "split", "check", "print", "reserve", "collect"};
static const char *const fields[] = {"size", "limit", "head", "owner", "total", "first",
                                     "last", "state", "next", "level", "start", "flags"};

/* One of three kinds of functions; a line more or less, another name, where it is edited. */
static rad_status put_function(text_buf *out, uint64_t r, bool edited)
{
    const char *thing = PICK(nouns, r), *verb = PICK(verbs, r >> 8);
    const char *a = PICK(fields, r >> 16), *b = PICK(fields, (r >> 16) + 1 + (r >> 24) % 10);
    const char *local = edited ? PICK(nouns, r + 5) : "n";
    const int number = (int)(r >> 40 & 63) + 2;
    rad_status status =
        put(out, "/* Returns the %s of a %s, or -1 where it has no %s. */\n", a, thing, b);
    if (!status)
        status =
            put(out, "static int %s_%s(struct %s *%s, int from)\n{\n", thing, verb, thing, thing);
    switch (r >> 48 & 3) {
    case 0:
        if (!status)
            status = put(out, "    int %s = %s->%s + %d;\n    if (!%s->%s) return -1;\n", local,
                         thing, a, number, thing, b);
        if (!status && edited && r >> 52 & 1)
            status = put(out, "    if (from < 0) from = %s->%s;\n", thing, b);
        if (!status)
            status = put(out,
                         "    for (int i = from; i < %s->%s; i++)\n        %s += %s->%s[i] * %d;\n",
                         thing, b, local, thing, a, number + 1);
        break;
    case 1:
        if (!status)
            status =
                put(out, "    struct %s *%s = %s_%s(%s, from);\n", thing, local, thing, a, thing);
        if (!status && !(edited && r >> 52 & 1))
            status = put(out, "    log_debug(\"%s: %s %%d\", from);\n", thing, verb);
        if (!status)
            status = put(out,
                         "    while (%s && %s->%s < from)\n        %s = %s->next;\n"
                         "    if (!%s) return -1;\n    %s->%s = from + %d;\n",
                         local, local, a, local, local, local, local, b, number);
        break;
    default:
        if (!status)
            status = put(out,
                         "    if (from >= %s->%s) {\n        %s->%s = from - %s->%s;\n"
                         "        return %s->%s;\n    }\n",
                         thing, a, thing, b, thing, a, thing, b);
        if (!status)
            status = put(out, "    int %s = min(from, %d);\n", edited ? local : "rest", number);
        if (!status) status = put(out, "    %s->%s -= %s;\n", thing, a, edited ? local : "rest");
        break;
    }
    return status ? status : put(out, "    return %s->%s;\n}\n\n", thing, a);
}

rad_status bench_text_file(text_buf *out, uint64_t seed, uint32_t functions, bool edited)
{
    rad_status status = RAD_OK;
    for (uint32_t i = 0; i < functions && !status; i++)
        status = put_function(out, mix64(seed * 1000 + i), edited);
    return status;
}

/* ---- calls ---- */

const char *bench_text_calls_schema(void)
{
    return "{\"type\":\"object\",\"properties\":{\"calls\":{\"type\":\"array\",\"items\":{\"type\":"
           "\"object\",\"properties\":{\"name\":{\"enum\":[\"get_weather\",\"book_table\","
           "\"send_message\"]},\"arguments\":{\"type\":\"object\",\"properties\":{\"location\":{"
           "\"type\":\"string\"},\"start_date\":{\"type\":\"string\"},\"temperature_unit\":{"
           "\"enum\":[\"celsius\",\"fahrenheit\"]},\"number_of_guests\":{\"type\":\"integer\"},"
           "\"include_hourly_forecast\":{\"type\":\"boolean\"}},\"required\":[\"location\","
           "\"start_date\",\"temperature_unit\",\"number_of_guests\",\"include_hourly_forecast\"],"
           "\"additionalProperties\":false}},\"required\":[\"name\",\"arguments\"],"
           "\"additionalProperties\":false}}},\"required\":[\"calls\"],"
           "\"additionalProperties\":false}";
}

rad_status bench_text_calls(text_buf *out, uint64_t seed, uint32_t calls)
{
    static const char *const names[] = {"get_weather", "book_table", "send_message"};
    static const char *const places[] = {"Lisbon",  "Oslo",    "Buenos Aires", "Kyoto",
                                         "Nairobi", "Tbilisi", "Montreal",     "Hanoi"};
    rad_status status = put(out, "{\"calls\": [");
    for (uint32_t i = 0; i < calls && !status; i++) {
        const uint64_t r = mix64(seed * 1000 + i);
        status = put(out, "%s{\"name\": \"%s\", \"arguments\": {\"location\": \"%s\", ",
                     i ? ", " : "", PICK(names, r), PICK(places, r >> 8));
        if (!status)
            status = put(out, "\"start_date\": \"2026-%02d-%02d\", \"temperature_unit\": \"%s\", ",
                         (int)(r >> 16 & 7) + 1, (int)(r >> 24 & 15) + 10,
                         r >> 32 & 1 ? "celsius" : "fahrenheit");
        if (!status)
            status = put(out, "\"number_of_guests\": %d, \"include_hourly_forecast\": %s}}",
                         (int)(r >> 40 & 7) + 1, r >> 48 & 1 ? "true" : "false");
    }
    return status ? status : put(out, "]}");
}

/* ---- talk ---- */

static const struct {
    const char *question, *answer;
} talks[] = {
    {"Why does bread rise, and what did I do wrong when mine stays flat?",
     "Bread rises because yeast eats the sugars in the flour and breathes out carbon dioxide. The "
     "gas is caught in a net of gluten, which forms when flour and water are mixed and kneaded, so "
     "the dough swells like a slow balloon. In the oven the bubbles grow once more before the "
     "crust "
     "sets around them.\n\nWhen a loaf stays flat, one of three things has usually happened. The "
     "yeast may be old: stir a spoonful into warm water with a pinch of sugar, and if there is no "
     "foam after ten minutes, buy a fresh packet. The kitchen may have been too cold; below twenty "
     "degrees a first rise can easily take three hours, and patience is all that is missing. Or "
     "the "
     "dough was too dry or hardly kneaded, so the net tears and the gas escapes.\n\nA simple test "
     "helps. Press the dough with a wet finger: if the dent springs back at once, wait longer; if "
     "it "
     "comes back slowly and not quite, bake it now; if it stays, it has stood too long and will "
     "sink "
     "in the heat. Weighing the flour instead of measuring it in cups is the one habit that "
     "improves "
     "most home baking, because a loosely filled cup and a packed one differ by a third."},
    {"How do tides work? I have never understood why there are two a day.",
     "The pull of the moon weakens with distance, and that is the whole trick. Water on the side "
     "of "
     "the Earth that faces the moon is pulled a little harder than the solid planet beneath it, so "
     "it "
     "heaps up there. On the far side the planet is pulled harder than the water, which is left "
     "behind in a second heap. As the Earth turns, a harbour passes through both heaps, and its "
     "people see two high tides a day.\n\nThe sun does the same with about half the strength. At "
     "new "
     "and full moon the two work in line, and the range is large: sailors speak of spring tides. "
     "When they stand at right angles, a week later, the effects cancel in part, and neap tides "
     "follow.\n\nReal coasts complicate the picture. An ocean basin sloshes like a bath, with a "
     "rhythm "
     "of its own; where that rhythm is close to half a day, as in the Bay of Fundy, the water may "
     "climb fifteen metres. In the Mediterranean, which is nearly closed, you would hardly notice. "
     "Some places, among them parts of Vietnam, even have a single tide each day. If you plan a "
     "walk "
     "on the sand, trust the local table rather than the theory, and remember that the moon comes "
     "fifty minutes later every evening, and so does high water."},
    {"I want to buy a used bicycle for commuting. What should I look at?",
     "Start with the frame, since everything else can be replaced. Look along the tubes for "
     "ripples "
     "in the paint near the head tube, which betray an old collision, and turn the bicycle over to "
     "read the serial number; a seller who has filed it off deserves a polite goodbye. Stand over "
     "it: you want two or three centimetres of air between you and the top tube.\n\nNext, spin the "
     "wheels. A wobble of a few millimetres is a short job for a workshop, while a broken spoke or "
     "a "
     "rim worn hollow by its brakes costs real money. Squeeze both levers hard; they should stop "
     "well "
     "before the grip. Shift through all gears while somebody lifts the saddle, and listen. A "
     "chain "
     "that skips under load usually means chain and sprockets together, perhaps sixty "
     "euros.\n\nFor "
     "commuting, think about what the advertisement rarely mentions. Are there eyelets for "
     "mudguards "
     "and a rack? Is there room for tyres of at least thirty-five millimetres, which forgive "
     "cobblestones and tram rails? Does it have a dynamo, or will you forget to charge the lamps? "
     "A "
     "sturdy lock should be part of the budget from the beginning. Finally, ride it for ten "
     "minutes, "
     "up a hill if you can find one, and take your hands off the bars for a moment on an empty "
     "road: "
     "if it pulls to one side, something is bent."},
    {"My houseplants keep dying in winter although I water them every day.",
     "Watering every day is most likely the cause. In winter a plant grows slowly, drinks little, "
     "and "
     "its roots sit in cold, wet soil where they cannot breathe; they rot, and the leaves go limp "
     "exactly as if they were thirsty. So one waters more, and the circle closes.\n\nPut a finger "
     "into "
     "the earth down to the second joint. Only when it feels dry there should you water, "
     "thoroughly, "
     "until some runs out below, and then pour the saucer empty after a quarter of an hour. For "
     "most "
     "species that will be every ten to fourteen days until March; cacti and other succulents can "
     "wait a month or longer.\n\nLight is the second suspect. A spot that was bright in June may "
     "get a "
     "tenth of that in December. Move the pots to the window, wipe the dust off the leaves, and "
     "turn "
     "them by a quarter each week. A cheap lamp with a timer works wonders for basil and "
     "citrus.\n\n"
     "Third comes dry air from the radiator, which turns leaf tips brown and invites spider mites: "
     "fine webs between stalk and leaf give them away. Group the plants so that they share "
     "moisture, "
     "or stand them on wet gravel. Do not feed before spring. And if one has already gone soft at "
     "the "
     "base, cut a healthy shoot, set it in a glass of water, and begin again; many survive that "
     "way."},
};

rad_status bench_text_talk(text_buf *out, uint64_t seed)
{
    const char *text = PICK(talks, seed).answer;
    return text_buf_append(out, text, strlen(text));
}

const char *bench_text_question(uint64_t seed)
{
    return PICK(talks, seed).question;
}
