/* weights_policy.h - what becomes of the types of a model file's matrices. */
#ifndef MODEL_WEIGHTS_POLICY_H
#define MODEL_WEIGHTS_POLICY_H

typedef enum weights_policy {
    WEIGHTS_AS_DTYPE = 0, /* every matrix in the runner's dtype, f32 or bf16 */
    WEIGHTS_AS_FILE, /* quantised types stay, the rest as above; in f32 BF16 and F16 stay, too (GEMM_BF16W, GEMM_F16W)
                      */
    WEIGHTS_AS_Q8_0  /* every matrix in q8_0, rounded to it from other types */
} weights_policy;

#endif
