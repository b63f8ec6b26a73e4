/* pooling.h - which hidden states of a text make its embedding. */
#ifndef MODEL_POOLING_H
#define MODEL_POOLING_H

typedef enum hidden_pooling {
    POOL_NONE = 0,
    POOL_LAST, /* that of the last token */
    POOL_MEAN  /* the mean of all */
} hidden_pooling;

#endif
