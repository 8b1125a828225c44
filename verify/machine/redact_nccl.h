/*
 * NCCL's settings, and the way that it took, without names: of interfaces, hosts, addresses, plugins and files.
 *
 * Only numbers and words that NCCL itself knows stay. What else a setting may be cannot be told from a name.
 */
#ifndef SP_MACHINE_REDACT_NCCL_H
#define SP_MACHINE_REDACT_NCCL_H

/* *out: a new string in place of text where the field is one of those ("settings", "via"); else NULL. */
int sp_redact_nccl(char **out, const char *key, const char *text);

#endif
