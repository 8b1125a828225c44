/*
 * message.h: the caller's input and output by vecs, whatever their alignment and their end.
 */
#ifndef PAR_MESSAGE_H
#define PAR_MESSAGE_H

#include "../numerics.h"
#include "place.h"

/* The 16 bytes at byte `at`, element by element; zero behind the end. */
PAR_COLD par_vec par_input_slow(const par_call *c, uint64_t at, int dtype)
{
    const char *in = (const char *)c->in;
    par_vec v = {{0, 0, 0, 0}};
    for (uint32_t b = 0; b < 16 && at + b < c->bytes; b += dtype == PAR_FP32 ? 4 : 2) {
        if (dtype == PAR_FP32)
            v.w[b / 4] = par_in_u32(in + at + b);
        else
            v.w[b / 4] |= par_in_u16(in + at + b) << 8 * (b & 2u);
    }
    return v;
}

PAR_COLD void par_output_slow(const par_call *c, uint64_t at, par_vec v, int dtype)
{
    char *out = (char *)c->out;
    for (uint32_t b = 0; b < 16 && at + b < c->bytes; b += dtype == PAR_FP32 ? 4 : 2) {
        if (dtype == PAR_FP32)
            par_out_u32(out + at + b, v.w[b / 4]);
        else
            par_out_u16(out + at + b, v.w[b / 4] >> 8 * (b & 2u));
    }
}

/* Vec i of the input, as it is. */
PAR_DEV par_vec par_input(const par_call *c, uint32_t i, int dtype)
{
    if (i < c->whole_in)
        return par_in4((const char *)c->in + 16ull * i);
    return par_input_slow(c, 16ull * i, dtype);
}

PAR_DEV void par_output(const par_call *c, uint32_t i, par_vec v, int dtype)
{
    if (i < c->whole_out)
        par_out4((char *)c->out + 16ull * i, v);
    else
        par_output_slow(c, 16ull * i, v, dtype);
}

#endif
