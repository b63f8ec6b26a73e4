/* jinja_filters.h - the filters by name; the table is in jinja_tables.c. */
#ifndef TEXT_JINJA_FILTERS_H
#define TEXT_JINJA_FILTERS_H

#include "text/jinja_value.h"

#define JFILTERS(X)                                                                                \
    X(abs, "")                                                                                     \
    X(attr, "name")                                                                                \
    X(batch, "linecount,fill_with?")                                                               \
    X(capitalize, "")                                                                              \
    X(center, "width?")                                                                            \
    X(default, "default_value?,boolean?")                                                          \
    X(dictsort, "case_sensitive?,by?,reverse?")                                                    \
    X(escape, "")                                                                                  \
    X(first, "")                                                                                   \
    X(float, "default?")                                                                           \
    X(forceescape, "")                                                                             \
    X(format, NULL)                                                                                \
    X(from_json, "")                                                                               \
    X(indent, "width?,first?,blank?")                                                              \
    X(int, "default?,base?")                                                                       \
    X(items, "")                                                                                   \
    X(join, "d?,attribute?")                                                                       \
    X(last, "")                                                                                    \
    X(length, "")                                                                                  \
    X(list, "")                                                                                    \
    X(lower, "")                                                                                   \
    X(map, NULL)                                                                                   \
    X(max, "case_sensitive?,attribute?")                                                           \
    X(min, "case_sensitive?,attribute?")                                                           \
    X(reject, NULL)                                                                                \
    X(rejectattr, NULL)                                                                            \
    X(replace, "old,new,count?")                                                                   \
    X(reverse, "")                                                                                 \
    X(round, "precision?,method?")                                                                 \
    X(safe, "")                                                                                    \
    X(select, NULL)                                                                                \
    X(selectattr, NULL)                                                                            \
    X(sort, "reverse?,case_sensitive?,attribute?")                                                 \
    X(string, "")                                                                                  \
    X(sum, "attribute?,start?")                                                                    \
    X(title, "")                                                                                   \
    X(tojson, "ensure_ascii?,indent?,separators?,sort_keys?")                                      \
    X(trim, "chars?")                                                                              \
    X(truncate, "length?,killwords?,end?,leeway?")                                                 \
    X(unique, "case_sensitive?,attribute?")                                                        \
    X(upper, "")                                                                                   \
    X(wordcount, "")

#define JDECLARE(name, spec)                                                                       \
    jval jfilter_##name(jctx *c, jval self, const jval *args, const jargs *all);
JFILTERS(JDECLARE)
#undef JDECLARE

#endif
