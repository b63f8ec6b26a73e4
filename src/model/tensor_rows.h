/* tensor_rows.h - a GGUF tensor as rows of f32, whatever its type is. */
#ifndef MODEL_TENSOR_ROWS_H
#define MODEL_TENSOR_ROWS_H

#include "gguf/gguf.h"

#include <radish/status.h>
#include <stdbool.h>

/* The tensor `name` with `rows` rows of `cols` (rows 0: a vector). RAD_E_FORMAT when it
 * is missing or has another shape, RAD_E_UNSUPPORTED for a type that ggml_decode does not
 * know, both with the name in words. */
rad_status tensor_find(const gguf_file *file, const char *name, uint64_t rows, uint64_t cols,
                       const gguf_tensor **out, rad_error *err);

/* The same of `count` matrices of this shape, one behind the other; row r of matrix m is its row
 * m * rows + r. */
rad_status tensor_find_many(const gguf_file *file, const char *name, uint64_t count, uint64_t rows,
                            uint64_t cols, const gguf_tensor **out, rad_error *err);

/* Converts row `row` to dims[0] floats, as ggml_decode does. The tensor must come
 * from tensor_find. Data need not be aligned. */
void tensor_row(const gguf_tensor *tensor, uint64_t row, float *out);

/* The share of a tensor that computing one token reads: 1, and where it has an expert's matrix
 * behind another's, that of the experts that a token uses. More tokens read more of it, at most
 * all, so for any batch this is a bound. Compares names; not for a step. */
double tensor_share(const gguf_file *file, const gguf_tensor *tensor);

/* Where row `row` lies in the file, in the tensor's own type, and how many bytes it has there. */
const void *tensor_row_bytes(const gguf_tensor *tensor, uint64_t row);
uint64_t tensor_row_size(const gguf_tensor *tensor);

#endif
