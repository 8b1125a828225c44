/*
 * What enable asks for: a fresh verdict of level 3 or more with a PASS, and a fresh profile that wins somewhere with
 * what passed (serve.h).
 */
#ifndef SP_VERDICT_PROOF_H
#define SP_VERDICT_PROOF_H

/* SP_OK; SP_EFAIL with what is not proved, and in *command the one that would prove it, "verify" or "bench"; NULL:
 * nothing would. */
int sp_proof_check(const char **command, const char *site);

#endif
