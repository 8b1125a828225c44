/*
 * subject.h: a set of protocols to run: kernels/protocol.h compiled for the host, unchanged or with one fault put in.
 */
#ifndef EMU_SUBJECT_H
#define EMU_SUBJECT_H

#include "kernels/call.h"

typedef struct {
    const char *name;
    const char *stale; /* why the fault could not be put in; null: it was */
    void (*sentinel_one_shot)(const par_call *call, int dtype);
    void (*sentinel_two_shot)(const par_call *call, int dtype);
    void (*chunked_one_shot)(const par_call *call, int dtype);
    void (*chunked_two_shot)(const par_call *call, int dtype);
} emu_subject;

/* Unchanged, and compiled for one world size as the kernels for 2, 4 and 8 are. */
extern const emu_subject emu_protocols, emu_protocols_w2, emu_protocols_w4, emu_protocols_w8;

#endif
