/* ops_isa.h - the tables that model_ops_find chooses from. */
#ifndef MODEL_OPS_ISA_H
#define MODEL_OPS_ISA_H

#include "model/ops.h"

extern const model_ops model_ops_avx2;
extern const model_ops model_ops_avx512;

#endif
