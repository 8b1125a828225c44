/*
 * subject.c: compiled once per set of protocols.
 *   EMU_PROTOCOL  the header; unchanged it is kernels/protocol.h
 *   EMU_SUBJECT   the variable to define
 *   EMU_NAME      its name in messages
 *   EMU_WORLD     if it is for one world size
 * PAR_PATIENCE is small, so that a wait looks at clock and abort words soon.
 */
#include "subject.h"

#ifndef EMU_PROTOCOL
#define EMU_PROTOCOL "kernels/protocol.h"
#define EMU_SUBJECT emu_protocols
#define EMU_NAME "protocol.h"
#endif

#ifdef EMU_WORLD
#define PAR_WORLD(c) EMU_WORLD
#endif

#include EMU_PROTOCOL

#ifndef EMU_STALE
#define EMU_STALE 0
#endif

const emu_subject EMU_SUBJECT = {EMU_NAME, EMU_STALE, par_sentinel_one_shot, par_sentinel_two_shot,
                                 par_chunked_one_shot, par_chunked_two_shot};
